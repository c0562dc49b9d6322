"""Windows: how the places that a load reads overlap, from one output to the next.

In       a loop nest's ranges, loads and indices
Out      sliding windows, the order in which `box` walks an operand, the scratch that it takes
Next     operands.py (who asks), ../linear/staging.py (who copies windows once)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from hcq.compiler.loops.loop import Axis, Loop
from hcq.compiler.loops.nest import Nest
from hcq.ir.node import Node


def _inside(axis: Axis, opened: Sequence[Loop]) -> int:
    """Values of an axis that one step of its innermost opened loop covers; all of them when none is open."""
    strides = [loop.stride for loop in axis.loops if loop in opened]
    return min([*strides, axis.size])


class Windows(Nest):
    """The part of a loop nest that knows how its loads overlap."""

    def overlaps(self, load: Node) -> list[tuple[Axis, Axis, int]]:
        """Pairs (output axis a, reduced axis b, factor) such that the load sees only factor * a + b: a sliding window.

        Within a tile of a such a pair reads a box of |factor| * (tile - 1) + size(b) values, not tile * size(b).
        The factor is negative where the window runs backwards, as in the gradient of a convolution.
        """
        pairs = []
        mask = self.masks[load]
        taken: set[Axis] = set()
        for a in self.axes:
            for b in self.axes:
                if a.is_reduce or not b.is_reduce or not mask & a.bit or not mask & b.bit or b in taken:
                    continue
                factor = self._window_factor(load, a, b)
                in_lanes = any(loop.kind == "vector" for loop in a.loops)
                if 0 < abs(factor) < b.size and (abs(factor) == 1 or not in_lanes):
                    pairs.append((a, b, factor))
                    taken.add(b)
                    break
        return pairs

    def walks(self, load: Node) -> list[tuple[Axis | None, Axis, int]]:
        """How `box` walks a load: its sliding windows, and a reduced axis along which it is contiguous."""
        form = self.affine.of(load.src[1])
        walks: list[tuple[Axis | None, Axis, int]] = list(self.overlaps(load))
        paired = [b for _, b, _ in walks]
        for b in self.axes:
            if b.is_reduce and b not in paired and form.coefficient(b.range) == 1:
                walks.append((None, b, 1))
        return sorted(walks, key=lambda walk: -abs(form.coefficient(walk[1].range)))

    def _window_factor(self, load: Node, a: Axis, b: Axis) -> int:
        """How many times the coefficient of `b` that of `a` is, in every part of a load's address; 0 if they differ."""
        factor = 0
        for form in self.affine.parts(load.src[1:]):
            of_a, of_b = form.coefficient(a.range), form.coefficient(b.range)
            if not of_a and not of_b:
                continue
            if not of_b or not of_a or of_a % of_b or factor not in (0, of_a // of_b):
                return 0
            factor = of_a // of_b
        return factor

    def box_bytes(self, load: Node, opened: Sequence[Loop]) -> int:
        """Scratch that `stage` would take for a load inside the given loops."""
        return self.box_size(load, {axis: _inside(axis, opened) for axis in self.axes}) * load.dtype.itemsize

    def box_size(self, load: Node, tiles: Mapping[Axis, int]) -> int:
        """Elements in the box of a load for so many values of each axis; all of those of an axis that is not named."""
        count = 1
        windows = {b: (a, factor) for a, b, factor in self.overlaps(load)}
        paired = {a for a, _ in windows.values()}
        for axis in self.axes:
            if not self.masks[load] & axis.bit or axis in paired:
                continue
            inner = tiles.get(axis, axis.size)
            if axis in windows:
                a, factor = windows[axis]
                inner += abs(factor) * (tiles.get(a, a.size) - 1)
            count *= inner
        return count
