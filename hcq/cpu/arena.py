"""Code arena: where small kernels share pages, so that ten thousand of them are a few mappings and not thirty thousand.

In       how many bytes of code and of constants a kernel has; later the bytes, and later still that nothing runs them
Out      a Slot: addresses in memory that can be executed, and in memory that can be read
Changes  an anonymous file for each chunk, mapped once: the front r-x for code, the rest r-- for constants
Next     link.py (who asks, and relocates for those addresses), docs/security.md (no memory is writable and executable)
Source   memfd_create(2), membarrier(2); Intel SDM 3A 9.1.3 (code that another processor writes)

No mapping of a chunk is ever writable: bytes come in by pwrite(2) on its file. A slot that was used before holds code
that some core may still have decoded, so after every write all threads pass a serializing instruction (membarrier).
Where the system refuses one of the two, or the processor would need its caches maintained by hand (aarch64), there is
no arena and every kernel has pages of its own.

A file is shared with the children of fork, who go on running what is in it. So once this process has forked, neither
side writes to the chunks that there were: their slots are used no more, and go with the chunk. Children that run no
kernel do not count (system/helper_forks.py).
"""

from __future__ import annotations

import bisect
import os
import threading
import weakref
from errno import EPERM

from hcq.errors import DriverError
from hcq.system import native
from hcq.system.helper_forks import makes_helper
from hcq.system.port import MAP_SHARED, PAGE_BYTES, PROT_EXEC, PROT_READ, Port

CHUNK_BYTES = 256 << 10  # the first; later ones are half as large as all before them, so that they stay few
MAX_CHUNK_BYTES = 64 << 20  # code reaches its constants with 32 bits
MAX_SLOT_BYTES = 64 << 10  # larger kernels have pages of their own
ALIGNMENT = 64  # of slots: a line of the caches is never shared
TRAP = b"\xcc"  # int3: what a free slot holds, so that a jump there is stopped

# the number of the system call, on machines whose instruction caches follow memory
_MEMBARRIER = {"x86_64": 324}
_REGISTER_SYNC_CORE, _SYNC_CORE = 1 << 6, 1 << 5
_MFD_NOEXEC_SEAL = 8  # nobody can make a program of the file; mapping it to execute is another matter


class Slot:
    """Room for one kernel."""

    def __init__(self, chunk: _Chunk, code: tuple[int, int], constants: tuple[int, int]) -> None:
        self.chunk, self.code, self.constants = chunk, code, constants
        self.code_va = chunk.va + code[0]
        self.constants_va = chunk.va + constants[0]

    def write(self, code: bytes | bytearray, constants: bytes | bytearray) -> None:
        """Fill it; when this returns, every thread that jumps there runs this code. Raises DriverError."""
        self.chunk.arena.write(self, bytes(code), bytes(constants))

    def free(self) -> None:
        """Nothing runs there any more, and nothing will."""
        self.chunk.arena.free(self)


