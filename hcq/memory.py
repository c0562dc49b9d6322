"""Memory: buffers on a device, and the pool that allocates and reuses them.

In       sizes; bytes from the host
Out      Buffers, 64-byte aligned (to whole lines of a GPU's memory beyond that, page aligned from 64 KiB), not zeroed
Changes  the device's mappings; freed memory stays in the pool, because page faults are slow, up to a limit
Next     cpu/device.py (map_memory), queue.py (commands that use buffers)

A buffer may be freed while submitted work still uses it. The device runs one queue in order, so later work cannot touch
the reused memory too early. The host takes care of itself: a freed block keeps a `fence`, the last submission at that
time, and the host waits for it before it writes to the buffer that gets the block next.
"""

from __future__ import annotations

import contextlib
import gc
import os
import threading
import weakref
from collections import deque
from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

from hcq import checks
from hcq.base import Base
from hcq.errors import DeviceFault, DriverError, UsageError, WaitTimeout
from hcq.lifetime import open_devices
from hcq.program import Loader

T = TypeVar("T")

ALIGNMENT = 64
SLAB_BYTES = 2 << 20  # small blocks are cut from slabs of this size
LARGE_BYTES = 64 << 10  # from here on a block has a mapping of its own
APART_BYTES = 16  # more than whole pages: such capacities tell memory of another kind from the pool's own
MAX_BUFFER_BYTES = 1 << 46


