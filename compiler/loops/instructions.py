"""Transforms by which one instruction does the loops of a sum of products: matrix units, dot products of processors.

In       a nest whose innermost loops have the instruction's sizes
Out      the nest with those loops as threads and registers of the instruction, or as its words
Next     matrix_units.py, dot_units.py (the instructions and their layouts), nest.py, loop_nest.py (all transforms)
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hcq.compiler.loops.dot_units import DOTS, matched
from hcq.compiler.loops.loop import Axis, Loop
from hcq.compiler.loops.matrix_units import HELD, UNITS, MatrixUnit, Parts
from hcq.compiler.loops.nest import DotUse, MatrixUse, Nest, ScheduleError
from hcq.ir.op import Op

if TYPE_CHECKING:
    from typing_extensions import Self


class Instructions(Nest):
    """matrix, dot."""

    def matrix(self, m: str, n: str, k: str, unit: str) -> Self:
        """Three loops, of two outputs and of a sum of products, become one instruction of a wave.

        Its threads are the first digits of a thread's number. Raises ScheduleError for an unknown unit, loops of other
        sizes, loops that are not the innermost of their ranges, and what is no sum of products of its operands.
        """
        text = f"matrix {m} {n} {k} {unit}"
        found = UNITS.get(unit)
        if found is None:
            raise ScheduleError(f"{text}: no such unit; there are {', '.join(UNITS)}")
        if self.digits:
            raise ScheduleError(f"{text}: the threads of a wave come before other threads")
        loops = [self.loop(name) for name in (m, n, k)]
        for loop, dimension in zip(loops, "mnk", strict=True):
            size = found.size(dimension)
            if loop.kind != "serial" or loop is not loop.axis.loops[-1] or loop.size != size:
                raise ScheduleError(f"{text}: {loop.name} is not an innermost, unbound loop of {size} steps")
            if loop.axis.size % loop.axis.loops[0].stride:
                raise ScheduleError(f"{text}: {loop.axis.name} is cut short; pad it first")
        axes = [loop.axis for loop in loops]
        self.unit = self._products(text, found, *axes)
        self.digits += found.digits
        for loop, parts in zip(loops, (found.d_m, found.d_n, found.k), strict=True):
            self._take_apart(loop, parts, may_be_vector=loop is not loops[0])
        self.choices.append(text)
        return self

    def _products(self, text: str, unit: MatrixUnit, m: Axis, n: Axis, k: Axis) -> MatrixUse:
        """The one sum of products along k, with its factors in the unit's own format."""
        sums = [node for node in self.reduces if k.range in node.src[1:]]
        if len(sums) != 1 or sums[0].arg is not Op.ADD or sums[0].src[0].op is not Op.MUL:
            raise ScheduleError(f"{text}: {k.name} is not that of one sum of products")
        factors = {}
        for factor in sums[0].src[0].src:
            if factor.op is Op.CAST:
                factor = factor.src[0]
            if factor.dtype is not unit.operand:
                raise ScheduleError(
                    f"{text}: a factor is {factor.dtype.name}, the unit takes {unit.operand.name}"
                )
            factors[self.masks[factor] & (m.bit | n.bit)] = factor
        if set(factors) != {m.bit, n.bit}:
            raise ScheduleError(f"{text}: the factors are not one of {m.name} and one of {n.name}")
        return MatrixUse(unit, sums[0], m, n, k, factors[m.bit], factors[n.bit])

    def _take_apart(self, loop: Loop, parts: Parts, may_be_vector: bool) -> None:
        """A loop becomes threads and registers of a matrix unit."""
        axis, stride = loop.axis, loop.stride
        at = axis.loops.index(loop)
        axis.loops.remove(loop)
        self.order.remove(loop)
        for size, digit in reversed(parts):
            axis.splits += 1
            kind = "thread" if digit != HELD else "vector" if may_be_vector and stride == 1 else "unroll"
            axis.loops.insert(at, Loop(f"{axis.name}.{axis.splits}", axis, size, stride, kind, digit))
            stride *= size

    def dot(self, name: str, unit: str) -> Self:
        """The steps of the innermost loop of a sum of products are added up by one instruction in every lane.

        Its operands are words of neighbours along the loop: `stage` lays them out so. Raises ScheduleError for an
        unknown unit, a loop of other size than the unit's depth, and for what is no one sum of products in its formats.
        """
        text, found, loop = f"dot {name} {unit}", DOTS.get(unit), self.loop(name)
        if found is None:
            raise ScheduleError(f"{text}: no such unit; there are {', '.join(DOTS)}")
        axis = loop.axis
        if loop.kind != "serial" or loop is not axis.loops[-1] or loop.size != found.depth or axis.is_ordered:
            raise ScheduleError(
                f"{text}: {name} is not an innermost, unbound loop of {found.depth} steps in any order"
            )
        sums = [node for node in self.reduces if axis.range in node.src[1:]]
        if len(sums) != 1 or sums[0].arg is not Op.ADD or sums[0].src[0].op is not Op.MUL or self.dots:
            raise ScheduleError(f"{text}: {axis.name} is not that of one sum of products")
        if self.digits or self.stages:
            raise ScheduleError(f"{text}: it comes before stages, and groups have no threads")
        factors = matched(sums[0].src[0].src, found)
        if factors is None or sums[0].dtype is not found.result:
            raise ScheduleError(
                f"{text}: the unit multiplies {found.a.name} by {found.b.name} and adds up in {found.result.name}"
            )
        for factor in factors:
            self.masks.setdefault(factor, self.masks[factor.src[0]])
        self.dots = DotUse(found, sums[0], axis, *factors)
        loop.kind = "dot"
        self.order.remove(loop)
        self.choices.append(text)
        return self
