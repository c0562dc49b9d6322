"""Emitter: puts instructions where they belong, in the outermost open loop that knows their sources.

In       operations with the instructions they read
Out      instructions inside scopes, one scope per open loop; equal ones within a scope are one
Next     context.py (who is given it), lower_expr.py (nodes to instructions), program.py (the instructions)
"""

from __future__ import annotations

from typing import Any

from hcq.compiler.linear.program import NOT_NEGATIVE, Instruction, LoopFacts
from hcq.ir.dtype import DType, Scalar, dtypes
from hcq.ir.meaning import MEANING
from hcq.ir.node import const
from hcq.ir.op import Op

Term = tuple[Instruction, int]  # value, coefficient


class Scope:
    """An open loop: its instructions so far, and what was computed in it."""

    def __init__(self) -> None:
        self.instructions: list[Instruction] = []
        self.made: dict[Any, Instruction] = {}  # by content
        self.values: dict[Any, Instruction] = {}  # by node and point


class Emitter:
    """The open scopes, outermost first: scope 0 is the kernel's own."""

    def __init__(self) -> None:
        self.scopes = [Scope()]

    @property
    def depth(self) -> int:
        """How many loops are open."""
        return len(self.scopes) - 1

    def emit(
        self, op: Op, dtype: DType, src: tuple[Instruction | None, ...] = (), arg: Any = None, least: int = 0
    ) -> Instruction:
        """A value without side effects, at the outermost scope (not above `least`) where its sources are known."""
        depth = least
        for source in src:
            if source is not None and source.depth > depth:
                depth = source.depth
        key = (op, dtype, src, arg)
        scope = self.scopes[depth]
        made = scope.made.get(key)
        if made is None:
            made = scope.made[key] = Instruction(op, dtype, src, arg, depth)
            scope.instructions.append(made)
        return made

    def place(
        self, op: Op, dtype: DType, src: tuple[Instruction | None, ...], arg: Any = None
    ) -> Instruction:
        """An instruction exactly here: stores, updates, reads of what may change."""
        made = Instruction(op, dtype, src, arg, self.depth)
        self.scopes[-1].instructions.append(made)
        return made

    def accumulator(self, start: Instruction, depth: int) -> Instruction:
        """A variable that starts so, at the end of what stands in an open scope."""
        made = Instruction(Op.ACCUMULATOR, start.dtype, (start,), None, depth)
        self.scopes[depth].instructions.append(made)
        return made

    def store(self, src: tuple[Instruction | None, ...], offset: int = 0) -> None:
        """Write to memory here; src: address, base, value, and the condition where there is one."""
        self.place(Op.STORE, dtypes.index, src, offset)

    def barrier(self) -> None:
        """All threads of the group have come here."""
        self.place(Op.BARRIER, dtypes.index, ())

    def begin(self, name: str, low: Instruction, high: Instruction, runs: bool) -> Instruction:
        """Open a loop; what is emitted from now on may stand in it."""
        self.scopes.append(Scope())
        return Instruction(Op.LOOP, dtypes.index, (low, high), LoopFacts(name, runs), self.depth)

    def end(self, loop: Instruction) -> None:
        """Close the loop that `begin` gave: its instructions go into the scope around it."""
        body = self.scopes.pop().instructions
        outer = self.scopes[-1].instructions
        outer.append(loop)
        outer.extend(body)
        outer.append(Instruction(Op.ENDLOOP, dtypes.index, (loop,), None, self.depth))

    def begin_step(self, value: int) -> Instruction:
        """Open a scope that is one known step of a loop: no loop is written."""
        self.scopes.append(Scope())
        return self.place(Op.CONST, dtypes.index, (), value)

    def end_step(self) -> None:
        """Close what `begin_step` opened."""
        body = self.scopes.pop().instructions
        self.scopes[-1].instructions.extend(body)

    # -- small arithmetic -------------------------------------------------------------------------------------------

    def number(self, value: Scalar, dtype: DType = dtypes.index) -> Instruction:
        """A number, once for the whole kernel."""
        # a float's key tells -0.0 from 0.0 and knows one NaN, as const() does
        node = const(value, dtype)
        key = (Op.CONST, dtype, repr(node.arg))
        scope = self.scopes[0]
        made = scope.made.get(key)
        if made is None:
            made = scope.made[key] = Instruction(Op.CONST, dtype, (), node.arg, 0)
            scope.instructions.append(made)
        return made

    def arithmetic(self, op: Op, a: Instruction, b: Instruction) -> Instruction:
        """Index arithmetic on scalars, folded where both sides are numbers."""
        if a.op is Op.CONST and b.op is Op.CONST:
            return self.number(MEANING[op](dtypes.index, dtypes.index, a.arg, b.arg))
        if op is Op.ADD and b.op is Op.CONST and b.arg == 0:
            return a
        if op is Op.ADD and a.op is Op.CONST and a.arg == 0:
            return b
        if op is Op.MUL and b.op is Op.CONST and b.arg == 1:
            return a
        return self.emit(op, dtypes.index, (a, b))

    def quotient(self, value: Instruction, divisor: int) -> Instruction:
        """How often a number goes into an index that is never below zero."""
        return self.emit(Op.FLOORDIV, dtypes.index, (value, self.number(divisor)), NOT_NEGATIVE)

    def rest(self, value: Instruction, divisor: int) -> Instruction:
        """What is left of it then."""
        return self.emit(Op.MOD, dtypes.index, (value, self.number(divisor)), NOT_NEGATIVE)

    def is_below(self, value: Instruction, end: int) -> Instruction:
        """Whether an index is less than a number."""
        return self.emit(Op.CMPLT, dtypes.bool, (value, self.number(end)))

    def is_equal(self, value: Instruction, number: int) -> Instruction:
        """Whether an index is a number."""
        return self.emit(Op.CMPEQ, dtypes.bool, (value, self.number(number)))

    def both(self, a: Instruction | None, b: Instruction | None) -> Instruction | None:
        """Two guards of one instruction as one; None for what is always done."""
        if a is None or b is None:
            return a or b
        return self.emit(Op.AND, dtypes.bool, (a, b))

    def plus(self, value: Instruction, offset: int) -> Instruction:
        """An index and a number, written down even where both are numbers."""
        return value if not offset else self.emit(Op.ADD, dtypes.index, (value, self.number(offset)))

    def total(self, terms: list[Term], constant: int = 0) -> Instruction | None:
        """The sum of coefficient * value, outer loops first so that partial sums are hoisted; None for nothing."""
        whole: Instruction | None = None
        for value, coefficient in sorted(terms, key=lambda term: term[0].depth):
            if value.op is Op.CONST:
                constant += int(value.arg) * coefficient
                continue
            part = self.arithmetic(Op.MUL, value, self.number(coefficient))
            whole = part if whole is None else self.arithmetic(Op.ADD, whole, part)
        if constant:
            number = self.number(constant)
            whole = number if whole is None else self.arithmetic(Op.ADD, whole, number)
        return whole

    def broadcast(self, value: Instruction, lanes: int) -> Instruction:
        """A scalar in every lane; a vector of that width as it is."""
        if value.dtype.lanes == lanes:
            return value
        assert value.dtype.lanes == 1, "a vector where a scalar or another width is expected"
        return self.emit(Op.BROADCAST, value.dtype.vec(lanes), (value,))

    def lane(self, value: Instruction, lane: int) -> Instruction:
        """One lane of a vector; a scalar as it is."""
        if value.dtype.lanes == 1:
            return value
        return self.emit(Op.LANE, value.dtype.scalar, (value,), (lane,))

    def turned(self, rows: list[Instruction]) -> list[Instruction]:
        """The transpose of a square of lanes: each round swaps one bit of the row's number with that of the lane's."""
        size = len(rows)
        distance = 1
        while distance < size:
            low = [lane if not lane & distance else size + lane - distance for lane in range(size)]
            high = [lane + distance if not lane & distance else size + lane for lane in range(size)]
            after = list(rows)
            for i in range(size):
                if not i & distance:
                    pair = (rows[i], rows[i + distance])
                    after[i] = self.emit(Op.LANE, rows[i].dtype, pair, tuple(low))
                    after[i + distance] = self.emit(Op.LANE, rows[i].dtype, pair, tuple(high))
            rows = after
            distance *= 2
        return rows
