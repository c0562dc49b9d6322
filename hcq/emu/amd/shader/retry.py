"""Retry loops: a block that waves run again and again around one compare-and-swap, until it has succeeded in all lanes.

In       a block, the batch that is about to run it once more
Out      whether the block has been run, with as many lanes leaving the loop as could be foreseen
Changes  memory and the batch, as one more round of the loop does
Next     machine.py (who asks), hcq/emu/shader/contended_atomics.py (what is guessed), waves.py (how a batch's
         atomics are answered)

Of n lanes at an address one succeeds in a round. With what all lanes have found so far, a running sum, product or
maximum says what each would find if they came one after the other. The block itself is run to check that, on a copy,
with the guess as the answer of its atomic: as far as each lane then stores what the next one was guessed to find, the
guess is the result of an order that a GPU may choose.

What the last round has found is in registers that the next one starts with. They are looked for by answering with a
value that nobody expects. Other registers that a round changes must not matter to the next: it is run with noise there.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import numpy as np

from hcq.emu.amd.shader.arrays import Array
from hcq.emu.amd.shader.atomic_ops import Atomic
from hcq.emu.amd.shader.errors import PageFault
from hcq.emu.amd.shader.isa import Instruction
from hcq.emu.amd.shader.operands import Step
from hcq.emu.amd.shader.waves import EXEC, Batch
from hcq.emu.shader import contended_atomics

LONG_QUEUE = 32  # lanes at one address that are worth the trouble
UNEXPECTED = 0x5A17_C0DE_93B5_6E21  # bits that the answer differs in from what is expected
# what such a block may do besides its atomic: nothing between lanes, no scalar arithmetic but on masks
SWAP = re.compile(r"(global|flat|buffer)_atomic_cmpswap")
QUIET = re.compile(
    r"v_(?!readlane|readfirstlane|writelane|permlane|mbcnt|swaprel|movrel|interp)"
    r"|s_(and|or|xor|mov|not|andn2|orn2|and_not1|or_not1)_b(32|64)"
    r"|s_(nop|waitcnt|wait_|delay_alu|clause|sleep)|(buffer|global)_(gl[012]_inv|inv|wbl2|wb)"
)


def is_retry_loop(instructions: list[Instruction], start: int, target: int) -> bool:
    """Whether a block that ends with a branch is one.

    start, target  its address; where it branches while EXEC is not 0
    """
    swaps = [one for one in instructions if SWAP.match(one.name)]
    return (
        target == start
        and len(swaps) == 1
        and all(one in swaps or (QUIET.match(one.name) and one.dpp is None) for one in instructions)
    )


class Answer:
    """Answers a batch's atomics from outside, and notes what was asked. found: by lane, or None for the unexpected."""

    def __init__(self, found: Array | None = None) -> None:
        self.found = found
        self.calls = 0
        self.addresses = self.new = self.compare = np.zeros(0, np.uint64)
        self.store: Any = None

    def __call__(self, store: Any, atomic: Atomic, addresses: Array, new: Array, compare: Array) -> Array:
        self.calls += 1
        self.store, self.addresses, self.new, self.compare = store, addresses, new, compare
        if self.found is None:
            self.found = compare ^ compare.dtype.type(UNEXPECTED & np.iinfo(compare.dtype).max)
        return self.found

    def is_same(self, other: Answer) -> bool:
        """Whether the same was asked."""
        pairs = (self.addresses, other.addresses), (self.new, other.new), (self.compare, other.compare)
        return all(np.array_equal(mine, its) for mine, its in pairs)


def foresee(steps: list[Step], b: Batch) -> bool:
    """Run a round in which all lanes succeed of which that can be foreseen. False: of none; nothing is done."""
    if int(np.count_nonzero(b.lanes)) < LONG_QUEUE:
        return False
    try:
        loop = _Loop(steps, b)
        return loop.is_simple() and loop.serve()
    except PageFault:
        return False  # the block itself reports it


