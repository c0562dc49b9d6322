"""Long queues at a compare-and-swap loop: guess what every thread finds, check all guesses at once, keep what is true.

In       the block of a retry loop; the threads of one address in order, and what stands there
Out      how many of them are done, what each of them found
Changes  nothing; retry.py writes memory and registers
Next     retry.py (who asks), hcq/emu/shader/contended_atomics.py (the same for single atomics)

What thread k finds is what thread k - 1 has left, so one would have to come after the other. But loops are written to
add, to multiply, to take the larger of two: with the block's operands a running sum, product or maximum says what all
of them find. A guess is only a guess: the block's own steps compute what each thread would store if it were true, and
only as far as that is what the next one was guessed to find, it is.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from hcq.emu.nv.shader.batch import Batch
from hcq.emu.nv.shader.decode import Code, Registers, Step, Write
from hcq.emu.nv.shader.groups import Group
from hcq.emu.nv.shader.types import SIXTEEN_BYTES, TYPES, Lanes, Type
from hcq.emu.shader import contended_atomics


class Swap(NamedTuple):
    """A loop's compare-and-swap: which slots it compares, stores and returns, and the one that goes round with it.

    steps     the block's steps before and after it
    old       the register that holds what the thread found last, at the start of a round
    operands  inputs that could be what is added, multiplied, ...
    """

    before: list[Step]
    after: list[Step]
    compare: int
    new: int
    write: Write
    old: int
    operands: list[int]
    type: Type
    guard: int
    wanted: bool

    def evaluate(self, registers: Registers, group: Group, seen: Lanes) -> tuple[Lanes, Lanes]:
        """A round of all threads in which each finds `seen`: (what each stores, whether it succeeds and leaves)."""
        registers[self.old] = seen
        for step in self.before:
            step(registers, group)
        compare, new = registers[self.compare], registers[self.new]
        self.write(registers, group, seen)
        for step in self.after:
            step(registers, group)
        leaves = (registers[self.guard] != self.wanted) & (compare == seen)
        return np.broadcast_to(new, seen.shape), np.broadcast_to(leaves, seen.shape)

    def run(self, registers: Registers, batch: Batch, first: int) -> tuple[Registers, Lanes]:
        """The threads of `batch`, all at one address where `first` stands.

        Returns registers, and what each thread finds with what the last one leaves, for those of which it is certain:
        (n + 1,) for the first n threads; fewer than two values when nothing is.
        """
        group = Group(batch, None, batch.count)
        group.is_whole = True
        start = np.full(1, first, self.type.bits)
        together = list(registers)
        stored, _ = self.evaluate(together, group, start.repeat(batch.count))
        best: tuple[Registers, Lanes] = registers, start
        operands = (registers[slot] for slot in self.operands)
        addends = (value.repeat(batch.count) if len(value) == 1 else value for value in operands)
        for guess in contended_atomics.guesses(start, stored, addends):
            mine = list(registers)
            new, leaves = self.evaluate(mine, group, guess[:-1])
            is_true = leaves & (new == guess[1:])
            count = batch.count if is_true.all() else int(is_true.argmin())
            if count >= len(best[1]):
                best = mine, guess[: count + 1]
            if count == batch.count:
                break
        return best


def swap_of(
    code: Code, steps: list[Step], at: int, inputs: list[int], outputs: list[int], guard: int, wanted: bool
) -> Swap | None:
    """The compare-and-swap of a loop whose only state is what it found; None when it is none.

    at  the atomic's place in steps
    """
    if not code.flag("cas"):
        return None
    type_ = code.type(*TYPES)
    if type_.bits is SIXTEEN_BYTES:
        return None  # there is no arithmetic to guess with
    first = code.lowering.decoded.first
    carried = [slot for slot in outputs if slot in inputs]
    if len(carried) != 1 or first[carried[0]].dtype.type != type_.bits:
        return None
    operands = [slot for slot in inputs if slot not in carried and first[slot].dtype.type == type_.bits]
    return Swap(
        steps[:at],
        steps[at + 1 :],
        code.slot(code.operands[2], type_),
        code.slot(code.operands[3], type_),
        code.writer(code.destination(code.operands[0], type_)),
        carried[0],
        operands,
        type_,
        guard,
        wanted,
    )
