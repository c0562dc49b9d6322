"""How tests start several ranks: mpirun beside this Python, and what came of each rank.

In       the name of a program in programs.py, how many ranks
Out      `run_ranks`; `needs_mpi`, which skips a test and says why
Changes  processes, which have ended when `run_ranks` returns
Next     programs.py (what they run)
"""

from __future__ import annotations

import functools
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

HERE = Path(__file__).resolve().parent
LIMIT_S = 100


class Outcome(NamedTuple):
    """What mpirun gave back."""

    status: int
    out: str
    errors: str


@functools.cache
def missing() -> str:
    """Why no ranks can be started here, or ""."""
    tried = subprocess.run([sys.executable, "-c", "from mpi4py import MPI"], capture_output=True, text=True)
    if tried.returncode:
        return f"needs MPI: make mpi ({tried.stderr.strip().splitlines()[-1][:80]})"
    return "" if mpirun() else "needs mpirun: make mpi"


def mpirun() -> str | None:
    """The launcher of this environment, or else the machine's."""
    beside = Path(sys.executable).parent / "mpirun"
    return str(beside) if beside.exists() else shutil.which("mpirun")


def needs_mpi() -> None:
    """Skip the test where MPI is missing."""
    if missing():
        pytest.skip(missing())


def run_ranks(ranks: int, name: str, *arguments: str, **environment: str) -> Outcome:
    """Run a program on so many ranks."""
    needs_mpi()
    command = [mpirun(), "-n", str(ranks), sys.executable, str(HERE / "programs.py"), name, *arguments]
    env = {"HCQ_THREADS": "1", "HCQ_COMPILERS": "1", **os.environ, **environment}
    ran = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S, env=env)  # type: ignore[arg-type]
    return Outcome(ran.returncode, ran.stdout, ran.stderr)
