"""Fixtures of the tests of hcq-trace: a recorded program, and the program itself run in this process."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from hcq.tools import hcq_trace
from tests.hcq.conftest import IR, assemble
from tests.hcq.conftest import compile_c as compile_c  # a fixture of ours, too
from tests.tools.trace.making import PROGRAM, record


class Done(NamedTuple):
    status: int
    out: str
    err: str


@pytest.fixture
def trace(capsys: pytest.CaptureFixture[str]) -> Callable[..., Done]:
    """trace("show", path, "--hex"): what hcq-trace does."""

    def run(*arguments: object) -> Done:
        capsys.readouterr()
        status = hcq_trace.main([str(one) for one in arguments])
        return Done(status, *capsys.readouterr())

    return run


@pytest.fixture(scope="session")
def kernels(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The object that PROGRAM loads."""
    path = tmp_path_factory.mktemp("kernels") / "k.o"
    path.write_bytes(assemble(IR))
    return path


@pytest.fixture(scope="session")
def capsule(tmp_path_factory: pytest.TempPathFactory, kernels: Path) -> Path:
    """PROGRAM, recorded with contents of memory."""
    return record(PROGRAM, tmp_path_factory.mktemp("capsule") / "run.hcqtrace", str(kernels))
