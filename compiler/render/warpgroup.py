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
    Op.DESCRIPTOR, Op.WARPGROUP_HELD, Op.WARPGROUP_FENCE, Op.WARPGROUP_MATRIX, Op.WARPGROUP_WAIT, Op.WARPGROUP_RESULT
}  # fmt: skip
FENCE = "wgmma.fence.sync.aligned;"
COMMIT = "wgmma.commit_group.sync.aligned;"
SHARED_FENCE = "fence.proxy.async.shared::cta;"
LEADING_SHIFT, STRIDE_SHIFT, SWIZZLE_SHIFT = 16, 32, 62
SWIZZLE_128 = 1
WORD = 4  # bytes
UNIT = 16  # bytes that addresses and strides are counted in
ADDRESS_MASK = (1 << 18) - 1


def wait(batches: int) -> str:
    """Until all batches but so many are done."""
    return f"wgmma.wait_group.sync.aligned {batches};"


def product(it: Instruction, slot: Callable[[int], str]) -> str:
    """WARPGROUP_MATRIX: operands are d, in order, then a, a descriptor or its registers, then b's descriptor."""
    shape, kind, *turned = it.arg
    held, words = it.dtype.lanes, words_of(it.source(0))
    d, a = (
        ", ".join([slot(first + i) for i in range(count)]) for first, count in ((0, held), (held, words or 1))
    )
    a = f"{{{a}}}" if words else a
    flags = ", ".join([str(int(flag)) for flag in turned])
    adds = int(it.src[2] is not None)
    b = slot(held + (words or 1))
    return f"wgmma.mma_async.sync.aligned.{shape}.f32.{kind}.{kind} {{{d}}}, {a}, {b}, {adds}, 1, 1, {flags};"


def words_of(value: Instruction) -> int:
    """Registers of 32 bits that hold a factor; 0 for a descriptor."""
    return value.dtype.lanes * value.dtype.itemsize // WORD if value.dtype.lanes > 1 else 0


def descriptor_bits(leading: int, stride: int) -> int:
    """A descriptor of a matrix swizzled in 128 bytes that starts at address 0, as a signed number."""
    bits = leading // UNIT << LEADING_SHIFT | stride // UNIT << STRIDE_SHIFT | SWIZZLE_128 << SWIZZLE_SHIFT
    return bits - (bits >> 63 << 64)
