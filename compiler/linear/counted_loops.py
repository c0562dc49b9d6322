"""Counted loops: opened around a body, which is written for the full steps and again for a partial one.

In       loops in the order in which they are opened, outermost first; who writes the body
Out      LOOP and ENDLOOP around what the body writes; nothing where a loop is known to be empty
Changes  which loops are open, and what is written out of their ranges meanwhile
Next     limits.py (which steps matter), open_loops.py (the state), staged_loops.py (loops whose steps bring operands)
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from hcq.compiler.linear.context import Context, Lowering
from hcq.compiler.linear.program import Instruction
from hcq.compiler.loops.loop import Loop
from hcq.ir.dtype import dtypes
from hcq.ir.op import Op

if TYPE_CHECKING:
    from hcq.compiler.linear.limits import Limits


class CountedLoops(Lowering):
    """Loops around bodies."""

    def __init__(self, context: Context, limits: Limits | None):
        super().__init__(context)
        self.limits = limits

    def nested(self, loops: list[Loop], body: Callable[[], None]) -> None:
        """A body inside all of these loops."""
        if not loops:
            body()
            return
        self.open(loops[0], lambda: self.nested(loops[1:], body))

    def groups(self, groups: list[Loop], body: Callable[[], None]) -> None:
        """One loop over the groups that this call was given; its number is taken apart, the last group loop fastest."""
        first = self.emitter.emit(Op.SPECIAL, dtypes.index, (), "first")
        last = self.emitter.emit(Op.SPECIAL, dtypes.index, (), "last")
        loop = rest = self.emitter.begin("group", first, last, runs=False)
        for group in reversed(groups[1:]):
            self.loops.counters[group] = self.emitter.rest(rest, group.size)
            rest = self.emitter.quotient(rest, group.size)
        self.loops.counters[groups[0]] = rest
        self.loops.moved()
        body()
        self.emitter.end(loop)
        for group in groups:
            del self.loops.counters[group]
        self.loops.moved()

    def open(self, loop: Loop, body: Callable[[], None]) -> None:
        """Run `body` for every step of a counted loop: the full steps, then a partial one with its own extent."""
        axis = loop.axis
        until = self.loops.ends_of(loop)
        whole, left = divmod(axis.size, loop.stride)
        if axis.counted[-1] is not loop:  # the loops inside see to the partial step
            if loop.kind == "group":
                body()
            else:
                self._run(loop, self.emitter.number(0), until(whole + bool(left)), body)
            return
        full = self.ranges.extent[axis] = min(axis.tile, axis.size)
        if loop.kind == "group":  # already counting: narrow it to this group, if this group is whole
            limit = None if self.limits is None else self.limits.end_of_stores(loop)
            if not left and limit is None:
                body()
                return
            here = self.loops.counters[loop]
            after = self.emitter.arithmetic(Op.ADD, here, self.emitter.number(1))
            if limit is not None:
                after = self.emitter.arithmetic(Op.MIN, after, limit)
            if not left:
                self._run(loop, here, after, body)
                return
            self._run(loop, here, self.emitter.arithmetic(Op.MIN, after, self.emitter.number(whole)), body)
            self.ranges.extent[axis] = left
            self._run(loop, self.emitter.arithmetic(Op.MAX, here, self.emitter.number(whole)), after, body)
        else:
            low, end = self.emitter.number(0), until(whole)
            limit = None if self.limits is None else self.limits.end_of_stores(loop)
            if loop in self.loops.limits and loop is axis.counted[0]:
                low, limit = self.loops.limits[loop]
                end = self.emitter.arithmetic(Op.MIN, limit, end) if left else limit
            elif limit is not None:
                end = self.emitter.arithmetic(Op.MIN, end, limit)
            if loop in self.loops.certain:
                low = self._certain(loop, low, end, body)
            self._run(loop, low, end, body)
            if left:
                self.ranges.extent[axis] = left
                first, after = self.emitter.arithmetic(Op.MAX, end, self.emitter.number(0)), until(whole + 1)
                if limit is not None:
                    after = self.emitter.arithmetic(Op.MIN, after, limit)
                self._run(loop, first, after, body)
        self.ranges.extent[axis] = full

    def _certain(
        self, loop: Loop, low: Instruction, end: Instruction, body: Callable[[], None]
    ) -> Instruction:
        """The steps in which conditions hold for all: nobody asks for them there. Returns the step after them."""
        until, conditions = self.loops.certain[loop]
        after = self.emitter.arithmetic(Op.MAX, self.emitter.arithmetic(Op.MIN, until, end), low)
        outside, self.loops.hold = self.loops.hold, self.loops.hold | conditions
        self._run(loop, low, after, body)
        self.loops.hold = outside
        return after

    def _run(self, loop: Loop, low: Instruction, high: Instruction, body: Callable[[], None]) -> None:
        """One loop; nothing at all where it is known to be empty, no loop for a single known step."""
        outer = self.loops.counters.get(loop)  # a group's own number
        known = low.op is Op.CONST and high.op is Op.CONST
        if known and low.arg >= high.arg:
            return
        if known and high.arg == low.arg + 1:
            self.loops.counters[loop] = self.emitter.begin_step(low.arg)
            self.loops.moved()
            body()
            self.emitter.end_step()
        else:
            counter = self.loops.counters[loop] = self.emitter.begin(loop.name, low, high, runs=known)
            self.loops.moved()
            if loop.axis.is_reduce:
                self.loops.open_reductions.append(counter.arg)
            if loop.axis.is_scanned:
                self.loops.open_scans.append(counter.arg)
            body()
            if loop.axis.is_reduce:
                self.loops.open_reductions.pop()
            if loop.axis.is_scanned:
                self.loops.open_scans.pop()
            self.emitter.end(counter)
        if outer is None:
            del self.loops.counters[loop]
        else:
            self.loops.counters[loop] = outer
        self.loops.moved()
