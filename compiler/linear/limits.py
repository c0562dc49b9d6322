"""Limits: which steps of a loop have terms that are not zero, where a condition on ranges says so.

In       reductions over the same ranges, at the place in the program where they belong
Out      for a counted loop of theirs the first step that matters and the one after the last, by what is counted
         outside; before which step conditions hold whatever threads and written-out loops count
Next     nested.py (whose loops these are), counted_loops.py (who opens them), ../passes/masked_weights.py (who says so)

    sum over key of (weight[row, key] where key <= row, else 0) * value[key]

A block of rows needs the tiles of keys up to its last row: half of all, in causal attention. All threads of a block go
through the same steps, so what its threads and written-out loops count is taken at its best. The condition itself
stays, but for the steps before the first in which it does not hold for all. What a term multiplies a zero with is not
asked: an infinite value in a tile that is left out does no harm.
"""

from __future__ import annotations

from hcq.compiler.linear.context import Context, Lowering
from hcq.compiler.linear.emitter import Term
from hcq.compiler.linear.program import Instruction
from hcq.compiler.loops.loop import Axis, Loop
from hcq.ir.dtype import dtypes
from hcq.ir.logic import flatten
from hcq.ir.meaning import identity
from hcq.ir.node import Node
from hcq.ir.op import Op

Steps = tuple[Instruction, Instruction]
Certain = tuple[Instruction, frozenset[Node]]


class Limits(Lowering):
    """Loops that begin late or end early."""

    def __init__(self, context: Context):
        super().__init__(context)
        # conditions beyond which nothing needs to be stored
        conditions = [set(flatten(Op.AND, store.src[3:])) for store in self.nest.stores]
        self.stores_need = set.intersection(*conditions) if conditions else set[Node]()

    def limits_of(self, group: list[Node], axes: list[Axis]) -> dict[Loop, Steps]:
        """The loops of these reductions that need not go through all their steps."""
        needed = self.needed_by(group)
        found: dict[Loop, Steps] = {}
        for condition in sorted(needed, key=repr):
            form = _form(condition)
            for axis in axes if form is not None else ():
                if len(axis.counted) == 1 and axis.size % axis.counted[0].stride == 0:
                    assert form is not None
                    self._limit(axis, axis.counted[0], *form, found)
        return found | self.counts_of(needed, axes)

    def certain_of(self, group: list[Node], axes: list[Axis]) -> dict[Loop, Certain]:
        """Of each loop the step before which conditions hold for all, and these conditions."""
        found: dict[Loop, Certain] = {}
        for condition in sorted(self.needed_by(group), key=repr):
            form = _form(condition)
            for axis in axes if form is not None else ():
                if len(axis.counted) != 1 or axis.size % axis.counted[0].stride:
                    continue
                assert form is not None
                steps: dict[Loop, Steps] = {}
                self._limit(axis, axis.counted[0], *form, steps, for_all=True)
                for loop, (_, end) in steps.items():
                    if loop in found:
                        other, conditions = found[loop]
                        found[loop] = self.emitter.arithmetic(Op.MIN, end, other), conditions | {condition}
                    else:
                        found[loop] = end, frozenset({condition})
        return found

    def counts_of(self, needed: set[Node], axes: list[Axis]) -> dict[Loop, Steps]:
        """The loops that end at a count which is read from memory: `place < n`."""
        found: dict[Loop, Steps] = {}
        for condition in sorted(needed, key=repr):
            form = self._counted(condition)
            for axis in axes if form is not None else ():
                if len(axis.counted) == 1:
                    assert form is not None
                    self._limit(axis, axis.counted[0], *form, 1, found)
        return found

    def end_of_stores(self, loop: Loop) -> Instruction | None:
        """The step after the last one of an open output loop that stores what is needed; None where all do."""
        if loop.axis.is_reduce or not self.stores_need:
            return None
        found: dict[Loop, Steps] = {}
        for condition in sorted(self.stores_need, key=repr):
            form = self._counted(condition)
            if form is not None:
                self._limit(loop.axis, loop, *form, 1, found)
        return found[loop][1] if loop in found else None

    def needed_by(self, group: list[Node]) -> set[Node]:
        """Conditions without which no term of these reductions changes anything."""
        return set.intersection(*[_needed(node.src[0], node.arg) for node in group])

    def _counted(self, condition: Node) -> tuple[Node, Instruction] | None:
        """A comparison of places with a number that is known outside of all loops; None for another one."""
        if condition.op is not Op.CMPLT or condition.src[0].op is not Op.CAST:
            return None
        place, count = condition.src[0].src[0], condition.src[1]
        if place.dtype is not dtypes.index or count.op is Op.CONST:
            return None
        if self.ranges.masks[count] or count in self.ranges.volatile:
            return None
        return place, self.emitter.emit(Op.CAST, dtypes.index, (self.values.value(count, {}),))

    def _limit(
        self,
        axis: Axis,
        loop: Loop,
        index: Node,
        end: int | Instruction,
        sign: int,
        found: dict[Loop, Steps],
        for_all: bool = False,
    ) -> None:
        """Note what `sign * index < end` says of a loop: where it holds at all, or for all that is not counted outside.

        for_all   only of a condition that holds before some step
        """
        form = self.ranges.affine.of(index)
        own = form.coefficient(axis.range) * sign
        if (for_all and own < 0) or not own or any(form.atoms()) or loop.kind not in ("serial", "group"):
            return
        terms: list[Term] = []
        least = form.constant * sign  # of what is not counted outside: at its best, or at its worst
        for atom, coefficient in form.terms:
            for other in self.ranges.axis_of[atom].loops:
                step = coefficient * sign * other.stride
                if other is loop:
                    continue
                if other in self.loops.counters and other.kind != "thread":
                    terms.append((self.loops.counters[other], step))
                else:
                    least += (max if for_all else min)(0, step * (other.size - 1))
        if isinstance(end, Instruction):  # counted from there
            terms.append((end, -1))
            end = 0
        low, high = found.get(loop, (self.emitter.number(0), self.emitter.number(loop.size)))
        step = abs(own) * loop.stride
        if own > 0:  # step * i < end - least - terms
            room = self.emitter.total([(value, -times) for value, times in terms], end - least + step - 1)
            high = self.emitter.arithmetic(Op.MIN, high, self._steps(room, step))
            high = self.emitter.arithmetic(Op.MAX, high, self.emitter.number(0))
        else:  # -step * i < end - least - terms
            before = self.emitter.total(terms, least - end + step)
            low = self.emitter.arithmetic(Op.MAX, low, self._steps(before, step))
        found[loop] = low, high

    def _steps(self, places: Instruction | None, step: int) -> Instruction:
        """How many whole steps so many places are."""
        if places is None:
            return self.emitter.number(0)
        return self.emitter.arithmetic(Op.FLOORDIV, places, self.emitter.number(step))