class Buffer:
    """A piece of device memory. Dropping the last reference frees it, `free` does so now.

    va          device address; None once freed
    size_bytes  what was asked for
    name        how messages, reports and traces call it
    device      whose memory it is

    >>> data = hcq.open("CPU").alloc(8, "data")
    >>> data.write(b"abcdefgh")
    >>> data.view(2, 3).read()
    b'cde'
    """

    __slots__ = (
        "__weakref__",
        "capacity",
        "device",
        "fence",
        "is_constant",
        "is_pinned",
        "is_recorded",
        "last",
        "name",
        "parent",
        "poison",
        "size_bytes",
        "va",
    )

    def __init__(
        self, device: Base, va: int, size_bytes: int, capacity: int, fence: int, name: str | None
    ) -> None:
        self.device = device
        self.va: int | None = va
        self.size_bytes = size_bytes
        self.capacity = capacity
        self.fence = fence  # the last submission that may use the memory for its previous owner
        self.last = 0  # the last submission that was handed this buffer
        self.is_recorded = False  # a graph holds it, and every replay may use it
        self.is_pinned = False  # memory of the host, at its own address, which the device reaches, too
        self.is_constant = False  # nobody but the host writes it: what fails leaves it as it was
        self.poison = ""  # why its contents are unknown: the submission that should have written it failed
        self.name = name
        self.parent: Buffer | None = None  # of a view; the parent keeps all the notes above

    @property
    def address(self) -> int:
        """The device address. Raises UsageError when the buffer was freed."""
        if self.va is None:
            raise UsageError(f"{self!r} was freed; it has no memory any more. Keep it until its last use.")
        return self.va

    @property
    def host(self) -> memoryview:
        """The memory as the host sees it, writable. It does not wait for the device: call `wait` first."""
        if self.device.dead:
            self.device.check_alive()
        for observer in self.device.observers:
            observer.exposed((self.parent or self).address)
        return self.device.view_memory(self.address, self.size_bytes, self)

    def wait(self, timeout_ms: float | None = None) -> None:
        """Return once no submitted work can still read or write this buffer.

        timeout_ms  deadline; default HCQ_TIMEOUT_MS
        Raises      WaitTimeout; DeviceFault when work that was handed this buffer failed
        """
        if timeout_ms is not None:
            timeout_ms = checks.milliseconds(f"{self!r}.wait", timeout_ms)
        whole = self.parent or self
        device = self.device
        value = device.timeline.submitted if whole.is_recorded else max(whole.last, whole.fence)
        if device.asks_device or not device.timeline.has_reached(value):
            device.check_alive()
            device.drain(value, timeout_ms)
        if whole.poison:
            self.check_poison("wait")

    def write(self, data: Any, offset: int = 0) -> None:
        """Copy bytes from the host. Waits for submitted work that uses the buffer.

        data    bytes, or anything with a contiguous buffer (array, NumPy array, memoryview)
        offset  where they go, in bytes
        Raises  UsageError when the data does not fit or the buffer was freed
        """
        source = checks.memory(f"{self!r}.write", data)
        offset, _ = self._check_range("write", offset, source.nbytes)
        if self.device.dead:
            self.device.check_alive()
        if self.poison and source.nbytes == self.size_bytes:
            self.poison = ""
        self.wait()
        if source.nbytes:
            self.device.write_memory(self.address + offset, source, source.nbytes)
        for observer in self.device.observers:
            observer.wrote(self.address + offset, source)

    def read(self, offset: int = 0, size_bytes: int | None = None) -> bytes:
        """Copy bytes to the host, after all work submitted so far is done (deadline HCQ_TIMEOUT_MS).

        size_bytes  default: all from `offset` on
        Raises      UsageError when the range does not lie in the buffer; DeviceFault when work that was handed it
                    failed
        """
        offset, size = self._check_range("read", offset, size_bytes)
        self._settle()
        data = self.device.read_memory(self.address + offset, size)
        for observer in self.device.observers:
            observer.saw(self.address + offset, data)
        return data

    def read_into(self, target: Any, offset: int = 0) -> None:
        """Like `read`, but straight into memory of the host: a bytearray, a NumPy array, anything writable.

        Raises  UsageError when the target is larger than the buffer, or not contiguous and writable
        """
        place = checks.memory(f"{self!r}.read_into", target)
        if place.readonly:
            raise UsageError(
                f"{self!r}.read_into: the target must be contiguous and writable. Make a new array."
            )
        offset, _ = self._check_range("read_into", offset, place.nbytes)
        self._settle()
        if place.nbytes:
            self.device.read_memory_into(self.address + offset, place, place.nbytes)
            for observer in self.device.observers:
                observer.saw(self.address + offset, place)

    def _settle(self) -> None:
        """All submitted work is done, and the bytes here are what it left."""
        device = self.device
        if device.dead:
            device.check_readable()
        device.drain(device.timeline.submitted)
        if device.failures:
            self.check_poison("read")

    def view(self, offset: int, size_bytes: int) -> Buffer:
        """A part of this buffer as a buffer of its own, without a copy; it keeps the whole alive.

        offset, size_bytes  which bytes; UsageError when they do not lie in the buffer
        """
        offset, size = self._check_range("view", offset, size_bytes)
        part = Buffer(self.device, self.address + offset, size, 0, 0, self.name)
        part.parent = self.parent or self
        return part

    def free(self) -> None:
        """Give the memory back. Work that was submitted may still use it; nothing else may."""
        va = self.address
        self.va = None
        if self.parent is None:
            if self.is_recorded:
                self._tell_graphs()
            self.device.memory.take_back(va, self.capacity, self.name, self.fence)
        self.parent = None

    def _tell_graphs(self) -> None:
        """A graph whose recorded buffer is freed must not be replayed any more."""
        for graph in list(self.device.graphs):
            if any(isinstance(held, Buffer) and (held.parent or held) is self for held in graph._held):
                graph.broken = (
                    f"buffer {self.name or 'unnamed'} of {self.size_bytes} bytes, which it uses, was freed"
                )

    def __del__(self) -> None:
        if self.va is not None and self.parent is None:
            self.device.memory.take_back(self.va, self.capacity, self.name, self.fence)

    def elsewhere(self, call: str, device: Loader) -> UsageError:
        """The error for work of another device that names this buffer.

        call  what the message begins with, such as "copy"
        """
        if self.device.dead:
            self.device.check_alive()
        return UsageError(f"{call}: {self!r} is not on {device.name}. Copy it there first.")

    def check_poison(self, verb: str, is_overwritten: bool = False) -> None:
        """Refuse contents that a failed submission should have made, unless they are about to be replaced."""
        whole = self.parent or self
        if is_overwritten and whole is self:
            self.poison = ""
        if whole.poison:
            raise DeviceFault(
                f"{verb}: {self!r} holds no result. {whole.poison} Write or fill all of it to use it again."
            )

    def _check_range(self, verb: str, offset: int, size_bytes: int | None) -> tuple[int, int]:
        """Offset and size of a part; the size is what is left from the offset on by default."""
        if self.va is None:
            raise UsageError(f"{self!r}.{verb}: the buffer was freed. Keep it until its last use.")
        if type(offset) is not int:
            offset = checks.whole(f"{self!r}.{verb}", "offset", offset)
        if size_bytes is None:
            size_bytes = self.size_bytes - offset
        elif type(size_bytes) is not int:
            size_bytes = checks.whole(f"{self!r}.{verb}", "size_bytes", size_bytes)
        if offset < 0 or size_bytes < 0 or offset + size_bytes > self.size_bytes:
            raise UsageError(
                f"{self!r}.{verb}(offset={checks.shown(offset)}): {checks.shown(size_bytes)} bytes from there do not "
                f"lie in its {self.size_bytes}."
            )
        return offset, size_bytes

    def __repr__(self) -> str:
        where = "freed" if self.va is None else f"{self.va:#x}"
        name = f" {self.name!r}" if self.name else ""
        return f"Buffer({self.device.name}{name} {where}, {self.size_bytes} bytes)"


