"""Ports: the one door to the operating system can be recorded and made to fail."""

from __future__ import annotations

import dataclasses
import errno
import os
import time
from typing import Any

import pytest

from hcq import config
from hcq.cpu.device import CpuDevice
from hcq.errors import DriverError
from hcq.system import native
from hcq.system.port import (
    MAP_ANONYMOUS,
    MAP_PRIVATE,
    PROT_READ,
    PROT_WRITE,
    FaultyPort,
    LinuxPort,
    Port,
    RecordingPort,
)

ONE_THREAD = dataclasses.replace(config.Config.read({}), threads=1)


def test_a_recording_port_tells_every_call_and_its_result() -> None:
    calls: list[tuple[str, tuple[object, ...], object]] = []
    port = RecordingPort(LinuxPort(), lambda *call: calls.append(call))
    assert isinstance(port, Port)
    va = port.mmap(0, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS)
    port.munmap(va, 8192)
    with pytest.raises(DriverError):
        port.open("/nonexistent")
    assert calls[0] == ("mmap", (0, 8192, 3, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0), va)
    assert calls[1] == ("munmap", (va, 8192), None)
    assert calls[2][:2] == ("open", ("/nonexistent", os.O_RDWR))
    assert isinstance(calls[2][2], DriverError)
    assert abs(port.clock_ns() - time.monotonic_ns()) < 10**9


def test_refusals_name_the_call_its_arguments_and_the_fix() -> None:
    port = LinuxPort()
    with pytest.raises(DriverError, match=r"open\(/nonexistent\) -> ENOENT \(No such file or directory\)"):
        port.open("/nonexistent")
    with pytest.raises(DriverError, match=r"read\(/nonexistent\) -> ENOENT"):
        port.read_file("/nonexistent")
    with pytest.raises(DriverError, match=r"mmap\(size_bytes=0, .*\) -> EINVAL"):
        port.mmap(0, 0, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS)
    with pytest.raises(DriverError, match=r"munmap\(0x1, 5\) -> EINVAL"):
        port.munmap(1, 5)
    with pytest.raises(DriverError, match=r"mprotect\(0x1, 5, prot=0x1\) -> EINVAL"):
        port.mprotect(1, 5, PROT_READ)
    with (
        open("/dev/null", "rb") as file,
        pytest.raises(DriverError, match=r"ioctl\(fd=\d+, request=0x1234\) -> ENOTTY"),
    ):
        port.ioctl(file.fileno(), 0x1234, bytearray(8))


@pytest.mark.parametrize("allowed", range(4))
def test_opening_a_device_names_the_step_that_failed(allowed: int) -> None:
    port = FaultyPort(LinuxPort(), {"mmap": (allowed, errno.ENOMEM)})
    if allowed == 3:
        CpuDevice("CPU:ok", port=port, config=ONE_THREAD).close()
        return
    step = {0: '3/5 "make the ring"', 1: '3/5 "make the ring"', 2: '4/5 "make the timeline"'}[allowed]
    with pytest.raises(DriverError, match=rf"open CPU device: step {step} failed: mmap\(.*ENOMEM"):
        CpuDevice("CPU:faulty", port=port, config=ONE_THREAD)


@pytest.mark.parametrize("allowed", range(3))
def test_a_device_that_does_not_open_gives_back_what_it_mapped(allowed: int) -> None:
    calls: list[tuple[str, tuple[object, ...], object]] = []
    faulty = FaultyPort(LinuxPort(), {"mmap": (allowed, errno.ENOMEM)})
    with pytest.raises(DriverError, match="ENOMEM"):
        CpuDevice(
            "CPU:faulty", port=RecordingPort(faulty, lambda *call: calls.append(call)), config=ONE_THREAD
        )
    mapped = {call[2] for call in calls if call[0] == "mmap" and isinstance(call[2], int)}
    assert mapped == {call[1][0] for call in calls if call[0] == "munmap"}


def test_a_device_that_cannot_start_a_thread_stops_those_it_started(monkeypatch: pytest.MonkeyPatch) -> None:
    from hcq.system import native

    real = native.libc().pthread_create
    started = []

    def only_two(handle: object, attributes: object, start: object, argument: object) -> int:
        started.append(argument)
        return int(real(handle, attributes, start, argument)) if len(started) <= 2 else errno.EAGAIN

    threads_before = set(os.listdir("/proc/self/task"))  # of which some, of devices before, may be ending
    monkeypatch.setattr(native.libc(), "pthread_create", only_two)
    with pytest.raises(
        DriverError, match=r"step 5/5 \"start the threads\" failed: pthread_create\(worker_main\)"
    ):
        CpuDevice("CPU:many", config=dataclasses.replace(ONE_THREAD, threads=4))
    assert set(os.listdir("/proc/self/task")) <= threads_before


def test_a_load_that_gets_no_pages_is_a_driver_error_and_leaks_none(llvm_object: bytes) -> None:
    calls: list[tuple[str, tuple[object, ...], object]] = []
    faulty = FaultyPort(LinuxPort(), {"mprotect": (1, errno.EACCES)})
    device = CpuDevice(
        "CPU:w", port=RecordingPort(faulty, lambda *call: calls.append(call)), config=ONE_THREAD
    )
    with pytest.raises(DriverError, match="mprotect"):
        device.load(llvm_object, "add_one")
    attempts = sum(call[0] == "mprotect" and isinstance(call[2], DriverError) for call in calls)
    maps = {call[2]: call[1][1] for call in calls if call[0] == "mmap"}
    unmaps = [call[1] for call in calls if call[0] == "munmap"]
    assert len(unmaps) == attempts == 2  # the second after the pool has made room
    assert all(maps[va] == size for va, size in unmaps)
    device.close()


def test_a_function_is_called_with_the_types_it_is_encoded_with() -> None:
    seen: list[object] = []

    def answer(receiver: object, selector: object, size: Any, count: int, yes: int) -> object:
        seen.extend([native.address(receiver), native.address(selector)])
        seen.extend([size.field0, size.field1, size.field2, count, yes])
        return native.pointer(77)

    encoding = "@@:{?=QQQ}qB"
    kept = native.encoded_callback(encoding, answer)
    called = native.encoded_function(native.address(kept), encoding)
    assert called(2**63, 6, (1, 2, 2**64 - 1), -5, True) == 77
    assert seen == [2**63, 6, 1, 2, 2**64 - 1, -5, True]


def test_a_library_is_called_with_bytes_that_are_read_and_a_bytearray_that_is_written() -> None:
    port, target = LinuxPort(), bytearray(4)
    assert port.invoke("libc.so.6", "strlen", "Q*", b"hello\0") == 5
    port.invoke("libc.so.6", "memcpy", "^v^v^vQ", target, b"abcd", 3)
    assert target == b"abc\0"
    for library, function in (("libnothing.so", "strlen"), ("libc.so.6", "no_such_function")):
        with pytest.raises(DriverError, match=f"{library}.*no such"):
            port.invoke(library, function, "Q*", b"")


def test_a_call_of_a_library_is_recorded_and_refused_as_any_other() -> None:
    heard: list[Any] = []
    port = RecordingPort(
        FaultyPort(LinuxPort(), {"invoke": (1, errno.ENOMEM)}), lambda *what: heard.append(what)
    )
    assert port.invoke("libc.so.6", "strlen", "Q*", b"x\0") == 1
    with pytest.raises(DriverError, match=r"invoke.*ENOMEM"):
        port.invoke("libc.so.6", "strlen", "Q*", b"x\0")
    assert [call for call, _, _ in heard] == ["invoke", "invoke"]
