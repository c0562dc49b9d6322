"""Rates of Apple's chips, of which Apple publishes none.

In       nothing
Out      RATES: chip's name -> Rates
Next     rates.py (what each is), rates_nvidia.py and rates_amd.py (the sisters)
Source   `sources`: measured by others on an M1, an M2 Pro and an M4, and taken for all of them; what nobody published
         is inferred and says so. metal-benchmarks: github.com/philipturner/metal-benchmarks@936d911 README.md; M2 Pro:
         chipsandcheese.com, A Brief Look at Apple's M2 Pro iGPU (2023), by an M2's 1.398 GHz
"""

from __future__ import annotations

from hcq.performance.model.rates import NAMES, Rates

_APPLE = Rates(
    l1=100, l2=327, dram=478, shared=50, atomic=82, read_share=0.83, mix_loss=0.0, l2_share=0.61, matrix_share=0.79,
    lanes={"fma": 128, "alu": 128, "half": 128, "special": 32, "convert": 32, "warp": 64, "memory": 32, "control": 128},
    block_clocks=500, warp_clocks=8, begin_clocks=1.43, launch_s=2e-6, graph_s=2e-6, line_words=0.25,
    sources=dict.fromkeys(NAMES, "inferred: of the order of other GPUs; nobody's measurement was found as text") | {
        "l1": "inferred: M2 Pro's is said to be about as fast as an RDNA 3 iGPU's",
        "l2": "M2 Pro: 234 ns to the cache of the whole chip, which stands for L2 here",
        "dram": "M2 Pro: 342 ns in 128 MB",
        "atomic": "M2 Pro: 58.6 ns between two threads",
        "read_share": "Huebner et al., arXiv 2502.05317: STREAM on an M4's GPU, 100 of 120 GB/s",
        "mix_loss": "of read_share, which is of streams that write",
        "l2_share": "M2 Pro: 1034 GB/s, of 19 cores with 64 bytes a clock each",
        "matrix_share": "metal-benchmarks: a product of 8x8x8 floats takes a quarter of a core 20.1 clocks, 16 at its "
        "peak",
        "lanes": "metal-benchmarks: clocks of a group of 32 threads on a quarter of a core: 1 for sums, products, "
        "comparisons; 4 for exp2, log2 and conversions (reciprocals 6, roots 8); 2 for shuffles; memory: inferred",
    },
)  # fmt: skip

RATES = dict.fromkeys(("m1", "m2", "m3", "m4"), _APPLE)
