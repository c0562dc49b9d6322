"""What HCQ_DEBUG prints of a tensor program: the stages in the order of the road, each with the name of its kernel."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = (
    "from hcq import Tensor; x = Tensor([[1.0, 2.0], [3.0, 4.0]]); (x @ x.T).relu().sum(dim=1).realize()"
)
ORDER = ("graph on", "schedule on", "passes of", "ir of", "code of")


def printed(tmp_path: Path, words: str) -> list[str]:
    environment = {**os.environ, "HCQ_DEBUG": words, "HCQ_CACHE_DIR": str(tmp_path)}
    environment = {
        name: text for name, text in environment.items() if name not in ("HCQ_DEVICE", "HCQ_EMULATE")
    }
    root = Path(__file__).parent.parent.parent
    words_of = [sys.executable, "-c", PROGRAM]
    done = subprocess.run(
        words_of, cwd=root, env=environment, capture_output=True, text=True, timeout=50, check=True
    )
    return [line for line in done.stderr.splitlines() if re.match(r"-- \w+ (on|of) |hcq CPU: submit", line)]


@pytest.mark.own_devices
def test_stages_are_printed_in_the_order_of_the_road_with_each_kernels_name(tmp_path: Path) -> None:
    heads = printed(tmp_path, "graph,schedule,passes,ir,code,push")
    assert heads[:2] == ["-- graph on CPU", "-- schedule on CPU: 2 kernels"]
    kernels = [head.split()[-1] for head in heads[2:-1:3]]
    assert len({*kernels}) == 2
    assert heads[2:-1] == [f"-- {stage} {name}" for name in kernels for stage in ORDER[2:]]
    assert heads[-1].startswith("hcq CPU: submit #")


@pytest.mark.own_devices
def test_a_plan_from_the_cache_prints_its_schedule_too(tmp_path: Path) -> None:
    assert printed(tmp_path, "schedule") == printed(tmp_path, "schedule") == ["-- schedule on CPU: 2 kernels"]
