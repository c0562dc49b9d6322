"""Bytes: on x86 a single byte becomes a float by a table, and its product reaches every lane from memory.

In       a scalar of 8 bits; a product of such a number and another, wanted in every lane
Out      the lines that compute them
Next     llvm.py, llvm_arithmetic.py (who ask); ../../frontend/io/dequantise_k.py (scales of blocks are such bytes)
Source   Intel Optimization Reference Manual: ports of CVTSI2SS and VBROADCASTSS, with and without an operand in memory

A conversion and a broadcast between registers take the two units that 512-bit arithmetic has; loads take others, and a
load fills every lane as it comes. So a scale of a block of quantised weights, of which there is one to two vectors of
numbers, is loaded from a table of 1 KiB, and multiplied when it is in every lane.
"""

from __future__ import annotations

from typing import Protocol

from hcq.compiler.linear.program import Instruction
from hcq.ir.dtype import DType, dtypes
from hcq.ir.op import Op

TABLES = {dtypes.uint8: "bytes.unsigned", dtypes.int8: "bytes.signed"}


class Text(Protocol):
    """What this needs of the text being written."""

    def let(self, text: str) -> str:
        """A new name for the value of an instruction."""

    def call(self, result: str, function: str, arguments: list[tuple[str, str]]) -> str:
        """The value of an intrinsic; arguments are (type, value)."""

    def declare(self, text: str) -> None:
        """Declare what stands beside the function, once."""

    def in_lanes(self, source: Instruction, dtype: DType) -> str:
        """A scalar in every lane."""


def is_looked_up(of: DType, to: DType) -> bool:
    """Whether a conversion between these is a look into the table."""
    return of in TABLES and to is dtypes.float32


def looked_up(text: Text, of: DType, name: str) -> str:
    """A byte as float32."""
    table = TABLES[of]
    numbers = [i - 256 if of is dtypes.int8 and i > 127 else i for i in range(256)]
    values = ", ".join(f"float {number}.0" for number in numbers)
    text.declare(f"@{table} = private unnamed_addr constant [256 x float] [{values}], align 64")
    index = text.let(f"zext i8 {name} to i64")
    place = text.let(f"getelementptr inbounds float, ptr @{table}, i64 {index}")
    return text.let(f"load float, ptr {place}, align 4")


def product_in_lanes(text: Text, it: Instruction, lanes: int) -> str | None:
    """A product with a number from the table, or its negative, in every lane; None where the scalar is none."""
    is_negative = it.op is Op.NEG
    product = it.source(0) if is_negative else it
    if product.op is not Op.MUL or product.dtype is not dtypes.float32:
        return None
    one, other = product.source(0), product.source(1)
    if not _is_from_table(other):
        one, other = other, one
    if not _is_from_table(other):
        return None
    wide = dtypes.float32.vec(lanes)
    factor = text.in_lanes(one, wide)
    if is_negative:
        factor = text.let(f"fneg <{lanes} x float> {factor}")
    # LLVM would multiply first and broadcast then, if it knew what is in the lanes
    kind = f"<{lanes} x float>"
    number = text.call(kind, f"llvm.arithmetic.fence.v{lanes}f32", [(kind, text.in_lanes(other, wide))])
    return text.let(f"fmul contract {kind} {factor}, {number}")


def _is_from_table(it: Instruction) -> bool:
    return it.op is Op.CAST and is_looked_up(it.source(0).dtype, it.dtype)
