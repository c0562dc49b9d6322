"""Search beside the heuristic: small and middling kernels on emulated GPUs, the heuristic's time to what is found.

In       names of GPUs (`nv:sm_80`) and of rows, the width of the beam, the seconds of each kernel
Out      a table of kernels, the worst ratio first; the exit status says whether all are within the limit
Changes  nothing; each row runs in a process of its own, with caches and results of its own
Next     docs/search.md (what was found), hcq/performance/roofline.py (the model that judges),
         compiler/loops/heuristic_gpu.py

    python -m hcq.tools.bench.search --gpus nv:sm_80 --rows product --width 3 --seconds 20
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from hcq import Tensor, config
from hcq.compiler.search.results import Result
from hcq.frontend.search import store
from hcq.frontend.search.progress import shown_ns
from hcq.ir.dtype import DType, dtypes

GPUS = ("nv:sm_80", "nv:sm_90", "amd:gfx942", "amd:gfx1100")
LIMIT = 1.3
SHARE = 4  # of HCQ_SEARCH_SECONDS one kernel gets at most this part
SPARE_S = 120  # of a process, beside its search
f16, bf16, f32 = dtypes.float16, dtypes.bfloat16, dtypes.float32


def memory(*shape: int, dtype: DType = f32) -> Tensor:
    """A tensor in memory, whose own kernel is not searched for."""
    before = config.current()
    config.use(replace(before, search=0, search_results=None))
    try:
        return Tensor.zeros(*shape, dtype=dtype).contiguous().realize()
    finally:
        config.use(before)


def product(m: int, n: int, k: int, dtype: DType = f16, batch: int = 0) -> Callable[[], Tensor]:
    """A product of matrices, or of so many."""
    lead = (batch,) if batch else ()
    return lambda: memory(*lead, m, k, dtype=dtype) @ memory(*lead, k, n, dtype=dtype)


def attention(length: int, heads: int = 2, dtype: DType = f16) -> Callable[[], Tensor]:
    """Attention of heads of 64."""

    def make() -> Tensor:
        q, k, v = (memory(1, heads, length, 64, dtype=dtype) for _ in range(3))
        return q.scaled_dot_product_attention(k, v)

    return make


ROWS: dict[str, Callable[[], Tensor]] = {
    "copy 64x128": lambda: memory(64, 128) + 1,
    "copy 512x512": lambda: memory(512, 512) + 1,
    "copy f16 256x256": lambda: memory(256, 256, dtype=f16) + 1,
    "add 1000x50": lambda: memory(1000, 50) + memory(50),
    "gelu 256x256": lambda: memory(256, 256).gelu(),
    "transpose 128x256": lambda: memory(128, 256).T.contiguous(),
    "row sums 64x512": lambda: memory(64, 512).sum(1),
    "row sums 1024x64": lambda: memory(1024, 64).sum(1),
    "row sums 4x16384": lambda: memory(4, 16384).sum(1),
    "column sums 256x128": lambda: memory(256, 128).sum(0),
    "column sums 2048x64": lambda: memory(2048, 64).sum(0),
    "column sums 64x2048": lambda: memory(64, 2048).sum(0),
    "sum of all 65536": lambda: memory(65536).sum(),
    "middle sums 16x64x64": lambda: memory(16, 64, 64).sum(1),
    "softmax 64x512": lambda: memory(64, 512).softmax(-1),
    "softmax 1024x64": lambda: memory(1024, 64).softmax(-1),
    "layer norm 64x512": lambda: memory(64, 512).layer_norm((512,), memory(512), memory(512)),
    "argmax 64x1000": lambda: memory(64, 1000).argmax(1),
    "product f16 64x64x128": product(64, 64, 128),
    "product f16 128x128x64": product(128, 128, 64),
    "product f16 256x256x128": product(256, 256, 128),
    "product bf16 512x512x64": product(512, 512, 64, bf16),
    "product f32 64x64x128": product(64, 64, 128, f32),
    "product f32 256x256x64": product(256, 256, 64, f32),
    "product f16 1x512x256": product(1, 512, 256),
    "product f16 4x512x256": product(4, 512, 256),
    "product f16 16x512x256": product(16, 512, 256),
    "product f16 64x512x256": product(64, 512, 256),
    "product f32 1x512x256": product(1, 512, 256, f32),
    "product f32 8x512x128": product(8, 512, 128, f32),
    "product f16 512x8x128": product(512, 8, 128),
    "batched f16 8x64x64x64": product(64, 64, 64, f16, 8),
    "batched f32 8x32x32x64": product(32, 32, 64, f32, 8),
    "attention 128": attention(128),
    "attention 64 f32": attention(64, dtype=f32),
}


def search(gpu: str, row: str, width: int, seconds: float) -> list[Result]:
    """The kernels of a row. Raises RuntimeError with what the process said where it failed."""
    with tempfile.TemporaryDirectory(prefix="hcq-bench-search-") as folder:
        results = Path(folder, "results.txt")
        settings = {
            "HCQ_EMULATE": gpu,
            "HCQ_DEVICE": gpu.partition(":")[0].upper(),
            "HCQ_SEARCH": str(width),
            "HCQ_SEARCH_SECONDS": str(round(SHARE * seconds)),
            "HCQ_SEARCH_RESULTS": str(results),
            "HCQ_CACHE_DIR": folder,
        }
        done = subprocess.run(
            [sys.executable, "-m", "hcq.tools.bench.search", "--only", row],
            env={**os.environ, **settings},
            capture_output=True,
            text=True,
            timeout=SPARE_S + 2 * SHARE * seconds,
            check=False,
        )
        if done.returncode or not results.exists():
            raise RuntimeError(f"{gpu}, {row}: {done.stderr.strip()[-2000:]}")
        return list(store.read_file(results).values())


def main() -> int:
    """Search, and print what was found."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--gpus", nargs="+", default=GPUS, metavar="GPU")
    parser.add_argument(
        "--rows", nargs="+", default=[""], metavar="TEXT", help="rows whose names contain one of these"
    )
    parser.add_argument("--width", type=int, default=3, help="of the beam")
    parser.add_argument("--seconds", type=float, default=20, help="for each kernel")
    parser.add_argument("--schedules", action="store_true", help="print what was found, too")
    parser.add_argument("--only", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.only:
        ROWS[options.only]().realize()
        return 0
    names = [name for name in ROWS if any(word in name for word in options.rows)]
    worst = 0.0
    print("| GPU | row | heuristic | found | ratio | tried |\n|---|---|---|---|---|---|")
    for gpu in options.gpus:
        for name in names:
            for one in search(gpu, name, options.width, options.seconds):
                worst = max(worst, one.gain)
                times = f"{shown_ns(one.heuristic_ns)} | {shown_ns(one.ns)}"
                print(f"| {gpu} | {name} | {times} | {one.gain:.2f} | {one.tried} |", flush=True)
                if options.schedules:
                    print(f"    {one.kernel}: {one.schedule}", flush=True)
    print(f"\nworst: {worst:.2f}, to be within {LIMIT}")
    return 0 if worst <= LIMIT else 1


if __name__ == "__main__":
    sys.exit(main())
