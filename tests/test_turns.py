"""The turns of the whole check reach every test, and a turn can be repeated."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tests import turns

ROOT = Path(__file__).parent.parent


class Item:
    """What a turn asks of a test."""

    def __init__(self, nodeid: str, path: Path, is_thorough: bool = True) -> None:
        self.nodeid, self.path, self.is_thorough = nodeid, path, is_thorough

    def get_closest_marker(self, name: str) -> bool:
        return self.is_thorough and name == "thorough"


class Case:
    """A case of a test that is marked `sampled(3)`."""

    def __init__(self, nodeid: str, *markers: str) -> None:
        self.nodeid, self.markers = nodeid, markers

    def get_closest_marker(self, name: str) -> pytest.Mark | None:
        return getattr(pytest.mark, name)(3).mark if name in self.markers else None


def items() -> list[Item]:
    examples = ("hcq.frontend.nn.module.Module", "hcq.frontend.nn.module_list.ModuleList")
    return [
        *(Item(f"tests/a.py::test_a[{number}]", ROOT / "tests/a.py") for number in range(400)),
        *(Item(f"tests/b.py::test_b[{name}]", ROOT / "tests/b.py") for name in examples),
        Item("tests/b.py::test_plain", ROOT / "tests/b.py", is_thorough=False),
    ]


def test_each_thorough_test_has_one_turn_of_all_and_other_tests_have_every_turn() -> None:
    counts: dict[str, int] = {}
    for number in range(turns.TURNS):
        tests = items()
        out = turns.left_out(tests, turns.Turn(number, turns.TURNS))  # type: ignore[arg-type]
        left = [item.nodeid for item in tests if item not in out]
        assert 20 <= len(left) <= 70
        for name in left:
            counts[name] = counts.get(name, 0) + 1
    assert counts.pop("tests/b.py::test_plain") == turns.TURNS
    assert len(counts) == 402
    assert set(counts.values()) == {1}


def test_a_sample_is_of_each_test_and_neither_order_nor_what_is_thorough_changes_it() -> None:
    cases = [Case(f"tests/a.py::test_{name}[{number}]", "sampled") for name in "ab" for number in range(20)]
    more = [Case("tests/a.py::test_a[20]", "sampled", "thorough"), Case("tests/a.py::test_c[0]")]
    beyond = turns.beyond_the_sample([*cases, *more])  # type: ignore[list-item]
    assert len(beyond) == 34
    assert not {*beyond} & {*more}
    assert {*turns.beyond_the_sample([*more, *cases[::-1]])} == {*beyond}  # type: ignore[list-item]
    assert sum("test_a[" in item.nodeid for item in beyond) == 17


def test_a_case_that_is_asked_for_by_its_name_is_in_the_sample() -> None:
    assert not turns.beyond_the_sample([Case("tests/a.py::test_a[7]", "sampled")])  # type: ignore[list-item]


def test_what_changed_needs_no_turn() -> None:
    tests = items()
    never = turns.Turn(turns.TURNS, turns.TURNS)  # no test has it
    out = turns.left_out(tests, never, ["frontend/nn/module.py", "docs/jit.md"])  # type: ignore[arg-type]
    left = [item.nodeid for item in tests if item not in out]
    assert left == ["tests/b.py::test_b[hcq.frontend.nn.module.Module]", "tests/b.py::test_plain"]
    out = turns.left_out(tests, never, ["tests/a.py"])  # type: ignore[arg-type]
    assert len([item for item in tests if item not in out]) == 401


def test_a_case_beyond_a_sample_keeps_its_turn_in_a_changed_file() -> None:
    class Both(Item):
        def get_closest_marker(self, name: str) -> bool:
            return name in ("sampled", "thorough")

    never = turns.Turn(turns.TURNS, turns.TURNS)  # no test has it
    cases = [Both("tests/a.py::test_a[0]", ROOT / "tests/a.py")]
    assert turns.left_out(cases, never, ["tests/a.py"]) == {*cases}  # type: ignore[arg-type]


GENERATOR = np.random.default_rng(1)


@pytest.mark.parametrize("count", [1, 2, 3])
def test_each_test_draws_the_first_numbers_of_its_files_generator(count: int) -> None:
    drawn = GENERATOR.standard_normal(count)
    assert drawn.tolist() == np.random.default_rng(1).standard_normal(count).tolist()


@pytest.mark.parametrize("words", ["10/10", "3", "-1/10", "a/b", ""])
def test_a_turn_that_there_is_not_is_refused(words: str) -> None:
    with pytest.raises(ValueError, match="from 0/10 to 9/10"):
        turns.read(words)


def test_the_turn_is_that_of_the_commit_unless_it_is_said() -> None:
    said = {**os.environ, "TURN": "7"}
    program = [sys.executable, str(ROOT / "tests" / "turns.py")]
    assert subprocess.run(program, env=said, capture_output=True, text=True).stdout == "7\n"
    wrong = subprocess.run(program, env={**os.environ, "TURN": "ten"}, capture_output=True, text=True)
    assert wrong.returncode == 2
    assert "from 0/10 to 9/10" in wrong.stderr
    assert turns.of_commit("ff") == 5
