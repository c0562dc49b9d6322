"""Training on emulated GPUs gives the CPU's losses: with every queue and renderer, and under a seed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = Path(__file__).parent / "training.py"
ROOT = PROGRAM.parents[3]
AMD = ("amd:gfx1100", "amd:gfx1201", "amd:gfx90a", "amd:gfx942")
NV = ("nv:sm_90", "nv:sm_80", "nv:sm_120")
WAYS = [  # the digits train in tests/examples on one GPU of each way
    pytest.param(
        (*AMD, "amd:gfx1100:caches"), {"HCQ_AMD_QUEUE": "pm4"}, id="pm4", marks=pytest.mark.thorough
    ),
    pytest.param(
        (*AMD, "amd:gfx1100:caches"), {"HCQ_AMD_QUEUE": "aql"}, id="aql", marks=pytest.mark.thorough
    ),
    pytest.param(NV, {"HCQ_NV_RENDERER": "ptx"}, id="ptx"),
    pytest.param(NV, {"HCQ_NV_RENDERER": "cuda"}, id="cuda", marks=pytest.mark.thorough),
]
SEEDS = 16  # as many GPUs of NVIDIA's as one process can have


def check_losses(words: list[str], environ: dict[str, str]) -> None:
    """Every one of these GPUs has the losses that the CPU has."""
    if environ.get("HCQ_NV_RENDERER") == "cuda":
        needs_nvrtc()
    settings = {**os.environ, **environ, "HCQ_VALIDATE": "0", "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, str(PROGRAM), ",".join(words)],
        capture_output=True,
        text=True,
        env=settings,
        timeout=400,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    found: dict[str, list[float]] = json.loads(done.stdout)
    cpu = found.pop("CPU")
    assert len(found) == len(words)
    for device, values in found.items():
        assert values == pytest.approx(cpu, rel=1e-5), device


def needs_nvrtc() -> None:
    """CUDA C needs nvrtc, which is an extra."""
    from hcq.errors import UsageError
    from hcq.nv.toolchain import nvrtc

    try:
        nvrtc.library()
    except UsageError as error:
        pytest.skip(str(error))


@pytest.mark.deadline(420)
@pytest.mark.parametrize(("words", "environ"), WAYS)
def test_training_gives_the_same_losses_as_the_cpu_also_under_a_seed(
    words: tuple[str, ...], environ: dict[str, str]
):
    seeds = [f"{words[-2]}:seed=2"]
    check_losses([*words, *seeds], environ)


@pytest.mark.thorough
@pytest.mark.deadline(420)
@pytest.mark.parametrize(("words", "environ"), WAYS)
def test_training_gives_the_same_losses_under_many_seeds(words: tuple[str, ...], environ: dict[str, str]):
    archs = [word for word in words if ":caches" not in word]
    count = SEEDS if words is NV else SEEDS + 4
    check_losses([f"{archs[seed % len(archs)]}:seed={seed}" for seed in range(count)], environ)
