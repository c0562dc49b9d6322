"""Shared boxes: a convolution's windows are copied once, for all panels of weights.

In       a nest that contraction.py has tiled, its packed operands, what packing and multiplying cost
Out      True, with groups, the order of the loops and where both operands are packed; False (and nothing done) where no
         two panels read the same windows
Next     contraction.py (who asks), windows.py (how large a box is), ../linear/staging.py (who copies it)

A group has some steps of the outermost loop that panels do not depend on (images, or rows of one), and some panels.
Within it, one of two orders, the outermost first:

*panels outside*  a box of all that the group reads; then panel by panel, each packed once
*boxes outside*   a box of an image, or of as many of its rows as the second cache holds; then all panels, which were
                  packed when the group began, or are packed for each box where they are too large for that

Every division is priced in cycles: copying boxes, packing panels, reading again what the second cache did not keep,
threads that wait for the last one. The cheapest wins.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import ceil

from hcq.compiler.loops.loop import Axis, Loop
from hcq.compiler.loops.loop_nest import LoopNest
from hcq.compiler.target import Target
from hcq.ir.node import Node

BOXED = 1.0  # cycles to copy one element of a box, its conditions included
FAR_BYTES = 16  # that come in a cycle from the cache which cores share
LATE = 0.05  # of the work of a group is waited for at the end


@dataclass(frozen=True)
class Costs:
    """What the parts of a convolution cost, in cycles, and how large a panel is."""

    multiplying: float
    packing: float  # all panels, once
    panel_bytes: int


@dataclass(frozen=True)
class Division:
    """Which part of the work a group has, and in which order it goes through that."""

    steps: int  # of the outermost loop
    inner: int  # of the loop in it, for each of these
    panels: int
    block: int  # steps of the loop in it that share a box; 0: one box for all of the group, panels outside
    keeps: bool = False  # whether panels, inside boxes, are packed when the group begins


@dataclass(frozen=True)
class Parts:
    """The loops that are divided."""

    first: Loop  # of outputs that panels do not depend on, the outermost one
    second: Loop | None
    panels: Loop


def share_boxes(
    nest: LoopNest,
    target: Target,
    vectors: Sequence[Node],
    boxed: Node,
    vector: Axis,
    walked: Sequence[Axis],
    costs: Costs,
    threads: int,
) -> bool:
    """Order the loops so that panels share boxes, and pack both operands.

    vectors  loads that are packed in panels; boxed: the one that is read by windows
    vector   the axis whose loop counts panels
    walked   the other outputs, outermost first
    threads  how many share the work
    """
    loops = [loop for axis in walked for loop in axis.counted]
    panels = vector.counted
    if len(panels) != 1 or not loops or any(loop.kind != "serial" for loop in (*panels, *loops)):
        return False
    if len({loop.axis for loop in loops}) < len(loops) or not nest.masks[boxed] & loops[0].axis.bit:
        return False
    parts = Parts(loops[0], loops[1] if len(loops) > 1 else None, panels[0])
    pricing = _Pricing(nest, target, boxed, parts, costs, threads)
    best = min(_divisions(nest, boxed, parts, threads), key=pricing.price)
    if pricing.price(best) == float("inf"):
        return False
    _apply(nest, vectors, boxed, parts, best, threads)
    return True


def _divisions(nest: LoopNest, boxed: Node, parts: Parts, threads: int) -> Iterator[Division]:
    """What may be worth its price; of windows, whole boxes alone, for others are not copied in the order of memory."""
    slides = {a for a, _, _ in nest.overlaps(boxed)}
    first, second = parts.first, parts.second
    inside = second.size if second is not None else 1
    blocks = [] if second is None else _pieces(second, second.axis in slides)
    for panels in _pieces(parts.panels, False):
        for steps in _pieces(first, first.axis in slides):
            yield Division(steps, inside, panels, 0)
            for block in blocks:
                if block < inside or steps > 1:
                    yield Division(steps, inside, panels, block, True)
                    yield Division(steps, inside, panels, block, False)
        if threads > 1:  # where there are many, each has a part of a step
            yield from (Division(1, block, panels, 0) for block in blocks if block < inside)


def _pieces(loop: Loop, is_exact: bool) -> list[int]:
    """Steps that divide a loop into equal parts, but for a smaller last one; not into the parts alone."""
    found = {ceil(loop.size / parts) for parts in range(1, loop.size + 1)}
    return sorted(
        n for n in found if not is_exact or n == loop.size or not loop.axis.size % (n * loop.stride)
    )


class _Pricing:
    """How long a division takes, in cycles of one thread times threads."""

    def __init__(self, nest: LoopNest, target: Target, boxed: Node, parts: Parts, costs: Costs, threads: int):
        self.nest, self.target, self.boxed = nest, target, boxed
        self.parts, self.costs, self.threads = parts, costs, threads
        self.boxes: dict[tuple[int, int], int] = {}

    def price(self, division: Division) -> float:
        """Infinite where the second cache does not hold a box, or a panel beside boxes that are walked outside."""
        first, second, panels = self.parts.first, self.parts.second, self.parts.panels
        inside = second.size if second is not None else 1
        shares = ceil(panels.size / division.panels)
        groups = ceil(first.size / division.steps) * ceil(inside / division.inner) * shares
        part = division.steps / first.size * division.inner / inside * division.panels / panels.size
        packing = self.costs.packing * division.panels / panels.size
        kept_bytes = self.costs.panel_bytes * division.panels
        l2 = self.target.l2_bytes
        if division.block:
            boxes = division.steps * ceil(division.inner / division.block)
            box = self._box(1, division.block)
        else:
            boxes, box = 1, self._box(division.steps, division.inner)
        box_bytes = box * self.boxed.dtype.itemsize
        if box_bytes > l2 or (division.block and box_bytes + self.costs.panel_bytes > l2):
            return float("inf")
        far = 0.0
        if division.block and division.keeps:
            if kept_bytes > l2:
                return float("inf")
            far = kept_bytes * (boxes - 1) if kept_bytes + box_bytes > l2 // 2 else 0.0
        elif division.block:
            packing *= boxes
        elif box_bytes + self.costs.panel_bytes > l2 // 2:
            far = box_bytes * division.panels
        each = self.costs.multiplying * part + packing + box * boxes * BOXED + far / FAR_BYTES
        late = LATE * each * (self.threads - 1)
        return ceil(groups / self.threads) * self.threads * each + late

    def _box(self, steps: int, inner: int) -> int:
        if (steps, inner) not in self.boxes:
            tiles = {}
            for loop, count in ((self.parts.first, steps), (self.parts.second, inner)):
                if loop is not None:
                    tiles[loop.axis] = min(count * loop.stride, loop.axis.size)
            self.boxes[steps, inner] = self.nest.box_size(self.boxed, tiles)
        return self.boxes[steps, inner]


def _apply(
    nest: LoopNest, vectors: Sequence[Node], boxed: Node, parts: Parts, division: Division, threads: int
) -> None:
    first, second, panels = parts.first, parts.second, parts.panels
    outer: list[Loop] = []
    inside: dict[Axis, Loop] = {}
    for loop, count in ((first, division.steps), (second, division.inner), (panels, division.panels)):
        if loop is None:
            continue
        if count == loop.size:
            inside[loop.axis] = loop
            continue
        if count > 1:
            inside[loop.axis] = _split(nest, loop, count)
        outer.append(loop)
        if threads > 1:
            nest.parallel(loop.name)
    at_group = outer[-1].name if outer else "-"
    panel = inside.pop(panels.axis, None)
    around: list[Loop] = []  # boxes
    if division.block and second is not None:
        if first.axis in inside:
            around.append(inside.pop(first.axis))
        if division.block < second.size:
            around.append(second)
            inside[second.axis] = _split(nest, second, division.block)
    known = [*outer, *around, *([] if panel is None else [panel])]
    counted = [loop for loop in nest.order if not loop.axis.is_reduce]
    wanted = [*known, *[loop for loop in counted if loop not in known]]
    serial = [loop.name for loop in wanted if loop.kind == "serial"]
    if serial != [loop.name for loop in counted if loop.kind == "serial"]:
        nest.reorder(*serial)
    for load in vectors:
        nest.stage(nest.loads.index(load), at_group if panel is None or division.keeps else panel.name)
    nest.box(nest.loads.index(boxed), around[-1].name if around else at_group)


def _split(nest: LoopNest, loop: Loop, count: int) -> Loop:
    """The inner loop of `count` steps."""
    nest.split(loop.name, count)
    return loop.axis.loops[loop.axis.loops.index(loop) + 1]
