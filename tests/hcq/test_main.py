"""python -m hcq: says what can be opened here."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

import hcq
from hcq.__main__ import main
from hcq.config import SWITCHES
from tests.hcq.machines import BrokenGpus, NoGpus


def test_devices_lists_the_cpu(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["devices"], NoGpus()) == 0
    said = capsys.readouterr().out
    assert said.startswith("CPU: ")
    assert f"architecture {os.uname().machine}; " in said and "; queue main; driver: " in said


def test_devices_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["devices", "--json"], NoGpus()) == 0
    facts = json.loads(capsys.readouterr().out)[0]
    assert facts["name"] == "CPU"
    assert facts["arch"] == os.uname().machine
    assert facts["threads"] >= 1


@pytest.mark.parametrize("module", ["hcq", "hcq.tools.hcq_trace", "hcq.tools.hw_check"])
def test_every_program_says_its_version(module: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", module, "--version"], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0
    assert done.stdout.split()[-1] == hcq.__version__


def test_the_help_names_every_switch_and_shows_an_example(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 0
    said = capsys.readouterr().out
    assert "hcq.open('CPU')" in said
    assert not [name for name in SWITCHES if name not in said]


def test_a_device_that_cannot_be_opened_says_why(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from hcq.doctor import examine
    from hcq.errors import DriverError

    def refuse(*_: object) -> object:
        raise DriverError('open CPU device: step 3/5 "make the ring" failed')

    monkeypatch.setattr(examine, "open_device", refuse)
    assert main(["devices"], NoGpus()) == 1
    said = capsys.readouterr().out
    assert 'CPU: cannot be opened. open CPU device: step 3/5 "make the ring" failed' in said
    assert "    fix: " in said


def test_files_of_gpus_that_cannot_be_opened_are_told_and_the_cpu_is_well(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["devices"], BrokenGpus()) == 0
    said = capsys.readouterr().out
    assert said.startswith("CPU: ")
    assert "NV: cannot be opened. open(/dev/nvidiactl) -> EIO" in said
    assert "AMD: cannot be opened. " in said
    assert main(["doctor", "--device", "CPU"], BrokenGpus()) == 0
    assert main(["doctor", "--device", "NV"], BrokenGpus()) == 1
    assert main(["doctor", "--device", "AMD"], BrokenGpus()) == 1
