"""Turns: sums that take turns in the registers, a part of their lanes at a time; between turns they wait in scratch.

In       sums of weights times vectors, as those of attention's output, whose range in lanes is written out in parts;
         the weights, each of which is a lane of a vector that was computed for many keys at once
Out      in each step of the summed range a loop over the parts, in which a part's sums are in registers
Changes  scratch memory, and the program being written
Next     nested.py (who adds up), ../loops/nested.py (who divides the range), scattered.py (another use of scratch)

A processor with few registers has room for the sums of few rows. Rows share what they read: for more of them it goes
through the keys of a step once for each part. A weight is read from scratch into all lanes of a register. To take it
from a vector needs a unit that moves lanes, which on Intel's processors is one of those that multiply.
"""

from __future__ import annotations

from dataclasses import dataclass

from hcq.compiler.linear.context import Lowering
from hcq.compiler.linear.places import Packed, Point
from hcq.compiler.linear.program import Instruction
from hcq.compiler.loops.loop import Axis, Loop
from hcq.ir.meaning import identity
from hcq.ir.node import Node
from hcq.ir.op import Op


@dataclass
class Turn:
    """A sum in scratch, and the loop over the parts of its range in lanes."""

    node: Node
    axis: Axis
    loop: Loop
    tile: Packed
    points: list[Point]


@dataclass
class Weight:
    """A vector of weights at a point, and where it was stored: nowhere, where lanes are taken from the register."""

    node: Node
    point: Point
    vector: Instruction
    address: Instruction | None = None
    offset: int = 0


class Turns(Lowering):
    """Sums in scratch, and the weights that they read."""

    def of(self, node: Node) -> Turn | None:
        """A sum that takes turns, as its range in lanes is divided once more. Its start is written to scratch."""
        axes = self.ranges.axes_of(self.ranges.masks[node])
        for axis in axes:
            steps = axis.written_out
            if len(steps) < 3 or steps[-1].kind != "vector" or self.ranges.extent[axis] % steps[0].stride:
                continue
            strides: dict[Loop, int] = {}
            count = 1
            for loop in reversed([loop for each in [*axes, axis] for loop in each.written_out]):
                if loop not in strides:
                    strides[loop] = count
                    count *= loop.size
            tile = Packed(self.memory.scratch(node, node.dtype, count), strides, self.emitter.depth)
            turn = Turn(node, axis, steps[0], tile, list(self.ranges.points(self.ranges.masks[node])))
            start = self.emitter.number(identity(node.arg, node.dtype), node.dtype)
            for point in turn.points:
                self.store(turn, point, start)
            return turn
        return None

    def open(self, turn: Turn) -> list[Point]:
        """Begin the loop over the parts: the points of one."""
        parts = self.emitter.number(self.ranges.extent[turn.axis] // turn.loop.stride)
        counter = self.emitter.begin("turn", self.emitter.number(0), parts, runs=True)
        self.loops.is_at(turn.loop, counter)
        return [point for point in turn.points if point[turn.axis][0] < turn.loop.stride]

    def close(self, turn: Turn) -> None:
        """End that loop."""
        self.emitter.end(self.loops.counters[turn.loop])
        self.loops.is_at(turn.loop, None)

    def load(self, turn: Turn, point: Point) -> Instruction:
        """The sum at a point, as it is now."""
        spot = self.values.packed_spot(turn.tile, point)
        src = turn.tile.address, self.emitter.total(spot.terms)
        return self.emitter.place(Op.LOAD, turn.node.dtype.vec(point[turn.axis][1]), src, spot.offset)

    def store(self, turn: Turn, point: Point, value: Instruction) -> None:
        """What it is from now on."""
        self.values.store_packed(turn.tile, value, point)

    def finish(self, turn: Turn) -> None:
        """After all steps: the results at every point."""
        for point in turn.points:
            key = turn.node, self.ranges.place_in(turn.node, point)
            self.values.results[key] = self.load(turn, point)

    def keep(self, weights: list[Weight]) -> None:
        """Store vectors of weights."""
        counts: dict[Node, int] = {}
        for weight in weights:
            counts[weight.node] = counts.get(weight.node, 0) + weight.vector.dtype.lanes
        ends = dict.fromkeys(counts, 0)
        for weight in weights:
            node, vector = weight.node, weight.vector
            weight.address, weight.offset = self.memory.scratch(node, node.dtype, counts[node]), ends[node]
            self.emitter.store((weight.address, None, vector), weight.offset)
            ends[node] += vector.dtype.lanes

    def single(self, weights: list[Weight], lanes: Axis) -> None:
        """Each lane of them alone is known in the scope that is open, read there if it was stored."""
        for weight in weights:
            start, width = weight.point[lanes]
            is_sum = weight.node.op is Op.REDUCE
            known = self.values.results if is_sum else self.emitter.scopes[-1].values
            for lane in range(width):
                here = {**weight.point, lanes: (start + lane, 1)}
                known[weight.node, self.ranges.place_in(weight.node, here)] = self._lane(weight, lane)

    def _lane(self, weight: Weight, lane: int) -> Instruction:
        if weight.address is None:
            return self.emitter.lane(weight.vector, lane)
        src = weight.address, None
        return self.emitter.place(Op.LOAD, weight.node.dtype, src, weight.offset + lane)
