"""Graphs on AMD GPUs: how a block of recorded pieces is laid out.

In       recorded pieces
Out      a command buffer in device memory, and what a replay puts into the rings
Changes  device memory, once for each copy
Next     hcq/graph.py (recording and replaying), encode.py (pieces), device.py (rings)

A block holds the packets of all pieces, in order (behind an AQL packet the PM4 that it runs), and after them what they
point at: kernel arguments above all. On a PM4 ring each run of compute packets is one INDIRECT_BUFFER; AQL packets and
copies go into their rings as they are.

Where the graph is split, the compute ring has the main lane and the copy ring the other, each with the waits and
signals that it needs among its packets, and no fence of RingSync between the two: what is `is_free` goes its own way.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

from hcq import command
from hcq.amd.encode import COMPUTE, COPY, Encoder, Piece, flush, piece
from hcq.amd.launch import without_barrier
from hcq.amd.program import AmdProgram
from hcq.command import PatchPoint
from hcq.errors import UsageError
from hcq.gpu.device import GpuDevice
from hcq.gpu.graph import SIGNAL_NS, WAIT_NS, GpuGraph
from hcq.graph import CommandBuffer
from hcq.memory import Buffer
from hcq.program import Slot
from hcq.signal import Signal
from hcq.work.hardware_queues import COPIES, Costs, Split

MAX_BLOCK_WORDS = (1 << 20) - 1  # ib_size has 20 bits
UPLOAD_ALIGNMENT = 64
MAX_PIECE_BYTES = 4096  # of packets that go into a ring together


class AmdGraph(GpuGraph):
    """A queue whose packets stay in memory."""

    costs = Costs(SIGNAL_NS, WAIT_NS, is_all_or_none=True)  # copies have a ring of their own in any case

    def __init__(self, device: GpuDevice, encoder: Encoder, name: str = "graph") -> None:
        super().__init__(device, name)
        self.encoder = encoder

    def split(self) -> Split | None:
        """In order, where the program's own packets are on the copy ring: they belong to no lane."""
        if any(isinstance(what, command.Packets) and what.ring == COPY for what in self.commands):
            return None
        return super().split()

    def lay_out(self, recorded: Sequence[bytes], split: Split | None) -> CommandBuffer:
        signals = self.lane_signals(split)
        plain = [what if isinstance(what, Piece) else Piece(what) for what in recorded]
        for number, before in self.overlaps(split).items():
            if self.encoder.is_aql:
                plain[number] = _changed(plain[number], without_barrier(plain[number]))
            else:
                plain[before] = _changed(plain[before], plain[before][: -len(flush())])
        pieces, numbers = plain, list(range(len(plain)))
        if split is not None:
            pieces, numbers = self._in_lanes(plain, split, signals)
        words = sum(len(what.all_words) for what in pieces) // 4
        self._packets_at = [*itertools.accumulate((len(what.all_words) for what in pieces), initial=0)]
        places, at = [], -(-4 * words // UPLOAD_ALIGNMENT) * UPLOAD_ALIGNMENT
        end = 0  # of the packets so far
        for what in pieces:
            end += len(what.all_words)
            if what.runs_upload:
                places.append(end - len(what.upload))
            else:
                places.append(at)
                at += -(-len(what.upload) // UPLOAD_ALIGNMENT) * UPLOAD_ALIGNMENT
        buffer = self.device.alloc(at + UPLOAD_ALIGNMENT, f"{self.name} block")
        base = -(-buffer.address // UPLOAD_ALIGNMENT) * UPLOAD_ALIGNMENT - buffer.address
        image, ring_pieces = self._place(pieces, places, buffer.address + base)
        buffer.write(image, base)
        meaning = command.Indirect(buffer.address, words, self.name, tuple(self.commands))
        starts = [base + places[number] for number in numbers]
        self._packets_at = [base + self._packets_at[number] for number in numbers]
        return CommandBuffer(buffer, [*ring_pieces], meaning, starts, signals)

    def _seal(self) -> None:
        super()._seal()
        for key, points in self.patch_points.items():
            for slot, point in zip(self._slots[key], points):
                if found := self._in_registers(slot, point):
                    self._stores[key].append(slot.store_at(found))

    def _in_registers(self, slot: Slot, point: PatchPoint) -> int:
        """Where a varying argument stands a second time, among the packets: it is preloaded. 0: it is not."""
        what = self.commands[point.command_index]
        program = what.program if isinstance(what, command.Dispatch) else None
        preload = program.launcher.preload if isinstance(program, AmdProgram) else None
        if preload is None:
            return 0
        at, first, size = preload
        if slot.offset >= first + size or slot.offset + slot.size_bytes <= first:
            return 0
        if slot.offset < first or slot.offset + slot.size_bytes > first + size:
            raise UsageError(
                f"graph {self.name!r}: argument {point.argument_index} of {what} is in registers in part, so it cannot "
                "vary. Record a number."
            )
        return self._packets_at[point.command_index] + at + slot.offset - first

    def _in_lanes(
        self, recorded: Sequence[Piece], split: Split, signals: Sequence[Signal]
    ) -> tuple[list[Piece], list[int]]:
        """The pieces of the main lane and then those of the copies, and where among them each command is."""
        encoder, behind = self.encoder, self.dependences().behind
        lanes: dict[int, list[Piece]] = {lane: [] for lane in range(split.lanes)}
        places: dict[int, tuple[int, int]] = {}
        since = 0  # copies since the last fence between two of them, as bits
        for number, lane, waits, value in split.steps:
            pieces, ring = lanes[lane], COPY if lane == COPIES else COMPUTE
            pieces += [encoder.lane_wait(ring, signals[wait.lane].va, wait.value) for wait in waits]
            if 0 <= number < len(recorded):
                if lane == COPIES:
                    if since & behind[number]:
                        pieces.append(encoder.copy_fence)
                        since = 0
                    since |= 1 << number
                places[number] = lane, len(pieces)
                pieces.append(recorded[number])
            if value:
                pieces.append(encoder.lane_signal(ring, signals[lane].va, value))
        main = len(lanes[0])
        numbers = [index + main if lane == COPIES else index for _, (lane, index) in sorted(places.items())]
        return [*lanes[0], *map(_freed, lanes[COPIES])], numbers

    def announce(self, copy: CommandBuffer, held: Sequence[Any]) -> None:
        """Rules do not see in these packets what the kernels write, so observers are notified of it."""
        for observer in self.device.observers:
            for buffer in (*held[0], *held[1:]):
                if isinstance(buffer, Buffer):
                    observer.wrote(buffer.address)
        super().announce(copy, held)

    def _place(self, recorded: list[Piece], places: list[int], va: int) -> tuple[bytearray, list[Piece]]:
        """The command buffer's bytes at an address, and what a replay puts into the rings."""
        image = bytearray(max(place + len(what.upload) for what, place in zip(recorded, places)))
        ring_pieces: list[Piece] = []
        at = 0
        run_start = run_end = 0  # of compute packets that one INDIRECT_BUFFER will run
        run_dispatches = 0
        for what, place in zip(recorded, places):
            packets = bytearray(what)
            for patch, offset in what.patches:
                packets[patch : patch + 8] = (
                    int.from_bytes(packets[patch : patch + 8], "little") | va + place + offset
                ).to_bytes(8, "little")
            image[at : at + len(packets)] = packets
            image[place : place + len(what.upload)] = what.upload
            is_block = what.ring == COMPUTE and not self.encoder.is_aql
            if is_block and run_end == at and run_end + len(packets) - run_start <= 4 * MAX_BLOCK_WORDS:
                run_end = at + len(packets)
                run_dispatches += what.dispatches
            else:
                self._close_run(ring_pieces, va, run_start, run_end, run_dispatches)
                run_start = run_end = at + len(packets)
                run_dispatches = what.dispatches
                if is_block:
                    run_start = at
                else:
                    _append(ring_pieces, packets, what)
            at += len(what.all_words)
        self._close_run(ring_pieces, va, run_start, run_end, run_dispatches)
        return image, ring_pieces

    def _close_run(self, ring_pieces: list[Piece], va: int, start: int, end: int, dispatches: int) -> None:
        if end > start:
            ring_pieces.append(self.encoder.indirect(va + start, (end - start) // 4))
            ring_pieces[-1].dispatches = dispatches


def _append(ring_pieces: list[Piece], packets: bytes | bytearray, what: Piece) -> None:
    """Packets that go into a ring as they are: in one piece with those before, where nothing has to come between."""
    dispatches = what.dispatches
    if ring_pieces and (what.is_free or what.ring == COMPUTE):
        last = ring_pieces[-1]
        is_alike = (last.ring, last.is_free) == (what.ring, what.is_free)
        if is_alike and len(last) + len(packets) <= MAX_PIECE_BYTES:
            packets, dispatches = last + packets, dispatches + last.dispatches
            ring_pieces.pop()
    made = piece(bytes(packets), what.ring)
    made.dispatches, made.is_free = dispatches, what.is_free
    ring_pieces.append(made)


def _changed(what: Piece, packets: bytes) -> Piece:
    """A piece with other packets, and all that is beside them."""
    made = type(what)(packets)
    made.__dict__.update(what.__dict__)
    return made


def _freed(what: Piece) -> Piece:
    """The same packets, which no fence orders with those of other rings."""
    made = _changed(what, what)
    made.is_free = True
    return made
