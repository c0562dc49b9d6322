"""What LLVM's NVPTX back end makes of narrow floats, wide integers, shared memory and intrinsics."""

from __future__ import annotations

import llvmlite.binding as llvm
import numpy as np
import pytest

from tests.hcq.emu.nv.shader.running import run_ptx

TARGETS = [("sm_80", "+ptx75"), ("sm_90", "+ptx80"), ("sm_100", "+ptx87")]
each_target = pytest.mark.parametrize("cpu, features", TARGETS, ids=[cpu for cpu, _ in TARGETS])
DECLARATIONS = """
declare i32 @llvm.nvvm.read.ptx.sreg.tid.x()
declare void @llvm.nvvm.barrier0()
declare float @llvm.nvvm.ex2.approx.f(float)
declare float @llvm.floor.f32(float)
declare float @llvm.roundeven.f32(float)
declare float @llvm.maxnum.f32(float, float)
declare float @llvm.minimum.f32(float, float)
declare float @llvm.copysign.f32(float, float)
declare i32 @llvm.nvvm.shfl.sync.bfly.i32(i32, i32, i32, i32)
declare i32 @llvm.bswap.i32(i32)
declare i32 @llvm.usub.sat.i32(i32, i32)
@tile = internal addrspace(3) global [64 x float] undef, align 16
"""
rng = np.random.default_rng(3)


def run(type_: str, body: str, x: np.ndarray, cpu: str, features: str) -> np.ndarray:
    """A thread per element: %v is the thread's element, %r what it stores."""
    text = f"""target triple = "nvptx64-nvidia-cuda"
    {DECLARATIONS}
    define ptx_kernel void @k(ptr addrspace(1) %out, ptr addrspace(1) %in) {{
      %t = call i32 @llvm.nvvm.read.ptx.sreg.tid.x()
      %i = zext i32 %t to i64
      %p = getelementptr {type_}, ptr addrspace(1) %in, i64 %i
      %v = load {type_}, ptr addrspace(1) %p
      {body}
      %q = getelementptr {type_}, ptr addrspace(1) %out, i64 %i
      store {type_} %r, ptr addrspace(1) %q
      ret void
    }}"""
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    module = llvm.parse_assembly(text)
    module.verify()
    machine = llvm.Target.from_triple("nvptx64-nvidia-cuda").create_target_machine(
        cpu=cpu, features=features, opt=3
    )
    out = np.zeros_like(x)
    run_ptx(machine.emit_assembly(module), "k", 1, 64, out, x)
    return out


@each_target
def test_vectors_of_halves_are_rounded_at_every_step(cpu, features):
    x = (rng.standard_normal((64, 8)) * 3).astype(np.float16)
    body = "%w = fmul <8 x half> %v, %v\n%r = fadd <8 x half> %w, %v"
    assert (run("<8 x half>", body, x, cpu, features) == x * x + x).all()


@each_target
def test_brain_floats_are_computed_or_emulated(cpu, features):
    wide = np.abs(rng.standard_normal(64)).astype(np.float32)
    x = (wide.view(np.uint32) >> 16).astype(np.uint16)
    body = """%f = fpext bfloat %v to float
    %g = fmul float %f, 3.0
    %h = fptrunc float %g to bfloat
    %s = fadd bfloat %h, %v
    %r = fmul bfloat %s, %v"""

    def narrow(values: np.ndarray) -> np.ndarray:
        bits = values.view(np.uint32)
        return ((bits + 0x7FFF + (bits >> 16 & 1)) & np.uint32(0xFFFF0000)).view(np.float32)

    value = (x.astype(np.uint32) << 16).view(np.float32)
    expected = narrow(narrow(narrow(value * np.float32(3)) + value) * value)
    found = run("bfloat", body, x, cpu, features)
    assert ((found.astype(np.uint32) << 16).view(np.float32) == expected).all()


@each_target
def test_float_intrinsics(cpu, features):
    x = (rng.standard_normal(64) * 3).astype(np.float32)
    body = """%a = call float @llvm.nvvm.ex2.approx.f(float %v)
    %b = call float @llvm.floor.f32(float %v)
    %c = call float @llvm.roundeven.f32(float %v)
    %d = call float @llvm.maxnum.f32(float %v, float 0.0)
    %e = call float @llvm.minimum.f32(float %v, float 1.0)
    %f = call float @llvm.copysign.f32(float 3.0, float %v)
    %g = fadd float %a, %b
    %h = fadd float %g, %c
    %k = fadd float %h, %d
    %l = fadd float %k, %e
    %r = fadd float %l, %f"""
    expected = np.exp2(x) + np.floor(x) + np.rint(x) + np.maximum(x, 0) + np.minimum(x, 1) + np.copysign(3, x)
    np.testing.assert_allclose(run("float", body, x, cpu, features), expected, rtol=2e-6, atol=2e-6)


@each_target
def test_shared_memory_a_barrier_a_shuffle_and_an_atomic(cpu, features):
    x = rng.standard_normal(64).astype(np.float32)
    body = """%s = getelementptr [64 x float], ptr addrspace(3) @tile, i64 0, i64 %i
    store float %v, ptr addrspace(3) %s
    call void @llvm.nvvm.barrier0()
    %j = xor i64 %i, 33
    %u = getelementptr [64 x float], ptr addrspace(3) @tile, i64 0, i64 %j
    %w = load float, ptr addrspace(3) %u
    %b = bitcast float %w to i32
    %c = call i32 @llvm.nvvm.shfl.sync.bfly.i32(i32 -1, i32 %b, i32 3, i32 31)
    %d = bitcast i32 %c to float
    call void @llvm.nvvm.barrier0()
    %old = atomicrmw fadd ptr addrspace(3) %s, float 1.0 monotonic
    %r = fadd float %d, %old"""
    assert (run("float", body, x, cpu, features) == x[np.arange(64) ^ 33 ^ 3] + x).all()


@each_target
def test_integers_of_128_bits_and_saturation(cpu, features):
    x = rng.integers(0, 2**32, 64, dtype=np.uint32)
    body = """%a = call i32 @llvm.bswap.i32(i32 %v)
    %b = call i32 @llvm.usub.sat.i32(i32 %a, i32 %v)
    %w = zext i32 %v to i128
    %c = mul i128 %w, %w
    %d = mul i128 %c, %w
    %e = lshr i128 %d, 70
    %f = trunc i128 %e to i32
    %r = xor i32 %f, %b"""
    expected = [max(int.from_bytes(v.to_bytes(4, "little"), "big") - v, 0) ^ (v**3 >> 70) for v in x.tolist()]
    assert run("i32", body, x, cpu, features).tolist() == expected
