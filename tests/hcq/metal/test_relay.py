"""Metal's queues wait for signals of other devices, and those for Metal's: the host carries values between them."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Iterator
from typing import Any

import pytest

from hcq import config
from hcq.cpu.device import CpuDevice
from hcq.errors import DeviceFault, UsageError, WaitTimeout
from hcq.metal.relay import Relay
from hcq.work.peers import PeerQueue
from tests.hcq.gpu.vendors import AMD
from tests.hcq.metal.conftest import Open


@pytest.fixture
def cpu() -> Iterator[CpuDevice]:
    """A CPU device whose work the rules judge together with Metal's."""
    device = CpuDevice("CPU:6", config=dataclasses.replace(config.current(), threads=1))
    yield device
    device.close(timeout_ms=1000)


def test_a_queue_of_metal_goes_on_once_another_device_has_signalled(open_metal: Open, cpu: CpuDevice) -> None:
    metal = open_metal()
    shared, copied, ready = metal.alloc(4096, "shared"), metal.alloc(4096, "copied"), cpu.signal("ready")
    waiting = metal.queue().wait(ready, 2).copy(copied, shared).submit()
    PeerQueue(cpu).fill(shared, 3).signal(ready, 1).submit().wait()
    assert not waiting.is_done  # it is 1, and not 2
    PeerQueue(cpu).fill(shared, 5).signal(ready, 2).submit()
    waiting.wait(timeout_ms=10_000)
    assert copied.read() == bytes([5]) * 4096


def test_another_device_goes_on_once_a_queue_of_metal_has_signalled(open_metal: Open, cpu: CpuDevice) -> None:
    metal = open_metal()
    shared, copied = metal.alloc(4096, "shared"), cpu.alloc(4096, "copied")
    gate, done = metal.signal("gate"), metal.signal("done")
    metal.queue().wait(gate, 1).fill(shared, 7).signal(done, 1).submit()
    waiting = PeerQueue(cpu).wait(done, 1).copy(copied, shared).submit()  # of work that is in flight already
    assert not waiting.is_done
    gate.set(1)
    waiting.wait(timeout_ms=10_000)
    assert copied.read() == bytes([7]) * 4096
    later = PeerQueue(cpu).wait(done, 2).submit()  # of work that comes
    metal.queue().signal(done, 2).submit()
    later.wait(timeout_ms=10_000)
    by_host = PeerQueue(cpu).wait(done, 3).submit()
    done.set(3)
    by_host.wait(timeout_ms=10_000)


def test_a_completion_of_metal_is_waited_for_without_the_host(open_metal: Open, cpu: CpuDevice) -> None:
    metal = open_metal()
    gate = metal.signal("gate")
    first = metal.queue().wait(gate, 1).submit()
    queue = PeerQueue(cpu).after(first)
    second = queue.submit()
    third = PeerQueue(metal).after(second).submit()
    assert queue.host_waits == 0 and not second.is_done and not third.is_done
    gate.set(1)
    third.wait(timeout_ms=10_000)
    assert second.is_done


def test_two_devices_of_metal_see_each_others_signals(open_metal: Open) -> None:
    first, second = open_metal("m1"), open_metal("m3")
    ping, pong = first.signal("ping"), second.signal("pong")
    for turn in range(1, 4):
        first.queue().wait(pong, turn).signal(ping, turn).submit()
    for turn in range(1, 4):
        last = second.queue().signal(pong, turn).wait(ping, turn).submit()
    last.wait(timeout_ms=10_000)
    assert (ping.value, pong.value) == (3, 3)


def test_signals_that_are_set_back_are_waited_for_anew_on_both_sides(
    open_metal: Open, cpu: CpuDevice
) -> None:
    metal = open_metal()
    theirs, ours = cpu.signal("theirs"), metal.signal("ours")
    for _ in range(3):
        there = cpu.queue().wait(ours, 1).signal(theirs, 1).submit()
        here = metal.queue().signal(ours, 1).wait(theirs, 1).submit()
        here.wait(timeout_ms=10_000)
        there.wait(timeout_ms=10_000)
        ours.set(0)
        theirs.set(0)
        again = cpu.queue().wait(ours, 1).submit()
        after = metal.queue().wait(theirs, 1).submit()
        assert not again.is_done and not after.is_done
        ours.set(1)
        theirs.set(1)
        again.wait(timeout_ms=10_000)
        after.wait(timeout_ms=10_000)
        ours.set(0)
        theirs.set(0)


