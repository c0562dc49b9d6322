"""Padding: elements around those that there are: one number, or what stands inside, turned around or repeated.

In       a tensor, and how many elements on both sides of each axis
Out      `Padding`
Next     movement.py (shrink, which is the other way round), ../symbolic/placing.py (sizes that bound variables have)
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hcq.frontend.core import known_later
from hcq.frontend.core.errors import UsageError
from hcq.frontend.core.nodes import constant, expanded, joined, padded, shrunk
from hcq.frontend.core.sizes import counts_of
from hcq.frontend.ops.base import Methods, Self
from hcq.frontend.symbolic.variable import Bound
from hcq.ir.dtype import Scalar


class Padding(Methods):
    """pad."""

    __slots__ = ()

    def pad(
        self, padding: Sequence[int | Bound], mode: str = "constant", value: Scalar | None = None
    ) -> Self:
        """Surrounded by `value`. `padding` is PyTorch's: (low, high) of the last axis, then of the one before, ...

        padding   an even count of ints, or of bound Variables; negative ones crop
        mode      "constant", "reflect", "replicate" or "circular"
        Raises    UsageError for more pairs than axes, an unknown mode, or more than the mode finds inside

        >>> hcq.tensor([1, 2]).pad((1, 2)).tolist()
        [0, 1, 2, 0, 0]
        """
        shape = self.node.shape
        if len(padding) % 2 or len(padding) > 2 * len(shape):
            raise UsageError(
                f"[pad] padding {tuple(padding)} of shape {shape}: give (low, high) pairs, last axis first, "
                f"at most {len(shape)} of them."
            )
        count = len(padding) // 2
        pads: list[Any] = [(0, 0)] * (len(shape) - count)
        pads += [(padding[2 * i], padding[2 * i + 1]) for i in reversed(range(count))]
        if known_later.in_use:
            varying = self._varying_pads(pads)
            if varying and mode != "constant":
                raise UsageError(
                    f"[pad] mode {mode!r}: axis {varying[0]} of {self.shape} is padded by {pads[varying[0]]}, which is "
                    "known only when the work runs. Use mode 'constant', or sizes that are ints."
                )
            if varying:
                return self._padded_by_numbers(pads, varying, value or 0)
        if mode != "constant":
            return self._pad_from_inside(pads, mode)
        keep = tuple((max(0, -low), size - max(0, -high), 1) for size, (low, high) in zip(shape, pads))
        for axis, (start, stop, _) in enumerate(keep):
            if start > stop:
                raise UsageError(
                    f"[pad] axis {axis} of size {shape[axis]}: {pads[axis]} crops more than it has."
                )
        grow = tuple((max(0, low), max(0, high)) for low, high in pads)
        return self._like(padded(shrunk(self.node, keep), grow, value or 0))

    def _varying_pads(self, pads: list[tuple[Any, Any]]) -> list[int]:
        """The axes that are padded by bound variables, or padded and cut by one."""
        cut = dict(counts_of(self.node))
        return [
            axis
            for axis, sides in enumerate(pads)
            if any(isinstance(side, Bound) for side in sides) or (axis in cut and any(sides))
        ]

    def _padded_by_numbers(self, pads: list[tuple[Any, Any]], varying: list[int], value: Scalar) -> Self:
        """Padded along axes whose size, or whose padding, bound variables say; then along the others."""
        from hcq.frontend.symbolic import placing
        from hcq.frontend.symbolic.conditions import require

        node, number = self.node, constant("pad", value, self.node.dtype)
        for axis in varying:
            low, high = pads[axis]
            words = f"[pad] axis {axis} of size {self.shape[axis]} is padded by {low} and {high}, which"
            for gap in (self.shape[axis] + low, self.shape[axis] + high, self.shape[axis] + low + high):
                require(gap, f"{words} may not crop more than it has")
            before, behind = (
                side.node(self.device) if isinstance(side, Bound) else side for side in (low, high)
            )
            node = placing.padded(node, axis, before, behind, number)
            pads[axis] = 0, 0
        padding = [side for sides in reversed(pads) for side in sides]
        return self._like(node).pad(padding, "constant", value)

    def _pad_from_inside(self, pads: list[tuple[int, int]], mode: str) -> Self:
        if mode not in ("reflect", "replicate", "circular"):
            raise UsageError(
                f"[pad] mode {mode!r} is unknown. Use 'constant', 'reflect', 'replicate' or 'circular'."
            )
        x = self
        for axis, (low, high) in enumerate(pads):
            size = x.node.shape[axis]
            fits = mode == "replicate" or (mode == "reflect" and max(low, high) < size)
            if fits and min(low, high) < 0 < min(size, size + low + high):
                # of what is there before it is cropped
                places = [place - low for place in range(size + low + high)]
                if mode == "reflect":
                    places = [2 * (size - 1) - place if place >= size else abs(place) for place in places]
                x = x[(slice(None),) * axis + ([min(max(place, 0), size - 1) for place in places],)]
                continue
            if low < 0 or high < 0:  # cropped first
                x = x._part(axis, max(0, -low), max(max(0, -low), x.node.shape[axis] - max(0, -high)))
                low, high = max(0, low), max(0, high)
            size = x.node.shape[axis]
            if low == 0 and high == 0:
                continue
            most = {"reflect": size - 1, "replicate": low + high, "circular": size}[mode]
            if low > most or high > most or (size == 0 and low + high):
                raise UsageError(
                    f"[pad] mode {mode!r}: axis {axis} of size {size} cannot be padded by {low, high}."
                )
            if mode == "circular":
                before, after = x._part(axis, size - low, size), x._part(axis, 0, high)
            elif mode == "reflect":
                before = x._part(axis, 1, 1 + low).flip(axis)
                after = x._part(axis, size - 1 - high, size - 1).flip(axis)
            else:
                before = x._part(axis, 0, 1)._grown(axis, low)
                after = x._part(axis, size - 1, size)._grown(axis, high)
            x = self._like(joined((before.node, x.node, after.node), axis))
        return x

    def _grown(self, axis: int, size: int) -> Self:
        """One axis of size 1 repeated, unchecked."""
        shape = self.node.shape
        return self._like(expanded(self.node, (*shape[:axis], size, *shape[axis + 1 :])))
