"""What LLVM makes of its intrinsics runs as they are documented: matrices, lanes, transcendentals, float modes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.hcq.emu.amd.shader.kernels import Loaded

WAVE = {"gfx1030": 32, "gfx1100": 32, "gfx1201": 32, "gfx90a": 64, "gfx942": 64, "gfx950": 64}
HEAD = """
declare i32 @llvm.amdgcn.workitem.id.x()
"""


def test_wmma_from_llvm_multiplies_half_matrices() -> None:
    ir = (
        HEAD
        + """
declare <8 x float> @llvm.amdgcn.wmma.f32.16x16x16.f16.v8f32.v16f16(<16 x half>, <16 x half>, <8 x float>)
define amdgpu_kernel void @k(ptr addrspace(1) %out, ptr addrspace(1) %a, ptr addrspace(1) %b) {
  %t = call i32 @llvm.amdgcn.workitem.id.x()
  %row = and i32 %t, 15
  %pa = getelementptr <16 x half>, ptr addrspace(1) %a, i32 %row
  %x = load <16 x half>, ptr addrspace(1) %pa
  %pb = getelementptr <16 x half>, ptr addrspace(1) %b, i32 %row
  %y = load <16 x half>, ptr addrspace(1) %pb
  %d = call <8 x float> @llvm.amdgcn.wmma.f32.16x16x16.f16.v8f32.v16f16(
      <16 x half> %x, <16 x half> %y, <8 x float> zeroinitializer)
  %po = getelementptr <8 x float>, ptr addrspace(1) %out, i32 %t
  store <8 x float> %d, ptr addrspace(1) %po
  ret void
}
"""
    )
    rng = np.random.default_rng(0)
    a, b = (rng.integers(-4, 5, (16, 16)).astype(np.float16) for _ in range(2))
    out = np.zeros((32, 8), np.float32)
    Loaded(ir, "gfx1100").run("k", [out, a, np.ascontiguousarray(b.T)], block=(32, 1, 1))
    product = a.astype(np.float64) @ b.astype(np.float64)
    for lane in range(32):
        for register in range(8):
            assert out[lane, register] == product[2 * register + lane // 16, lane % 16]


def test_mfma_from_llvm_multiplies_half_matrices() -> None:
    ir = (
        HEAD
        + """
