"""Hazards: none in what LLVM compiles, and what its s_nops stand for is found without them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from hcq.emu.amd.shader.hazards import hazards_of
from hcq.emu.amd.shader.isa import Isa
from hcq.emu.amd.shader.operands import Context, Mode
from hcq.emu.amd.shader.rdna_hazards import Scalars, row_hazards, scalar_hazards
from hcq.emu.amd.shader.register_waits import Hazard
from tests.hcq.emu.amd.shader.assembler import assemble
from tests.hcq.emu.amd.shader.bench import ACC_OFFSET, DEFAULT_MODE, ISAS
from tests.hcq.emu.amd.shader.kernels import Loaded
from tests.hcq.emu.amd.shader.random_kernels import make
from tests.hcq.emu.amd.shader.test_differential import buffers
from tests.hcq.emu.amd.shader.test_register_waits import found_in
from tests.turns import seeds

GFX9 = ["gfx90a", "gfx942", "gfx950"]
WAITS = ("s_nop", "s_waitcnt_depctr", "s_wait_alu", "v_nop")
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
            return [piece for piece in pieces if piece]
        if not (without_nops and inst.name in WAITS):
            pieces[-1].append(Context(isa, inst, Mode(DEFAULT_MODE), 64 if isa.is_gfx9 else 32, ACC_OFFSET))
        if "branch" in inst.name:
            pieces.append([])
        at = inst.next_pc


def with_fewer(piece: list[Context]) -> Iterator[list[Context]]:
    """The same instructions with one wait state fewer, for each s_nop that is there."""
    for number, ctx in enumerate(piece):
        if ctx.inst.name == "s_nop":
            left = ctx.inst.fields["simm16"]
            fewer = replace(ctx.inst, fields={**ctx.inst.fields, "simm16": left - 1})
            yield [*piece[:number], *([replace(ctx, inst=fewer)] if left else []), *piece[number + 1 :]]


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


@pytest.mark.parametrize("arch", ISAS)
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
    assert [row_hazards(piece) for piece in decoded(loaded)] == [[]] * len(decoded(loaded))
    found = [one for piece in decoded(loaded, without_nops=True) for one in row_hazards(piece)]
    assert "s_waitcnt_depctr" in loaded.assembly and found


MATRICES = {  # (factors, how many numbers a lane has of the result, their type)
    "f32.4x4x4f16": ("<4 x half>", 4, "float"),
    "f32.16x16x16f16": ("<4 x half>", 4, "float"),
    "f32.16x16x4f16": ("<4 x half>", 16, "float"),
    "f32.32x32x8f16": ("<4 x half>", 16, "float"),
    "f32.4x4x1f32": ("float", 4, "float"),
    "f32.16x16x4f32": ("float", 4, "float"),
    "f32.32x32x2f32": ("float", 16, "float"),
    "f64.4x4x4f64": ("double", 1, "double"),
    "f64.16x16x4f64": ("double", 4, "double"),
}


def chain(first: str, second: str, how: str) -> str:
    """Two products, of which the second multiplies the result of the first, or adds to a part of it."""
    names = (first, second)
    factors = [MATRICES[name][0] for name in names]
    results = [
        MATRICES[name][2] if MATRICES[name][1] == 1 else f"<{MATRICES[name][1]} x {MATRICES[name][2]}>"
        for name in names
    ]
    declared = {
        f"declare {result} @llvm.amdgcn.mfma.{name}({factor}, {factor}, {result}, i32, i32, i32)\n"
        for name, factor, result in zip(names, factors, results)
    }
    bits = [
        64 * MATRICES[name][1] if MATRICES[name][2] == "double" else 32 * MATRICES[name][1] for name in names
    ]
    wanted = {"float": 32, "double": 64, "<4 x half>": 64}[factors[1]] if how == "factor" else bits[1]
    words = min(bits[0], wanted) // 32
    taken = ", ".join(f"i32 {one}" for one in range(words))
    filled = ", ".join(f"i32 {one if one < words else words}" for one in range(wanted // 32))
    kind = factors[1] if how == "factor" else results[1]
    left = f"{factors[1]} {'%q' if how == 'factor' else '%b'}"
    added = f"{results[1]} {'%d' if how == 'factor' else '%q'}"
    both = f"{factors[0]} %a, {factors[0]} %a, {results[0]} %c"
    return f"""{"".join(sorted(declared))}declare i32 @llvm.amdgcn.workitem.id.x()
