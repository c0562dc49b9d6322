"""The benchmark of replays times what it says, on a step that is one submission."""

from __future__ import annotations

import re

import pytest

from hcq.tools.bench import replay


@pytest.mark.thorough
@pytest.mark.own_devices
def test_it_times_the_step_and_its_graph_alone_with_a_busy_and_an_idle_device(capsys):
    assert replay.main(["--rounds", "3"]) == 0
    first, _, *lines = capsys.readouterr().out.splitlines()
    assert re.search(r": \d+ kernels, 1 submission for a step$", first)
    rows = [re.fullmatch(r"(.{34}) +([\d.]+) +([\d.]+) +([\d.]+)", line) for line in lines]
    assert [row and row[1].strip() for row in rows] == [
        "step(images, labels), held", "step(images, labels), idle",
        "its graph's replay, held", "its graph's replay, idle",
    ]  # fmt: skip
    assert all(row and 0 < float(row[2]) <= float(row[3]) for row in rows)
