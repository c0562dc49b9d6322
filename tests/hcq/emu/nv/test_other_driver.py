"""A driver that other people wrote, and that runs on hardware, runs on the emulated kernel driver without a change."""

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
ROOT = PROGRAM.parents[4]

pytest.importorskip("tinygrad")


@pytest.mark.slow
@pytest.mark.deadline(130)
@pytest.mark.parametrize("word", ["nv:sm_89", "nv:sm_120:seed=5", "nv:sm_86:driver=570.86"])
def test_tinygrads_driver_copies_and_computes(word: str):
    try:
        nvrtc.library()
    except UsageError as error:
        pytest.skip(str(error))
    environ = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, str(PROGRAM), word], capture_output=True, text=True, env=environ, timeout=120
    )
    assert done.returncode == 0, done.stderr[-3000:]
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["log"] == []
    assert max(found["errors"].values()) < 1e-4, found
