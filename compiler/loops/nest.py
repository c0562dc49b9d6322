"""A nest of loops over a kernel's ranges: what there is to change, before anybody changes it.

In       a kernel-stage graph SINK(STORE(PARAM, index, value[, valid]), ...)
Out      `Nest`: a loop for every range, the order of the loops, which ranges every node depends on; `ScheduleError`
Next     loop.py (a range and its loops), loop_nest.py (the nest with all its transforms), affine.py (indices as sums)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING

from hcq.compiler.loops.affine import Affine
from hcq.compiler.loops.loop import Axis, Loop
from hcq.ir.node import Node, range_number, toposort
from hcq.ir.op import Op

if TYPE_CHECKING:
    from hcq.compiler.loops.dot_units import DotUnit
    from hcq.compiler.loops.matrix_units import MatrixUnit


class ScheduleError(ValueError):
    """A transform that does not apply to this nest; says which one and why."""


@dataclass(frozen=True)
class Stage:
    """Copy what `load` reads inside loop `at` into scratch, in the order in which the inner loops read it."""

    load: Node
    value: Node  # what is kept: the load, or the CAST that is all that becomes of it, done once while copying
    at: Loop | None  # None: once per group, or per kernel
    is_box: bool  # sliding windows are kept once, not window by window


@dataclass(frozen=True)
class MatrixUse:
    """A reduction that a matrix unit does: its ranges, and the operands that m and k, and k and n, tell apart."""

    unit: MatrixUnit
    reduce: Node
    m: Axis
    n: Axis
    k: Axis
    a: Node
    b: Node
    scales: tuple[Node | None, Node | None] = (None, None)  # exponents of their blocks, where they have such


@dataclass(frozen=True)
class Chained:
    """A product whose one operand is made by the threads of what a matrix unit gave them: attention's second one."""

    use: MatrixUse
    is_a: bool  # whether that operand is A


@dataclass(frozen=True)
class DotUse:
    """A sum of products that a processor's dot products do: its range, and the factors in the unit's formats."""

    unit: DotUnit
    reduce: Node
    k: Axis
    a: Node
    b: Node


