"""State spaces: how an address becomes bytes, for global, shared, local and parameter memory and the generic mix.

In       a batch, the threads that access, their addresses
Out      values; BadAccess with the position of the first address that is out of bounds
Changes  shared and local memory of the batch, global memory through its Memory
Next     memory_ops.py (ld, st), atomic_ops.py, thread_copies.py (what a store meets), machine.py (who owns the arrays)
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

WINDOW_BYTES = 1 << 24
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
    """Shared memory of the thread's block."""

    def index(self, batch: Batch, lanes: Lanes | None, at: Lanes, size: int) -> tuple[Lanes, Lanes]:
        _check(at, batch.shared_bytes, size, "shared", "the block's shared memory has")
        start = batch.shared_start if lanes is None else batch.shared_start[lanes]
        return batch.shared, (at.view(np.int64) + start) >> (size.bit_length() - 1)

    def store(self, batch: Batch, lanes: Lanes | None, at: Lanes, values: Lanes) -> None:
        super().store(batch, lanes, at, values)
        if batch.thread_copies.are_under_way:
            start = batch.shared_start if lanes is None else batch.shared_start[lanes]
            size = values.dtype.itemsize * (1 if values.ndim == 1 else values.shape[1])
            batch.thread_copies.stored(batch.shared, at.view(np.int64) + start, size)


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
BY_NAME: dict[str, Space] = {"global": GLOBAL, "const": GLOBAL, "shared": SHARED, "local": LOCAL, "": GENERIC}


def window_of(batch: Batch, space: str) -> int:
    """Where the generic addresses of a space begin."""
    return {"shared": batch.shared_window, "local": batch.local_window, "param": PARAM_WINDOW}.get(space, 0)


def without_window(at: int, window: int) -> int:
    """The address in a space of an address that may be generic: inside of the window, it is."""
    return at - window if 0 <= at - window < WINDOW_BYTES else at


def _windows(batch: Batch) -> tuple[tuple[int, Space], ...]:
    return (batch.shared_window, SHARED), (batch.local_window, LOCAL), (PARAM_WINDOW, PARAMS)


def _is_all_global(batch: Batch, at: Lanes) -> bool:
    """Quick and one-sided: False does not mean that some are not global."""
    if not len(at):
        return True
    starts = [start for start, _ in _windows(batch)]
    return int(at.max()) < min(starts) or int(at.min()) >= max(starts) + WINDOW_BYTES


def _split(batch: Batch, at: Lanes) -> list[tuple[Space, Lanes, int]]:
    """(space, positions, start of its window) of the addresses."""
    rest = np.ones(len(at), bool)
    found: list[tuple[Space, Lanes, int]] = []
    for start, space in _windows(batch):
        inside = (at - np.uint64(start)) < np.uint64(WINDOW_BYTES)
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
    if size > MOST_BYTES and len(at):
        raise BadAccess(0, int(at[0]), f"only global memory is accessed in more than {MOST_BYTES} bytes")
    if len(at) and (limit < size or int(at.max()) > limit - size):
        index = int(np.argmax(at > np.uint64(limit - size))) if limit >= size else 0
        raise BadAccess(index, int(at[index]), f"{what} {limit} bytes", space=space)


def _typed(memory: Lanes, scalar: Scalar, count: int) -> Lanes:
    view: Lanes = memory.view(scalar)
    return view if count == 1 else view.reshape(-1, count)
