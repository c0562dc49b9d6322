"""Results: files of them merge in any order, damaged lines get one sentence, other machines take none."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hcq.compiler.search.results import DamagedResults, Place, Result, best_for, merge, parse, text_of, union

ONE = Result(
    kernel="dot_64x64_from_64",
    key="ab12",
    target="cpu/x86_64/0123",
    toolchain="llvmlite-0.50.0",
    by="timeline",
    width=4,
    tried=96,
    ns=812,
    heuristic_ns=1023,
    schedule="split r0 9; unroll r0.1",
)

words = st.sampled_from(["a", "b", "c"])
numbers = st.integers(0, 5)
results = st.builds(
    Result,
    kernel=words,
    key=words,
    target=words,
    toolchain=words,
    by=st.sampled_from(["timeline", "model", "counters"]),
    width=numbers,
    tried=numbers,
    ns=numbers,
    heuristic_ns=numbers,
    schedule=st.sampled_from(["-", "split r0 2", "unroll r0; parallel r1"]),
)
files = st.lists(results, max_size=8).map(union)


@given(results)
def test_a_line_reads_as_what_was_written(one: Result) -> None:
    assert Result.from_line(one.line()) == one


@given(files)
def test_a_file_reads_as_what_was_written(found: dict[Place, Result]) -> None:
    assert parse(text_of(found)) == (found, [])


@given(files, files)
def test_merging_is_commutative(a: dict[Place, Result], b: dict[Place, Result]) -> None:
    assert text_of(merge(a, b)) == text_of(merge(b, a))


@given(files, files, files)
def test_merging_is_associative(
    a: dict[Place, Result], b: dict[Place, Result], c: dict[Place, Result]
) -> None:
    assert merge(merge(a, b), c) == merge(a, merge(b, c)) == merge(a, b, c)


@given(files)
def test_merging_a_file_with_itself_changes_nothing(a: dict[Place, Result]) -> None:
    assert merge(a, a) == a and text_of(merge(a)) == text_of(a)


@given(files, files)
def test_two_files_pasted_together_are_a_file(a: dict[Place, Result], b: dict[Place, Result]) -> None:
    lines = sorted({*text_of(a).splitlines(), *text_of(b).splitlines()})
    assert parse("\n".join(lines)) == (merge(a, b), [])


def test_the_wider_search_stays_and_then_the_faster_schedule() -> None:
    wider, faster = replace(ONE, width=8), replace(ONE, ns=700)
    assert list(merge(union([ONE]), union([faster])).values()) == [faster]
    assert list(merge(union([wider]), union([faster])).values()) == [wider]


@pytest.mark.parametrize("name", ["key", "target", "toolchain"])
def test_a_result_for_something_else_is_not_taken(name: str) -> None:
    found = union([ONE])
    other = replace(ONE, **{name: "another"})
    assert best_for(found, ONE.place) == ONE
    assert best_for(found, other.place) is None


def test_what_a_model_found_serves_until_something_was_measured() -> None:
    modelled = replace(ONE, by="counters", ns=5)
    assert best_for(union([modelled]), ONE.place) == modelled
    assert best_for(union([modelled, ONE]), ONE.place) == ONE


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("hello", "is no result: expected kernel=... key=..."),
        (ONE.line().replace("ns=812", "ns=-812"), "ns is no whole number"),
        (ONE.line().replace("width=4", "width=\uff14"), "width is no whole number"),
        (ONE.line().replace("tried=96", "tried=" + "9" * 30), "tried is no whole number"),
        (ONE.line().replace("timeline", "guess"), "by is one of timeline, model, counters"),
        (ONE.line().replace("key=ab12 ", ""), "is no result: expected"),
        (ONE.line().replace("key=ab12", "key=ab12 key=ab13"), "is no result: expected"),
        (ONE.line().partition("split")[0], "its schedule is empty"),
        (ONE.line() + "\x1b[2J", "its schedule is empty, or no text"),
        (ONE.line() + "; unroll r0" * 10000, "characters is no result"),
    ],
)
def test_a_damaged_line_gets_one_sentence(line: str, why: str) -> None:
    with pytest.raises(DamagedResults, match=why.replace(".", r"\.")):
        Result.from_line(line)
    found, problems = parse(f"{ONE.line()}\n{line}\n")
    assert list(found.values()) == [ONE]
    assert len(problems) == 1 and problems[0].startswith("line 2: ") and "\n" not in problems[0]
    assert len(problems[0]) < 300


@given(st.text())
def test_no_text_is_an_error(text: str) -> None:
    parse(text)
