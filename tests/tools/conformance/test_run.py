"""A run of the conformance tool goes on where it was cut short, with whole results of the same measurement alone."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from hcq.tools.conformance import page as report
from hcq.tools.conformance import pytorch
from hcq.tools.conformance.diary import Diary, DiaryError, measured_revision
from hcq.tools.conformance.run import Progress

ABOUT = {"dtypes": ["float32", "int64"], "samples": 6}


def result(name: str, status: str = "passes", **counts: int) -> dict[str, Any]:
    why = [] if status == "passes" else [f"float32: {name} is off"]
    return {"operator": name, "status": status, "counts": counts or {status: 2}, "why": why}


ROWS = [result("add"), result("linalg.det", "wrong", passes=5, wrong=1), result("fft.fft", "refused")]


def kept(path: Path, rows: list[dict[str, Any]], revision: str = "old") -> Path:
    diary = Diary(path, False, ABOUT, revision)
    for row in rows:
        diary.add(row)
    return path


def resumed(path: Path, revision: str = "new", about: dict[str, Any] | None = None) -> Diary:
    return Diary(path, True, about or ABOUT, revision)


# -- the file of results ---------------------------------------------------------------------------------------------


def test_a_run_goes_on_with_the_results_of_the_file(tmp_path: Path) -> None:
    path = kept(tmp_path / "rows.jsonl", ROWS[:2])
    resumed(path).add(ROWS[2])
    diary = resumed(path, "newer")
    assert list(diary.results.values()) == ROWS
    assert diary.revisions == ["old", "new"]


def test_a_file_cut_anywhere_has_the_results_whose_lines_are_whole(tmp_path: Path) -> None:
    path = kept(tmp_path / "rows.jsonl", ROWS[:2])
    whole = path.read_bytes()
    for length in range(len(whole)):
        path.write_bytes(whole[:length])
        found = list(resumed(path).results.values())
        assert found == ROWS[: max(0, whole[:length].count(b"\n") - 1)]


def test_what_is_added_after_half_a_line_is_read_again(tmp_path: Path) -> None:
    path = kept(tmp_path / "rows.jsonl", ROWS[:2])
    path.write_bytes(path.read_bytes()[:-9])
    resumed(path).add(ROWS[2])
    assert list(resumed(path).results.values()) == [ROWS[0], ROWS[2]]


def test_what_was_late_is_computed_again_and_the_last_result_counts(tmp_path: Path) -> None:
    path = kept(tmp_path / "rows.jsonl", [result("add", "late"), result("mul"), result("mul", "wrong")])
    assert list(resumed(path).results.values()) == [result("mul", "wrong")]
    path = kept(tmp_path / "rows.jsonl", [result("add"), result("add", "late")])
    assert not resumed(path).results


def test_without_resume_the_file_is_begun_anew(tmp_path: Path) -> None:
    path = kept(tmp_path / "rows.jsonl", ROWS)
    assert not Diary(path, False, ABOUT, "new").results
    assert not resumed(path).results


@pytest.mark.parametrize(
    "other,said",
    [
        ({**ABOUT, "samples": 1}, "with samples 6, and this run has 1"),
        ({**ABOUT, "dtypes": ["bool"]}, "with dtypes float32, int64, and this run has bool"),
        ({**ABOUT, "devices": ["CPU", "AMD"]}, "with devices nothing, and this run has CPU, AMD"),
    ],
)
def test_results_of_another_measurement_are_refused(tmp_path: Path, other: dict[str, Any], said: str) -> None:
    path = kept(tmp_path / "rows.jsonl", ROWS)
    with pytest.raises(DiaryError, match=said):
        resumed(path, about=other)


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"\xff\xfe\x00",
        b"[]",
        b"null",
        b"{",
        b"[" * 100_000,
        b"{}",
        b'{"operator": 3, "status": "passes", "counts": {}, "why": []}',
        b'{"operator": "add", "status": "fine", "counts": {}, "why": []}',
        b'{"operator": "add", "status": [], "counts": {}, "why": []}',
        b'{"operator": "add", "status": "passes", "counts": {"passes": -1}, "why": []}',
        b'{"operator": "add", "status": "passes", "counts": {"passes": true}, "why": []}',
        b'{"operator": "add", "status": "passes", "counts": {"passes": 1e9}, "why": []}',
        b'{"operator": "add", "status": "passes", "counts": {"fine": 1}, "why": []}',
        b'{"operator": "add", "status": "passes", "counts": [], "why": []}',
        b'{"operator": "add", "status": "passes", "counts": {}, "why": "because"}',
        b'{"operator": "add", "status": "passes", "counts": {}, "why": [1]}',
        b'{"operator": "add", "status": "passes", "counts": {}}',
        b'{"about": [], "revision": "old"}',
        b'{"about": {}, "revision": 3}',
    ],
)
def test_a_line_that_is_no_result_is_refused_by_its_number(tmp_path: Path, line: bytes) -> None:
    path = kept(tmp_path / "rows.jsonl", ROWS[:1])
    path.write_bytes(path.read_bytes() + line + b"\n")
    with pytest.raises(
        DiaryError, match=r"^--resume: line 3 of .*rows.jsonl is no result of an operator\. [^.]*\.$"
    ):
        resumed(path)
    path.write_bytes(line + b"\n")
    with pytest.raises(DiaryError, match=r"rows\.jsonl does not begin with what was measured"):
        resumed(path)


def test_a_file_that_cannot_be_written_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(DiaryError, match=r"^--json .*none/rows.jsonl: No such file or directory\. "):
        Diary(tmp_path / "none" / "rows.jsonl", False, ABOUT, "new")
    with pytest.raises(DiaryError, match="Is a directory"):
        resumed(tmp_path)


def test_a_folder_that_is_no_checkout_has_no_revision(tmp_path: Path) -> None:
    assert measured_revision(tmp_path) == ""


# -- how far a run is ------------------------------------------------------------------------------------------------


def test_a_long_run_says_how_far_it_is_and_how_long_the_rest_takes() -> None:
    now = [0.0]
    progress = Progress(total=100, todo=40, clock=lambda: now[0])
    said = []
    for _ in range(40):
        now[0] += 30.0
        said += progress.after_one()
    assert len(said) == 19  # one a minute, and none when all is done
    assert said[0].split() == "62 of 100 operators, 1 min; about 19 min more".split()


# -- the page --------------------------------------------------------------------------------------------------------


def test_the_page_has_a_line_for_each_operator_that_fails_with_its_reason() -> None:
    rows = [*ROWS, result("byte", "wrong"), result("frexp", "missing"), result("to_sparse", "missing")]
    text = report.page(rows, "the CPU", "2.0", 60.0, ["abc"])
    assert "| core | 1 of 4 | 25.0 % | 2 of 8 | 25.0 % |" in text
    assert "- `linalg.det` wrong, 5 of 6 samples pass: float32: linalg.det is off" in text
    assert f"- `byte` wrong, 0 of 2 samples pass: {report.EXPLAINED['byte']}" in text
    assert f"- `to_sparse` missing: {report.EXPLAINED['to_sparse']}" in text
    assert "- missing: `frexp`\n" in text
    assert "`add`" not in text
    assert "Measured at revision abc.\n" in text


def test_a_page_of_several_revisions_names_them_all() -> None:
    assert report.measured_at(["a", "b", "c"]) == ["Measured in parts, at revisions a, b and c."]
    assert report.measured_at([]) == []


# -- the command line ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "words,said",
    [
        ("--devices CPU", "--devices CPU: name two at least"),
        ("--devices CPU,CPU:1 --samples 0", "--samples 0: there are 1 to 6"),
        ("--devices CPU,CPU:1 --samples 7", "--samples 7: there are 1 to 6"),
        ("--resume", "--resume goes on with a file of results: name it with --json"),
    ],
)
def test_words_that_do_not_fit_are_refused_in_a_sentence(words: str, said: str) -> None:
    with pytest.raises(SystemExit, match=said):
        pytorch.main(words.split())


def test_a_line_of_the_file_is_one_result(tmp_path: Path) -> None:
    lines = kept(tmp_path / "rows.jsonl", ROWS).read_text("utf-8").splitlines()
    assert [json.loads(line) for line in lines[1:]] == ROWS
