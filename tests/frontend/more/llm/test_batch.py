"""Sequences in a batch write what they write alone, whoever joins and leaves, and each step is one recording."""

from __future__ import annotations

import math
import random
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from hcq import Tensor, UsageError
from hcq.frontend.more.llm.batch import Batch, Written
from hcq.frontend.more.llm.configuration import Configuration
from hcq.frontend.more.llm.model import Model
from hcq.frontend.more.llm.sampling import Sampler
from hcq.frontend.more.llm.session import PIECE, Session
from tests.frontend.more.llm.test_model import LLAMA, recordings_of, weights_of

NONE: frozenset[int] = frozenset()
GPT2 = Configuration(
    "gpt2", 97, 32, 2, 4, 4, 8, 64, 100, 1e-5, False, "gelu_tanh", True, rotary_base=0.0
)  # fmt: skip
WINDOW = replace(LLAMA, window=5, windowed=(True, False), attention_cap=20.0, cap=10.0)


def made(configuration: Configuration = LLAMA, seed: int = 0) -> Model:
    weights = weights_of(configuration, seed)
    return Model(configuration, {name: Tensor(array) for name, array in weights.items()})


def greedy() -> Sampler:
    return Sampler(temperature=0)


def alone(session: Session, prompt: list[int], most: int) -> list[int]:
    session.cut()
    return list(session.write(prompt, greedy(), most, NONE))


def random_prompt(draw: random.Random, length: int) -> list[int]:
    return [draw.randrange(97) for _ in range(length)]


def finished(batch: Batch) -> None:
    for _ in range(1000):
        if not batch.active:
            return
        batch.step()
    pytest.fail("the batch goes on for ever")


def law(configuration: Configuration, seed: int, requests: int, lengths: int, most: int) -> None:
    """Requests join at random steps, and some leave early; each has written what it writes alone."""
    draw, model = random.Random(seed), made(configuration, seed)
    session = Session(model, 100)
    batch, there = Batch(model, 3, 100), list[tuple[Written, int]]()
    waiting = [
        (random_prompt(draw, draw.randint(1, lengths)), draw.randint(1, most)) for _ in range(requests)
    ]
    # one that begins as another did, to find what is left of it
    waiting.append((waiting[0][0] + [5, 6], most))
    while waiting or batch.active:
        if waiting and batch.free and draw.random() < 0.5:
            prompt, count = waiting.pop(0)
            there.append((batch.join(prompt, greedy(), count, NONE), count))
        batch.step()
        if batch.active and draw.random() < 0.05:
            batch.leave(draw.choice(batch.active))
    left = 0
    for written, count in there:
        expected = alone(session, written.prompt, count)
        left += len(written.tokens) < count
        assert written.tokens == expected[: len(written.tokens)], (written.prompt, expected)
        assert written.ending == ("length" if len(written.tokens) == count else "")
    assert left < len(there)


def test_sequences_that_join_and_leave_write_what_they_write_alone() -> None:
    law(replace(LLAMA, depth=1), 0, 3, 40, 6)


@pytest.mark.thorough
@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize("configuration", [LLAMA, GPT2, WINDOW], ids=["llama", "gpt2", "windows"])
def test_sequences_write_what_they_write_alone_for_more_of_them(
    configuration: Configuration, seed: int
) -> None:
    law(configuration, seed, 6, 80, 12)


@pytest.mark.thorough
def test_a_batch_has_three_recordings_for_every_length_and_slot() -> None:
    batch = Batch(made(), 4, 100)
    for length in (3, PIECE, PIECE + 5, 70):
        batch.join(list(range(length)), greedy(), 8, NONE)
        batch.step()
    finished(batch)
    batch.join([1, 2], greedy(), 5, NONE)
    finished(batch)
    for recorded in (batch._write, batch._write_alone, batch._read):
        assert recordings_of(recorded) == 1


