"""Rates of Apple's chips. Apple publishes none of these, and nobody's ladders were found as text: all are inferred.

In       nothing
Out      RATES: chip's name -> Rates
Changes  nothing
Next     rates.py (what each is), rates_nvidia.py and rates_amd.py (the sisters)
Source   `sources`: what of them follows from Apple's documentation, and what is inferred
"""

from __future__ import annotations

from hcq.performance.model.rates import NAMES, Rates

_INFERRED = "inferred: no published ladder was found; of the order of other GPUs with shared memory in DRAM"
_APPLE = Rates(
    l1=100, l2=250, dram=600, shared=50, atomic=600, read_share=0.85, mix_loss=0.05, l2_share=0.8, matrix_share=0.8,
    lanes={"fma": 128, "alu": 128, "half": 128, "special": 32, "convert": 32, "warp": 32, "memory": 32, "control": 128},
    block_clocks=500, warp_clocks=8, launch_s=2e-6, graph_s=2e-6, line_words=0.25,
    sources=dict.fromkeys(NAMES, _INFERRED) | {"lanes": "128 ALUs of a core: Apple's figures of cores and TFLOPS"},
)  # fmt: skip

RATES = dict.fromkeys(("m1", "m2", "m3", "m4"), _APPLE)
