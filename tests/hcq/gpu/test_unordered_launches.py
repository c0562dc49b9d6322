"""HCQ_SANITIZE=race between launches and copies of several devices: judged by the bytes that they really touch."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np
import pytest

from hcq import Device
from hcq.amd.device import AmdDevice
from hcq.config import Config
from hcq.emu.port import port_for
from hcq.memory import Buffer
from hcq.nv.device import NvDevice
from hcq.observe.sanitizer import Sanitizer
from hcq.program import Program
from hcq.rules.rule import Finding
from hcq.work.peers import PeerQueue
from tests.hcq.gpu.test_global_sanitizer import image
from tests.hcq.gpu.test_sanitizer import LOOKS

pytestmark = pytest.mark.own_devices


class Pair(NamedTuple):
    """Two GPUs that reach each other's memory. buffers: data, flag, out of the first, and more of the second."""

    one: Device
    other: Device
    buffers: list[Buffer]

    def load(self, device: Device, body: str) -> Program:
        return device.load(image(device, body), "kernel")

    def found(self, work: Callable[[], None]) -> list[Finding]:
        """What is said of some work."""
        Sanitizer._unordered.clear()
        before = len(Sanitizer.findings)
        work()
        self.one.synchronize(), self.other.synchronize()
        return Sanitizer.findings[before:]


@pytest.fixture(params=["nv:sm_90", "amd:gfx1100"])
def pair(request: pytest.FixtureRequest) -> Iterator[Pair]:
    kind, name = (AmdDevice, "AMD") if request.param.startswith("amd") else (NvDevice, "NV")
    port, settings = port_for([request.param] * 2), Config.read({**LOOKS, "HCQ_VALIDATE": "0"})
    one, other = kind(name, port, settings), kind(f"{name}:1", port, settings)
    buffers = [device.alloc(1024, name=text) for device, text in ((one, "data"), (one, "flag"), (one, "out"))]
    buffers.append(other.alloc(1024, name="more"))
    for buffer in buffers:
        buffer.write(bytes(1024))
    yield Pair(one, other, buffers)
    one.close(), other.close()


def test_a_copy_on_another_device_that_does_not_wait_for_the_launch_is_found(pair: Pair) -> None:
    data, flag, out, more = pair.buffers
    writes = pair.load(pair.one, "write data[thread]")

    def work(waits: bool, first: int = 0) -> Callable[[], None]:
        def run() -> None:
            done = pair.one.queue().dispatch(writes, [data, flag, out], block=(64, 1, 1)).submit()
            queue = PeerQueue(pair.other)
            (queue.after(done) if waits else queue).copy(more, data, 256, src_offset=first).submit().wait()
            done.wait()

        return run

    assert pair.found(work(True)) == []
    assert pair.found(work(False, 256)) == []  # other bytes of the buffer
    (finding,) = pair.found(work(False, 128))
    assert (finding.rule, finding.kernel, finding.buffer) == ("unordered-launches", "kernel", "data")
    assert finding.what.startswith("byte 128 of data is written by kernel kernel in submission #")
    assert "read by a copy in submission #" in finding.what and finding.device == pair.one.name


def test_launches_of_two_devices_on_the_same_bytes_are_found(pair: Pair) -> None:
    data, flag, out, more = pair.buffers
    writes, reads = pair.load(pair.one, "write data[thread]"), pair.load(pair.other, "read data[mirrored]")

    def work(waits: bool, starts: bool) -> Callable[[], None]:
        def run() -> None:
            first = pair.one.queue().dispatch(writes, [data, flag, out], block=(64, 1, 1)).submit()
            queue = PeerQueue(pair.other)
            queue = queue.after(first) if waits else queue
            second = queue.dispatch(reads, [data, flag, more], block=(64, 1, 1)).submit()
            first.wait(), second.wait()

        return run

    assert pair.found(work(True, True)) == []
    (finding,) = pair.found(work(False, True))
    assert finding.rule == "unordered-launches" and finding.buffer == "data"
    assert "written by kernel kernel" in finding.what and "read by kernel kernel" in finding.what
    assert "load" in finding.what or "ld.global" in finding.what


