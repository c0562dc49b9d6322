"""Shared memory: what each thread of a block does there, found by walking a linear program; conflicts and races.

The walk runs one block, the first if not told which, loop by loop, with a number for every thread and every index. It
knows no values: what is stored where only depends on numbers of threads and of steps.

Banks: 32 of 4 bytes. Lanes that are served at once must meet no bank twice, unless at the same word. Accesses of up to
4, of 8 and of 16 bytes go by 32, 16 and 8 lanes (16 bytes: PTX ISA, "ldmatrix", and ROCm, "Understanding AMD GPU LDS
and Bank Conflicts", which also says that ds_read_b128 pairs lanes 0-3 with 20-23, and so on; 8 bytes: inferred).

Races: between two barriers nobody reads or writes what another thread writes. What the GPU copies by itself is being
written from the instruction that begins it to the one that waits for its batch.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np

from hcq.compiler.linear.program import Instruction, Program
from hcq.ir.op import Op

_MEANING: dict[Op, Callable[..., Any]] = {
    Op.ADD: operator.add,
    Op.MUL: operator.mul,
    Op.FLOORDIV: operator.floordiv,
    Op.MOD: operator.mod,
    Op.XOR: operator.xor,
    Op.AND: operator.and_,
    Op.OR: operator.or_,
    Op.MIN: np.minimum,
    Op.MAX: np.maximum,
    Op.CMPLT: operator.lt,
    Op.CMPLE: operator.le,
    Op.CMPEQ: operator.eq,
    Op.CMPNE: operator.ne,
    Op.WHERE: np.where,
}
BANKS, BANK_BYTES, LINE_BYTES = 32, 4, 128
READ_16 = ((0, 1, 2, 3, 20, 21, 22, 23), (4, 5, 6, 7, 16, 17, 18, 19))


class Access(NamedTuple):
    """One instruction's, by all threads: where each begins, in bytes; negative for a thread that takes no part."""

    it: Instruction
    kind: str  # load | store | copy
    start: Any
    size: int


def walk(program: Program, wave: int, block: int = 0) -> Iterator[Access | Instruction]:
    """Accesses, and the instructions that order them, as the threads of a block meet them."""
    code, known = program.instructions, dict[Instruction, Any]()
    ends: dict[int, int] = {}
    opened = []
    for number, it in enumerate(code):
        if it.op is Op.LOOP:
            opened.append(number)
        elif it.op is Op.ENDLOOP:
            ends[opened.pop()] = number
    everyone = np.arange(program.threads)

    def run(at: int, end: int) -> Iterator[Access | Instruction]:
        while at < end:
            it = code[at]
            if it.op is Op.LOOP:
                low, high = (int(np.max(known[source])) for source in it.src)
                for count in range(low, high):
                    known[it] = count
                    yield from run(at + 1, ends[at])
                at = ends[at]
            elif it.op is Op.SPECIAL:
                known[it] = {"thread": everyone, "first": block, "last": block + 1}[it.arg]
            elif it.op is Op.CONST:
                known[it] = it.arg
            elif it.op in (Op.BARRIER, Op.COMMIT, Op.WAIT):
                yield it
            elif it.op in (Op.LOAD, Op.STORE, Op.LOAD_ROWS, Op.COPY_SHARED):
                if it.source(0).op is Op.SHARED:
                    yield _access(it, known, everyone, wave)
            elif it.op in _MEANING and it.dtype.lanes == 1 and all(s in known for s in it.src):
                known[it] = _MEANING[it.op](*[known[s] for s in it.src])
            at += 1

    return run(0, len(code))


def _access(it: Instruction, known: dict[Instruction, Any], everyone: Any, wave: int) -> Access:
    offset = it.arg if it.op in (Op.LOAD, Op.STORE) else it.arg[0]
    moved = it.source(2).dtype if it.op is Op.STORE else it.dtype
    size = 16 if it.op is Op.LOAD_ROWS else moved.itemsize * moved.lanes
    place = 0 if it.src[1] is None else known[it.src[1]]
    start = np.zeros_like(everyone) + it.source(0).arg + (place + offset) * moved.scalar.itemsize
    condition = it.src[3] if it.op is Op.STORE and len(it.src) > 3 else None
    if it.op is Op.COPY_SHARED:
        condition = it.src[5]
    takes_part = np.zeros(len(everyone), bool) | (True if condition is None else known.get(condition, True))
    if it.op is Op.LOAD_ROWS:
        takes_part = takes_part & (everyone % wave < 2 * it.dtype.lanes * it.dtype.itemsize)
    kind = {Op.STORE: "store", Op.COPY_SHARED: "copy"}.get(it.op, "load")
    return Access(it, kind, np.where(takes_part, start, -1), size)


