"""Across threads: parts, one for each thread, become a reduction's result in all of them, or what is before each one.

In       a Program with ACROSS and BEFORE instructions, how many threads a wave has
Out      the same with SHUFFLE inside a wave, and SHARED memory and BARRIER between waves
Changes  the program it is given
Next     program.py (the instructions), ../render/gpu.py, ../render/cuda.py (who ask for it)

A thread's number is made of bits, and an ACROSS names some of them. Those inside a wave fold by a butterfly: each step
exchanges with the thread that differs in one bit, after which both have the sum of both. What is left differs by wave:
each wave writes its part to shared memory, and after a barrier all threads read all parts, in the same order. So
every thread ends with the same bits, and a run repeats the one before.

A BEFORE is what the threads with lesser numbers have. It comes with the same exchange: where a thread's number has the
bit, what the other one's half has is before it; and of the waves' parts it adds those before its own.
"""

from __future__ import annotations

from math import prod
from typing import Any

from hcq.compiler.linear.program import NOT_NEGATIVE, Instruction, Program
from hcq.ir.dtype import DType, dtypes
from hcq.ir.meaning import identity
from hcq.ir.node import const
from hcq.ir.op import Op

ALIGN = 16  # bytes, of each part of shared memory
ROOM = 8 << 10  # bytes of shared memory for the parts of one time
_THREADS = (Op.ACROSS, Op.BEFORE)


def lower_across(program: Program, wave: int) -> None:
    """Write every ACROSS and BEFORE of a program in instructions that GPUs have."""
    if any(it.op in _THREADS for it in program.instructions):
        _Writer(program, wave).write()


