"""Origin on kernels with a planted fault: a softmax and a pass of a radix sort, on AMD, NVIDIA and Metal."""

from __future__ import annotations

import struct
from typing import Any

import llvmlite.binding as llvm
import numpy as np
import pytest

from hcq.debug.session import Session
from hcq.emu.metal.shader.parser import parse as parse_msl
from hcq.emu.metal.shader.program import Program
from hcq.emu.nv.shader.memory import AddressSpace as NvSpace
from hcq.emu.nv.shader.run import Kernel
from hcq.system import native
from tests.hcq.debug.rig import Scripted
from tests.hcq.emu.amd.shader.kernels import ARGUMENT_BASE, DATA_BASE, Loaded

VENDORS = ("amd", "nv", "metal")
COUNT = 32
WORDS = {
    "amd": {
        "declare": """declare i32 @llvm.amdgcn.workitem.id.x()
declare void @llvm.amdgcn.s.barrier()
declare float @llvm.amdgcn.exp2.f32(float)""",
        "kernel": "amdgpu_kernel", "tid": "@llvm.amdgcn.workitem.id.x()", "exp2": "@llvm.amdgcn.exp2.f32",
        "barrier": """fence syncscope("workgroup") release
  call void @llvm.amdgcn.s.barrier()
  fence syncscope("workgroup") acquire""",
        "end": 'attributes #0 = { "amdgpu-flat-work-group-size"="32,32" }',
    },
    "nv": {
        "declare": """declare i32 @llvm.nvvm.read.ptx.sreg.tid.x()
declare void @llvm.nvvm.barrier0()
declare float @llvm.nvvm.ex2.approx.ftz.f(float)""",
        "kernel": "ptx_kernel", "tid": "@llvm.nvvm.read.ptx.sreg.tid.x()", "exp2": "@llvm.nvvm.ex2.approx.ftz.f",
        "barrier": "call void @llvm.nvvm.barrier0()", "end": "attributes #0 = { nounwind }",
    },
}  # fmt: skip

# out = softmax(in), of 32 numbers; thread 9 scales its own once more
SOFTMAX = """
{declare}
@shared = internal addrspace(3) global [32 x float] undef
define {kernel} void @k(ptr addrspace(1) %out, ptr addrspace(1) %in) #0 {{
entry:
  %t = call i32 {tid}
  %ip = getelementptr float, ptr addrspace(1) %in, i32 %t
  %x = load float, ptr addrspace(1) %ip
  %e = call float {exp2}(float %x)
  %sp = getelementptr [32 x float], ptr addrspace(3) @shared, i32 0, i32 %t
  store float %e, ptr addrspace(3) %sp
  {barrier}
  br label %loop
loop:
  %i = phi i32 [0, %entry], [%next, %loop]
  %s = phi float [0.0, %entry], [%sum, %loop]
  %p = getelementptr [32 x float], ptr addrspace(3) @shared, i32 0, i32 %i
  %one = load float, ptr addrspace(3) %p
  %sum = fadd float %s, %one
  %next = add i32 %i, 1
  %more = icmp slt i32 %next, 32
  br i1 %more, label %loop, label %done
done:
  %y = fdiv fast float %e, %sum
  %op = getelementptr float, ptr addrspace(1) %out, i32 %t
  store float %y, ptr addrspace(1) %op
  %bad = icmp eq i32 %t, 9
  br i1 %bad, label %plant, label %end
plant:
  %z = fmul float %y, 2.5
  store float %z, ptr addrspace(1) %op
  br label %end
end:
  ret void
}}
{end}
"""
SOFTMAX_MSL = """
kernel void k(device float* out [[buffer(0)]], device const float* in [[buffer(1)]],
              uint t [[thread_index_in_threadgroup]]) {
  threadgroup float shared[32];
  float e = 1.0f + in[t] * 0.0433217f;
  e = e * e;
  e = e * e;
  e = e * e;
  e = e * e;
  shared[t] = e;
  threadgroup_barrier(mem_flags::mem_threadgroup);
  float sum = 0.0f;
  for (uint i = 0u; i < 32u; ++i) {
    sum = sum + shared[i];
  }
  out[t] = e / sum;
  if (t == 9u) {
    out[t] = out[t] * 2.5f;
  }
}
"""