def test_a_host_that_waits_orders(pair: Pair) -> None:
    data, flag, out, more = pair.buffers
    writes, reads = pair.load(pair.one, "write data[thread]"), pair.load(pair.other, "read data[mirrored]")

    def work() -> None:
        for _ in range(3):
            pair.one.queue().dispatch(writes, [data, flag, out], block=(64, 1, 1)).submit().wait()
            PeerQueue(pair.other).dispatch(reads, [data, flag, more], block=(64, 1, 1)).submit().wait()

    assert pair.found(work) == []


@pytest.mark.parametrize("is_write", [True, False])
def test_a_host_that_reads_or_writes_while_a_launch_of_another_device_runs_is_found(
    pair: Pair, is_write: bool
) -> None:
    data, flag, _, more = pair.buffers
    kernel = pair.load(pair.other, "read data[mirrored]" if is_write else "write data[thread]")

    def work(waits: bool, first: int = 0) -> Callable[[], None]:
        def run() -> None:
            done = PeerQueue(pair.other).dispatch(kernel, [data, flag, more], block=(64, 1, 1)).submit()
            if waits:
                done.wait()
            _ = data.write(bytes(64), offset=first) if is_write else data.read(first, 64)
            done.wait()

        return run

    assert pair.found(work(True)) == []
    assert pair.found(work(False, 512)) == []  # other bytes of the buffer
    (finding,) = pair.found(work(False, 64))
    assert (finding.rule, finding.kernel, finding.buffer) == ("unordered-launches", "kernel", "data")
    verb = "written" if is_write else "read"
    assert f"is {verb} by the host" in finding.what and "by kernel kernel in submission #" in finding.what


def test_memory_that_was_freed_and_is_another_buffer_now_is_no_race(pair: Pair) -> None:
    _, flag, out, more = pair.buffers
    writes = pair.load(pair.one, "write data[thread]")

    def work() -> None:
        for _ in range(4):
            data = pair.one.alloc(1024, name="data")
            done = pair.one.queue().dispatch(writes, [data, flag, out], block=(64, 1, 1)).submit()
            PeerQueue(pair.other).after(done).copy(more, data, 256).submit().wait()
            data.free()

    assert pair.found(work) == []


def test_what_a_launch_touches_is_told_as_ranges_with_an_instruction_of_each() -> None:
    from hcq.emu.shader.checks import Checks
    from hcq.emu.shader.global_races import GlobalRaces
    from hcq.emu.shader.order import Order
    from hcq.events import kernel_touches

    told: list[kernel_touches.Touches] = []
    end = kernel_touches.listen(lambda pid, entry, touches: told.append(touches))
    checks = Checks(frozenset({"race"}), 1, 2)
    races = GlobalRaces(2, 1, lambda warp, lane: "", lambda place: f"line {place}", checks)
    order, zero = Order(races.records, 0, 2), np.zeros(4, int)
    for kind, first, size, place in (
        ("load", 0x1000, 4, 7),
        ("store", 0x1FF8, 4, 8),
        ("store", 0x1008, 2, 9),
    ):
        at = (first + size * np.arange(4)).astype(np.uint64)
        races.access(order, kind, zero, np.arange(4), at, size, place)
    checks.tell()
    end()
    (found,) = told
    ranges = zip(found.low, found.high, found.is_write, found.place)
    assert (
        list(ranges)
        == [
            (0x1000, 0x1008, False, 7),
            (0x1008, 0x1010, True, 9),
            (0x1FF8, 0x2000, True, 8),
            (0x2000, 0x2008, True, 8),
        ]
        and found.text_of(8) == "line 8"
    )
