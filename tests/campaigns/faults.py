"""Fault plans: what a device asks of the system is refused, its doorbells are lost, its cells overwritten, it stalls.

In       a case; from it a plan: what fails, when, and how
Out      the right numbers of a training step, or one clear error of ours; then the next step works, and nothing is left
Changes  an emulated operating system of its own for each case
Next     fault_port.py (calls that fail), digits_step.py (the work), campaign.py (what a campaign is)

A plan names an event (a call of the port, an allocation, a doorbell, a submission) by index, by kind, or leaves it to
chance. Events are learnt from a run without faults, so a plan says what it hits: `CREATE_QUEUE #2: ENOMEM`.
"""

from __future__ import annotations

import dataclasses
import errno
import functools
import gc
import random
import threading
import time
from collections.abc import Callable
from typing import Any

from hcq import backends, config
from hcq.cpu import device as cpu_device
from hcq.device import Device
from hcq.emu.port import EmulatedPort
from hcq.errors import DeviceFault, HcqError, WaitTimeout
from hcq.nv.abi.names import table
from hcq.nv.abi.status import BENIGN
from hcq.system.port import LinuxPort
from tests.campaigns.campaign import Campaign, Case, Outcome, Wrong
from tests.campaigns.digits_step import TIMEOUT_MS, Step, step_of
from tests.campaigns.fault_port import Fault, FaultPort, Injector, is_release, refuse

STALL_MS = 300  # the deadline of waits where the plan delays the device on purpose
ERRNOS = (
    *(errno.ENOMEM, errno.EINVAL, errno.EACCES, errno.EPERM, errno.EBUSY, errno.EIO, errno.ENODEV),
    *(errno.EMFILE, errno.ENOENT, errno.EFAULT, errno.EAGAIN, errno.ENOSPC, errno.EINTR),
)
STATUSES = [status for status in table("statuses") if status not in BENIGN]
THREADS = 2  # of the CPU device, whatever the machine has
PHASES = ("open", "step", "close")


class System:
    """One operating system, with one GPU or none, and the device that is opened on it."""

    def __init__(self, word: str) -> None:
        self.word = word
        self.kind = word.partition(":")[0].upper()
        self.injector = Injector()
        self.kernel = _kernel(word)
        inner = LinuxPort() if self.kernel is None else EmulatedPort([self.kernel])
        self.port = FaultPort(inner, self.injector)
        self.device: Device | None = None
        self.opened = 0  # devices, so far

    def open(self) -> Device:
        settings = dataclasses.replace(config.current(), timeout_ms=TIMEOUT_MS, threads=THREADS)
        backend = backends.find(self.kind)
        assert backend is not None
        make: Any = FaultyCpu if self.kind == "CPU" else backends.load(backend.device)
        device: Device = make(self.kind, self.port, settings)
        self.device = device
        self.opened += 1
        self.watch(device)
        return device

    def watch(self, device: Any) -> None:
        """Let the injector see allocations, submissions and doorbells."""
        at = self.injector.at
        alloc, map_memory, submit = device.alloc, device.map_memory, device.submit

        def faulty_alloc(size_bytes: int, name: str | None = None) -> Any:
            if fault := at("alloc"):
                raise refuse("alloc", fault.errno)
            return alloc(size_bytes, name)

        def faulty_map(size_bytes: int) -> int:
            if fault := at("map_memory"):
                raise refuse("map_memory", fault.errno)
            return int(map_memory(size_bytes))

        def faulty_submit(*args: Any) -> Any:
            if fault := at("before submission"):
                fault.act(device)
            done = submit(*args)
            if fault := at("after submission"):
                fault.act(device)
            return done

        device.alloc, device.map_memory, device.submit = faulty_alloc, faulty_map, faulty_submit
        if self.kind == "CPU":
            device.code = _Code(device.code, self.injector)
        elif self.kind == "AMD":
            for ring in device.rings.values():
                ring._doorbell = _Doorbell(ring._doorbell, self.injector)
        else:
            device.channel.fifo._doorbell = _Doorbell(device.channel.fifo._doorbell, self.injector)

    def end(self, is_over: bool) -> None:
        """What a case has left behind does not reach the next one; once all is over, the port's process ends, too."""
        self.injector.is_armed = False
        if self.device is not None:
            self.device.close(timeout_ms=1000)
            self.device = None
        if self.kind == "AMD":
            for process in self.kernel.processes.values():  # of which the driver could not end some
                for gpu in process.gpus.values():
                    for number in list(gpu.queues):
                        gpu.remove(number)
        elif self.kind == "NV":
            for gpu in self.kernel.gpus:
                gpu.fronts.clear()
        gc.collect()
        if is_over:
            _await_threads()
            self.port.sweep()

    def held(self) -> dict[str, int]:
        """What the kernel driver and the port hold for this process."""
        found = {"bytes mapped": self.port.mapped_bytes, "files": len(self.port.files)}
        if self.kind == "AMD":
            for process in self.kernel.processes.values():
                found["buffer objects"] = len(process.objects)
                found["events"] = len(process.events.events)
                found["queues"] = sum(len(gpu.queues) for gpu in process.gpus.values())
        elif self.kind == "NV":
            files = self.kernel.open_files
            clients = [client for file in files for client in getattr(file, "clients", {}).values()]
            found["objects"] = sum(len(client.objects) for client in clients)
            found["clients"] = len(clients)
            found["mappings"] = len(self.kernel.mappings)
            found["ranges"] = sum(len(getattr(file, "ranges", ())) for file in files)
            found["channels"] = sum(len(gpu.fronts) for gpu in self.kernel.gpus)
        return found


