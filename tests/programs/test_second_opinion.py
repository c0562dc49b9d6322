"""A HIP program's memory after each kernel is the same on two machines that compute the same."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.programs.conftest import HERE, Compiled, needs

pytestmark = pytest.mark.deadline(600)
TOOL = HERE.parent.parent / "tools" / "second_opinion"


@pytest.fixture
def program(request: pytest.FixtureRequest, arch: str, compiled: Compiled) -> Path:
    """A program of two kernels. It runs on one architecture only: what is tried here does not depend on it."""
    needs(request.config, shutil.which("cc") is not None, "C compiler")
    if arch != "gfx90a":
        pytest.skip("one architecture is enough")
    return compiled("reduction.hip", arch)


def opinions(*words: str | Path, **variables: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(TOOL), *map(str, words)],
        capture_output=True,
        text=True,
        env={**os.environ, **variables},
    )


def test_gpus_of_different_sizes_leave_the_same_memory(program: Path) -> None:
    done = opinions("--on", "amd:gfx90a", "--on", "amd:gfx90a:cu=2", "--", program)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "same memory: 2 kernels" in done.stdout


def test_compiled_and_interpreted_cores_leave_the_same_memory(program: Path, tmp_path: Path) -> None:
    for name, compiled in (("one", "0"), ("other", "always")):
        words = ("--on", "amd:gfx90a", "-o", tmp_path / name, "--", program)
        assert opinions(*words, HCQ_EMU_COMPILED=compiled).returncode == 0
    records = [str(tmp_path / name / "0.hcqmem") for name in ("one", "other")]
    done = subprocess.run(
        [sys.executable, "-m", "hcq.tools.hcq_trace", "diff", *records], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_another_emulator_is_run_with_its_configuration(program: Path, tmp_path: Path) -> None:
    """A program that takes rocjitsu's command line stands for it."""
    folder = tmp_path / "rocjitsu"
    (folder / "build").mkdir(parents=True)
    (folder / "configs").mkdir()
    (folder / "configs" / "small_kmd.json").write_text("{}")
    stand = folder / "build" / "rocjitsu"
    stand.write_text(
        f'#!/bin/sh\n[ "$1" = --config ] && [ -f "$2" ] && [ "$3" = -- ] || exit 9\nshift 3\n'
        f'exec "{sys.executable}" -m hcq emulate amd:gfx90a -- "$@"\n'
    )
    stand.chmod(0o755)
    on = ("--rocjitsu", folder, "--on", "amd:gfx90a", "--on")
    done = opinions(*on, "rocjitsu:small_kmd", "--", program)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "same memory: 2 kernels" in done.stdout
    refused = opinions(*on, "rocjitsu:other", "--", program)
    assert refused.returncode == 2
    assert "small_kmd" in refused.stderr


def test_a_program_that_launches_nothing_is_refused(program: Path) -> None:
    done = opinions("--on", "amd:gfx90a", "--on", "amd:gfx90a", "--", "true")
    assert done.returncode == 2
    assert "launched no kernel" in done.stderr
