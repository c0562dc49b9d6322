"""Interrupted submission: keeps a device consistent when an exception (such as Ctrl-C) interrupts a submission.

In       a device whose `send` did not finish: the ring stayed full until the deadline, Ctrl-C, an alarm
Out      the submission happened completely or not at all; where neither is possible, its results are marked as unknown
Changes  the rings, where they must be repaired; the timeline's count
Next     hcq/device.py (submit, `settle` of each kind of device), hcq/queue.py and hcq/graph.py (their own state)

The driver's state is restored from the write pointers in memory, which the device reads. One interruption is harmless
at every line. A second one, within the few lines that handle the first, may leave a device that must be reset.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from hcq.base import Base, Sent
from hcq.command import Command
from hcq.memory import Buffer
from hcq.system.call_site import Site


def settle(device: Base, value: int, commands: Sequence[Command], held: Sequence[Any], at: Site) -> bool:
    """Put right what a submission that was cut short has left; whether it counts. The caller holds the lock."""
    if device.timeline.submitted >= value:
        return True
    sent = device.settle(value)
    if sent is Sent.NOTHING:
        return False
    device.timeline.submitted = value
    device.note(value, commands, at)
    if sent is Sent.A_PART:
        why = (
            f"{device.name}: submission {device.describe(value)} was cut short while the ring was full: only a "
            "part of it ran."
        )
        device.failures.append((value, value, why))
        for buffer in _buffers(held):
            buffer.last, buffer.poison = value, why
    return True


def _buffers(held: Any) -> Iterator[Buffer]:
    """The whole buffers in nested lists."""
    for what in held:
        if isinstance(what, Buffer):
            yield what.parent or what
        elif isinstance(what, (list, tuple)):
            yield from _buffers(what)
