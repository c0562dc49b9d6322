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
    # LLVM 22 has "illegal VGPR to SGPR copy" for llvm.arithmetic.fence; and it rounds a product to float16 by
    # v_fma_mixlo_f16 a, b, 0, which makes 0.0 of -0.0
    fence="=v,0",
)
