"""Training on emulated GPUs gives the CPU's losses: with PM4, with AQL, and asynchronously under twenty seeds."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = Path(__file__).parents[1] / "gpu" / "training.py"
ROOT = PROGRAM.parents[3]
ARCHES = ["gfx1100", "gfx1201", "gfx90a", "gfx942"]
SEEDS = [f"amd:{ARCHES[seed % 4]}:seed={seed}" for seed in range(20)]


def losses(emulate: str, queue: str) -> dict[str, list[float]]:
    environ = {**os.environ, "HCQ_AMD_QUEUE": queue, "HCQ_VALIDATE": "0", "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, str(PROGRAM), emulate], capture_output=True, text=True, env=environ, timeout=150
    )
    assert done.returncode == 0, done.stderr[-3000:]
    found: dict[str, list[float]] = json.loads(done.stdout)
    return found


@pytest.mark.parametrize("queue", ["pm4", "aql"])
def test_training_gives_the_same_losses_as_the_cpu(queue: str):
    found = losses(",".join([*(f"amd:{arch}" for arch in ARCHES), "amd:gfx1100:caches"]), queue)
    cpu = found.pop("CPU")
    assert len(found) == 5
    for device, values in found.items():
        assert values == pytest.approx(cpu, rel=1e-5), device


@pytest.mark.slow
@pytest.mark.deadline(160)
@pytest.mark.parametrize("queue", ["pm4", "aql"])
def test_training_gives_the_same_losses_under_twenty_seeds(queue: str):
    found = losses(",".join(SEEDS), queue)
    cpu = found.pop("CPU")
    assert len(found) == 20
    for device, values in found.items():
        assert values == pytest.approx(cpu, rel=1e-5), device
