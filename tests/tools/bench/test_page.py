"""The table of figures that documents show is what the benchmark measured."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

import pytest

from hcq.tools.bench import compare
from hcq.tools.bench import page as pages


def row(name: str, unit: str, **figures: float) -> compare.Row:
    return compare.Row(
        name,
        "",
        unit,
        ceiling=200.0,
        figures={library: compare.Figure(value) for library, value in figures.items()},
    )


def kept(path: Path, *rows: compare.Row) -> Path:
    path.write_text(json.dumps({"rows": [asdict(row) for row in rows]}), encoding="utf-8")
    return path


def test_rows_are_read_as_they_were_kept(tmp_path: Path) -> None:
    rows = [row("sums", "GB/s", hcq=50, numpy=25), row("adds", "us", hcq=8, torch=1)]
    assert pages.rows_of(kept(tmp_path / "all.json", *rows)) == rows


def test_the_best_peer_is_the_one_that_we_are_the_least_faster_than() -> None:
    assert pages.best_peer(row("sums", "GB/s", hcq=50, numpy=25, torch=100)) == ("torch", 0.5)
    assert pages.best_peer(row("adds", "us", hcq=8, numpy=4, torch=16)) == ("numpy", 0.5)
    assert pages.best_peer(row("adds", "us", hcq=8)) is None


def test_a_line_has_our_figure_every_ratio_and_the_share_of_the_ceiling() -> None:
    head, _, line = pages.table([row("sums", "GB/s", hcq=50, numpy=25, torch=100)])
    assert head == "| case | hcq | beside the best | NumPy | PyTorch | of the ceiling |"
    assert line == "| sums | 50 GB/s | 0.50x (PyTorch) | 25 (2.00x) | 100 (0.50x) | 25 % |"


def test_a_case_measured_again_takes_the_place_of_the_first(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first = kept(tmp_path / "first.json", row("sums", "GB/s", hcq=1), row("adds", "us", hcq=2))
    again = kept(tmp_path / "again.json", row("sums", "GB/s", hcq=3))
    assert pages.main([str(first), str(again)]) == 0
    printed = capsys.readouterr().out.splitlines()
    assert [line.split(" | ")[:2] for line in printed[2:]] == [["| sums", "3 GB/s"], ["| adds", "2 us"]]


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"rows": [{"name": "a"}]}', '{"rows": 3}'])
def test_another_file_is_refused_by_name(
    tmp_path: Path, text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "other.json"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(SystemExit):
        pages.main([str(path)])
    assert f"{path} was not written by bench/compare.py --json" in capsys.readouterr().err
