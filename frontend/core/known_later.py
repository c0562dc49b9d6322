"""Known later: what numbers are that are known only when the work runs, and whether a program has any.

In       a size, a place or a count, of which most are ints
Out      `KnownLater`, the class to ask for; `in_use`; `room_of`; `is_number`
Changes  `note_use`: from then on graphs are asked for such numbers
Next     ../symbolic/variable.py (the one kind there is, and how it is computed with), sizes.py (axes of such a size)

Every program asks here; variable.py is imported by those that have a Variable.
"""

from __future__ import annotations

from typing import Any

from hcq.frontend.core.errors import UsageError
from hcq.ir.node import Node, toposort
from hcq.ir.op import Op

MOST = (1 << 31) - 1  # the largest size or place: kernels compare with it in int32

in_use = False  # whether any variable was made: nothing is asked of graphs before


def note_use() -> None:
    """A program has a variable."""
    global in_use
    in_use = True


class KnownLater:
    """A whole number that a kernel reads from memory: `Bound` of variable.py, which says how."""

    __slots__ = ()

    @property
    def low(self) -> int:
        """The least number that it can be."""
        raise NotImplementedError

    @property
    def high(self) -> int:
        """The greatest number that it can be."""
        raise NotImplementedError

    @property
    def value(self) -> int:
        """What it is now. Raises UsageError while a function is recorded that has it as an argument."""
        raise NotImplementedError

    @property
    def device(self) -> str | None:
        """Where its number is, of an argument while a function is recorded; else None: it may be on any device."""
        raise NotImplementedError

    def node(self, device: str) -> Node:
        """It as a size or a place: a graph, an int32 of shape ()."""
        raise NotImplementedError

    def number(self, device: str) -> Node:
        """It as a number to compute with."""
        raise NotImplementedError

    def divided(self, by: int) -> Any:
        """The quotient, where every number that it can be is a multiple; else None."""
        raise NotImplementedError


def room_of(size: Any) -> int:
    """How many elements an axis of that size, an int or one known later, has room for."""
    if not isinstance(size, KnownLater):
        return int(size)
    if size.high > MOST:
        raise UsageError(
            f"[Variable] {size} is {size.low} to {size.high}: sizes are up to {MOST}. "
            "Give the variables a narrower range."
        )
    return max(2, size.high)  # an axis of 1 would repeat


def is_number(node: Node) -> bool:
    """Whether a graph computes with nothing but bound variables."""
    leaves = [inner for inner in toposort([node]) if inner.op is Op.BUFFER]
    return bool(leaves) and all(leaf.arg.number is not None for leaf in leaves)
