"""What compiled code keeps of a batch: its registers, each warp's side by side, and where its threads are.

In       a function's machine code, how many warps
Out      Compiled, State: registers that go to and fro between the interpreter's arrays and a warp's memory; Tables
Changes  what is kept for the next batches
Next     native.py (who runs machine code)
"""

from __future__ import annotations

import contextlib
import itertools
import operator
from typing import Any, ClassVar, NamedTuple

import numpy as np

from hcq.emu.compiled import assemble
from hcq.emu.nv.shader import native_queues
from hcq.emu.nv.shader.decode import Decoded, Registers
from hcq.emu.nv.shader.lane_numbers import WARP
from hcq.emu.nv.shader.native_order import TABLE_WORDS, Point

MOST_TABLES = 16  # that are kept for the next batches


class Facts(NamedTuple):
    """What there is of a function besides its code.

    entries     the number of a node, by where it begins; in the order of numbers
    exits       by the number of a way out
    troubles    of these: the interpreter must run something first
    sites       of accesses
    offsets     of slots in a warp's memory, which has size_bytes
    numbers     slots that a launch has one number for, by their place in a table
    written     slots that the code writes
    first_read  slots that are read before anything is written there
    why_not     names of instructions that are left to the interpreter, and why
    spreads     nobody can see the order of its blocks
    libraries   names of modules that it needs
    has_copies  by threads
    gathers     numbers of ways out behind which all threads of a path go on at once, as compiled code
    """

    entries: dict[Point, int]
    exits: list[Point]
    troubles: set[Point]
    sites: int
    offsets: dict[int, int]
    size_bytes: int
    numbers: dict[int, int]
    written: set[int]
    first_read: set[int]
    why_not: dict[str, str]
    spreads: bool
    libraries: list[str]
    has_copies: bool
    gathers: list[int]


class Compiled:
    """A function's machine code.

    read    slots that it has in a warp's memory
    first   of these, by place: the first value where nobody reads it, else None
    states  that are not in use
    longest how many instructions a warp has run in one go
    """

    def __init__(self, decoded: Decoded, facts: Facts, code: assemble.Assembled) -> None:
        self.facts, self.code = facts, code
        self.points = list(facts.entries)
        self.read = list(facts.offsets)
        late = {slot for slot, _ in decoded.late}
        self.first: list[Any] = [
            None if slot in late or slot in facts.first_read else decoded.first[slot] for slot in self.read
        ]
        self.place = {slot: number for number, slot in enumerate(self.read)}
        self.late = [self.place[slot] for slot in late if slot in self.place]
        self.states: list[State] = []
        self.longest = 0


