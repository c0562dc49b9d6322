"""Batch: several sequences that a model writes together, each of which may join and leave between any two tokens.

In       a model; prompts, each with its sampler
Out      tokens, as they are chosen, and why a sequence ended
Changes  the batch's memory of keys and values
Next     memory.py (what a sequence sees), session.py (one alone), engine.py (who runs it for others)

A step reads a piece of one prompt, if one waits, and writes one token of every sequence whose prompt is read, so that
weights are read once for all of them; one that writes alone costs no more than in a session. All three are recorded
once, for all sequences and lengths. A slot that has no sequence takes part with a token that is written where its next
one will be. So nothing of the others changes when one joins or leaves, and each writes what it writes alone. A sequence
begins with what a slot still has of its prompt.
"""

from __future__ import annotations

from collections.abc import Sequence

from hcq.frontend.core.errors import UsageError
from hcq.frontend.more.llm.chances import Chance, chance_of
from hcq.frontend.more.llm.memory import Memory, Piece, Step
from hcq.frontend.more.llm.model import Model
from hcq.frontend.more.llm.sampling import Sampler
from hcq.frontend.more.llm.session import PIECE, checked_tokens, common, recorded
from hcq.frontend.symbolic.variable import Variable
from hcq.frontend.tensor import Tensor
from hcq.ir.dtype import dtypes


class Written:
    """A sequence in a batch.

    prompt   tokens that it goes on from
    tokens   those it has written
    ending   "" while it goes on; "end" after a token that ends texts, "length" where it has as many as it may, "error"
             where nothing can be chosen, which `error` tells
    reused   how many tokens of the prompt were there from the slot's last sequence
    chances  of the tokens it has written, each with so many likeliest ones as were asked for
    """

    def __init__(
        self,
        prompt: Sequence[int],
        sampler: Sampler,
        most: int,
        ends: frozenset[int],
        likeliest: int | None = None,
    ):
        self.prompt = list(prompt)
        self.sampler = sampler
        self.most = most
        self.ends = ends
        self.likeliest = likeliest
        self.tokens: list[int] = []
        self.chances: list[Chance] = []
        self.ending = self.error = ""
        self.reused = 0
        self.slot = -1


class _Slot:
    """Room for a sequence. kept: the tokens whose keys and values are in memory, also after the sequence left."""

    def __init__(self) -> None:
        self.kept: list[int] = []
        self.written: Written | None = None
        self.used = 0  # the batch's step in which a sequence joined last

    @property
    def is_reading(self) -> bool:
        return self.written is not None and len(self.kept) < len(self.written.prompt)


