"""Examination: every device here, from its kernel driver's file up to its neighbours' memory.

In       a Host; the names of devices to look at, words of emulated ones
Out      an Examination: a Run for each device, and what was not found
Changes  opens each device for itself, works on it, closes it
Next     subject.py (checks before a device is open), checks.py (after), report.py (prints it)
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
from hcq.doctor import checks
from hcq.doctor.check import Failure, Found, Run, Status
from hcq.doctor.host import Facts, Host, LinuxHost, facts_of
from hcq.doctor.subject import Subject
from hcq.errors import DeviceFault, HcqError, UsageError, WaitTimeout
from hcq.system.port import Port

if TYPE_CHECKING:
    from hcq.device import Device

TIMEOUT_MS = 10_000
SMALL_MEMLOCK = 64 << 20


@dataclass
class Examination:
    """absent: kind -> why nothing of it was looked at."""

    facts: Facts
    runs: list[Run] = field(default_factory=list)
    absent: dict[str, str] = field(default_factory=dict)

    @property
    def is_well(self) -> bool:
        """Whether nothing failed on any device."""
        return all(run.is_well for run in self.runs)


def subject(kind: str) -> Subject:
    """The subject of a kind of device; the plain one where its backend names none."""
    place = backends.of(kind).doctor
    found: Subject = backends.load(place) if place else Subject(kind)
    return found


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
    names = {kind: subject(kind).names(host) for kind in backends.names()}
    if device is not None:
        kind, wanted = _parsed(device)
        unreal = [one for one in unreal if one.kind == kind and wanted in ("", one.run.device)]
        names = {} if unreal else {kind: [wanted] if wanted else names[kind] or [kind]}
    examiners = []
    for kind, here in names.items():
        if not here:
            found.absent[kind] = subject(kind).absence()
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
    if backends.find(kind) is None or (colon and not is_decimal(number)):
        known = ", ".join(backends.names())
        raise UsageError(
            f"doctor: unknown device {device!r}. Known: {known}; a number may follow, as in AMD:1."
        )
    if not colon:
        return kind, ""
    return kind, kind if int(number) == 0 else f"{kind}:{int(number)}"


def _emulated(words: Sequence[str], host: Host, facts: Facts) -> list[_Examiner]:
    if not words:
        return []
    found = []
    port = backends.emulated_port(words)
    for kind in sorted(backends.emulated(words)):
        count = sum(word.partition(":")[0].upper() == kind for word in words)
        names = [kind if index == 0 else f"{kind}:{index}" for index in range(count)]
        found += [_Examiner(name, kind, host, facts, port) for name in names]
    return found


class _Examiner:
    """One device's run, with the device while it is open."""

    def __init__(self, name: str, kind: str, host: Host, facts: Facts, emulated: Port | None = None) -> None:
        self.kind, self.host, self.facts, self.emulated = kind, host, facts, emulated
        self.index = int(name.partition(":")[2] or 0)
        self.subject = subject(kind)
        self.run = Run(name, kind, functools.partial(advise, facts, self.subject), emulated is not None)
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
        self._work(
            "kernel", lambda: checks.kernel(self._opened, self.subject.kernel(self._opened.arch), sizes)
        )
        self._work("copy", lambda: checks.copy(self._opened, sizes))
        self._work("timestamp", lambda: checks.timestamp(self._opened))

    def meet(self, all_: Sequence[_Examiner]) -> None:
        """The last check, for which the neighbours have to be open."""
        others = [
            one.device
            for one in all_
            if one is not self and one.kind == self.kind and one.emulated is self.emulated and one.device
        ]
        self._work(
            "peers", lambda: checks.peers(self._opened, self.subject.kernel(self._opened.arch), others)
        )

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
        return self.subject.node(self.host, self.facts, self.index)

    def _permission(self) -> Found:
        if self.emulated is not None:
            return Found("emulated: the files open for everyone")
        return self.subject.permission(self.host, self.facts, self.index)

    def _driver(self) -> Found:
        kernel = "an emulated kernel" if self.emulated else f"Linux {self.facts.kernel}"
        return self.subject.driver(self.emulated or self.host, kernel)

    def _open(self) -> Found:
        device = self.device = open_device(self.run.device, self.subject, self.emulated or self.host)
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


def open_device(name: str, subject: Subject, port: Port) -> Device:
    """A device of our own, not the one that hcq.open shares: it can be closed without disturbing anybody."""
    backend = backends.of(name)
    if not backend.device:
        raise Failure(
            f"this version of hcq has no driver for {subject.title} GPUs.",
            "python -m pip install --upgrade hcq  # or use another device: HCQ_DEVICE=CPU",
        )
    settings = config_module.current()
    settings = dataclasses.replace(settings, timeout_ms=min(settings.timeout_ms, TIMEOUT_MS), profile=False)
    made: Device = backends.load(backend.device)(name, port, settings)
    return made


def advise(facts: Facts, subject: Subject, check: str, error: Exception) -> str:
    """The fix for an error that a check of an open device, or opening itself, ended with."""
    number = error.errno if isinstance(error, OSError) else None
    look = subject.look
    if (
        number == errno.ENOMEM
        and subject.has_kernel_driver
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
    if isinstance(error, HcqError) and subject.has_kernel_driver:
        return look
    return "HCQ_DEBUG=push,sync python -m hcq doctor  # and report what it prints"