declare <4 x float> @llvm.amdgcn.mfma.f32.16x16x16f16(<4 x half>, <4 x half>, <4 x float>, i32, i32, i32)
define amdgpu_kernel void @k(ptr addrspace(1) %out, ptr addrspace(1) %a, ptr addrspace(1) %b) {
  %t = call i32 @llvm.amdgcn.workitem.id.x()
  %row = and i32 %t, 15
  %part = lshr i32 %t, 4
  %r4 = shl i32 %row, 2
  %at = add i32 %r4, %part
  %pa = getelementptr <4 x half>, ptr addrspace(1) %a, i32 %at
  %x = load <4 x half>, ptr addrspace(1) %pa
  %pb = getelementptr <4 x half>, ptr addrspace(1) %b, i32 %at
  %y = load <4 x half>, ptr addrspace(1) %pb
  %c = call <4 x float> @llvm.amdgcn.mfma.f32.16x16x16f16(
      <4 x half> %x, <4 x half> %y, <4 x float> zeroinitializer, i32 0, i32 0, i32 0)
  %d = call <4 x float> @llvm.amdgcn.mfma.f32.16x16x16f16(
      <4 x half> %x, <4 x half> %y, <4 x float> %c, i32 0, i32 0, i32 0)
  %po = getelementptr <4 x float>, ptr addrspace(1) %out, i32 %t
  store <4 x float> %d, ptr addrspace(1) %po
  ret void
}
"""
    )
    rng = np.random.default_rng(0)
    a, b = (rng.integers(-4, 5, (16, 16)).astype(np.float16) for _ in range(2))
    out = np.zeros((64, 4), np.float32)
    Loaded(ir, "gfx942").run("k", [out, a, np.ascontiguousarray(b.T)])
    product = 2 * (a.astype(np.float64) @ b.astype(np.float64))
    for lane in range(64):
        for register in range(4):
            assert out[lane, register] == product[4 * (lane // 16) + register, lane % 16]


LANES = """
declare i32 @llvm.amdgcn.readfirstlane(i32)
declare i32 @llvm.amdgcn.readlane(i32, i32)
declare i32 @llvm.amdgcn.ds.bpermute(i32, i32)
declare i32 @llvm.amdgcn.ds.swizzle(i32, i32)
declare i32 @llvm.amdgcn.update.dpp.i32(i32, i32, i32, i32, i32, i1)
declare i32 @llvm.amdgcn.mbcnt.lo(i32, i32)
declare i32 @llvm.amdgcn.mbcnt.hi(i32, i32)
declare iW @llvm.amdgcn.ballot.iW(i1)
define amdgpu_kernel void @k(ptr addrspace(1) %out, ptr addrspace(1) %in) {
  %t = call i32 @llvm.amdgcn.workitem.id.x()
  %p = getelementptr i32, ptr addrspace(1) %in, i32 %t
  %x = load i32, ptr addrspace(1) %p
  %first = call i32 @llvm.amdgcn.readfirstlane(i32 %x)
  %fifth = call i32 @llvm.amdgcn.readlane(i32 %x, i32 5)
  %back = xor i32 %t, 9
  %address = shl i32 %back, 2
  %pulled = call i32 @llvm.amdgcn.ds.bpermute(i32 %address, i32 %x)
  %swizzled = call i32 @llvm.amdgcn.ds.swizzle(i32 %x, i32 16415)
  %shifted = call i32 @llvm.amdgcn.update.dpp.i32(i32 77, i32 %x, i32 273, i32 15, i32 15, i1 false)
  %low = call i32 @llvm.amdgcn.mbcnt.lo(i32 -1, i32 0)
  %count = call i32 @llvm.amdgcn.mbcnt.hi(i32 -1, i32 %low)
  %odd = trunc i32 %x to i1
  %votes = call iW @llvm.amdgcn.ballot.iW(i1 %odd)
  %many = call iW @llvm.ctpop.iW(iW %votes)
  %number = zext iW %many to i64
  %number32 = trunc i64 %number to i32
  %base = mul i32 %t, 8
  %q = getelementptr i32, ptr addrspace(1) %out, i32 %base
  store i32 %first, ptr addrspace(1) %q
  %q1 = getelementptr i32, ptr addrspace(1) %q, i32 1
  store i32 %fifth, ptr addrspace(1) %q1
  %q2 = getelementptr i32, ptr addrspace(1) %q, i32 2
  store i32 %pulled, ptr addrspace(1) %q2
  %q3 = getelementptr i32, ptr addrspace(1) %q, i32 3
  store i32 %swizzled, ptr addrspace(1) %q3
  %q4 = getelementptr i32, ptr addrspace(1) %q, i32 4
  store i32 %shifted, ptr addrspace(1) %q4
  %q5 = getelementptr i32, ptr addrspace(1) %q, i32 5
  store i32 %count, ptr addrspace(1) %q5
  %q6 = getelementptr i32, ptr addrspace(1) %q, i32 6
  store i32 %number32, ptr addrspace(1) %q6
  ret void
}
declare iW @llvm.ctpop.iW(iW)
"""


@pytest.mark.parametrize("arch", WAVE)
def test_lane_intrinsics_move_what_they_say(arch: str) -> None:
    size = WAVE[arch]
    text = LANES.replace("iW", f"i{size}")
    if size == 64:
        text = text.replace("zext i64 %many to i64", "add i64 %many, 0")
    x = np.random.default_rng(1).integers(0, 2**32, 2 * size, dtype=np.uint32)
    out = np.zeros((2 * size, 8), np.uint32)
    Loaded(HEAD + text, arch).run("k", [out, x], block=(2 * size, 1, 1))
    for item in range(2 * size):
        wave, lane = x[item // size * size :][:size], item % size
        assert out[item, :7].tolist() == [
            wave[0],
            wave[5],
            wave[lane ^ 9],
            wave[lane ^ 16],
            wave[lane - 1] if lane % 16 else 77,
            lane,
            int((wave & 1).sum()),
        ]


def unary(body: str, kind: str, attributes: str = "") -> str:
    return f"""{HEAD}
