"""Checks of an open device: a device that answers wrongly does not pass."""

from __future__ import annotations

import dataclasses
import errno
from typing import Any

import pytest

from hcq import config
from hcq.backends import PLACES
from hcq.cpu.device import CpuDevice
from hcq.doctor import checks
from hcq.doctor.check import CHECKS, Failure, Skip, Status
from hcq.doctor.examine import advise, examine, subject
from hcq.doctor.host import facts_of
from hcq.errors import DeviceFault, UsageError
from hcq.nv.backend import BACKEND
from hcq.signal import CELL_BYTES, Signal

from .conftest import FakeHost

NO_DRIVER = dataclasses.replace(BACKEND, device="")
SMALL = checks.Sizes(is_emulated=True)


class Liar:
    """The CPU device, but what comes back from it is not what it computed."""

    def __init__(self, device: CpuDevice, flips: int) -> None:
        self.device, self.flips = device, flips

    def __getattr__(self, name: str) -> Any:
        return getattr(self.device, name)

    def alloc(self, size_bytes: int, name: str | None = None) -> Any:
        buffer = self.device.alloc(size_bytes, name)
        flips = self.flips

        class Flipped(type(buffer)):  # type: ignore[misc]
            __slots__ = ()

            def read(self, offset: int = 0, size_bytes: int | None = None) -> bytes:
                data = bytearray(super().read(offset, size_bytes))
                data[flips] ^= 1
                return bytes(data)

        buffer.__class__ = Flipped
        return buffer


def test_the_cpu_passes_every_rung(host: FakeHost) -> None:
    (run,) = examine(host, "CPU").runs
    assert [check.name for check in run.checks] == list(CHECKS)
    assert [check.status for check in run.checks] == [Status.OK] * 9 + [Status.SKIPPED]
    figures = {check.name: check.figures for check in run.checks}
    assert figures["open"]["arch"] in ("x86_64", "aarch64")
    assert 0 < figures["queue"]["best_round_trip_us"] <= figures["queue"]["round_trip_us"]
    assert figures["copy"]["copy_gb_per_s"] > 0
    assert 40 < figures["timestamp"]["device_ms"]


def test_memory_that_forgets_is_noticed(cpu: CpuDevice) -> None:
    with pytest.raises(Failure, match="1 bytes differ, the first at 4711, of 65536") as caught:
        checks.memory(Liar(cpu, 4711), SMALL)  # type: ignore[arg-type]
    assert "memory test" in caught.value.fix


def test_a_copy_that_arrives_changed_is_noticed(cpu: CpuDevice) -> None:
    with pytest.raises(
        Failure, match=r"checksum \w{8} arrived and \w{8} was sent: 1 bytes differ, the first at 9"
    ):
        checks.copy(Liar(cpu, 9), SMALL)  # type: ignore[arg-type]


def test_a_kernel_that_computes_wrongly_is_noticed(cpu: CpuDevice) -> None:
    with pytest.raises(Failure, match=r"1 of 1024 elements are wrong; the first is \[2\]"):
        checks.kernel(Liar(cpu, 8), subject("CPU").kernel(cpu.arch), SMALL)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("scale", "said"), [(0.0, "does not rise"), (1.5, "the rate of its clock"), (0.5, "the rate")]
)
def test_a_clock_that_stands_or_runs_wrongly_is_noticed(cpu: CpuDevice, scale: float, said: str) -> None:
    class Stuck(Signal):
        @property
        def timestamp_ns(self) -> int:
            return int(super().timestamp_ns * scale)

    class Device:
        def signal(self, name: str) -> Stuck:
            return Stuck(cpu, cpu.alloc(CELL_BYTES), name)

        def queue(self) -> Any:
            return cpu.queue()

    with pytest.raises(Failure, match=said):
        checks.timestamp(Device())  # type: ignore[arg-type]


def test_every_block_of_the_pattern_is_another_one() -> None:
    data = checks.pattern(1 << 16, 1)
    assert len(data) == 1 << 16
    assert len({data[at : at + 4096] for at in range(0, len(data), 4096)}) == 16


def test_devices_that_do_not_share_memory_have_no_peers(cpu: CpuDevice) -> None:
    with pytest.raises(Skip, match="no second device"):
        checks.peers(cpu, None, [])
    with pytest.raises(Skip, match="do not share memory"):
        checks.peers(cpu, None, [cpu])


@pytest.mark.parametrize("word", ["amd:gfx1100", "amd:gfx942", "amd:gfx1100:private", "amd:gfx1100:seed=7"])
def test_an_emulated_gpu_passes_every_rung(host: FakeHost, word: str) -> None:
    (run,) = examine(host, "AMD", [word]).runs
    assert {
        check.name: (check.text, check.fix) for check in run.checks if check.status == Status.FAILED
    } == {}
    assert run.is_emulated
    assert run.checks[3].figures["arch"] == word.split(":")[1]


