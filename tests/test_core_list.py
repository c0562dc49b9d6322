"""The list of the contributor's loop: what a line of tests/core.txt names is there, and holds tests."""

from __future__ import annotations

from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
LINES = [
    line
    for line in (ROOT / "tests" / "core.txt").read_text(encoding="utf-8").splitlines()
    if not line.startswith("#")
]


@pytest.mark.parametrize("line", LINES)
def test_a_place_of_the_contributors_loop_is_there_and_holds_tests(line: str) -> None:
    places = [*ROOT.glob(line)]
    assert places, f"tests/core.txt names {line}, which is not there: name what it has become"
    for place in places:
        assert place.is_file() or [*place.rglob("test_*.py")], f"{line} has no tests"


def test_no_place_of_the_contributors_loop_is_named_twice() -> None:
    assert len(LINES) == len(set(LINES))


def test_the_core_of_every_floor_is_in_the_contributors_loop() -> None:
    for floor in ("ir", "compiler", "hcq", "frontend"):
        assert any(line.startswith(f"tests/{floor}") for line in LINES)
