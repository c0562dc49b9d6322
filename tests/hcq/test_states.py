"""The states of a device and what leads from one to the next: each row of the table in docs/architecture.md.

Every row is asked of the CPU device, of AMD's and of NVIDIA's. `hooks` is the order in which a device's own parts ran.
"""

from __future__ import annotations

import dataclasses
import errno
import gc
import struct
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from hcq import config
from hcq.config import Config
from hcq.cpu.device import CpuDevice
from hcq.device import Device
from hcq.errors import DeviceFault, DriverError, UsageError, WaitTimeout
from hcq.signal import Completion, Signal
from hcq.system.port import FaultyPort, LinuxPort, root_of
from tests.hcq.gpu.kernels import image
from tests.hcq.gpu.vendors import AMD, NV, Vendor

HOOKS = ("abandon", "resume", "replace", "recover", "stop", "unwind", "give_back")
DEADLINE_MS = 200

pytestmark = pytest.mark.own_devices


class Kind:
    """A kind of device: how one is opened, and work of it that makes it stop."""

    def __init__(self, name: str, vendor: Vendor | None = None) -> None:
        self.name, self.vendor = name, vendor
        self.device: type[Device] = CpuDevice if vendor is None else vendor.device
        self.survives_faults = vendor is None or vendor.survives_faults
        self.systems: list[Any] = []  # of this test's devices

    def port(self) -> Any:
        self.systems.append(LinuxPort() if self.vendor is None else self.vendor.fresh_port())
        return self.systems[-1]

    def open(self, port: Any = None, timeout_ms: int = 30_000) -> Any:
        settings: Config = dataclasses.replace(config.current(), validate=False, timeout_ms=timeout_ms)
        return self.device(self.name, port or self.port(), settings)

    def submit_a_fault(self, device: Any) -> Completion:
        if self.vendor is None:
            return device.submit([struct.pack("<2I", 0xFF, 0)], [])
        program = device.load(image(device), "store_at")
        return device.queue().dispatch(program, [device.alloc(64), 1 << 40]).submit()


KINDS = [Kind("CPU:states"), Kind("AMD", AMD), Kind("NV", NV)]


@pytest.fixture(params=KINDS, ids=lambda kind: kind.name.partition(":")[0])
def kind(request: pytest.FixtureRequest) -> Kind:
    found: Kind = request.param
    return found


