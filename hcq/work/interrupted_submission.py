"""Interrupted: what becomes of a submission that an error or a signal's handler cuts short at any of its lines.

In       a device whose `send` did not come to its end: a full ring's deadline, Ctrl-C, an alarm
Out      the submission happened whole, or not at all; where neither can be had, what it writes is marked as unknown
Changes  the rings, as far as they must be put right; the timeline's count
Next     hcq/device.py (submit, `settle` of each kind of device), hcq/queue.py and hcq/graph.py (their own notes)

The driver's notes are put right from what the device may read: its write pointers are in memory. One interruption is
survived at every line; a second one inside the few lines that follow the first may leave a device that must be reset.
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