class Nest:
    """The loops of a kernel and what has been decided about them."""

    def __init__(self, sink: Node):
        self.sink = sink
        self.choices: list[str] = []
        self.reasons: list[tuple[int, str]] = []  # after how many choices, and why
        self.stages: list[Stage] = []
        self.digits: list[int] = []  # sizes of the digits of a thread's number, the fastest first
        self.unit: MatrixUse | None = None
        self.collects = False  # whether its results are stored by way of shared memory
        self.beside: list[MatrixUse] = []  # other products over the same ranges, by the same unit
        self.chained: list[Chained] = []
        self.dots: DotUse | None = None
        self.pipelined: dict[Loop, int] = {}  # how many tiles of each operand there are
        self.bulk: set[Loop] = set()  # of these, loops whose tiles are copied as a whole
        self.produced: set[Loop] = set()  # of these, loops whose tiles a warpgroup of its own has copied
        self.whole: set[str] = set()  # ranges that were fused, and so have no loop that is counted
        self._begin()

    def _begin(self) -> None:
        self.affine = Affine()
        nodes = toposort((self.sink,))
        self.loads = [n for n in nodes if n.op is Op.LOAD]
        self.reduces = [n for n in nodes if n.op is Op.REDUCE]
        self.stores = list(self.sink.src)
        self.scans = [n for n in nodes if n.op is Op.SCAN]
        reduced = {r for n in self.reduces for r in n.src[1:]}
        scanned = {n.src[1] for n in self.scans}
        found = sorted((n for n in nodes if n.op is Op.RANGE), key=range_number)
        self.axes: list[Axis] = []
        for bit, node in enumerate(found):
            ordered = isinstance(node.arg, tuple) and "ordered" in node.arg
            name = f"r{range_number(node)}"
            axis = Axis(node, name, int(node.src[0].arg), node in reduced, ordered, 1 << bit)
            axis.is_scanned = node in scanned
            axis.loops.append(Loop(name, axis, axis.size, 1))
            self.axes.append(axis)
        self.axis_of = {axis.range: axis for axis in self.axes}
        # outermost first: what is stored, the scanned range last, then what is reduced
        self.order = [a.loops[0] for a in self.axes if not a.is_reduce and not a.is_scanned]
        self.order += [a.loops[0] for a in self.axes if a.is_scanned]
        self.order += [a.loops[0] for a in self.axes if a.is_reduce]
        self.masks = self._find_masks(nodes)

    def _find_masks(self, nodes: Sequence[Node]) -> dict[Node, int]:
        """The ranges a node depends on, as bits; ranges that a REDUCE consumes are gone above it."""
        masks: dict[Node, int] = {}
        for node in nodes:
            if node.op is Op.RANGE:
                masks[node] = self.axis_of[node].bit
                continue
            mask = 0
            for source in node.src:
                mask |= masks[source]
            if node.op is Op.REDUCE:
                for consumed in node.src[1:]:
                    mask &= ~self.axis_of[consumed].bit
            masks[node] = mask
        return masks

    def because(self, why: str) -> None:
        """The reason of what is chosen next, or of what is not."""
        self.reasons.append((len(self.choices), why))

    @property
    def choice(self) -> str:
        """The schedule as text; `LoopNest(sink).apply(text)` repeats it."""
        return "; ".join(self.choices)

    def axis(self, axis: Axis) -> Axis:
        """The axis of that name now: a merge makes axes anew."""
        return next(a for a in self.axes if a.name == axis.name)

    def loop(self, name: str) -> Loop:
        """The loop of that name. Raises ScheduleError that lists those there are."""
        for axis in self.axes:
            for loop in axis.loops:
                if loop.name == name:
                    return loop
        known = ", ".join(loop.name for axis in self.axes for loop in axis.loops)
        raise ScheduleError(f"no loop named {name!r}; this nest has {known or 'none'}")

    def needs_both(self, a: Axis, b: Axis) -> bool:
        """Whether some value depends on both axes: then the two cannot be the same lanes, or the same threads.

        So it is of two axes of one reduction, too: it has a term for each pair of places, whatever the terms depend on.
        """
        both = a.bit | b.bit
        return any(mask & both == both for mask in self.masks.values()) or any(
            {a.range, b.range} <= set(node.src[1:]) for node in self.reduces
        )

    def is_walked(self, axis: Axis, other: Axis) -> bool:
        """Whether terms of sums over a range are added one by one, where they have lanes along another one.

        That is so where all these sums have others inside, which nothing along the other range goes into.
        """
        over = [node for node in self.reduces if axis.range in node.src[1:]]
        inside = [node for node in self.reduces if self.masks[node] & axis.bit]
        if not over or any(self.masks[n] & other.bit for node in inside for n in toposort(node.src[:1])):
            return False
        return all(any(n in inside for n in toposort(node.src[:1])) for node in over)

    def is_read_by_unit(self, load: Node) -> bool:
        """Whether a matrix unit reads a load's tile in shared memory by itself."""
        uses = [use for use in (self.unit, *[link.use for link in self.chained]) if use is not None]
        return any(use.unit.reads_shared and load in (use.a, use.b) for use in uses)

    @property
    def groups(self) -> list[Loop]:
        """The loops whose steps are groups, outermost first."""
        return [loop for loop in self.order if loop.kind == "group"]

    @property
    def group_count(self) -> int:
        """How many groups a launch has; 1 where no loop is bound to them."""
        count = 1
        for loop in self.groups:
            count *= loop.size
        return count

    @property
    def threads(self) -> int:
        """How many threads a group has."""
        return prod(self.digits)

    def __str__(self) -> str:
        lines = [f"schedule: {self.choice or '(plain loops)'}"]
        for depth, loop in enumerate(self.order):
            what = "group" if loop.kind == "group" else "reduce" if loop.axis.is_reduce else "for"
            lines.append(f"{'  ' * depth}{what} {loop.name} in {loop.size} (x{loop.stride})")
        for axis in self.axes:
            for loop in axis.loops:
                if loop not in self.order:
                    lines.append(
                        f"{'  ' * len(self.order)}{loop.kind} {loop.name} of {loop.size} (x{loop.stride})"
                    )
        return "\n".join(lines)