def _kernel(word: str) -> Any:
    if word.startswith("amd"):
        from hcq.emu.amd.kfd import emulate

        return emulate([word])
    if word.startswith("nv"):
        from hcq.emu.nv.rm import EmulatedRm
        from hcq.emu.nv.spec import parse_all

        return EmulatedRm(parse_all([word]))
    return None


class FaultyCpu(cpu_device.CpuDevice):
    """A CPU device whose threads may fail to start."""

    def _start(self, function: str, argument: int) -> None:
        if fault := self.port.injector.at("pthread_create"):  # type: ignore[attr-defined]
            self._set_field("running", len(self._handles))
            raise refuse("pthread_create", fault.errno)
        super()._start(function, argument)


class _Doorbell:
    """A doorbell that is rung as often as the plan says."""

    def __init__(self, inner: Any, injector: Injector) -> None:
        self.inner, self.injector = inner, injector

    def __setitem__(self, index: int, value: int) -> None:
        fault = self.injector.at("doorbell")
        for _ in range(1 if fault is None else fault.times):
            self.inner[index] = value


class _Code:
    """The CPU device's command processor, with such a doorbell."""

    def __init__(self, inner: Any, injector: Injector) -> None:
        self.inner, self.injector = inner, injector

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    def doorbell_ring(self, control: Any, put: int) -> None:
        fault = self.injector.at("doorbell")
        for _ in range(1 if fault is None else fault.times):
            self.inner.doorbell_ring(control, put)


# ------------------------------------------------------------ plans


@dataclasses.dataclass
class Plan:
    """When which fault happens: while the device opens, works or closes."""

    text: str
    phase: str
    decide: Callable[[str, int, int], Fault | None]


@functools.cache
def events_of(word: str) -> dict[str, list[str]]:
    """phase -> what happens in it when nothing fails, in order."""
    system = System(word)
    found = {}
    step = step_of(system.kind)
    for phase in PHASES:
        system.injector.events = []
        system.injector.is_armed = True
        _act(system, phase, step)
        system.injector.is_armed = False
        # as many as it takes
        found[phase] = [name for name in system.injector.events if name != "WAIT_EVENTS"]
    system.device = None
    system.end(is_over=True)
    return found


def _act(system: System, phase: str, step: Step) -> None:
    if phase == "open":
        system.open()
    elif phase == "step":
        assert system.device is not None
        step.check(system.device)
    else:
        assert system.device is not None
        system.device.close()


