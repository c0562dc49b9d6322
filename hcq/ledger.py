"""Ledger: which submission each timeline value stands for, so that a hang or a fault names its culprit.

In       (timeline value, commands, the user's line) at each submission
Out      the commands behind a value, the oldest ones not done yet
Changes  a bounded list; it holds addresses and programs, never buffers, so it keeps no memory alive
Next     recorder.py (the line), report.py (all of it, on a page), device.py (what a DeviceFault says)
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from hcq.command import Command
from hcq.recorder import Site, where

ENTRIES = 1024


class Ledger:
    """The last ENTRIES submissions. `note` is the hot path: one append."""

    def __init__(self) -> None:
        self.entries: deque[tuple[int, Sequence[Command], Site]] = deque(maxlen=ENTRIES)
        self.note = self.entries.append

    def find(self, value: int) -> Sequence[Command] | None:
        """The commands whose completion sets the timeline to `value`, or None when that is too long ago."""
        entry = self.entry(value)
        return None if entry is None else entry[1]

    def entry(self, value: int) -> tuple[int, Sequence[Command], Site] | None:
        """The whole entry of a value: (value, commands, site)."""
        for entry in self.entries.copy():
            if entry[0] == value:
                return entry
        return None

    def line(self, value: int) -> str:
        """The line that made a submission; when only its neighbours' are known, those. "" when nothing is."""
        before = after = ""
        for number, _, site in self.entries.copy():
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

    def describe(self, value: int) -> str:
        """One submission in words."""
        entry = self.entry(value)
        if entry is None:
            return f"#{value} (no longer in the ledger)"
        commands, line = entry[1], self.line(value)
        if not commands:
            return f"#{value}: nothing but its signal"
        text = "; ".join(str(command) for command in commands[:4])
        more = f"; and {len(commands) - 4} more commands" if len(commands) > 4 else ""
        return f"#{value}: {text}{more}" + (f" (submitted at {line})" if line else "")
