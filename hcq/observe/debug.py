"""Debug: what a device does, a line for each, while it does it (HCQ_DEBUG=push,sync,alloc).

In       what the device notifies its observers of
Out      lines on stderr: packets of each submission with their meaning, waits that were not over at once, allocations
Next     hcq/config.py (the words; those of the compiler are in frontend/run/plan.py)
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hcq.command import Command
from hcq.device import Device
from hcq.events.observer import Observer
from hcq.system.call_site import Site


class Debug(Observer):
    """Prints what one device does."""

    def __init__(self, device: Device) -> None:
        self.device = device
        self.says_push = "push" in device.config.debug
        self.says_sync = "sync" in device.config.debug
        self.says_alloc = "alloc" in device.config.debug
        self._mapped_bytes = 0
        self._recorded: tuple[list[bytes], Sequence[Command]] = [], ()

    def submitting(
        self, value: int, words: list[bytes], commands: Sequence[Command], held: Sequence[Any], at: Site
    ) -> list[bytes]:
        self._recorded = words, commands  # others may put words around them
        return words

    def sent(self, value: int) -> None:
        if self.says_push:
            words, commands = self._recorded
            lines = self.device.show_words(words, value)
            self.device.say("\n".join([*lines, *(f"  meaning {what}" for what in commands)]))

    def waited(self, va: int, name: str, value: int, timestamp_ns: int, waited_ns: int) -> None:
        if self.says_sync and waited_ns:
            self.device.say(f"waited {waited_ns / 1000:.0f} us for {name}@{va:#x}, which is {value}")

    def alloc(self, va: int, size_bytes: int, capacity: int, name: str | None) -> None:
        if self.says_alloc:
            new = self.device.memory.mapped_bytes - self._mapped_bytes
            self._mapped_bytes += new
            mapped = f", {new} bytes newly mapped" if new > 0 else ""
            called = f" {name!r}" if name else ""
            self.device.say(f"alloc {size_bytes} bytes{called} at {va:#x} in a block of {capacity}{mapped}")

    def free(self, va: int, capacity: int) -> None:
        if self.says_alloc:
            self.device.say(f"free {capacity} bytes at {va:#x}")
