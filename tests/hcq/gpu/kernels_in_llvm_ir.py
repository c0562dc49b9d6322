"""Kernels of tests in LLVM's language for AMD GPUs, as code objects.

In       the body of a kernel, or all of a module
Out      `amd_object`, for one architecture; `amd_kernel`, the text around a body
Next     test_sanitizer_memory.py and its neighbours (which run them)
"""

from __future__ import annotations

import pytest

HEAD = """
target triple = "amdgcn-amd-amdhsa"
declare i32 @llvm.amdgcn.workitem.id.x()
declare i32 @llvm.amdgcn.workgroup.id.x()
declare ptr addrspace(4) @llvm.amdgcn.kernarg.segment.ptr()
declare void @llvm.amdgcn.s.barrier()
"""


def amd_kernel(body: str, globals_: str = "") -> str:
    """The kernel `kernel` of two buffers, %a and %b, and a number, %n; %t is the work-item."""
    return f"""{HEAD}{globals_}
define amdgpu_kernel void @kernel(ptr addrspace(1) %a, ptr addrspace(1) %b, i64 %n) {{
entry:
  %t = call i32 @llvm.amdgcn.workitem.id.x()
  %pa = getelementptr i32, ptr addrspace(1) %a, i32 %t
  %pb = getelementptr i32, ptr addrspace(1) %b, i32 %t
  {body}
  ret void
}}
"""


def amd_object(text: str, arch: str) -> bytes:
    """It compiled."""
    llvm = pytest.importorskip("llvmlite.binding")
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    target = llvm.Target.from_triple("amdgcn-amd-amdhsa").create_target_machine(cpu=arch)
    made: bytes = target.emit_object(llvm.parse_assembly(text))
    return made
