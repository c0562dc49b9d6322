"""Open loops: what counts a kernel's loops at the place where the program is being written.

In       counted loops as they are opened and closed; the digits of the thread's number
Out      counters; how deep what depends on some ranges has to stand; the first step and the end of a counted loop
Changes  the facts of open loops, which note the accumulators that they carry
Next     counted_loops.py (who opens them), ranges.py (what is written out), lower_expr.py (who asks)
"""

from __future__ import annotations

from collections.abc import Callable

from hcq.compiler.linear.emitter import Emitter
from hcq.compiler.linear.program import Instruction, LoopFacts
from hcq.compiler.linear.ranges import Ranges
from hcq.compiler.loops.loop import Loop
from hcq.ir.dtype import dtypes
from hcq.ir.node import Node
from hcq.ir.op import Op


class OpenLoops:
    """The loops that are open, and those that are threads."""

    def __init__(self, emitter: Emitter, ranges: Ranges):
        self.emitter, self.ranges = emitter, ranges
        self.counters: dict[Loop, Instruction] = {}
        self.open_reductions: list[LoopFacts] = []
        self.open_scans: list[LoopFacts] = []
        self.limits: dict[Loop, tuple[Instruction, Instruction]] = {}  # which steps of a loop do anything
        self.certain: dict[
            Loop, tuple[Instruction, frozenset[Node]]
        ] = {}  # before which step what holds for all
        self.hold: frozenset[Node] = frozenset()  # conditions that do, in the step that is being written
        self.digits: list[Instruction] = []  # of the thread's number
        self.thread = Instruction(Op.SPECIAL, dtypes.index, (), "thread", 0)
        self._depths: dict[int, int] = {}

    def moved(self) -> None:
        """Loops were opened or closed: what depends on what is elsewhere now."""
        self._depths.clear()

    def is_at(self, loop: Loop, counter: Instruction | None) -> None:
        """What counts an open loop from now on; None: it is closed. What was known of its range is forgotten."""
        if counter is None:
            del self.counters[loop]
        else:
            self.counters[loop] = counter
        for scope in self.emitter.scopes:
            stale = [key for key in scope.values if self.ranges.masks[key[0]] & loop.axis.bit]
            for key in stale:
                del scope.values[key]
        self.moved()

    def depth_of(self, mask: int) -> int:
        """How deep the innermost open loop stands that counts one of these ranges; 0 where none does."""
        depth = self._depths.get(mask)
        if depth is None:
            depth = 0
            for loop, counter in self.counters.items():
                if loop.axis.bit & mask and counter.depth > depth:
                    depth = counter.depth
            self._depths[mask] = depth
        return depth

    def steps_of(self, loop: Loop) -> tuple[Instruction, Instruction]:
        """The first step of a counted loop, and the one after its last."""
        if loop in self.limits:
            return self.limits[loop]
        return self.emitter.number(0), self.ends_of(loop)(-(-loop.axis.size // loop.stride))

    def ends_of(self, loop: Loop) -> Callable[[int], Instruction]:
        """Where a counted loop ends when its range ends after so many steps of its kind."""
        counted = loop.axis.counted
        outer = counted[: counted.index(loop)]
        behind = self.emitter.total([(self.counters[o], o.stride // loop.stride) for o in outer])
        always_whole = bool(outer) and loop.axis.size % outer[-1].stride == 0

        def until(steps: int) -> Instruction:
            if not outer:
                return self.emitter.number(min(loop.size, steps))
            if always_whole:
                return self.emitter.number(loop.size)
            ahead = self.emitter.number(steps)
            if behind is not None:
                ahead = self.emitter.arithmetic(
                    Op.ADD, ahead, self.emitter.arithmetic(Op.MUL, behind, self.emitter.number(-1))
                )
            return self.emitter.arithmetic(Op.MIN, self.emitter.number(loop.size), ahead)

        return until

    def update(self, facts: list[LoopFacts], accumulator: Instruction, value: Instruction) -> None:
        """Assign an accumulator here, which these open loops carry from step to step."""
        self.emitter.place(Op.UPDATE, accumulator.dtype, (accumulator, value))
        for fact in facts:
            if accumulator not in fact.carried:
                fact.carried.append(accumulator)
