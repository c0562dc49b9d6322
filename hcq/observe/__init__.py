"""Observe: traces, profiles and validation of devices at work, and reports about hangs and faults.

In       a device and its configuration
Out      `observers_of`: its observers, in the order in which they are notified of a submission
Changes  what each of them says
Next     hcq/events/observer.py (what all of them are)

    sanitizer.py               HCQ_SANITIZE: faults of kernels, while an emulated GPU runs them
    validator.py               HCQ_VALIDATE: the rules, before the doorbell
    debug.py                   HCQ_DEBUG=push,sync,alloc: a line for each
    profile.py                 HCQ_PROFILE=1: how long each program ran
    counters.py                HCQ_PROFILE=counters: what each program did, on an emulated GPU
    trace.py, contents.py      HCQ_TRACE: what happens, into a file (trace_writer.py), whose path trace_paths.py knows
    ledger.py                  which submission each timeline value stands for, in words
    report.py                  a page about a hang or a fault; report_waves.py its part about kernels and arguments
    inspector.py, state.py     HCQ_INSPECT=1: answers to `python -m hcq inspect` of another process

A device imports this package when one of them is asked for, or when something has to be explained.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from hcq.config import DEVICE_DEBUG_WORDS
from hcq.device import Device
from hcq.errors import UsageError
from hcq.events.observer import Observer
from hcq.observe import ledger as ledger
from hcq.observe import report as report

O = TypeVar("O")
# makers of observers for every device that opens, whose configuration is observed: a debugger's
ADDED: list[Callable[[Device], Observer]] = []


def observers_of(device: Device, while_opening: bool) -> tuple[Observer, ...]:
    """Who watches a device that is about to open, or is open. The rules need it open; the others see its bring-up."""
    config = device.config
    if not while_opening:
        if not config.validate and "race" not in config.sanitize:
            return device.observers
        from hcq.observe.validator import Validator

        return (Validator(device, config.validate), *device.observers)
    found: list[Observer] = [make(device) for make in ADDED]
    if not config.debug.isdisjoint(DEVICE_DEBUG_WORDS):
        from hcq.observe.debug import Debug

        found.append(Debug(device))
    if config.sanitize or config.validate:
        from hcq.observe.sanitizer import Sanitizer

        found.append(Sanitizer(device))
    if config.profile:
        from hcq.observe.profile import Profile

        found.append(Profile(device))
    if config.counters:
        from hcq.observe.counters import Counting

        found.append(Counting(device))
    if config.trace is not None:
        from hcq.observe.trace import Trace

        found.append(Trace(device, config.trace, config.trace_data))
    return tuple(found)


def observer(device: Device, kind: type[O]) -> O:
    """The observer of this kind that a device has. Raises UsageError when it has none."""
    for each in device.observers:
        if isinstance(each, kind):
            return each
    raise UsageError(
        f"{device.name} has no {kind.__name__.lower()}. See HCQ_TRACE, HCQ_VALIDATE and HCQ_PROFILE."
    )


def report_on_signal() -> None:
    """HCQ_REPORT=signal: a report at SIGUSR1, from the first device on."""
    global _reports_on_signal
    if not _reports_on_signal:
        report.install(chain=True)
        _reports_on_signal = True


_reports_on_signal = False


def answer_inspectors(device: Device) -> None:
    """HCQ_INSPECT=1: a thread answers `python -m hcq inspect` of other processes, from the first device on."""
    from hcq.observe import inspector

    inspector.serve(device)
