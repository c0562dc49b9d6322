"""Block scales: the powers of two that a block of narrow floats is multiplied by, kept as exponents of eight bits.

In       exponents, int32 and 0 to 255: the format E8M0
Out      `scales`: the float32 nodes of their powers; `exponents_of`: the exponents again, of nodes made so
Next     ../compiler/loops/scaled.py (what matrix units do of it), ../frontend/schedule/scaled.py (what stays together)
Source   OCP Microscaling Formats 1.0, 5.4.1: 2 ** (e - 127), and 255 is NaN

    bits of the float32 = max(e << 23, 1 << 22) + ((e + 1 >> 8) << 22)

0 is 2 ** -127, which float32 has below its normal numbers: the largest bit of the fraction. 255 would be infinite
without that bit. Nodes of one content are one object, so what was written by this formula is found by writing it again.
"""

from __future__ import annotations

from hcq.ir.dtype import dtypes
from hcq.ir.node import Node, binary
from hcq.ir.op import Op

BLOCK = 32  # elements along the sum for which matrix units have one scale
EXPONENT_BITS, EXPONENT_OF_ONE = 8, 127
FRACTION = 23  # bits of float32's


def scales(exponents: Node) -> Node:
    """2 ** (e - 127) in float32, of int32 nodes of any stage."""
    largest = FRACTION - 1
    powers = binary(Op.MAX, binary(Op.SHL, exponents, FRACTION), 1 << largest)
    is_nan = binary(Op.SHR, binary(Op.ADD, exponents, 1), EXPONENT_BITS)
    bits = binary(Op.ADD, powers, binary(Op.SHL, is_nan, largest))
    return Node(Op.BITCAST, dtypes.float32, (bits,))


def exponents_of(value: Node) -> Node | None:
    """The int32 nodes, widened from bytes, of which `scales` made these; None for others."""
    if value.op is not Op.BITCAST or value.dtype is not dtypes.float32:
        return None
    found = value.src[0]
    while found.op is not Op.CAST:
        if not found.src:
            return None
        found = found.src[0]
    is_widened = found.dtype is dtypes.int32 and found.src[0].dtype is dtypes.uint8
    return found if is_widened and scales(found) is value else None