def plan_of(word: str, rng: random.Random) -> Plan:
    """A plan, as the random numbers say."""
    phase = rng.choices(PHASES, (4, 10, 1))[0]
    events = events_of(word)[phase]
    ways = ["index", "kind", "kind on", "chance"] + ["doorbell", "cell", "stall", "alloc", "rebuild"] * (
        phase == "step"
    )
    way = rng.choice(ways)
    if way == "doorbell":
        first, times = rng.randint(1, 8), rng.choice((0, 0, 2, 3))
        rung = Fault(times=times, stalls=times == 0)
        return Plan(
            f"doorbell #{first} is rung {times} times",
            phase,
            lambda name, count, index: rung if name == "doorbell" and count == first else None,
        )
    if way in ("cell", "stall"):
        fault = _cell_fault(rng) if way == "cell" else _stall_fault(rng)
        when, first = rng.choice(("before submission", "after submission")), rng.randint(1, 8)
        return Plan(
            f"{when} {first}: {fault}",
            phase,
            lambda name, count, index: fault if name == when and count == first else None,
        )
    if way == "rebuild":
        return _rebuild_plan(word, rng)
    if way == "alloc":
        what = rng.choice(("alloc", "map_memory"))
        first, last = rng.randint(1, 40 if what == "alloc" else 2), rng.choice((0, 1, 1 << 30))
        return Plan(
            f"{what} #{first} to #{first + last}: ENOMEM",
            phase,
            lambda name, count, index: (
                Fault(errno.ENOMEM) if name == what and first <= count <= first + last else None
            ),
        )
    calls = [name for name in events if name not in ("alloc", "map_memory", "doorbell")]
    calls = [name for name in calls if not name.endswith(" submission")] or ["close"]
    if way == "chance":
        share = rng.choice((0.003, 0.03, 0.3))
        dice = random.Random(rng.random())
        return Plan(
            f"every call fails with a chance of {share:g}",
            phase,
            lambda name, count, index: (
                _call_fault(name, dice) if name in calls and dice.random() < share else None
            ),
        )
    name_of_it = rng.choice(calls if way == "index" else sorted({*calls, *_WAITS.get(word[:2], ())}))
    most = max(1, calls.count(name_of_it))
    first = rng.randint(1, min(most, 3) if way == "kind on" else most)
    last = 1 << 30 if way == "kind on" else first
    fault = _call_fault(name_of_it, rng, is_lasting=way == "kind on")
    return Plan(
        f"{name_of_it} #{first}{' and all later ones' if last > first else ''}: {fault}",
        phase,
        lambda name, count, index: fault if name == name_of_it and first <= count <= last else None,
    )


def _rebuild_plan(word: str, rng: random.Random) -> Plan:
    """The device is told to drop its work and start anew, and of the calls that this takes some are refused."""
    calls = {name for phase in ("open", "close") for name in events_of(word)[phase]}
    chosen = rng.choice(sorted(name for name in calls if not name.endswith(" submission")))
    first, share, dice = rng.randint(1, 8), rng.choice((0.0, 0.02, 0.2)), random.Random(rng.random())
    reset = Fault(act=_reset, what="a wait for nobody, and a reset", stalls=True)
    is_reset = False

    def decide(name: str, count: int, index: int) -> Fault | None:
        nonlocal is_reset
        if name == "before submission" and count == first:
            is_reset = True
            return reset
        if is_reset and name in calls and (dice.random() < share or (not share and name == chosen)):
            return _call_fault(name, dice, is_lasting=True)
        return None

    what = (
        f"{chosen} fails from then on"
        if not share
        else f"every call fails with a chance of {share:g} from then on"
    )
    return Plan(f"before submission {first}: a wait for nobody, and a reset; {what}", "step", decide)


def _reset(device: Any) -> None:
    _wait_for_nobody(device)
    device.reset()


_WAITS = {"am": ("WAIT_EVENTS",)}


