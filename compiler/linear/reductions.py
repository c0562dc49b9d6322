"""Reductions: accumulators, the loops of the ranges that are summed over, and the fold of what is in several.

In       reductions over the same ranges, at the place in the program where they belong
Out      their results at every output point
Next     nested.py and products.py (the other ways), staged_loops.py (the loops), dots.py (products of narrow numbers)

The accumulators are one per output point, and one per written-out step of a vectorised reduction, folded at the end.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol

from hcq.compiler.linear.context import Context, Lowering
from hcq.compiler.linear.emitter import Emitter
from hcq.compiler.linear.places import Place
from hcq.compiler.linear.program import Instruction
from hcq.compiler.linear.staged_loops import StagedLoops
from hcq.compiler.loops.nest import ScheduleError
from hcq.ir.meaning import identity
from hcq.ir.node import Node, toposort
from hcq.ir.op import Op

if TYPE_CHECKING:
    from hcq.compiler.linear.dots import Dots
    from hcq.compiler.linear.limits import Limits


class Way(Protocol):
    """A way to write reductions."""

    def takes(self, group: list[Node]) -> bool:
        """Whether it is the one for reductions over the same ranges."""

    def write(self, group: list[Node]) -> None:
        """Write them."""


class Reductions:
    """Every reduction of a kernel. `ways`: the first one that takes a group writes it."""

    def __init__(self) -> None:
        self.ways: Sequence[Way] = ()

    def write(self, group: list[Node]) -> None:
        """Reductions over the same ranges, where they belong."""
        next(way for way in self.ways if way.takes(group)).write(group)


class PlainReductions(Lowering):
    """Reductions term by term."""

    def __init__(self, context: Context, staged: StagedLoops, limits: Limits | None, dots: Dots | None):
        super().__init__(context)
        self.staged, self.limits, self.dots = staged, limits, dots

    def takes(self, group: list[Node]) -> bool:
        """Any reduction."""
        return True

    def write(self, group: list[Node]) -> None:
        """Reductions over the same ranges in one pass: accumulators, the loops, the fold."""
        nest = self.nest
        axes = [nest.axis_of[r] for r in group[0].src[1:]]
        consumed = 0
        for axis in axes:
            consumed |= axis.bit
        use = nest.dots
        if use is not None and use.reduce in group and len(group) > 1:
            raise ScheduleError("dot: another reduction runs along the same ranges")
        if use is not None and nest.digits:
            raise ScheduleError("dot: groups have no threads")
        is_vector = any(loop.kind == "vector" for axis in axes for loop in axis.loops)
        depth = self.emitter.depth
        parts: dict[tuple[Node, tuple[Place, ...]], dict[Any, Instruction]] = {
            (node, tuple(point.values())): {}
            for node in group
            for point in self.ranges.points(self.ranges.masks[node])
        }
        points = {node: list(self.ranges.points(self.ranges.masks[node])) for node in group}

        def body() -> None:
            now: dict[Instruction, Instruction] = {}
            for inner in self.ranges.points(consumed):
                part = tuple(inner.values()) if is_vector else ()
                for node in group:
                    for outer in points[node]:
                        here = {**outer, **inner}
                        summand, condition = _conditional(node)
                        holds = None if condition is None else self.values.value(condition, here)
                        if holds is not None and holds.op is Op.CONST:
                            if not holds.arg:
                                continue
                            holds = None
                        mine = parts[node, tuple(outer.values())]
                        accumulator = mine.get(part)
                        if accumulator is None:
                            widths = [
                                width for axis, (_, width) in here.items() if axis.loops[-1].kind != "dot"
                            ]
                            lanes = max([1, *widths])
                            start = self.emitter.number(identity(node.arg, node.dtype), node.dtype)
                            start = self.emitter.broadcast(start, lanes)
                            accumulator = mine[part] = self.emitter.accumulator(start, depth)
                        before = now.get(accumulator, accumulator)
                        if self.dots is not None and use is not None and node is use.reduce:
                            now[accumulator] = self.dots.dotted(use, here, before)
                            continue
                        x = self.emitter.broadcast(self.values.value(summand, here), accumulator.dtype.lanes)
                        after = self.emitter.place(node.arg, x.dtype, (before, x))
                        if holds is not None:
                            chosen = self.emitter.broadcast(holds, x.dtype.lanes)
                            after = self.emitter.place(Op.WHERE, x.dtype, (chosen, after, before))
                        now[accumulator] = after
            for accumulator, after in now.items():
                self.loops.update(self.loops.open_reductions, accumulator, after)

        limits = self.limits
        limited = {} if limits is None else limits.counts_of(limits.needed_by(group), axes)
        self.loops.limits |= limited
        self.staged.around(axes, body)
        for loop in limited:
            del self.loops.limits[loop]
        digits = tuple(sorted({loop.digit for axis in axes for loop in axis.threads}))
        for (node, place), mine in parts.items():
            value = fold(self.emitter, node, list(mine.values()), is_vector)
            if digits:  # each thread has the part of its own steps
                value = self.emitter.place(Op.ACROSS, value.dtype, (value,), (node.arg, digits))
            self.values.results[node, place] = value


def by_ranges(reduces: list[Node]) -> list[list[Node]]:
    """Reductions that can share one pass: same ranges, none reading another; read ones come first.

    Sums that follow a maximum (RESCALE) share its pass.
    """
    level: dict[Node, int] = {}
    for node in toposort(reduces):
        below = max((level[s] for s in node.src), default=0)
        level[node] = below + 1 if node.op is Op.REDUCE else below
        if node.op is Op.REDUCE and node.src[0].op is Op.RESCALE:
            followed = [n.src[0] for n in toposort((node.src[0].src[1],)) if n.op is Op.FORMER]
            level[node] = min(level[top] for top in followed)
    groups: dict[tuple[int, tuple[Node, ...]], list[Node]] = {}
    for node in reduces:
        groups.setdefault((level[node], node.src[1:]), []).append(node)
    return [groups[key] for key in sorted(groups, key=lambda key: key[0])]


def fold(
    emitter: Emitter, node: Node, parts: list[Instruction], is_vector: bool, arg: str | None = None
) -> Instruction:
    """The accumulators of one output value as one: equal widths in pairs, then halves onto each other."""
    if not parts:
        return emitter.number(identity(node.arg, node.dtype), node.dtype)
    if not is_vector:
        return parts[0]
    widths: dict[int, list[Instruction]] = {}
    for part in parts:
        widths.setdefault(part.dtype.lanes, []).append(part)
    whole: list[Instruction] = []
    lanes = max(widths)
    while True:
        whole += widths.get(lanes, [])
        while len(whole) > 1:  # in pairs: shorter chains, smaller rounding errors
            pairs = zip(whole[::2], whole[1::2], strict=False)
            odd = whole[-1:] if len(whole) % 2 else []
            whole = [emitter.place(node.arg, a.dtype, (a, b), arg) for a, b in pairs] + odd
        if lanes == 1:
            return whole[0]
        lanes //= 2
        half = node.dtype.vec(lanes)
        low = emitter.place(Op.LANE, half, (whole[0],), tuple(range(lanes)))
        high = emitter.place(Op.LANE, half, (whole[0],), tuple(range(lanes, 2 * lanes)))
        whole = [emitter.place(node.arg, half, (low, high), arg)]


def _conditional(node: Node) -> tuple[Node, Node | None]:
    """sum(where(c, x, 0)) adds x where c holds: one masked multiply-add, where select and add would be two.

    A sum that starts from 0 is never -0.0, so not adding and adding 0.0 are the same.
    """
    value = node.src[0]
    if node.arg is Op.ADD and value.op is Op.WHERE:
        condition, x, otherwise = value.src
        if otherwise.op is Op.CONST and otherwise.arg == 0 and math.copysign(1.0, otherwise.arg) > 0:
            return x, condition
    return value, None
