"""Ledger: which submission each timeline value stands for, so that a hang or a fault names its culprit.

In       (timeline value, commands) at each submission
Out      the commands behind a value, the oldest ones not done yet
Changes  a bounded list; it holds addresses and programs, never buffers, so it keeps no memory alive
Next     signal.py (what a WaitTimeout says), device.py (what a DeviceFault says)
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from hcq.command import Command

ENTRIES = 1024


class Ledger:
    """The last ENTRIES submissions. `note` is the hot path: one append."""

    def __init__(self) -> None:
        self.entries: deque[tuple[int, Sequence[Command]]] = deque(maxlen=ENTRIES)
        self.note = self.entries.append

    def find(self, value: int) -> Sequence[Command] | None:
        """The commands whose completion sets the timeline to `value`, or None when that is too long ago."""
        for entry_value, commands in self.entries:
            if entry_value == value:
                return commands
        return None

    def describe(self, value: int) -> str:
        """One submission in words."""
        commands = self.find(value)
        if commands is None:
            return f"#{value} (no longer in the ledger)"
        if not commands:
            return f"#{value}: nothing but its signal"
        text = "; ".join(str(command) for command in commands[:4])
        more = f"; and {len(commands) - 4} more commands" if len(commands) > 4 else ""
        return f"#{value}: {text}{more}"