@pytest.fixture
def hooks(kind: Kind, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The hooks of this test's devices that ran, in order."""
    ran: list[str] = []
    kind.systems.clear()

    def noting(name: str, real: Callable[..., Any]) -> Callable[..., Any]:
        def hook(self: Device, *args: Any) -> Any:
            if any(root_of(self.port) is system for system in kind.systems):
                ran.append(name)
            return real(self, *args)

        return hook

    for name in HOOKS:
        monkeypatch.setattr(kind.device, name, noting(name, getattr(kind.device, name)))
    return ran


@pytest.fixture
def device(kind: Kind, hooks: list[str]) -> Iterator[Any]:
    made = kind.open(timeout_ms=DEADLINE_MS)
    yield made
    made.close(timeout_ms=1000)


def hang(device: Any) -> tuple[Signal, Completion]:
    """Work that goes on once the signal is 1."""
    gate = device.signal("gate")
    return gate, device.queue().wait(gate, 1).submit()


def works(device: Any) -> None:
    out = device.alloc(64)
    device.queue().fill(out, 7).submit().wait(timeout_ms=50_000)
    assert out.read() == b"\7" * 64


# ------------------------------------------------------------ open


def test_a_deadline_that_passes_changes_nothing(device: Any, hooks: list[str]) -> None:
    gate, done = hang(device)
    with pytest.raises(WaitTimeout):
        done.wait()
    assert not device.failures and not hooks
    gate.set(1)
    done.wait(timeout_ms=50_000)
    works(device)


def test_a_device_that_stops_recovers_when_somebody_next_looks(
    kind: Kind, device: Any, hooks: list[str]
) -> None:
    done = kind.submit_a_fault(device)
    with pytest.raises(DeviceFault):
        done.wait(timeout_ms=50_000)
    assert hooks == ["recover"]
    ((first, last, _),) = device.failures
    assert (first, last) == (done.value, done.value)
    assert device.timeline.value == device.timeline.submitted
    if kind.survives_faults:
        works(device)
        return
    assert device.is_lost
    with pytest.raises(UsageError, match=r"could not be rebuilt after a fault.*Restart the process"):
        works(device)


def test_what_failed_marks_its_buffers_and_what_was_done_before_keeps_its_results(
    kind: Kind, device: Any
) -> None:
    good, bad = device.alloc(64, "good"), device.alloc(64, "bad")
    device.queue().fill(good, 1).submit().wait(timeout_ms=50_000)
    kind.submit_a_fault(device)
    behind = device.queue().fill(bad, 2).submit()
    with pytest.raises(DeviceFault):
        behind.wait(timeout_ms=50_000)
    assert good.read() == b"\1" * 64
    with pytest.raises(DeviceFault, match="holds no result"):
        bad.read()


def test_a_reset_without_work_in_flight_does_nothing(device: Any, hooks: list[str]) -> None:
    works(device)
    device.reset()
    assert not hooks and not device.failures


def test_a_reset_abandons_then_recovers_then_waits_are_waits_again(device: Any, hooks: list[str]) -> None:
    _, stuck = hang(device)
    behind = device.queue().fill(device.alloc(64), 1).submit()
    device.reset()
    assert hooks == ["abandon", "recover", "resume"]
    for completion in (stuck, behind):
        with pytest.raises(DeviceFault):
            completion.wait()
    works(device)


def test_a_reset_that_is_interrupted_is_done_by_whoever_comes_next(
    kind: Kind, device: Any, hooks: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    _, stuck = hang(device)
    recover = kind.device.recover

    def interrupted(self: Any) -> None:
        monkeypatch.setattr(kind.device, "recover", recover)
        raise KeyboardInterrupt

    monkeypatch.setattr(kind.device, "recover", interrupted)
    with pytest.raises(KeyboardInterrupt):
        device.reset()
    with pytest.raises(DeviceFault):
        stuck.wait()
    works(device)


# ------------------------------------------------------------ lost


def test_a_device_that_cannot_be_rebuilt_refuses_everything_but_close(
    kind: Kind, device: Any, hooks: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kind.device, "recover", lambda self: self.lose(DriverError("no more queues")))
    _, stuck = hang(device)
    device.reset()
    assert device.is_lost and device.is_open
    with pytest.raises(DeviceFault):
        stuck.wait()
    for verb in (lambda: device.alloc(64), device.queue, device.reset, device.synchronize):
        with pytest.raises(UsageError, match=r"could not be rebuilt after a fault \(no more queues\)"):
            verb()
    device.close()
    assert hooks[-1] == "stop"
    with pytest.raises(UsageError, match="it was closed"):
        device.alloc(64)


# ------------------------------------------------------------ closing


def test_closing_waits_for_work_in_flight_and_stops(kind: Kind, device: Any, hooks: list[str]) -> None:
    gate, done = hang(device)
    gate.set(1)
    device.close(timeout_ms=50_000)
    assert done.is_done
    assert hooks == ["stop"]
    assert device.dead and device.is_stopped and not device.is_open


def test_closing_does_not_wait_again_for_work_that_has_had_its_deadline(
    kind: Kind, device: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    _, done = hang(device)
    with pytest.raises(WaitTimeout):
        done.wait()
    monkeypatch.setattr(kind.device, "wait_cell", lambda *args: pytest.fail("waits again"))
    device.close()
    said = capsys.readouterr().err
    assert f"a wait of {DEADLINE_MS} ms saw no progress, so it is not waited for again" in said
    assert "wait signal@" in said
    assert device.dead


@pytest.mark.parametrize("what", ["a shorter wait", "progress", "a deadline of its own"])
def test_closing_waits_for_work_that_may_still_be_done(
    kind: Kind, device: Any, what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate, done = hang(device)
    with pytest.raises(WaitTimeout):
        done.wait(timeout_ms=DEADLINE_MS / 4 if what == "a shorter wait" else None)
    if what == "progress":
        gate.set(1)
        done.wait(timeout_ms=50_000)
        gate, done = hang(device)
    waited = []
    real = kind.device.wait_cell

    def wait_cell(self: Any, *args: Any) -> None:
        waited.append(args[2])
        gate.set(1)
        real(self, args[0], args[1], 50_000)

    monkeypatch.setattr(kind.device, "wait_cell", wait_cell)
    device.close(timeout_ms=50 if what == "a deadline of its own" else None)
    assert waited == [50 if what == "a deadline of its own" else DEADLINE_MS]
    assert done.is_done


def test_closing_a_device_that_has_stopped_says_what_on_and_closes_it(
    kind: Kind, device: Any, hooks: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    kind.submit_a_fault(device)
    device.close(timeout_ms=50_000)
    assert hooks == ["recover", "stop"]
    assert f"hcq: closing {device.name}: {device.name}: " in capsys.readouterr().err


def test_a_closed_device_refuses_and_closing_it_again_is_fine(device: Any, hooks: list[str]) -> None:
    device.close()
    del hooks[:]
    device.close()
    for verb in (lambda: device.alloc(64), device.queue, device.reset, device.synchronize):
        with pytest.raises(UsageError, match="it was closed"):
            verb()
    assert not hooks


def test_memory_of_a_closed_device_is_given_back_when_nobody_holds_it(kind: Kind, hooks: list[str]) -> None:
    device = kind.open()
    held = device.queue().barrier().submit()
    device.close()
    gone = weakref.ref(device)
    del device
    gc.collect()
    assert gone() is not None and held.is_done and "give_back" not in hooks
    del held
    gc.collect()
    kind.open().close()  # memory behind a kernel driver goes back when a device opens or closes
    assert gone() is None and "give_back" in hooks


# ------------------------------------------------------------ opening


def test_half_an_opening_is_unwound(kind: Kind, hooks: list[str]) -> None:
    port = FaultyPort(kind.port(), {"mmap": (1, errno.EIO)})
    with pytest.raises(DriverError, match=r"step \d+/\d+ .* failed: .*EIO"):
        kind.open(port)
    assert hooks[0] == "unwind"
    kind.open(port.inner).close()
