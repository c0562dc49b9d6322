"""Graphs on NVIDIA GPUs: how a block of recorded pieces is laid out.

In       recorded pieces
Out      a command buffer in device memory, and the segment that a replay submits
Changes  device memory, once for each copy
Next     hcq/graph.py (recording and replaying), pushbuffer.py (how pieces lie), device.py (who runs it)

A block is laid out as a submission is: the launch data first, then the methods of all pieces, which are one segment of
the GPFIFO. Every launch copies its QMD when it is scheduled, so a block may run again as it is.

Where the graph is split, the methods of the main lane are one segment and those of the copies behind them another, for
the copy channel; semaphores among both order them.
"""

from __future__ import annotations

from collections.abc import Sequence

from hcq import command
from hcq.errors import UsageError
from hcq.gpu.graph import GpuGraph
from hcq.graph import CommandBuffer
from hcq.nv.abi.qmd_fields import ALIGNMENT_BYTES
from hcq.nv.encode import Piece, note_block, wait_for_idle
from hcq.nv.pushbuffer import place, plan
from hcq.nv.rings import segment
from hcq.signal import Signal
from hcq.work.hardware_queues import COPIES, Split

MAX_SEGMENT_WORDS = (1 << 21) - 1  # the length of a GPFIFO entry has 21 bits


class NvGraph(GpuGraph):
    """A queue whose methods stay in memory."""

    def split(self) -> Split | None:
        found = super().split()
        return found if found is not None and self.device.has_copy_channel() else None

    def lay_out(self, recorded: Sequence[bytes], split: Split | None) -> CommandBuffer:
        pieces = [what if isinstance(what, Piece) else Piece(what) for what in recorded]
        for number, before in self.overlaps(split).items():
            if pieces[number].is_alone or pieces[before].is_alone:
                continue
            held = pieces[before]
            pieces[before] = type(held)(held[: -len(wait_for_idle())])
            pieces[before].__dict__.update(held.__dict__)
        signals = self.lane_signals(split)
        copies: list[Piece] = []
        numbers = list(range(len(pieces)))
        if split is not None:
            if not self.device.has_copy_channel():
                raise UsageError(f"graph {self.name!r}: {self.device.why_no_copies}, so there is one lane.")
            pieces, copies, numbers = self._in_lanes(pieces, split, signals)
        how = plan([*pieces, *copies])
        words = (how.size_bytes - how.methods) // 4
        if words > MAX_SEGMENT_WORDS:
            raise UsageError(
                f"graph {self.name!r}: {4 * words} bytes of methods are more than {4 * MAX_SEGMENT_WORDS}. Split it."
            )
        buffer = self.device.visible(how.size_bytes + ALIGNMENT_BYTES, f"{self.name} block")
        va = -(-buffer.address // ALIGNMENT_BYTES) * ALIGNMENT_BYTES
        placed = place([*pieces, *copies], how, va)
        base = va - buffer.address
        buffer.write(placed.image, base)
        copied = sum(map(len, copies)) // 4
        main = how.size_bytes // 4 - copied
        note = note_block(va, main, (segment(va + how.methods, words - copied),))
        note.launches = sum(what.launches for what in pieces)
        notes: list[bytes] = [note]
        if copies:
            notes.append(note_block(va + 4 * main, copied, is_free=True))
        meaning = command.Indirect(va, how.size_bytes // 4, self.name, tuple(self.commands))
        return CommandBuffer(buffer, notes, meaning, [placed.data[n] for n in numbers], signals)

    def _in_lanes(
        self, recorded: Sequence[Piece], split: Split, signals: Sequence[Signal]
    ) -> tuple[list[Piece], list[Piece], list[int]]:
        """Pieces of the main lane, those of the copies, and where each command is when these follow those."""
        encoder, copying = self.device.encoder, self.device.copy_encoder
        lanes: tuple[list[Piece], list[Piece]] = [], []
        places: dict[int, tuple[int, int]] = {}
        for number, lane, waits, value in split.steps:
            pieces = lanes[lane]
            for wait in waits:
                cell = signals[wait.lane].va
                pieces.append(
                    copying.lane_wait(cell, wait.value)
                    if lane == COPIES
                    else encoder.encode(command.Wait(cell, wait.value))
                )
            if 0 <= number < len(recorded):
                places[number] = lane, len(pieces)
                # a copy behind another one's semaphore: each channel has its own
                pieces.append(copying.encode(self.commands[number]) if lane == COPIES else recorded[number])
            if value:
                pieces.append(encoder.encode(command.Signal(signals[lane].va, value)))
        main = len(lanes[0])
        return *lanes, [at + main * lane for _, (lane, at) in sorted(places.items())]
