"""What drives, traces, examines and emulates needs no LLVM: programs in which llvmlite cannot be imported."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent
REFUSED = "import sys; sys.modules['llvmlite'] = None\n"  # at every start of Python below this folder
LINE = "kernels are compiled by LLVM, which is not installed here: pip install 'hcq[tensor]'"

SUBMIT = """
import hcq
device = hcq.open({kind!r})
memory = device.alloc(64, "memory")
device.queue().fill(memory, 7).submit().wait(timeout_ms=10_000)
print(memory.read()[:4])
"""


@pytest.fixture
def run(tmp_path: Path) -> Callable[..., str]:
    """Run Python without LLVM and with an empty cache; its output, or with fails=True what it says on stderr."""
    (tmp_path / "sitecustomize.py").write_text(REFUSED)
    paths = f"{tmp_path}{os.pathsep}{ROOT}"

    def run(*words: str, fails: bool = False, **switches: str) -> str:
        environment = {
            **os.environ,
            "PYTHONPATH": paths,
            "HCQ_CACHE_DIR": str(tmp_path / "cache"),
            **switches,
        }
        done = subprocess.run(
            [sys.executable, *words],
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
            timeout=100,
        )
        assert (done.returncode != 0) == fails, done.stdout + done.stderr
        return done.stderr if fails else done.stdout

    assert run("-c", "import sys; print(sys.modules['llvmlite'])") == "None\n"
    return run


EMULATED = {"CPU": "", "AMD": "amd:gfx1100", "NV": "nv:sm_90", "METAL": "metal:m3"}


@pytest.mark.sampled(2)
@pytest.mark.parametrize("kind", EMULATED)
def test_a_submission_runs_and_its_trace_is_read(run: Callable[..., str], kind: str, tmp_path: Path) -> None:
    trace = str(tmp_path / "run.hcqtrace")
    switches = {"HCQ_EMULATE": EMULATED[kind], "HCQ_TRACE": trace, "HCQ_VALIDATE": "1"}
    assert run("-c", SUBMIT.format(kind=kind), **switches) == f"{bytes([7] * 4)!r}\n"
    assert "memory" in run("-m", "hcq.tools.hcq_trace", "show", trace)
    assert run("-m", "hcq.tools.hcq_trace", "stats", trace)
    run("-m", "hcq.tools.hcq_trace", "lint", trace)


@pytest.mark.sampled(1)
@pytest.mark.deadline(180)
@pytest.mark.parametrize("emulated", ["amd:gfx1100", "nv:sm_90", "metal:m3"])
def test_the_doctor_finds_every_device_well(run: Callable[..., str], emulated: str) -> None:
    found = run("-m", "hcq", "doctor", "--emulated", emulated)
    assert "FAILED" not in found
    assert found.count("  ok     kernel") == 2


def test_a_kernel_of_tensors_says_in_one_sentence_what_is_to_be_installed(run: Callable[..., str]) -> None:
    told = run("-c", "import hcq; (hcq.Tensor([1.0]) + 1).realize()", fails=True)
    assert told.splitlines()[-1].partition(": ")[2].endswith(LINE)
