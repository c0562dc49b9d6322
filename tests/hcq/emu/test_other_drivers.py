"""Drivers that other people wrote, and that run on hardware, run on the emulated kernel drivers without a change."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from hcq.errors import UsageError
from hcq.nv.toolchain import nvrtc

PROGRAM = Path(__file__).parent / "other_driver.py"
ROOT = PROGRAM.parents[3]

pytest.importorskip("tinygrad")


def run(*words: str) -> None:
    """tinygrad computes on these GPUs what NumPy computes, and no kernel driver complains."""
    environ = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, str(PROGRAM), *words], capture_output=True, text=True, env=environ, timeout=120
    )
    assert done.returncode == 0, done.stderr[-3000:]
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["log"] == []
    assert max(found["errors"].values()) < 1e-4, found


@pytest.mark.slow
@pytest.mark.deadline(130)
@pytest.mark.parametrize("word", ["nv:sm_89", "nv:sm_120:seed=5", "nv:sm_86:driver=570.86"])
def test_tinygrads_nvidia_driver_copies_and_computes(word: str):
    try:
        nvrtc.library()
    except UsageError as error:
        pytest.skip(str(error))
    run(word)


@pytest.mark.slow
@pytest.mark.deadline(130)
@pytest.mark.parametrize(
    "words", [["amd:gfx942:caches"], ["amd:gfx1201:seed=5"], ["amd:gfx1100", "amd:gfx1100"]]
)
def test_tinygrads_amd_driver_copies_and_computes(words: list[str]):
    run(*words)


@pytest.mark.deadline(130)
def test_tinygrads_amd_driver_runs_on_one_gpu():
    run("amd:gfx1100")
