"""Two machines, one answer: tensor programs on the CPU device and on emulated GPUs that run their own machine code."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).with_name("two_machines.py")


@pytest.mark.own_devices
@pytest.mark.deadline(200)
@pytest.mark.parametrize(
    "emulate",
    [
        "amd:gfx1100:caches",
        *[
            pytest.param(word, marks=pytest.mark.thorough)
            for word in ("nv:sm_90", "amd:gfx1100", "amd:gfx942", "amd:gfx1201", "amd:gfx90a", "nv:sm_80")
        ],
    ],
)
def test_tensor_programs_give_on_an_emulated_gpu_what_they_give_on_the_cpu(emulate):
    device = emulate.partition(":")[0].upper()
    run = subprocess.run(
        [sys.executable, SCRIPT, emulate, device],
        capture_output=True,
        text=True,
        timeout=180,
        cwd=SCRIPT.parent.parent.parent,
        env={**os.environ, "PYTHONPATH": str(SCRIPT.parent.parent.parent)},
    )
    assert run.returncode == 0, run.stderr[-3000:]
    found = json.loads(run.stdout.splitlines()[-1])
    assert {name: what for name, what in found.items() if what} == {}
    assert len(found) > 30
