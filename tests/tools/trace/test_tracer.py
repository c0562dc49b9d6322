"""The tracer of foreign programs: programs behave as without it, and no store to a withheld page is made unseen."""

from __future__ import annotations

import os
import platform
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from hcq.errors import HcqError
from hcq.events.kernel_observer import KernelObserver
from hcq.observe.lint import lint
from hcq.tools.trace.tracer import doorbells, filter, tracer
from hcq.tools.trace.tracer.process import TracedProcess
from hcq.trace.file import Trace
from tests.hcq.watched import words, work

pytestmark = pytest.mark.skipif(platform.machine() != "x86_64", reason="the tracer knows x86-64's registers")


def traced(*command: str, every: bool = False, process_of: type[TracedProcess] = TracedProcess) -> int:
    """The status of a traced command."""
    if filter.is_filtered() and not every:
        pytest.skip("a filter is here already, and would answer in the tracer's place")
    try:
        return tracer.Tracer(KernelObserver(), every, process_of).run(command)
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
    every: bool, tmp_path: Path
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

    assert traced(sys.executable, "-c", STORES, str(path), every=every, process_of=Withholding) == 0
    assert path.read_bytes()[:12] == (7).to_bytes(8, "little") + b"last"
    assert len(seen) >= 152
    values = [int.from_bytes(one, "little") for one in seen]
    assert values[0] == 0  # nothing had been stored when the first store was seen
    assert {1000 * number + at for number in (1, 2, 3) for at in range(50)} - set(values) == set()


OUR_DRIVER = """
import hcq
device = hcq.open("NV")
a, b = device.alloc(1 << 16), device.alloc(1 << 16)
for value in range(3):
    device.queue().fill(a, value).copy(b, a).submit().wait()
assert set(b.read()) == {2}
print((hcq.Tensor([1.0, 2.0, 3.0], device="NV") + 2).tolist())
graph = device.graph("twice").fill(a, 7).copy(b, a)
for _ in range(2):
    graph.replay().wait()
device.close()
"""


def test_of_nvidias_driver_it_sees_from_outside_what_the_emulated_gpu_sees_inside(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing missing, nothing added: words of the rings, launches with arguments, calls with what they point to."""
    inside, outside = tmp_path / "inside.hcqtrace", tmp_path / "outside.hcqtrace"
    monkeypatch.setenv("HCQ_TRACE", str(inside))
    record = ["-m", "hcq.tools.hcq_trace", "record", "--foreign", "-o", str(outside), "--"]
    command = [
        "-m",
        "hcq",
        "emulate",
        "nv:sm_90",
        "--",
        sys.executable,
        *record,
        sys.executable,
        "-c",
        OUR_DRIVER,
    ]
    done = subprocess.run([sys.executable, *command], capture_output=True, text=True, timeout=120)
    if done.returncode == 2 and ("seccomp" in done.stderr or "ptrace" in done.stderr):
        pytest.skip(done.stderr.strip())
    assert (done.returncode, done.stdout) == (0, "[3.0, 4.0, 5.0]\n"), done.stderr
    seen, known = Trace.read(str(outside)), Trace.read(str(inside))
    process = seen.devices[0].process
    submissions = [made for made in known.submissions if made.device.process == process]
    assert len(submissions) > 5

    assert words(seen.submissions) == words(submissions)
    assert work(seen.submissions) == work(submissions)
    calls = [
        Counter(
            (one.fields["path"], one.fields["arguments"][1], one.fields.get("errno"), one.data)
            for one in made
        )
        for made in (seen.calls, [one for one in known.calls if one.process == process])
    ]
    assert calls[0] == calls[1]
    assert [(one.name, one.image) for one in seen.code] == [(one.name, one.image) for one in known.code]
    assert lint(seen) == []
