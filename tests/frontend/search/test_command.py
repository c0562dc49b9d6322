"""hcq search: results as a table, files of results merged."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from hcq import config
from hcq.__main__ import main
from hcq.compiler.search.results import Result, text_of, union

FAST = Result(
    "dot_64x64_from_64",
    "ab12",
    "cpu/x86_64/0123",
    "llvmlite-0.50.0",
    "timeline",
    4,
    96,
    500,
    1500,
    "split r0 9",
)
EVEN = dataclasses.replace(FAST, kernel="sum_5_from_7", key="cd34", ns=800, heuristic_ns=800, schedule="-")


@pytest.fixture(autouse=True)
def empty_cache(tmp_path: Path) -> Iterator[None]:
    before = config.current()
    config.use(dataclasses.replace(before, cache_dir=tmp_path / "cache", search_results=None))
    yield
    config.use(before)


def write(path: Path, *results: Result) -> str:
    path.write_text(text_of(union(results)))
    return str(path)


def test_results_are_shown_the_largest_gains_first(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["search", "show", write(tmp_path / "a", EVEN, FAST)]) == 0
    head, *rows = capsys.readouterr().out.splitlines()
    assert head.split() == ["gain", "time", "heuristic", "width", "tried", "kernel,", "target"]
    assert [row.split()[0] for row in rows] == ["3.00x", "1.00x"]
    assert rows[0].split()[1:5] == ["500", "ns", "1.5", "us"]


def test_schedules_are_shown_when_asked_for(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(["search", "show", write(tmp_path / "a", EVEN, FAST), "--schedules", "--kernel", "dot"])
    _, row, schedule = capsys.readouterr().out.splitlines()
    assert "dot_64x64" in row and schedule.strip() == "split r0 9"


def test_another_program_gets_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(["search", "show", write(tmp_path / "a", FAST), "--json"])
    assert json.loads(capsys.readouterr().out) == [dataclasses.asdict(FAST)]


def test_without_results_it_says_how_to_get_some(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["search", "show"]) == 0
    assert capsys.readouterr().out == "no results. HCQ_SEARCH=4 python PROGRAM searches for some.\n"


def test_files_are_merged_to_a_file_or_to_stdout(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    a, b = write(tmp_path / "a", EVEN, dataclasses.replace(FAST, ns=900)), write(tmp_path / "b", FAST)
    assert main(["search", "merge", a, b]) == 0
    assert capsys.readouterr().out == text_of(union([EVEN, FAST]))
    assert main(["search", "merge", b, a, "--output", str(tmp_path / "c")]) == 0
    assert (tmp_path / "c").read_text() == text_of(union([EVEN, FAST]))
    assert main(["search", "merge", a, b, "--output", a]) == 0
    assert (tmp_path / "a").read_text() == text_of(union([EVEN, FAST]))


def test_a_damaged_file_gets_one_sentence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "a").write_text("not at all")
    assert main(["search", "merge", str(tmp_path / "a")]) == 2
    said = capsys.readouterr().err
    assert (
        said.startswith("hcq search: ")
        and said.count("\n") == 1
        and "line 1: 'not at all' is no result" in said
    )


def test_the_help_teaches(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["search", "--help"])
    said = capsys.readouterr().out
    assert all(word in said for word in ("HCQ_SEARCH=4", "HCQ_SEARCH_RESULTS", "merge", "docs/search.md"))
