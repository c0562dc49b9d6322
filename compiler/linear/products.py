"""Products: reductions that the schedule gives to a matrix unit.

In       the reductions over some ranges, one or several of which the schedule's `matrix` names
Out      what the unit's lowering writes
Next     fragments.py (operands that threads hold), warpgroups.py (operands in shared memory)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from hcq.compiler.linear.context import Context, Lowering
from hcq.compiler.linear.staged_loops import StagedLoops
from hcq.compiler.loops.nest import MatrixUse, ScheduleError
from hcq.ir.node import Node


class Unit(Protocol):
    """A kind of matrix unit."""

    def takes(self, use: MatrixUse) -> bool:
        """Whether it does a product."""

    def multiply(self, use: MatrixUse, node: Node, loops: Callable[[Callable[[], None]], None]) -> None:
        """Write it; `loops` opens its loops around a body."""


class Products(Lowering):
    """Reductions by matrix units. `units`: the first one that takes a product does it."""

    def __init__(self, context: Context, staged: StagedLoops, units: Sequence[Unit]):
        super().__init__(context)
        self.staged, self.units = staged, units
        uses = (self.nest.unit, *self.nest.beside)
        self.uses = {use.reduce: use for use in uses if use is not None}

    def takes(self, group: list[Node]) -> bool:
        """Where one of them is a unit's."""
        return any(node in self.uses for node in group)

    def write(self, group: list[Node]) -> None:
        """Write them one after the other. Raises ScheduleError where one of them is no unit's."""
        if not all(node in self.uses for node in group):
            raise ScheduleError("matrix: another reduction runs along the same ranges")
        axes = [self.nest.axis_of[place] for place in group[0].src[1:]]
        for node in group:
            use = self.uses[node]
            unit = next(unit for unit in self.units if unit.takes(use))
            unit.multiply(use, node, lambda body: self.staged.around(axes, body))