class _Loop:
    """A round that is about to begin."""

    def __init__(self, steps: list[Step], b: Batch) -> None:
        self.steps, self.b = steps, b
        self.asked = Answer()
        self.failed = self.round(self.copy(), self.asked)
        self.carried: dict[int, int] = {}  # register -> which word of what was found last it holds

    def copy(self) -> Batch:
        """The batch, to be spoilt."""
        return self.b.take(np.arange(self.b.waves))

    def round(self, b: Batch, answer: Answer) -> Batch:
        """Run the block's steps on a batch, its atomic answered so."""
        b.answer = answer
        try:
            for step in self.steps:
                step(b)
        finally:
            b.answer = None
        return b

    # -- is it understood?

    def is_simple(self) -> bool:
        """Whether the only thing that goes from round to round is what was found last."""
        b, asked, failed = self.b, self.asked, self.failed
        if asked.calls != 1 or asked.store is not b.residents.memory or asked.new.dtype.kind != "u":
            return False
        if len(asked.addresses) != int(np.count_nonzero(b.lanes)) or not np.array_equal(
            failed.lanes, b.lanes
        ):
            return False
        expected, answered = _words(asked.compare), _words(asked.found)
        changed = []
        for register in range(len(b.u32)):
            before, after = b.u32[register][b.lanes], failed.u32[register][b.lanes]
            if np.array_equal(before, after):
                continue
            for word in range(len(expected)):
                if np.array_equal(before, expected[word]) and np.array_equal(after, answered[word]):
                    self.carried[register] = word
                    break
            else:
                changed.append(register)
        return bool(self.carried) and self._ignores(changed)

    def _ignores(self, changed: list[int]) -> bool:
        """Whether noise in these registers, and in scalars that changed, makes no difference to a round."""
        noisy = self.copy()
        noise = np.random.default_rng(1)
        for register in changed:
            noisy.u32[register][self.b.lanes] = noise.integers(0, 1 << 32, len(self.asked.new), np.uint32)
        scalars = (self.failed.s != self.b.s).any(axis=0)
        scalars[EXEC:] = False
        noisy.s[:, scalars] = self.failed.s[:, scalars]
        again = Answer()
        noisy = self.round(noisy, again)
        lanes = self.b.lanes
        return (
            again.calls == 1
            and again.is_same(self.asked)
            and np.array_equal(noisy.u32[:, lanes], self.failed.u32[:, lanes])
            and np.array_equal(noisy.s, self.failed.s)
        )

    # -- and served

    def serve(self) -> bool:
        """Guess what the lanes of each address find, check it, and let those leave for which it is true."""
        asked = self.asked
        queues = contended_atomics.Queues(asked.addresses)
        if len(queues.starts) > contended_atomics.FEW_ADDRESSES or int(queues.counts.max()) < LONG_QUEUE:
            return False
        firsts, bits = asked.addresses[queues.firsts], asked.new.dtype
        memory = asked.store.update(firsts, bits, lambda old: old)
        if not np.array_equal(asked.compare[queues.order], memory[queues.places]):
            return False  # not all have seen yet what stands there
        best = _Foreseen(np.zeros(len(asked.new), bool), asked.compare, memory)
        for seen, left in self._guesses(queues, memory):
            checked = self._check(queues, seen, left, memory)
            if np.count_nonzero(checked.succeeds) > np.count_nonzero(best.succeeds):
                best = checked
            if best.succeeds.all():
                break
        if not best.succeeds.any() or (~best.succeeds & (best.found == asked.compare)).any():
            return False
        self._carry(self.b, np.where(best.succeeds, best.found, asked.compare))
        self.round(self.b, Answer(best.found))
        asked.store.update(firsts, bits, lambda old: best.at_the_end)
        return True

    def _guesses(self, queues: contended_atomics.Queues, memory: Array) -> Iterator[tuple[Array, Array]]:
        """(what each lane finds, what it leaves), the same kind of guess for all addresses."""
        order, starts, counts = queues.order, queues.starts, queues.counts
        runs = [order[start : start + count] for start, count in zip(starts, counts)]
        each = [
            contended_atomics.guesses(memory[place : place + 1], self.asked.new[run], self._operands(run))
            for place, run in enumerate(runs)
        ]
        for guess in zip(*each):
            seen, left = np.empty_like(self.asked.new), np.empty_like(self.asked.new)
            for run, values in zip(runs, guess):
                seen[run], left[run] = values[:-1], values[1:]
            yield seen, left

    def _operands(self, run: Array) -> Iterator[Array]:
        """Registers as numbers of the atomic's size, of these lanes."""
        words = self.asked.new.itemsize // 4
        for register in range(len(self.b.u32) - words + 1):
            parts = [self.b.u32[register + word][self.b.lanes][run] for word in range(words)]
            yield parts[0] if words == 1 else np.stack(parts, axis=1).view(self.asked.new.dtype)[:, 0]

    def _check(self, queues: contended_atomics.Queues, seen: Array, left: Array, memory: Array) -> _Foreseen:
        """For which lanes a guess is true: all those of their address before them included."""
        tried, answer = self.copy(), Answer(seen)
        self._carry(tried, seen)
        tried = self.round(tried, answer)
        is_true = (answer.compare == seen) & (answer.new == left) & ~tried.lanes[self.b.lanes]
        succeeds = np.zeros(len(seen), bool)
        found, at_the_end = seen.copy(), memory.copy()
        for place, (start, count) in enumerate(zip(queues.starts, queues.counts)):
            run = queues.order[start : start + count]
            good = count if is_true[run].all() else int(is_true[run].argmin())
            succeeds[run[:good]] = True
            if good:
                at_the_end[place] = left[run[good - 1]]
            found[run[good:]] = at_the_end[place]
        return _Foreseen(succeeds, found, at_the_end)

    def _carry(self, b: Batch, found: Array) -> None:
        """Let a batch begin its round with this as what its lanes have found last."""
        words = _words(found)
        for register, word in self.carried.items():
            b.u32[register][self.b.lanes] = words[word]


class _Foreseen:
    """Which lanes succeed, what each finds, what stands at each address when they have."""

    def __init__(self, succeeds: Array, found: Array, at_the_end: Array) -> None:
        self.succeeds, self.found, self.at_the_end = succeeds, found, at_the_end


def _words(values: Array | None) -> Array:
    """(words, n) of (n,) numbers of 32 or 64 bits."""
    assert values is not None
    return np.ascontiguousarray(np.ascontiguousarray(values).view(np.uint32).reshape(len(values), -1).T)
