"""Graphs on NVIDIA GPUs: recorded pieces laid out once in memory, run from there with one segment and one doorbell.

In       the verbs of a queue; arguments that change between replays are Symbols
Out      replay({key: buffer or number}) -> Completion
Changes  only the bytes of changed arguments, in one of two copies of the block
Next     hcq/graph.py (what a graph is), pushbuffer.py (how pieces lie), device.py (who runs it)

A block is laid out as a submission is: the launch data first, then the methods of all pieces, which are one segment of
the GPFIFO. Every launch copies its QMD when it is scheduled, so a block may run again as it is.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from hcq import command
from hcq.errors import UsageError
from hcq.graph import COPIES, Graph, PatchPoint, Symbol
from hcq.memory import Buffer
from hcq.nv.encode import Piece, note_block
from hcq.nv.program import NvProgram, Slot
from hcq.nv.pushbuffer import Plan, place, plan
from hcq.nv.qmd_fields import ALIGNMENT_BYTES
from hcq.nv.rings import segment
from hcq.program import Program
from hcq.queue import ONE, Grid, Queue
from hcq.signal import Completion

if TYPE_CHECKING:
    from hcq.nv.device import NvDevice

MAX_SEGMENT_WORDS = (1 << 21) - 1  # the length of a GPFIFO entry has 21 bits


class Point(NamedTuple):
    """Where a replay writes an argument: a slot of the parameters of the piece with this number."""

    piece: int
    argument: int
    slot: Slot
    kind: str
    params_at: int  # from the start of its launch data


class Block:
    """One copy of the recorded work in device memory."""

    def __init__(self, buffer: Buffer, note: Piece, data: list[int]) -> None:
        self.buffer = buffer
        self.host = buffer.host
        self.note = note  # what a replay submits
        self.data = data  # for each recorded piece, where in the block its launch data are
        self.written: dict[Any, Any] = {}
        self.busy_until = 0


class NvGraph(Graph):
    """A queue whose methods stay in memory."""

    device: NvDevice

    def __init__(self, device: NvDevice, name: str = "graph") -> None:
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
    ) -> NvGraph:
        """Record one launch; a Symbol may stand for any argument."""
        self._check_recording()
        if not isinstance(program, NvProgram):
            raise UsageError(f"dispatch: {program!r} is not a program of {self.device.name}.")
        plain = list(args)
        for index, arg in enumerate(args):
            if isinstance(arg, Symbol):
                self._check_kind_of(arg, program, index)
                plain[index] = self._stand_in(arg)
        Queue.dispatch(self, program, plain, grid, block, groups_per_claim)
        number = max(index for index, what in enumerate(self.commands) if isinstance(what, command.Dispatch))
        slots = program.shape(plain).slots
        for index, arg in enumerate(args):
            if isinstance(arg, Symbol):
                at = program.launcher.params_at - 4
                self.points.setdefault(arg.key, []).append(Point(number, index, slots[index], arg.kind, at))
        return self

    def replay(self, values: Mapping[Any, Any] | None = None) -> Completion:
        """Run the recorded work with these values for its symbols."""
        values = values or {}
        if values.keys() != self.points.keys():
            self._refuse_keys(values)
        if not self._copies:
            self._seal()
        device = self.device
        if self.broken and device.validator is None:  # rules say it better, with the packet and the page
            self._refuse_broken()
        turn = self._next
        block = self._copies[turn]
        self._next = (turn + 1) % COPIES
        if device.timeline.value < block.busy_until:
            device.wait_value(block.busy_until)
        for key, points in self.points.items():
            value = self._value(key, points[0], values[key])
            if block.written.get(key) != value:
                for point in points:
                    _write(block.host, block.data[point.piece] + point.params_at, point.slot, value)
                block.written[key] = value
        if device.failures:
            for held in (*self._held, *values.values()):
                if isinstance(held, Buffer):
                    held.check_poison(f"replay of {self.name!r}")
        if device.trace is not None:
            device.trace.patch(self._indirects[turn], block.written, self.patch_points)
        done = device.submit([block.note], [self._indirects[turn]], (self._held, *values.values()))
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
        how = plan(recorded)
        if (how.size_bytes - how.methods) // 4 > MAX_SEGMENT_WORDS:
            raise UsageError(
                f"graph {self.name!r}: {how.size_bytes - how.methods} bytes of methods are more than "
                f"{4 * MAX_SEGMENT_WORDS}. Split it."
            )
        for _ in range(COPIES):
            buffer = self.device.visible(how.size_bytes + ALIGNMENT_BYTES, f"{self.name} block")
            self._copies.append(self._lay_out(buffer, recorded, how))
        first, start = self._copies[0], self._indirects[0].address
        for key, points in self.points.items():
            self.patch_points[key] = [
                PatchPoint(
                    first.buffer.address + first.data[one.piece] + one.params_at + one.slot.offset - start,
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

    def _lay_out(self, buffer: Buffer, recorded: list[Piece], how: Plan) -> Block:
        """Write the block, and say what a replay submits."""
        va = -(-buffer.address // ALIGNMENT_BYTES) * ALIGNMENT_BYTES
        placed = place(recorded, how, va)
        base = va - buffer.address
        buffer.write(placed.image, base)
        words = (how.size_bytes - how.methods) // 4
        note = note_block(va, how.size_bytes // 4, (segment(va + how.methods, words),))
        note.launches = sum(what.launches for what in recorded)
        self._indirects.append(command.Indirect(va, how.size_bytes // 4, self.name, tuple(self.commands)))
        return Block(buffer, note, [base + at for at in placed.data])

    # ------------------------------------------------------------ symbols

    def _check_kind_of(self, symbol: Symbol, program: NvProgram, index: int) -> None:
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


def _write(host: memoryview, at: int, slot: Slot, value: int | float) -> None:
    """An argument's bytes, as a dispatch packs them."""
    if slot.letter in "BHIQ":
        value = int(value) & (1 << 8 * slot.size_bytes) - 1
    struct.pack_into("<" + slot.letter, host, at + slot.offset, value)
