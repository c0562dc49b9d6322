"""The digits network learns on emulated GPUs as on the CPU: the same losses, whatever the queue and the compiler."""

from __future__ import annotations

import functools
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from hcq.errors import UsageError
from hcq.nv.toolchain import nvrtc

PROGRAM = Path(__file__).parent / "digits_losses.py"
ROOT = PROGRAM.parents[2]


def losses(**switches: str) -> list[float]:
    environ = {key: value for key, value in os.environ.items() if key not in ("HCQ_DEVICE", "HCQ_EMULATE")}
    done = subprocess.run(
        [sys.executable, str(PROGRAM)],
        capture_output=True,
        text=True,
        # a busy machine is no reason to give up: the test has a deadline of its own
        env={**environ, "PYTHONPATH": str(ROOT), "HCQ_TIMEOUT_MS": "300000", **switches},
        timeout=400,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    found: list[float] = json.loads(done.stdout)
    return found


@functools.cache
def on_the_cpu() -> list[float]:
    return losses(HCQ_DEVICE="CPU")


@pytest.mark.deadline(420)
def test_the_loss_falls() -> None:
    found = on_the_cpu()
    assert found == sorted(found, reverse=True)


@pytest.mark.deadline(420)
@pytest.mark.parametrize(
    ("arch", "queue"),
    [
        ("gfx1100", "pm4"),
        pytest.param("gfx942", "aql", marks=pytest.mark.thorough),
        pytest.param("gfx1100", "aql", marks=pytest.mark.thorough),
        pytest.param("gfx942", "pm4", marks=pytest.mark.thorough),
    ],
)
def test_amd_gpus_give_the_cpus_losses(arch: str, queue: str) -> None:
    found = losses(HCQ_DEVICE="AMD", HCQ_EMULATE=f"amd:{arch}", HCQ_AMD_QUEUE=queue)
    assert found == pytest.approx(on_the_cpu(), rel=1e-4)


@pytest.mark.deadline(420)
@pytest.mark.parametrize(
    ("arch", "renderer"),
    [
        # tests/hcq/gpu/test_training.py has this way every time
        pytest.param("sm_90", "ptx", marks=pytest.mark.thorough),
        pytest.param("sm_80", "cuda", marks=pytest.mark.thorough),
        pytest.param("sm_90", "cuda", marks=pytest.mark.thorough),
        pytest.param("sm_80", "ptx", marks=pytest.mark.thorough),
    ],
)
def test_nvidia_gpus_give_the_cpus_losses(arch: str, renderer: str) -> None:
    if renderer == "cuda":
        try:
            nvrtc.library()
        except UsageError as error:
            pytest.skip(str(error))
    found = losses(HCQ_DEVICE="NV", HCQ_EMULATE=f"nv:{arch}", HCQ_NV_RENDERER=renderer)
    assert found == pytest.approx(on_the_cpu(), rel=1e-4)


@pytest.mark.thorough
@pytest.mark.deadline(420)
def test_apples_gpus_give_the_cpus_losses() -> None:
    found = losses(HCQ_DEVICE="METAL", HCQ_EMULATE="metal:m3")
    assert found == pytest.approx(on_the_cpu(), rel=1e-4)
