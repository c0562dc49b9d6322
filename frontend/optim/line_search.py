"""Line search: how far to go along a direction, so that the loss falls enough and the slope has flattened.

In       a function that goes there and says loss and gradient, where it starts, a first length
Out      `strong_wolfe`: the point that it found, and how often it asked
Changes  nothing but what the function does
Next     lbfgs.py (who asks)
Source   Nocedal and Wright, "Numerical Optimization", algorithms 3.5 and 3.6; bounds of steps as in Schmidt's minFunc,
         which PyTorch's are too
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

from hcq.frontend.tensor import Tensor

# Wolfe's two constants: how much of the slope's promise, how much of the slope may be left
ENOUGH, FLAT = (1e-4, 0.9)
TURNS = 25


class Point(NamedTuple):
    """A length along the direction, and the loss, its gradient and its slope along the direction there."""

    length: float
    loss: float
    gradient: Tensor
    slope: float


def strong_wolfe(
    at: Callable[[float], Point], start: Point, length: float, size: float, least: float
) -> tuple[Point, int]:
    """A point with Wolfe's strong conditions, or the best that there was.

    size    the direction's largest element: two points nearer than `least` in every parameter are one
    Returns the point, and how often `at` was called
    """
    search = _Search(at, start, size, least)
    return search.run(length), search.calls


class _Search:
    def __init__(self, at: Callable[[float], Point], start: Point, size: float, least: float):
        self.at, self.start, self.size, self.least = at, start, size, least
        self.calls = self.turns = 0

    def _look(self, length: float) -> Point:
        self.calls += 1
        return self.at(length)

    def _is_high(self, point: Point) -> bool:
        """Whether the loss fell less than the slope at the start promises."""
        return point.loss > self.start.loss + ENOUGH * point.length * self.start.slope

    def _is_flat(self, point: Point) -> bool:
        return abs(point.slope) <= -FLAT * self.start.slope

    def run(self, length: float) -> Point:
        """Go on until two points have one with both conditions between them, then look between these."""
        before, now = self.start, self._look(length)
        while self.turns < TURNS:
            if self._is_high(now) or (self.turns > 1 and now.loss >= before.loss):
                return self._between(before, now)
            if self._is_flat(now):
                return now
            if now.slope >= 0:
                return self._between(before, now)
            nearest = now.length + 0.01 * (now.length - before.length)
            further = _lowest(before, now, nearest, now.length * 10)
            before, now = now, self._look(further)
            self.turns += 1
        return now if now.loss < self.start.loss else self.start

    def _between(self, first: Point, second: Point) -> Point:
        """Halve, or better, what lies between two points, until a point between them has both conditions."""
        ends = [first, second]
        low = 0 if first.loss <= second.loss else 1
        is_slow = False
        while self.turns < TURNS:
            left, right = sorted(end.length for end in ends)
            if (right - left) * self.size < self.least:
                break
            length = _lowest(ends[0], ends[1], left, right)
            edge = 0.1 * (right - left)
            is_near = min(right - length, length - left) < edge
            if is_near and (is_slow or length >= right or length <= left):
                length = right - edge if abs(length - right) < abs(length - left) else left + edge
                is_near = False
            is_slow = is_near
            point = self._look(length)
            self.turns += 1
            if self._is_high(point) or point.loss >= ends[low].loss:
                ends[1 - low] = point
                low = 0 if ends[0].loss <= ends[1].loss else 1
                continue
            if self._is_flat(point):
                return point
            if point.slope * (ends[1 - low].length - ends[low].length) >= 0:
                ends[1 - low] = ends[low]
            ends[low] = point
        return ends[low]


def _lowest(one: Point, other: Point, least: float, most: float) -> float:
    """Where the cubic through two points, with their slopes, is lowest; where it is nowhere, the bounds' middle."""
    a, b = (one, other) if one.length <= other.length else (other, one)
    width = b.length - a.length
    if width <= 0.0 or not math.isfinite(a.loss + b.loss + a.slope + b.slope):
        return (least + most) / 2.0
    middle = a.slope + b.slope - 3.0 * (b.loss - a.loss) / width
    squared = middle * middle - a.slope * b.slope
    if squared < 0.0:
        return (least + most) / 2.0
    root = math.sqrt(squared)
    below = b.slope - a.slope + 2.0 * root
    if below == 0.0:
        return (least + most) / 2.0
    return min(max(b.length - width * (b.slope + root - middle) / below, least), most)
