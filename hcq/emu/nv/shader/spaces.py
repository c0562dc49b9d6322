"""State spaces: how an address becomes bytes, for global, shared, local and parameter memory and the generic mix.

In       a batch, the threads that access, their addresses
Out      values; BadAccess with the position of the first address that is out of bounds
Changes  shared and local memory of the batch, global memory through its Memory
Next     memory_ops.py (ld, st), atomic_ops.py, clusters.py (shared memory of several blocks), thread_copies.py
         (what a store meets), machine.py (who owns the arrays)
Source   PTX ISA, "State Spaces", "Generic Addressing"

Shared memory is one array, a stretch per block; local memory one array, a stretch per thread. Inside the generic window
of a space, an address is the window's start plus the address in that space.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Protocol

import numpy as np

from hcq.emu.nv.shader.batch import Batch
from hcq.emu.nv.shader.errors import BadAccess
from hcq.emu.nv.shader.types import Lanes, Scalar

WINDOW_BYTES = 1 << 24  # of a space; that of shared memory is as large for each block of a cluster
MOST_BYTES = 16  # of an access to any memory but global
PARAM_WINDOW = 0x7F7F_0000_0000  # generic addresses of kernel parameters; no mapping of a process is there


class Space(Protocol):
    """Loads and stores of one state space. `lanes` are the threads, None for all; addresses are uint64, one each."""

    is_shared_by_all: bool  # whether equal addresses of different blocks are the same memory

    def load(self, batch: Batch, lanes: Lanes | None, at: Lanes, scalar: Scalar, count: int) -> Lanes:
        """`count` numbers for each thread: (n,) addresses -> (n,) or (n, count). Raises BadAccess."""
        ...

    def store(self, batch: Batch, lanes: Lanes | None, at: Lanes, values: Lanes) -> None:
        """Write (n,) or (n, count) numbers at (n,) addresses; of two threads at one place the later wins.

        Raises BadAccess.
        """
        ...


class Global(Space):
    """Global and constant memory: whatever the launch gave as Memory."""

    is_shared_by_all = True

    def load(self, batch: Batch, lanes: Lanes | None, at: Lanes, scalar: Scalar, count: int) -> Lanes:
        return batch.memory.load(at, scalar, count)

    def store(self, batch: Batch, lanes: Lanes | None, at: Lanes, values: Lanes) -> None:
        batch.memory.store(at, values)


class Params(Space):
    """The kernel's parameters: addresses are offsets from the first."""

    is_shared_by_all = True

    def load(self, batch: Batch, lanes: Lanes | None, at: Lanes, scalar: Scalar, count: int) -> Lanes:
        size = np.dtype(scalar).itemsize * count
        _check(at, len(batch.params), size, "parameters", "the kernel's parameters have")
        return _typed(batch.params, scalar, count).take(at.view(np.int64) // size, axis=0)

    def store(self, batch: Batch, lanes: Lanes | None, at: Lanes, values: Lanes) -> None:
        raise BadAccess(0, int(at[0]), "a kernel's parameters are read-only")


class Stretches(Space, ABC):
    """Memory of which every block, or every thread, has a stretch of one array."""

    is_shared_by_all = False

    @abstractmethod
    def index(self, batch: Batch, lanes: Lanes | None, at: Lanes, size: int) -> tuple[Lanes, Lanes]:
        """The array, and which of its elements of this size lie at the addresses."""

    def load(self, batch: Batch, lanes: Lanes | None, at: Lanes, scalar: Scalar, count: int) -> Lanes:
        memory, index = self.index(batch, lanes, at, np.dtype(scalar).itemsize * count)
        return _typed(memory, scalar, count).take(index, axis=0)

    def store(self, batch: Batch, lanes: Lanes | None, at: Lanes, values: Lanes) -> None:
        count = 1 if values.ndim == 1 else values.shape[1]
        memory, index = self.index(batch, lanes, at, values.dtype.itemsize * count)
        _typed(memory, values.dtype.type, count)[index] = values


class Shared(Stretches):
    """Shared memory of the thread's block, and of the other blocks of its cluster."""

    def index(self, batch: Batch, lanes: Lanes | None, at: Lanes, size: int) -> tuple[Lanes, Lanes]:
        return batch.shared, places_of(batch, lanes, at, size) >> (size.bit_length() - 1)

    def store(self, batch: Batch, lanes: Lanes | None, at: Lanes, values: Lanes) -> None:
        super().store(batch, lanes, at, values)
        if batch.thread_copies.are_under_way:
            size = values.dtype.itemsize * (1 if values.ndim == 1 else values.shape[1])
            batch.thread_copies.stored(batch.shared, places_of(batch, lanes, at, size), size)


class Local(Stretches):
    """Local memory of the thread."""

    def index(self, batch: Batch, lanes: Lanes | None, at: Lanes, size: int) -> tuple[Lanes, Lanes]:
        _check(at, batch.local_bytes, size, "local", "the thread's local memory has")
        row = batch.local_row if lanes is None else batch.local_row[lanes]
        return batch.local, (at.view(np.int64) + row * batch.local_bytes) >> (size.bit_length() - 1)


class Generic(Space):
    """Generic addresses: a window each for shared, local and parameters; all else is global."""

    is_shared_by_all = False

    def load(self, batch: Batch, lanes: Lanes | None, at: Lanes, scalar: Scalar, count: int) -> Lanes:
        if _is_all_global(batch, at):
            return batch.memory.load(at, scalar, count)
        values = np.zeros((len(at),) if count == 1 else (len(at), count), scalar)
        for space, chosen, start in _split(batch, at):
            who = chosen if lanes is None else lanes[chosen]
            try:
                values[chosen] = space.load(batch, who, at[chosen] - np.uint64(start), scalar, count)
            except BadAccess as bad:
                raise _moved(bad, chosen, start) from None
        return values

    def store(self, batch: Batch, lanes: Lanes | None, at: Lanes, values: Lanes) -> None:
        if _is_all_global(batch, at):
            batch.memory.store(at, values)
            return
        for space, chosen, start in _split(batch, at):
            who = chosen if lanes is None else lanes[chosen]
            try:
                space.store(batch, who, at[chosen] - np.uint64(start), values[chosen])
            except BadAccess as bad:
                raise _moved(bad, chosen, start) from None


GLOBAL, PARAMS, SHARED, LOCAL, GENERIC = Global(), Params(), Shared(), Local(), Generic()


def is_global(batch: Batch, va: int) -> bool:
    """Whether a generic address is in no window."""
    return _is_all_global(batch, np.array([va], np.uint64))


BY_NAME: dict[str, Space] = {"global": GLOBAL, "const": GLOBAL, "shared": SHARED, "local": LOCAL, "": GENERIC}


def places_of(batch: Batch, lanes: Lanes | None, at: Lanes, size: int) -> Lanes:
    """Where addresses in shared memory are in that of the whole batch. Raises BadAccess outside of the block's."""
    if batch.clusters is not None:
        _check_size(at, size)
        return batch.clusters.places(batch, lanes, at, size)
    _check(at, batch.shared_bytes, size, "shared", "the block's shared memory has")
    found: Lanes = at.view(np.int64) + (batch.shared_start if lanes is None else batch.shared_start[lanes])
    return found


def own_places(batch: Batch, lanes: Lanes | None, offsets: Lanes) -> Lanes:
    """Offsets in the shared memory of each thread's block, which descriptors of matrices are, as addresses."""
    return offsets if batch.clusters is None else offsets | batch.clusters.own(batch, lanes)


def window_of(batch: Batch, space: str) -> int:
    """Where the generic addresses of a space begin."""
    return {"shared": batch.shared_window, "local": batch.local_window, "param": PARAM_WINDOW}.get(space, 0)


def without_window(at: int, window: int, window_bytes: int = WINDOW_BYTES) -> int:
    """The address in a space of an address that may be generic: inside of the window, it is."""
    return at - window if 0 <= at - window < window_bytes else at


def in_shared(batch: Batch, at: Lanes) -> Lanes:
    """Which generic addresses are of shared memory."""
    found: Lanes = (at - np.uint64(batch.shared_window)) < np.uint64(batch.shared_window_bytes)
    return found


def shared_address(batch: Batch, at: Lanes) -> Lanes:
    """Addresses in shared memory, of such that may be generic."""
    return np.where(in_shared(batch, at), at - np.uint64(batch.shared_window), at)


def shared_number(batch: Batch, at: int) -> int:
    """The same of one address."""
    return without_window(at, batch.shared_window, batch.shared_window_bytes)


def _windows(batch: Batch) -> tuple[tuple[int, int, Space], ...]:
    """(start, bytes, space)"""
    shared = batch.shared_window, batch.shared_window_bytes, SHARED
    return shared, (batch.local_window, WINDOW_BYTES, LOCAL), (PARAM_WINDOW, WINDOW_BYTES, PARAMS)


def _is_all_global(batch: Batch, at: Lanes) -> bool:
    """Quick and one-sided: False does not mean that some are not global."""
    if not len(at):
        return True
    windows = _windows(batch)
    first, end = min(start for start, _, _ in windows), max(start + size for start, size, _ in windows)
    return int(at.max()) < first or int(at.min()) >= end


def _split(batch: Batch, at: Lanes) -> list[tuple[Space, Lanes, int]]:
    """(space, positions, start of its window) of the addresses."""
    rest = np.ones(len(at), bool)
    found: list[tuple[Space, Lanes, int]] = []
    for start, size, space in _windows(batch):
        inside = (at - np.uint64(start)) < np.uint64(size)
        if inside.any():
            found.append((space, np.flatnonzero(inside), start))
            rest &= ~inside
    if rest.any():
        found.append((GLOBAL, np.flatnonzero(rest), 0))
    return found


def _moved(bad: BadAccess, chosen: Lanes, start: int) -> BadAccess:
    return BadAccess(int(chosen[bad.index]), bad.address + start, bad.why, bad.misaligned, bad.space)


def _check(at: Lanes, limit: int, size: int, space: str, what: str) -> None:
    """All of [at, at + size) must be below the limit; only global memory is accessed in more than 16 bytes."""
    _check_size(at, size)
    if len(at) and (limit < size or int(at.max()) > limit - size):
        index = int(np.argmax(at > np.uint64(limit - size))) if limit >= size else 0
        raise BadAccess(index, int(at[index]), f"{what} {limit} bytes", space=space)


def _check_size(at: Lanes, size: int) -> None:
    if size > MOST_BYTES and len(at):
        raise BadAccess(0, int(at[0]), f"only global memory is accessed in more than {MOST_BYTES} bytes")


def _typed(memory: Lanes, scalar: Scalar, count: int) -> Lanes:
    view: Lanes = memory.view(scalar)
    return view if count == 1 else view.reshape(-1, count)
