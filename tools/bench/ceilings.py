"""What the machine can do at most: multiply-adds from registers, reading memory, copying memory.

In       the number of threads
Out      as a program: {"fma": GFLOP/s of float32, "read": GB/s, "copy": GB/s} and, where the CPU has instructions for
         them, "bf16" (GFLOP/s) and "int8" (GOP/s)
Next     compare.py (which prints our share of these)

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


# instruction -> its LLVM name, what it adds up, what it multiplies, and products in a lane
PRODUCTS = {
    "fma": ("llvm.fma.v16f32", "<16 x float>", "<16 x float>", 1),
    "bf16": ("llvm.x86.avx512bf16.dpbf16ps.512", "<16 x float>", "<32 x bfloat>", 2),
    "int8": ("llvm.x86.avx512.vpdpbusd.512", "<16 x i32>", "<64 x i8>", 4),
}
FEATURES = {"bf16": "avx512bf16", "int8": "avx512vnni"}  # as LLVM calls what the CPU must have


def _product_loop(name: str) -> str:
    n = ACCUMULATORS
    instruction, sums, factors, _ = PRODUCTS[name]
    add = "add" if "i32" in sums else "fadd"
    order = "{x}, {x}, {a}" if name == "fma" else "{a}, {x}, {x}"
    call = order.format(x=f"{factors} %x", a=sums + " %a{i}")
    rows = [f"  %a{i} = phi {sums} [ zeroinitializer, %entry ], [ %b{i}, %loop ]" for i in range(n)]
    work = [f"  %b{i} = call {sums} @{instruction}({call.format(i=i)})" for i in range(n)]
    total = [f"  %s{i} = {add} {sums} {'%b0' if i == 1 else f'%s{i - 1}'}, %b{i}" for i in range(1, n)]
    types = ", ".join(part.split(" %")[0] for part in call.split(", "))
    return "\n".join(
        [
            f"define void @{name}(ptr %memory, ptr %unused, i64 %count) {{",
            "entry:",
            f"  %x = load {factors}, ptr %memory, align 64",
            "  br label %loop",
            "loop:",
            "  %i = phi i64 [ 0, %entry ], [ %next, %loop ]",
            *rows,
            *work,
            "  %next = add i64 %i, 1",
            "  %more = icmp slt i64 %next, %count",
            "  br i1 %more, label %loop, label %done",
            "done:",
            *total,
            f"  store {sums} %s{n - 1}, ptr %memory, align 64",
            "  ret void",
            "}",
            f"declare {sums} @{instruction}({types})",
        ]
    )


def _products() -> list[str]:
    """The instructions that this CPU has."""
    import llvmlite.binding as llvm

    features = llvm.get_host_cpu_features()
    return [name for name in PRODUCTS if name not in FEATURES or features.get(FEATURES[name])]


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
    memory = Path(__file__).with_name("memory.ll").read_text(encoding="utf-8")
    products = _products()
    loops = Loops("\n".join([*map(_product_loop, products), memory]))
    # a short vector for products, in the nearest cache, and zeros: as fast as other numbers, and sums stay finite
    zeros = {name: [aligned(16) for _ in range(threads)] for name in products}
    for vector in (vector for vectors in zeros.values() for vector in vectors):
        vector[:] = 0
    steps = 1 << 21
    plans = {
        name: (zeros[name], zeros[name], steps, threads * steps * ACCUMULATORS * 16 * 2 * PRODUCTS[name][3])
        for name in products
    }
    plans["read"] = (sources, targets, share, threads * share * 4)
    plans["copy"] = (sources, targets, share, threads * share * 8)
    best = dict.fromkeys(plans, 0.0)
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
