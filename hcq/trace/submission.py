"""Submission: one doorbell of a trace: its packets, its commands as data, and what they name.

In       a SUBMIT record, and the trace that it is in
Out      `Submission`; `addresses` of commands
Next     file.py (the trace), memory.py (what lay at an address), records.py (how commands are written down)
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from hcq.layout import Packet
from hcq.trace.frames import Record
from hcq.trace.memory import BlockImage, MemoryMap, Place
from hcq.trace.records import unpack_commands
from hcq.trace.seen import TraceDevice

if TYPE_CHECKING:
    from hcq.trace.file import Trace


class Submission:
    """One doorbell. Times are nanoseconds of time.monotonic_ns; None while nobody knows them.

    number      place in the file, from 0
    value       what the device's timeline is when it is done
    site        the line of the program that made it, as "file.py:12 in function"
    started_ns, finished_ns   on the device
    dropped     it was recorded, and then did not reach the device
    """

    def __init__(
        self, trace: Trace, number: int, record: Record, device: TraceDevice, head: dict[str, int]
    ) -> None:
        self.trace = trace
        self.number = number
        self.record = record.index
        self.device = device
        self.queue = trace.string(record.process, head["queue"])
        self.value = head["value"]
        self.site = trace.string(record.process, head["site"])
        self.thread = trace.string(record.process, head["thread"])
        self.time_ns = record.time_ns
        self.started_ns: int | None = None
        self.finished_ns: int | None = None
        self.dropped = False
        size = 4 * head["size_words"]
        if size > len(record.data):
            raise ValueError("its words reach beyond the record")
        self._words = record.data[:size]
        self.commands, _ = unpack_commands(
            record.data[size:], head["commands"], lambda number: trace.string(record.process, number)
        )
        for command in self.commands:
            trace.name_kernel(command, device)

    @property
    def words(self) -> tuple[int, ...]:
        """What the rings got, as 32-bit words."""
        return struct.unpack(f"<{len(self._words) // 4}I", self._words)

    def packets(self) -> list[Packet]:
        """The words, decoded by the device's own layouts."""
        return self.device.decode(self.words, self.queue)

    @property
    def blocks(self) -> list[BlockImage]:
        """The blocks that its commands run indirectly, as they were then."""
        return [
            self.trace.block(self.device, command["address"], self.record)
            for command in self.commands
            if command["verb"] == "indirect" and self.trace.has_block(self.device, command["address"])
        ]

    def block_packets(self, block: BlockImage) -> list[Packet]:
        """The packets of a block that this submission ran, at the time."""
        return self.device.decode(block.words, self.queue)

    def all_commands(self) -> list[dict[str, Any]]:
        """Commands in the order in which they run, those of blocks in the place of the replay."""
        images = {block.va: block for block in self.blocks}
        found: list[dict[str, Any]] = []
        for command in self.commands:
            image = images.get(command["address"]) if command["verb"] == "indirect" else None
            found.extend([command] if image is None else image.commands)
        return found

    @property
    def kernels(self) -> list[str]:
        """Names of the kernels it launches, in order."""
        return [command["kernel"] for command in self.all_commands() if command["verb"] == "dispatch"]

    def memory(self) -> MemoryMap:
        """What was where when it was submitted."""
        return self.trace.memory_at(self)

    def buffers(self) -> list[Place]:
        """The buffers its commands name, each once, in order."""
        memory = self.memory()
        found: dict[int, Place] = {}
        for command in self.all_commands():
            for va in addresses([command]):
                place = memory.find(va)
                found.setdefault(place.start, place)
            for arg in command.get("args", ()):  # nobody said what it is: an address, if a buffer is there
                if arg["kind"] == "unknown" and memory.find(arg["value"]).state in ("live", "freed"):
                    place = memory.find(arg["value"])
                    found.setdefault(place.start, place)
        return list(found.values())

    def __repr__(self) -> str:
        return f"Submission({self.device.key} #{self.value}, {len(self._words) // 4} words)"


def addresses(commands: Sequence[dict[str, Any]]) -> Iterator[int]:
    """Every address that commands name: buffer arguments, destinations, sources, signals."""
    for command in commands:
        for arg in command.get("args", ()):
            if arg["kind"] == "buffer":
                yield arg["value"]
        for name in ("dst", "src", "signal", "address"):
            if name in command:
                yield command[name]
