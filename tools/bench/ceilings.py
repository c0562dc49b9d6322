"""What the machine can do at most: multiply-adds from registers, reading memory, copying memory.

In       the number of threads
Out      as a program: {"fma": GFLOP/s of float32, "read": GB/s, "copy": GB/s} and, where the CPU has instructions for
         them, "bf16" (GFLOP/s) and "int8" (GOP/s)
Next     compare.py (which prints our share of these)

The loops are LLVM IR of a dozen lines, compiled here, one call per thread: nothing is between them and the machine.
Products use vectors of the width of a register: of wider ones twice as many registers would be needed, and those of
AVX2 would not suffice. What HCQ_CPU_LEVEL leaves out is not used here, either.
"""

from __future__ import annotations

import ctypes
import json
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hcq import config
from hcq.compiler.assemble.llvm_cpu import host_processor
from hcq.compiler.target import Target, cpu_target, limited

ACCUMULATORS = 12  # enough to hide the latency of a multiply-add on two units, few enough for 16 registers
FLOATS = 1 << 26  # 256 MiB: beyond any cache
BLOCKS = 15


@dataclass(frozen=True)
class Product:
    """An instruction: its LLVM name, the types of a lane's sum and of its factors, how many products a lane has.

    flag    what the CPU must have, by the names of /proc/cpuinfo
    """

    instruction: str
    sums: str
    factors: str
    products: int
    flag: str = ""


PRODUCTS = {  # of two with the same factors, the better one first
    "fma": (Product("llvm.fma.v{lanes}f32", "float", "float", 1),),
    "bf16": (Product("llvm.x86.avx512bf16.dpbf16ps.{bits}", "float", "bfloat", 2, "avx512_bf16"),),
    "int8": (
        Product("llvm.x86.avx512.vpdpbusd.{bits}", "i32", "i8", 4, "avx512_vnni"),
        Product("llvm.x86.avx512.vpdpbusd.{bits}", "i32", "i8", 4, "avx_vnni"),
    ),
}


def _product_loop(name: str, product: Product, bits: int) -> str:
    n, lanes = ACCUMULATORS, bits // 32
    instruction = product.instruction.format(lanes=lanes, bits=bits)
    sums, factors = f"<{lanes} x {product.sums}>", f"<{lanes * product.products} x {product.factors}>"
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


def _products(target: Target) -> dict[str, Product]:
    """The instructions that this CPU has."""
    found = {
        name: next((one for one in some if not one.flag or one.flag in target.flags), None)
        for name, some in PRODUCTS.items()
    }
    return {name: product for name, product in found.items() if product is not None}


class Loops:
    """The loops, compiled for this machine; `loops[name]` can be called from any thread."""

    def __init__(self, text: str, target: Target) -> None:
        import llvmlite.binding as llvm

        llvm.initialize_native_target()
        llvm.initialize_native_asmprinter()
        cpu, features = host_processor(target)
        machine = llvm.Target.from_default_triple().create_target_machine(cpu=cpu, features=features, opt=2)
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
    target = limited(cpu_target(), config.current().cpu_level)
    products = _products(target)
    texts = [_product_loop(name, product, target.vector_bits) for name, product in products.items()]
    loops = Loops("\n".join([*texts, memory]), target)
    # a short vector for products, in the nearest cache, and zeros: as fast as other numbers, and sums stay finite
    zeros = {name: [aligned(16) for _ in range(threads)] for name in products}
    for vector in (vector for vectors in zeros.values() for vector in vectors):
        vector[:] = 0
    steps = 1 << 21
    plans = {
        name: (
            zeros[name],
            zeros[name],
            steps,
            threads * steps * ACCUMULATORS * target.lanes * 2 * one.products,
        )
        for name, one in products.items()
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
