"""Forks of the CPU device: the child has a copy of its memory, code and all, and starts threads of its own.

In       a device that held still while the process forked
Out      in the child the same device: buffers with their contents, programs, graphs
Changes  before the fork: waits for work in flight. In the child, when it is first used: new threads on the old ring
Next     device.py (the rest of the device), hcq/life.py (what other devices do), hcq/open_devices.py (who calls)

The memory is private to each process: what parent and child write from here on, the other does not see. Work that was
in flight for too long to be waited for is finished by the parent alone; the child's copy of what it writes is marked.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from hcq import native, open_devices
from hcq.errors import UsageError
from hcq.life import FORKED
from hcq.port import RecordingPort
from hcq.trace.writer import DeviceTrace, TraceWriter

if TYPE_CHECKING:
    from hcq.cpu.device import CpuDevice

UNFINISHED = "work that was in flight when this process was forked is finished by its parent alone"
TORN = f"{FORKED}, and another thread was submitting to it meanwhile"


class Still:
    """What is held while the process forks: nobody submits or maps, so that the child's copy is whole."""

    def __init__(self, device: CpuDevice, end: float) -> None:
        self.locks: list[Any] = []
        self.is_whole = False
        for lock in (device.lock, device.memory.lock):
            if not lock.acquire(timeout=max(0.0, end - time.monotonic())):
                return
            self.locks.append(lock)
        self.is_whole = True
        device.rests_within(max(0.0, 1000 * (end - time.monotonic())))

    def let_go(self) -> None:
        for lock in reversed(self.locks):
            lock.release()
        self.locks.clear()


def inherit(device: CpuDevice, still: Still | None) -> bool:
    """In the child: the device sleeps until it is used. False when its state is torn."""
    device.is_traced = device.is_traced or device.trace is not None
    device.forget_parent()
    device.memory.forget_parent()
    if still is None or not still.is_whole:
        device.memory.abandon()
        device.die(TORN)
        return False
    device.die(FORKED)
    return True


def tell_again(device: CpuDevice) -> None:
    """The child's trace and rules are its own: they are told of everything that is there already."""
    if device.is_traced:
        assert device.config.trace is not None
        trace = device.trace = DeviceTrace(
            TraceWriter.of(device.config.trace), device, device.config.trace_data
        )
        device.port = RecordingPort(device.port, trace.call)
        trace.opened()
        for va, size_bytes in device.memory.regions.items():
            trace.map(va, size_bytes, None)
        for buffer in device.memory.owners():
            trace.alloc(buffer)
            trace.wrote(buffer.address, native.view(buffer.address, buffer.size_bytes))
    if device.config.validate:
        from hcq.validator import Validator

        device.validator = Validator(device)
    for program, (entry, image, texts) in list(device.told.items()):
        if device.trace is not None:
            device.trace.code(program, entry, image, texts)
        if device.validator is not None:
            device.validator.load(program, image)


def revive(device: CpuDevice) -> bool:
    """In the child: make it work."""
    with device.lock:
        if device.dead != FORKED:
            return not device.dead
        if open_devices.is_ending:
            raise UsageError(f"{device.name} cannot be used: this process is ending.")
        device.restart()
        tell_again(device)
        device.come_alive()
        if device.timeline.value < device.timeline.submitted:
            device.leave_unfinished(UNFINISHED)
        open_devices.register(device)
        return True
