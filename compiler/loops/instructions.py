"""Transforms by which one instruction does the loops of a sum of products: matrix units, dot products of processors.

In       a nest whose innermost loops have the instruction's sizes
Out      the nest with those loops as threads and registers of the instruction, or as its words
Next     matrix_units.py, dot_units.py (the instructions and their layouts), nest.py, loop_nest.py (all transforms)
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hcq.compiler.loops.dot_units import DOTS, matched
from hcq.compiler.loops.loop import Axis, Loop
from hcq.compiler.loops.matrix_units import HELD, UNITS, MatrixUnit, Parts, widened
from hcq.compiler.loops.nest import Chained, DotUse, MatrixUse, Nest, ScheduleError
from hcq.ir.node import Node
from hcq.ir.op import Op

if TYPE_CHECKING:
    from typing_extensions import Self


class Instructions(Nest):
    """matrix, chain, collect, dot."""

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
        if len(set(map(id, axes))) < len(axes):
            raise ScheduleError(f"{text}: m, n and k are not three ranges")
        self.unit, *self.beside = self._products(text, found, *axes)
        self.digits += found.digits
        for loop, parts in zip(loops, (found.d_m, found.d_n, found.k), strict=True):
            self._take_apart(loop, parts, may_be_vector=loop is not loops[0])
        self.choices.append(text)
        return self

    def collect(self) -> Self:
        """What the matrix unit computed is put together in shared memory, and what is made of it stored by rows.

        Raises ScheduleError without a matrix unit, and for stores that read what others of the kernel write.
        """
        if self.unit is None:
            raise ScheduleError("collect: no matrix unit has results that would be put together")
        if self.reads_what_it_writes:
            raise ScheduleError("collect: the kernel reads what it writes")
        self.collects = True
        self.choices.append("collect")
        return self

    @property
    def reads_what_it_writes(self) -> bool:
        """Whether a store may change what another one reads."""
        written = {store.src[0] for store in self.stores}
        return len(self.stores) > 1 and any(load.src[0] in written for load in self.loads)

    def _products(self, text: str, unit: MatrixUnit, m: Axis, n: Axis, k: Axis) -> list[MatrixUse]:
        """The sums of products along k, with their factors in the unit's own format."""
        sums = [node for node in self.reduces if k.range in node.src[1:]]
        if not sums or (len(sums) > 1 and unit.reads_shared):
            raise ScheduleError(f"{text}: {k.name} is not that of one sum of products")
        uses = []
        for node in sums:
            if node.arg is not Op.ADD or node.src[0].op is not Op.MUL:
                raise ScheduleError(f"{text}: {k.name} is not that of one sum of products")
            if node.dtype is not unit.result:
                raise ScheduleError(
                    f"{text}: the sum is of {node.dtype.name}, the unit's of {unit.result.name}"
                )
            factors = {}
            for factor in node.src[0].src:
                if factor.op is Op.CAST:
                    factor = factor.src[0]
                factors[self.masks[factor] & (m.bit | n.bit)] = self._widened(factor, unit)
            if set(factors) != {m.bit, n.bit}:
                raise ScheduleError(f"{text}: the factors are not one of {m.name} and one of {n.name}")
            for bit, dtype in ((m.bit, unit.a), (n.bit, unit.b)):
                if factors[bit].dtype is not dtype:
                    raise ScheduleError(
                        f"{text}: a factor is {factors[bit].dtype.name}, the unit takes {dtype.name}"
                    )
            uses.append(MatrixUse(unit, node, m, n, k, factors[m.bit], factors[n.bit]))
        return uses

    def _widened(self, factor: Node, unit: MatrixUnit) -> Node:
        """A factor of 8 bits as a unit takes it that does not take such, from registers."""
        if factor.dtype in (unit.a, unit.b) or unit.reads_shared or unit.a is not widened(factor.dtype):
            return factor
        made = factor.cast(unit.a)
        self.masks.setdefault(made, self.masks[factor])
        return made

    def chain(self, name: str) -> Self:
        """The sums over one range of what `matrix` computes become products by the same unit.

        name  the loop of their other range, of as many steps as the unit has there. One factor is then made by the
              threads that hold the first product, which the unit takes as it lies (or after one exchange)

        Raises ScheduleError where no product was given to a unit, where its results lie otherwise than operands of a
        second one, and for sums that are no products of such a factor with a load in the unit's own format.
        """
        text, loop, first = f"chain {name}", self.loop(name), self.unit
        if first is None or first.unit.reads_shared:
            raise ScheduleError(f"{text}: no matrix unit holds a product in registers")
        unit = first.unit
        if not unit.takes_made:
            raise ScheduleError(f"{text}: what was made is not rounded to {unit.a.name}")
        key = next((axis for axis in (first.n, first.m) if axis.is_reduce), None)
        if key is None:
            raise ScheduleError(f"{text}: neither {first.m.name} nor {first.n.name} is summed over")
        is_a = key is first.n  # rows stay rows: what was made is the left factor
        row = first.m if is_a else first.n
        size = unit.size("n" if is_a else "m")
        if (
            loop.kind != "serial"
            or loop is not loop.axis.loops[-1]
            or loop.size != size
            or loop.axis.is_reduce
        ):
            raise ScheduleError(f"{text}: {name} is not an innermost, unbound loop of {size} steps")
        if loop.axis.size % loop.axis.loops[0].stride:
            raise ScheduleError(f"{text}: {loop.axis.name} is cut short; pad it first")
        if unit.d_m != unit.a_m if is_a else unit.d_n != unit.b_n:
            raise ScheduleError(
                f"{text}: {unit.name} gives results to other threads than it takes operands of"
            )
        if operand_parts(key, unit) is None and not exchanged(key, unit.k):
            raise ScheduleError(f"{text}: {key.name} lies otherwise than {unit.name} takes it")
        column = loop.axis
        sums = [n for n in self.reduces if key.range in n.src[1:] and self.masks[n] & column.bit]
        if not sums:
            raise ScheduleError(f"{text}: no sum over {key.name} differs along {column.name}")
        for node in sums:
            self.chained.append(Chained(self._chained(text, node, unit, row, column, key, is_a), is_a))
        parts = unit.d_n if is_a else unit.d_m
        self._take_apart(loop, parts, may_be_vector=True)
        self.choices.append(text)
        return self

    def _chained(
        self, text: str, node: Node, unit: MatrixUnit, row: Axis, column: Axis, key: Axis, is_a: bool
    ) -> MatrixUse:
        """The product that a sum is: one factor of all that does not differ along the column, the other one loaded."""
        value = node.src[0].src[0] if node.src[0].op is Op.RESCALE else node.src[0]
        factors, stack = [], [value]
        while stack:
            factor = stack.pop()
            if factor.op is Op.MUL:
                stack.extend(factor.src)
            else:
                factors.append(factor)
        loaded = [factor for factor in factors if self.masks[factor] & column.bit]
        made = [factor for factor in factors if not self.masks[factor] & column.bit]
        if node.arg is not Op.ADD or len(loaded) != 1 or not made or self.masks[loaded[0]] & row.bit:
            raise ScheduleError(f"{text}: a sum is no product of what was made and what is loaded")
        other = loaded[0].src[0] if loaded[0].op is Op.CAST else loaded[0]
        if other.op is not Op.LOAD or other.dtype is not unit.a or unit.b is not unit.a:
            raise ScheduleError(f"{text}: the other factor is no load of {unit.a.name}")
        whole = made[0]
        for factor in made[1:]:
            whole = Node(Op.MUL, whole.dtype, (whole, factor))
            self.masks.setdefault(whole, self.masks[whole.src[0]] | self.masks[factor])
        if is_a:
            return MatrixUse(unit, node, row, column, key, whole, other)
        return MatrixUse(unit, node, column, row, key, other, whole)

    def _take_apart(self, loop: Loop, parts: Parts, may_be_vector: bool) -> None:
        """A loop becomes threads and registers of a matrix unit."""
        axis, stride = loop.axis, loop.stride
        at = axis.loops.index(loop)
        axis.loops.remove(loop)
        self.order.remove(loop)
        for size, digit in reversed(parts):
            axis.splits += 1
            kind = "thread" if digit != HELD else "vector" if may_be_vector and stride == 1 else "unroll"
            part = Loop(f"{axis.name}.{axis.splits}", axis, size, stride, kind, digit, digit == HELD)
            axis.loops.insert(at, part)
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


def operand_parts(axis: Axis, unit: MatrixUnit) -> Parts | None:
    """The innermost steps of an axis as the k of a unit's operands; None where other threads hold them.

    In which order they come does not matter, as long as both operands have the same: the unit adds up over k.
    """
    parts: list[tuple[int, int]] = []
    size = unit.size("k")
    for loop in reversed(axis.loops):
        if size == 1:
            break
        part = min(loop.size, size)
        if loop.kind not in ("thread", "unroll", "vector") or size % part or loop.size % part:
            return None
        if loop.kind == "thread" and part < loop.size:
            return None
        parts.insert(0, (part, loop.digit if loop.kind == "thread" else HELD))
        size //= part
    threads = [[part for part in some if part[1] != HELD] for some in (parts, unit.k)]
    return tuple(parts) if size == 1 and threads[0] == threads[1] else None


def exchanged(axis: Axis, parts: Parts) -> bool:
    """Whether each pair of an axis is in two threads, both of which want all of it in registers."""
    last = axis.loops[-1]
    return len(parts) == 1 and parts[0][1] == HELD and last.kind == "thread" and last.size == 2