def test_emulated_neighbours_read_each_others_memory(host: FakeHost) -> None:
    found = examine(host, "AMD", ["amd:gfx1100", "amd:gfx1100"])
    assert [run.checks[-1].text for run in found.runs] == [
        "reads the memory of AMD:1",
        "reads the memory of AMD",
    ]


def test_emulated_devices_stand_beside_real_ones(host: FakeHost) -> None:
    found = examine(host, emulated=["amd:gfx1100"], briefly=True)
    assert [(run.device, run.is_emulated) for run in found.runs] == [("CPU", False), ("AMD", True)]
    assert list(found.absent) == ["AMD", "NV", "METAL"]


def test_a_security_policy_against_new_code_is_named(host: FakeHost) -> None:
    host.refusals["mprotect"] = errno.EACCES
    (run,) = examine(host, "CPU").runs
    assert "memory cannot be made executable: mprotect(" in run.checks[1].text
    assert "MemoryDenyWriteExecute=no" in run.checks[1].fix
    host.user(seccomp=2)
    assert "seccomp=unconfined" in examine(host, "CPU").runs[0].checks[1].fix


def test_a_kind_without_a_driver_says_so(host: FakeHost, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(PLACES, "NV", f"{__name__}:NO_DRIVER")
    (run,) = examine(host.nv(), "NV").runs
    assert run.checks[3].text == "this version of hcq has no driver for NVIDIA GPUs."
    assert "--upgrade hcq" in run.checks[3].fix
    assert not run.is_well


def test_opening_that_fails_names_the_step_and_leaves_nothing_open(host: FakeHost) -> None:
    found = examine(host.amd())
    cpu, amd = found.runs
    assert cpu.is_well
    assert 'open amd device: step 3/9 "acquire its address space" failed' in amd.checks[3].text
    assert not found.is_well


@pytest.mark.parametrize("name", ["GPU", "AMD:x", "", "CPU:"])
def test_a_name_that_means_nothing_is_refused(host: FakeHost, name: str) -> None:
    with pytest.raises(UsageError, match="Known: CPU, AMD, NV"):
        examine(host, name)


def test_a_check_that_hangs_does_not_fail_those_after_it(
    host: FakeHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    def hang(device: CpuDevice, kind: str, sizes: checks.Sizes) -> Any:
        device.queue().wait(device.signal("never"), 1).submit().wait(timeout_ms=50)

    monkeypatch.setattr(checks, "kernel", hang)
    (run,) = examine(host, "CPU").runs
    failed = {check.name: check.text for check in run.checks if check.status == Status.FAILED}
    assert list(failed) == ["kernel"]
    assert "waited 50 ms" in failed["kernel"]
    assert run.checks[7].status == Status.OK


def test_a_defect_of_ours_is_called_one_and_the_checks_go_on(
    host: FakeHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checks, "copy", lambda device, sizes: {}["gone"])
    (run,) = examine(host, "CPU").runs
    assert run.checks[7].text == "KeyError: 'gone'. This is a defect of hcq."
    assert run.checks[8].status == Status.OK


def test_a_missing_package_is_named(host: FakeHost, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_llvm(*_: object) -> None:
        raise ModuleNotFoundError("No module named 'llvmlite'", name="llvmlite.binding")

    monkeypatch.setattr("hcq.doctor.examine.open_device", no_llvm)
    (run,) = examine(host, "CPU").runs
    assert run.checks[3].status == Status.FAILED
    assert run.checks[3].fix == "python -m pip install 'hcq[tensor]'"


def test_the_fix_for_an_errno_depends_on_where_we_are(host: FakeHost) -> None:
    host.files["/proc/self/limits"] = (
        "Max locked memory         8388608              8388608              bytes\n"
    )

    def said(number: int, kind: str = "AMD") -> str:
        error = OSError(number, "refused")
        return advise(facts_of(host), subject(kind), "memory", error)

    assert "memlock unlimited" in said(errno.ENOMEM)
    assert "memory.max" in said(errno.ENOMEM, "CPU")
    assert "ulimit -u" in said(errno.EAGAIN)
    assert "dmesg" in advise(facts_of(host), subject("AMD"), "queue", DeviceFault("stopped"))
    assert "report it" in advise(facts_of(host), subject("AMD"), "copy", UsageError("copy: refused"))
    assert "HCQ_DEVICE=CPU" in advise(
        facts_of(host), subject("AMD"), "open", UsageError("gfx803 is not a GPU we know")
    )
    host.inside("docker")
    assert "--ulimit memlock=-1" in said(errno.ENOMEM)
    assert "--cap-add SYS_PTRACE" in said(errno.EPERM)
    host.user(seccomp=2)
    assert "seccomp=unconfined" in said(errno.EPERM)


def test_the_doctor_does_not_wait_longer_than_it_says(
    host: FakeHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    from hcq.doctor.examine import TIMEOUT_MS, open_device

    before = config.current()
    try:
        config.use(dataclasses.replace(before, timeout_ms=600_000))
        device = open_device("CPU", subject("CPU"), host)
        assert device.config.timeout_ms == TIMEOUT_MS
        device.close()
    finally:
        config.use(before)
