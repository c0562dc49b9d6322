"""Patterns match what Python's and Oniguruma's match, in steps that grow with the text alone."""

from __future__ import annotations

import json
import random
import re
from pathlib import Path
from typing import Any

import pytest

from hcq import UsageError
from hcq.frontend.more.llm.merging import merged
from hcq.frontend.more.llm.splitting import HARMLESS, Pattern, splitter, splitter_of_json
from hcq.frontend.more.llm.tokenizer_files import of_folder
from tests.frontend.more.llm.test_hostile import JSON
from tests.frontend.more.llm.test_tokenizer import TEXTS

# GPT-4o's
O200K = (
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|"
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}|"
    r" ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
# what has been taken is never given back, as in GPT-4's
CL100K = r"'(?i:[sdmt]|ll|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}| ?[^\s\p{L}\p{N}]++[\r\n]*+|\s*[\r\n]|\s+(?!\S)|\s"
ATTACKS = [
    (r"(a+)+b", "a" * 300),
    (r"(a|a)*b", "a" * 300),
    (r"(a|aa)+b", "a" * 300),
    (r"(?:a*a*a*a*a*)x", "a" * 300),
    (r"(.*)(.*)(.*)(.*)(.*)[^\s\S]", "xy" * 150),
    (r"\s*x|\s", " " * 300),
    (r"a*?a*?a*?b", "a" * 300),
    (r"(?:\p{L}+\s?)+!", "word " * 60),
    (r"(?i:(a|A)+)+(?!\S)b", "aA" * 150),
]  # fmt: skip


def words(pattern: str, text: str) -> list[str]:
    return [text[begin:end] for begin, end in Pattern(pattern).matches(text)]


@pytest.mark.parametrize("pattern", HARMLESS, ids=["gpt2", "llama3", "qwen2"])
def test_patterns_that_are_known_split_the_same_either_way(pattern: str) -> None:
    draw = random.Random(0)
    letters = "aB1 \n\r\t'sS.é½日\u0301🙂"
    texts = [*TEXTS, *("".join(draw.choices(letters, k=40)) for _ in range(40))]
    for text in texts:
        assert words(pattern, text) == splitter(pattern)(text), text


@pytest.mark.parametrize(
    "seed", [*range(8), *[pytest.param(seed, marks=pytest.mark.thorough) for seed in range(8, 30)]]
)
def test_random_patterns_match_what_pythons_match(seed: int) -> None:
    draw = random.Random(seed)

    def made(depth: int) -> str:
        kind = draw.choice("ccccgars" if depth else "ccc")
        if kind == "c":
            return draw.choice(["a", "b", "[ab]", "[^a]", r"\s", "(?:ab|b)", ".", "[a-b ]", r"\.", r"[^\s.]"])
        if kind == "g":
            return f"(?:{made(depth - 1)}|{made(depth - 1)})"
        if kind == "r":
            return f"(?:a{made(depth - 1)}){draw.choice(['*', '+', '?', '{2}', '{1,3}', '{2,}', '*?', '+?', '??'])}"
        if kind == "s":
            return made(depth - 1) + draw.choice(["(?!a)", "(?=b)", r"(?!\S)"])
        return made(depth - 1) + made(depth - 1)

    for _ in range(20):
        pattern = f"{made(4)}|{made(3)}"
        text = "".join(draw.choices("ab .\n", k=30))
        expected = [match[0] for match in re.finditer(pattern, text)]
        if re.match(pattern, "") or not all(expected):
            continue  # what may match nothing is refused
        assert words(pattern, text) == expected, (pattern, text)


@pytest.mark.parametrize("pattern", [O200K, CL100K, r"[\p{P}\p{S}]|\d|\w+"], ids=["o200k", "cl100k", "kinds"])
def test_other_patterns_split_as_the_tokenizers_library_does(pattern: str) -> None:
    tokenizers = pytest.importorskip("tokenizers")
    theirs = tokenizers.pre_tokenizers.Split(tokenizers.Regex(pattern), "isolated")
    split = splitter(pattern)
    for text in TEXTS:
        assert split(text) == [word for word, _ in theirs.pre_tokenize_str(text)], text


@pytest.mark.parametrize(("pattern", "text"), ATTACKS)
def test_no_pattern_takes_more_steps_than_places_times_instructions(pattern: str, text: str) -> None:
    made = Pattern(pattern)
    list(made.matches(text))
    assert made.steps <= 2 * len(made.program) * (len(text) + 1)


def test_steps_over_a_text_that_matches_everywhere_grow_with_it_alone() -> None:
    steps = []
    for count in (50, 100, 200):
        made = Pattern(O200K)
        assert len(list(made.matches("Word's 123  \n" * count))) == 4 * count
        steps.append(made.steps)
    assert steps[1] < 2.1 * steps[0] and steps[2] < 2.1 * steps[1]


