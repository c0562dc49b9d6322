"""The address space that kernels see: ranges of virtual addresses backed by host memory, checked before it is touched.

In       addresses as a NumPy array, one per thread
Out      values gathered, values scattered; BadAccess for the first address where nothing is mapped
Changes  the mapped host memory
Next     hcq/emu/shader/ranges.py (which mapping an address is in), spaces.py (which addresses get here), run.py (who
         passes a Memory)
"""

from __future__ import annotations

import bisect
from collections.abc import Sequence
from typing import Any, NoReturn, Protocol

import numpy as np
from numpy.typing import NDArray

from hcq.emu.nv.shader.device_heap import START, Heap
from hcq.emu.nv.shader.errors import BadAccess
from hcq.emu.nv.shader.types import Lanes, Scalar
from hcq.emu.shader.ranges import Ranges
from hcq.errors import UsageError

ALIGNMENT = 32  # of every mapping: so that a naturally aligned access never straddles two


class Memory(Protocol):
    """What a kernel's global memory must be able to do. Addresses are uint64 and multiples of the access's size."""

    def load(self, addresses: Lanes, scalar: Scalar, count: int) -> Lanes:
        """`count` values at each address: shape (n,) when count is 1, else (n, count). Raises BadAccess."""

    def store(self, addresses: Lanes, values: Lanes) -> None:
        """Write values of shape (n,) or (n, count); of equal addresses the last one stays. Raises BadAccess."""

    @property
    def heap(self) -> Heap:
        """Of which malloc takes, mapped."""

    def places_of(self, addresses: Lanes, size: int) -> list[Lanes]:
        """The addresses of the several places that each of these names, for multimem. Raises BadAccess."""