class Batch:
    """Sequences that are written together.

    slots  how many at most
    room   for how many tokens each, prompt included; no more than the model was trained for
    """

    def __init__(self, model: Model, slots: int, room: int = 0, device: str | None = None):
        c = model.configuration
        if slots < 1 or room < 0:
            raise UsageError(
                f"[llm] a batch of {slots} slots for {room} tokens: give at least one, and 0 or more."
            )
        self.model = model
        self.room = room = min(room or 2048, c.context)
        # what is read may end behind the last token of a prompt, by less than a piece
        self._memory = memory = Memory(c, model.weights, (-(-room // PIECE) + 1) * PIECE, slots, device)
        self._slots = [_Slot() for _ in range(slots)]
        self._longest = Variable("longest", 1, room)
        self._end = Variable("piece_end", PIECE, memory.room)
        self._slot = Variable("slot", 0, slots - 1)
        self._last = Variable("last", 0, PIECE - 1)
        self._device = device
        self._steps = 0
        self.slots = slots

        self._write = recorded(model, memory, lambda places, longest: Step(memory, places, longest))
        self._write_alone = recorded(model, memory, lambda count, slot: Piece(memory, 1, count, slot))
        self._read = recorded(model, memory, lambda *where: Piece(memory, PIECE, *where))

    @property
    def free(self) -> int:
        """How many sequences may join."""
        return sum(slot.written is None for slot in self._slots)

    @property
    def active(self) -> list[Written]:
        """The sequences that are there."""
        return [slot.written for slot in self._slots if slot.written is not None]

    def join(
        self,
        prompt: Sequence[int],
        sampler: Sampler,
        most: int,
        ends: frozenset[int],
        likeliest: int | None = None,
    ) -> Written:
        """A sequence that goes on from a prompt, from the next step on.

        most       how many tokens at most; fewer where there is no more room
        ends       tokens after which nothing follows; they are not given out
        likeliest  of how many tokens the chance is told in `chances` beside that of each which is chosen; None for none
        Raises     UsageError where no slot is free, for a prompt that has no room, for numbers that are no tokens
        """
        checked_tokens(prompt, self.model.configuration.vocabulary)
        if most < 1 or len(prompt) + 1 > self.room:
            raise UsageError(
                f"[llm] {len(prompt)} tokens, and {most} to write: there is room for {self.room}. Write at least one, "
                "shorten the text, or make a batch with more room."
            )
        free = [slot for slot in self._slots if slot.written is None]
        if not free:
            raise UsageError(f"[llm] all {len(self._slots)} slots are taken. Wait until one leaves.")
        made = Written(prompt, sampler, most, ends, likeliest)
        # the slot that has most of the prompt; of those with as much, the one that was used least recently
        slot = max(free, key=lambda slot: (common(slot.kept, made.prompt), -slot.used))
        # of a prompt, at least the last token is read: its logits are wanted
        made.reused = min(common(slot.kept, made.prompt), len(made.prompt) - 1)
        slot.kept = slot.kept[: made.reused]
        slot.written = made
        made.slot = self._slots.index(slot)
        self._steps += 1
        slot.used = self._steps
        return made

    def leave(self, written: Written) -> None:
        """A sequence ends here; one that has left may leave again."""
        if self._slots[written.slot].written is written:
            self._slots[written.slot].written = None

    def forget(self) -> None:
        """All leave, and nothing that is in memory is used again."""
        for slot in self._slots:
            slot.written = None
            slot.kept = []

    def step(self) -> list[Written]:
        """One token of every sequence whose prompt is read, and a piece of one prompt. Returns the ones that have one
        more token, or have ended, which have left then."""
        told: list[Written] = []
        writing = [slot for slot in self._slots if slot.written is not None and not slot.is_reading]
        reading = min((slot for slot in self._slots if slot.is_reading), key=lambda s: s.used, default=None)
        if len(writing) == 1:
            self._write_of_one(writing[0], told)
        elif writing:
            self._write_of_all(writing, told)
        if reading is not None:
            self._read_piece(reading, told)
        return told

    def _write_of_one(self, slot: _Slot, told: list[Written]) -> None:
        assert slot.written is not None
        token = slot.written.tokens[-1]
        bound = self._slot.bind(self._slots.index(slot))
        found = self._write_alone(self._tensor([token]), self._longest.bind(len(slot.kept) + 1), bound)
        logits = found.as_memoryview().tolist()
        slot.kept.append(token)
        self._choose(slot, logits, told)

    def _write_of_all(self, writing: list[_Slot], told: list[Written]) -> None:
        tokens = [0] * len(self._slots)
        places = [len(slot.kept) for slot in self._slots]
        for slot in writing:
            assert slot.written is not None
            tokens[self._slots.index(slot)] = slot.written.tokens[-1]
        longest = max(len(slot.kept) for slot in writing) + 1
        found = self._write(self._tensor(tokens), self._tensor(places), self._longest.bind(longest))
        logits, size = found.as_memoryview(), self.model.configuration.vocabulary
        for slot in writing:
            assert slot.written is not None
            slot.kept.append(slot.written.tokens[-1])
            at = self._slots.index(slot) * size
            self._choose(slot, logits[at : at + size].tolist(), told)

    def _read_piece(self, slot: _Slot, told: list[Written]) -> None:
        assert slot.written is not None
        start, prompt = len(slot.kept), slot.written.prompt
        now = prompt[start : start + PIECE]
        found = self._read(
            self._tensor(now + now[-1:] * (PIECE - len(now))),
            self._end.bind(start + PIECE),
            self._slot.bind(self._slots.index(slot)),
            self._last.bind(len(now) - 1),
        )
        slot.kept += now
        if len(slot.kept) == len(prompt):
            self._choose(slot, found.as_memoryview().tolist(), told)

    def _choose(self, slot: _Slot, logits: Sequence[float], told: list[Written]) -> None:
        written = slot.written
        assert written is not None
        try:
            token = written.sampler.choose(logits, slot.kept, written.tokens)
        except UsageError as error:
            # what is no number in memory would reach who comes next, multiplied by 0 as it is
            written.ending, written.error = "error", str(error)
            self._memory.clear(written.slot)
            slot.kept = []
        else:
            if token in written.ends:
                written.ending = "end"
            else:
                if written.likeliest is not None:
                    written.chances.append(chance_of(logits, token, written.likeliest))
                written.tokens.append(token)
                if len(written.tokens) == written.most or len(slot.kept) + 1 >= self.room:
                    written.ending = "length"
        if written.ending:
            slot.written = None
        told.append(written)

    def _tensor(self, numbers: list[int]) -> Tensor:
        return Tensor(numbers, device=self._device, dtype=dtypes.int32).realize()
