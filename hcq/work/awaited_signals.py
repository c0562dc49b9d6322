"""Awaited signals: names the signals that submitted work waits for, in the message of a WaitTimeout.

In       a device
Out      a sentence about the oldest unfinished submission, or ""
Next     hcq/device.py (pending), rules/waits.py (the rules about waits that never end)
"""

from __future__ import annotations

from typing import Any

from hcq.command import Wait, flat
from hcq.lifetime import open_devices

MOST = 3  # waits that are told


def awaited(device: Any) -> str:
    """What the first submission in flight still waits for: signals with their devices, and what became of these."""
    made = device.submission(device.timeline.value + 1)
    waits = [] if made is None else [what for what in flat(made[1]) if isinstance(what, Wait)]
    found = [text for what in waits if (text := _told(what))]
    return f" It waits for {', and '.join(found[:MOST])}." if found else ""


def _told(what: Wait) -> str:
    signal = open_devices.signal_at(what.signal)
    if signal is None:
        return f"a signal at {what.signal:#x} to be {what.value}, which no open device has"
    return "" if signal._cell[0] >= what.value else shortfall(signal, what.value)


def shortfall(signal: Any, value: int) -> str:
    """Which signal has not reached a value, how far it is, and whether work of its device has failed."""
    owner = signal.device
    failed = getattr(owner, "failures", ())
    why = f"; work of {owner.name} failed: {failed[-1][2].rstrip('.')}" if failed else ""
    return f"signal {signal.name} of {owner.name} to be {value}, which is {signal._cell[0]}{why}"
