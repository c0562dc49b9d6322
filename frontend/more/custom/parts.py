"""Parts: how a launch follows from shapes, for the whole and for what each device of a group has of it.

In       grid, block and numbers as they were given, some as functions of the tensors' shapes
Out      `Sizes.at`: three sizes each, and a word for each number; the axis along which a group may split the launch
Next     __init__.py (the whole), frontend/devices/sharding/own_programs.py (the parts)

Two of them are equal when they say the same: functions are compared by what they are made of, for a program that makes
one anew in each call of a recorded function means the same launch.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from math import isfinite
from numbers import Real
from typing import Any

from hcq.checks import is_whole, shown
from hcq.errors import UsageError
from hcq.frontend.core.base import Core

Launch = int | Sequence[int] | Callable[..., Any]
Three = tuple[int, int, int]


class Sizes:
    """A launch before the shapes are known.

    shard   the axis along which inputs and outputs may be split, or None
    """

    def __init__(self, grid: Any, block: Any, inputs: Sequence[Any], shard: int | None) -> None:
        self.grid, self.block = grid, block
        self.numbers = [one for one in inputs if one is not ... and not isinstance(one, Core)]
        if shard is not None and not is_whole(shard):
            raise UsageError(f"[custom] shard={shown(shard)}: give the number of an axis.")
        self.shard = None if shard is None else int(shard)
        given = grid, block, *self.numbers
        self._key = (self.shard, *[(type(one), _same(one)) for one in given])

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sizes) and self._key == other._key

    def __hash__(self) -> int:
        return hash(self._key)

    @property
    def follows_shapes(self) -> bool:
        """Whether the grid, at least, is a function of the shapes."""
        return callable(self.grid)

    def at(self, shapes: Sequence[tuple[int, ...]]) -> tuple[Three, Three, list[str]]:
        """Grid, block and numbers for tensors of these shapes."""
        return (
            _three("grid", self.grid, shapes),
            _three("block", self.block, shapes),
            [word_of(one(*shapes) if callable(one) else one) for one in self.numbers],
        )


def word_of(value: Any) -> str:
    """A number as a word of hcq/code/fixed_numbers.py. Raises UsageError for what is none."""
    if value is None:
        return "null"
    if isinstance(value, bool) or is_whole(value):
        return f"int {int(value)}"
    if isinstance(value, Real) and (
        isfinite(value) or value != value or value in (float("inf"), -float("inf"))
    ):
        return f"float {float(value).hex()}"
    raise UsageError(
        f"[custom] an input is {shown(value)}: give tensors, Python numbers, None for a null pointer, or ... for "
        "outputs."
    )


def key_of(function: Any) -> Hashable:
    """Equal for functions that are made of the same code, with the same values around it."""
    code = getattr(function, "__code__", None)
    if code is None:
        return function  # type: ignore[no-any-return]
    try:
        cells = tuple([cell.cell_contents for cell in function.__closure__ or ()])
        key = code, cells, function.__defaults__, id(function.__globals__)
        hash(key)
    except (TypeError, ValueError):  # what is around it cannot be compared
        return function  # type: ignore[no-any-return]
    return key


def _same(one: Any) -> Hashable:
    if callable(one):
        return key_of(one)
    return repr(one)


def _three(what: str, given: Any, shapes: Sequence[tuple[int, ...]]) -> Three:
    found = given(*shapes) if callable(given) else given
    sides = [found] if is_whole(found) else found
    is_right = isinstance(sides, (list, tuple)) and 1 <= len(sides) <= 3
    if not is_right or not all(is_whole(side) and side > 0 for side in sides):
        raise UsageError(
            f"[custom] {what}={shown(found)}: give one to three sizes from 1, or a function that does."
        )
    x, y, z = (*[side.__index__() for side in sides], 1, 1)[:3]
    return x, y, z
