"""Staged loops: those of a reduction, each step of which first brings the operands that are staged there.

In       the ranges that are summed over; who writes a step
Out      their loops; copies before the first step, at the begin and the end of each, and after the last one
Changes  which operands are packed
Next     counted_loops.py (loops), staging.py, sharing.py, bulk_copies.py (the ways to copy)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from hcq.compiler.linear.context import Context, Lowering
from hcq.compiler.linear.counted_loops import CountedLoops
from hcq.compiler.loops.loop import Axis, Loop
from hcq.compiler.loops.nest import Stage


class Copies(Protocol):
    """A way to bring operands nearer."""

    def takes(self, loop: Loop | None) -> bool:
        """Whether it is the one for the stages of a loop; None: those that are staged outside of all loops."""

    def begin_loop(self, stages: list[Stage], loop: Loop) -> None:
        """Before a pipelined loop."""

    def begin_step(self, stages: list[Stage], loop: Loop | None) -> None:
        """As a step begins that has stages."""

    def end_step(self, loop: Loop) -> None:
        """As a step ends."""

    def end_loop(self, loop: Loop) -> None:
        """After a pipelined loop."""


class StagedLoops(Lowering):
    """Loops with stages. `ways`: of several ways to copy, the first one that takes a loop has its stages."""

    def __init__(self, context: Context, counted: CountedLoops, ways: Sequence[Copies]):
        super().__init__(context)
        self.counted, self.ways = counted, ways

    def around(self, axes: list[Axis], body: Callable[[], None]) -> None:
        """Write a body inside the loops of a reduction."""
        outside, self.loops.open_reductions = self.loops.open_reductions, []
        self._nested([loop for loop in self.nest.order if loop.axis in axes], body)
        self.loops.open_reductions = outside

    def stage_at(self, loop: Loop | None) -> None:
        """Pack the operands that are staged at this loop, as a step of it begins."""
        stages = [stage for stage in self.nest.stages if stage.at is loop]
        if not stages:
            return
        outside, self.loops.open_reductions = self.loops.open_reductions, []
        self._way(loop).begin_step(stages, loop)
        self.loops.open_reductions = outside

    def _nested(self, loops: list[Loop], body: Callable[[], None]) -> None:
        if not loops:
            body()
            return
        loop = loops[0]
        if not self.ways:  # nothing is staged
            self.counted.open(loop, lambda: self._nested(loops[1:], body))
            return
        way, is_pipelined = self._way(loop), loop in self.nest.pipelined

        def inside() -> None:
            self.stage_at(loop)
            self._nested(loops[1:], body)
            way.end_step(loop)

        if is_pipelined:
            way.begin_loop([stage for stage in self.nest.stages if stage.at is loop], loop)
        self.counted.open(loop, inside)
        if is_pipelined:
            way.end_loop(loop)

    def _way(self, loop: Loop | None) -> Copies:
        return next(way for way in self.ways if way.takes(loop))
