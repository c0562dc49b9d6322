"""Kernels of one's own give what NumPy gives, on every kind of device: eager, recorded, saved, with gradients."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).with_name("own_kernels.py")
ROOT = SCRIPT.parent.parent.parent.parent.parent


@pytest.mark.own_devices
@pytest.mark.deadline(100)
@pytest.mark.parametrize("validate", ["0", "1"])
@pytest.mark.parametrize(
    "emulate", ["", "amd:gfx1100", "nv:sm_90", "metal:m3"], ids=["cpu", "amd", "nv", "metal"]
)
def test_own_kernels_give_what_numpy_gives(emulate: str, validate: str, tmp_path: Path) -> None:
    device = emulate.partition(":")[0].upper() or "CPU"
    kept = {name: value for name, value in os.environ.items() if not name.startswith("HCQ_")}
    done = subprocess.run(
        [sys.executable, SCRIPT, emulate, device, tmp_path],
        capture_output=True,
        text=True,
        timeout=90,
        cwd=ROOT,
        env={**kept, "PYTHONPATH": str(ROOT), "HCQ_CACHE_DIR": str(tmp_path), "HCQ_VALIDATE": validate},
    )
    assert done.returncode == 0, done.stderr[-3000:]
    found = json.loads(done.stdout.splitlines()[-1])
    assert {case: what for case, what in found.items() if what} == {}
    assert len(found) == 10