class Mapping:
    """One range of addresses and the host memory behind it."""

    def __init__(self, start: int, host: NDArray[np.uint8], is_writable: bool, name: str) -> None:
        self.start = start
        self.end = start + len(host)
        self.host = host
        self.is_writable = is_writable
        self.name = name
        self._views: dict[Any, Lanes] = {}

    def reach(self, at: int, size_bytes: int, is_write: bool) -> None:
        """Bytes of it are about to be touched; where it is a copy of something, they are brought up to date."""

    def part(self, start: int, end: int) -> Mapping:
        """A part of it, by addresses."""
        return Mapping(start, self.host[start - self.start : end - self.start], self.is_writable, self.name)

    def view(self, scalar: Scalar, count: int = 1) -> Lanes:
        """The host memory as values of this type; (n, count) when count is not 1."""
        key = (scalar, count)
        if (known := self._views.get(key)) is not None:
            return known
        size = np.dtype(scalar).itemsize * count
        made: Lanes = self.host[: len(self.host) // size * size].view(scalar)
        if count != 1:
            made = made.reshape(-1, count)
        self._views[key] = made
        return made


class AddressSpace(Ranges[Mapping], Memory):
    """A Memory made of mappings. is_plain: the host's memory behind a mapping is all there is to an access."""

    is_plain = True
    _rows: tuple[Any, Lanes, list[Mapping]] | None = None

    def __init__(self) -> None:
        super().__init__()
        self._heap: Heap | None = None
        self._multicast: list[tuple[int, int, tuple[int, ...]]] = []

    def rows(self) -> tuple[Lanes, list[Mapping]]:
        """What is mapped where, as compiled code reads it: start, bytes, where the host's begin from there, writable.

        Returns the same table for as long as nothing is mapped or unmapped, and the mappings, whose memory it names.
        """
        index = self.index
        known = self._rows
        if known is None or known[0] is not index:
            mappings = [one for one in index[1] if type(one) is Mapping]
            found = [
                (one.start, len(one.host), one.host.ctypes.data - one.start, one.is_writable)
                for one in mappings
            ]
            wrapped = [[int(number) & 2**64 - 1 for number in row] for row in found]
            known = self._rows = index, np.array(wrapped, np.uint64).reshape(-1, 4), mappings
        return known[1], known[2]

    def map(self, va: int, host: Any, is_writable: bool = True, name: str = "") -> Mapping:
        """Back [va, va + len(host)) with a buffer: a NumPy array, a memoryview over raw memory, a bytearray."""
        flat = (
            np.frombuffer(host, np.uint8)
            if not isinstance(host, np.ndarray)
            else host.reshape(-1).view(np.uint8)
        )
        if is_writable and not flat.flags.writeable:
            raise UsageError(
                f"map({va:#x}): the buffer is read-only. Pass is_writable=False, or a writable buffer."
            )
        if va % ALIGNMENT or va < 0 or va + len(flat) > 2**64 or not len(flat):
            raise UsageError(
                f"map({va:#x}, {len(flat)} bytes): give a multiple of {ALIGNMENT} and at least a byte."
            )
        mapping = Mapping(va, flat, is_writable, name)
        self.insert(mapping)
        return mapping

    @property
    def heap(self) -> Heap:
        if self._heap is None:
            self._heap = self.new_heap()
        return self._heap

    def new_heap(self) -> Heap:
        """Map a heap, at the first malloc."""
        made = Heap()
        self.insert(Mapping(START, made.host, True, "the heap of malloc"))
        return made

    def multicast(self, va: int, size_bytes: int, starts: Sequence[int]) -> None:
        """Let [va, va + size_bytes) name memory at each of `starts`, for multimem alone; nothing is mapped at va.

        On a GPU a multicast object does that, whose memory is that of several GPUs. Our driver makes none.
        """
        if not starts or va % ALIGNMENT or size_bytes <= 0:
            raise UsageError(
                f"multicast({va:#x}, {size_bytes}): give a multiple of {ALIGNMENT}, a size and places."
            )
        self._multicast.append((va, va + size_bytes, tuple(starts)))

    def places_of(self, addresses: Lanes, size: int) -> list[Lanes]:
        first = int(addresses[0])
        for start, end, places in self._multicast:
            if start <= first < end:
                outside = (addresses < np.uint64(start)) | (addresses > np.uint64(end - size))
                if outside.any():
                    self._not_multicast(addresses, int(np.argmax(outside)))
                return [addresses - np.uint64(start) + np.uint64(place) for place in places]
        return self._not_multicast(addresses, 0)

    def _not_multicast(self, addresses: Lanes, index: int) -> NoReturn:
        raise BadAccess(
            index, int(addresses[index]), "it is in no multicast object, or not in that of other threads"
        )

    def load(self, addresses: Lanes, scalar: Scalar, count: int) -> Lanes:
        size = np.dtype(scalar).itemsize * count
        mapping = self.common(addresses, size)
        if mapping is not None:
            return _gather(mapping, addresses, scalar, count, size)
        shape = (len(addresses),) if count == 1 else (len(addresses), count)
        values = np.zeros(shape, scalar)
        for mapping, chosen in self._parts(addresses, size):
            values[chosen] = _gather(mapping, addresses[chosen], scalar, count, size)
        return values

    def store(self, addresses: Lanes, values: Lanes) -> None:
        count = 1 if values.ndim == 1 else values.shape[1]
        size = values.dtype.itemsize * count
        mapping = self.common(addresses, size)
        parts = [(mapping, np.arange(len(addresses)))] if mapping else self._parts(addresses, size)
        for mapping, chosen in parts:
            if not mapping.is_writable:
                first = int(chosen[0])
                raise BadAccess(first, int(addresses[first]), f"{_named(mapping)} is read-only")
        if mapping is not None and len(parts) == 1:
            _scatter(mapping, addresses, values, count, size)
            return
        for mapping, chosen in parts:
            _scatter(mapping, addresses[chosen], values[chosen], count, size)

    def _parts(self, addresses: Lanes, size: int) -> list[tuple[Mapping, Lanes]]:
        """Which addresses are in which mapping. Raises BadAccess for the first that is in none."""
        starts, mappings = self.index
        if not mappings:
            self._refuse(addresses, np.ones(len(addresses), bool))
        ends = np.array([mapping.end - size for mapping in mappings], np.uint64)
        numbers = np.searchsorted(np.array(starts, np.uint64), addresses, "right") - 1
        bad = (numbers < 0) | (addresses > ends[numbers])
        small = np.array([mapping.end - mapping.start < size for mapping in mappings])
        bad |= small[numbers]
        if bad.any():
            self._refuse(addresses, bad)
        return [(mappings[number], np.flatnonzero(numbers == number)) for number in np.unique(numbers)]

    def _refuse(self, addresses: Lanes, bad: Lanes) -> None:
        first = int(np.argmax(bad))
        address = int(addresses[first])
        starts, mappings = self.index
        below = mappings[max(bisect.bisect_right(starts, address) - 1, 0)] if mappings else None
        near = "nothing is mapped at all"
        if below is not None:
            where = f"{address - below.end} bytes past its end" if address >= below.end else "across its end"
            if address < below.start:
                where = f"{below.start - address} bytes before its start"
            near = f"nothing is mapped there; the nearest, {_named(below)}, is missed: it is {where}"
        raise BadAccess(first, address, near)


def _named(mapping: Mapping) -> str:
    name = f"{mapping.name!r} " if mapping.name else ""
    return f"{name}[{mapping.start:#x}, {mapping.end:#x})"


def _gather(mapping: Mapping, addresses: Lanes, scalar: Scalar, count: int, size: int) -> Lanes:
    index = ((addresses - np.uint64(mapping.start)) >> np.uint64(size.bit_length() - 1)).view(np.int64)
    return mapping.view(scalar, count).take(index, axis=0)


def _scatter(mapping: Mapping, addresses: Lanes, values: Lanes, count: int, size: int) -> None:
    index = ((addresses - np.uint64(mapping.start)) >> np.uint64(size.bit_length() - 1)).view(np.int64)
    mapping.view(values.dtype.type, count)[index] = values