def _call_fault(name: str, rng: random.Random, is_lasting: bool = False) -> Fault:
    if name.startswith("read ") and rng.random() < 0.5:
        return Fault(keep=rng.choice((0.0, 0.1, 0.5, 0.9)))
    if name.startswith(("NV_", "UVM_")) and rng.random() < 0.6:
        return Fault(status=rng.choice(STATUSES))
    return Fault(rng.choice([each for each in ERRNOS if not (is_lasting and each == errno.EINTR)]))


def _cell_fault(rng: random.Random) -> Fault:
    # beyond all that the step will submit: a number that is about to be reached cannot be told from the device's own
    way = rng.choice(("past", "future", "last", "garbage"))
    back, noise = rng.randint(1, 3), rng.getrandbits(64)

    def overwrite(device: Any) -> None:
        now, submitted = device.timeline._cell[0], device.timeline.submitted
        value = {
            "past": max(0, min(now, submitted) - back),
            "future": submitted + 1000 + back,
            "last": 2**64 - 1,
            "garbage": max(noise, submitted + 1000),
        }[way]
        device.timeline._cell[0] = value

    return Fault(act=overwrite, what=f"the timeline's cell is overwritten ({way})", stalls=True)


def _stall_fault(rng: random.Random) -> Fault:
    if rng.random() < 0.5:
        return Fault(act=_wait_for_nobody, what="a wait for a signal that nobody sets", stalls=True)
    return Fault(act=_suspend, what="the queues are suspended", stalls=True)


def _wait_for_nobody(device: Any) -> None:
    never = device.signal("never")
    queue = device.queue().wait(never, 1)
    words, commands = queue._words, queue.commands
    Device.submit(device, words, commands, [never])
    del queue


def _suspend(device: Any) -> None:
    kernel = getattr(device.port.inner, "kernels", [None])[0]
    if kernel is None:  # the CPU's processor is no emulation: it is made to wait
        _wait_for_nobody(device)
    elif hasattr(kernel, "processes"):
        for process in kernel.processes.values():
            for gpu in process.gpus.values():
                for queue in gpu.queues.values():
                    queue.is_suspended = True
    else:
        for gpu in kernel.gpus:
            for group in gpu.groups:
                group.is_scheduled = False


# ------------------------------------------------------------ a case


def run(word: str, case: Case) -> Outcome:
    """One plan on a device of its own."""
    plan = plan_of(word, case.rng())
    step = step_of(word.partition(":")[0].upper())
    system = System(word)
    left_behind = len(cpu_device._left_behind)
    told = f"plan: while it is to {plan.phase}, {plan.text}"
    is_over = False
    try:
        outcome = _attack(system, plan, step)
        is_over = True
        return outcome
    except Wrong as wrong:
        raise Wrong(f"{wrong}\n{told}\nfired: {_fired(system)}") from None
    except HcqError as error:
        what = f"once the fault is gone: {type(error).__name__}: {error}"
        raise Wrong(f"{what}\n{told}\nfired: {_fired(system)}") from error
    except Exception as error:
        error.add_note(f"{told}\nfired: {_fired(system)}")
        raise
    finally:
        system.end(is_over and len(cpu_device._left_behind) == left_behind)


def _fired(system: System) -> str:
    return "; ".join(system.injector.fired[:12]) or "nothing"


def _attack(system: System, plan: Plan, step: Step) -> Outcome:
    injector = system.injector
    error = _faulty(system, plan, step)
    injector.is_armed = False
    if error is not None:
        _judge(error, injector.fired)
    _recover(system)
    device = system.device
    assert device is not None
    step.check(device, replays=1)
    _check_device(device)
    device.close()
    system.device = device = None  # its ledger holds programs
    # NVIDIA's addresses are given back by an mmap: reserved ones are mapped as nothing
    gives_back = (
        ("mmap",) if system.kind == "NV" and (plan.phase == "close" or len(injector.fired) > 1) else ()
    )
    has_refused = any(is_release(name) or name.startswith(gives_back) for name in injector.fired)
    _check_system(system, has_refused)
    return Outcome.RIGHT if error is None else Outcome.REFUSED