define amdgpu_kernel void @k(ptr addrspace(1) %in, ptr addrspace(1) %out) {{
  %t = call i32 @llvm.amdgcn.workitem.id.x()
  %p = getelementptr i64, ptr addrspace(1) %in, i32 %t
  %a = load {factors[0]}, ptr addrspace(1) %p
  %b = load {factors[1]}, ptr addrspace(1) %p
  %c = load {results[0]}, ptr addrspace(1) %p
  %d = load {results[1]}, ptr addrspace(1) %p
  %x = call {results[0]} @llvm.amdgcn.mfma.{first}({both}, i32 0, i32 0, i32 0)
  %w = bitcast {results[0]} %x to <{bits[0] // 32} x i32>
  %v = shufflevector <{bits[0] // 32} x i32> %w, <{bits[0] // 32} x i32> poison, <{words} x i32> <{taken}>
  %u = shufflevector <{words} x i32> %v, <{words} x i32> zeroinitializer, <{wanted // 32} x i32> <{filled}>
  %q = bitcast <{wanted // 32} x i32> %u to {kind}
  %y = call {results[1]} @llvm.amdgcn.mfma.{second}({left}, {factors[1]} %b, {added}, i32 0, i32 0, i32 0)
  %o = getelementptr i64, ptr addrspace(1) %out, i32 %t
  store {results[1]} %y, ptr addrspace(1) %o
  ret void
}}
"""


@pytest.mark.parametrize("arch", GFX9)
@pytest.mark.parametrize("how", ["factor", "addend"])
@pytest.mark.parametrize("first", MATRICES)
@pytest.mark.parametrize("second", MATRICES)
@pytest.mark.sampled(24)
def test_between_two_products_stand_as_many_wait_states_as_llvm_puts_there(
    first: str, second: str, how: str, arch: str
) -> None:
    loaded = Loaded(chain(first, second, how), arch)
    for piece in decoded(loaded):
        assert hazards_of(piece) == []
        for fewer in with_fewer(piece):
            assert len(hazards_of(fewer)) >= 1


def scalars_of(pieces: list[list[Context]]) -> list[Hazard]:
    """What a wave of gfx12 finds that runs these pieces in a row."""
    state, every = Scalars(), []
    for piece in pieces:
        found, state = scalar_hazards(state, piece)
        every += found
    return every


CARRIED = {
    "a sum of 64 bits": """
  %l = zext i32 %v to i64
  %m = zext i32 %w to i64
  %s = add i64 %l, %m
  %d = mul i64 %s, %l
  %e = add i64 %d, %s
  %h = lshr i64 %e, 32
  %g = xor i64 %h, %e
  %x = trunc i64 %g to i32
""",
    "a quotient": """
  %l = zext i32 %v to i64
  %m = zext i32 %w to i64
  %s = udiv i64 %l, %m
  %x = trunc i64 %s to i32
""",
    "a choice of choices": """
  %c1 = icmp ult i32 %v, %w
  %c2 = icmp eq i32 %v, 7
  %c3 = and i1 %c1, %c2
  %y = select i1 %c3, i32 %v, i32 3
  %c4 = icmp ult i32 %y, %w
  %c5 = xor i1 %c4, %c3
  %x = select i1 %c5, i32 %y, i32 %v
""",
}


@pytest.mark.parametrize("opt", [0, 2])
@pytest.mark.parametrize("name", CARRIED)
def test_gfx12_waits_for_scalars_that_were_read_before_where_llvm_says_so(name: str, opt: int) -> None:
    loaded = Loaded(kernel(CARRIED[name]), "gfx1201", opt=opt)
    assert scalars_of(decoded(loaded)) == []
    found = scalars_of(decoded(loaded, without_nops=True))
    assert bool(found) == ("s_wait_alu" in loaded.assembly)
    assert all(one.wait.startswith("s_wait_alu") for one in found)


def test_a_quotient_on_gfx12_has_such_a_wait() -> None:
    assert scalars_of(decoded(Loaded(kernel(CARRIED["a quotient"]), "gfx1201"), without_nops=True))


@pytest.mark.parametrize("arch", ["gfx1100", "gfx1201"])
def test_a_wmma_that_multiplies_the_one_before_needs_another_vector_instruction(arch: str) -> None:
    count = 16 if arch == "gfx1100" else 8
    factor, name = f"<{count} x half>", f"@llvm.amdgcn.wmma.f32.16x16x16.f16.v8f32.v{count}f16"
    taken = ", ".join(f"i32 {one}" for one in range(count))
    text = f"""
declare <8 x float> {name}({factor}, {factor}, <8 x float>)
declare i32 @llvm.amdgcn.workitem.id.x()
define amdgpu_kernel void @k(ptr addrspace(1) %in, ptr addrspace(1) %out) {{
  %t = call i32 @llvm.amdgcn.workitem.id.x()
  %p = getelementptr {factor}, ptr addrspace(1) %in, i32 %t
  %a = load {factor}, ptr addrspace(1) %p
  %x = call <8 x float> {name}({factor} %a, {factor} %a, <8 x float> zeroinitializer)
  %q = bitcast <8 x float> %x to <16 x half>
  %f = shufflevector <16 x half> %q, <16 x half> poison, <{count} x i32> <{taken}>
  %y = call <8 x float> {name}({factor} %f, {factor} %a, <8 x float> zeroinitializer)
  %o = getelementptr <8 x float>, ptr addrspace(1) %out, i32 %t
  store <8 x float> %y, ptr addrspace(1) %o
  ret void
}}
"""
    loaded = Loaded(text, arch)
    assert "v_nop" in loaded.assembly
    assert [row_hazards(piece) for piece in decoded(loaded)] == [[]]
    found = [one for piece in decoded(loaded, without_nops=True) for one in row_hazards(piece)]
    assert [one.wait for one in found] == ["v_nop"]


def test_gfx11_waits_for_a_mask_that_is_written_again_in_waves_of_64_lanes() -> None:
    text = kernel(CARRIED["a quotient"]).replace("ptr addrspace(1) %out) {", "ptr addrspace(1) %out) #0 {")
    loaded = Loaded(text + 'attributes #0 = { "target-features"="+wavefrontsize64" }', "gfx1100")
    isa = ISAS["gfx1100"]

    def wide(pieces: list[list[Context]]) -> list[list[Context]]:
        return [[Context(isa, one.inst, one.mode, 64, ACC_OFFSET) for one in piece] for piece in pieces]

    assert scalars_of(wide(decoded(loaded))) == []
    found = scalars_of(wide(decoded(loaded, without_nops=True)))
    assert bool(found) == ("s_waitcnt_depctr" in loaded.assembly)
    mask = [("v_cndmask_b32", ["v1", 0, "v2"]), ("s_mov_b32", ["vcc_lo", 0]), ("s_mov_b32", ["s4", "vcc_lo"])]
    made = [
        Context(isa, isa.decode(assemble(isa, name, operands), 4 * at), Mode(DEFAULT_MODE), 64, ACC_OFFSET)
        for at, (name, operands) in enumerate(mask)
    ]
    assert [one.wait for one in scalars_of([made])] == ["s_waitcnt_depctr sa_sdst(0)"]
