"""Graphs: a recorded queue that is replayed with one packet and one doorbell.

In       the verbs of a queue; arguments that change between replays are given as Symbol("key")
Out      replay({key: buffer or number}) -> Completion
Changes  only the words of changed arguments (patch points), in one of two copies of the block
Next     queue.py (the verbs), cpu/packets.py (Indirect)

A block in flight is never written: there are two copies, taken in turn, and a copy is waited for before it is patched.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from hcq import checks, command
from hcq.errors import UsageError
from hcq.memory import Buffer
from hcq.program import Program, check_dispatch
from hcq.queue import ONE, Grid, Queue
from hcq.signal import Completion

if TYPE_CHECKING:
    from hcq.device import Device

COPIES = 2
MAX_WORDS = 1 << 26


class Symbol:
    """An argument that each replay names anew. `kind` is "buffer", "int" or "float"."""

    def __init__(self, key: Any, kind: str = "buffer") -> None:
        if not isinstance(kind, str) or kind not in ("buffer", "int", "float"):
            raise UsageError(
                f"Symbol({checks.shown(key)}): unknown kind {checks.shown(kind)}. Kinds: buffer, int, float."
            )
        try:
            hash(key)
        except TypeError:
            raise UsageError(f"Symbol({checks.shown(key)}): a key is a name, or anything hashable.") from None
        self.key = key
        self.kind = kind

    def __repr__(self) -> str:
        return f"Symbol({self.key!r}, {self.kind!r})"


class PatchPoint(NamedTuple):
    """Where a replay writes an argument: the 64-bit word, or fewer bytes, at `byte_offset` of the block."""

    byte_offset: int
    kind: str
    command_index: int
    argument_index: int
    size_bytes: int = 8


class _Block:
    """One copy of the recorded words in device memory, and what was last written into it."""

    def __init__(self, buffer: Buffer, words: bytes) -> None:
        self.buffer = buffer
        buffer.write(words)
        self.slots = buffer.host[: len(words)].cast("q")
        self.written: dict[Any, int] = {}
        self.busy_until = 0


class Graph(Queue):
    """A queue whose words stay. Record with its verbs, then `replay`; `submit` is a replay without symbols.

    patch_points  key -> the places its value goes to
    """

    is_recording = True

    def __init__(self, device: Device, name: str = "graph") -> None:
        super().__init__(device)
        self.name = checks.text("graph", "name", name)
        self.patch_points: dict[Any, list[PatchPoint]] = {}
        self._size_bytes = 0
        self._blocks: list[_Block] = []
        self._next = 0
        self._packets: list[bytes] = []
        self._indirects: list[command.Indirect] = []
        self._stand_in_buffer: Buffer | None = None
        self.broken = ""  # why it cannot be replayed any more

    def dispatch(
        self,
        program: Program,
        args: Sequence[Any] = (),
        grid: Grid = ONE,
        block: Grid = ONE,
        groups_per_claim: int = 0,
    ) -> Graph:
        """Record one launch; a Symbol may stand for any argument."""
        self._check_recording()
        check_dispatch(self.device, program, args, block, groups_per_claim)
        points: list[tuple[Symbol, int, int]] = []  # symbol, argument, bytes into the dispatch's packet
        plain = list(args)
        for index, arg in enumerate(args):
            if isinstance(arg, Symbol):
                self._check_kind(arg, program, index)
                plain[index] = self._stand_in(arg)
        for index, arg in enumerate(args):
            if isinstance(arg, Symbol):
                points.append((arg, index, self.device.argument_offset(program, plain, index)))
        first, before = len(self._words), self._size_bytes
        super().dispatch(program, plain, grid, block, groups_per_claim)
        number = first + (self.device.profile is not None)  # a timestamp comes before it
        at = before + sum(len(words) for words in self._words[first:number])
        for symbol, index, offset in points:
            self.patch_points.setdefault(symbol.key, []).append(
                PatchPoint(at + offset, symbol.kind, number, index)
            )
        self._size_bytes = before + sum(len(words) for words in self._words[first:])
        return self

    def replay(self, values: Mapping[Any, Any] | None = None) -> Completion:
        """Run the recorded work with these values for its symbols.

        values   a Buffer, an int or a float for each key of patch_points; kept alive until the device has the work
        Raises   UsageError when a key is missing or unknown, or a value is of the wrong kind
        """
        values = self._mapping(values)
        if len(values) != len(self.patch_points):
            self._check_keys(values)
        if not self._blocks:
            self._seal()
        device = self.device
        if self.broken and device.validator is None:  # rules say it better, with the packet and the page
            self._refuse_broken()
        turn = self._next
        block = self._blocks[turn]
        self._next = 0 if turn else COPIES - 1
        if not device.timeline.has_reached(block.busy_until):
            device.wait_value(block.busy_until)
        try:
            return self._submit_block(block, turn, values)
        except BaseException:  # at any line: it may have been sent, and what is patched is not known
            block.busy_until = last = device.timeline.submitted
            block.written.clear()
            for value in values.values():
                if type(value) is Buffer:
                    (value.parent or value).last = last
            raise

    def _submit_block(self, block: _Block, turn: int, values: Mapping[Any, Any]) -> Completion:
        device, slots, written = self.device, block.slots, block.written
        for key, points in self.patch_points.items():
            try:
                value = values[key]
            except KeyError:
                self._check_keys(values)
                raise
            if type(value) is Buffer and value.device is device and value.va is not None:
                if points[0].kind != "buffer":
                    raise self._wrong_kind(key, points[0], value)
                number = value.va
            else:
                number = self._number(key, points[0], value)
            if written.get(key) != number:
                for point in points:
                    slots[point.byte_offset >> 3] = number
                written[key] = number
        if device.failures:
            for held in (*self._held, *values.values()):
                if isinstance(held, Buffer):
                    held.check_poison(f"replay of {self.name!r}")
        if device.trace is not None:
            device.trace.patch(self._indirects[turn], written, self.patch_points)
        done = device.submit([self._packets[turn]], [self._indirects[turn]], (self._held, *values.values()))
        block.busy_until = last = done.value
        for value in values.values():
            if type(value) is Buffer:
                (value.parent or value).last = last
        if device.profile is not None:
            device.profile.collect()
        return done

    def bound(self, va: int) -> list[tuple[int, int, int | float]]:
        """What the last replay of the block at an address put where: (command, argument, value)."""
        found: list[tuple[int, int, int | float]] = []
        for block in self._blocks:
            if block.buffer.va == va:
                for key, number in block.written.items():
                    for point in self.patch_points[key]:
                        value = (
                            struct.unpack("<d", struct.pack("<q", number))[0]
                            if point.kind == "float"
                            else number
                        )
                        found.append((point.command_index, point.argument_index, value))
        return found

    def _refuse_broken(self) -> None:
        from hcq import report

        what = "; ".join(str(each) for each in self.commands[:4])
        why = f"replay of {self.name!r} on {self.device.name}: {self.broken}. It runs: {what}."
        report.tell(self.device, why, ("broken", id(self)))
        raise UsageError(f"{why} Keep the buffers of a graph as long as the graph, or record it again.")

    def poison(self, first: int, last: int, why: str) -> None:
        """Mark the buffers recorded here if one of the submissions that failed was a replay of this graph."""
        if any(first <= block.busy_until <= last for block in self._blocks):
            for held in self._held:
                if isinstance(held, Buffer):
                    (held.parent or held).poison = why

    def submit(self) -> Completion:
        """Replay a graph that has no symbols."""
        return self.replay()

    @property
    def is_sealed(self) -> bool:
        """Whether it was replayed already; from then on nothing can be recorded."""
        return bool(self._blocks)

    def _add(self, what: command.Command, *held: object) -> Graph:
        self._check_recording()
        super()._add(what, *held)
        self._size_bytes += len(self._words[-1])
        return self

    def _check_recording(self) -> None:
        if self._blocks:
            raise UsageError(f"graph {self.name!r} was replayed already; record into a new one.")

    def _seal(self) -> None:
        words = self.words
        if not words:
            raise UsageError(f"graph {self.name!r}: nothing was recorded. Dispatch something first.")
        if len(words) > 4 * MAX_WORDS:
            raise UsageError(
                f"graph {self.name!r}: {len(words)} bytes are more than {4 * MAX_WORDS}. Split it."
            )
        if self.device.validator is not None:
            self.device.validator.look(words)
        blocks = [_Block(self.device.alloc(len(words), f"{self.name} block"), words) for _ in range(COPIES)]
        self._indirects = [
            command.Indirect(block.buffer.address, len(words) // 4, self.name, tuple(self.commands))
            for block in blocks
        ]
        for held in self._held:
            if isinstance(held, Buffer):
                (held.parent or held).is_recorded = True
        self.device.graphs.add(self)
        self._packets = [self.device.encode(indirect) for indirect in self._indirects]
        self._blocks = blocks

    def _stand_in(self, symbol: Symbol) -> Any:
        """Something of the symbol's kind to encode the packet with; every replay overwrites it."""
        if symbol.kind == "buffer":
            if self._stand_in_buffer is None:
                self._stand_in_buffer = self.device.alloc(64, f"{self.name} stand-in")
                if self.device.validator is not None:
                    self.device.validator.stand_in(self._stand_in_buffer, self.name)
            return self._stand_in_buffer
        return 0 if symbol.kind == "int" else 0.0

    def _mapping(self, values: Any) -> Mapping[Any, Any]:
        if values is not None and not isinstance(values, Mapping):
            raise UsageError(
                f"replay of {self.name!r}: {checks.shown(values)}; takes a dict with a value for each of "
                f"{list(self.patch_points)}."
            )
        return values or {}

    def _check_kind(self, symbol: Symbol, program: Program, index: int) -> None:
        known = self.patch_points.get(symbol.key)
        if known and known[0].kind != symbol.kind:
            raise UsageError(f"graph {self.name!r}: {symbol!r} was a {known[0].kind} in an earlier dispatch.")
        if program.args is not None and index < len(program.args) and program.args[index] != symbol.kind:
            raise UsageError(
                f"graph {self.name!r}: argument {index} of {program.name} is a {program.args[index]}, got {symbol!r}."
            )

    def _check_keys(self, values: Mapping[Any, Any]) -> None:
        missing = [key for key in self.patch_points if key not in values]
        unknown = [key for key in values if key not in self.patch_points]
        if missing or unknown:
            raise UsageError(
                f"replay of {self.name!r}: missing {missing}, unknown {unknown}. "
                f"Give a value for each of {list(self.patch_points)}."
            )

    def _number(self, key: Any, point: PatchPoint, value: Any) -> int:
        """The 64 bits of a value, as the signed number that the slot takes."""
        if isinstance(value, Buffer) and point.kind == "buffer":
            if value.device is not self.device:
                raise value.elsewhere(f"replay of {self.name!r}", self.device)
            return value.address
        if point.kind == "float" and isinstance(value, (int, float)):
            try:
                return int(struct.unpack("<q", struct.pack("<d", value))[0])
            except OverflowError:
                raise self._no_room(key, value, 8) from None
        if point.kind == "int" and checks.is_whole(value):
            number = int(value.__index__())
            if not -(2**63) <= number < 2**64:
                raise self._no_room(key, number, 8)
            return number - 2**64 if number >= 2**63 else number
        raise self._wrong_kind(key, point, value)

    def _wrong_kind(self, key: Any, point: PatchPoint, value: Any) -> UsageError:
        return UsageError(f"replay of {self.name!r}: {key!r} is a {point.kind}, got {checks.shown(value)}.")

    def _no_room(self, key: Any, value: Any, size_bytes: int) -> UsageError:
        return UsageError(
            f"replay of {self.name!r}: {key!r} is {checks.shown(value)}; it does not fit {8 * size_bytes} bits."
        )

    def __repr__(self) -> str:
        return f"Graph({self.name!r}, {len(self.commands)} commands, keys {list(self.patch_points)})"
