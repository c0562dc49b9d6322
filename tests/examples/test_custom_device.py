"""OpenCL, the device of examples/custom_device: a package of its own that keeps the contract of a device and trains.

All of it in processes that find it as they find an installed one, by its entry point.
"""

from __future__ import annotations

import json

import pytest

from tests.examples.installed import ROOT, Run, installed

EXAMPLE = ROOT / "examples" / "custom_device"
KIND, PLACE = "OPENCL", "hcq_opencl.backend:BACKEND"

pytestmark = [pytest.mark.own_devices, pytest.mark.deadline(480)]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A function that runs Python with the example installed."""
    folder = tmp_path_factory.mktemp("site")
    run = installed(folder, EXAMPLE, "hcq-opencl", KIND, PLACE, POCL_CACHE_DIR=str(folder / "pocl"))
    why = run("-c", "from test_contract import TestOpenCl; print(TestOpenCl().missing())").strip()
    if why:
        pytest.skip(why)
    return run


def test_its_pyproject_names_the_entry_point() -> None:
    text = (EXAMPLE / "pyproject.toml").read_text()
    assert f'[project.entry-points."hcq.backends"]\n{KIND} = "{PLACE}"\n' in text


def test_it_keeps_the_contract_of_a_device(run: Run) -> None:
    said = run("-m", "pytest", "-q", "-p", "no:cacheprovider", "test_contract.py", HCQ_TIMEOUT_MS="30000")
    assert "passed" in said
    assert "skipped" not in said


@pytest.mark.thorough
def test_the_digits_network_learns_on_it_as_on_the_cpu(run: Run) -> None:
    program = str(ROOT / "tests" / "examples" / "digits_losses.py")
    found, right = (json.loads(run(program, HCQ_DEVICE=name)) for name in (KIND, "CPU"))
    assert found == pytest.approx(right, rel=1e-4)


@pytest.mark.thorough
def test_tensor_programs_give_on_it_what_they_give_on_the_cpu(run: Run) -> None:
    program = str(ROOT / "tests" / "frontend" / "two_machines.py")
    found = json.loads(run(program, "", KIND).splitlines()[-1])
    assert {name: what for name, what in found.items() if what} == {}
    assert len(found) > 30
