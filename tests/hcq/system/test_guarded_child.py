"""A compiler that runs out of memory is an error of one call, not the end of the process."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from hcq.errors import DriverError
from hcq.system import guarded_child

ROOT = Path(__file__).parent.parent.parent.parent


@pytest.fixture
def little_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guarded_child, "limits", lambda: "ulimit -v 1000")


def test_without_a_limit_the_work_is_done_in_this_process() -> None:
    assert resource.getrlimit(resource.RLIMIT_AS)[0] == resource.RLIM_INFINITY
    assert guarded_child.limits() == ""
    assert guarded_child.run(lambda: b"%d" % os.getpid(), "pid") == b"%d" % os.getpid()


def test_where_memory_is_limited_a_child_does_the_work(little_room: None) -> None:
    assert guarded_child.run(lambda: b"%d" % os.getpid(), "pid") != b"%d" % os.getpid()
    assert guarded_child.run(lambda: bytes(1 << 20), "zeroes") == bytes(1 << 20)


def test_an_error_of_the_work_is_raised_here(little_room: None) -> None:
    def refuse() -> bytes:
        raise KeyError("its own")

    with pytest.raises(KeyError, match="its own"):
        guarded_child.run(refuse, "refusing")


def test_the_end_of_the_child_is_one_error_that_names_the_limit(little_room: None) -> None:
    def end() -> bytes:
        os.abort()

    def fill() -> bytes:
        raise MemoryError

    for work, how in ((end, "SIGABRT"), (fill, "a MemoryError")):
        with pytest.raises(
            DriverError, match=f"^compiling x: the compiler ended with {how}. .* ulimit -v 1000"
        ):
            guarded_child.run(work, "compiling x")
    assert guarded_child.run(lambda: b"next", "next") == b"next"


PROGRAM = """
import resource, sys
import hcq
from hcq.system import guarded_child as confined
hcq.open("CPU")
limit = confined._used(0) + (int(sys.argv[1]) << 20)
resource.setrlimit(resource.RLIMIT_AS, (limit, resource.RLIM_INFINITY))
assert confined.limits()
try:
    print(hcq.Tensor([1.0, 2.0]).sum().item())
except (hcq.DriverError, MemoryError) as error:
    print(type(error).__name__)
resource.setrlimit(resource.RLIMIT_AS, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
print((hcq.Tensor([1.0, 2.0]) * 3).tolist())
"""


@pytest.mark.deadline(180)
@pytest.mark.parametrize("room_mib", [16, 80, 140])  # LLVM does not load, barely loads, works or ends
def test_a_program_under_ulimit_v_gets_an_error_and_goes_on(tmp_path: Path, room_mib: int) -> None:
    environment = {**os.environ, "HCQ_CACHE_DIR": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(room_mib)],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        timeout=170,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    first, second = done.stdout.splitlines()
    assert first in ("3.0", "DriverError", "MemoryError")
    assert second == "[3.0, 6.0]"


@pytest.mark.parametrize(
    ("library", "told"),
    [
        (
            "raise ModuleNotFoundError(\"No module named 'llvmlite'\", name='llvmlite')",
            "not installed here: pip install 'hcq\\[tensor\\]'",
        ),
        (
            "raise ImportError('libstdc++.so.6: version not found')",
            "cannot be imported: libstdc.* version not found",
        ),
        (
            "raise OSError('libLLVM.so: failed to map segment')",
            "cannot be imported: libLLVM.so: failed to map",
        ),
        (
            "import no_such_thing",
            "cannot be imported: No module named 'no_such_thing'. Install what it asks for",
        ),
    ],
)
def test_why_llvm_cannot_be_imported_is_told_as_it_is(tmp_path: Path, library: str, told: str) -> None:
    (tmp_path / "llvmlite").mkdir()
    (tmp_path / "llvmlite" / "__init__.py").write_text(library)
    code = """
import re, sys
import hcq
from hcq.frontend.core import device
try:
    with device.toolchain():
        from hcq.compiler.assemble import llvm_cpu
        llvm_cpu.binding()
except hcq.DriverError as error:
    assert re.search(sys.argv[1], str(error)), error
    print("told")
"""
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-c", code, told],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, "told\n"), done.stderr