class Freed(NamedTuple):
    """A named buffer that is gone, and which submissions it can have been in: those after `since`, up to `until`."""

    va: int
    capacity: int
    name: str
    since: int
    until: int


def kind_of(arg: object) -> str:
    """What an argument is; numbers of other libraries count, arrays of any size do not."""
    if isinstance(arg, Buffer):
        return "buffer"
    if hasattr(arg, "__len__"):
        return ""
    return "int" if hasattr(arg, "__index__") else "float" if hasattr(arg, "__float__") else ""


class Pool:
    """Free blocks of one device by size class. `alloc` and `take_back` are hot: one list pop, one list append.

    mapped_bytes  taken from the system, in use or not
    limit_bytes   of large free blocks above this, half are unmapped; default a quarter of the machine's memory, at
                  least 1 GiB
    regions       mapped for the pool: va -> bytes
    quarantined   blocks that abandoned work may still write: never handed out again
    """

    large_bytes = LARGE_BYTES  # destructors may run when the module's own names are gone

    def __init__(self, device: Base, limit_bytes: int | None = None) -> None:
        self.device = device
        self.alignment = device.alignment  # of blocks of more than ALIGNMENT bytes
        # so that a pointer behind a buffer's end is none to the next one, for who checks accesses
        self.apart_bytes = 1 if "memory" in device.config.sanitize else 0
        self.free: dict[int, list[tuple[int, int]]] = {}  # capacity -> (va, fence)
        self.mapped_bytes = 0
        self.limit_bytes = _default_limit() if limit_bytes is None else limit_bytes
        self.free_large_bytes = 0
        self._slab_at = self._slab_end = 0
        self._slabs: list[int] = []
        self.regions: dict[int, int] = {}  # mapped for the pool: va -> bytes
        # named buffers that are gone, for reports: the fields of Freed, which destructors do not wait for
        self.freed: deque[tuple[int, int, str, int, int]] = deque(maxlen=256)
        # blocks that abandoned work may still write: never handed out again
        self.quarantined: set[int] = set()
        self.is_unusual = False  # something of the following holds, or a block is in quarantine
        self._is_retired = self._is_abandoned = False
        # block, or id of a buffer elsewhere -> who had it last
        self._live: dict[int, weakref.ref[Buffer]] = {}
        self.lock = threading.RLock()  # a destructor may run inside an allocation

    def alloc(self, size_bytes: int, name: str | None = None) -> Buffer:
        """A buffer of at least this size, its contents unknown."""
        if type(size_bytes) is not int or size_bytes < 0:
            size_bytes = checks.whole("alloc", "size_bytes", size_bytes, 0, MAX_BUFFER_BYTES)
        if name is not None and type(name) is not str:
            checks.text("alloc", "name", name)
        room = size_bytes + self.apart_bytes
        if room <= ALIGNMENT:
            capacity = ALIGNMENT
        elif room <= 4096:
            capacity = (room + self.alignment - 1) & -self.alignment
        else:
            step = 1 << room.bit_length() - 4  # eight classes for each power of two
            capacity = (room + step - 1) & -step
        device = self.device
        if device.dead:
            device.check_alive()
        try:
            va, fence = self.free[capacity].pop()
        except (KeyError, IndexError):
            return self._alloc_new(size_bytes, capacity, name)
        if capacity >= LARGE_BYTES:
            self.free_large_bytes -= capacity
        buffer = Buffer(device, va, size_bytes, capacity, fence, name)
        self._live[va] = weakref.ref(buffer)
        if device.observers:
            self._tell(buffer)
        return buffer

    def alloc_idle(self, size_bytes: int, name: str) -> Buffer:
        """At most 64 bytes that no work in flight uses any more, for callers that write there without waiting."""
        self.device.check_alive()
        capacity = ALIGNMENT
        va = self.take_idle(capacity)
        if va is None:
            return self._alloc_new(size_bytes, capacity, name)
        buffer = Buffer(self.device, va, size_bytes, capacity, 0, name)
        self._live[va] = weakref.ref(buffer)
        self._tell(buffer)
        return buffer

    def alloc_apart(self, size_bytes: int, name: str, map_memory: Callable[[int], int]) -> Buffer:
        """A buffer of memory of another kind, which no work in flight uses any more.

        map_memory  maps so many bytes of it, for this buffer alone; `Base.unmap_memory` takes them back. They never
                    become other buffers than those of this call, whose capacities no others have
        """
        self.device.check_alive()
        capacity = max(LARGE_BYTES, (size_bytes + 4095) // 4096 * 4096) + APART_BYTES
        va = self.take_idle(capacity)
        if va is None:
            with self.lock:
                va = self._map(capacity, size_bytes, name, map_memory)
        else:
            self.free_large_bytes -= capacity
        buffer = Buffer(self.device, va, size_bytes, capacity, 0, name)
        self._live[va] = weakref.ref(buffer)
        self._tell(buffer)
        return buffer

    def take_idle(self, capacity: int) -> int | None:
        """Take the block of this size that was freed first out of the pool, unless work in flight may still use it."""
        try:
            va, fence = self.free[capacity].pop(0)
        except (KeyError, IndexError):
            return None
        if self.device.timeline.has_reached(fence):
            return va
        self.free[capacity].insert(0, (va, fence))
        return None

    def _tell(self, buffer: Buffer) -> None:
        for observer in self.device.observers:
            observer.alloc(buffer.address, buffer.size_bytes, buffer.capacity, buffer.name)

    def take_back(self, va: int, capacity: int, name: str | None = None, fence: int = 0) -> None:
        """Put a block into the pool. Safe from destructors and at exit."""
        device = self.device
        submitted = device.timeline.submitted
        if name is not None:
            self.freed.append((va, capacity, name, fence, submitted))
        if self.is_unusual and not self._takes_back(va, capacity):
            return
        for observer in device.observers:
            observer.free(va, capacity)
        try:
            self.free[capacity].append((va, submitted))
        except KeyError:
            self.free.setdefault(capacity, []).append((va, submitted))
        if capacity >= self.large_bytes:
            self.free_large_bytes += capacity
            # a destructor may run while its thread holds the device's lock: never wait for the pool's here, nor call a
            # kernel driver, whose locks it may hold, too
            is_much = self.free_large_bytes > self.limit_bytes and device.unmaps_anywhere
            if is_much and self.lock.acquire(blocking=False):
                try:
                    self.trim(self.limit_bytes // 2)
                finally:
                    self.lock.release()

    def _takes_back(self, va: int, capacity: int) -> bool:
        """Whether a freed block is handed out again; not one in quarantine, nor any of a device that has stopped."""
        if self._is_abandoned or va in self.quarantined:
            return False
        if not self._is_retired:
            return True
        if va in self.regions:
            self.free.setdefault(capacity, []).append((va, 0))
            open_devices.retired(self.device)
        return False

    def trim(self, keep_bytes: int = 0, wait: bool = False) -> int:
        """Unmap free large blocks, the largest first, until at most `keep_bytes` are kept. Returns bytes unmapped.

        Blocks that work in flight may still use stay, unless `wait` says to wait for it.
        """
        if wait:
            with contextlib.suppress(WaitTimeout):  # what is done is enough to be going on with
                self.device.drain(self.device.timeline.submitted)
        unmapped = 0
        with self.lock:
            done = self.device.timeline.value
            for capacity in sorted((c for c in self.free if c >= LARGE_BYTES), reverse=True):
                blocks = self.free[capacity]
                for _ in range(len(blocks)):
                    if self.free_large_bytes <= keep_bytes:
                        return unmapped
                    va, fence = blocks.pop(0)
                    if fence > done:
                        blocks.append((va, fence))
                        continue
                    self._unmap(va, capacity)
                    self.free_large_bytes -= capacity
                    unmapped += capacity
        return unmapped

    def with_room(self, take: Callable[[], T]) -> T:
        """What `take` returns. Where the system refuses it, free blocks go back to the system first, then once more."""
        try:
            return take()
        except DriverError:
            gc.collect()  # buffers that only circles of objects hold
            if not self.trim(0, wait=True):
                raise
        return take()

    def quarantine(self, first: int) -> int:
        """Never hand out again what submissions from `first` on may use; returns how many bytes that is."""
        lost = 0
        with self.lock:
            for buffer in self.owners():
                if buffer.is_recorded or max(buffer.last, buffer.fence) >= first:
                    self.quarantined.add(buffer.address)
                    self.is_unusual = True
                    lost += buffer.capacity
            for capacity, blocks in self.free.items():
                kept = [block for block in blocks if block[1] < first]
                gone = capacity * (len(blocks) - len(kept))
                blocks[:] = kept
                lost += gone
                if capacity >= LARGE_BYTES:
                    self.free_large_bytes -= gone
        return lost

    def retire(self) -> None:
        """The device has stopped. Nothing is handed out any more, and large blocks are unmapped when they are freed."""
        self.is_unusual = self._is_retired = True

    def forget_parent(self) -> None:
        """In a child of fork that has a copy of the memory: another thread of the parent may have had the lock."""
        self.lock = threading.RLock()

    def abandon(self) -> None:
        """In a child of fork: the memory is the parent's, so nothing of it is given back from here."""
        self.lock = threading.RLock()
        self.is_unusual = self._is_abandoned = True

    def close(self, is_last: bool = False) -> None:
        """Unmap what is free; slabs go when no buffer of the device is alive. The device has stopped.

        is_last  nobody holds any of its buffers
        """
        self.free_large_bytes = 0
        if is_last:
            self.abandon()
            for va, size_bytes in list(self.regions.items()):
                self._unmap(va, size_bytes)
            self._forget_free()  # a buffer whose destructor runs after the device's asks for this again
            return
        for capacity in [capacity for capacity in self.free if capacity >= LARGE_BYTES]:
            for va, _ in self.free.pop(capacity):
                self._unmap(va, capacity)
        if not self.owners() and not self.quarantined:
            for slab in self._slabs:
                self._unmap(slab, SLAB_BYTES)
            self._forget_free()

    def _forget_free(self) -> None:
        """There are no slabs any more, and nothing to hand out."""
        self._slabs.clear()
        self._slab_at = self._slab_end = 0
        self.free.clear()

    def _alloc_new(self, size_bytes: int, capacity: int, name: str | None) -> Buffer:
        checks.whole("alloc", "size_bytes", size_bytes, 0, MAX_BUFFER_BYTES)
        self.device.check_alive()
        with self.lock:
            if capacity >= LARGE_BYTES:
                va = self._map(capacity, size_bytes, name)
            else:
                if capacity > ALIGNMENT:
                    self._slab_at = -(-self._slab_at // self.alignment) * self.alignment
                if self._slab_at + capacity > self._slab_end:
                    slab = self._map(SLAB_BYTES, size_bytes, name)
                    self._slabs.append(slab)
                    self._slab_at, self._slab_end = slab, slab + SLAB_BYTES
                va = self._slab_at
                self._slab_at += capacity
        buffer = Buffer(self.device, va, size_bytes, capacity, 0, name)
        self._live[va] = weakref.ref(buffer)
        self._tell(buffer)
        return buffer

    def _map(
        self, capacity: int, size_bytes: int, name: str | None, map_memory: Callable[[int], int] | None = None
    ) -> int:
        take = map_memory or self.device.map_memory
        open_devices.unmap_closed()
        if self.free_large_bytes > self.limit_bytes:
            self.trim(self.limit_bytes // 2)
        try:
            va = self.with_room(lambda: take(capacity))
        except DriverError as refusal:
            raise self._out_of_memory(size_bytes, refusal) from None
        self.mapped_bytes += capacity
        self.regions[va] = capacity
        for observer in self.device.observers:
            observer.mapped(va, capacity, name)
        return va

    def _unmap(self, va: int, capacity: int) -> None:
        self.device.unmap_memory(va, capacity)
        self.mapped_bytes -= capacity
        del self.regions[va]
        self._live.pop(va, None)
        for observer in self.device.observers:
            observer.unmapped(va, capacity)

    def adopt(self, buffer: Buffer) -> None:
        """List a buffer among the owners whose memory is not the pool's; until `disown`, which its destructor calls."""
        self._live[id(buffer)] = weakref.ref(buffer)

    def disown(self, buffer: Buffer) -> None:
        """Undo `adopt`."""
        self._live.pop(id(buffer), None)

    def owners(self) -> list[Buffer]:
        """Every live buffer of the pool; asked at a fault, when memory is out, and when the device closes."""
        buffers = [known() for known in list(self._live.values())]
        return [buffer for buffer in buffers if buffer is not None and buffer.va is not None]

    def _out_of_memory(self, size_bytes: int, refusal: DriverError) -> DriverError:
        owners = sorted(self.owners(), key=lambda buffer: buffer.capacity, reverse=True)
        held = sum(buffer.capacity for buffer in owners)
        largest = ", ".join(f"{b.name or 'unnamed'} {b.size_bytes} bytes" for b in owners[:8]) or "none"
        return DriverError(
            f"alloc({size_bytes}) on {self.device.name}: out of memory. {len(owners)} live buffers hold {held} bytes; "
            f"the largest: {largest}. Free some of them. The system said: {refusal}"
        )


def _default_limit() -> int:
    try:
        total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (ValueError, OSError):
        total = 0
    return max(1 << 30, total // 4)
