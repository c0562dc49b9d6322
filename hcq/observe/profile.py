"""Profile: how long each program ran on the device, from timestamps around every dispatch (HCQ_PROFILE=1).

In       dispatches as they are recorded
Out      totals by program name; `table()`, which is printed when the device closes
Changes  adds two Timestamp commands to every dispatch; waits after every replay of a graph, whose cells are used again
Next     hcq/queue.py (who asks what comes around a dispatch), hcq/graph.py
"""

from __future__ import annotations

import struct

from hcq.command import Command, Timestamp
from hcq.device import Device
from hcq.events.observer import Observer
from hcq.memory import Buffer

CELLS = 4096
CELL_BYTES = 16  # start and end, in nanoseconds


class Profile(Observer):
    """Totals of one device. `totals` is name -> (dispatches, nanoseconds), complete after `collect`."""

    is_awaited = True
    wraps_dispatches = True

    def __init__(self, device: Device) -> None:
        self.device = device
        self.totals: dict[str, tuple[int, int]] = {}
        self._buffers: list[Buffer] = []
        self._free: list[int] = []
        self._in_use: list[tuple[int, str, bool]] = []

    def around_dispatch(self, name: str, is_recorded: bool) -> tuple[Command, Command]:
        at = self._pair(name, is_recorded)
        return Timestamp(at), Timestamp(at + 8)

    def replayed(self) -> None:
        self.collect()

    def closing(self) -> bool:
        if not self.device.is_lost and not self.device.fault():
            self.device.say("time on the device\n" + self.table())
        return False

    def _pair(self, name: str, is_recorded: bool) -> int:
        """The address of a pair of timestamps for one dispatch; a graph keeps it, a queue gives it back when done."""
        if not self._free:
            self.collect()
        if not self._free:
            buffer = self.device.visible(CELLS * CELL_BYTES, "profile")
            buffer.write(bytes(CELLS * CELL_BYTES))
            self._buffers.append(buffer)
            self._free = [buffer.address + CELL_BYTES * index for index in range(CELLS)]
        at = self._free.pop()
        self._in_use.append((at, name, is_recorded))
        return at

    def collect(self) -> None:
        """Wait for everything submitted, and add up what has ended since the last time."""
        self.device.drain(self.device.timeline.submitted)
        hosts = [(buffer.address, buffer.host) for buffer in self._buffers]
        left = []
        stamps: list[tuple[int, int]] = []
        for at, name, is_recorded in self._in_use:
            start_va, host = next((va, host) for va, host in hosts if va <= at < va + len(host))
            start, end = struct.unpack_from("<2Q", host, at - start_va)
            if end:
                stamps += [(at, start), (at + 8, end)]
                calls, total = self.totals.get(name, (0, 0))
                self.totals[name] = calls + 1, total + self.device.duration_ns(end - start)
                struct.pack_into("<2Q", host, at - start_va, 0, 0)
            if is_recorded or not end:
                left.append((at, name, is_recorded))  # not submitted yet, or to be used by the next replay
            else:
                self._free.append(at)
        self._in_use = left
        if stamps:
            for observer in self.device.observers:
                observer.stamped(stamps)

    def table(self) -> str:
        """Programs by the time they took, the longest first, as text: microseconds in all, share, calls, microseconds
        each.
        """
        self.collect()
        whole = sum(total for _, total in self.totals.values()) or 1
        lines = [f"{'us in all':>12} {'share':>6} {'calls':>8} {'us each':>10}  program"]
        for name, (calls, total) in sorted(self.totals.items(), key=lambda item: -item[1][1]):
            each = total / calls / 1000
            lines.append(f"{total / 1000:12.1f} {total / whole:6.1%} {calls:8d} {each:10.2f}  {name}")
        return "\n".join(lines)
