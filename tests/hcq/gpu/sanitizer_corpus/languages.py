"""Languages of the corpus: which machines run each, and how a kernel's text becomes an image.

In       the body of a kernel
Out      an image whose kernel is called `kernel`; or the test is skipped where a compiler is missing
Next     row.py, hcq/nv/toolchain/nvrtc.py, compiler/assemble/comgr.py
"""

from __future__ import annotations

import functools
import re
import struct
from collections.abc import Callable
from typing import NamedTuple

import pytest

from hcq.emu.amd.shader.isa import Isa
from tests.hcq.emu.amd.shader.assembler import assemble
from tests.hcq.emu.amd.shader.kernels import ISAS

CUDA = """
#define SHARED __shared__
#define BARRIER() __syncthreads()
#define WARP_BARRIER() __syncwarp()
#define T ((int) threadIdx.x)
#define B ((int) blockIdx.x)
#define ADD(p, v) atomicAdd(p, v)
#define MAX(p, v) atomicMax(p, v)
#define KEEP() asm volatile("" ::: "memory")
extern "C" __global__ void kernel(int *out, int n) {
"""
HIP = """
#define SHARED __attribute__((shared))
#define BARRIER() (__builtin_amdgcn_fence(__ATOMIC_RELEASE, "workgroup"), __builtin_amdgcn_s_barrier(), \
                   __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "workgroup"))
#define WARP_BARRIER() __builtin_amdgcn_wave_barrier()
#define T ((int) __builtin_amdgcn_workitem_id_x())
#define B ((int) __builtin_amdgcn_workgroup_id_x())
#define ADD(p, v) __hip_atomic_fetch_add(p, v, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT)
#define MAX(p, v) __hip_atomic_fetch_max(p, v, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT)
#define KEEP() asm volatile("" ::: "memory")
extern "C" __attribute__((global)) void kernel(int *out, int n) {
"""
PTX = """
.version 7.0
.target sm_80
.address_size 64
.visible .entry kernel(.param .u64 out)
{
    .reg .b16 %h<8>;
    .reg .b32 %r<32>;
    .reg .f32 %f<8>;
    .reg .b64 %d<32>;
    .reg .pred %p<8>;
    .shared .align 16 .b8 words[4096];
    mov.u32 %r1, %tid.x;
    mov.u32 %r2, words;
    mov.u32 %r6, 0;
    ld.param.u64 %d1, [out];
"""
PTX_END = """
    mul.wide.u32 %d2, %r1, 4;
    add.u64 %d2, %d1, %d2;
    st.global.u32 [%d2], %r6;
    ret;
}
"""
AMDGCN = """
.amdgcn_target "amdgcn-amd-amdhsa--gfx90a"
.text
.globl kernel
.p2align 8
.type kernel,@function
kernel:
    v_lshlrev_b32 v1, 2, v0
"""
AMDGCN_END = """
    s_endpgm
.Lend:
.size kernel, .Lend-kernel
.rodata
.p2align 6
.amdhsa_kernel kernel
    .amdhsa_group_segment_fixed_size 4096
    .amdhsa_kernarg_size 8
    .amdhsa_user_sgpr_kernarg_segment_ptr 1
    .amdhsa_next_free_vgpr 16
    .amdhsa_next_free_sgpr 16
    .amdhsa_accum_offset 16
.end_amdhsa_kernel
.amdgpu_metadata
---
amdhsa.version: [1, 1]
amdhsa.target: amdgcn-amd-amdhsa--gfx90a
amdhsa.kernels:
  - .name: kernel
    .symbol: kernel.kd
    .kernarg_segment_size: 8
    .kernarg_segment_align: 8
    .group_segment_fixed_size: 4096
    .private_segment_fixed_size: 0
    .wavefront_size: 64
    .sgpr_count: 16
    .vgpr_count: 16
    .max_flat_workgroup_size: 1024
    .args:
      - .offset: 0
        .size: 8
        .value_kind: global_buffer
        .address_space: global
...
.end_amdgpu_metadata
"""
MSL = """
#include <metal_stdlib>
using namespace metal;
kernel void kernel_(device int *out [[buffer(0)]], uint t [[thread_position_in_threadgroup]],
                    uint b [[threadgroup_position_in_grid]]) {
"""


class Language(NamedTuple):
    """machines: words of HCQ_EMULATE; image: (body, architecture) -> what is loaded; entry: the kernel's name."""

    machines: tuple[str, ...]
    image: Callable[[str, str], bytes]
    entry: str = "kernel"


def _nvrtc(body: str, arch: str) -> bytes:
    return _whole_cuda(f"{CUDA}{body}\n}}\n", arch)


