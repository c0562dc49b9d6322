"""Places: where an access of a program goes, as a sum of what loops count and of numbers.

In       nothing
Out      `Packed`, a staged operand; `Spot`, one access; `Point`, one combination of written-out loop steps
Next     lower_expr.py (who finds spots), staging.py and sharing.py (who pack), banks.py (swizzles)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from hcq.compiler.linear.emitter import Term
from hcq.compiler.linear.program import Instruction
from hcq.compiler.loops.loop import Axis, Loop

if TYPE_CHECKING:
    from hcq.compiler.linear.banks import Swizzle

Place = tuple[int, int]  # offset within the range's tile, lanes
Point = dict[Axis, Place]


@dataclass(eq=False)
class Packed:
    """A staged operand: where it lies in scratch, and how many elements one step of each loop is worth there."""

    address: Instruction
    strides: dict[Loop, int]
    depth: int
    offset: int = 0  # where the first element of a window that runs backwards lies
    terms: list[Term] = field(default_factory=list)  # what else its address has
    swizzle: Swizzle | None = None  # of places in it, before `terms` are added


@dataclass
class Spot:
    """Where an access goes: terms + offset + a number per lane, plus vectors known only when the program runs."""

    terms: list[Term]
    offset: int
    steps: tuple[int, ...] = (0,)  # per lane
    vectors: list[Term] = field(default_factory=list)
    least: int = 0

    @property
    def lanes(self) -> int:
        """How many lanes the access has."""
        return max([len(self.steps), *[value.dtype.lanes for value, _ in self.vectors]])

    @property
    def is_run(self) -> bool:
        """True when the lanes are neighbours in order."""
        return not self.vectors and self.steps == tuple(range(len(self.steps)))

    def add_steps(self, steps: Sequence[int], factor: int = 1) -> None:
        """Add `factor` times these numbers, lane by lane."""
        if len(self.steps) == 1:
            self.steps = (self.steps[0],) * len(steps)
        self.steps = tuple([a + factor * b for a, b in zip(self.steps, steps, strict=True)])