def _needed(value: Node, op: Op) -> set[Node]:
    """Conditions without which a term changes nothing: each alone is enough to leave it out."""
    if value.op is Op.WHERE:
        condition, x, otherwise = value.src
        if otherwise.op is Op.CONST and otherwise.arg == identity(op, value.dtype):
            return set(flatten(Op.AND, (condition,))) | _needed(x, op)
        return set()
    if op is not Op.ADD:
        return set()
    if value.op is Op.EXP2:  # of a score that is -inf, see ../passes/weights.py
        return _needed(value.src[0].src[0].src[0], Op.MAX) if _is_of_a_product(value.src[0]) else set()
    if value.op is Op.MUL:
        return _needed(value.src[0], op) | _needed(value.src[1], op)
    return _needed(value.src[0], op) if value.op in (Op.CAST, Op.NEG, Op.RESCALE) else set()


def _is_of_a_product(power: Node) -> bool:
    """Whether it is a value times a number greater than zero, and something: -inf where the value is."""
    if power.op is not Op.ADD or power.src[0].op is not Op.MUL:
        return False
    factor = power.src[0].src[1]
    return factor.op is Op.CONST and factor.arg > 0


def _form(condition: Node) -> tuple[Node, int, int] | None:
    """A comparison as sign * index < end; None for another one."""
    if condition.op is not Op.CMPLT or condition.src[0].dtype is not dtypes.index:
        return None
    a, b = condition.src
    if b.op is Op.CONST:
        return a, int(b.arg), 1
    return (b, -int(a.arg), -1) if a.op is Op.CONST else None
