"""The benchmark of tracing measures what it says, and the flight recorder stays within its share of a launch."""

from __future__ import annotations

import re

from hcq.tools.bench import tracing


def test_it_measures_every_piece_of_work_with_and_without_a_trace(capsys):
    assert tracing.main(["--rounds", "3"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("us each, the median of 3 rounds")
    rows = [re.fullmatch(r"(.{44}) +([\d.]+) +([\d.]+)   ([\d.]+)x  \(.*\)", line) for line in lines[1:-1]]
    assert [row and row[1].strip() for row in rows] == [
        "dispatch, submit", "dispatch, submit, wait", "five dispatches, submit", "copy of 8 bytes, submit",
        "replay of a graph of 20", "allocate and free",
    ]  # fmt: skip
    assert all(row and float(row[2]) > 0 and float(row[3]) > 0 for row in rows)
    share = re.fullmatch(r"flight recorder: ([\d.]+) % of a launch", lines[-1])
    assert share is not None
    assert float(share[1]) < 1
