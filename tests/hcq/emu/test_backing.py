"""What stands behind allocations of emulated drivers: one file for all of them, and errors that say what is short."""

from __future__ import annotations

import dataclasses
import errno
import gc
import os
import resource
import time
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from hcq import config
from hcq.amd.device import AmdDevice
from hcq.emu import backing
from hcq.emu.backing import Backing
from hcq.emu.machine import kernels_for
from hcq.emu.port import EmulatedPort, port_for
from hcq.errors import DriverError
from hcq.lifetime import open_devices
from hcq.nv.device import NvDevice
from hcq.trace.file import Trace

KINDS = {"amd:gfx1100": AmdDevice, "nv:sm_90": NvDevice}


def descriptors() -> int:
    gc.collect()
    return len(os.listdir("/proc/self/fd"))


@pytest.fixture
def few_files(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """No further descriptor can be had, and the file of the emulators is not made yet."""
    monkeypatch.setattr(backing, "_memory", backing.DeviceMemory())
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    spare = os.open("/dev/null", os.O_RDONLY)
    os.close(spare)
    resource.setrlimit(resource.RLIMIT_NOFILE, (spare, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_what_was_given_back_is_zero_for_the_next_owner() -> None:
    first = Backing(8192)
    first.data[:] = 7
    at = first.offset
    kept = first.data[10:20]
    del first
    assert kept.tolist() == [7] * 10  # whoever still reads it keeps it
    del kept
    second = Backing(8192)
    assert second.offset == at
    assert not second.data.any()


def test_a_file_that_others_get_keeps_its_size_and_refuses_what_is_beyond_it() -> None:
    file = backing.DeviceMemory("shared", 1 << 30)
    first = Backing(8192, file)
    for size in (0, 4096, 1 << 31):
        with pytest.raises(PermissionError):
            os.ftruncate(file.fd, size)
        with open(f"/proc/self/fd/{file.fd}", "r+b") as anew, pytest.raises(PermissionError):
            os.ftruncate(anew.fileno(), size)
    first.data[:] = 1
    with pytest.raises(DriverError, match="ENOMEM"):
        Backing(1 << 30, file)
    assert os.fstat(file.fd).st_size == 1 << 30


def test_aligned_places_are_used_again() -> None:
    file = backing.DeviceMemory("shared", 1 << 40)
    offsets = {Backing(8192, file, multiple_of=4 << 30).offset for _ in range(5)}
    assert offsets == {0}


@pytest.mark.parametrize("word", KINDS)
def test_buffers_cost_no_descriptors(word: str) -> None:
    device = KINDS[word](word.partition(":")[0].upper(), port_for((word,)))
    before = descriptors()
    buffers = [device.alloc(1 << 16) for _ in range(40)]
    assert descriptors() <= before  # devices of other tests may still be closing theirs
    del buffers
    device.close()


@pytest.mark.parametrize("word", KINDS)
def test_opening_and_closing_leaves_no_descriptors(word: str) -> None:
    def use() -> None:
        device = KINDS[word](word.partition(":")[0].upper(), port_for((word,)))
        device.alloc(1 << 20)
        device.close()

    use()
    before = descriptors()
    for _ in range(5):
        use()
    assert descriptors() == before


def test_a_system_that_nobody_has_any_more_ends_its_queues_and_their_threads() -> None:
    """A program that leaves its queues behind: threads that go on looking at doorbells, and files, would stay."""
    device = AmdDevice("AMD", EmulatedPort(kernels_for(["amd:gfx1100"])))
    device.alloc(1 << 16)
    gpus = [weakref.ref(gpu) for gpu in device.port.kernels[0].gpus.values()]  # type: ignore[attr-defined]
    port, device.port = device.port, None  # type: ignore[assignment]
    device.close = lambda **fields: None  # type: ignore[method-assign]
    open_devices._open.remove(device)
    del device, port
    end = time.monotonic() + 60
    while any(gpu() is not None for gpu in gpus):
        gc.collect()
        assert time.monotonic() < end
        time.sleep(0.01)


def test_a_trace_takes_a_descriptor_only_while_a_device_writes_it(tmp_path: Path) -> None:
    settings = dataclasses.replace(config.current(), trace=str(tmp_path / "a.hcqtrace"))
    for _ in range(2):
        device = AmdDevice("AMD", EmulatedPort(kernels_for(["amd:gfx1100"])), settings)
        device.queue().barrier().submit().wait()
        device.close()
        open_files = [os.path.realpath(f"/proc/self/fd/{fd}") for fd in os.listdir("/proc/self/fd")]
        assert settings.trace not in open_files
    trace = Trace.read_all([str(settings.trace)])
    assert [submission.device.number for submission in trace.submissions] == [0, 1]


@pytest.mark.parametrize("word", KINDS)
def test_too_many_open_files_are_told_as_such(word: str, few_files: Any) -> None:
    with pytest.raises(DriverError, match=r"EMFILE.*ulimit -n") as caught:
        KINDS[word](word.partition(":")[0].upper(), port_for((f"{word}:seed=77",)))  # an emulator of its own
    assert caught.value.errno == errno.EMFILE
