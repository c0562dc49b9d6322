"""OpenCL, the device of examples/custom_device: a package of its own that keeps the contract of a device and trains.

All of it in processes that find it as they find an installed one, by its entry point.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "examples" / "custom_device"
ENTRY_POINTS = "[hcq.backends]\nOPENCL = hcq_opencl.backend:BACKEND\n"

pytestmark = [pytest.mark.own_devices, pytest.mark.deadline(480)]
Run = Callable[..., str]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A function that runs Python with the example installed, as a package manager does it."""
    folder = tmp_path_factory.mktemp("site")
    shutil.copytree(EXAMPLE, folder, dirs_exist_ok=True, ignore=shutil.ignore_patterns("__pycache__"))
    facts = folder / "hcq_opencl-1.0.dist-info"
    facts.mkdir()
    (facts / "METADATA").write_text("Metadata-Version: 2.1\nName: hcq-opencl\nVersion: 1.0\n")
    (facts / "entry_points.txt").write_text(ENTRY_POINTS)

    def run_python(*words: str, **switches: str) -> str:
        kept = {name: value for name, value in os.environ.items() if not name.startswith("HCQ_")}
        cache = {"HCQ_CACHE_DIR": str(folder / "cache"), "POCL_CACHE_DIR": str(folder / "pocl")}
        paths = {"PYTHONPATH": os.pathsep.join((str(folder), str(ROOT))), "HCQ_TIMEOUT_MS": "300000"}
        done = subprocess.run(
            [sys.executable, *words],
            env={**kept, **cache, **paths, **switches},
            cwd=folder,
            capture_output=True,
            text=True,
            timeout=460,
            check=False,
        )
        assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-3000:]
        return done.stdout

    why = run_python("-c", "from test_contract import TestOpenCl; print(TestOpenCl().missing())").strip()
    if why:
        pytest.skip(why)
    return run_python


def test_its_pyproject_names_the_entry_point() -> None:
    text = (EXAMPLE / "pyproject.toml").read_text()
    assert '[project.entry-points."hcq.backends"]\nOPENCL = "hcq_opencl.backend:BACKEND"\n' in text


def test_it_keeps_the_contract_of_a_device(run: Run) -> None:
    said = run("-m", "pytest", "-q", "-p", "no:cacheprovider", "test_contract.py", HCQ_TIMEOUT_MS="30000")
    assert "passed" in said
    assert "skipped" not in said


def test_the_digits_network_learns_on_it_as_on_the_cpu(run: Run) -> None:
    program = str(ROOT / "tests" / "examples" / "digits_losses.py")
    found, right = (json.loads(run(program, HCQ_DEVICE=name)) for name in ("OPENCL", "CPU"))
    assert found == pytest.approx(right, rel=1e-4)


@pytest.mark.thorough
def test_tensor_programs_give_on_it_what_they_give_on_the_cpu(run: Run) -> None:
    program = str(ROOT / "tests" / "frontend" / "two_machines.py")
    found = json.loads(run(program, "", "OPENCL").splitlines()[-1])
    assert {name: what for name, what in found.items() if what} == {}
    assert len(found) > 30
