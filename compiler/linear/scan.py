"""Scans: an accumulator that every turn of a loop reads and leaves to the next one.

In       a LoopNest with SCANs; the loops of their range are the innermost output loops
Out      an accumulator per SCAN and output point, around those loops; its value at every written-out step inside them
Changes  the program being written
Next     stores.py (when), ../loops/loop_nest.py (why those loops are innermost)

Lanes along the range take log2(lanes) steps among themselves, which wait for nothing; then what the vectors before left
is added to all. From one vector to the next there is one scalar operation to wait for. Threads likewise: each scans
what it has by itself; what those before it have, and all together, comes across them (across.py).
"""

from __future__ import annotations

from collections.abc import Sequence

from hcq.compiler.linear.context import Context, Lowering
from hcq.compiler.linear.places import Place, Point
from hcq.compiler.linear.program import Instruction
from hcq.compiler.loops.loop import Axis, Loop
from hcq.ir.dtype import DType
from hcq.ir.meaning import identity
from hcq.ir.node import Node
from hcq.ir.op import Op


class _Run:
    """Neighbouring values of one thread: scanned from the first of them, and what they come to."""

    def __init__(self, total: Instruction):
        self.values: list[tuple[Point, Instruction]] = []
        self.total = self.before = self.across = total


class Scans(Lowering):
    """What the scans of a kernel carry from turn to turn."""

    def __init__(self, context: Context):
        super().__init__(context)
        self.carried: dict[tuple[Node, tuple[Place, ...]], Instruction] = {}

    def begins_at(self, loops: Sequence[Loop]) -> int:
        """The number of the first loop of a scanned range; of the innermost body where there is none."""
        return next((at for at, loop in enumerate(loops) if loop.axis.is_scanned), len(loops))

    def begin(self) -> None:
        """An accumulator for each scan and output point: its start, or what changes nothing."""
        for node in self.nest.scans:
            axis = self.nest.axis_of[node.src[1]]
            for point in self.ranges.points(self.ranges.masks[node] & ~axis.bit):
                places = tuple(point.values())
                lanes = max([1, *[width for _, width in places]])
                if len(node.src) > 2:
                    start = self.values.value(node.src[2], point)
                else:
                    start = self.emitter.number(identity(node.arg, node.dtype), node.dtype)
                src = (self.emitter.broadcast(start, lanes),)
                self.carried[node, places] = self.emitter.place(Op.ACCUMULATOR, node.dtype.vec(lanes), src)

    def step(self) -> None:
        """The values of the scans at every written-out step, in order; then the accumulators move on.

        No scan of a kernel reads another one: so threads exchange what they have for all of them at a time.
        """
        divided: list[tuple[Node, Axis, Point, list[_Run]]] = []
        for node in self.nest.scans:
            axis = self.nest.axis_of[node.src[1]]
            for point in self.ranges.points(self.ranges.masks[node] & ~axis.bit):
                if axis.threads:
                    divided.append((node, axis, point, self._runs(node, axis, point)))
                    continue
                now = self.carried[node, tuple(point.values())]
                for step in self.ranges.points(axis.bit):
                    here = {**point, **step}
                    made, now = self._step(
                        node, now, self.values.value(node.src[0], here), _lanes(step, axis)
                    )
                    self.values.results[node, self.ranges.place_in(node, here)] = made
                self._move_on(node, point, now)
        for node, axis, _, runs in divided:
            arg = node.arg, tuple([loop.digit for loop in reversed(axis.threads)])
            for run in runs:
                run.before = self.emitter.place(Op.BEFORE, run.total.dtype, (run.total,), arg)
                run.across = self.emitter.place(Op.ACROSS, run.total.dtype, (run.total,), arg)
        for node, _, point, runs in divided:
            now = self.carried[node, tuple(point.values())]
            for run in runs:
                start = self.emitter.place(node.arg, now.dtype, (now, run.before))
                for here, own in run.values:
                    whole = self._whole(start, own.dtype)
                    self.values.results[node, self.ranges.place_in(node, here)] = self.emitter.place(
                        node.arg, own.dtype, (whole, own)
                    )
                now = self.emitter.place(node.arg, now.dtype, (now, run.across))
            self._move_on(node, point, now)

    def _move_on(self, node: Node, point: Point, now: Instruction) -> None:
        accumulator = self.carried[node, tuple(point.values())]
        self.loops.update(self.loops.open_scans, accumulator, now)

    def _runs(self, node: Node, axis: Axis, point: Point) -> list[_Run]:
        """What this thread has: a run for each step of the loops around those that are threads, scanned by itself."""
        outer = axis.threads[0]
        width = self.carried[node, tuple(point.values())].dtype.lanes
        runs: dict[int, _Run] = {}
        for step in self.ranges.points(axis.bit):
            here = {**point, **step}
            offset, lanes = step.get(axis, (0, 1))
            x = self.emitter.broadcast(self.values.value(node.src[0], here), max(lanes, width))
            if lanes > 1:
                x = self._in_lanes(node, x)
            run = runs.get(offset // (outer.stride * outer.size))
            if run is None:
                run = runs[offset // (outer.stride * outer.size)] = _Run(x)
            else:
                x = self.emitter.place(node.arg, x.dtype, (self._whole(run.total, x.dtype), x))
            run.values.append((here, x))
            run.total = self.emitter.lane(x, lanes - 1) if lanes > 1 else x
        return list(runs.values())

    def _whole(self, value: Instruction, dtype: DType) -> Instruction:
        """In every lane; here, for what an accumulator is changes from turn to turn."""
        return value if value.dtype == dtype else self.emitter.place(Op.BROADCAST, dtype, (value,))

    def _in_lanes(self, node: Node, x: Instruction) -> Instruction:
        """The scan of a vector's lanes."""
        lanes = x.dtype.lanes
        nothing = self.emitter.broadcast(
            self.emitter.number(identity(node.arg, node.dtype), node.dtype), lanes
        )
        reach = 1
        while reach < lanes:
            picks = tuple([lane - reach if lane >= reach else lanes + lane for lane in range(lanes)])
            shifted = self.emitter.emit(Op.LANE, x.dtype, (x, nothing), picks)
            x = self.emitter.emit(node.arg, x.dtype, (x, shifted))
            reach *= 2
        return x

    def _step(
        self, node: Node, before: Instruction, x: Instruction, lanes: int
    ) -> tuple[Instruction, Instruction]:
        """(the value of the scan here, what it leaves to the next step)."""
        if lanes == 1:
            after = self.emitter.place(
                node.arg, before.dtype, (before, self.emitter.broadcast(x, before.dtype.lanes))
            )
            return after, after
        x = self._in_lanes(node, self.emitter.broadcast(x, lanes))
        made = self.emitter.place(node.arg, x.dtype, (self._whole(before, x.dtype), x))
        return made, self.emitter.place(node.arg, before.dtype, (before, self.emitter.lane(x, lanes - 1)))


def _lanes(step: dict[Axis, Place], axis: Axis) -> int:
    return step[axis][1] if axis in step else 1