class Arena:
    """Chunks of code of one device."""

    def __init__(self, port: Port, machine_name: str) -> None:
        self.port = port
        self.chunks: list[_Chunk] = []
        self.is_closed = False
        _watch_forks()
        _arenas.add(self)
        self._lock = threading.RLock()
        self._membarrier = _MEMBARRIER.get(machine_name, 0)
        has_files = hasattr(os, "memfd_create")  # not every C library has it
        self.is_usable = has_files and bool(self._membarrier) and not self._barrier(_REGISTER_SYNC_CORE)

    def place(self, code_bytes: int, constants_bytes: int) -> Slot | None:
        """A slot of those sizes, or None where there can be none."""
        if not self.is_usable or code_bytes + constants_bytes > MAX_SLOT_BYTES:
            return None
        with self._lock:
            for chunk in self.chunks:
                if chunk.is_ours and (slot := chunk.place(code_bytes, constants_bytes)) is not None:
                    return slot
            total = sum(chunk.size_bytes for chunk in self.chunks if chunk.is_ours)
            size = max(CHUNK_BYTES, min(total // 2 // CHUNK_BYTES * CHUNK_BYTES, MAX_CHUNK_BYTES))
            try:
                chunk = _Chunk(self, size)
            # a policy against such files, or no memory: the kernel's own pages tell which
            except DriverError:
                self.is_usable = False
                return None
            self.chunks.append(chunk)
            return chunk.place(code_bytes, constants_bytes)

    def write(self, slot: Slot, code: bytes, constants: bytes) -> None:
        """Put code and constants into a slot; from then on every thread of the process sees the new instructions.

        Raises  DriverError when the kernel refuses the barrier that makes it so (membarrier)
        """
        start, end = slot.code
        slot.chunk.write(start, code.ljust(end - start, TRAP))
        if constants:
            slot.chunk.write(slot.constants[0], constants)
        error = self._barrier(_SYNC_CORE)
        if error == EPERM:  # a child of fork registers itself
            error = self._barrier(_REGISTER_SYNC_CORE) or self._barrier(_SYNC_CORE)
        if error:
            raise DriverError(f"membarrier(PRIVATE_EXPEDITED_SYNC_CORE) -> errno {error}.")

    def free(self, slot: Slot) -> None:
        """Give a slot back. What was there traps from now on, if it can be written."""
        with self._lock:
            start, end = slot.code
            try:
                if slot.chunk.is_ours:
                    slot.chunk.write(start, TRAP * (end - start))
            except DriverError:
                pass  # memory is out: what is there is overwritten when the slot is used again
            slot.chunk.code.give_back(slot.code)
            slot.chunk.constants.give_back(slot.constants)
            self._drop_empty()

    def close(self) -> None:
        """The device has stopped. Chunks with slots in use go with the last of them."""
        self.is_closed = True
        with self._lock:
            self._drop_empty()

    def forked(self) -> None:
        """In the child: another thread of the parent may have held the lock."""
        self._lock = threading.RLock()

    def _drop_empty(self) -> None:
        """Give chunks back that nobody uses; one stays for the next kernel."""
        empty = sorted(
            (chunk for chunk in self.chunks if chunk.is_empty), key=lambda chunk: not chunk.is_ours
        )
        for chunk in empty[not self.is_closed :]:
            self.chunks.remove(chunk)
            chunk.close()

    def _barrier(self, command: int) -> int:
        """0, or an errno."""
        return max(0, -native.system_call(self._membarrier, command))


class _Chunk:
    """One file, mapped: code in its first three quarters, constants in the last."""

    def __init__(self, arena: Arena, size_bytes: int) -> None:
        self.arena, self.size_bytes = arena, size_bytes
        self._forks = _forks
        port = arena.port
        split = size_bytes // 4 * 3 // PAGE_BYTES * PAGE_BYTES
        self.code, self.constants = _Area(0, split), _Area(split, size_bytes)
        self.fd = _anonymous_file(size_bytes)
        try:
            self.va = port.mmap(0, size_bytes, PROT_READ, MAP_SHARED, self.fd)
            try:
                port.mprotect(self.va, split, PROT_READ | PROT_EXEC)
            except BaseException:
                port.munmap(self.va, size_bytes)
                raise
        except BaseException:
            os.close(self.fd)
            raise

    @property
    def is_ours(self) -> bool:
        """Whether no other process runs what is in it."""
        return self._forks == _forks

    @property
    def is_empty(self) -> bool:
        return self.code.is_whole and self.constants.is_whole

    def place(self, code_bytes: int, constants_bytes: int) -> Slot | None:
        code = self.code.take(code_bytes)
        if code is None:
            return None
        constants = self.constants.take(constants_bytes)
        if constants is None:
            self.code.give_back(code)
            return None
        return Slot(self, code, constants)

    def write(self, offset: int, data: bytes) -> None:
        done = 0
        try:
            while done < len(data):
                done += os.pwrite(self.fd, data[done:], offset + done)
        except OSError as error:
            raise DriverError(f"pwrite(code of kernels, {len(data)} bytes) -> {error.strerror}.") from None

    def close(self) -> None:
        self.arena.port.munmap(self.va, self.size_bytes)
        os.close(self.fd)


class _Area:
    """Which parts of a range are free: sorted, never touching each other."""

    def __init__(self, start: int, end: int) -> None:
        self.whole = [(start, end)]
        self.free = [(start, end)]

    @property
    def is_whole(self) -> bool:
        return self.free == self.whole

    def take(self, size_bytes: int) -> tuple[int, int] | None:
        """The first free part of that size."""
        size = -(-size_bytes // ALIGNMENT) * ALIGNMENT
        if not size:
            return self.whole[0][0], self.whole[0][0]
        for index, (start, end) in enumerate(self.free):
            if end - start >= size:
                if end - start == size:
                    del self.free[index]
                else:
                    self.free[index] = start + size, end
                return start, start + size
        return None

    def give_back(self, part: tuple[int, int]) -> None:
        start, end = part
        if start == end:
            return
        index = bisect.bisect(self.free, part)
        if index < len(self.free) and self.free[index][0] == end:
            end = self.free.pop(index)[1]
        if index and self.free[index - 1][1] == start:
            index -= 1
            start = self.free.pop(index)[0]
        self.free.insert(index, (start, end))


_forks = 0  # of this process and those it comes from
_is_watching = False
_arenas: weakref.WeakSet[Arena] = weakref.WeakSet()


def _watch_forks() -> None:
    global _is_watching
    if not _is_watching:
        _is_watching = True
        os.register_at_fork(before=_count_fork, after_in_child=_renew_locks)


def _count_fork() -> None:
    global _forks
    if not makes_helper():
        _forks += 1


def _renew_locks() -> None:
    for arena in list(_arenas):
        arena.forked()


def _anonymous_file(size_bytes: int) -> int:
    """A file without a name, of zeros that take memory when they are written. Raises DriverError."""
    try:
        try:
            fd = os.memfd_create("code of kernels", os.MFD_CLOEXEC | _MFD_NOEXEC_SEAL)
        except OSError:  # Linux before 6.3 does not know the flag
            fd = os.memfd_create("code of kernels", os.MFD_CLOEXEC)
        try:
            os.ftruncate(fd, size_bytes)
        except BaseException:
            os.close(fd)
            raise
    except OSError as error:
        raise DriverError(f"memfd_create({size_bytes} bytes) -> {error.strerror}.") from None
    return fd