# out = in with the even numbers first, as a pass of a radix sort; an even number of thread 20 goes one place too far
RADIX = """
{declare}
@shared = internal addrspace(3) global [32 x i32] undef
define {kernel} void @k(ptr addrspace(1) %out, ptr addrspace(1) %in) #0 {{
entry:
  %t = call i32 {tid}
  %ip = getelementptr i32, ptr addrspace(1) %in, i32 %t
  %x = load i32, ptr addrspace(1) %ip
  %bit = and i32 %x, 1
  %sp = getelementptr [32 x i32], ptr addrspace(3) @shared, i32 0, i32 %t
  store i32 %bit, ptr addrspace(3) %sp
  {barrier}
  br label %loop
loop:
  %i = phi i32 [0, %entry], [%next, %loop]
  %b = phi i32 [0, %entry], [%before, %loop]
  %a = phi i32 [0, %entry], [%all, %loop]
  %p = getelementptr [32 x i32], ptr addrspace(3) @shared, i32 0, i32 %i
  %one = load i32, ptr addrspace(3) %p
  %is_before = icmp slt i32 %i, %t
  %count = select i1 %is_before, i32 %one, i32 0
  %before = add i32 %b, %count
  %all = add i32 %a, %one
  %next = add i32 %i, 1
  %more = icmp slt i32 %next, 32
  br i1 %more, label %loop, label %done
done:
  %even = sub i32 %t, %before
  %evens = sub i32 32, %all
  %odd = add i32 %evens, %before
  %is_odd = icmp ne i32 %bit, 0
  %place = select i1 %is_odd, i32 %odd, i32 %even
  %bad = icmp eq i32 %t, 20
  %far = add i32 %place, 1
  %goes = select i1 %bad, i32 %far, i32 %place
  %op = getelementptr i32, ptr addrspace(1) %out, i32 %goes
  store i32 %x, ptr addrspace(1) %op
  ret void
}}
{end}
"""
RADIX_MSL = """
kernel void k(device uint* out [[buffer(0)]], device const uint* in [[buffer(1)]],
              uint t [[thread_index_in_threadgroup]]) {
  threadgroup uint shared[32];
  uint x = in[t];
  uint bit = x & 1u;
  shared[t] = bit;
  threadgroup_barrier(mem_flags::mem_threadgroup);
  uint before = 0u;
  uint all = 0u;
  for (uint i = 0u; i < 32u; ++i) {
    before = before + (i < t ? shared[i] : 0u);
    all = all + shared[i];
  }
  uint place = bit != 0u ? 32u - all + before : t - before;
  uint goes = t == 20u ? place + 1u : place;
  out[goes] = x;
}
"""

# every element of out is the sum of in, by a tree; thread 9 stores into its neighbour's leaf before
TREE = """
{declare}
@shared = internal addrspace(3) global [32 x float] undef
define {kernel} void @k(ptr addrspace(1) %out, ptr addrspace(1) %in) #0 {{
entry:
  %t = call i32 {tid}
  %ip = getelementptr float, ptr addrspace(1) %in, i32 %t
  %x = load float, ptr addrspace(1) %ip
  %sp = getelementptr [32 x float], ptr addrspace(3) @shared, i32 0, i32 %t
  store float %x, ptr addrspace(3) %sp
  {barrier}
  %bad = icmp eq i32 %t, 9
  br i1 %bad, label %plant, label %sound
plant:
  %np = getelementptr float, ptr addrspace(3) %sp, i32 1
  store float 50.0, ptr addrspace(3) %np
  br label %sound
sound:
  {barrier}
  br label %loop
loop:
  %s = phi i32 [16, %sound], [%half, %join]
  %is_in = icmp slt i32 %t, %s
  br i1 %is_in, label %add, label %join
add:
  %o = add i32 %t, %s
  %op = getelementptr [32 x float], ptr addrspace(3) @shared, i32 0, i32 %o
  %a = load float, ptr addrspace(3) %sp
  %b = load float, ptr addrspace(3) %op
  %c = fadd float %a, %b
  store float %c, ptr addrspace(3) %sp
  br label %join
join:
  {barrier}
  %half = lshr i32 %s, 1
  %more = icmp ne i32 %half, 0
  br i1 %more, label %loop, label %done
done:
  %y = load float, ptr addrspace(3) @shared
  %yp = getelementptr float, ptr addrspace(1) %out, i32 %t
  store float %y, ptr addrspace(1) %yp
  ret void
}}
{end}
"""
TREE_MSL = """
kernel void k(device float* out [[buffer(0)]], device const float* in [[buffer(1)]],
              uint t [[thread_index_in_threadgroup]]) {
  threadgroup float shared[32];
  shared[t] = in[t];
  threadgroup_barrier(mem_flags::mem_threadgroup);
  if (t == 9u)
    shared[t + 1u] = 50.0f;
  threadgroup_barrier(mem_flags::mem_threadgroup);
  for (uint s = 16u; s > 0u; s = s / 2u) {
    if (t < s)
      shared[t] = shared[t] + shared[t + s];
    threadgroup_barrier(mem_flags::mem_threadgroup);
  }
  out[t] = shared[0];
}
"""


def ptx_of(text: str) -> str:
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    machine = llvm.Target.from_triple("nvptx64-nvidia-cuda").create_target_machine(cpu="sm_90", opt=2)
    module = llvm.parse_assembly('target triple = "nvptx64-nvidia-cuda"\n' + text)
    module.data_layout = str(machine.target_data)
    return str(machine.emit_assembly(module))