# -- banks ----------------------------------------------------------------------------------------------------------


def phases(vendor: str, kind: str, size: int, wave: int) -> list[Any]:
    """Lanes of a wave that are served at once."""
    if vendor == "amd" and kind == "load" and size == 16:
        firsts = [start + half for start in range(0, wave, 32) for half in (0, 8)]
        return [first + np.array(lanes) for first in firsts for lanes in READ_16]
    together = min(BANKS, LINE_BYTES // max(size, BANK_BYTES))
    return [np.arange(start, start + together) for start in range(0, wave, together)]


def conflicts(access: Access, vendor: str, wave: int) -> int:
    """Passes beyond one for each group of lanes that are served at once."""
    found = 0
    for first in range(0, len(access.start), wave):
        for lanes in phases(vendor, access.kind, access.size, wave):
            start = access.start[first + lanes]
            start = start[start >= 0]
            words = np.unique((start[:, None] + np.arange(0, access.size, BANK_BYTES)) // BANK_BYTES)
            found += max(np.bincount(words % BANKS, minlength=1).max() - 1, 0)
    return found


def bank_conflicts(program: Program, vendor: str, wave: int) -> int:
    """Those of a whole program's first block."""
    return sum(conflicts(step, vendor, wave) for step in walk(program, wave) if isinstance(step, Access))


# -- races ----------------------------------------------------------------------------------------------------------


class _Marks:
    """The lowest and the highest thread that has touched each byte."""

    def __init__(self, size: int) -> None:
        self.low, self.high = np.full(size, 1 << 30), np.full(size, -1)

    def add(self, where: Any, threads: Any) -> None:
        np.minimum.at(self.low, where, threads)
        np.maximum.at(self.high, where, threads)

    def others(self, where: Any, threads: Any) -> bool:
        """Whether another thread than this has been there."""
        return bool(((self.low[where] < threads) | (self.high[where] > threads)).any())


def race(program: Program, wave: int, block: int = 0) -> str:
    """The first race of a block of a program; "" where there is none."""
    size = program.shared_bytes
    reads, writes, flying = _Marks(size), _Marks(size), np.zeros(size, bool)
    batches: list[list[tuple[Any, Any]]] = [[]]
    for step in walk(program, wave, block):
        if isinstance(step, Instruction):
            if step.op is Op.BARRIER:
                reads, writes = _Marks(size), _Marks(size)
                for batch in batches:
                    for where, threads in batch:
                        writes.add(where, threads)
            elif step.op is Op.COMMIT:
                batches.append([])
            else:
                batches = [*batches[:-1][len(batches) - 1 - step.arg :], batches[-1]]
                flying[:] = False
                for batch in batches:
                    for where, _ in batch:
                        flying[where] = True
            continue
        (who,) = np.nonzero(step.start >= 0)
        where = (step.start[who][:, None] + np.arange(step.size)).reshape(-1)
        threads = np.repeat(who, step.size)
        if where.size and where.max() >= size:
            return f"{step.it.op.name} outside of shared memory"
        if flying[where].any():
            return f"{step.it.op.name} of what is still being copied"
        if writes.others(where, threads):
            return f"{step.it.op.name} of what another thread writes"
        if step.kind == "load":
            reads.add(where, threads)
            continue
        if reads.others(where, threads):
            return f"{step.it.op.name} of what another thread reads"
        writes.add(where, threads)
        if writes.others(where, threads):
            return f"{step.it.op.name} of one place by two threads"
        if step.kind == "copy":
            batches[-1].append((where, threads))
            flying[where] = True
    return ""


def without(program: Program, left_out: Instruction) -> Program:
    """The same program, but for one instruction."""
    rest = [it for it in program.instructions if it is not left_out]
    return Program(
        program.name,
        program.params,
        rest,
        program.scratch_bytes,
        program.groups,
        program.digits,
        program.shared_bytes,
    )