class _Writer:
    def __init__(self, program: Program, wave: int):
        self.program, self.wave = program, wave
        self.made: list[Instruction] = []
        self.replaced: dict[Instruction, Instruction] = {}
        self.thread: Instruction | None = None
        self.depth = 0
        # loops inside which nothing repeats: that over groups, of which each block has one
        self.once = sum(it.op is Op.LOOP and it.source(0).op is Op.SPECIAL for it in program.instructions)
        self.start = (
            -(-program.shared_bytes // ALIGN) * ALIGN
        )  # of the memory where parts meet, behind the tiles
        self.is_used = False

    def write(self) -> None:
        """Walk the program once; an ACROSS that others follow at once shares its barriers with them."""
        listed = self.program.instructions
        at = 0
        while at < len(listed):
            if listed[at].op in _THREADS:
                run = at
                while run < len(listed) and listed[run].op in _THREADS and listed[run].arg == listed[at].arg:
                    run += 1
                self._across(listed[at:run])
                at = run
                continue
            it = listed[at]
            it.src = tuple(self.replaced.get(s, s) if s is not None else None for s in it.src)
            self.made.append(it)
            if it.op is Op.SPECIAL and it.arg == "thread":
                self.thread = it
            at += 1
        self.program.instructions = self.made

    def _across(self, run: list[Instruction]) -> None:
        """Several reductions and scans over the same threads: what is asked for of one value is found together."""
        op, digits = run[0].arg
        self.depth = run[0].depth
        bits = self._bits(digits)
        scanned = {it.src[0] for it in run if it.op is Op.BEFORE}
        wholes: list[Instruction] = []
        before: list[Instruction | None] = []
        totals: list[Instruction] = []
        for source in dict.fromkeys(it.source(0) for it in run):
            wholes.append(source)
            for value in self._lanes(self.replaced.get(source, source)):
                total, earlier = self._in_wave(op, value, bits, source in scanned)
                totals.append(total)
                before.append(earlier)
        between = [bit for bit in bits if bit >= self.wave]
        if between:
            parts = self._between_waves(totals, bits, between)
            before = [
                None if earlier is None else self._earlier(op, earlier, mine, between)
                for earlier, mine in zip(before, parts, strict=True)
            ]
            totals = [self._total(op, mine) for mine in parts]
        found: dict[tuple[Op, Instruction], list[Instruction]] = {}
        for source in wholes:
            lanes = source.dtype.lanes
            found[Op.ACROSS, source], totals = totals[:lanes], totals[lanes:]
            found[Op.BEFORE, source], before = [it for it in before[:lanes] if it is not None], before[lanes:]
        for it in run:
            made = found[it.op, it.source(0)]
            joined = made[0] if len(made) == 1 else self._emit(Op.VECTOR, *made, dtype=it.dtype)
            self.replaced[it] = joined

    def _in_wave(
        self, op: Op, value: Instruction, bits: list[int], is_scanned: bool
    ) -> tuple[Instruction, Instruction | None]:
        """(what the threads of a wave have together, what those before this one have if it is asked for)."""
        before = self._nothing(op, value.dtype) if is_scanned else None
        for bit in bits:
            if bit >= self.wave:
                continue
            other = self._emit(Op.SHUFFLE, value, arg=bit)
            if before is not None:
                later = self._emit(op, other, before)
                before = self._emit(Op.WHERE, self._has(bit), later, before, dtype=value.dtype)
            value = self._emit(op, value, other)
        return value, before

    def _has(self, bit: int) -> Instruction:
        """Whether this thread's number has a bit."""
        return self._emit(Op.CMPEQ, self._bit(bit), self._number(1), dtype=dtypes.bool)

    def _bit(self, bit: int) -> Instruction:
        assert self.thread is not None, "a kernel with threads knows its thread's number"
        return self._emit(Op.MOD, self._floordiv(self.thread, bit), self._number(2), arg=NOT_NEGATIVE)

    def _earlier(
        self, op: Op, inside: Instruction, parts: list[Instruction], between: list[int]
    ) -> Instruction:
        """What waves before this one have, and what is before this thread in its own."""
        before = None
        nothing = self._nothing(op, inside.dtype)
        rank = self._bit(between[0])
        for place, bit in enumerate(between[1:], 1):
            rank = self._emit(Op.ADD, rank, self._emit(Op.MUL, self._bit(bit), self._number(1 << place)))
        for number, part in enumerate(parts[:-1]):
            is_before = self._emit(Op.CMPLT, self._number(number), rank, dtype=dtypes.bool)
            part = self._emit(Op.WHERE, is_before, part, nothing, dtype=part.dtype)
            before = part if before is None else self._emit(op, before, part)
        return inside if before is None else self._emit(op, before, inside)

    def _lanes(self, value: Instruction) -> list[Instruction]:
        """A vector's lanes, each of which is exchanged by itself."""
        if value.dtype.lanes == 1:
            return [value]
        scalar = value.dtype.scalar
        return [self._emit(Op.LANE, value, arg=(lane,), dtype=scalar) for lane in range(value.dtype.lanes)]

    def _bits(self, digits: tuple[int, ...]) -> list[int]:
        """The bits of a thread's number that some digits are made of, as powers of two."""
        sizes = self.program.digits
        bits = []
        for digit in digits:
            below = prod(sizes[:digit])
            bits += [below << i for i in range(sizes[digit].bit_length() - 1)]
        return sorted(bits)

    def _between_waves(
        self, values: list[Instruction], bits: list[int], between: list[int]
    ) -> list[list[Instruction]]:
        """Write the parts side by side, and read those that differ in the bits `between`, in the order of the waves."""
        folded = 1  # threads next to each other have the same value: one of them writes
        while folded in bits and folded < self.wave:
            folded *= 2
        thread = self.thread
        assert thread is not None, "a kernel with threads knows its thread's number"
        slots = self.program.threads // folded
        slot = self._floordiv(thread, folded)
        guard: tuple[Instruction, ...] = ()
        if folded > 1:
            rest = self._emit(Op.MOD, thread, self._number(folded), arg=NOT_NEGATIVE)
            guard = (self._emit(Op.CMPEQ, rest, self._number(0), dtype=dtypes.bool),)
        steps = [0]
        for bit in between:
            steps += [step + bit // folded for step in steps]
        mine = slot  # the slot with none of these bits
        for bit in between:
            mine = self._emit(
                Op.ADD, mine, self._emit(Op.MUL, self._bit(bit), self._number(-(bit // folded)))
            )
        results: list[list[Instruction]] = []
        size = slots * max([value.dtype.itemsize for value in values])
        at_once = max(1, ROOM // size)
        for first in range(0, len(values), at_once):
            some = values[first : first + at_once]
            if self.depth > self.once or self.is_used:  # what was read before has been read by all
                self._emit(Op.BARRIER)
            self.is_used = True
            self.program.shared_bytes = max(self.program.shared_bytes, self.start + len(some) * size)
            addresses = []
            for number, value in enumerate(some):
                address = self._emit(Op.SHARED, dtype=value.dtype, arg=self.start + number * size)
                self._emit(Op.STORE, address, slot, value, *guard, arg=0, dtype=dtypes.index)
                addresses.append(address)
            self._emit(Op.BARRIER)
            for value, at in zip(some, addresses, strict=True):
                results.append([self._emit(Op.LOAD, at, mine, arg=step, dtype=value.dtype) for step in steps])
        return results

    def _total(self, op: Op, parts: list[Instruction]) -> Instruction:
        """The parts of one value, in the order of the waves."""
        total = parts[0]
        for part in parts[1:]:
            total = self._emit(op, total, part)
        return total

    def _nothing(self, op: Op, dtype: DType) -> Instruction:
        return self._emit(Op.CONST, arg=const(identity(op, dtype), dtype).arg, dtype=dtype)

    def _floordiv(self, value: Instruction, by: int) -> Instruction:
        return value if by == 1 else self._emit(Op.FLOORDIV, value, self._number(by), arg=NOT_NEGATIVE)

    def _number(self, value: int) -> Instruction:
        return self._emit(Op.CONST, arg=const(value, dtypes.index).arg)

    def _emit(self, op: Op, *src: Instruction, arg: Any = None, dtype: DType | None = None) -> Instruction:
        made = Instruction(op, dtype or (src[0].dtype if src else dtypes.index), src, arg, self.depth)
        self.made.append(made)
        return made
