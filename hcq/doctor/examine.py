"""Examination: every device here, from its kernel driver's file up to its neighbours' memory.

In       a Host; the names of devices to look at, words of emulated ones
Out      an Examination: a Run for each device, and what was not found
Changes  opens each device for itself, works on it, closes it
Next     amd.py, nv.py, cpu.py (checks before a device is open), checks.py (after), report.py (prints it)
"""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from hcq import backends
from hcq import config as config_module
from hcq.checks import is_decimal
from hcq.doctor import amd, checks, cpu, nv
from hcq.doctor.access import KernelDriver
from hcq.doctor.check import Failure, Found, Run, Status
from hcq.doctor.host import Facts, Host, LinuxHost, facts_of
from hcq.errors import DeviceFault, HcqError, UsageError, WaitTimeout
from hcq.port import Port

if TYPE_CHECKING:
    from hcq.device import Device

TIMEOUT_MS = 10_000
DRIVERS: dict[str, KernelDriver] = {"AMD": amd.DRIVER, "NV": nv.DRIVER}
KINDS = ("CPU", *DRIVERS)
SMALL_MEMLOCK = 64 << 20


@dataclass
class Examination:
    """absent: kind -> why nothing of it was looked at."""

    facts: Facts
    runs: list[Run] = field(default_factory=list)
    absent: dict[str, str] = field(default_factory=dict)

    @property
    def is_well(self) -> bool:
        return all(run.is_well for run in self.runs)


def present(host: Host) -> dict[str, list[str]]:
    """kind -> names of what is here, whether it works or not."""
    return {"CPU": ["CPU"], "AMD": amd.names(host), "NV": nv.names(host)}


def absence(kind: str) -> str:
    """Why nothing of a kind is listed."""
    file = {"AMD": amd.KFD, "NV": nv.CONTROL}[kind]
    return f"no {file}, and no {DRIVERS[kind].name} GPU on the PCI bus"


def examine(
    host: Host | None = None, device: str | None = None, emulated: Sequence[str] = (), briefly: bool = False
) -> Examination:
    """Look at every device that is here; at emulated ones, too, when asked; at one alone when it is named.

    device    "CPU", "AMD:1", ...: looked at whether or not there are signs of it; a kind means all its devices.
              Emulated devices of a kind stand in for its real ones then, as they do for hcq.open
    emulated  words such as "amd:gfx1100"
    briefly   no further than opening
    Raises    UsageError for a name or a word that means nothing
    """
    host = LinuxHost() if host is None else host
    found = Examination(facts_of(host))
    unreal = _emulated(emulated, host, found.facts)
    names = present(host)
    if device is not None:
        kind, wanted = _parsed(device)
        unreal = [one for one in unreal if one.kind == kind and wanted in ("", one.run.device)]
        names = {} if unreal else {kind: [wanted] if wanted else names[kind] or [kind]}
    examiners = []
    for kind, here in names.items():
        if not here:
            found.absent[kind] = absence(kind)
        examiners += [_Examiner(name, kind, host, found.facts) for name in here]
    examiners += unreal
    try:
        for examiner in examiners:
            examiner.ask(briefly)
        for examiner in () if briefly else examiners:
            examiner.meet(examiners)
    finally:
        for examiner in examiners:
            examiner.close()
    found.runs = [examiner.run for examiner in examiners]
    return found


def _parsed(device: str) -> tuple[str, str]:
    """A kind, and the one device of it that is meant, or "" for all."""
    kind, colon, number = device.strip().upper().partition(":")
    if kind not in KINDS or (colon and not is_decimal(number)):
        raise UsageError(
            f"doctor: unknown device {device!r}. Known: {', '.join(KINDS)}; a number may follow, as in AMD:1."
        )
    if not colon:
        return kind, ""
    return kind, kind if int(number) == 0 else f"{kind}:{int(number)}"


def _emulated(words: Sequence[str], host: Host, facts: Facts) -> list[_Examiner]:
    if not words:
        return []
    from hcq.emu.port import port_for, vendors  # only those who emulate pay for it

    found = []
    port = port_for(tuple(words)) if vendors(words) else None
    for kind in sorted(vendors(words)):
        count = sum(word.partition(":")[0].upper() == kind for word in words)
        names = [kind if index == 0 else f"{kind}:{index}" for index in range(count)]
        found += [_Examiner(name, kind, host, facts, port) for name in names]
    return found


