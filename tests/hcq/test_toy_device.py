"""A kind of device that hcq has never heard of: a package of its own, one line that says it is there, no other edit."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TOY = ROOT / "tests" / "data" / "toy_device" / "toy"
LINE = "[hcq.backends]\nTOY = toy.backend:BACKEND\n"

TENSORS = """
import json
from hcq import Tensor, dtypes, jit

x = Tensor([[1.0, -2.0], [3.0, 4.0]], requires_grad=True)
assert x.device == "TOY"
found = {"matmul": (x @ x.T).relu().sum(dim=1).tolist()}
found["softmax"] = x.softmax(-1).tolist()
found["integers"] = ((x * 100).cast(dtypes.int32) // 7 % 5).tolist()
found["half"] = (x.cast(dtypes.float16) + 0.5).sum(0).tolist()
(x * x).sum().backward()
found["gradient"] = x.grad.tolist()


@jit
def step(a):
    return (a * 2 + 1).sum().realize()


found["jit"] = [step(Tensor([1.0, 2.0, float(i)])).item() for i in range(4)]
print(json.dumps(found))
"""

PLANTED = """
import hcq
from toy import packets

device = hcq.open("TOY")
kept, freed = device.alloc(1 << 20, "kept"), device.alloc(1 << 20, "freed")
va = freed.va
freed.free()
queue = device.queue().fill(kept, 1)
device.submit([queue.words, packets.Fill(dst=va, size_bytes=64).to_bytes()], queue.commands).wait()
"""


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the toy as a package manager installs it: its files, and the entry point in its metadata."""
    folder = tmp_path_factory.mktemp("site")
    shutil.copytree(TOY, folder / "toy", ignore=shutil.ignore_patterns("__pycache__"))
    facts = folder / "toy-1.0.dist-info"
    facts.mkdir()
    (facts / "METADATA").write_text("Metadata-Version: 2.1\nName: toy\nVersion: 1.0\n")
    (facts / "entry_points.txt").write_text(LINE)
    return folder


def run(installed: Path, *words: str, status: int = 0, **switches: str) -> str:
    """What Python prints, with the toy installed."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("HCQ_")}
    paths = os.pathsep.join((str(installed), str(ROOT)))
    environment = {**kept, "PYTHONPATH": paths, "HCQ_CACHE_DIR": str(installed / "cache"), **switches}
    done = subprocess.run(
        [sys.executable, *words], env=environment, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == status, done.stderr + done.stdout
    return done.stdout


@pytest.fixture(scope="module")
def tensors(installed: Path) -> tuple[str, Path]:
    """What a program of tensors printed that ran on the toy, and its trace."""
    trace = installed / "tensors.hcqtrace"
    switches = {"HCQ_DEVICE": "TOY", "HCQ_TRACE": f"{trace},data", "HCQ_VALIDATE": "1"}
    return run(installed, "-W", "error", "-c", TENSORS, **switches), trace


def tool(installed: Path, *words: str, status: int = 0) -> str:
    return run(installed, "-m", "hcq.tools.hcq_trace", *words, status=status)


def test_programs_of_tensors_run_on_it(installed: Path, tensors: tuple[str, Path]) -> None:
    assert json.loads(tensors[0]) == json.loads(run(installed, "-c", TENSORS.replace("TOY", "CPU")))


def test_its_traces_decode_and_its_kernels_have_names(installed: Path, tensors: tuple[str, Path]) -> None:
    shown = tool(installed, "show", str(tensors[1]))
    assert "TOY" in shown
    assert "Launch" in shown
    assert "UNKNOWN" not in shown
    assert "unclaimed" not in shown


def test_its_traces_replay(installed: Path, tensors: tuple[str, Path]) -> None:
    assert "same results, bit for bit" in tool(installed, "replay", str(tensors[1]))


def test_its_machine_code_is_shown(installed: Path, tensors: tuple[str, Path]) -> None:
    name = tool(installed, "disasm", str(tensors[1])).split("  ")[0]
    shown = tool(installed, "disasm", str(tensors[1]), name)
    assert f"{name}:" in shown
    assert "machine.store('float32'" in shown


def test_rules_hold_on_right_work_and_find_a_planted_violation(
    installed: Path, tensors: tuple[str, Path]
) -> None:
    assert "clean: " in tool(installed, "lint", str(tensors[1]))
    trace = installed / "planted.hcqtrace"
    run(installed, "-c", PLANTED, HCQ_TRACE=str(trace))
    found = tool(installed, "lint", str(trace), status=1)
    assert "freed" in found
    assert "Fill" in found


def test_the_doctor_examines_it_and_it_is_among_the_devices(installed: Path) -> None:
    found = json.loads(run(installed, "-m", "hcq", "doctor", "--device", "TOY", "--json"))
    checks = {check["name"]: check["status"] for check in found["devices"][0]["checks"]}
    assert checks.pop("peers") == "skipped"
    assert set(checks.values()) == {"ok"}
    assert {"open", "memory", "kernel", "copy", "timestamp"} <= set(checks)
    assert "TOY: toy; architecture toy1" in run(installed, "-m", "hcq", "devices")


def test_nothing_of_it_is_loaded_before_it_is_asked_for(installed: Path) -> None:
    program = "import sys, hcq; hcq.open('CPU'); print({'toy', 'importlib.metadata'} & {*sys.modules})"
    assert run(installed, "-c", program) == "set()\n"
