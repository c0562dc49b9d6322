"""Graphs on AMD GPUs: recorded pieces laid out once in memory, run from there with one doorbell.

In       the verbs of a queue; arguments that change between replays are Symbols
Out      replay({key: buffer or number}) -> Completion
Changes  only the bytes of changed arguments, in one of two copies of the block
Next     hcq/graph.py (what a graph is), encode.py (pieces), device.py (rings)

A block holds the packets of all pieces, in order (behind an AQL packet the PM4 that it runs), and after them what they
point at: kernel arguments above all. On a PM4 ring each run of compute packets is one INDIRECT_BUFFER; AQL packets and
copies go into their rings as they are.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from hcq import command
from hcq.amd.encode import COMPUTE, Piece, piece
from hcq.amd.program import AmdProgram, Slot
from hcq.errors import UsageError
from hcq.graph import COPIES, Graph, PatchPoint, Symbol
from hcq.memory import Buffer
from hcq.program import Program
from hcq.queue import ONE, Grid, Queue
from hcq.signal import Completion

if TYPE_CHECKING:
    from hcq.amd.device import AmdDevice

MAX_BLOCK_WORDS = (1 << 20) - 1  # ib_size has 20 bits
UPLOAD_ALIGNMENT = 64


class Point(NamedTuple):
    """Where a replay writes an argument: a slot of the arguments of the piece with this number."""

    piece: int
    argument: int
    slot: Slot
    kind: str


class Block:
    """One copy of the recorded work in device memory."""

    def __init__(self, buffer: Buffer, pieces: list[Piece], uploads: list[int]) -> None:
        self.buffer = buffer
        self.host = buffer.host
        self.pieces = pieces  # what a replay puts into the rings
        self.uploads = uploads  # for each recorded piece, where in the block its arguments are
        self.written: dict[Any, Any] = {}
        self.busy_until = 0


class AmdGraph(Graph):
    """A queue whose packets stay in memory."""

    device: AmdDevice

    def __init__(self, device: AmdDevice, name: str = "graph") -> None:
        super().__init__(device, name)
        self.points: dict[Any, list[Point]] = {}
        self._copies: list[Block] = []

    def dispatch(
        self,
        program: Program,
        args: Sequence[Any] = (),
        grid: Grid = ONE,
        block: Grid = ONE,
        groups_per_claim: int = 0,
    ) -> AmdGraph:
        """Record one launch; a Symbol may stand for any argument."""
        self._check_recording()
        if not isinstance(program, AmdProgram):
            raise UsageError(f"dispatch: {program!r} is not a program of {self.device.name}.")
        plain = list(args)
        for index, arg in enumerate(args):
            if isinstance(arg, Symbol):
                self._check_symbol(arg, program, index)
                plain[index] = self._stand_in(arg)
        Queue.dispatch(self, program, plain, grid, block, groups_per_claim)
        number = max(index for index, what in enumerate(self.commands) if isinstance(what, command.Dispatch))
        slots = program.shape(plain).slots
        for index, arg in enumerate(args):
            if isinstance(arg, Symbol):
                self.points.setdefault(arg.key, []).append(Point(number, index, slots[index], arg.kind))
        return self

    def replay(self, values: Mapping[Any, Any] | None = None) -> Completion:
        """Run the recorded work with these values for its symbols."""
        values = values or {}
        if values.keys() != self.points.keys():
            self._refuse_keys(values)
        if not self._copies:
            self._seal()
        device = self.device
        turn = self._next
        block = self._copies[turn]
        self._next = (turn + 1) % COPIES
        if device.timeline.value < block.busy_until:
            device.wait_value(block.busy_until)
        for key, points in self.points.items():
            value = self._value(key, points[0], values[key])
            if block.written.get(key) != value:
                for point in points:
                    _write(block.host, block.uploads[point.piece], point.slot, value)
                block.written[key] = value
        if device.failures:
            for held in (*self._held, *values.values()):
                if isinstance(held, Buffer):
                    held.check_poison(f"replay of {self.name!r}")
        if device.validator is not None:
            for held in (*self._held, *values.values()):
                if isinstance(held, Buffer):
                    device.validator.wrote(held)  # a kernel may have: a block's packets do not say which
        if device.trace is not None:
            device.trace.patch(self._indirects[turn], block.written, self.patch_points)
        done = device.submit(list(block.pieces), [self._indirects[turn]], (self._held, *values.values()))
        block.busy_until = done.value
        for value in values.values():
            if isinstance(value, Buffer):
                (value.parent or value).last = done.value
        if device.profile is not None:
            device.profile.collect()
        return done

    def bound(self, va: int) -> list[tuple[int, int, int | float]]:
        """What the last replay of the block at an address put where: (command, argument, value)."""
        found: list[tuple[int, int, int | float]] = []
        for block, what in zip(self._copies, self._indirects):
            if what.address == va:
                for key, value in block.written.items():
                    found += [(point.piece, point.argument, value) for point in self.points[key]]
        return found

    def poison(self, first: int, last: int, why: str) -> None:
        if any(first <= block.busy_until <= last for block in self._copies):
            for held in self._held:
                if isinstance(held, Buffer):
                    (held.parent or held).poison = why

    @property
    def is_sealed(self) -> bool:
        return bool(self._copies)

    def _check_recording(self) -> None:
        if self._copies:
            raise UsageError(f"graph {self.name!r} was replayed already; record into a new one.")

    # ------------------------------------------------------------ laying out

    def _seal(self) -> None:
        recorded = [what if isinstance(what, Piece) else Piece(what) for what in self._words]
        if not recorded:
            raise UsageError(f"graph {self.name!r}: nothing was recorded. Dispatch something first.")
        words = sum(len(what.all_words) for what in recorded) // 4
        places, at = [], -(-4 * words // UPLOAD_ALIGNMENT) * UPLOAD_ALIGNMENT
        end = 0  # of the packets so far
        for what in recorded:
            end += len(what.all_words)
            if what.runs_upload:
                places.append(end - len(what.upload))
            else:
                places.append(at)
                at += -(-len(what.upload) // UPLOAD_ALIGNMENT) * UPLOAD_ALIGNMENT
        for _ in range(COPIES):
            buffer = self.device.alloc(at + UPLOAD_ALIGNMENT, f"{self.name} block")
            self._copies.append(self._lay_out(buffer, recorded, places))
            self._indirects.append(command.Indirect(buffer.address, words, self.name, tuple(self.commands)))
        first, start = self._copies[0], self._indirects[0].address
        for key, points in self.points.items():
            self.patch_points[key] = [
                PatchPoint(
                    first.buffer.address + first.uploads[one.piece] + one.slot.offset - start,
                    one.kind,
                    one.piece,
                    one.argument,
                    one.slot.size_bytes,
                )
                for one in points
            ]
        for held in self._held:
            if isinstance(held, Buffer):
                (held.parent or held).is_recorded = True
        self.device.graphs.add(self)

    def _lay_out(self, buffer: Buffer, recorded: list[Piece], places: list[int]) -> Block:
        """Write the block, and say what a replay puts into the rings."""
        base = -(-buffer.address // UPLOAD_ALIGNMENT) * UPLOAD_ALIGNMENT - buffer.address
        va = buffer.address + base
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
            is_block = what.ring == COMPUTE and not self.device.is_aql
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
                    ring_pieces.append(piece(bytes(packets), what.ring))
                    ring_pieces[-1].dispatches = what.dispatches
            at += len(what.all_words)
        self._close_run(ring_pieces, va, run_start, run_end, run_dispatches)
        buffer.write(image, base)
        return Block(buffer, ring_pieces, [base + place for place in places])

    def _close_run(self, ring_pieces: list[Piece], va: int, start: int, end: int, dispatches: int) -> None:
        if end > start:
            ring_pieces.append(self.device.encoder.indirect(va + start, (end - start) // 4))
            ring_pieces[-1].dispatches = dispatches

    # ------------------------------------------------------------ symbols

    def _check_symbol(self, symbol: Symbol, program: AmdProgram, index: int) -> None:
        known = self.points.get(symbol.key)
        if known and known[0].kind != symbol.kind:
            raise UsageError(f"graph {self.name!r}: {symbol!r} was a {known[0].kind} in an earlier dispatch.")
        if program.args is not None and index < len(program.args) and program.args[index] != symbol.kind:
            raise UsageError(
                f"graph {self.name!r}: argument {index} of {program.name} is a {program.args[index]}, got {symbol!r}."
            )

    def _refuse_keys(self, values: Mapping[Any, Any]) -> None:
        missing = [key for key in self.points if key not in values]
        unknown = [key for key in values if key not in self.points]
        raise UsageError(
            f"replay of {self.name!r}: missing {missing}, unknown {unknown}. "
            f"Give a value for each of {list(self.points)}."
        )

    def _value(self, key: Any, point: Point, value: Any) -> int | float:
        """A symbol's value as a number of its kind."""
        if point.kind == "buffer" and isinstance(value, Buffer):
            if value.device is not self.device:
                raise UsageError(f"replay of {self.name!r}: {value!r} is not on {self.device.name}.")
            return value.address
        if point.kind == "float" and isinstance(value, (int, float)):
            return float(value)
        if point.kind == "int" and hasattr(value, "__index__"):
            return int(value.__index__())
        raise UsageError(f"replay of {self.name!r}: {key!r} is a {point.kind}, got {value!r}.")


def _write(host: memoryview, base: int, slot: Slot, value: int | float) -> None:
    """An argument's bytes, as a dispatch packs them."""
    if slot.letter in "BHIQ":
        value = int(value) & (1 << 8 * slot.size_bytes) - 1
    struct.pack_into("<" + slot.letter, host, base + slot.offset, value)
