"""Warpgroups: a reduction that a matrix unit of four warps does, both of whose operands lie in shared memory.

In       the reduction that the schedule's `matrix` names, of a unit that reads shared memory, where it belongs; or
         products whose left factor threads have made
Out      accumulators; descriptors of swizzled tiles; products that the unit begins, and waits for them
Next     fragments.py (units whose operands threads hold), chained.py (factors that were made), sharing.py (tiles),
         ../render/warpgroup.py (instructions)
Source   PTX ISA, "Asynchronous Warpgroup Level Matrix Instructions"

The unit works by itself. A step's products are one batch; where a loop has tiles enough, the batch of a step is still
at work while the next one's is begun, so that the unit never waits for threads. Nobody touches an accumulator until
the loops are over and all batches are done.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import product

from hcq.compiler.linear.context import Context, Lowering
from hcq.compiler.linear.fragments import Fragments, Sums, tiles_of
from hcq.compiler.linear.program import Instruction
from hcq.compiler.linear.tile_copies import is_unit_behind
from hcq.compiler.linear.tiles import SPAN, SWIZZLE_ALIGN
from hcq.compiler.loops.loop import Axis
from hcq.compiler.loops.matrix_units import MatrixUnit
from hcq.compiler.loops.nest import MatrixUse, ScheduleError
from hcq.ir.dtype import dtypes
from hcq.ir.node import Node
from hcq.ir.op import Op

PIECE = 16  # bytes: what a descriptor counts in
UNUSED = 1  # where a swizzled matrix has no use for a stride


class Warpgroups(Lowering):
    """Reductions by units that read shared memory."""

    def __init__(self, context: Context, fragments: Fragments):
        super().__init__(context)
        self.fragments = fragments

    def takes(self, use: MatrixUse) -> bool:
        """Units that read both operands from shared memory, and add up in registers."""
        return use.unit.reads_shared and not use.unit.keeps_sums

    def multiply(self, use: MatrixUse, node: Node, loops: Callable[[Callable[[], None]], None]) -> None:
        """Write a reduction as products that the unit begins; `loops` opens its loops around a body."""
        unit = use.unit
        if any(axis not in (use.m, use.n) for axis in self.ranges.axes_of(self.ranges.masks[node])):
            raise ScheduleError("matrix: only its own output ranges are written out")
        rows, columns = tiles_of(use.m, unit.d_m), tiles_of(use.n, unit.d_n)
        kind = unit.result.vec(unit.held)
        is_one_step = not any(self.nest.axis_of[place].counted for place in node.src[1:])
        sums: Sums = {}
        if not is_one_step:
            sums = self.fragments.sums_for(use, rows, columns, self.emitter.depth)
        now: dict[tuple[int, int], Instruction | None] = {}

        def body() -> None:
            now.update({at: sums.get(at) for at in product(rows, columns)})
            what = (*_shape(unit), *[self.is_turned(root, use) for root in (use.a, use.b)])
            self.emitter.place(Op.WARPGROUP_FENCE, dtypes.index, ())
            for k in tiles_of(use.k, unit.k):
                across = [self.descriptor(use.a, use.m, row, k, use) for row in rows]
                down = [self.descriptor(use.b, use.n, column, k, use) for column in columns]
                for (row, left), (column, right) in product(zip(rows, across), zip(columns, down)):
                    src = (left, right, now[row, column])
                    now[row, column] = self.emitter.place(Op.WARPGROUP_MATRIX, kind, src, what)
            at = next((stage.at for stage in self.nest.stages if stage.load is use.a), None)
            self.emitter.place(Op.WARPGROUP_WAIT, dtypes.index, (), int(is_unit_behind(self.nest, at)))
            for place, accumulator in sums.items():
                after = now[place]
                assert after is not None, "a product has k"
                self.loops.update(self.loops.open_reductions, accumulator, after)

        loops(body)
        self.fragments.results_of(use, node, self.results(sums or now))

    def results(self, sums: Mapping[tuple[int, int], Instruction | None]) -> Sums:
        """Sums, once the unit has done all that was begun."""
        return {
            at: self.emitter.place(Op.WARPGROUP_RESULT, total.dtype, (total,))
            for at, total in sums.items()
            if total is not None
        }

    def add_made(self, use: MatrixUse, lefts: dict[tuple[int, int], Instruction], sums: Sums) -> Sums:
        """Sums after products whose left factors threads have made: `lefts` by where they begin along k and m."""
        unit, axis = use.unit, use.n
        held = {at: self._held(left) for at, left in lefts.items()}
        now = {at: self._held(total) for at, total in sums.items()}
        self.emitter.place(Op.WARPGROUP_FENCE, dtypes.index, ())
        what = (*_shape(unit), self.is_turned(use.b, use))
        for (k, row), left in held.items():
            for at in [at for at in now if at[0] == row]:
                src = (left, self.descriptor(use.b, axis, at[1], k, use), now[at])
                now[at] = self.emitter.place(Op.WARPGROUP_MATRIX, now[at].dtype, src, what)
        self.emitter.place(Op.WARPGROUP_WAIT, dtypes.index, (), 0)
        return self.results(now)

    def _held(self, value: Instruction) -> Instruction:
        return self.emitter.place(Op.WARPGROUP_HELD, value.dtype, (value,))

    def is_turned(self, root: Node, use: MatrixUse) -> bool:
        """Whether rows of an operand's tile run along m or n, not along k. Raises ScheduleError without a tile."""
        tile = self.memory.tile_of.get(root)
        if tile is None or root not in self.values.packed:
            raise ScheduleError(
                f"matrix: {use.unit.name} reads shared memory; stage both operands at a loop of k"
            )
        return tile.inner is not use.k

    def descriptor(self, root: Node, axis: Axis, at: int, k: int, use: MatrixUse) -> Instruction:
        """Where the unit finds an operand of one product: the tile's place of (at, k) for this warpgroup."""
        tile, packed, unit = self.memory.tile_of[root], self.values.packed[root], use.unit
        is_turned = tile.inner is axis
        place = tile.place(k, at) if is_turned else tile.place(at, k)
        terms = list(packed.terms)
        for loop in axis.threads:
            if loop.digit >= len(unit.digits):  # which warpgroup this is
                step = tile.place(0, loop.stride) if is_turned else tile.place(loop.stride, 0)
                terms.append((self.loops.counters[loop], step))
        leading = tile.place(0, SPAN) * unit.a.itemsize if is_turned else UNUSED * PIECE
        base = self.emitter.total(terms)
        src = (packed.address, base)
        arg = (place, leading, SWIZZLE_ALIGN)
        return self.emitter.emit(Op.DESCRIPTOR, dtypes.int64, src, arg, packed.depth)


def _shape(unit: MatrixUnit) -> tuple[str, str]:
    """A unit's sizes and type, as its instruction has them."""
    return f"m{unit.size('m')}n{unit.size('n')}k{unit.size('k')}", unit.name.partition(".")[2]
