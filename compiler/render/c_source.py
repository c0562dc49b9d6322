"""Kernels in C: the lines that dialects have in common, one statement per instruction.

In       a linear program, a dialect's arithmetic
Out      lines of text; for each instruction its lanes as expressions
Next     cuda.py, metal.py (a dialect's kernel, memory and units), c_arithmetic.py (one expression per operation)

A vector's lanes are variables of their own, and an accumulator is a variable that is assigned. The loop over groups is
none: its counter is the group's number.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar

from hcq.compiler.linear.alignment import Alignment
from hcq.compiler.linear.program import NOT_NEGATIVE, Instruction, Program
from hcq.compiler.render.c_arithmetic import CArithmetic
from hcq.ir.op import ARITHMETIC, Op


class CSource(ABC):
    """A kernel's text as it is written."""

    spell: ClassVar[CArithmetic]
    group: ClassVar[str]  # the variable that has the group's number

    def __init__(self, program: Program) -> None:
        self.program = program
        self.lines: list[str] = []
        self.values: dict[Instruction, list[str]] = {}  # an expression for each lane: a variable or a number
        self.helpers: dict[str, str] = {}
        self.count = 0
        self.depth = 1
        self.aligned = Alignment()
        self.own_group: Instruction | None = None  # the loop over groups, which here is no loop

    def module(self) -> str:
        """The whole text."""
        for it in self.program.instructions:
            self.instruction(it)
        head = self.head()
        return "\n".join([*head, *self.lines, "}"]) + "\n"

    @abstractmethod
    def head(self) -> list[str]:
        """What stands above the kernel's lines, once these are written; its last lines open the kernel."""

    @abstractmethod
    def instruction(self, it: Instruction) -> None:
        """Write an instruction; `common` has those that all dialects write alike."""

    @abstractmethod
    def load(self, it: Instruction) -> list[str]:
        """What memory has, lane by lane."""

    @abstractmethod
    def store(self, it: Instruction) -> None:
        """Lanes into memory."""

    # -- lines ------------------------------------------------------------------------------------------------------

    def line(self, text: str) -> None:
        """One more line of the kernel."""
        self.lines.append("  " * self.depth + text)

    def helper(self, name: str, text: str) -> str:
        """A function that the kernel calls, written once above it."""
        self.helpers[name] = text
        return name

    def let(self, it: Instruction, lanes: list[str]) -> None:
        """New variables for the lanes of an instruction's value."""
        kind = self.spell.register_type(it.dtype)
        names = []
        for lane in lanes:
            self.count += 1
            names.append(f"v{self.count}")
            self.line(f"const {kind} {names[-1]} = {lane};")
        self.values[it] = names

    def same(self, it: Instruction, lanes: list[str]) -> None:
        """The lanes are other values; those of an accumulator as it is now, since it will be assigned again."""
        if any(source is not None and source.op is Op.ACCUMULATOR for source in it.src):
            self.let(it, lanes)
        else:
            self.values[it] = lanes

    def of(self, it: Instruction, number: int) -> list[str]:
        """The lanes of a source."""
        return self.values[it.source(number)]

    # -- instructions -----------------------------------------------------------------------------------------------

    def common(self, it: Instruction) -> bool:
        """Write an instruction that all dialects write alike. False where it is none."""
        op = it.op
        if op is Op.CONST:
            self.values[it] = [self.spell.literal(it.arg, it.dtype.scalar)] * it.dtype.lanes
        elif op is Op.PARAM:
            self.values[it] = [f"p{it.arg.index}"]
        elif op is Op.ACCUMULATOR:
            self._accumulator(it)
        elif op is Op.UPDATE:
            for variable, value in zip(self.of(it, 0), self.of(it, 1)):
                self.line(f"{variable} = {value};")
        elif op is Op.LOOP:
            self._begin_loop(it)
        elif op is Op.ENDLOOP:
            self._end_loop(it)
        elif op is Op.LOAD:
            self.let(it, self.load(it))
        elif op is Op.STORE:
            self.store(it)
        elif op is Op.BROADCAST:
            self.same(it, self.of(it, 0) * it.dtype.lanes)
        elif op is Op.VECTOR:
            self.same(it, [self.of(it, lane)[0] for lane in range(len(it.src))])
        elif op is Op.LANE:
            lanes = [lane for source in range(len(it.src)) for lane in self.of(it, source)]
            self.let(it, [lanes[lane] for lane in it.arg])
        elif op in ARITHMETIC:
            self.let(it, self._arithmetic(it))
        else:
            return False
        return True

    def _arithmetic(self, it: Instruction) -> list[str]:
        sources = [(self.values[s], s.dtype) for s in it.src if s is not None]
        unsigned = it.arg == NOT_NEGATIVE
        known = it.src[1].number if len(it.src) > 1 and it.src[1] is not None else None
        lanes = []
        for lane in range(it.dtype.lanes):
            operands = [(values[lane], dtype) for values, dtype in sources]
            lanes.append(self.spell.arithmetic(self, it.op, it.dtype, operands, unsigned, known))
        return lanes

    def _accumulator(self, it: Instruction) -> None:
        names = []
        for value in self.of(it, 0):
            self.count += 1
            names.append(f"a{self.count}")
            self.line(f"{self.spell.register_type(it.dtype)} {names[-1]} = {value};")
        self.values[it] = names

    def _begin_loop(self, it: Instruction) -> None:
        if it.src[0] is not None and it.src[0].op is Op.SPECIAL:
            self.own_group = it
            self.values[it] = [self.group]
            return
        low, high = self.of(it, 0)[0], self.of(it, 1)[0]
        self.count += 1
        name = f"{it.arg.name.replace('.', '_')}_{self.count}"
        self.values[it] = [name]
        kind = self.spell.register_type(it.dtype)
        self.line(f"for ({kind} {name} = {low}; {name} < {high}; ++{name}) {{")
        self.depth += 1

    def _end_loop(self, it: Instruction) -> None:
        if it.src[0] is self.own_group is not None:
            self.own_group = None
            return
        self.depth -= 1
        self.line("}")

    # -- memory -----------------------------------------------------------------------------------------------------

    def places(self, it: Instruction, lanes: int) -> list[str]:
        """The elements of an access, one for each lane."""
        address = self.of(it, 0)[0]
        base = self.of(it, 1)[0] if it.src[1] is not None else ""
        found = []
        for lane in range(lanes):
            offset = (it.arg or 0) + lane
            if base and offset:
                index = f"{base} {'+' if offset > 0 else '-'} {abs(offset)}"
            else:
                index = base or str(offset)
            found.append(f"{address}[{index}]")
        return found

    def store_masks(self, it: Instruction) -> list[str]:
        """For each lane of a store whether it is done; none where all are. One mask is that of all lanes."""
        if len(it.src) < 4 or it.src[3] is None:
            return []
        masks = self.of(it, 3)
        return masks * it.source(2).dtype.lanes if len(masks) == 1 else masks

    def masked(self, it: Instruction, lanes: list[str]) -> list[str]:
        """What a load has where its mask is on, and zero elsewhere."""
        if len(it.src) < 3 or it.src[2] is None:
            return lanes
        zero = self.spell.literal(0, it.dtype.scalar)
        return [f"{mask} ? {lane} : {zero}" for mask, lane in zip(self.of(it, 2), lanes)]
