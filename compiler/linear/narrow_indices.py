"""Narrow indices: index arithmetic in 32 bits, for targets where 64 take two registers and several instructions.

In       a Program
Out      the same program with index instructions of 32 bits, where none of their values leaves that range
Changes  the program it is given
Next     ../render/gpu.py, ../render/cuda.py (who ask for it)

Every index instruction gets an interval from those of its sources. One that cannot be bounded, such as a 64-bit index
that a tensor holds, leaves the kernel as it is.
"""

from __future__ import annotations

from hcq.compiler.linear.program import Instruction, Program
from hcq.ir.dtype import DType, Kind
from hcq.ir.op import Op

index32 = DType("index32", Kind.INDEX, 4, 9)
Interval = tuple[int, int]
_LIMIT = 1 << 31
_NO_VALUE = frozenset(
    {Op.PARAM, Op.SCRATCH, Op.SHARED, Op.ENDLOOP, Op.STORE, Op.BARRIER, Op.COMMIT, Op.WAIT, Op.COPY_SHARED}
    | {Op.WARPGROUP_FENCE, Op.WARPGROUP_WAIT, Op.MBARRIERS, Op.EXPECT_TILES, Op.COPY_TILE, Op.WAIT_TILES}
    | {Op.FREE_TILES, Op.PRODUCER, Op.TENSOR_HELD, Op.TENSOR_MATRIX, Op.TENSOR_COMMIT, Op.TENSOR_FREE}
)


def narrow_indices(program: Program) -> None:
    """Give the program's index instructions 32 bits where they fit."""
    known: dict[Instruction, Interval] = {}
    for it in program.instructions:
        if it.dtype.kind is not Kind.INDEX or it.op in _NO_VALUE:
            continue
        span = _interval(it, program, known)
        if span is None or span[0] < -_LIMIT or span[1] >= _LIMIT:
            return
        known[it] = span
    for it in known:
        it.dtype = index32.vec(it.dtype.lanes)


def _interval(it: Instruction, program: Program, known: dict[Instruction, Interval]) -> Interval | None:
    """The least and the greatest value of an index; None where nobody knows."""
    op = it.op
    if op is Op.CONST:
        return int(it.arg), int(it.arg)
    if op is Op.SPECIAL:
        return (0, program.launched - 1) if it.arg == "thread" else (0, program.groups)
    if op is Op.CAST:
        of = it.source(0).dtype.scalar
        return (int(of.min), int(of.max)) if of.is_integer and of.kind is not Kind.INDEX else None
    spans = [known[s] for s in it.src if s is not None and s in known]
    if op is Op.LOOP:
        return spans[0][0], spans[1][1]
    if op in (Op.BROADCAST, Op.VECTOR, Op.LANE, Op.WHERE):
        return min([low for low, _ in spans]), max([high for _, high in spans])
    if len(spans) != 2:
        return None
    (a, b), (c, d) = spans
    if op is Op.ADD:
        return a + c, b + d
    if op is Op.XOR and a >= 0 and c >= 0:
        return 0, (1 << max(b, d).bit_length()) - 1
    if op is Op.MUL:
        corners = (a * c, a * d, b * c, b * d)
        return min(corners), max(corners)
    if op is Op.MIN or op is Op.MAX:
        pick = min if op is Op.MIN else max
        return pick(a, c), pick(b, d)
    if op is Op.FLOORDIV and c == d > 0:
        return a // c, b // c
    if op is Op.MOD and c == d > 0:
        return 0, c - 1
    return None
