"""Graphs on GPUs: recorded pieces laid out once in memory, run from there with one doorbell.

In       the verbs of a queue; arguments that change between replays are Symbols
Out      replay({key: buffer or number}) -> Completion
Changes  only the bytes of changed arguments, in one of two copies of the block
Next     hcq/graph.py (what a graph is); the driver's own graph.py says how a block is laid out
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from hcq import checks, command
from hcq.errors import UsageError
from hcq.gpu.device import GpuDevice
from hcq.gpu.program import GpuProgram, Slot
from hcq.graph import COPIES, Graph, PatchPoint, Symbol
from hcq.memory import Buffer
from hcq.program import Program, check_dispatch
from hcq.queue import ONE, Grid, Queue
from hcq.signal import Completion

if TYPE_CHECKING:
    from typing_extensions import Self


class Point(NamedTuple):
    """Where a replay writes an argument: a slot of what the piece with this number uploads, `at` bytes into it."""

    piece: int
    argument: int
    slot: Slot
    kind: str
    at: int


class Block:
    """One copy of the recorded work in device memory."""

    def __init__(self, buffer: Buffer, pieces: list[bytes], uploads: list[int]) -> None:
        self.buffer = buffer
        self.host = buffer.host
        self.pieces = pieces  # what a replay submits
        self.uploads = uploads  # for each recorded piece, where in the block what it uploads is
        self.written: dict[Any, Any] = {}
        self.busy_until = 0


class GpuGraph(Graph, ABC):
    """A queue whose packets stay in memory."""

    device: GpuDevice
    tells_writes = True  # whether the rules see in a block's packets what its kernels write

    def __init__(self, device: GpuDevice, name: str = "graph") -> None:
        super().__init__(device, name)
        self.points: dict[Any, list[Point]] = {}
        self._copies: list[Block] = []

    @abstractmethod
    def lay_out(self, recorded: Sequence[bytes]) -> tuple[Block, command.Indirect]:
        """Write one copy of the recorded pieces into memory, and say what a replay of it submits and means."""

    def dispatch(
        self,
        program: Program,
        args: Sequence[Any] = (),
        grid: Grid = ONE,
        block: Grid = ONE,
        groups_per_claim: int = 0,
    ) -> Self:
        """Record one launch; a Symbol may stand for any argument."""
        self._check_recording()
        check_dispatch(self.device, program, args, block, groups_per_claim)
        if not isinstance(program, GpuProgram):
            raise UsageError(
                f"dispatch: {program!r} is loaded on {program.device.name}, not on {self.device.name}."
            )
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
                point = Point(number, index, slots[index], arg.kind, program.params_at)
                self.points.setdefault(arg.key, []).append(point)
        return self

    def replay(self, values: Mapping[Any, Any] | None = None) -> Completion:
        """Run the recorded work with these values for its symbols."""
        values = self._mapping(values)
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
        if not device.timeline.has_reached(block.busy_until):
            device.wait_value(block.busy_until)
        try:
            return self._run_copy(block, turn, values)
        except BaseException:  # at any line: it may have been sent, and what is patched is not known
            block.busy_until = device.timeline.submitted
            block.written.clear()
            for buffer in _buffers(values.values()):
                (buffer.parent or buffer).last = block.busy_until
            raise

    def _run_copy(self, block: Block, turn: int, values: Mapping[Any, Any]) -> Completion:
        device = self.device
        for key, points in self.points.items():
            value = self._value(key, points[0], values[key])
            if block.written.get(key) != value or value == 0:  # 0.0 and -0.0 are equal, and two values
                block.written.pop(key, None)
                for point in points:
                    if not point.slot.holds(value):
                        raise self._no_room(key, value, point.slot.size_bytes)
                    point.slot.write(block.host, block.uploads[point.piece] + point.at, value)
                block.written[key] = value
        held = (*self._held, *values.values())
        if device.failures:
            for buffer in _buffers(held):
                buffer.check_poison(f"replay of {self.name!r}")
        if device.validator is not None and not self.tells_writes:
            for buffer in _buffers(held):
                device.validator.wrote(buffer)
        if device.trace is not None:
            device.trace.patch(self._indirects[turn], block.written, self.patch_points)
        done = device.submit(list(block.pieces), [self._indirects[turn]], (self._held, *values.values()))
        block.busy_until = done.value
        for buffer in _buffers(values.values()):
            (buffer.parent or buffer).last = done.value
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
            for buffer in _buffers(self._held):
                (buffer.parent or buffer).poison = why

    @property
    def is_sealed(self) -> bool:
        return bool(self._copies)

    def _check_recording(self) -> None:
        if self._copies:
            raise UsageError(f"graph {self.name!r} was replayed already; record into a new one.")

    def _seal(self) -> None:
        if not self._words:
            raise UsageError(f"graph {self.name!r}: nothing was recorded. Dispatch something first.")
        laid_out = [self.lay_out(self._words) for _ in range(COPIES)]
        first, start = laid_out[0][0], laid_out[0][1].address
        for key, points in self.points.items():
            self.patch_points[key] = [
                PatchPoint(
                    first.buffer.address + first.uploads[one.piece] + one.at + one.slot.offset - start,
                    one.kind,
                    one.piece,
                    one.argument,
                    one.slot.size_bytes,
                )
                for one in points
            ]
        for buffer in _buffers(self._held):
            (buffer.parent or buffer).is_recorded = True
        self.device.graphs.add(self)
        self._indirects = [meaning for _, meaning in laid_out]
        self._copies = [block for block, _ in laid_out]

    # ------------------------------------------------------------ symbols

    def _check_kind_of(self, symbol: Symbol, program: Program, index: int) -> None:
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
                raise value.elsewhere(f"replay of {self.name!r}", self.device)
            return value.address
        if point.kind == "float" and isinstance(value, (int, float)):
            try:
                return float(value)
            except OverflowError:
                raise self._no_room(key, value, point.slot.size_bytes) from None
        if point.kind == "int" and checks.is_whole(value):
            return int(value.__index__())
        raise UsageError(f"replay of {self.name!r}: {key!r} is a {point.kind}, got {checks.shown(value)}.")


def _buffers(things: Any) -> list[Buffer]:
    return [thing for thing in things if isinstance(thing, Buffer)]
