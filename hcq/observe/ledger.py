"""Ledger: the submissions that a device remembers, in words, so that a hang or a fault names its culprit.

In       Device.recent: (timeline value, commands, the user's line) of its last submissions
Out      what a value stands for, and the line that made it
Next     hcq/system/call_site.py (the line), report.py (all of it, on a page), hcq/device.py (who remembers)
"""

from __future__ import annotations

from collections import deque

from hcq.lifetime.recovery import Submitted
from hcq.system.call_site import where


def line(recent: deque[Submitted], value: int) -> str:
    """The line that made a submission; when only its neighbours' are known, those. "" when nothing is."""
    before = after = ""
    for number, _, site in recent.copy():
        if site is not None and number <= value:
            before = where(site)
            if number == value:
                return before
        elif site is not None:
            after = where(site)
            break
    if before and after and before != after:
        return f"a line between {before} and {after}"
    return f"a line at or after {before}" if before else f"a line before {after}" if after else ""


def describe(recent: deque[Submitted], value: int) -> str:
    """One submission in words."""
    entry = next((made for made in recent.copy() if made[0] == value), None)
    if entry is None:
        return f"#{value} (no longer remembered)"
    _, commands, _ = entry
    if not commands:
        return f"#{value}: nothing but its signal"
    text = "; ".join(str(command) for command in commands[:4])
    more = f"; and {len(commands) - 4} more commands" if len(commands) > 4 else ""
    made_at = line(recent, value)
    return f"#{value}: {text}{more}" + (f" (submitted at {made_at})" if made_at else "")
