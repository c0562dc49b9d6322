"""AMD GPUs in LLVM's words.

In       nothing
Out      the `Dialect` of gpu.py for amdgcn
Next     ../assemble/llvm_gpu.py (who makes the object)
Source   LLVM, "User Guide for AMDGPU Backend": kernel calling convention, workgroup and workitem ids, attributes
"""

from __future__ import annotations

from hcq.compiler.render.gpu import BLOCK, Dialect

DIALECT = Dialect(
    convention="amdgpu_kernel",
    block_id="llvm.amdgcn.workgroup.id.x",
    thread_id="llvm.amdgcn.workitem.id.x",
    attributes=f'nounwind "amdgpu-flat-work-group-size"="{BLOCK},{BLOCK}" "uniform-work-group-size"="true"',
    registers={"half": "v", "float": "v", "double": "v"},
)