@pytest.mark.thorough
def test_a_prompt_that_goes_on_from_the_last_one_is_not_read_again() -> None:
    model = made()
    session = Session(model, 100)
    batch = Batch(model, 2, 100)
    first = batch.join([4, 8, 15], greedy(), 4, NONE)
    finished(batch)
    longer = [4, 8, 15, *first.tokens, 16, 23]
    second = batch.join(longer, greedy(), 4, NONE)
    finished(batch)
    # the last token that was written was not read any more
    assert second.slot == first.slot and second.reused == 6
    assert second.tokens == alone(session, longer, 4)
    again = batch.join(longer, greedy(), 4, NONE)
    finished(batch)
    assert again.reused == len(longer) - 1 and again.tokens == second.tokens


@pytest.mark.thorough
def test_a_sequence_ends_where_there_is_no_more_room_and_at_tokens_that_end() -> None:
    model = made()
    expected = alone(Session(model, 12), [1, 2, 3], 50)
    assert len(expected) == 9
    batch = Batch(model, 1, 12)
    written = batch.join([1, 2, 3], greedy(), 50, NONE)
    finished(batch)
    assert written.tokens == expected and written.ending == "length"
    end = expected[4]
    written = batch.join([1, 2, 3], greedy(), 50, frozenset({end}))
    finished(batch)
    assert written.tokens == expected[: expected.index(end)] and written.ending == "end"


@pytest.mark.thorough
def test_a_sequence_that_nothing_can_be_chosen_for_ends_alone() -> None:
    w: dict[str, Any] = weights_of(LLAMA)
    w["embedding"] = w["embedding"].copy()
    w["embedding"][50] = math.nan
    w["head"] = weights_of(LLAMA, 1)["embedding"]
    model = Model(LLAMA, {name: Tensor(array) for name, array in w.items()})
    session, batch = Session(model, 40), Batch(model, 2, 40)
    well, ill = batch.join([1, 2], greedy(), 6, NONE), batch.join([3, 50], greedy(), 6, NONE)
    finished(batch)
    assert ill.ending == "error" and "damaged" in ill.error
    assert well.ending == "length" and well.tokens == alone(session, [1, 2], 6)
    after = batch.join([3], greedy(), 6, NONE)
    other = batch.join([1, 2, 3], greedy(), 6, NONE)
    finished(batch)
    assert after.tokens == alone(session, [3], 6) and other.ending == "length"


def test_a_batch_says_what_it_cannot_take() -> None:
    model = made()
    batch = Batch(model, 1, 8)
    for prompt, most, why in (
        ([], 1, "no tokens"),
        ([97], 1, "token 97"),
        ([1] * 8, 1, "room for 8"),
        ([1], 0, "0 to write"),
    ):
        with pytest.raises(UsageError, match=why):
            batch.join(prompt, greedy(), most, NONE)
    batch.join([1], greedy(), 1, NONE)
    with pytest.raises(UsageError, match="all 1 slots are taken"):
        batch.join([1], greedy(), 1, NONE)
    with pytest.raises(UsageError, match="batch of 0 slots"):
        Batch(model, 0)


@pytest.mark.thorough
def test_tokens_of_a_batch_have_the_logits_of_a_session() -> None:
    """Not only the likeliest token is the same: all logits are, within what sums in another order differ by."""
    model = made()

    class Keeping(Sampler):
        def choose(self, logits: Any, before: Any = (), written: Any = ()) -> int:
            self.seen = [*getattr(self, "seen", ()), list(logits)]
            return super().choose(logits, before, written)

    samplers = [Keeping(temperature=0) for _ in range(2)]
    batch = Batch(model, 2, 60)
    prompts = [list(range(40)), [7, 8]]
    written = [batch.join(p, s, 4, NONE) for p, s in zip(prompts, samplers, strict=True)]
    finished(batch)
    for prompt, sampler, one in zip(prompts, samplers, written, strict=True):
        session = Session(model, 60)
        expected = [session.read(prompt).tolist()]
        expected += [session.read([token]).tolist() for token in one.tokens[:-1]]
        np.testing.assert_allclose(sampler.seen, expected, atol=2e-5)
