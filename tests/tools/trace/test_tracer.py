"""The tracer of foreign programs: programs behave as without it, and no store to a withheld page is made unseen."""

from __future__ import annotations

import os
import platform
import signal
import sys
from pathlib import Path

import pytest

from hcq.errors import HcqError
from hcq.kernel_observer import KernelObserver
from hcq.tools.trace.tracer import doorbells, filter, tracer
from hcq.tools.trace.tracer.process import TracedProcess

pytestmark = pytest.mark.skipif(platform.machine() != "x86_64", reason="the tracer knows x86-64's registers")


def traced(*command: str, every: bool = False) -> int:
    """The status of a traced command."""
    if filter.is_filtered() and not every:
        pytest.skip("a filter is here already, and would answer in the tracer's place")
    try:
        return tracer.Tracer(KernelObserver(), every).run(command)
    except HcqError as error:
        pytest.skip(str(error))


@pytest.mark.parametrize("every", [False, True], ids=["filtered", "every-call"])
@pytest.mark.parametrize(
    ("line", "status"),
    [
        ("exit 0", 0),
        ("exit 7", 7 << 8),
        ("kill -TERM $$", signal.SIGTERM),
        ("sh -c 'exit 3'; exit 4", 4 << 8),
    ],
)
def test_a_program_ends_as_it_would(line: str, status: int, every: bool) -> None:
    assert traced("sh", "-c", line, every=every) & ~0x80 == status


def test_a_program_that_is_not_there_is_told(capfd: pytest.CaptureFixture[str]) -> None:
    assert os.waitstatus_to_exitcode(traced("/nonexistent")) == 127
    assert "/nonexistent: No such file" in capfd.readouterr().err


STORES = """
import ctypes, mmap, os, signal, subprocess, sys, threading
page = mmap.mmap(os.open(sys.argv[1], os.O_RDWR), 4096)  # shared, and a file's: as doorbells are
cell = ctypes.c_uint64.from_buffer(page)
heard = []
signal.signal(signal.SIGUSR1, lambda *what: heard.append(1))
def count(first):
    for value in range(first, first + 50):
        cell.value = value
threads = [threading.Thread(target=count, args=(1000 * number,)) for number in range(1, 4)]
for one in threads:
    one.start()
    os.kill(os.getpid(), signal.SIGUSR1)
for one in threads:
    one.join()
assert subprocess.run(["true"]).returncode == 0
page[8:12] = b"last"
cell.value = 7
os._exit(0 if heard else 5)
"""


@pytest.mark.parametrize("every", [False, True], ids=["filtered", "every-call"])
def test_every_store_to_a_withheld_page_is_seen_before_it_is_made_and_is_made(
    every: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "page"
    path.write_bytes(bytes(4096))
    seen: list[bytes] = []

    class Withholding(TracedProcess):
        def mapped(self, thread: int, start: int, size_bytes: int, fd: int, offset: int) -> None:
            if size_bytes == 4096 and os.readlink(f"/proc/{self.pid}/fd/{fd}") == str(path):
                page = doorbells.withhold(thread, start, size_bytes, fd, offset)
                assert page is not None
                self.doorbells.append(page)
                self.call_at = self.call_at or tracer.ptrace.registers(thread)["rip"]

        def rung(self, va: int) -> doorbells.Doorbells | None:
            seen.append(path.read_bytes()[:8])
            return super().rung(va)

    monkeypatch.setattr(tracer, "TracedProcess", Withholding)
    assert traced(sys.executable, "-c", STORES, str(path), every=every) == 0
    assert path.read_bytes()[:12] == (7).to_bytes(8, "little") + b"last"
    assert len(seen) >= 152
    values = [int.from_bytes(one, "little") for one in seen]
    assert values[0] == 0  # nothing had been stored when the first store was seen
    assert {1000 * number + at for number in (1, 2, 3) for at in range(50)} - set(values) == set()
