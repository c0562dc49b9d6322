"""What counting takes ptxas to make of PTX is what nvdisasm shows of ptxas's machine code."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from hcq.emu.nv.shader import flow
from hcq.emu.nv.shader.chains import chains_of
from hcq.emu.nv.shader.merged_loads import merged
from hcq.emu.nv.shader.parser import parse
from tests.hcq.emu.nv.shader.running import needs_nvrtc
from tests.hcq.nv.test_cubin import tool

pytestmark = needs_nvrtc

# (type, what is done eight times over, one after the other)
STEPS = {
    "multiply-add": ("float", "a = a * b + b;"),
    "float64": ("double", "a = a * b + b;"),
    "approximate division": ("float", "a = __fdividef(a, b);"),
    "division": ("float", "a = a / b;"),
    "square root": ("float", "a = sqrtf(a) + b;"),
    "fast exponential": ("float", "a = exp2f(a) * b;"),
    "integer product": ("int", "a = a * b + 7;"),
    "logic": ("unsigned", "a = (a ^ b) * 3;"),
    "wide sum": ("long long", "a = (a ^ b) + b;"),
    "integer division": ("int", "a = b / a;"),
    "float to integer": ("float", "a = (float)(int)a + b;"),
    "maximum": ("float", "a = fmaxf(a, b) + b;"),
    "half to float": (
        "unsigned short",
        (
            'asm("{ .reg .f32 x, y; cvt.f32.f16 x, %0; cvt.f32.f16 y, %1; add.f32 x, x, y; '
            'cvt.rn.f16.f32 %0, x; }" : "+h"(a) : "h"(b));'
        ),
    ),
}
REPEATS = 8
CLOSE = 0.35
FREE = re.compile(r"NOP|EXIT|RET|BRA|CALL|BSSY|BSYNC|WARPSYNC|ULDC|LDC|S2R|S2UR|LDG|STG|BREAK|BMOV|R2UR")


def source(type_: str, step: str, repeats: int) -> str:
    return (
        f'extern "C" __global__ void k({type_} *p, {type_} *q) {{ {type_} a = p[threadIdx.x], b = q[threadIdx.x]; '
        f"{step * repeats} p[threadIdx.x] = a; }}"
    )


def by_ptxas(cubin: bytes, folder: Path) -> int:
    """Instructions up to the end of the kernel, without what moves data to and from memory and goes elsewhere."""
    path = folder / "k.cubin"
    path.write_bytes(cubin)
    done = subprocess.run(
        [tool("nvdisasm"), "-c", str(path)], capture_output=True, text=True, check=True, timeout=60
    )
    names = re.findall(r"^\s+/\*[0-9a-f]{4}\*/\s+(?:@!?U?P\w+ )?([A-Z0-9]+)", done.stdout, re.M)
    ends = names.index("EXIT")
    return sum(not FREE.fullmatch(name) for name in names[:ends])


def by_weights(ptx: str) -> int:
    blocks = flow.blocks_of(parse(ptx).functions["k"])
    pipes = [chain.ops for chain in chains_of(blocks, merged(blocks, {}))]
    return sum(count for ops in pipes for pipe, count in ops.items() if pipe not in ("memory", "control"))


@pytest.mark.parametrize("name", STEPS)
def test_an_instruction_of_ptx_weighs_what_ptxas_makes_of_it(name: str, tmp_path: Path) -> None:
    from hcq.nv.toolchain.nvrtc import compile_cuda

    type_, step = STEPS[name]
    few, many = (compile_cuda(source(type_, step, repeats), "sm_80") for repeats in (1, 1 + REPEATS))
    theirs = by_ptxas(many.cubin, tmp_path) - by_ptxas(few.cubin, tmp_path)
    ours = by_weights(many.ptx) - by_weights(few.ptx)
    assert ours == pytest.approx(theirs, rel=CLOSE), (ours / REPEATS, theirs / REPEATS)


def test_loads_of_a_row_that_ptxas_makes_one_are_counted_as_one(tmp_path: Path) -> None:
    from hcq.nv.toolchain.nvrtc import compile_cuda

    text = """extern "C" __global__ void k(float *p) {
      __shared__ float x[32][32];
      x[threadIdx.x / 32][threadIdx.x % 32] = p[threadIdx.x]; __syncthreads();
      float sum = 0;
      for (int j = 0; j < 32; j++) sum += x[threadIdx.x / 32][j];
      p[threadIdx.x] = sum; }"""
    made = compile_cuda(text, "sm_80")
    path = tmp_path / "k.cubin"
    path.write_bytes(made.cubin)
    done = subprocess.run(
        [tool("nvdisasm"), "-c", str(path)], capture_output=True, text=True, check=True, timeout=60
    )
    blocks = flow.blocks_of(parse(made.ptx).functions["k"])
    found = merged(blocks, dict.fromkeys(parse(made.ptx).functions["k"].variables, 16))
    assert sum(size == 16 for size in found.values()) == len(re.findall(r"LDS\.128", done.stdout)) == 8
