"""Graphs: a queue recorded once, then replayed many times with one doorbell each.

In       the verbs of a queue; arguments that change between replays are given as Symbol("key")
Out      replay({key: buffer or number}) -> Completion
Changes  only the bytes of changed arguments (patch points), in one of two command buffers
Next     queue.py (the verbs), cpu/packets.py (Indirect); amd/graph.py and nv/graph.py (how their work is laid out)

    record   dispatch, copy, ...     as in a queue; a Symbol's place in its packet is remembered
    seal     split                   which commands run on another hardware queue, if that is faster
    (hcq/work/hardware_queues.py)
             lay_out    (twice)      the recorded words in device memory, and how a replay submits them
    replay   patch                   the bytes of arguments that changed since this command buffer's last replay
             announce                observers are notified
             submit                  of the device, once

The graph class of each kind of device overrides `split`, `lay_out`, `patch` and `announce`. The versions here are for
a device with one hardware queue, which runs all packets through one Indirect. A command buffer in flight is never
written: there are two, used in turn, and a replay waits until its own is free before it patches it.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Mapping, Sequence
from typing import Any

from hcq import checks, command
from hcq.base import Base, Grid
from hcq.command import PatchPoint
from hcq.errors import UsageError
from hcq.memory import Buffer
from hcq.program import Program, Slot, Store, check_dispatch
from hcq.queue import ONE, Queue
from hcq.signal import Completion, Signal
from hcq.work.dependences import Dependences, Use, Uses, uses_of
from hcq.work.hardware_queues import Split

COPIES = 2
MAX_WORDS = 1 << 26
EVERYWHERE = 1 << 64  # behind the last address


class Symbol:
    """An argument that each replay names anew.

    key   its name in `Graph.replay`: anything hashable; the same key may stand in several places
    kind  "buffer", "int" or "float"; UsageError for another
    """

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


class CommandBuffer:
    """One copy of the recorded words in device memory, and what was last written into it.

    words     what a replay submits, which runs what is in the memory
    meaning   the same as a command; patch points count from its address
    commands  nothing but the meaning
    starts    for each recorded command, where its arguments are counted from, in bytes behind that address
    signals   of its lanes, where it is split: each replay counts them up from 0
    numbers   what its patch points hold, in the order of the graph's keys; None: not known
    """

    def __init__(
        self,
        buffer: Buffer,
        words: list[bytes],
        meaning: command.Indirect,
        starts: Sequence[int],
        signals: Sequence[Signal] = (),
    ) -> None:
        self.buffer, self.words, self.meaning, self.starts = buffer, words, meaning, starts
        self.signals = signals
        self.commands: list[command.Command] = [meaning]
        self.host = buffer.host[meaning.address - buffer.address :]
        self.numbers: list[int | float | None] = []
        self.busy_until = 0


class Graph(Queue):
    """A queue that is recorded once and replayed often. Record with its verbs, then `replay`.

    A Symbol may stand for any argument of a dispatch; the first replay seals the graph, and nothing can be added
    then.
    patch_points  key -> the places its value goes to: in the recorded command, once sealed in the command buffer
    broken        why it cannot be replayed any more, or ""
    is_apart      whoever replays it promises that what a symbol names shares no bytes with what another one names or
                  what was recorded, where one of them is written: then work on them may run side by side

    >>> dev = hcq.open("CPU")
    >>> total = dev.alloc(4, "total")
    >>> twice = dev.graph("twice").fill(total, 2, value_bytes=4)
    >>> twice.replay().wait()
    >>> total.read().hex()
    '02000000'
    """

    is_recording = True

    def __init__(self, device: Base, name: str = "graph") -> None:
        super().__init__(device)
        self.name = checks.text("graph", "name", name)
        self.patch_points: dict[Any, list[PatchPoint]] = {}
        self._slots: dict[Any, list[Slot]] = {}  # of each patch point
        self._stores: dict[Any, list[Store]] = {}
        self._copies: list[CommandBuffer] = []
        self._symbols: list[tuple[int, Any, bool]] = []  # of each key: its place, and whether it is a buffer
        self._next = 0
        self._stand_in_buffer: Buffer | None = None
        self.broken = ""  # why it cannot be replayed any more
        self.is_apart = False
        self._uses: dict[int, Uses] = {}  # of each dispatch

    def dispatch(
        self,
        program: Program,
        args: Sequence[Any] = (),
        grid: Grid = ONE,
        block: Grid = ONE,
        groups_per_claim: int = 0,
    ) -> Graph:
        """Record one launch; a Symbol may stand for any argument.

        args, grid, block, groups_per_claim  as of Queue.dispatch
        Raises  UsageError when it cannot be right, a symbol had another kind before, or the graph was replayed already
        """
        self._check_recording()
        check_dispatch(self.device, program, args, block, groups_per_claim)
        if program._numbers:
            args = program.with_numbers(args)
        plain = list(args)
        for index, arg in enumerate(args):
            if isinstance(arg, Symbol):
                self._check_kind(arg, program, index)
                plain[index] = self._stand_in(arg)
        first = len(self.commands)
        super().dispatch(program, plain, grid, block, groups_per_claim)
        number = next(
            at for at in range(first, len(self.commands)) if isinstance(self.commands[at], command.Dispatch)
        )
        self._uses[number] = _uses_of_dispatch(program, args)
        for index, arg in enumerate(args):
            if isinstance(arg, Symbol):
                slot = self.device.argument_slot(program, plain, index)
                point = PatchPoint(slot.offset, arg.kind, number, index, slot.size_bytes)
                self._slots.setdefault(arg.key, []).append(slot)
                self.patch_points.setdefault(arg.key, []).append(point)
        return self

    def replay(self, values: Mapping[Any, Any] | None = None) -> Completion:
        """Run the recorded work with these values for its symbols.

        values   a Buffer, an int or a float for each key of patch_points; kept alive until the device has the work
        Returns  the Completion of this run
        Raises   UsageError when a key is missing or unknown, a value is of the wrong kind or does not fit, or
                 nothing was recorded; DeviceFault when a buffer holds no result because earlier work failed
        """
        if type(values) is not dict:
            values = self._mapping(values)
        if len(values) != len(self.patch_points):
            self._check_keys(values)
        if not self._copies:
            self._seal()
        device = self.device
        if self.broken and not any(observer.refuses for observer in device.observers):
            self._refuse_broken()
        turn = self._next
        copy = self._copies[turn]
        self._next = 0 if turn else COPIES - 1
        if not device.timeline.has_reached(copy.busy_until):
            device.wait_value(copy.busy_until)
        try:
            return self._replay_copy(copy, values)
        except BaseException:  # at any line: it may have been sent, and what is patched is not known
            copy.busy_until = last = device.timeline.submitted
            copy.numbers = [None] * len(self._symbols)
            for value in values.values():
                if type(value) is Buffer:
                    (value.parent or value).last = last
            raise

    def _replay_copy(self, copy: CommandBuffer, values: Mapping[Any, Any]) -> Completion:
        device, numbers = self.device, copy.numbers
        for at, key, is_buffer in self._symbols:
            try:
                value = values[key]
            except KeyError:
                self._check_keys(values)
                raise
            number: int | float | None = None
            if is_buffer and type(value) is Buffer and value.device is device:
                number = value.va
            if number is None:
                number = self._number(key, self.patch_points[key][0], value)
            if numbers[at] != number or not number:  # 0.0 and -0.0 are equal, and two values
                self.patch(copy, key, number)
                numbers[at] = number
        if device.failures:
            for thing in (*self._held, *values.values()):
                if isinstance(thing, Buffer):
                    thing.check_poison(f"replay of {self.name!r}")
        held = (self._held, *values.values())
        if copy.signals:
            self._set_back(copy.signals)
        if device.observers:
            self.announce(copy, held)
        done: Completion = device.submit(copy.words, copy.commands, held)
        copy.busy_until = last = done.value
        for value in values.values():
            if type(value) is Buffer:
                (value.parent or value).last = last
        if device.observers:
            for observer in device.observers:
                observer.replayed()
        return done

    def _set_back(self, signals: Sequence[Signal]) -> None:
        """Before a replay of a command buffer that is not in flight: nobody waits for its signals."""
        for signal in signals:
            signal._cell[0] = 0
            for observer in self.device.observers:
                observer.host_set(signal.va, 0, time.monotonic_ns())

    def dependences(self) -> Dependences:
        """Which of the recorded commands need which."""
        uses: list[Uses] = []
        for number, what in enumerate(self.commands):
            own = self._uses[number] if number in self._uses else uses_of(what)
            if own is not None and not self.is_apart:  # what a symbol names may be any memory
                own = [use if use.place is None else Use(0, EVERYWHERE, use.is_write) for use in own]
            uses.append(own)
        return Dependences(uses)

    # ------------------------------------------------------------ hooks of a device's own graph

    def split(self) -> Split | None:
        """How the work is shared out over hardware queues; None where all of it is best done in order on one."""
        return None

    def lay_out(self, recorded: Sequence[bytes], split: Split | None) -> CommandBuffer:
        """Write one copy of the recorded words into memory, and say what a replay of it submits and means.

        split   what `split` said
        Raises  UsageError when the words are more than one packet can run
        """
        words = b"".join(recorded)
        if len(words) > 4 * MAX_WORDS:
            raise UsageError(
                f"graph {self.name!r}: {len(words)} bytes are more than {4 * MAX_WORDS}. Split it."
            )
        for observer in self.device.observers:
            observer.sealing(words)
        buffer = self.device.visible(len(words), f"{self.name} block")
        buffer.write(words)
        meaning = command.Indirect(buffer.address, len(words) // 4, self.name, tuple(self.commands))
        starts = itertools.accumulate((len(each) for each in recorded), initial=0)
        return CommandBuffer(buffer, [self.device.encode(meaning)], meaning, list(starts))

    def patch(self, copy: CommandBuffer, key: Any, number: Any) -> None:
        """Write a symbol's value to its places in a command buffer that is not in flight."""
        for store, at, mask in self._stores[key]:
            store(copy.host, at, number & mask if mask else number)

    def announce(self, copy: CommandBuffer, held: Sequence[Any]) -> None:
        """Tell observers of a replay that is about to be submitted. held: in nested lists, the buffers it uses."""
        for observer in self.device.observers:
            observer.patch(copy.meaning, self._written(copy), self.patch_points)

    # ------------------------------------------------------------ for reports, and after a fault

    def bound(self, va: int) -> list[tuple[int, int, int | float]]:
        """What the last replay of the command buffer at an address put where: (command, argument, value)."""
        return [
            (point.command_index, point.argument_index, number)
            for copy in self._copies
            if copy.meaning.address == va
            for key, number in self._written(copy).items()
            for point in self.patch_points[key]
        ]

    def _written(self, copy: CommandBuffer) -> dict[Any, int | float]:
        """What is known to stand in a command buffer, by key."""
        return {key: n for key, n in zip(self.patch_points, copy.numbers) if n is not None}

    def _refuse_broken(self) -> None:
        what = "; ".join(str(each) for each in self.commands[:4])
        why = f"replay of {self.name!r} on {self.device.name}: {self.broken}. It runs: {what}."
        self.device.report(why, ("broken", id(self)))
        raise UsageError(f"{why} Keep the buffers of a graph as long as the graph, or record it again.")

    def poison(self, first: int, last: int, why: str) -> None:
        """Mark the buffers recorded here if one of the submissions that failed was a replay of this graph."""
        if any(first <= copy.busy_until <= last for copy in self._copies):
            for held in self._held:
                if isinstance(held, Buffer) and not (held.parent or held).is_constant:
                    (held.parent or held).poison = why

    def submit(self) -> Completion:
        """Replay a graph that has no symbols. Raises UsageError when it has some: `replay` takes their values."""
        return self.replay()

    @property
    def is_sealed(self) -> bool:
        """Whether it was replayed already; from then on nothing can be recorded."""
        return bool(self._copies)

    def _add(self, what: command.Command, *held: object) -> Graph:
        self._check_recording()
        return super()._add(what, *held)

    def _check_recording(self) -> None:
        if self._copies:
            raise UsageError(f"graph {self.name!r} was replayed already; record into a new one.")

    def _seal(self) -> None:
        """Lay the recorded work out; from here on nothing can be recorded."""
        if not self._words:
            raise UsageError(f"graph {self.name!r}: nothing was recorded. Dispatch something first.")
        split = self.split()
        copies = [self.lay_out(self._words, split) for _ in range(COPIES)]
        starts = copies[0].starts
        placed = {
            key: [
                point._replace(byte_offset=point.byte_offset + starts[point.command_index])
                for point in points
            ]
            for key, points in self.patch_points.items()
        }
        stores = {
            key: [slot.store_at(point.byte_offset) for slot, point in zip(self._slots[key], points)]
            for key, points in placed.items()
        }
        for held in self._held:
            if isinstance(held, Buffer):
                (held.parent or held).is_recorded = True
        self.device.graphs.add(self)
        for copy in copies:
            copy.numbers = [None] * len(placed)
        self._symbols = [
            (at, key, points[0].kind == "buffer") for at, (key, points) in enumerate(placed.items())
        ]
        self.patch_points, self._stores, self._copies = placed, stores, copies

    def _stand_in(self, symbol: Symbol) -> Any:
        """Something of the symbol's kind to encode the packet with; every replay overwrites it."""
        if symbol.kind == "buffer":
            if self._stand_in_buffer is None:
                self._stand_in_buffer = self.device.alloc(64, f"{self.name} stand-in")
                for observer in self.device.observers:
                    observer.stand_in(self._stand_in_buffer.address, self.name)
            return self._stand_in_buffer
        return 1 if symbol.kind == "int" else 0.0  # not 0, which is a null pointer, too

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

    def _number(self, key: Any, point: PatchPoint, value: Any) -> int | float:
        """A symbol's value as a number of its kind, which all its places hold."""
        number: int | float
        if isinstance(value, Buffer) and point.kind == "buffer":
            if value.device is not self.device:
                raise value.elsewhere(f"replay of {self.name!r}", self.device)
            return value.address
        if point.kind == "buffer" and checks.is_null(value):
            return 0
        if point.kind == "float" and isinstance(value, (int, float)):
            try:
                number = float(value)
            except OverflowError:
                raise self._no_room(key, value, point.size_bytes) from None
        elif point.kind == "int" and checks.is_whole(value):
            number = int(value.__index__())
        else:
            raise self._wrong_kind(key, point, value)
        for slot in self._slots[key]:
            if not slot.holds(number):
                raise self._no_room(key, value, slot.size_bytes)
        return number

    def _wrong_kind(self, key: Any, point: PatchPoint, value: Any) -> UsageError:
        return UsageError(f"replay of {self.name!r}: {key!r} is a {point.kind}, got {checks.shown(value)}.")

    def _no_room(self, key: Any, value: Any, size_bytes: int) -> UsageError:
        return UsageError(
            f"replay of {self.name!r}: {key!r} is {checks.shown(value)}; it does not fit {8 * size_bytes} bits."
        )

    def __repr__(self) -> str:
        return f"Graph({self.name!r}, {len(self.commands)} commands, keys {list(self.patch_points)})"


def _uses_of_dispatch(program: Program, args: Sequence[Any]) -> Uses:
    """The bytes that a launch reads and writes, as far as its loader said what it does; None where nobody did."""
    if program.access is None or program.has_variables:
        return None
    found: list[Use] = []
    for access, arg in zip(program.access, args):
        if isinstance(arg, Buffer):
            found.append(Use(arg.address, arg.address + arg.size_bytes, access != "read"))
        elif isinstance(arg, Symbol) and arg.kind == "buffer":
            found.append(Use(0, EVERYWHERE, access != "read", ("symbol", arg.key)))
        elif access and arg:  # a number that is an address, of nobody knows how much
            return None
    return found
