"""Scans: an accumulator that every turn of a loop reads and leaves to the next one.

In       a LoopNest with SCANs; the loops of their range are the innermost output loops
Out      an accumulator per SCAN and output point, around those loops; its value at every written-out step inside them
Changes  the program being written
Next     linearize.py (when), ../loops/loop_nest.py (why those loops are innermost)

Lanes along the range take log2(lanes) steps among themselves, which wait for nothing; then what the vectors before left
is added to all. From one vector to the next there is one scalar operation to wait for.
"""

from __future__ import annotations

from collections.abc import Sequence

from hcq.compiler.linear.lower_expr import Place
from hcq.compiler.linear.program import Instruction, LoopFacts
from hcq.compiler.linear.warpgroups import Warpgroups
from hcq.compiler.loops.loop import Axis, Loop
from hcq.compiler.loops.loop_nest import LoopNest
from hcq.ir.meaning import identity
from hcq.ir.node import Node
from hcq.ir.op import Op


def scanned_from(loops: Sequence[Loop]) -> int:
    """The number of the first loop of a scanned range; of the innermost body where there is none."""
    return next((at for at, loop in enumerate(loops) if loop.axis.is_scanned), len(loops))


class Scans(Warpgroups):
    """What the scans of a kernel carry from turn to turn."""

    def __init__(self, nest: LoopNest, most_shared: int):
        super().__init__(nest, most_shared)
        self.open_scans: list[LoopFacts] = []
        self.carried: dict[tuple[Node, tuple[Place, ...]], Instruction] = {}

    def begin_scans(self) -> None:
        """An accumulator for each scan and output point: its start, or what changes nothing."""
        for node in self.nest.scans:
            axis = self.nest.axis_of[node.src[1]]
            for point in self.points(self.masks[node] & ~axis.bit):
                places = tuple(point.values())
                lanes = max([1, *[width for _, width in places]])
                if len(node.src) > 2:
                    start = self.value(node.src[2], point)
                else:
                    start = self.number(identity(node.arg, node.dtype), node.dtype)
                src = (self.broadcast(start, lanes),)
                self.carried[node, places] = self.place(Op.ACCUMULATOR, node.dtype.vec(lanes), src)

    def step_scans(self) -> None:
        """The values of the scans at every written-out step, in order; then the accumulators move on."""
        for node in self.nest.scans:
            axis = self.nest.axis_of[node.src[1]]
            for point in self.points(self.masks[node] & ~axis.bit):
                accumulator = now = self.carried[node, tuple(point.values())]
                for step in self.points(axis.bit):
                    here = {**point, **step}
                    made, now = self._step(node, now, self.value(node.src[0], here), _lanes(step, axis))
                    self.results[node, self.place_in(node, here)] = made
                self.place(Op.UPDATE, accumulator.dtype, (accumulator, now))
                for facts in self.open_scans:
                    if accumulator not in facts.carried:
                        facts.carried.append(accumulator)

    def _step(
        self, node: Node, before: Instruction, x: Instruction, lanes: int
    ) -> tuple[Instruction, Instruction]:
        """(the value of the scan here, what it leaves to the next step)."""
        if lanes == 1:
            after = self.place(node.arg, before.dtype, (before, self.broadcast(x, before.dtype.lanes)))
            return after, after
        x = self.broadcast(x, lanes)
        nothing = self.broadcast(self.number(identity(node.arg, node.dtype), node.dtype), lanes)
        reach = 1
        while reach < lanes:
            picks = tuple([lane - reach if lane >= reach else lanes + lane for lane in range(lanes)])
            shifted = self.emit(Op.LANE, x.dtype, (x, nothing), picks)
            x = self.emit(node.arg, x.dtype, (x, shifted))
            reach *= 2
        whole = self.place(
            Op.BROADCAST, x.dtype, (before,)
        )  # here: what an accumulator is changes from turn to turn
        made = self.place(node.arg, x.dtype, (whole, x))
        return made, self.place(node.arg, before.dtype, (before, self.lane(x, lanes - 1)))


def _lanes(step: dict[Axis, Place], axis: Axis) -> int:
    return step[axis][1] if axis in step else 1
