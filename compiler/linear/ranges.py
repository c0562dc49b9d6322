"""Ranges: what a kernel's values depend on, and at which combinations of written-out steps they are computed.

In       a LoopNest; ranges of copies, which are added while the program is written
Out      masks of nodes, the written-out points of a mask, which part of a point matters to a node
Next     lower_expr.py (values at points), open_loops.py (what is counted), places.py (Point)
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterable

from hcq.compiler.linear.places import Place, Point
from hcq.compiler.loops.loop import Axis
from hcq.compiler.loops.loop_nest import LoopNest
from hcq.ir.node import Node, toposort
from hcq.ir.op import Op


class Ranges:
    """The ranges of a kernel and of the copies in it."""

    def __init__(self, nest: LoopNest):
        self.masks = dict(nest.masks)
        self.axes = list(nest.axes)
        self.axis_of = dict(nest.axis_of)
        self.affine = nest.affine
        # written-out values of a range at this place: its tile, or what a partial step leaves of it
        self.extent = {axis: min(axis.tile, axis.size) for axis in nest.axes}
        self.volatile = _volatile(nest)
        self._axes_of: dict[int, tuple[Axis, ...]] = {}

    def add(self, axis: Axis) -> None:
        """One more range, that of a copy. Its bit is the number of those before it."""
        self.axes.append(axis)
        self.axis_of[axis.range] = axis
        self.extent[axis] = min(axis.tile, axis.size)

    def mask_copies(self, root: Node) -> None:
        """Find which ranges the nodes of a copy depend on."""
        for node in toposort((root,)):
            if node not in self.masks:
                mask = self.axis_of[node].bit if node.op is Op.RANGE else 0
                for source in node.src:
                    mask |= self.masks[source]
                self.masks[node] = mask

    def axes_of(self, mask: int) -> tuple[Axis, ...]:
        """The ranges of a mask that have written-out loops, those in lanes last.

        So the vectors of one row are worked on one after the other, and a row's scalar lives in a register no longer.
        """
        axes = self._axes_of.get(mask)
        if axes is None:
            written_out = [a for a in self.axes if a.bit & mask and a.written_out]
            axes = tuple(sorted(written_out, key=lambda axis: axis.loops[-1].kind == "vector"))
            self._axes_of[mask] = axes
        return axes

    def points(self, mask: int, one_by_one: Collection[Axis] = ()) -> Iterable[Point]:
        """Every combination of written-out steps of the ranges in `mask`, the first range slowest.

        one_by_one   ranges whose lanes are to be visited as scalars
        """
        axes = self.axes_of(mask)
        for places in itertools.product(*[self.places(axis, axis in one_by_one) for axis in axes]):
            yield dict(zip(axes, places, strict=True))

    def places(self, axis: Axis, one_by_one: bool) -> list[Place]:
        """The written-out steps of one range, by vectors or one by one."""
        if axis.threads:
            return self._places_between(axis, one_by_one)
        extent = self.extent[axis]
        last = axis.loops[-1]
        if last.kind == "dot" and not one_by_one:
            return [(start, min(last.size, extent - start)) for start in range(0, extent, last.size)]
        if last.kind != "vector" or one_by_one:
            return [(offset, 1) for offset in range(0, extent, last.stride)]
        places = []
        for start in range(0, extent, last.size):
            left = min(last.size, extent - start)
            lanes = last.size
            while left:  # a partial vector is written as smaller ones: 13 = 8 + 4 + 1
                while lanes > left:
                    lanes //= 2
                places.append((start, lanes))
                start += lanes
                left -= lanes
        return places

    def _places_between(self, axis: Axis, one_by_one: bool) -> list[Place]:
        """The written-out steps of a range some of whose loops are threads: those of one thread, which lie apart."""
        lanes = 1
        strides = [[step * loop.stride for step in range(loop.size)] for loop in axis.written_out]
        if axis.loops[-1].kind == "vector" and not one_by_one:
            lanes = axis.loops[-1].size
            del strides[-1]
        return [(sum(steps), lanes) for steps in itertools.product(*strides)]

    def place_in(self, node: Node, point: Point) -> tuple[Place, ...]:
        """The part of a point that matters to a node."""
        return tuple([point[axis] for axis in self.axes_of(self.masks[node])])


def _volatile(nest: LoopNest) -> set[Node]:
    """Everything computed from memory that this kernel writes: it stays where it is read."""
    written = {store.src[0] for store in nest.stores}
    found: set[Node] = set()
    for node in toposort((nest.sink,)):
        if (node.op is Op.LOAD and node.src[0] in written) or any(s in found for s in node.src):
            found.add(node)
    return found
