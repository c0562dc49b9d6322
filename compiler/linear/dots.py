"""Dots: operands of a processor's dot products, as words of 32 bits that hold neighbours along the reduction.

In       a factor of the sum of products that the schedule's `dot` names, a point
Out      one word, or one for each lane; packed words where the operand is staged; DOT instructions
Next     staging.py (copies words), reductions.py (whose terms these are), ../loops/dot_units.py, ../render/llvm_dots.py

A word is read as it lies where its numbers are neighbours in memory, or in scratch, where copies lay them out so for
every lane. Otherwise its numbers come one vector each, and are interleaved. Beyond the end of a range they are zero.
"""

from __future__ import annotations

from hcq.compiler.linear.context import Lowering
from hcq.compiler.linear.places import Packed, Point
from hcq.compiler.linear.program import Instruction
from hcq.compiler.loops.dot_units import read_by
from hcq.compiler.loops.loop import Axis
from hcq.compiler.loops.nest import DotUse
from hcq.ir.dtype import dtypes
from hcq.ir.node import Node
from hcq.ir.op import Op


class Dots(Lowering):
    """Words of operands, and the instruction that multiplies them."""

    def dotted(self, use: DotUse, point: Point, before: Instruction) -> Instruction:
        """The accumulator after the products of one step of the loop that `dot` names."""
        lanes = before.dtype.lanes
        a, b = (self.emitter.broadcast(self.words(factor, use.k, point), lanes) for factor in (use.a, use.b))
        return self.emitter.place(Op.DOT, before.dtype, (a, b, before), use.unit.name)

    def words(self, factor: Node, k: Axis, point: Point) -> Instruction:
        """A factor's words at a point; one for each lane where it differs by lane."""
        start, count = point[k]
        depth = k.loops[-1].size
        across = self._lanes_of(factor, k, point)
        lanes = 1 if across is None else point[across][1]
        packed = self.values.packed.get(factor)
        if across is not None and packed is not None and _is_laid_out(packed, k, across):
            address, base, offset = self.word_place(packed, k, point, across)
            wide = factor.dtype.vec(lanes * depth)
            return self.word(self.emitter.emit(Op.LOAD, wide, (address, base), offset, packed.depth))
        is_run = packed is not None or self.ranges.affine.of(read_by(factor).src[1]).coefficient(k.range) == 1
        if count == depth and is_run and factor not in self.ranges.volatile:
            if across is None:
                return self.word(self.values.value(factor, point))
            if not self._is_run_across(factor, across):
                first = point[across][0]
                ones = [
                    self.word(self.values.value(factor, {**point, across: (first + i, 1)}))
                    for i in range(lanes)
                ]
                return (
                    ones[0]
                    if lanes == 1
                    else self.emitter.emit(Op.VECTOR, dtypes.int32.vec(lanes), tuple(ones))
                )
        zero = self.emitter.broadcast(self.emitter.number(0, factor.dtype), lanes)
        rows = [self.values.value(factor, {**point, k: (start + i, 1)}) for i in range(count)]
        rows = [self.emitter.broadcast(row, lanes) for row in rows] + [zero] * (depth - count)
        return self.word(self.interleaved(rows))

    def store_words(self, packed: Packed, factor: Node, k: Axis, point: Point) -> None:
        """Write a factor's words where `packed` keeps them, a run of lanes."""
        across = self._lanes_of(factor, k, point)
        words = self.words(factor, k, point)
        address, base, offset = self.word_place(packed, k, point, across)
        value = self.emitter.emit(
            Op.BITCAST, factor.dtype.vec(words.dtype.lanes * k.loops[-1].size), (words,)
        )
        self.emitter.store((address, base, value), offset)

    def word_place(
        self, packed: Packed, k: Axis, point: Point, across: Axis | None
    ) -> tuple[Instruction, Instruction | None, int]:
        """Address, base and displacement of the first word of a point."""
        first = {**point, k: (point[k][0], 1)}
        if across is not None:
            first[across] = (point[across][0], 1)
        spot = self.values.packed_spot(packed, first)
        return packed.address, self.emitter.total(spot.terms), spot.offset

    def _lanes_of(self, factor: Node, k: Axis, point: Point) -> Axis | None:
        """The range other than k that is in lanes, if a factor depends on it."""
        axes = self.ranges.axes_of(self.ranges.masks[factor])
        return next((axis for axis in axes if axis is not k and axis.loops[-1].kind == "vector"), None)

    def _is_run_across(self, factor: Node, across: Axis) -> bool:
        return self.ranges.affine.of(read_by(factor).src[1]).coefficient(across.range) == 1

    def word(self, numbers: Instruction) -> Instruction:
        """Narrow numbers as words."""
        lanes = numbers.dtype.lanes * numbers.dtype.scalar.bits // dtypes.int32.bits
        return self.emitter.emit(Op.BITCAST, dtypes.int32.vec(lanes), (numbers,))

    def interleaved(self, rows: list[Instruction]) -> Instruction:
        """Rows of lanes as lanes of neighbours: first lane of each row, second lane of each row, and so on."""
        if rows[0].dtype.lanes == 1:
            return self.emitter.emit(Op.VECTOR, rows[0].dtype.vec(len(rows)), tuple(rows))
        while len(rows) > 1:  # the distant ones first: 0 with 2 and 1 with 3, then both
            half = len(rows) // 2
            lanes = rows[0].dtype.lanes
            picks = tuple(at for lane in range(lanes) for at in (lane, lanes + lane))
            kind = rows[0].dtype.scalar.vec(2 * lanes)
            rows = [self.emitter.emit(Op.LANE, kind, (rows[i], rows[i + half]), picks) for i in range(half)]
        return rows[0]


def _is_laid_out(packed: Packed, k: Axis, across: Axis) -> bool:
    """Whether scratch holds words, one for each lane."""
    innermost = k.loops[-1]
    return packed.strides.get(innermost) == 1 and packed.strides.get(across.loops[-1]) == innermost.size
