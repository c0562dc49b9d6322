"""Rates of AMD's chips.

In       nothing
Out      RATES: chip's name -> Rates
Next     rates.py (what each is), rates_nvidia.py and rates_apple.py (the sisters)
Source   `sources` of each row. gpu-benches: github.com/te42kyfo/gpu-benches@1c36d50; MT4G:
         github.com/caps-tum/mt4g@4cc5566 sample_results
"""

from __future__ import annotations

from dataclasses import replace

from hcq.performance.model.rates import Rates

CDNA_LANES: dict[str, float] = {
    "vector": 64,
    "f64": 64,
    "special": 16,
    "scalar": 64,
    "memory": 16,
    "shared": 32,
    "control": 64,
    "warp": 32,
}
RDNA_LANES: dict[str, float] = {
    "vector": 64,
    "f64": 4,
    "special": 16,
    "scalar": 64,
    "memory": 32,
    "shared": 32,
    "control": 64,
    "warp": 32,
}

_MI210 = Rates(
    l1=125, l2=270, dram=640, shared=50, atomic=900, read_share=0.83, mix_loss=0.0, l2_share=0.7, matrix_share=0.8,
    lanes=CDNA_LANES, block_clocks=600, warp_clocks=8, begin_clocks=1.43, launch_s=1.0e-6, graph_s=0.8e-6,
    line_words=0.27,
    sources={
        "l1": "gpu-benches, gpu-latency/mi210.txt: 125; MT4G 124",
        "l2": "gpu-benches, gpu-latency/mi210.txt: 249; MT4G 302: between them",
        "dram": "gpu-benches, gpu-latency/mi210.txt: 639; MT4G 741",
        "shared": "MT4G, MI210: 49.9",
        "atomic": "inferred from an MI300X's by rocprof-compute: 382 with little contention, 1937 with much",
        "read_share": "gpu-benches, gpu-l2-cache/mi210.txt: 1344 to 1403 of 1638 GB/s",
        "mix_loss": "gpu-benches, gpu-small-kernels/mi210.txt: as much as what reads alone get",
        "l2_share": "gpu-benches, gpu-cache/mi210.txt: 5000 of 7000 GB/s",
        "matrix_share": "inferred",
        "lanes": "ROCm's documentation, MI250 microarchitecture: four SIMDs of 16 lanes",
        "block_clocks": "inferred: the A100's by the clock of DRAM's latency",
        "warp_clocks": "inferred: the A100's",
        "begin_clocks": "inferred: the A100's",
        "launch_s": "gpu-benches, gpu-small-kernels/mi210.txt: 2.05 us",
        "graph_s": "gpu-benches, gpu-small-kernels/mi210_graph.txt: 2.05 us",
        "line_words": "inferred: an H100's",
    },
)  # fmt: skip


def _like(base: Rates, sources: dict[str, str], **changed: object) -> Rates:
    """A row that has some rates of its own, and of another chip what nobody measured on this one."""
    return replace(base, sources={**base.sources, **sources}, **changed)  # type: ignore[arg-type]


_MI300X = _like(
    _MI210,
    {
        "l1": "MT4G, MI300X: 116",
        "l2": "MT4G, MI300X: 288",
        "dram": "MT4G, MI300X: 900",
        "shared": "MT4G, MI300X: 51",
        "last": "inferred: between L2 and DRAM",
        "read_share": "MT4G, MI300X: 3.96 TB/s read, of 5.3",
        "mix_loss": "MT4G, MI300X: 4.42 TB/s written: of both there is more than of reads alone",
        "matrix_share": "hipBLASLt fp8 8192^3: 1223 of 2615 TFLOP/s; f16 about 0.5 (github.com/samuel-bohman/"
        "AI-benchmarking-guide@2b25b69)",
    },
    l1=116, l2=288, last=600, dram=900, shared=51, read_share=0.747, mix_loss=-0.043, matrix_share=0.5,
)  # fmt: skip
_MI355X = _like(_MI300X, {"dram": "of the MI300X", "l1": "of the MI300X", "l2": "of the MI300X"})
_RDNA3 = _like(
    _MI210,
    {
        "l1": "gpu-benches, gpu-latency/rx6900xt.txt: 73 in L0, 112 in L1: between them",
        "l2": "github.com/chanzhennan/ChipBenchmarker 21e0071: RX 7900 XT 340",
        "last": "chipsandcheese.com, latency testing is hard: 150 ns at 2.5 GHz",
        "dram": "github.com/chanzhennan/ChipBenchmarker 21e0071: RX 7900 XT 551",
        "shared": "github.com/chanzhennan/ChipBenchmarker 21e0071: RX 7900 XT 33",
        "read_share": "github.com/chanzhennan/ChipBenchmarker 21e0071: RX 7900 XT 706 to 814 of 800 GB/s",
        "l2_share": "github.com/chanzhennan/ChipBenchmarker 21e0071: RX 7900 XT 3253 GB/s, of 84 units",
        "lanes": "RDNA 3 ISA: two SIMDs of 32 lanes; a pair of instructions counts as one",
        "matrix_share": "inferred",
    },
    l1=90, l2=340, last=375, dram=551, shared=33, read_share=0.92, mix_loss=0.0, l2_share=0.5, lanes=RDNA_LANES,
)  # fmt: skip
_RDNA2 = _like(
    _RDNA3,
    {
        "l1": "gpu-benches, gpu-latency/rx6900xt.txt: 73 in L0, 112 in L1: between them",
        "l2": "gpu-benches, gpu-latency/rx6900xt.txt: 207",
        "last": "of the RX 7900 XTX",
        "dram": "of the RX 7900 XTX",
        "shared": "of the RX 7900 XTX",
        "read_share": "of the RX 7900 XTX",
        "l2_share": "of the RX 7900 XTX",
        "lanes": "RDNA 2 ISA: two SIMDs of 32 lanes",
    },
    l2=207,
)
_RDNA4 = _like(
    _RDNA3,
    {"l1": "of the RX 7900 XTX", "l2": "of the RX 7900 XTX", "dram": "of the RX 7900 XTX"},
    lanes={**RDNA_LANES, "f64": 2},
)

RATES = {
    "mi210": _MI210,
    "mi250": _MI210,
    "mi300x": _MI300X,
    "mi355x": _MI355X,
    "rx6900xt": _RDNA2,
    "rx7900xtx": _RDNA3,
    "rx7900gre": _RDNA3,
    "rx9070xt": _RDNA4,
}