def _faulty(system: System, plan: Plan, step: Step) -> HcqError | None:
    """Everything up to the plan's phase, and that phase with the plan's faults: the error that comes of it."""
    injector = system.injector
    for phase in PHASES[: PHASES.index(plan.phase) + 1]:
        if phase == plan.phase:
            injector.on_stall = lambda: _set_timeout(system.device, STALL_MS)
            injector.plan, injector.is_armed = plan.decide, True
        elif phase == "step":
            continue  # a device closes as well without it
        try:
            _act(system, phase, step)
        except HcqError as error:
            error.__traceback__ = None  # its frames hold what the case must give back
            error.__context__ = error.__cause__ = None
            return error
    return None


def _judge(error: HcqError, fired: list[str]) -> None:
    """An error is clear: it says which call failed and with what, or what was waited for."""
    text = str(error)
    if not fired:
        raise Wrong(f"an error without a fault: {type(error).__name__}: {text}")
    if isinstance(error, (WaitTimeout, DeviceFault)):
        return
    said = [one.rpartition(": ")[2] for one in fired]
    if not any(word in text for word in said) and not any("of the file" in one for one in fired):
        raise Wrong(f"an error that does not name what failed: {type(error).__name__}: {text}")


def _recover(system: System) -> None:
    """What a program does that goes on: it does what the error said."""
    gc.collect()
    device = system.device
    if device is not None and device.is_open and not device.dead:
        has_stalled = device.config.timeout_ms == STALL_MS
        _set_timeout(device, TIMEOUT_MS)
        if has_stalled:
            device.reset()
        return
    if device is not None:
        device.close()
    system.device = None
    system.open()


def _set_timeout(device: Any, timeout_ms: int) -> None:
    device.config = dataclasses.replace(device.config, timeout_ms=timeout_ms)


def _check_device(device: Device) -> None:
    """Nothing of the work is left on the device."""
    gc.collect()
    own = [
        buffer.name for buffer in device.memory.owners() if (buffer.name or "").startswith(("memory", "copy"))
    ]
    if own:
        raise Wrong(f"leak: buffers {own}")
    signals = [signal.name for signal in device.signals.values() if signal is not device.timeline]
    if signals:
        raise Wrong(f"leak: signals {signals}")


@functools.cache
def _kept(word: str, opened: int) -> dict[str, int]:
    """What is held after so many devices were opened, used and closed without a fault."""
    system = System(word)
    for _ in range(opened):
        system.open()
        assert system.device is not None
        step_of(system.kind).check(system.device, replays=1)
        system.device.close()
        system.device = None
        gc.collect()
    held = system.held()
    system.end(is_over=True)
    return held


def _await_threads() -> list[str]:
    """Threads of emulated GPUs end soon after their last queue; those that do not within a minute."""
    end = time.monotonic() + 60
    while time.monotonic() < end:
        threads = [one.name for one in threading.enumerate() if one is not threading.main_thread()]
        if not threads:
            return []
        time.sleep(0.002)
    return threads


def _check_system(system: System, has_refused: bool) -> None:
    """The kernel driver holds no more than after a life without faults; threads are gone."""
    gc.collect()
    if has_refused:
        return
    if threads := _await_threads():
        raise Wrong(f"leak: threads {threads}")
    held, kept = system.held(), _kept(system.word, system.opened)
    more = [f"{held[what]} {what}, not {kept[what]}" for what in held if held[what] > kept[what]]
    if more:
        raise Wrong(f"leak: {'; '.join(more)}")


def _campaign(word: str, short: int) -> Campaign:
    vendor, _, arch = word.partition(":")
    environment = {} if vendor == "cpu" else {"HCQ_EMULATE": word}
    return Campaign(
        name="-".join(["faults", vendor, *filter(None, [arch])]),
        injects="calls refused by index, kind and chance; allocations; doorbells; the timeline's cell; stalls",
        run=functools.partial(run, word),
        short=short,
        environment=environment,
    )


CAMPAIGNS = (
    _campaign("cpu", 100),
    _campaign("amd:gfx1100", 8),
    _campaign("amd:gfx942", 8),
    _campaign("nv:sm_90", 16),
)
