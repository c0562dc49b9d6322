"""WebGPU, the device of examples/custom_device_webgpu: a package of its own that keeps the contract and trains.

All of it in processes that find it as they find an installed one, by its entry point, on whatever adapter is here:
software will do.
"""

from __future__ import annotations

import json

import pytest

from tests.examples.installed import ROOT, Run, installed

EXAMPLE = ROOT / "examples" / "custom_device_webgpu"
KIND, PLACE = "WEBGPU", "hcq_webgpu.backend:BACKEND"
TOOLS = "doctor or trace or disassembled"  # tests of the contract that start processes of their own

pytestmark = [pytest.mark.own_devices, pytest.mark.deadline(480)]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A function that runs Python with the example installed."""
    run = installed(tmp_path_factory.mktemp("site"), EXAMPLE, "hcq-webgpu", KIND, PLACE)
    why = run("-c", "from test_contract import TestWebGpu; print(TestWebGpu().missing())").strip()
    if why:
        pytest.skip(why)
    return run


def keeps_the_contract(run: Run, words: str) -> None:
    said = run(
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        "test_contract.py",
        "-k",
        words,
        HCQ_TIMEOUT_MS="30000",
    )
    assert "passed" in said
    assert "skipped" not in said


def test_its_pyproject_names_the_entry_point() -> None:
    text = (EXAMPLE / "pyproject.toml").read_text()
    assert f'[project.entry-points."hcq.backends"]\n{KIND} = "{PLACE}"\n' in text


@pytest.mark.thorough
def test_it_keeps_the_contract_of_a_device(run: Run) -> None:
    keeps_the_contract(run, f"not ({TOOLS})")


@pytest.mark.thorough
def test_it_keeps_the_contract_with_the_tools(run: Run) -> None:
    keeps_the_contract(run, TOOLS)


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


@pytest.mark.thorough
@pytest.mark.parametrize("dtype", ["float64", "float32", "float16"])
def test_edges_of_numbers_are_on_it_what_they_are_on_the_cpu(run: Run, dtype: str) -> None:
    program = str(ROOT / "tests" / "frontend" / "numbers_on_two_machines.py")
    found = json.loads(run(program, "", KIND, dtype).splitlines()[-1])
    assert found["problems"] == []
    assert found["cases"] > 100


@pytest.mark.thorough
def test_long_sums_are_right_where_a_drivers_loops_may_not_be_long(run: Run) -> None:
    program = str(ROOT / "tests" / "examples" / "long_sums.py")
    found = json.loads(run(program, HCQ_DEVICE=KIND))
    assert {name: what for name, what in found.items() if what is not True} == {}
    assert len(found) > 30


@pytest.mark.thorough
def test_a_kernel_whose_loops_a_driver_would_cut_short_is_refused(run: Run) -> None:
    said = run(
        "-c",
        "import hcq, numpy, pytest\n"
        "from hcq import Tensor\n"
        "from hcq_webgpu import codegen\n"
        "codegen.MOST_TURNS = 100\n"
        "x = Tensor(numpy.ones((2, 4096), numpy.float32))\n"
        "if hcq.open('WEBGPU').arch.endswith('llvmpipe'):\n"
        "    with pytest.raises(ValueError, match='turns of loops in an invocation'):\n"
        "        x.sum(1).realize()\n"
        "    print('refused')",
        HCQ_DEVICE=KIND,
    )
    if "refused" not in said:
        pytest.skip("this adapter is not Mesa's for CPUs, whose loops are short")


@pytest.mark.thorough
def test_a_child_of_fork_is_told_to_be_a_process_of_its_own(run: Run) -> None:
    said = run(
        "-W",
        "ignore::DeprecationWarning",  # of forks of processes with threads: that is what happens to people
        "-c",
        "import os, hcq\n"
        "buffer = hcq.open('WEBGPU').alloc(100)\n"
        "buffer.write(b'x' * 100)\n"
        "child = os.fork()\n"
        "if child == 0:\n"
        "    try:\n"
        "        hcq.open('WEBGPU')\n"
        "    except hcq.DriverError as error:\n"
        "        print(error, flush=True)\n"
        "    os._exit(0)\n"
        "os.waitpid(child, 0)\n"
        "print(buffer.read(0, 3))",
    )
    assert "a fork has none of its drivers' threads" in said
    assert said.endswith("b'xxx'\n")
