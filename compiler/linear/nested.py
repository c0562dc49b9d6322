"""Nested reductions: sums over values that are reductions themselves, computed again instead of kept.

In       reductions over the same ranges, whose terms need a reduction that differs along these ranges (attention)
Out      their loops; in each step the inner reductions, then what becomes of them
Next     turns.py (sums in parts), reductions.py (other reductions), ../passes/online.py (RESCALE, FORMER),
         ../loops/nested.py (who chooses loops)

    for a tile of keys:
        scores = sum over the width of queries * keys          inner reduction, the keys in lanes
        top = max(top, scores)                                 a maximum that others follow: first
        total = total * exp(FORMER(top) - top) + ...           RESCALE: once in a tile
        out = out * exp(FORMER(top) - top) + weight * value    the width of values in lanes, key by key

The range that is summed over may be in lanes although results have lanes of their own: what is computed from the inner
reductions alone is computed by vectors, whose lanes are then taken one by one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hcq.compiler.linear.context import Context, Lowering
from hcq.compiler.linear.places import Place, Point
from hcq.compiler.linear.program import OF_NUMBERS, Instruction
from hcq.compiler.linear.reductions import Reductions, by_ranges, fold
from hcq.compiler.linear.staged_loops import StagedLoops
from hcq.compiler.linear.turns import Turn, Turns, Weight
from hcq.compiler.loops.loop import Axis
from hcq.compiler.loops.nest import Chained
from hcq.ir.meaning import identity
from hcq.ir.node import Node, toposort
from hcq.ir.op import Op

if TYPE_CHECKING:
    from hcq.compiler.linear.chained import ChainedProducts
    from hcq.compiler.linear.fragments import Sums
    from hcq.compiler.linear.limits import Limits


class Nested(Lowering):
    """Reductions around reductions."""

    def __init__(
        self,
        context: Context,
        staged: StagedLoops,
        limits: Limits | None,
        reductions: Reductions,
        chained: ChainedProducts | None,
    ):
        super().__init__(context)
        self.staged, self.limits, self.reductions, self.chained = staged, limits, reductions, chained
        self.turns = Turns(context)

    @property
    def _products(self) -> ChainedProducts:
        assert self.chained is not None, "the schedule says `chain`"
        return self.chained

    def takes(self, group: list[Node]) -> bool:
        """Reductions whose terms need others that differ along their own ranges."""
        return bool(self.inner_groups(group))

    def inner_groups(self, group: list[Node]) -> list[list[Node]]:
        """The reductions that each step of these has to make anew, in an order in which none waits for another."""
        consumed = 0
        for place in group[0].src[1:]:
            consumed |= self.ranges.axis_of[place].bit
        below = [n for n in toposort([n.src[0] for n in group]) if n.op is Op.REDUCE and n not in group]
        return by_ranges([node for node in below if self.ranges.masks[node] & consumed])

    def write(self, group: list[Node]) -> None:
        """Write reductions whose terms need others."""
        inner = self.inner_groups(group)
        axes = [self.ranges.axis_of[place] for place in group[0].src[1:]]
        digits = tuple(sorted({loop.digit for axis in axes for loop in axis.threads}))
        lanes = next((axis for axis in axes if axis.loops[-1].kind == "vector"), None)
        followed = {node.src[0] for node in toposort([n.src[0] for n in group]) if node.op is Op.FORMER}
        first = [node for node in group if node in followed]
        rest = [node for node in group if node not in followed]
        consumed = sum(axis.bit for axis in axes)
        depth = self.emitter.depth
        links = {link.use.reduce: link for link in self.nest.chained if link.use.reduce in group}
        fragments = {node: self._products.fragments_for(link, depth) for node, link in links.items()}
        if links:
            self._products.open(list(links.values()))
        sums: dict[tuple[Node, tuple[Place, ...]], Instruction] = {}
        walked = [n for n in rest if n not in links and self._has_lanes(self.ranges.masks[n])]
        turned = {
            node: turn
            for node in walked
            if lanes is not None and not digits and (turn := self.turns.of(node)) is not None
        }

        def accumulator(node: Node, outer: Point) -> Instruction:
            key = node, self.ranges.place_in(node, outer)
            if key not in sums:
                width = max([1, *[width for _, width in outer.values()]])
                start = self.emitter.number(identity(node.arg, node.dtype), node.dtype)
                sums[key] = self.emitter.accumulator(self.emitter.broadcast(start, width), depth)
            return sums[key]

        def body() -> None:
            self.values.alone.clear()
            self.values.forget_orders()
            for below in inner:
                self.reductions.write(below)
            now: dict[Instruction, Instruction] = {}
            for node in first:
                for outer in self.ranges.points(self.ranges.masks[node]):
                    mine = accumulator(node, outer)
                    key = self.ranges.place_in(node, outer)
                    # a NaN that the maximum loses is still in the sums that follow it.
                    # What the accumulator holds now: nothing that reads it may move out of this loop
                    self.values.before[node, key] = self.emitter.place(Op.MAX, mine.dtype, (mine, mine))
                    parts = [
                        self.values.value(node.src[0], {**outer, **at}) for at in self.ranges.points(consumed)
                    ]
                    part = self.emitter.broadcast(self._together(node, parts, OF_NUMBERS), mine.dtype.lanes)
                    if digits:  # all threads follow the same maximum
                        part = self.emitter.place(Op.ACROSS, part.dtype, (part,), (node.arg, digits))
                    top = self.emitter.place(node.arg, mine.dtype, (mine, part), OF_NUMBERS)
                    self.values.results[node, key] = now[mine] = top
            by_itself = [node for node, link in links.items() if link.use.unit.reads_shared]
            now |= self._chained(links, fragments, [node for node in links if node not in by_itself])
            if lanes is not None and walked:
                weights = self._weights(walked, lanes)
                if turned:
                    self.turns.keep(weights)
                for turn in turned.values():
                    self._take_turn(turn, weights, lanes, consumed)
                if len(turned) < len(walked):
                    self.turns.single(weights, lanes)
            for node in rest:
                if node in links or node in turned:
                    continue
                value, factor = rescaled(node)
                outers = list(self.ranges.points(self.ranges.masks[node]))
                for outer in outers:
                    mine = accumulator(node, outer)
                    now[mine] = mine
                    if factor is not None:
                        scale = self.emitter.broadcast(self.values.value(factor, outer), mine.dtype.lanes)
                        now[mine] = self.emitter.place(Op.MUL, mine.dtype, (mine, scale))
                if node not in walked:
                    for outer in outers:
                        mine = accumulator(node, outer)
                        parts = [
                            self.values.value(value, {**outer, **at}) for at in self.ranges.points(consumed)
                        ]
                        now[mine] = self.emitter.place(
                            node.arg, mine.dtype, (now[mine], self._together(node, parts))
                        )
                    continue
                for at in self.ranges.points(consumed, [lanes] if lanes is not None else []):
                    for outer in outers:
                        mine = accumulator(node, outer)
                        term = self.emitter.broadcast(
                            self.values.value(value, {**outer, **at}), mine.dtype.lanes
                        )
                        now[mine] = self.emitter.place(node.arg, mine.dtype, (now[mine], term))
            # a unit that works by itself begins when all else is done: fewer values wait for their turn
            now |= self._chained(links, fragments, by_itself)
            for mine, after in now.items():
                self.loops.update(self.loops.open_reductions, mine, after)

        limited = {} if self.limits is None else self.limits.limits_of(group, axes)
        self.loops.limits |= limited
        if self.limits is not None and links:
            self.loops.certain = self.limits.certain_of(group, axes)
        self.staged.around(axes, body)
        for loop in limited:
            del self.loops.limits[loop]
        self.loops.certain = {}
        self.values.alone.clear()
        self.values.before.clear()
        self.values.forget_orders()
        if links:
            self._products.close()
        for node, link in links.items():
            self._products.fragments.results_of(link.use, node, fragments[node])
        for turn in turned.values():
            self.turns.finish(turn)
        for (node, place), mine in sums.items():
            whole = mine
            if digits and node not in first:  # each thread has the part of its own steps
                whole = self.emitter.place(Op.ACROSS, mine.dtype, (mine,), (node.arg, digits))
            self.values.results[node, place] = whole

    def _chained(
        self, links: dict[Node, Chained], fragments: dict[Node, Sums], which: list[Node]
    ) -> dict[Instruction, Instruction]:
        """What accumulators of chained products are after a step."""
        now: dict[Instruction, Instruction] = {}
        for node in which:
            held = dict(fragments[node])
            if node.src[0].op is Op.RESCALE:
                held = self._products.rescaled_fragments(links[node], held, node.src[0].src[1])
            held = self._products.add_products(links[node], held)
            now |= {mine: held[at] for at, mine in fragments[node].items()}
        return now

    def _together(self, node: Node, parts: list[Instruction], arg: str | None = None) -> Instruction:
        """A step's terms as one; what lanes they have beside the result's own are folded."""
        if not self._has_lanes(self.ranges.masks[node]):
            return fold(self.emitter, node, parts, is_vector=True, arg=arg)
        whole = self.emitter.broadcast(parts[0], max(part.dtype.lanes for part in parts))
        for part in parts[1:]:
            whole = self.emitter.place(
                node.arg, whole.dtype, (whole, self.emitter.broadcast(part, whole.dtype.lanes)), arg
            )
        return whole

    def _has_lanes(self, mask: int) -> bool:
        return any(axis.bit & mask and axis.loops[-1].kind == "vector" for axis in self.ranges.axes)

    def _take_turn(self, turn: Turn, weights: list[Weight], lanes: Axis, consumed: int) -> None:
        """Add a step's terms to a sum, part by part: all keys to one part before the next one."""
        node = turn.node
        value, factor = rescaled(node)
        outers = self.turns.open(turn)
        self.turns.single(weights, lanes)
        now = [self.turns.load(turn, outer) for outer in outers]
        if factor is not None:
            for i, outer in enumerate(outers):
                scale = self.emitter.broadcast(self.values.value(factor, outer), now[i].dtype.lanes)
                now[i] = self.emitter.place(Op.MUL, now[i].dtype, (now[i], scale))
        for at in self.ranges.points(consumed, [lanes]):
            for i, outer in enumerate(outers):
                term = self.values.value(value, {**outer, **at})
                term = self.emitter.broadcast(term, now[i].dtype.lanes)
                now[i] = self.emitter.place(node.arg, now[i].dtype, (now[i], term))
        for outer, after in zip(outers, now, strict=True):
            self.turns.store(turn, outer, after)
        self.turns.close(turn)

    def _weights(self, walked: list[Node], lanes: Axis) -> list[Weight]:
        """Compute by vectors what has no other lanes and needs an inner reduction; a lane is asked for alone."""
        others = sum(a.bit for a in self.ranges.axes if a is not lanes and a.loops[-1].kind == "vector")
        order = toposort([node.src[0] for node in walked])
        is_made: set[Node] = set()  # by a reduction that differs along the lanes
        for node in order:
            if node.op is Op.REDUCE and self.ranges.masks[node] & lanes.bit:
                is_made.add(node)
            elif any(source in is_made for source in node.src) and self.ranges.masks[node] & lanes.bit:
                is_made.add(node)
        alone = {
            node for node in is_made if not self.ranges.masks[node] & others and node.op is not Op.RESCALE
        }
        above = [node for node in order if node not in alone and node.op is not Op.REDUCE]
        tops = {source for node in above for source in node.src if source in alone}
        weights = [
            Weight(node, point, self.values.value(node, point))
            for node in sorted(tops, key=order.index)
            for point in list(self.ranges.points(self.ranges.masks[node]))
        ]
        self.values.alone |= tops
        self.values.forget_orders()
        return weights


def rescaled(node: Node) -> tuple[Node, Node | None]:
    """What a sum adds up, and by what the sum is multiplied before, where it follows a maximum."""
    value = node.src[0]
    return (value.src[0], value.src[1]) if value.op is Op.RESCALE else (value, None)
