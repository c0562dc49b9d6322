"""What the machine can do at most: float32 multiply-adds from registers, reading memory, copying memory.

In       the number of threads
Out      as a program: {"fma": GFLOP/s, "read": GB/s, "copy": GB/s}
Next     bench.py (which prints our share of these)

The loops are LLVM IR of a dozen lines, compiled here, one call per thread: nothing is between them and the machine. The
width is the host's own: vectors of 16 floats, which LLVM splits where the registers are narrower.
"""

from __future__ import annotations

import ctypes
import json
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

ACCUMULATORS = 12  # enough to hide the latency of a multiply-add on two units, few enough for 16 registers
FLOATS = 1 << 26  # 256 MiB: beyond any cache
BLOCKS = 15


def _fma_loop() -> str:
    n = ACCUMULATORS
    rows = [f"  %a{i} = phi <16 x float> [ zeroinitializer, %entry ], [ %b{i}, %loop ]" for i in range(n)]
    work = [
        f"  %b{i} = call <16 x float> @llvm.fma.v16f32(<16 x float> %x, <16 x float> %x, <16 x float> %a{i})"
        for i in range(n)
    ]
    sums = [f"  %s{i} = fadd <16 x float> {'%x' if i == 0 else f'%s{i - 1}'}, %b{i}" for i in range(n)]
    return "\n".join(
        [
            "define void @fma(ptr %memory, ptr %unused, i64 %count) {",
            "entry:",
            "  %x = load <16 x float>, ptr %memory, align 64",
            "  br label %loop",
            "loop:",
            "  %i = phi i64 [ 0, %entry ], [ %next, %loop ]",
            *rows,
            *work,
            "  %next = add i64 %i, 1",
            "  %more = icmp slt i64 %next, %count",
            "  br i1 %more, label %loop, label %done",
            "done:",
            *sums,
            f"  store <16 x float> %s{n - 1}, ptr %memory, align 64",
            "  ret void",
            "}",
            "declare <16 x float> @llvm.fma.v16f32(<16 x float>, <16 x float>, <16 x float>)",
        ]
    )


class Loops:
    """The loops, compiled for this machine; `loops[name]` can be called from any thread."""

    def __init__(self, text: str) -> None:
        import llvmlite.binding as llvm

        llvm.initialize_native_target()
        llvm.initialize_native_asmprinter()
        machine = llvm.Target.from_default_triple().create_target_machine(
            cpu=llvm.get_host_cpu_name(), features=llvm.get_host_cpu_features().flatten(), opt=2
        )
        self.engine = llvm.create_mcjit_compiler(llvm.parse_assembly(text), machine)
        self.engine.finalize_object()

    def __getitem__(self, name: str) -> Callable[[int, int, int], None]:
        signature = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64)
        return signature(self.engine.get_function_address(name))


def measure(threads: int) -> dict[str, float]:
    """The best of a few blocks of each: a ceiling is what the machine does when nobody disturbs it."""
    import numpy

    def aligned(count: int) -> Any:
        memory = numpy.ones(count + 16, "float32")
        skip = -memory.ctypes.data % 64 // 4
        return memory[skip : skip + count]

    share = FLOATS // threads
    sources = [aligned(share) for _ in range(threads)]
    targets = [aligned(share) for _ in range(threads)]
    best = {"fma": 0.0, "read": 0.0, "copy": 0.0}
    memory = Path(__file__).with_name("bench_memory.ll").read_text(encoding="utf-8")
    loops = Loops(f"{_fma_loop()}\n{memory}")
    # a short vector for fma: its accumulators must stay finite, and its memory in the nearest cache
    ones = [aligned(16) for _ in range(threads)]
    steps = 1 << 21
    plans = {
        "fma": (ones, ones, steps, threads * steps * ACCUMULATORS * 16 * 2),
        "read": (sources, targets, share, threads * share * 4),
        "copy": (sources, targets, share, threads * share * 8),
    }
    for _ in range(BLOCKS):
        for name, (inputs, outputs, count, amount) in plans.items():
            workers = [
                threading.Thread(target=loops[name], args=(a.ctypes.data, b.ctypes.data, count))
                for a, b in zip(inputs, outputs)
            ]
            before = time.perf_counter()
            for worker in workers:
                worker.start()
            for worker in workers:
                worker.join()
            best[name] = max(best[name], amount / (time.perf_counter() - before) / 1e9)
    return best


if __name__ == "__main__":
    print(json.dumps(measure(int(sys.argv[1]))))
