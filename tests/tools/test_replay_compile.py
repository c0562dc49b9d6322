"""Compiling the kernels of a trace again: the same revision makes the same, and what differs is named."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from hcq.tools import replay_compile
from hcq.trace.file import Trace

SCRIPT = """
from hcq import Tensor
print((Tensor([[1.0, 2.0], [3.0, 4.0]]) @ Tensor([[1.0], [2.0]])).softmax(0).numpy())
"""


@pytest.fixture(scope="module")
def traced(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("trace") / "run.hcqtrace"
    environment = {**os.environ, "HCQ_TRACE": str(path), "HCQ_EMULATE": "nv:sm_90", "HCQ_DEVICE": "NV"}
    subprocess.run([sys.executable, "-c", SCRIPT], env=environment, check=True, timeout=50)
    return path


def test_the_revision_that_made_a_trace_makes_the_same_again(
    traced: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert replay_compile.main([str(traced), "--same"]) == 0
    assert "0 differ, 0 fail" in capsys.readouterr().out


def test_another_schedule_and_another_code_are_told_apart(traced: Path) -> None:
    code = next(iter(replay_compile.kernels(Trace.read(str(traced)))))
    same = replay_compile.again(code)
    assert same.verdict == "same"
    assert replace(same, before=same.before + "\n").verdict == "code differs"
    assert replace(same, before=f"schedule: other\n{same.before}").verdict == "schedule differs"


def test_a_kernel_keeps_its_schedule_when_asked(traced: Path) -> None:
    for code in replay_compile.kernels(Trace.read(str(traced))):
        assert replay_compile.again(code, keeps_schedule=True).verdict == "same"


def test_what_no_longer_compiles_says_why(traced: Path) -> None:
    code = next(iter(replay_compile.kernels(Trace.read(str(traced)))))
    code.facts["source"] = "schedule: split r9 8\n"
    assert "no loop named 'r9'" in replay_compile.again(code, keeps_schedule=True).verdict
    code.facts["graph"] = "hcq graph 1\n[]"
    assert replay_compile.again(code).verdict.startswith("FAILS: line 2 of a graph")


def test_a_file_that_is_no_trace_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "none"
    path.write_bytes(b"hello")
    assert replay_compile.main([str(path)]) == 2
    assert "none" in capsys.readouterr().err