def test_waits_are_over_in_the_order_of_the_queue_whatever_comes_first(
    open_metal: Open, cpu: CpuDevice
) -> None:
    metal = open_metal()
    first, second, seen = cpu.signal("first"), cpu.signal("second"), metal.signal("seen")
    last = metal.queue().wait(first, 1).signal(seen, 1).wait(second, 1).signal(seen, 2).submit()
    second.set(1)
    with pytest.raises(WaitTimeout):
        seen.wait(1, timeout_ms=20)
    first.set(1)
    last.wait(timeout_ms=10_000)
    assert seen.value == 2


def test_reset_gives_up_waits_for_others_and_nobody_takes_abandoned_work_for_done(
    open_metal: Open, cpu: CpuDevice
) -> None:
    metal = open_metal(report=())
    never, ours = cpu.signal("never"), metal.signal("ours")
    stuck = metal.queue().wait(never, 1).signal(ours, 1).submit()
    other = cpu.queue().wait(ours, 1).submit()
    metal.reset()
    with pytest.raises(DeviceFault, match="was abandoned"):
        stuck.wait()
    with pytest.raises(
        WaitTimeout, match="It waits for signal ours of METAL to be 1, which is 0; work of METAL failed"
    ):
        other.wait(timeout_ms=20)
    metal.queue().wait(never, 2).signal(ours, 1).submit()  # and then both go on
    never.set(2)
    other.wait(timeout_ms=10_000)


def test_what_was_signalled_before_a_reset_is_seen_by_others(
    open_metal: Open, cpu: CpuDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    metal = open_metal(report=())
    done, never = metal.signal("done"), metal.signal("never")
    waiting = cpu.queue().wait(done, 1).submit()
    monkeypatch.setattr(Relay, "_look", lambda relay: False)  # it has not come to look yet
    metal.queue().signal(done, 1).submit().wait()
    metal.queue().wait(never, 1).submit()
    metal.reset()
    waiting.wait(timeout_ms=10_000)


@pytest.mark.fires_rules
def test_a_wait_that_nobody_ends_fails_at_its_deadline_with_the_signal_and_its_device(
    open_metal: Open, cpu: CpuDevice
) -> None:
    metal = open_metal(report=(), timeout_ms=60)
    never, after = cpu.signal("never"), metal.alloc(64)
    stuck = metal.queue().wait(never, 4).submit()
    with pytest.raises(
        DeviceFault,
        match="it has waited 60 ms for signal never of CPU:6 to be 4, which is 0, in submission #1",
    ):
        stuck.wait(timeout_ms=10_000)
    metal.queue().fill(after, 2).submit().wait(timeout_ms=10_000)
    assert after.read() == bytes([2] * 64)


@pytest.mark.fires_rules
def test_a_wait_for_a_device_that_is_closed_fails_and_says_so(open_metal: Open) -> None:
    metal = open_metal(report=())
    other = CpuDevice("CPU:5", config=dataclasses.replace(config.current(), threads=1))
    signal = other.signal("gone")
    stuck = metal.queue().wait(signal, 1).submit()
    other.close()
    with pytest.raises(
        DeviceFault, match="signal gone of CPU:5 to be 1, which is 0, and CPU:5 cannot be used: "
    ):
        stuck.wait(timeout_ms=10_000)


def test_an_idle_relay_sleeps_and_its_thread_ends_with_the_device(
    open_metal: Open, cpu: CpuDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks, look = [], Relay._look
    monkeypatch.setattr(Relay, "_look", lambda relay: looks.append(1) or look(relay))
    metal = open_metal()
    assert metal.relay._thread is None  # of a device that no other has to do with
    ready = cpu.signal("ready")
    waiting = metal.queue().wait(ready, 1).submit()
    ready.set(1)
    waiting.wait(timeout_ms=10_000)
    thread: Any = metal.relay._thread
    while metal.relay._expected or metal.relay._followed:
        time.sleep(0.001)
    time.sleep(0.01)
    count = len(looks)
    time.sleep(0.03)
    assert len(looks) == count > 0 and thread.is_alive()
    metal.close()
    assert not thread.is_alive()


def test_a_gpu_that_sees_no_signals_of_metals_is_told_so(open_metal: Open) -> None:
    metal, gpu = open_metal(), AMD.open(AMD.fresh_port())
    try:
        with pytest.raises(
            UsageError, match=r"is of METAL, whose signals AMD does not see\. Wait for it on the host"
        ):
            gpu.queue().wait(metal.signal("ours"), 1)
        with pytest.raises(
            UsageError, match=r"is no signal of this device\. Metal's queues signal shared events"
        ):
            metal.queue().signal(gpu.signal("theirs"), 1).submit()
    finally:
        gpu.close()