def _comgr(compile_it: Callable[[str, str], bytes], body: str, arch: str) -> bytes:
    from hcq.compiler.assemble import comgr

    if not comgr.available() or arch not in comgr.architectures():
        pytest.skip(f"there is no comgr that knows {arch}")
    return compile_it(body, arch)


def _hip(body: str, arch: str) -> bytes:
    return _whole_hip(f"{HIP}{body}\n}}\n", arch)


def _whole_cuda(text: str, arch: str) -> bytes:
    from hcq.nv.toolchain import nvrtc

    try:
        nvrtc.library()
    except Exception as error:
        pytest.skip(f"there is no nvrtc: {error}")
    if "wgmma" in text or "tcgen05" in text:
        arch += "a"
    return nvrtc.compile_cuda(text, arch, name="kernel").ptx.encode()


def _whole_hip(text: str, arch: str) -> bytes:
    from hcq.compiler.assemble import comgr

    return comgr.compile_hip(text, arch)


def _assembly(body: str, arch: str) -> bytes:
    from hcq.compiler.assemble import comgr

    return comgr.compile_assembly(f"{AMDGCN}{body}{AMDGCN_END}", arch)


def _llvm(text: str, arch: str) -> bytes:
    llvm = pytest.importorskip("llvmlite.binding")
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    target = llvm.Target.from_triple("amdgcn-amd-amdhsa").create_target_machine(cpu=arch)
    made: bytes = target.emit_object(llvm.parse_assembly(text))
    return made


ROOM = 64  # words of a kernel written by hand
MARK = 0x7B  # s_nop 0x7b
BY_HAND = """
declare i32 @llvm.amdgcn.workitem.id.x()
declare void @llvm.amdgcn.s.nop(i16)
define amdgpu_kernel void @kernel(ptr addrspace(1) %out) {
  %t = call i32 @llvm.amdgcn.workitem.id.x()
  call void asm sideeffect "", "{v0},{s[2:3]},CLOBBERED"(i32 %t, ptr addrspace(1) %out)
"""


def _by_hand(body: str, arch: str) -> bytes:
    """Instructions in place of those of a kernel of LLVM's that does nothing."""
    clobbered = ",".join([f"~{{v{one}}}" for one in range(1, 40)] + [f"~{{s{one}}}" for one in range(4, 12)])
    text = BY_HAND.replace("CLOBBERED", clobbered) + f"  call void @llvm.amdgcn.s.nop(i16 {MARK})\n" * ROOM
    image = _llvm(text + "  ret void\n}\n", arch)
    isa = ISAS[arch]
    words = _words(body, isa)
    room = struct.pack("<I", *isa.encode("s_nop", simm16=MARK)) * ROOM
    assert image.count(room) == 1 and len(words) <= ROOM
    words += isa.encode("s_nop") * (ROOM - len(words))
    return image.replace(room, struct.pack(f"<{ROOM}I", *words))


def _words(body: str, isa: Isa) -> list[int]:
    """`name operand, operand field=number`, labels, branches back."""
    words: list[int] = []
    labels: dict[str, int] = {}
    for line in filter(None, map(str.strip, body.splitlines())):
        if line.endswith(":"):
            labels[line[:-1]] = len(words)
            continue
        name, _, rest = line.partition(" ")
        fields = {key: int(number, 0) for key, number in re.findall(r"(\w+)=(\w+)", rest)}
        given = [one.strip() for one in re.sub(r"\w+=\w+", "", rest).split(",") if one.strip()]
        operands = [labels[one] - len(words) - 1 if one in labels else _operand(one) for one in given]
        words += assemble(isa, name, operands, **fields)
    return words


def _operand(text: str) -> str | int:
    return int(text, 0) if text[0].isdigit() or text[0] == "-" else text


LANGUAGES = {
    "cuda": Language(("nv:sm_90",), _nvrtc),
    "hip": Language(("amd:gfx90a",), functools.partial(_comgr, _hip)),
    "ptx": Language(("nv:sm_90",), lambda body, arch: f"{PTX}{body}{PTX_END}".encode()),
    "amdgcn": Language(("amd:gfx90a",), functools.partial(_comgr, _assembly)),
    "msl": Language(("metal:m3",), lambda body, arch: f"{MSL}{body}\n}}\n".encode(), "kernel_"),
    "whole cuda": Language(("nv:sm_90",), _whole_cuda),
    "whole hip": Language(("amd:gfx90a",), functools.partial(_comgr, _whole_hip)),
    "whole msl": Language(("metal:m3",), lambda text, arch: text.encode(), "kernel_"),
    "whole ptx": Language(("nv:sm_90",), lambda text, arch: text.encode()),
    "by hand": Language(("amd:gfx90a",), _by_hand),
    "whole llvm": Language(("amd:gfx1100",), _llvm),
}
