"""Groups of emulated GPUs, and of GPUs and CPUs, train as one device does."""

from __future__ import annotations

import functools
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytestmark = pytest.mark.own_devices

PROGRAM = Path(__file__).parent / "sharded_training.py"
ROOT = PROGRAM.parents[4]


def train(emulate: str, what: str, steps: int, batch: int, *names: str, **switches: str) -> Any:
    environ = {key: value for key, value in os.environ.items() if key not in ("HCQ_DEVICE", "HCQ_EMULATE")}
    environ |= {"HCQ_EMULATE": emulate, "PYTHONPATH": str(ROOT), "HCQ_TIMEOUT_MS": "300000", **switches}
    done = subprocess.run(
        [sys.executable, str(PROGRAM), what, str(steps), str(batch), *names],
        capture_output=True,
        text=True,
        env=environ,
        timeout=400,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout)


@functools.cache
def train_alone() -> Any:
    """The small network on one CPU device."""
    return train("", "small", 4, 4, "CPU")


def same(found: Any, wanted: Any) -> None:
    np.testing.assert_allclose(found["losses"], wanted["losses"], rtol=1e-5)
    for one, two in zip(wanted["weights"], found["weights"]):
        np.testing.assert_allclose(two, one, rtol=1e-4, atol=2e-6)


@pytest.mark.deadline(420)
def test_two_emulated_gpus_train_as_one_cpu_with_a_submission_to_each_channel_a_step() -> None:
    found = train("amd:gfx1100,amd:gfx1100", "small", 4, 4, "AMD:0", "AMD:1", HCQ_VALIDATE="1")
    same(found, train_alone())
    assert found["submissions"] == {"AMD": [1, 1], "AMD:1": [1, 1]}  # the GPU's own, and its companion's
    assert "the host waited 0 times" in found["tally"]


ALL = "amd:gfx1100,nv:sm_90,metal:m3"
PAIRS = [["AMD", "NV"], ["AMD", "CPU"], ["NV", "CPU"], ["METAL", "CPU"], ["METAL", "AMD"], ["NV", "METAL"]]


@pytest.mark.deadline(420)
@pytest.mark.parametrize(
    "names",
    [["METAL", "AMD", "NV", "CPU"], *[pytest.param(pair, marks=pytest.mark.thorough) for pair in PAIRS]],
    ids=",".join,
)
def test_devices_of_several_kinds_train_as_one_cpu_and_a_recorded_step_leaves_the_host_out(
    names: list[str],
) -> None:
    found = train(ALL, "small", 4, 4, *names, HCQ_VALIDATE="1")
    same(found, train_alone())
    channels = {name: [1, 1] if name in ("AMD", "NV") else [1] for name in names}
    assert found["submissions"] == channels | (
        {} if "CPU" in names and len(names) == 2 else {"CPU:relay": [1]}
    )


@pytest.mark.thorough
@pytest.mark.deadline(840)
@pytest.mark.parametrize(
    ("emulate", "names"),
    [
        ("amd:gfx1100,amd:gfx1100,amd:gfx1100,amd:gfx1100", ["AMD:0", "AMD:1", "AMD:2", "AMD:3"]),
        ("nv:sm_90,nv:sm_90", ["NV:0", "NV:1"]),
        ("", ["CPU:0", "CPU:1", "CPU:2", "CPU:3"]),
    ],
)
def test_the_digits_network_trains_on_a_group_as_on_one_device_of_it(emulate: str, names: list[str]) -> None:
    same(train(emulate, "digits", 4, 8, *names), train(emulate, "digits", 4, 8, names[0]))


@pytest.mark.thorough
@pytest.mark.deadline(420)
def test_eight_emulated_gpus_train_together() -> None:
    names = [f"AMD:{number}" for number in range(8)]
    found = train(",".join(["amd:gfx1100"] * 8), "small", 3, 8, *names)
    same(found, train("", "small", 3, 8, "CPU"))
