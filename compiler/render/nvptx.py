"""NVIDIA GPUs in LLVM's words.

In       nothing
Out      the `Dialect` of gpu.py for nvptx64
Next     ../assemble/llvm_gpu.py (who makes the PTX)
Source   LLVM, "User Guide for NVPTX Back-end": kernel calling convention, special registers, shuffles, barriers
"""

from __future__ import annotations

from hcq.compiler.render.gpu import Dialect
from hcq.compiler.render.llvm import Text

WARP = 32


def _exchange(text: Text, value: str, mask: int) -> str:
    arguments = [("i32", "-1"), ("i32", value), ("i32", str(mask)), ("i32", str(WARP - 1))]
    return text.call("i32", "llvm.nvvm.shfl.sync.bfly.i32", arguments)


DIALECT = Dialect(
    convention="ptx_kernel",
    block_id="llvm.nvvm.read.ptx.sreg.ctaid.x",
    thread_id="llvm.nvvm.read.ptx.sreg.tid.x",
    attributes=lambda threads: f'nounwind "nvvm.maxntid"="{threads}"',
    registers={"half": "h", "float": "f", "double": "d"},
    wave=lambda arch: WARP,
    exchange=_exchange,
    barrier=("call void @llvm.nvvm.barrier.cta.sync.aligned.all(i32 0)",),
    barrier_declarations=("declare void @llvm.nvvm.barrier.cta.sync.aligned.all(i32) convergent",),
)