class State:
    """Registers of one call of a function, for compiled code: each warp's side by side."""

    def __init__(self, compiled: Compiled, warps: int) -> None:
        self.compiled, self.count, self.warps = compiled, 0, warps
        self.size = max(64, compiled.facts.size_bytes)
        self.file = _aligned(warps * self.size, np.uint8).reshape(warps, self.size)
        self.address = self.file.ctypes.data
        # the table of memory that `sites` was made for, in which accesses keep where they were last time
        self.ranges: Any = None
        self.ranges_address = 0
        self.sites: Any = None
        self.seen = list(compiled.first)  # by place: the array that the file has the same numbers as
        self.stale: set[int] = set()  # slots that only the file is right about
        self.views: dict[int, Any] = {}

    def begin(self, count: int) -> None:
        """A call begins. What others have left is there where the same arrays are; first values are mostly not read."""
        self.count = count
        self.stale.clear()
        seen = list(self.compiled.first)
        for place in self.compiled.late:
            seen[place] = self.seen[place]
        self.seen = seen

    def _rows(self, slot: int, dtype: Any) -> Any:
        rows = self.views.get(slot)
        if rows is None:
            at = self.compiled.facts.offsets[slot]
            size = 4 if dtype == np.bool_ else WARP * dtype.itemsize
            rows = self.file[:, at : at + size].view(np.uint32 if dtype == np.bool_ else dtype)
            self.views[slot] = rows
        return rows

    def push(self, registers: Registers) -> None:
        """Give compiled code what the interpreter has changed."""
        read = self.compiled.read
        changed = map(operator.is_not, map(registers.__getitem__, read), self.seen)
        for slot in itertools.compress(read, changed):
            array = registers[slot]
            if slot in self.stale:
                continue
            rows = self._rows(slot, array.dtype)
            if array.dtype == np.bool_:
                if len(array) == 1:
                    rows[:] = 0xFFFFFFFF if array[0] else 0
                else:
                    bits = np.packbits(self._padded(array), bitorder="little").view(np.uint32)
                    rows[:, 0] = bits
            elif len(array) == 1:
                rows[:] = array[0]
            else:
                rows[:] = self._padded(array).reshape(self.warps, WARP)
            self.seen[self.compiled.place[slot]] = array

    def _padded(self, array: Any) -> Any:
        missing = self.warps * WARP - len(array)
        return np.concatenate((array, np.zeros(missing, array.dtype))) if missing else array

    def pull(self, registers: Registers, slots: Any) -> None:
        """Give the interpreter what compiled code has changed of these."""
        for slot in self.stale.intersection(slots):
            rows = self._rows(slot, registers[slot].dtype)
            if registers[slot].dtype == np.bool_:
                flat = np.unpackbits(np.ascontiguousarray(rows).view(np.uint8), bitorder="little").view(
                    np.bool_
                )
            else:
                flat = np.ascontiguousarray(rows).reshape(-1)
            registers[slot] = self.seen[self.compiled.place[slot]] = flat.reshape(-1)[: self.count]
            self.stale.discard(slot)


class Addresses(NamedTuple):
    """Where Tables have what."""

    pcs: int
    starts: int
    locals: int
    lives: int


class Tables:
    """Of the threads of so many warps: where each is, and where its shared and its local memory begin."""

    _free: ClassVar[list[Tables]] = []

    def __init__(self, warps: int) -> None:
        self.warps = warps
        self.table = np.zeros(TABLE_WORDS, np.int64)
        self.pcs = _aligned(warps * WARP, np.int32)
        self.starts = _aligned(warps * WARP, np.int64)
        self.locals = _aligned(warps * WARP, np.int64)
        self.lives = _aligned(warps * WARP // 8, np.uint8)
        self._queues: Any = None
        self._live: Any = None  # what `lives` says
        self.addresses = Addresses(
            *(one.ctypes.data for one in (self.pcs, self.starts, self.locals, self.lives))
        )

    @classmethod
    def of(cls, warps: int) -> Tables:
        """Such that no batch uses."""
        for one in list(cls._free):
            if one.warps == warps:
                with contextlib.suppress(ValueError):  # another thread was faster
                    cls._free.remove(one)
                    return one
        return cls(warps)

    @property
    def queues(self) -> Any:
        """Of copies by threads, of each warp; their memory is taken where something is written."""
        if self._queues is None:
            self._queues = _aligned(self.warps * native_queues.QUEUE_BYTES, np.uint8).view(
                native_queues.QUEUE
            )
        return self._queues

    def say_live(self, live: Any) -> None:
        """Which threads have not ended."""
        if live is not self._live:
            self._live = live
            self.lives[: -(-len(live) // 8)] = np.packbits(live, bitorder="little")

    def give_back(self) -> None:
        """The batch is over."""
        if self._queues is not None:
            native_queues.forget(self._queues)
        self._free.append(self)
        del self._free[:-MOST_TABLES]


def _aligned(count: int, scalar: Any) -> Any:
    """Zeros that begin a cache line."""
    size = count * np.dtype(scalar).itemsize
    whole = np.zeros(size + 64, np.uint8)
    start = -whole.ctypes.data % 64
    return whole[start : start + size].view(scalar)
