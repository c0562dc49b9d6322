"""NVIDIA GPUs in LLVM's words.

In       nothing
Out      the `Dialect` of gpu.py for nvptx64
Next     ../assemble/llvm_gpu.py (who makes the PTX)
Source   LLVM, "User Guide for NVPTX Back-end": kernel calling convention, special registers
"""

from __future__ import annotations

from hcq.compiler.render.gpu import BLOCK, Dialect

DIALECT = Dialect(
    convention="ptx_kernel",
    block_id="llvm.nvvm.read.ptx.sreg.ctaid.x",
    thread_id="llvm.nvvm.read.ptx.sreg.tid.x",
    attributes=f'nounwind "nvvm.maxntid"="{BLOCK}"',
    registers={"half": "h", "float": "f", "double": "d"},
)