@pytest.mark.parametrize(
    ("pattern", "why"),
    [
        (r"(a*)*", "a repetition of what may be empty"),
        (r"(?:(?:){999}){999}", "a repetition of what may be empty"),
        (r"a?|b", "a match of no character"),
        ("", "a match of no character"),
        (r"(a", "a group without its end"),
        (r"a)", "closes nothing"),
        (r"[a", "a class without its end"),
        (r"[a&&b]", "a class within a class"),
        (r"*a", "[*] here"),
        (r"a**", "a repetition of a repetition"),
        (r"a{3,1}", "cannot be"),
        (r"[z-a]", "ends before it begins"),
        (r"\p{Greek}", "not known here"),
        (r"\p{Gr}", "the category 'Gr'"),
        (r"(a)\1", r"\\1"),
        (r"(?<=a)b", "a group of this kind"),
        (r"(?!ab)c", "more than the next character"),
        (r"^a", r"\^ here"),
        (r"(?:ab)++", "possessive"),
        (r"(?:(?:(?:a{99}){99}){99}){99}", "more than 2048 steps"),
        ("(" * 100 + ")" * 100, "more than 32 groups"),
        ("a\\", "not known here"),
        ("\\p{L", "not known here"),
    ],
)
def test_what_is_not_known_is_refused_in_one_sentence(pattern: str, why: str) -> None:
    with pytest.raises(UsageError, match=why) as error:
        splitter(pattern)
    assert str(error.value).startswith("[llm] texts are split by ") and "\n" not in str(error.value)


@pytest.mark.parametrize(
    "seed", [*range(6), *[pytest.param(seed, marks=pytest.mark.thorough) for seed in range(6, 20)]]
)
def test_patterns_of_any_characters_are_read_or_refused(seed: int) -> None:
    draw = random.Random(seed)
    for _ in range(100):
        pattern = "".join(draw.choices("ab(|)*+?{}1,[]^$\\pL.-:i!=&", k=draw.randint(1, 14)))
        try:
            made = Pattern(pattern)
        except UsageError:
            continue
        assert all(begin < end for begin, end in made.matches("aab[1]" * 3))


def test_several_splits_each_split_what_the_one_before_has_left() -> None:
    tokenizers = pytest.importorskip("tokenizers")
    patterns = [r"\p{N}{1,3}", "[一-龥ぁ-ん]+", r"\s?[\p{L}]+|\s+"]
    steps = [
        {"type": "Split", "pattern": {"Regex": one}, "behavior": "Isolated", "invert": False}
        for one in patterns
    ]
    split = splitter_of_json({"type": "Sequence", "pretokenizers": steps})
    kinds = tokenizers.pre_tokenizers
    theirs = kinds.Sequence([kinds.Split(tokenizers.Regex(one), "isolated") for one in patterns])
    for text in TEXTS:
        assert split(text) == [word for word, _ in theirs.pre_tokenize_str(text)]


def test_a_word_as_long_as_a_request_is_merged_in_steps_that_grow_with_it() -> None:
    asked = []

    def cost_of(left: str, right: str) -> float | None:
        asked.append(left)
        return float(len(left)) if left == right else None

    assert [len(part) for part in merged("x" * 4096, cost_of)] == [4096]
    assert len(asked) < 4 * 4096


@pytest.mark.parametrize(
    "seed", [*range(4), *[pytest.param(seed, marks=pytest.mark.thorough) for seed in range(4, 10)]]
)
def test_merges_are_those_of_the_definition(seed: int) -> None:
    draw = random.Random(seed)
    parts = draw.choices("abc", k=24)
    ranks: dict[Any, int] = {}
    known = ["a", "b", "c"]
    for rank in range(30):
        pair = (draw.choice(known), draw.choice(known))
        ranks.setdefault(pair, rank)
        known.append("".join(pair))
    expected = list(parts)
    while True:  # the best pair, everywhere, from the left
        pairs = [pair for pair in zip(expected, expected[1:], strict=False) if pair in ranks]
        if not pairs:
            break
        best, at = min(pairs, key=lambda pair: ranks[pair]), 0
        while at < len(expected) - 1:
            if (expected[at], expected[at + 1]) == best:
                expected[at : at + 2] = ["".join(best)]
            at += 1
    assert merged(parts, lambda left, right: ranks.get((left, right))) == expected


def test_a_tokenizer_json_with_a_pattern_that_would_take_for_ever_reads_texts(tmp_path: Path) -> None:
    step = {"type": "Split", "pattern": {"Regex": "(a+)+b"}, "behavior": "Isolated", "invert": False}
    (tmp_path / "tokenizer.json").write_text(json.dumps(JSON | {"pre_tokenizer": step}))
    assert of_folder(tmp_path, 97).encode("a" * 200) == [0] * 200