define amdgpu_kernel void @k(ptr addrspace(1) %out, ptr addrspace(1) %in) {attributes} {{
  %t = call i32 @llvm.amdgcn.workitem.id.x()
  %p = getelementptr {kind}, ptr addrspace(1) %in, i32 %t
  %x = load {kind}, ptr addrspace(1) %p
{body}
  %q = getelementptr {kind}, ptr addrspace(1) %out, i32 %t
  store {kind} %y, ptr addrspace(1) %q
  ret void
}}
"""


FUNCTIONS: dict[str, Any] = {
    "exp": np.exp,
    "exp2": np.exp2,
    "log": np.log,
    "log2": np.log2,
    "log10": np.log10,
}
FUNCTIONS |= {"sin": np.sin, "cos": np.cos, "sqrt": np.sqrt}


@pytest.mark.parametrize("arch", WAVE)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_llvms_functions_come_out_right(arch: str, name: str) -> None:
    ir = f"declare float @llvm.{name}.f32(float)\n" + unary(
        f"  %y = call float @llvm.{name}.f32(float %x)", "float"
    )
    x = np.abs(np.random.default_rng(2).standard_normal(64).astype(np.float32)) * np.float32(3)
    x[:3] = [1e-42, 0.0, 1.0]  # denormals too: LLVM scales them
    out = np.zeros_like(x)
    Loaded(ir, arch).run("k", [out, x])
    with np.errstate(all="ignore"):
        expected = FUNCTIONS[name](x.astype(np.float64))
    assert np.allclose(out, expected, rtol=3e-6, atol=2e-6, equal_nan=True)


@pytest.mark.parametrize("arch", WAVE)
def test_kernels_that_flush_denormals_divide_right_and_flush(arch: str) -> None:
    attributes = '"denormal-fp-math-f32"="preserve-sign,preserve-sign"'
    x = np.array([1.0, 3.0, 1e-39, 1e38, 7e-38, -2.0, 1e-20, 5.0] * 8, np.float32)
    out = np.zeros_like(x)
    Loaded(unary("  %y = fdiv float %x, 3.0", "float", attributes), arch).run("k", [out, x])
    with np.errstate(all="ignore"):
        expected = x / np.float32(3)
    tiny = np.finfo(np.float32).tiny
    normal = (np.abs(expected) >= tiny) & (np.abs(x) >= tiny)
    assert (out[normal] == expected[normal]).all() and normal.sum() == 56
    assert (out[np.abs(x) < tiny] == 0).all()
    Loaded(unary("  %y = fmul float %x, 0.125", "float", attributes), arch).run("k", [out, x])
    flushed = np.where(np.abs(x) < tiny, 0, x * np.float32(0.125))
    assert (out == np.where(np.abs(flushed) < tiny, 0, flushed)).all()


@pytest.mark.parametrize("arch", WAVE)
def test_bfloat16_arithmetic_rounds_to_nearest_even(arch: str) -> None:
    x = np.random.default_rng(3).standard_normal(64).astype(np.float32).view(np.uint32)
    halves = (x >> 16).astype(np.uint16)
    out = np.zeros_like(halves)
    Loaded(unary("  %z = fmul bfloat %x, %x\n  %y = fadd bfloat %z, %x", "bfloat"), arch).run(
        "k", [out, halves]
    )

    def rounded(value: Any) -> Any:
        bits = np.asarray(value, np.float32).view(np.uint32)
        return ((bits + 0x7FFF + (bits >> 16 & 1)) >> 16 << 16).view(np.float32)

    wide = (halves.astype(np.uint32) << 16).view(np.float32)
    expected = rounded(rounded(wide * wide) + wide)
    assert ((out.astype(np.uint32) << 16).view(np.float32) == expected).all()


DIVISION = """
define amdgpu_kernel void @k(ptr addrspace(1) %out, ptr addrspace(1) %in, ptr addrspace(1) %by) {
  %t = call i32 @llvm.amdgcn.workitem.id.x()
  %g = call i32 @llvm.amdgcn.workgroup.id.x()
  %b = shl i32 %g, 8
  %i = or i32 %b, %t
  %p = getelementptr KIND, ptr addrspace(1) %in, i32 %i
  %x = load KIND, ptr addrspace(1) %p
  %p2 = getelementptr KIND, ptr addrspace(1) %by, i32 %i
  %y = load KIND, ptr addrspace(1) %p2
  %d = fdiv KIND %x, %y
  %q = getelementptr KIND, ptr addrspace(1) %out, i32 %i
  store KIND %d, ptr addrspace(1) %q
  ret void
}
declare i32 @llvm.amdgcn.workgroup.id.x()
"""


@pytest.mark.parametrize("arch", WAVE)
@pytest.mark.parametrize(
    ("kind", "dtype"), [("half", np.float16), ("float", np.float32), ("double", np.float64)]
)
def test_division_is_correctly_rounded_for_all_exponents(arch: str, kind: str, dtype: Any) -> None:
    count, bits = 8192, np.dtype(f"u{np.dtype(dtype).itemsize}")
    rng = np.random.default_rng(4)
    x, y = (
        rng.integers(0, np.iinfo(bits).max, count, dtype=bits, endpoint=True).view(dtype) for _ in range(2)
    )
    x[:2000], y[:2000] = rng.standard_normal(2000), rng.standard_normal(2000)
    smallest = np.finfo(dtype).smallest_subnormal
    x[2000:2200] = rng.integers(1, 1000, 200) * smallest
    y[2100:2300] = rng.integers(1, 1000, 200) * smallest
    out = np.zeros(count, dtype)
    loaded = Loaded(HEAD + DIVISION.replace("KIND", kind), arch)
    loaded.run("k", [out, x, y], grid=(count // 256, 1, 1), block=(256, 1, 1))
    with np.errstate(all="ignore"):
        expected = x / y
    assert ((out.view(bits) == expected.view(bits)) | (np.isnan(out) & np.isnan(expected))).all()


@pytest.mark.parametrize("arch", sorted(WAVE.keys() - {"gfx1100"}))  # that one's has 20 bits, and wraps
def test_the_clock_of_a_kernel_rises(arch: str) -> None:
    ir = """
declare i64 @llvm.readcyclecounter()
define amdgpu_kernel void @k(ptr addrspace(1) %out, i32 %trips) {
entry:
  %before = call i64 @llvm.readcyclecounter()
  br label %loop
loop:
  %i = phi i32 [ 0, %entry ], [ %next, %loop ]
  %next = add i32 %i, 1
  store volatile i32 %next, ptr addrspace(1) %out
  %more = icmp ult i32 %next, %trips
  br i1 %more, label %loop, label %end
end:
  %after = call i64 @llvm.readcyclecounter()
  %long = sub i64 %after, %before
  %p = getelementptr i64, ptr addrspace(1) %out, i64 1
  store i64 %long, ptr addrspace(1) %p
  ret void
}
"""
    out = np.zeros(2, np.uint64)
    Loaded(ir, arch).run("k", [out, np.uint32(200)], block=(WAVE[arch], 1, 1))
    assert 0 < int(out[1]) < 60 * 10**9
