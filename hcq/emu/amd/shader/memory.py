"""The address space that kernels see: ranges of virtual addresses backed by host memory.

In       map(address, buffer), unmap(address); arrays of addresses from kernels
Out      gathered words and bytes; a PageFault for any address that is not mapped, before host memory is touched
Changes  the mapped memory, on scatter and atomics
Next     hcq/emu/shader/ranges.py (which range an address is in), memory_ops.py (the instructions)

Every access first finds the range of every address. Nearly always they all lie in one range, so that is tried first.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from hcq.emu.amd.shader.arrays import Array
from hcq.emu.amd.shader.errors import PageFault
from hcq.emu.shader.compare_exchange import exchange
from hcq.emu.shader.ranges import Ranges
from hcq.errors import UsageError


class Memory(Protocol):
    """What kernels need of memory. Addresses are uint64 arrays of any shape; offsets stay within one access."""

    def gather(self, addresses: Array, words: int) -> Array:
        """(n,) addresses -> (words, n) uint32. Any alignment."""
        ...

    def gather_bytes(self, addresses: Array, size_bytes: int) -> Array:
        """(n,) addresses of 1 or 2 bytes each -> (n,) uint32."""
        ...

    def scatter(self, addresses: Array, data: Array) -> None:
        """Write (words, n) uint32 at (n,) addresses; when two lanes write one place the later lane wins."""
        ...

    def scatter_bytes(self, addresses: Array, data: Array, size_bytes: int) -> None:
        """Write the low 1 or 2 bytes of (n,) uint32 at (n,) addresses; the later lane wins."""
        ...

    def update(self, addresses: Array, dtype: Any, change: Callable[[Array], Array]) -> Array:
        """Replace each number by change(number) and return the old ones; addresses are aligned and all different."""
        ...

    def read(self, address: int, size_bytes: int) -> bytes:
        """Bytes as they are now. Raises PageFault."""
        ...

    def acquire(self) -> None:
        """What was read before may be old: an instruction that invalidates the compute unit's cache."""
        ...


def aligned_words(address: int, data: Array) -> Array | None:
    """The same bytes as words, when both their addresses are multiples of four."""
    if address % 4 or data.ctypes.data % 4 or len(data) < 4:
        return None
    return data[: len(data) & ~3].view(np.uint32)


def are_aligned(offsets: Array) -> bool:
    """Whether all are multiples of four."""
    return not int(np.bitwise_or.reduce(offsets)) & 3


def beside_each_other(offsets: Array, step: int) -> int | None:
    """Where aligned offsets begin of which each is a step beyond the one before; None: they are no such."""
    count = len(offsets)
    if count < 2:
        return None
    first = int(offsets[0])
    # the ends say no at once, nearly always
    if first % 4 or int(offsets[-1]) - first != step * (count - 1):
        return None
    return first if bool((offsets[1:] - offsets[:-1] == step).all()) else None


