"""Training on emulated GPUs gives the CPU's losses: with both renderers, and asynchronously under sixteen seeds."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = Path(__file__).parents[1] / "gpu" / "training.py"
ROOT = PROGRAM.parents[3]
ARCHS = ("sm_90", "sm_80", "sm_120", "sm_90")
SEEDS = [f"nv:{ARCHS[seed % 4]}:seed={seed}" for seed in range(16)]  # as many GPUs as one process can have


def losses(emulate: str, renderer: str) -> dict[str, list[float]]:
    environ = {**os.environ, "HCQ_NV_RENDERER": renderer, "HCQ_VALIDATE": "0", "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, str(PROGRAM), emulate], capture_output=True, text=True, env=environ, timeout=150
    )
    assert done.returncode == 0, done.stderr[-3000:]
    found: dict[str, list[float]] = json.loads(done.stdout)
    return found


def needs_toolchain(renderer: str) -> None:
    """CUDA C needs nvrtc, which is an extra."""
    from hcq.errors import UsageError
    from hcq.nv.toolchain import nvrtc

    if renderer == "cuda":
        try:
            nvrtc.library()
        except UsageError as error:
            pytest.skip(str(error))


@pytest.mark.parametrize("renderer", ["ptx", "cuda"])
def test_training_gives_the_same_losses_as_the_cpu(renderer: str):
    needs_toolchain(renderer)
    found = losses("nv:sm_90,nv:sm_80,nv:sm_120", renderer)
    for device in ("NV", "NV:1", "NV:2"):
        assert found[device] == pytest.approx(found["CPU"], rel=1e-5)


@pytest.mark.slow
@pytest.mark.deadline(160)
@pytest.mark.parametrize("renderer", ["ptx", "cuda"])
def test_training_gives_the_same_losses_under_sixteen_seeds(renderer: str):
    needs_toolchain(renderer)
    found = losses(",".join(SEEDS), renderer)
    cpu = found.pop("CPU")
    assert len(found) == 16
    for device, values in found.items():
        assert values == pytest.approx(cpu, rel=1e-5), device
