"""The instructions of a warpgroup's matrix unit, as both roads to PTX write them: wgmma and what orders it.

In       a unit's name, how the text around names operands
Out      PTX for inline assembly; the bits of a matrix descriptor
Next     nvptx_warpgroup.py (in LLVM IR), cuda.py (in CUDA C), ../linear/warpgroups.py (who writes the program)
Source   PTX ISA, "wgmma.mma_async", "wgmma.fence", "wgmma.commit_group", "wgmma.wait_group", "fence.proxy.async",
         "Matrix Descriptor Format"

Copies write shared memory as threads do, and the unit reads it by another way, the async proxy: who has copied fences
before the barrier that the unit's threads wait at.
"""

from __future__ import annotations

from collections.abc import Callable

from hcq.compiler.linear.program import Instruction
from hcq.compiler.render.tensor_memory import TENSOR
from hcq.ir.op import Op

WARPGROUP = TENSOR | {
    Op.DESCRIPTOR, Op.WARPGROUP_FENCE, Op.WARPGROUP_MATRIX, Op.WARPGROUP_WAIT, Op.WARPGROUP_RESULT
}  # fmt: skip
FENCE = "wgmma.fence.sync.aligned;"
COMMIT = "wgmma.commit_group.sync.aligned;"
SHARED_FENCE = "fence.proxy.async.shared::cta;"
LEADING_SHIFT, STRIDE_SHIFT, SWIZZLE_SHIFT = 16, 32, 62
SWIZZLE_128 = 1
UNIT = 16  # bytes that addresses and strides are counted in
ADDRESS_MASK = (1 << 18) - 1


def wait(batches: int) -> str:
    """Until all batches but so many are done."""
    return f"wgmma.wait_group.sync.aligned {batches};"


def product(it: Instruction, slot: Callable[[int], str]) -> str:
    """WARPGROUP_MATRIX: operands are d, in order, then both descriptors."""
    shape, kind, *turned = it.arg
    held = it.dtype.lanes
    d = ", ".join([slot(i) for i in range(held)])
    flags = ", ".join([str(int(flag)) for flag in turned])
    return (
        "{ .reg .pred adds; setp.eq.u32 adds, 0, 0; "
        f"wgmma.mma_async.sync.aligned.{shape}.f32.{kind}.{kind} {{{d}}}, {slot(held)}, {slot(held + 1)}, "
        f"adds, 1, 1, {flags}; }}"
    )


def descriptor_bits(leading: int, stride: int) -> int:
    """A descriptor of a matrix swizzled in 128 bytes that starts at address 0, as a signed number."""
    bits = leading // UNIT << LEADING_SHIFT | stride // UNIT << STRIDE_SHIFT | SWIZZLE_128 << SWIZZLE_SHIFT
    return bits - (bits >> 63 << 64)
