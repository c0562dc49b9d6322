"""Rates of NVIDIA's chips.

In       nothing
Out      RATES: chip's name -> Rates
Next     rates.py (what each is), rates_amd.py and rates_apple.py (the sisters)
Source   `sources` of each row. gpu-benches: github.com/te42kyfo/gpu-benches@1c36d50; cards: github.com/markdewing/
         AI_kernels@d916a39 latency/README.md; MT4G: github.com/caps-tum/mt4g@4cc5566 sample_results; "guide": CUDA C++
         Programming Guide, "Arithmetic Instructions", throughput for each compute capability
"""

from __future__ import annotations

from dataclasses import replace

from hcq.performance.model.rates import Rates

GUIDE = "CUDA C++ Programming Guide, throughput of arithmetic instructions"
LANES_80: dict[str, float] = {"fma": 64, "alu": 64, "half": 128, "f64": 32, "special": 16, "convert": 16, "warp": 32,
                              "memory": 32, "control": 64}  # fmt: skip
LANES_86 = {**LANES_80, "fma": 86, "half": 64, "f64": 2, "memory": 16}
LANES_90 = {**LANES_80, "fma": 128, "half": 128, "f64": 64}
LANES_120 = {**LANES_86, "alu": 128}

_A100 = Rates(
    l1=36, l2=300, dram=571, shared=23, atomic=600, read_share=0.92, mix_loss=0.07, l2_share=0.75, matrix_share=0.81,
    lanes=LANES_80, block_clocks=350, warp_clocks=8, begin_clocks=1.43, launch_s=1.28e-6, graph_s=0.8e-6,
    line_words=0.27,
    sources={
        "l1": "gpu-benches, gpu-latency/a100_80.txt: 36.1",
        "l2": "gpu-benches, gpu-latency/a100_80.txt: 211 in the near half, 407 where data is in both: between them",
        "dram": "gpu-benches, gpu-latency/a100_80.txt: 571",
        "shared": "github.com/chanzhennan/ChipBenchmarker 21e0071: 23",
        "atomic": "inferred: L2 and back twice",
        "read_share": "gpu-benches, gpu-stream/a100_80.txt: init 1880 of 2039 GB/s",
        "mix_loss": "gpu-benches, gpu-stream/a100_80.txt: scale 1732 of 2039 GB/s",
        "l2_share": "gpu-benches, gpu-l2-cache/a100_80.txt: 5420 of 7219 GB/s",
        "matrix_share": "cuBLASLt f16 16384^3, 256.5 of 312 TFLOP/s (github.com/samuel-bohman/AI-benchmarking-guide"
        "@2b25b69)",
        "lanes": GUIDE + ", 8.0; memory: 8 load and store units of each quarter (forums.developer.nvidia.com/t/296711)",
        "block_clocks": "gpu-benches, gpu-stream/a100_80.txt: 85 GB/s with two blocks of 32 threads on an SM, less a "
        "load of DRAM",
        "warp_clocks": "github.com/yencal/yencal.github.io@b39dbe1, copies of bytes by blocks of 1024, on an H100",
        "begin_clocks": "gpu-benches, gpu-small-kernels/a100_80_graph.txt: 237 blocks take 0.22 us more than 16",
        "launch_s": "gpu-benches, gpu-small-kernels/a100_80.txt beside a100_80_graph.txt: 2.62 and 1.34 us",
        "graph_s": "gpu-benches, gpu-small-kernels/a100_80_graph.txt: 1.34 us, less one load and the end of a block",
        "line_words": "github.com/yencal/gpu-histogram-optimization@b71f5c0: 2^30 atomics on 256 words in 276 ms, H100",
    },
)  # fmt: skip


def _like(base: Rates, sources: dict[str, str], **changed: object) -> Rates:
    """A row that has some rates of its own, and of another chip what nobody measured on this one."""
    return replace(base, sources={**base.sources, **sources}, **changed)  # type: ignore[arg-type]