@dataclass(frozen=True)
class Bytes:
    """A piece of the host's memory, reached by offsets that are known to be inside; LDS and scratch are such, too."""

    data: Array
    words: Array | None  # the same bytes as 32-bit words, when they are aligned so

    @classmethod
    def zeros(cls, size_bytes: int) -> Bytes:
        """So many zeros."""
        data = np.zeros(size_bytes, np.uint8)
        return cls(data, aligned_words(0, data))

    def gather(self, offsets: Array, words: int) -> Array:
        """(n,) offsets -> (words, n) uint32. Any alignment."""
        if self.words is not None:
            start = beside_each_other(offsets, 4 * words)
            if start is not None:
                piece = self.words[start // 4 : start // 4 + words * len(offsets)]
                return np.array(piece.reshape(-1, words).T, order="C")
        out = np.empty((words, len(offsets)), np.uint32)
        if self.words is not None and are_aligned(offsets):
            first = offsets >> 2
            for word in range(words):
                np.take(self.words[word:], first, out=out[word], mode="clip")
            return out
        for word in range(words):
            out[word] = sum(
                self.data[offsets + (4 * word + i)].astype(np.uint32) << np.uint32(8 * i) for i in range(4)
            )
        return out

    def gather_bytes(self, offsets: Array, size_bytes: int) -> Array:
        """(n,) offsets of 1 or 2 bytes each -> (n,) uint32."""
        value = self.data[offsets].astype(np.uint32)
        if size_bytes == 2:
            value |= self.data[offsets + 1].astype(np.uint32) << np.uint32(8)
        return value

    def scatter(self, offsets: Array, values: Array) -> None:
        """Write (words, n) uint32 at (n,) offsets; the later lane wins."""
        if self.words is not None:
            start = beside_each_other(offsets, 4 * len(values))
            if start is not None:
                self.words[start // 4 : start // 4 + values.size].reshape(-1, len(values))[...] = values.T
                return
        if self.words is not None and are_aligned(offsets):
            first = offsets >> 2
            for word in range(len(values)):
                self.words[word:][first] = values[word]
            return
        for word in range(len(values)):
            self.scatter_bytes(offsets + 4 * word, values[word], 4)

    def scatter_bytes(self, offsets: Array, values: Array, size_bytes: int) -> None:
        """Write the low bytes of (n,) uint32 at (n,) offsets; the later lane wins."""
        for i in range(size_bytes):
            self.data[offsets + i] = ((values >> np.uint32(8 * i)) & np.uint32(255)).astype(np.uint8)

    def load(self, offsets: Array, dtype: Any) -> Array:
        """(n,) offsets -> (n,) numbers of a dtype. Any alignment."""
        size = np.dtype(dtype).itemsize
        rows = np.empty((len(offsets), size), np.uint8)
        for i in range(size):
            rows[:, i] = self.data[offsets + i]
        return rows.view(dtype)[:, 0]

    def store(self, offsets: Array, numbers: Array) -> None:
        """Write (n,) numbers at (n,) offsets. Any alignment."""
        rows = np.ascontiguousarray(numbers).view(np.uint8).reshape(len(numbers), -1)
        for i in range(rows.shape[1]):
            self.data[offsets + i] = rows[:, i]

    def exchange(self, offsets: Array, old: Array, new: Array) -> Array | None:
        """Store numbers where others have been read. None; or those that are there now, where somebody changed some."""
        self.store(offsets, new)
        return None


@dataclass(frozen=True)
class Range(Bytes):
    """One mapping: the bytes of addresses [start, end)."""

    start: int
    end: int
    writable: bool
    name: str

    @functools.cached_property
    def singles(self) -> memoryview | None:
        """Its words of 32 bits by number, where it begins at one; None elsewhere."""
        return None if self.words is None else self.words.data

    @functools.cached_property
    def doubles(self) -> memoryview | None:
        """Its words of 64 bits by number, where it begins at one; None elsewhere."""
        if self.start % 8 or self.data.ctypes.data % 8 or len(self.data) < 8:
            return None
        return self.data[: len(self.data) & ~7].view(np.uint64).data

    def reach(self, at: int, size_bytes: int, *, is_write: bool) -> None:
        """Bytes of it are about to be touched; where it is a copy of something, they are brought up to date."""


class SharedRange(Range):
    """One that the host changes, too: an atomic operation whose number changed after it was read is done anew."""

    def exchange(self, offsets: Array, old: Array, new: Array) -> Array | None:
        return exchange(self.data.ctypes.data + offsets, old, new)


def _exchange(
    one: Range, which: Array | None, offsets: Array, old: Array, new: Array
) -> list[tuple[Range, Array | None, Array]]:
    """Write new numbers in the place of old ones. What another has changed meanwhile is noted in `old`, and is left."""
    mine = slice(None) if which is None else which
    found = one.exchange(offsets, old[mine], new[mine])
    if found is None:
        return []
    lost = np.flatnonzero(found.view(f"u{found.itemsize}") != old[mine].view(f"u{found.itemsize}"))
    where = lost if which is None else which[lost]
    old[where] = found[lost]
    return [(one, where, offsets[lost])] if len(lost) else []


class AddressSpace(Ranges[Range], Memory):
    """Mapped ranges in address order. Mapping and unmapping may happen while other threads read."""

    def acquire(self) -> None:
        """There is nothing between kernels and this memory: it is always up to date."""

    def settle(self) -> None:
        """There is no copy of other memory, either, which would have to be told what was stored."""

    def map(self, address: int, buffer: Any, *, writable: bool = True, name: str = "") -> None:
        """Make `buffer` (anything with the buffer protocol, or a uint8 array) appear at `address`."""
        data = buffer if isinstance(buffer, np.ndarray) else np.frombuffer(buffer, np.uint8)
        data = data.reshape(-1).view(np.uint8)
        end, words = address + len(data), aligned_words(address, data)
        new = Range(data, words, address, end, writable and data.flags.writeable, name)
        if address < 0 or new.end > 1 << 64 or not len(data):
            raise UsageError(
                f"map(address={address:#x}, {len(data)} bytes): not a range of 64-bit addresses."
            )
        self.insert(new)

    def fault(self, addresses: Array, size_bytes: int, kind: str) -> PageFault:
        """The fault of the first address that cannot be reached."""
        for address in addresses.reshape(-1).tolist():
            one = self.find(address)
            if one is None:
                return PageFault(address, size_bytes, kind, f"not mapped; {self.near(address)}")
            if address + size_bytes > one.end:
                return PageFault(address, size_bytes, kind, f"ends beyond its mapping; {self.near(address)}")
            if kind != "read" and not one.writable:
                return PageFault(address, size_bytes, kind, f"{one.name or 'the mapping'} is read-only")
        return PageFault(int(addresses.reshape(-1)[0]), size_bytes, kind, "crosses mappings")

    def groups(self, addresses: Array, size_bytes: int, kind: str) -> list[tuple[Range, Array | None, Array]]:
        """(range, which addresses or None for all, byte offsets in it), covering every address, or a fault."""
        if not addresses.size:
            return []
        one = self.common(addresses, size_bytes)
        if one is not None:
            if kind != "read" and not one.writable:
                raise self.fault(addresses, size_bytes, kind)
            return [(one, None, (addresses - np.uint64(one.start)).view(np.int64))]
        ranges = self.ranges
        starts = np.array([one.start for one in ranges], np.uint64)
        place = np.searchsorted(starts, addresses, side="right") - 1
        out: list[tuple[Range, Array | None, Array]] = []
        for index in np.unique(place).tolist():
            which = np.nonzero(place == index)[0]
            if index < 0:
                raise self.fault(addresses[which], size_bytes, kind)
            one = ranges[index]
            offsets = addresses[which] - np.uint64(one.start)
            if int(offsets.max()) + size_bytes > one.end - one.start or (kind != "read" and not one.writable):
                raise self.fault(addresses[which], size_bytes, kind)
            out.append((one, which, offsets.astype(np.int64)))
        return out

    def gather(self, addresses: Array, words: int) -> Array:
        out = np.empty((words, len(addresses)), np.uint32)
        for one, which, offsets in self.groups(addresses, 4 * words, "read"):
            part = one.gather(offsets, words)
            if which is None:
                return part
            out[:, which] = part
        return out

    def gather_bytes(self, addresses: Array, size_bytes: int) -> Array:
        out = np.zeros(len(addresses), np.uint32)
        for one, which, offsets in self.groups(addresses, size_bytes, "read"):
            part = one.gather_bytes(offsets, size_bytes)
            if which is None:
                return part
            out[which] = part
        return out

    def scatter(self, addresses: Array, data: Array) -> None:
        for one, which, offsets in self.groups(addresses, 4 * len(data), "write"):
            one.scatter(offsets, data if which is None else data[:, which])

    def scatter_bytes(self, addresses: Array, data: Array, size_bytes: int) -> None:
        for one, which, offsets in self.groups(addresses, size_bytes, "write"):
            one.scatter_bytes(offsets, data if which is None else data[which], size_bytes)

    def update(self, addresses: Array, dtype: Any, change: Callable[[Array], Array]) -> Array:
        size = np.dtype(dtype).itemsize
        old = np.empty(len(addresses), dtype)
        parts = self.groups(addresses, size, "atomic")
        for one, which, offsets in parts:
            value = one.load(offsets, dtype)
            old[slice(None) if which is None else which] = value
        while parts:
            new = change(old)
            parts = [part for one in parts for part in _exchange(*one, old, new)]
        return old

    def read(self, address: int, size_bytes: int) -> bytes:
        one = self.find(address)
        if one is None or address + size_bytes > one.end:
            raise self.fault(np.array([address], np.uint64), size_bytes, "read")
        at = address - one.start
        return one.data[at : at + size_bytes].tobytes()