class _Examiner:
    """One device's run, with the device while it is open."""

    def __init__(self, name: str, kind: str, host: Host, facts: Facts, emulated: Port | None = None) -> None:
        self.kind, self.host, self.facts, self.emulated = kind, host, facts, emulated
        self.index = int(name.partition(":")[2] or 0)
        self.run = Run(name, kind, functools.partial(advise, facts, kind), emulated is not None)
        self.device: Device | None = None

    def ask(self, briefly: bool) -> None:
        """Every check that needs this device alone."""
        run, sizes = self.run, checks.Sizes(self.emulated is not None)
        run.check("node", self._node)
        run.check("permission", self._permission)
        run.check("driver", self._driver)
        run.check("open", self._open)
        if briefly:
            return
        self._work("memory", lambda: checks.memory(self._opened, sizes))
        self._work("queue", lambda: checks.queue(self._opened, sizes))
        self._work("kernel", lambda: checks.kernel(self._opened, self.kind, sizes))
        self._work("copy", lambda: checks.copy(self._opened, sizes))
        self._work("timestamp", lambda: checks.timestamp(self._opened))

    def meet(self, all_: Sequence[_Examiner]) -> None:
        """The last check, for which the neighbours have to be open."""
        others = [
            one.device
            for one in all_
            if one is not self and one.kind == self.kind and one.emulated is self.emulated and one.device
        ]
        self._work("peers", lambda: checks.peers(self._opened, self.kind, others))

    def _work(self, name: str, step: Callable[[], Found]) -> None:
        """One check of the open device. What it leaves hanging must not fail the next one."""
        self.run.check(name, step)
        device = self.device
        if device is None or device.timeline.value >= device.timeline.submitted:
            return
        if self.run.checks[-1].status == Status.FAILED:
            # a device that cannot be reset fails the next check, too, and says why
            with contextlib.suppress(HcqError):
                device.reset()

    def close(self) -> None:
        if self.device is not None:
            self.device.close(TIMEOUT_MS)
            self.device = None

    @property
    def _opened(self) -> Device:
        assert self.device is not None  # the checks that need it are not asked otherwise
        return self.device

    def _node(self) -> Found:
        if self.emulated is not None:
            return Found("emulated: no hardware and no file is needed")
        if self.kind == "CPU":
            return cpu.node()
        if self.kind == "AMD":
            return amd.node(self.host, self.facts, self.index)
        return nv.node(self.host, self.facts, self.index)

    def _permission(self) -> Found:
        if self.emulated is not None:
            return Found("emulated: the files open for everyone")
        if self.kind == "CPU":
            return cpu.permission(self.host, self.facts)
        if self.kind == "AMD":
            return amd.permission(self.host, self.facts, self.index)
        return nv.permission(self.host, self.facts, self.index)

    def _driver(self) -> Found:
        if self.kind == "CPU":
            return cpu.driver(self.facts)
        if self.kind == "AMD":
            kernel = "an emulated kernel" if self.emulated else f"Linux {self.facts.kernel}"
            return amd.driver(self.emulated or self.host, kernel)
        return nv.driver(self.emulated or self.host)

    def _open(self) -> Found:
        device = self.device = open_device(self.run.device, self.kind, self.emulated or self.host)
        facts = device.facts()
        self.run.facts = {
            **facts,
            "memory_bytes": facts.get("vram_bytes", self.facts.memory_bytes),
            "queues": list(getattr(device, "rings", ())) or [device.queue_name],
        }
        steps = len(type(device).steps.steps)
        return Found(
            f"{steps} steps; {device.arch}, {facts['model']}", {"arch": device.arch, "model": facts["model"]}
        )


def open_device(name: str, kind: str, port: Port) -> Device:
    """A device of our own, not the one that hcq.open shares: it can be closed without disturbing anybody."""
    backend = backends.find(kind)
    if backend is None:
        raise Failure(
            f"this version of hcq has no driver for {DRIVERS[kind].name} GPUs.",
            "python -m pip install --upgrade hcq  # or use another device: HCQ_DEVICE=CPU",
        )
    settings = config_module.current()
    settings = dataclasses.replace(settings, timeout_ms=min(settings.timeout_ms, TIMEOUT_MS), profile=False)
    made: Device = backends.load(backend.device)(name, port, settings)
    return made


def advise(facts: Facts, kind: str, check: str, error: Exception) -> str:
    """The fix for an error that a check of an open device, or opening itself, ended with."""
    number = error.errno if isinstance(error, OSError) else None
    look = DRIVERS[kind].look if kind in DRIVERS else "HCQ_DEBUG=push,sync python -m hcq doctor --device CPU"
    if (
        number == errno.ENOMEM
        and kind != "CPU"
        and facts.memlock is not None
        and facts.memlock < SMALL_MEMLOCK
    ):
        if facts.container:
            return "start the container with --ulimit memlock=-1"
        return "echo '* - memlock unlimited' | sudo tee /etc/security/limits.d/hcq.conf  # then log in again"
    if number == errno.ENOMEM:
        return "free -h; cat /sys/fs/cgroup/memory.max  # raise the limit, or end what takes the memory"
    if number == errno.EPERM and facts.is_filtered:
        return "a seccomp filter may refuse the call: docker run --security-opt seccomp=unconfined IMAGE"
    if number in (errno.EACCES, errno.EPERM) and facts.container:
        return "start the container with --cap-add SYS_PTRACE --security-opt seccomp=unconfined"
    if number == errno.EAGAIN:
        return "ulimit -u 65536  # too many threads"
    if number == errno.EMFILE:
        return "ulimit -n 65536"
    if isinstance(error, (WaitTimeout, DeviceFault)):
        return f"{look}  # the device does not answer, or stopped"
    if isinstance(error, UsageError) and check == "open":
        return "HCQ_DEVICE=CPU, or another of: python -m hcq devices"
    if isinstance(error, UsageError):  # the doctor's own calls are right, or this is a defect
        return "report it, with the output of: python -m hcq doctor --json"
    if isinstance(error, HcqError) and kind != "CPU":
        return look
    return "HCQ_DEBUG=push,sync python -m hcq doctor  # and report what it prints"