_H100_PCIE = _like(
    _A100,
    {
        "l1": "gpu-benches, gpu-latency/h100_pcie.txt: 34.1",
        "l2": "gpu-benches, gpu-latency/h100_pcie.txt: 265 in the near half, 403 in both: between them",
        "dram": "gpu-benches, gpu-latency/h100_pcie.txt: 650",
        "shared": "MT4G, H100 NVL and SXM: 30",
        "read_share": "gpu-benches, gpu-l2-cache/h100_pcie.txt: 1989 of 2039 GB/s",
        "mix_loss": "gpu-benches, gpu-l2-cache: reads; the A100's loss for writes",
        "l2_share": "gpu-benches, gpu-l2-cache/h100_pcie.txt: 7254 of 8986 GB/s",
        "matrix_share": "cuBLAS bf16 8192^3, 795 of 989 TFLOP/s (github.com/pranjalssh/fast.cu@38eb642), SXM",
        "lanes": GUIDE + ", 9.0",
        "graph_s": "of the A100",
        "launch_s": "of the A100; 4.5 us between events are 2.9 of the events (tritonbench, pull 38)",
    },
    l1=34, l2=330, dram=650, shared=30, read_share=0.97, mix_loss=0.10, l2_share=0.80, matrix_share=0.80,
    lanes=LANES_90,
)  # fmt: skip
_H100 = _like(
    _H100_PCIE,
    {
        "l1": "cards: H100 SXM 40; MT4G 38",
        "l2": "cards: H100 SXM 291; MT4G 219: with what the far half adds on the PCIe card",
        "dram": "cards: H100 SXM 700; MT4G 834",
        "read_share": "github.com/pranjalssh/fast.cu@38eb642: sum of 2^30 at 3240 of 3350 GB/s",
    },
    l1=38, l2=300, dram=740,
)  # fmt: skip
_H200 = _like(
    _H100,
    {
        "read_share": "of the H100",
        "l2_share": "gpu-benches, gpu-l2-cache/h200.txt: 11049 GB/s at 3 MB, 9675 at 25 MB",
        "dram": "of the H100",
    },
    l2_share=0.95,
)
_B200 = _like(
    _H100,
    {
        "l1": "cards: B200 40",
        "l2": "cards: B200 295, with what a far half adds on an H100",
        "dram": "cards: B200 860",
        "matrix_share": "cuBLAS bf16: 1359 of 2250 TFLOP/s at 4096, 1414 at 8192 (github.com/gau-nernst/learn-cuda"
        "@1454f8b)",
        "read_share": "of the H100",
    },
    l1=40, l2=330, dram=860, matrix_share=0.63,
)  # fmt: skip
_GA102 = _like(
    _A100,
    {
        "l1": "of the A100, which V100 (30) and Turing (32) bracket",
        "l2": "latency of L2 on Turing: github.com/sjfeng1999/gpu-arch-microbenchmark@ea74ff7: 236",
        "dram": "cards: RTX 2000 Ada 570",
        "read_share": "of the A100",
        "l2_share": "inferred: all of the rate that an L2 slice of 64 bytes a clock has",
        "matrix_share": "inferred: 0.9, as mma.sync reaches on an RTX 4090",
        "lanes": GUIDE + ", 8.6; fma: cuBLAS's 23.2 of 38.7 TFLOP/s on an A6000, nine tenths of whose instructions "
        "multiply (github.com/siboehm/SGEMM_CUDA@60cba6f): power allows no more; memory: 16 load and store units of an "
        "SM (GA102 white paper, figure 3; no second source was found as text), where a GA100 has 32",
    },
    l2=236, dram=570, l2_share=1.0, matrix_share=0.9, lanes=LANES_86,
)  # fmt: skip
_AD102 = _like(
    _GA102,
    {
        "l1": "cards: 4090 40",
        "l2": "cards: 4090 296",
        "dram": "cards: 4090 636",
        "matrix_share": "cublasGemmEx f16 4096^3 in 895 us at 2520 MHz: 153 of 165 TFLOP/s (github.com/spatters/"
        "mma-matmul@ea1d41a)",
        "lanes": GUIDE + ", 8.9; fma: a GA102's; memory: 16 load and store units (Ada white paper, figure 5)",
    },
    l1=40, l2=296, dram=636, matrix_share=0.93,
)  # fmt: skip
_GB202 = _like(
    _AD102,
    {
        "l1": "cards: 5090 44",
        "l2": "cards: 5090 360",
        "dram": "cards: 5090 936",
        "matrix_share": "cuBLAS bf16 4096^3: 177 of 209.5 TFLOP/s at 400 W (github.com/gau-nernst/learn-cuda@1454f8b)",
        "lanes": GUIDE + ", 12.0; fma: a GA102's; memory: 16 load and store units of an SM",
    },
    l1=44, l2=360, dram=936, matrix_share=0.85, lanes=LANES_120,
)  # fmt: skip

RATES = {
    "a100": _A100,
    "a100-40": _A100,
    "h100": _H100,
    "h100-pcie": _H100_PCIE,
    "h200": _H200,
    "gh200": _H200,
    "b200": _B200,
    "rtx3090": _GA102,
    "a6000": _GA102,
    "a40": _GA102,
    "rtx3050m": _GA102,
    "rtx4090": _AD102,
    "rtx4070tis": _AD102,
    "rtx5090": _GB202,
}