def run(vendor: str, text: str, msl: str, out: np.ndarray[Any, Any], given: np.ndarray[Any, Any]) -> Scripted:
    """The kernel, once, under a debugger; its buffers are called out and in."""
    face = Scripted([])
    session = Session(face)
    one = (1, 1, 1)
    block = (COUNT, 1, 1)
    places = DATA_BASE, DATA_BASE + 0x10000
    if vendor == "metal":
        places = native.address_of(out), native.address_of(given)
    for place, name in zip(places, ("out", "in")):
        session.names.allocated(place, out.nbytes, name)
    arguments = struct.pack("<2Q", *places)
    if vendor == "metal":
        source = parse_msl("#include <metal_stdlib>\nusing namespace metal;\n" + msl)
        program = Program(source, source.kernels["k"])
        session.run_metal(program, one, block, {0: out.view(np.uint8), 1: given.view(np.uint8)}, 0)
    elif vendor == "amd":
        loaded = Loaded(text.format(**WORDS["amd"]), "gfx1100")
        for place, array in zip(places, (out, given)):
            loaded.memory.map(place, array)
        loaded.memory.map(ARGUMENT_BASE, bytearray(arguments.ljust(512, b"\0")))
        session.run_amd(loaded.core, loaded.launch("k", ARGUMENT_BASE), one, block)
    else:
        space = NvSpace()
        for place, array in zip(places, (out, given)):
            space.map(place, array)
        kernel = Kernel(ptx_of(text.format(**WORDS["nv"])), "k")
        session.run_nv(kernel, 0, space, one, block, space, arguments)
    face.session = session
    return face


def origin(face: Scripted, element: int) -> str:
    assert face.session is not None
    line = f"origin out+{4 * element}"
    face.lines = [line]
    face.session.between("the end")
    return face.after(line)


@pytest.mark.parametrize("vendor", VENDORS)
def test_a_wrong_element_of_a_softmax_leads_to_the_planted_store(vendor: str) -> None:
    given = np.random.default_rng(3).random(COUNT, np.float32)
    out = np.zeros(COUNT, np.float32)
    face = run(vendor, SOFTMAX, SOFTMAX_MSL, out, given)
    right = np.exp2(given) / np.exp2(given).sum()
    assert np.flatnonzero(~np.isclose(out, right, rtol=2e-2)).tolist() == [9]
    wrong, plain = origin(face, 9), origin(face, 10)
    assert "lane 9" in wrong
    assert "2.5" in wrong or "40200000" in wrong
    assert "lane 10" in plain
    assert "2.5" not in plain
    assert "again and again in a loop" in plain
    assert "in in (" in plain
    step = [int(text.split("step ")[1].split(",")[0]) for text in (wrong, plain)]
    assert step[0] > step[1]  # the second store of the kernel


@pytest.mark.parametrize("vendor", VENDORS)
def test_a_wrong_element_of_a_radix_pass_leads_to_the_thread_that_went_astray(vendor: str) -> None:
    given = np.random.default_rng(5).integers(0, 1000, COUNT, np.uint32)
    given[20] &= ~np.uint32(1)
    given[[0, *range(21, COUNT)]] |= np.uint32(1)  # so nobody stores over what thread 20 does
    out = np.zeros(COUNT, np.uint32)
    face = run(vendor, RADIX, RADIX_MSL, out, given)
    right = np.concatenate([given[given % 2 == 0], given[given % 2 == 1]])
    place = int(np.count_nonzero(given % 2 == 0)) - 1
    assert out[place] == 0 != right[place] == given[20]
    empty, astray = origin(face, place), origin(face, place + 1)
    assert "no store to it that is recorded" in empty
    assert "lane 20" in astray
    assert "in in (0x" in astray


@pytest.mark.parametrize("vendor", VENDORS)
def test_a_store_that_is_deep_in_a_tree_is_found_and_stands_first_of_what_made_the_value(vendor: str) -> None:
    given = np.random.default_rng(7).random(COUNT, np.float32)
    out = np.zeros(COUNT, np.float32)
    face = run(vendor, TREE, TREE_MSL, out, given)
    np.testing.assert_allclose(out, given.sum() - given[10] + 50, rtol=1e-5)
    said = origin(face, 3)
    tree, _, lines = said.partition(" values in all. What made them, the rarest first")
    assert int(tree.splitlines()[-1]) > 60
    assert ": not shown" in tree
    first = lines.splitlines()[1:3]
    assert all(line.split()[:4] == ["1", "lane", "1", "value"] for line in first[:1])
    assert any(word in line for line in first for word in ("50.0f", "42480000", str(0x42480000)))


@pytest.mark.parametrize("vendor", VENDORS)
def test_the_place_of_a_store_is_followed_as_its_value_is(vendor: str) -> None:
    """So that of an element in a wrong place it is said which numbers the place is from."""
    given = np.arange(COUNT, dtype=np.uint32)
    out = np.zeros(COUNT, np.uint32)
    face = run(vendor, RADIX, RADIX_MSL, out, given)
    said = origin(
        face, 11
    )  # where thread 20 went; thread 22's number is stored there, too, by the same instruction
    address = [line for line in said.splitlines() if line.strip().startswith("its address: ")]
    assert address
    assert (
        int(said.partition(" values in all.")[0].splitlines()[-1]) > 100
    )  # all rounds of the loop that counts
