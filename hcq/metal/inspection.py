"""Views of Metal devices for `python -m hcq inspect`, and what a capsule is made of: submissions that are not done.

In       an open device, which another thread uses meanwhile
Out      plain data
Changes  nothing; no lock is taken
Next     packets.py (the words), hcq/system/inspection.py (what this is part of), hcq/observe/report_words.py (in
         reports), tools/trace/metal_capsule.py (who makes a trace of it)

Metal shows no ring. What is told are the packets of each submission that is not done, made anew of the commands that
the device remembers; the blocks of graphs; the values of the signals that they wait for; of each launch its MSL, and
where the buffers are that its arguments point to, without what is in them.
"""

from __future__ import annotations

import contextlib
from bisect import bisect_right
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from hcq.command import Dispatch, Indirect
from hcq.errors import DriverError, UsageError
from hcq.metal import encode, packets
from hcq.system.inspection import Inspection, words_at

if TYPE_CHECKING:
    from hcq.metal.device import MetalDevice

MOST_SUBMISSIONS, MOST_WORDS, MOST_BLOCKS = 64, 1 << 14, 64
MOST_CODE_WORDS, MOST_ALLOCATIONS = 1 << 15, 64


def rings(device: MetalDevice) -> list[dict[str, Any]]:
    """None: a command buffer is an object of Metal's."""
    return []


def queues(device: MetalDevice) -> list[dict[str, Any]]:
    """Raises UsageError: no kernel driver describes its queue."""
    raise UsageError(f"{device.name} has no kernel driver that describes its queue.")


def submission_words(device: MetalDevice) -> dict[str, Any]:
    """Each submission that is not done as a ring of its own, the oldest first, and what these point to."""
    done = device.timeline.value
    late = [one for one in list(device.recent.copy()) if one[0] > done]
    left_out = []
    if len(late) > MOST_SUBMISSIONS:
        left_out.append(f"{len(late) - MOST_SUBMISSIONS} submissions, the newest")
    found: list[dict[str, Any]] = []
    around = _Around(device)
    for value, commands, _ in late[:MOST_SUBMISSIONS]:
        made = b"".join((*map(device.encode, commands), device.finish(value)))
        words = list(memoryview(made).cast("I"))
        if len(words) + sum(len(one["words"]) for one in found) > MOST_WORDS:
            left_out.append(f"submission {value} and those behind it: {len(words)} words")
            break
        found.append(_ring(f"submission_{value}", words))
        around.add(commands, words)
    return {
        "arch": device.arch,
        "rings": found,
        "buffers": [{"va": va, "words": words} for va, words in around.blocks.items()],
        "memory": [{"va": va, "words": words} for va, words in around.signals.items()],
        "code": [{"va": va, "words": words} for va, words in around.code.items()],
        "allocations": [
            {"va": va, "size": size, "name": name} for va, size, name in sorted(around.arguments)
        ],
        "left_out": left_out + around.left_out,
    }


def _ring(name: str, words: list[int]) -> dict[str, Any]:
    size = 1 << len(words).bit_length()
    places = {"get": 0, "put": len(words), "pending": len(words), "size": size, "first": 0}
    return {"name": name, "language": "METAL", **places, "words": words}


class _Around:
    """What packets point to."""

    def __init__(self, device: MetalDevice) -> None:
        self.device = device
        # addresses and names alone: a buffer that is held here would end in this thread
        self.owners = sorted((one.va or 0, one.size_bytes, one.name or "") for one in device.memory.owners())
        self.starts = [va for va, _, _ in self.owners]
        self.blocks: dict[int, list[int]] = {}
        self.signals: dict[int, list[int]] = {}
        self.code: dict[int, list[int]] = {}
        self.arguments: set[tuple[int, int, str]] = set()
        self.left_out: list[str] = []

    def add(self, commands: Sequence[Any], words: Sequence[int]) -> None:
        """All that a submission points to."""
        for what in commands:
            for one in what.commands if isinstance(what, Indirect) else (what,):
                if isinstance(one, Dispatch):
                    self._launch(one)
        self._packets(words)

    def _packets(self, words: Sequence[int]) -> None:
        for packet in encode.decode(words):
            if isinstance(packet, packets.EncodeWaitForEvent):
                self._signal(packet.signal)
            elif isinstance(packet, packets.Run) and packet.address not in self.blocks:
                if len(self.blocks) < MOST_BLOCKS and packet.size_words <= MOST_WORDS:
                    with contextlib.suppress(DriverError):
                        self.blocks[packet.address] = words_at(packet.address, packet.size_words)
                        self._packets(self.blocks[packet.address])

    def _signal(self, va: int) -> None:
        signal = self.device.signals.get(va) or self.device.foreign_signal(va)
        if signal is not None and len(self.signals) < MOST_BLOCKS:
            value = int(signal.value)
            self.signals[va] = [value & 0xFFFFFFFF, value >> 32]

    def _launch(self, what: Dispatch) -> None:
        """The kernel's name, a NUL, its text; and its buffers."""
        entry, text = what.program.origin  # its entry and its image
        pipeline = int(what.program.entry)
        data = entry.encode() + b"\0" + bytes(text)
        words = list(memoryview(data.ljust(-(-len(data) // 4) * 4, b"\0")).cast("I"))
        if pipeline not in self.code:
            if len(words) + sum(map(len, self.code.values())) <= MOST_CODE_WORDS:
                self.code[pipeline] = words
            else:
                said = f"the text of {entry}: {len(data)} bytes, and {4 * MOST_CODE_WORDS} are kept"
                self.left_out += [said] if said not in self.left_out else []
        for value in what.args:
            at = bisect_right(self.starts, value) - 1 if isinstance(value, int) else -1
            if at >= 0 and value < self.owners[at][0] + self.owners[at][1]:
                self.arguments |= {self.owners[at]} if len(self.arguments) < MOST_ALLOCATIONS else set()


INSPECTION = Inspection(rings, queues, words=submission_words)
