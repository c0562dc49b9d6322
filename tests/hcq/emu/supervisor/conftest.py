"""Programs on emulated GPUs: each test starts one through the command line.

In       the program: a shell's line, or lines of Python
Out      fixture `emulate`: runs it to its end; `start`: leaves it running
Changes  nothing that outlives the test
"""

from __future__ import annotations

import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

COMMAND = [sys.executable, "-m", "hcq", "emulate"]
# what programs in Python begin with: raw calls on /dev/kfd, by the structures that the driver declares
PRELUDE = """
import errno, fcntl, mmap, os, signal, sys, threading, time
from hcq.amd.abi import kfd
from hcq.amd.ioctl import call
from hcq.errors import DriverError
from hcq.system.port import LinuxPort
port = LinuxPort()
"""


@pytest.fixture(scope="session")
def allowed() -> None:
    done = subprocess.run([*COMMAND, "amd:gfx1100", "--", "true"], capture_output=True, text=True)
    if done.returncode == 2 and "seccomp" in done.stderr:
        pytest.skip(done.stderr.strip())


Program = Callable[..., subprocess.CompletedProcess[str]]


def command_of(program: str | list[str], words: str = "amd:gfx1100") -> list[str]:
    """A shell's line, lines of Python (which begin with a line break), or a command."""
    if isinstance(program, list):
        return [*COMMAND, words, "--", *program]
    if program.startswith("\n"):
        return [*COMMAND, words, "--", sys.executable, "-c", PRELUDE + textwrap.dedent(program)]
    return [*COMMAND, words, "--", "sh", "-c", program]


@pytest.fixture
def emulate(allowed: None) -> Program:
    def run(
        program: str | list[str], words: str = "amd:gfx1100", given: str = ""
    ) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            command_of(program, words), capture_output=True, text=True, input=given, timeout=120
        )

    return run


@pytest.fixture
def start(allowed: None) -> Iterator[Callable[[str], subprocess.Popen[str]]]:
    running = []

    def run(program: str) -> subprocess.Popen[str]:
        one = subprocess.Popen(
            command_of(program),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        running.append(one)
        return one

    yield run
    for one in running:
        one.kill()
        one.communicate()


def is_running(pid: int) -> bool:
    """Whether there is such a process, and not only what remains of one."""
    try:
        return "\nState:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except FileNotFoundError:
        return False
