"""A Machine that follows what nobody wrote to its use: an address, a branch, a store, a matrix (HCQ_SANITIZE=init).

In       what a translated kernel calls
Out      the same as of a Machine; what is loaded and was never written is Shadowed
Changes  the Checks of the launch; shadows of memory
Next     shadowed.py (how shadows go through numbers), machine.py, program.py (who makes it), device_races.py (a
         sister), hcq/emu/shader/unwritten.py (what is told)
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import numpy as np

from hcq.emu.metal.shader.device_races import thread_name
from hcq.emu.metal.shader.machine import Machine, Memory, OwnMemory, SharedMemory
from hcq.emu.metal.shader.shadowed import Array, Shadowed, plain, shadow_of, shadowed
from hcq.emu.shader.checks import Checks
from hcq.emu.shader.shadow_bits import whole
from hcq.emu.shader.unwritten import Read, tell
from hcq.system import native

UNWRITTEN = 0xFF
Size = tuple[int, int, int]


class FollowingMachine(Machine):
    """follow: what it needs beyond a Machine."""

    checks: Checks
    grid: Size
    block: Size
    file_name: str
    line_of: Callable[[int], int]
    text_of: Callable[[int], str]

    def load(self, mask: Any, memory: Memory, kind: str, index: Any) -> Any:
        """As a Machine's."""
        self._use("address", mask, index)
        index = plain(index)
        value = super().load(mask, memory, kind, index)
        return self._seen(value, mask, memory, kind, index)

    def _seen(self, value: Any, mask: Any, memory: Memory, kind: str, index: Any) -> Any:
        """What was loaded, with its shadow."""
        if mask is False:
            return value
        shadow = self._shadow(mask, memory, kind, index)
        if shadow is None:
            return value
        bad = int(np.flatnonzero(shadow)[0])
        size = np.dtype(kind).itemsize
        at = int(np.broadcast_to(index, (self.size,))[bad]) * size
        line = self._line()
        if memory.stride:
            read = Read(
                "local" if memory.is_own else "shared", at, "", line, self.text_of(line), self._who(bad)
            )
        else:
            start = native.address_of(memory.data)
            read = Read("global", start + at, "", line, self.text_of(line), self._who(bad))
        return shadowed(np.broadcast_to(value, (self.size,)), shadow, read)

    def store(self, mask: Any, memory: Memory, kind: str, index: Any, value: Any) -> None:
        """As a Machine's."""
        self._use("address", mask, index)
        index = plain(index)
        if not memory.stride and not (isinstance(value, Shadowed) and value.read.is_copied):
            self._use("store", mask, value)
        super().store(mask, memory, kind, index, plain(value))
        self._shade(mask, memory, kind, index, value)

    def _shade(self, mask: Any, memory: Memory, kind: str, index: Any, value: Any) -> None:
        """What was stored has the shadow of the value."""
        if mask is False:
            return
        bits = np.dtype(f"u{np.dtype(kind).itemsize}")
        shadow = np.broadcast_to(shadow_of(value), (self.size,))
        shadow = whole(shadow, bits) if shadow.dtype != bits else shadow
        who = self.thread if mask is True else np.flatnonzero(mask)
        places = np.broadcast_to(index, (self.size,))[who]
        if isinstance(memory, SharedMemory | OwnMemory):
            at = places + self.rows_of(memory)[who] * np.int64(memory.stride // bits.itemsize)
            _shadow_of(memory).view(bits)[at] = shadow[who]
        elif (of := self._unwritten()) is not None:
            rows = np.ascontiguousarray(shadow[who]).view(np.uint8).reshape(len(who), bits.itemsize)
            of.store(_addresses(memory, places, bits.itemsize), rows if rows.any() else None, bits.itemsize)

    def atomic(
        self, mask: Any, memory: Memory, kind: str, index: Any, operation: str, x: Any = 0, y: Any = 0
    ) -> Any:
        """As a Machine's. Who changes what nobody wrote is told once, and it counts as written then."""
        self._use("address", mask, index)
        index, x, y = plain(index), plain(x), plain(y)
        if operation not in ("load", "store", "exchange"):
            old = self._seen(np.zeros(self.size, kind), mask, memory, kind, index)
            if isinstance(old, Shadowed):
                self._use("atomic", mask, old)
                self._shade(mask, memory, kind, index, 0)
        found = super().atomic(mask, memory, kind, index, operation, x, y)
        if operation in ("store", "exchange"):
            self._shade(mask, memory, kind, index, x)
        return self._seen(found, mask, memory, kind, index) if operation == "load" else found

    def unset(self, value: Any, name: str, line: int) -> Any:
        """As a Machine's."""
        made = np.broadcast_to(np.asarray(value), (self.size,)).copy()
        bits = np.dtype(bool) if made.dtype == np.bool_ else np.dtype(f"u{made.dtype.itemsize}")
        shadow = whole(np.ones(self.size, bool), bits) if bits != np.bool_ else np.ones(self.size, bool)
        return shadowed(made, shadow, Read("register", 0, name, line, self.text_of(line), self._who(0)))

    def function(self, name: str, kind: str, *values: Any) -> Any:
        """As a Machine's."""
        return self._made(super().function(name, kind, *(plain(one) for one in values)), *values)

    def simd(self, mask: Any, name: str, *values: Any) -> Any:
        """As a Machine's: what a SIMD group makes together counts as written."""
        return super().simd(mask, name, *(plain(one) for one in values))

    def narrow(self, mask: Any, condition: Any) -> Any:
        """As a Machine's."""
        self._use("branch", mask, condition)
        return super().narrow(mask, plain(condition))

    def to_integer(self, value: Any, kind: str) -> Any:
        """As a Machine's."""
        found = super().to_integer(plain(value), kind)
        return self._made(found, value)

    def divide(self, a: Any, b: Any, wants_rest: bool) -> Any:
        """As a Machine's."""
        return self._made(super().divide(plain(a), plain(b), wants_rest), a, b)

    def product(self, mask: Any, a: Any, b: Any, c: Any, d: Any, kind: str) -> Any:
        """As a Machine's."""
        for lanes in (a, b, c):
            for one in lanes:
                self._use("matrix", mask, one)
        a, b, c, d = ([plain(one) for one in lanes] for lanes in (a, b, c, d))
        return super().product(mask, a, b, c, d, kind)

    # ------------------------------------------------------------ inside

    def _made(self, found: Any, *sources: Any) -> Any:
        """A result of which all is unwritten where any bit of a source is."""
        bad: Array = np.zeros(1, bool)
        read = None
        for one in sources:
            if isinstance(one, Shadowed):
                bad, read = bad | (one.shadow != 0), one.read
        if read is None:
            return found
        return shadowed(found, whole(bad, np.dtype(f"u{found.dtype.itemsize}")), read.computed())

    def _shadow(self, mask: Any, memory: Memory, kind: str, index: Any) -> Array | None:
        """Of what each thread loads; None where all of it was written."""
        bits = np.dtype(f"u{np.dtype(kind).itemsize}")
        who = self.thread if mask is True else np.flatnonzero(mask)
        places = np.broadcast_to(index, (self.size,))[who]
        found = np.zeros(self.size, bits)
        if isinstance(memory, SharedMemory | OwnMemory):
            at = places + self.rows_of(memory)[who] * np.int64(memory.stride // bits.itemsize)
            found[who] = _shadow_of(memory).view(bits)[at]
        else:
            of = self._unwritten()
            rows = None if of is None else of.load(_addresses(memory, places, bits.itemsize), bits.itemsize)
            if rows is None:
                return None
            found[who] = np.ascontiguousarray(rows).view(bits)[:, 0]
        return found if found.any() else None

    def _unwritten(self) -> Any:
        return None if self.checks.known is None else self.checks.known.unwritten

    def _use(self, use: str, mask: Any, value: Any) -> None:
        if mask is False or not isinstance(value, Shadowed):
            return
        bad = np.broadcast_to(value.shadow != 0, (self.size,))
        which = np.flatnonzero(bad if mask is True else bad & mask)
        if len(which):
            line = self._line()
            tell(self.checks, use, value.read, self.text_of(line), line, self._who(int(which[0])), len(which))

    def _who(self, thread: int) -> str:
        return thread_name(thread % self.threads, self.block, int(self.row[thread]) + self.first, self.grid)

    def _line(self) -> int:
        frame = sys._getframe(2)
        while frame.f_back is not None and frame.f_code.co_filename != self.file_name:
            frame = frame.f_back
        return self.line_of(frame.f_lineno)


def _shadow_of(memory: SharedMemory | OwnMemory) -> Array:
    if memory.shadow is None:
        memory.shadow = np.full(len(memory.data), UNWRITTEN, np.uint8)
    return memory.shadow


def _addresses(memory: Memory, places: Array, size_bytes: int) -> Array:
    start, size = np.uint64(native.address_of(memory.data)), np.uint64(size_bytes)
    found: Array = places.astype(np.uint64) * size + start
    return found


def following(
    grid: Size,
    block: Size,
    file_name: str,
    line_of: Callable[[int], int],
    text_of: Callable[[int], str],
    checks: Checks,
    kind: type[FollowingMachine] = FollowingMachine,
) -> Callable[[str, int, int, int], Any]:
    """What makes the machines of a launch. file_name, line_of, text_of: as of DeviceRaces."""

    def make(name: str, groups: int, threads: int, first: int = 0) -> FollowingMachine:
        made = kind(name, groups, threads, first)
        made.checks, made.grid, made.block = checks, grid, block
        made.file_name, made.line_of, made.text_of = file_name, line_of, text_of
        return made

    return make
