"""Sampling chooses among the tokens it may choose, as often as their probabilities say."""

from __future__ import annotations

import math
import random
from collections import Counter
from typing import Any

import pytest

from hcq import UsageError
from hcq.frontend.more.llm.sampling import Sampler

LOGITS = [math.log(p) for p in (0.1, 0.4, 0.2, 0.25, 0.05)]


def test_temperature_zero_takes_the_likeliest_and_of_equal_ones_the_first() -> None:
    assert Sampler(temperature=0).choose(LOGITS) == 1
    assert Sampler(temperature=0).choose([1.0, 2.0, 2.0, math.nan]) == 1


def candidates(**options: Any) -> list[int]:
    plain = {"temperature": 1.0, "top_k": 0, "top_p": 1.0, "min_p": 0.0}
    return [token for token, _ in Sampler(**(plain | options)).candidates(LOGITS)]


def test_who_may_be_chosen() -> None:
    assert candidates() == [1, 3, 2, 0, 4]
    assert candidates(top_k=2) == [1, 3]
    assert candidates(top_p=0.6) == [1, 3]
    assert candidates(top_p=0.7) == [1, 3, 2]
    assert candidates(min_p=0.3) == [1, 3, 2]


def test_tokens_are_chosen_as_often_as_their_probabilities_say() -> None:
    sampler = Sampler(1.0, 0, 1.0, 0.0, seed=1)
    found = Counter(sampler.choose(LOGITS) for _ in range(4000))
    for token, logit in enumerate(LOGITS):
        assert abs(found[token] / 4000 - math.exp(logit)) < 0.03


def test_the_same_seed_chooses_the_same_tokens() -> None:
    one, other = (Sampler(seed=7) for _ in range(2))
    assert [one.choose(LOGITS) for _ in range(50)] == [other.choose(LOGITS) for _ in range(50)]


def test_a_penalty_makes_a_token_that_was_there_less_likely() -> None:
    assert Sampler(temperature=0, repetition=3.0).choose([2.0, 1.9, -1.0], [0]) == 1
    assert Sampler(temperature=0, repetition=3.0).choose([-0.5, -1.0], [0]) == 1


def test_penalties_are_taken_from_what_has_been_written() -> None:
    logits = [3.0, 2.5, 2.0]
    for options, written, expected in (
        ({"presence": 0.6}, [0], 1),
        ({"presence": 0.6}, [], 0),
        ({"presence": 0.4}, [0, 0, 0], 0),  # how often does not matter
        ({"frequency": 0.4}, [0], 0),
        ({"frequency": 0.4}, [0, 0], 1),
        ({"frequency": 0.4, "presence": 0.2}, [0, 0, 0, 1], 2),
        ({"presence": -1.1}, [2], 2),
        ({"bias": {2: 1.5}}, [], 2),
        ({"bias": {0: -100.0, 1: -100.0}}, [], 2),
    ):
        sampler = Sampler(temperature=0, **options)  # type: ignore[arg-type]
        assert sampler.choose(logits, [0, 0, 0], written) == expected, (options, written)


def test_a_temperature_close_to_zero_chooses_the_likeliest() -> None:
    sampler = Sampler(temperature=1e-3, seed=0)
    assert {sampler.choose([5.0, 9.0, -math.inf]) for _ in range(20)} == {1}


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_logits_that_are_no_numbers_are_refused(temperature: float) -> None:
    with pytest.raises(UsageError, match="damaged"):
        Sampler(temperature=temperature).choose([math.nan, math.nan])


@pytest.mark.parametrize(
    "options", [{"temperature": -1}, {"top_p": 0}, {"min_p": 2}, {"repetition": 0}, {"top_k": -1}]
)
def test_switches_that_mean_nothing_are_refused(options: Any) -> None:
    with pytest.raises(UsageError, match=r"\[llm\]"):
        Sampler(**options)


@pytest.mark.parametrize("seed", range(20))
def test_candidates_are_those_of_the_definition(seed: int) -> None:
    draw = random.Random(seed)
    logits = [
        draw.choice([draw.gauss(0, 3), float(draw.randint(-2, 2)), -math.inf, math.nan]) for _ in range(30)
    ]
    k, top_p, min_p = draw.choice([0, 1, 7, 40]), draw.choice([0.3, 0.9, 1.0]), draw.choice([0.0, 0.05, 0.5])
    numbers = [(-math.inf if math.isnan(logit) else logit, -token) for token, logit in enumerate(logits)]
    order = [-token for _, token in sorted(numbers, reverse=True)][: k or 30]
    weights = [math.exp(logits[token] / 1.5) if logits[token] > -math.inf else 0.0 for token in order]
    shares = [weight / sum(weights) for weight in weights]
    expected = [
        (token, share)
        for i, (token, share) in enumerate(zip(order, shares, strict=True))
        if i == 0 or (sum(shares[:i]) < top_p and share >= min_p * shares[0])
    ]
    whole = sum(share for _, share in expected)
    found = Sampler(1.5, k, top_p, min_p).candidates(logits)
    assert [token for token, _ in found] == [token for token, _ in expected]
    assert [share for _, share in found] == pytest.approx([share / whole for _, share in expected])
