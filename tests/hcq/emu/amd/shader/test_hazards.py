"""Hazards: none in what LLVM compiles, and what its s_nops stand for is found without them."""

from __future__ import annotations

import pytest

from hcq.emu.amd.shader.hazards import hazards_of, transcendentals_of
from hcq.emu.amd.shader.isa import Isa
from hcq.emu.amd.shader.operands import Context, Mode
from tests.hcq.emu.amd.shader.bench import ACC_OFFSET, DEFAULT_MODE, ISAS
from tests.hcq.emu.amd.shader.kernels import Loaded
from tests.hcq.emu.amd.shader.random_kernels import make
from tests.hcq.emu.amd.shader.test_differential import buffers
from tests.hcq.emu.amd.shader.test_register_waits import found_in
from tests.turns import seeds

GFX9 = ["gfx90a", "gfx942"]
PRODUCTS = {
    "16x16x16f16": ("<4 x half>", 4, "float"),
    "32x32x8f16": ("<4 x half>", 16, "float"),
    "4x4x4f16": ("<4 x half>", 4, "float"),
    "16x16x4f32": ("float", 4, "float"),
    "4x4x1f32": ("float", 4, "float"),
    "32x32x2f32": ("float", 16, "float"),
}
DECLARED = """
declare i32 @llvm.amdgcn.workitem.id.x()
declare i32 @llvm.amdgcn.readlane(i32, i32)
declare i32 @llvm.amdgcn.readfirstlane(i32)
declare i32 @llvm.amdgcn.update.dpp.i32(i32, i32, i32, i32, i32, i1)
"""
BODIES = {
    "a lane chosen by a lane": """
  %f = call i32 @llvm.amdgcn.readfirstlane(i32 %v)
  %x = call i32 @llvm.amdgcn.readlane(i32 %w, i32 %f)
""",
    "across lanes": """
  %s = add i32 %v, %w
  %x = call i32 @llvm.amdgcn.update.dpp.i32(i32 0, i32 %s, i32 177, i32 15, i32 15, i1 true)
""",
    "a quotient": """
  %a = uitofp i32 %v to float
  %b = uitofp i32 %w to float
  %q = fdiv float %a, %b
  %x = fptoui float %q to i32
""",
    "an address chosen by a lane": """
  %f = call i32 @llvm.amdgcn.readfirstlane(i32 %v)
  %far = getelementptr i32, ptr addrspace(1) %in, i32 %f
  %near = getelementptr i32, ptr addrspace(1) %far, i32 %t
  %x = load i32, ptr addrspace(1) %near
""",
}


def kernel(body: str) -> str:
    return (
        DECLARED
        + "define amdgpu_kernel void @k(ptr addrspace(1) %in, ptr addrspace(1) %out) {\n"
        + "  %t = call i32 @llvm.amdgcn.workitem.id.x()\n"
        + "  %p = getelementptr i32, ptr addrspace(1) %in, i32 %t\n  %v = load i32, ptr addrspace(1) %p\n"
        + "  %p2 = getelementptr i32, ptr addrspace(1) %p, i32 1\n  %w = load i32, ptr addrspace(1) %p2\n"
        + body
        + "  %o = getelementptr i32, ptr addrspace(1) %out, i32 %t\n"
        + "  store i32 %x, ptr addrspace(1) %o\n  ret void\n}\n"
    )


def product(name: str) -> str:
    factor, count, kind = PRODUCTS[name]
    result = f"<{count} x {kind}>"
    zero = f"{result} zeroinitializer"
    return f"""
declare {result} @llvm.amdgcn.mfma.f32.{name}({factor}, {factor}, {result}, i32, i32, i32)
declare i32 @llvm.amdgcn.workitem.id.x()
define amdgpu_kernel void @k(ptr addrspace(1) %in, ptr addrspace(1) %out) {{
  %t = call i32 @llvm.amdgcn.workitem.id.x()
  %p = getelementptr {factor}, ptr addrspace(1) %in, i32 %t
  %a = load {factor}, ptr addrspace(1) %p
  %c = call {result} @llvm.amdgcn.mfma.f32.{name}({factor} %a, {factor} %a, {zero}, i32 0, i32 0, i32 0)
  %o = getelementptr {result}, ptr addrspace(1) %out, i32 %t
  store {result} %c, ptr addrspace(1) %o
  ret void
}}
"""


def decoded(loaded: Loaded, without_nops: bool = False) -> list[list[Context]]:
    """The straight pieces of a kernel's code, as blocks have them."""
    isa: Isa = ISAS[loaded.arch]
    at = loaded.launch("k" if "k.kd" in loaded.symbols else "body", 0x7000_0000).entry
    pieces: list[list[Context]] = [[]]
    while True:
        inst = isa.decode(loaded.words(at, 4), at)
        if inst.name == "s_endpgm":
            return pieces
        if not (without_nops and inst.name in ("s_nop", "s_waitcnt_depctr")):
            pieces[-1].append(Context(isa, inst, Mode(DEFAULT_MODE), 64 if isa.has_sdwa else 32, ACC_OFFSET))
        if "branch" in inst.name:
            pieces.append([])
        at = inst.next_pc


@pytest.mark.parametrize("arch", GFX9)
@pytest.mark.parametrize(
    "text", [*map(kernel, BODIES.values()), *map(product, PRODUCTS)], ids=[*BODIES, *PRODUCTS]
)
def test_what_the_nops_of_llvm_stand_for_is_found_without_them(text: str, arch: str) -> None:
    loaded = Loaded(text, arch)
    assert [hazards_of(piece) for piece in decoded(loaded)] == [[]] * len(decoded(loaded))
    found = [one for piece in decoded(loaded, without_nops=True) for one in hazards_of(piece)]
    nops = loaded.assembly.count("s_nop")
    assert bool(found) == (nops > 0), (nops, found)
    assert all(one.states < one.needed and one.first < one.second for one in found)


@pytest.mark.parametrize("arch", GFX9)
@pytest.mark.parametrize("seed", seeds(3, of=40))
def test_random_kernels_of_llvms_have_none(arch: str, seed: int) -> None:
    made = make(seed)
    for opt in (0, 2):
        found = found_in(Loaded(made.gpu, arch, opt=opt), "body", buffers(made, seed))
        assert found == []


@pytest.mark.parametrize("opt", [1, 2])
@pytest.mark.parametrize("seed", range(8))
def test_gfx11_waits_for_a_transcendental_where_llvm_says_so(seed: int, opt: int) -> None:
    lines = ["  %f0 = uitofp i32 %v to float"]
    for step in range(1, 6):
        name = ("sqrt", "exp2", "log2", "fabs", "floor")[(step * 7 + seed * 3) % 5]
        lines.append(f"  %g{step} = call afn float @llvm.{name}.f32(float %f{step - 1})")
        lines.append(f"  %f{step} = fadd float %g{step}, %f{(step * seed) % step}")
    lines.append("  %x = fptoui float %f5 to i32\n")
    names = "".join(
        f"declare float @llvm.{name}.f32(float)\n" for name in ("sqrt", "exp2", "log2", "fabs", "floor")
    )
    loaded = Loaded(names + kernel("\n".join(lines)), "gfx1100", opt=opt)
    assert [transcendentals_of(piece) for piece in decoded(loaded)] == [[]] * len(decoded(loaded))
    found = [one for piece in decoded(loaded, without_nops=True) for one in transcendentals_of(piece)]
    assert "s_waitcnt_depctr" in loaded.assembly and found
