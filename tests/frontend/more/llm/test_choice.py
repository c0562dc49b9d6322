"""A choice gives out text with the tokens that begin in it, whatever characters they are parts of."""

from __future__ import annotations

import pytest

from hcq.frontend.more.llm.answers import Choice, Piece
from hcq.frontend.more.llm.chances import chance_of
from tests.frontend.more.llm import alphabet


def fed(choice: Choice, content: bytes) -> list[tuple[str, list[int]]]:
    pieces = [choice.feed(byte) for byte in content]
    return [(piece.text, [one.offset for one in piece.tokens]) for piece in pieces]


def test_parts_of_a_character_are_told_with_it() -> None:
    choice = Choice(alphabet.tokenizer(), [], False)
    assert fed(choice, "aé€".encode()) == [
        ("a", [0]),
        ("", []),
        ("é", [1, 1]),
        ("", []),
        ("", []),
        ("€", [2, 2, 2]),
    ]
    assert fed(choice, b"\xe2") == [("", [])]
    assert choice.end("length").text == "\ufffd" and choice.why == "length" and choice.count == 7


def test_tokens_are_held_back_with_text_that_may_become_a_stop() -> None:
    choice = Choice(alphabet.tokenizer(), ["END"], False)
    assert fed(choice, b"aENb") == [("a", [0]), ("", []), ("", []), ("ENb", [1, 2, 3])]
    assert fed(choice, b"cEND") == [("c", [4]), ("", []), ("", []), ("", [])]
    assert choice.why == "stop"
    held = Choice(alphabet.tokenizer(), ["END"], False)
    assert fed(held, b"EN") == [("", []), ("", [])]
    assert [one.token for one in held.end("length").tokens] == [*b"EN"]


def test_a_special_token_is_told_and_has_no_text() -> None:
    choice = Choice(alphabet.tokenizer(), [], False)
    assert choice.feed(256) == Piece("", [])
    assert [one.token for one in choice.feed(ord("a")).tokens] == [256, ord("a")]


def test_the_space_that_begins_an_answer_is_dropped_once() -> None:
    choice = Choice(alphabet.tokenizer(), [], True)
    assert fed(choice, b" a b") == [("", []), ("a", [0, 0]), (" ", [1]), ("b", [2])]


def test_chances_add_up_to_one_and_infinite_logits_are_certain() -> None:
    inf, nan = float("inf"), float("nan")
    assert chance_of([1.0, inf, -inf, nan], 1, 2).likeliest == [(1, 0.0), (0, -inf)]
    logits = [0.3, -2.0, 700.0, 699.0]
    from math import exp

    assert sum(exp(one) for _, one in chance_of(logits, 0, 4).likeliest) == pytest.approx(1)
