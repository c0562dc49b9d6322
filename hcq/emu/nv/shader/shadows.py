"""Shadows of the registers and memory of a batch: what of them nobody wrote (HCQ_SANITIZE=init).

In       the blocks that run together; what instructions make of shadows
Out      `Unwritten`: shadows of registers, shared and local memory, and what is told of their use
Changes  itself
Next     init_steps.py and shadow_results.py (who follow instructions), hcq/emu/shader/unwritten.py (what is told),
         checks.py (who attaches an Unwritten)

A shadow has the layout of what it shadows, so that the spaces of a batch load and store shadows, too: a bit is set
where nobody wrote. Registers of the entry are followed; those of functions that it calls count as written.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

import numpy as np

from hcq.emu.nv.shader import spaces
from hcq.emu.nv.shader.batch import Batch
from hcq.emu.nv.shader.decode import Registers
from hcq.emu.nv.shader.device_heap import SIZE_BYTES, START, Heap
from hcq.emu.nv.shader.errors import BadAccess
from hcq.emu.nv.shader.groups import Group
from hcq.emu.nv.shader.memory import Memory
from hcq.emu.nv.shader.memory_ops import of_lanes
from hcq.emu.nv.shader.memory_steps import names
from hcq.emu.nv.shader.program import Program
from hcq.emu.nv.shader.syntax import Function, Instruction
from hcq.emu.nv.shader.thread_copies import ThreadCopies
from hcq.emu.nv.shader.types import Lanes, Scalar
from hcq.emu.shader.checks import Checks
from hcq.emu.shader.unwritten import Read, tell

if TYPE_CHECKING:
    from hcq.events.unwritten_memory import UnwrittenMemory

UNWRITTEN = 0xFF
# what writes shared memory in a way that is not followed
OTHER_WRITERS = ("stmatrix", "wmma", "mbarrier", "tensormap", "wgmma")
Follow = Callable[["Unwritten", Registers, Group], list[tuple[int, Any, Read | None]]]


class _Global:
    """The shadow of global memory. of: what is known of it; None: all of it counts as written."""

    def __init__(self, of: UnwrittenMemory | None) -> None:
        self.of = of

    def load(self, addresses: Lanes, scalar: Scalar, count: int) -> Lanes:
        """As Memory.load."""
        found = None if self.of is None else self.of.load(addresses, np.dtype(scalar).itemsize * count)
        if found is None:
            return np.zeros(len(addresses) if count == 1 else (len(addresses), count), scalar)
        return found.view(scalar)[:, 0] if count == 1 else found.view(scalar)

    def store(self, addresses: Lanes, values: Lanes) -> None:
        """As Memory.store."""
        if self.of is not None:
            rows = np.ascontiguousarray(values).view(np.uint8).reshape(len(addresses), -1)
            self.of.store(addresses, rows if rows.any() else None, rows.shape[1])

    @property
    def heap(self) -> Heap:
        """Shadows have none: what malloc gives is memory like any other."""
        raise NotImplementedError("the shadow of memory has no heap")

    def places_of(self, addresses: Lanes, size: int) -> list[Lanes]:
        """As Memory.places_of: what lies at several places is followed at none."""
        return [addresses]


class Marking:
    """Memory as it is, in which what is stored by steps that are not followed is written."""

    def __init__(self, memory: Memory, unwritten: Unwritten, of: UnwrittenMemory) -> None:
        self.memory, self.unwritten, self.of = memory, unwritten, of
        self.load, self.places_of = memory.load, memory.places_of

    @property
    def heap(self) -> Heap:
        """As Memory.heap."""
        found: Heap = self.memory.heap
        return found

    def store(self, addresses: Lanes, values: Lanes) -> None:
        """As Memory.store."""
        if not self.unwritten.is_followed:
            self.of.store(
                addresses, None, values.dtype.itemsize * (1 if values.ndim == 1 else values.shape[1])
            )
        self.memory.store(addresses, values)


class Unwritten:
    """What nobody wrote of the registers and memory of a batch.

    shadow       a batch of shadows: its shared, local and other memory
    is_followed  the step that runs has made the shadow of what it stores
    """

    def __init__(self, checks: Checks, program: Program, batch: Batch) -> None:
        self.checks, self.program, self.batch = checks, program, batch
        self.is_followed = False
        of = None if checks.known is None else checks.known.unwritten
        made = self.shadow = object.__new__(Batch)
        made.__dict__.update(batch.__dict__)
        made.memory, made.params = _Global(of), np.zeros_like(batch.params)
        made.thread_copies = ThreadCopies(batch.count)
        made.shared = np.zeros_like(batch.shared)
        if not _writes_otherwise(program.functions):
            rows = made.shared.reshape(len(batch.blocks), -1)
            rows[:, : batch.launch.shared_bytes] = UNWRITTEN
        if of is not None:
            batch.memory = Marking(batch.memory, self, of)
        made.local, made.local_bytes = np.zeros(0, np.uint8), 0
        self._mirror_local()
        # slot -> (shadow, where it came from); what is not here was written
        self.registers: dict[int, tuple[Lanes, Read]] = {}
        entry = program.entry
        for name in entry.function.registers:
            slot = entry.slots[name]
            dtype = entry.first[slot].dtype
            if dtype.kind in "ub":
                ones = np.ones(1, bool) if dtype.kind == "b" else np.array([np.iinfo(dtype).max], dtype)
                self.registers[slot] = ones, Read("register", name=name)

    def _mirror_local(self) -> None:
        """What the machine does to local memory beside the kernel's instructions happens to the shadow, too."""
        batch, shadow = self.batch, self.shadow
        need, copy = batch.need_local, batch.copy_local

        def need_local(size_bytes: int) -> None:
            need(size_bytes)
            if batch.local_bytes != shadow.local_bytes:
                grown = np.full((batch.count, batch.local_bytes), UNWRITTEN, np.uint8)
                grown[:, : shadow.local_bytes] = (
                    shadow.local.reshape(batch.count, -1) if shadow.local_bytes else 0
                )
                shadow.local, shadow.local_bytes = grown.reshape(-1), batch.local_bytes

        def copy_local(lanes: Lanes | None, to: int, source: int, size_bytes: int) -> None:
            copy(lanes, to, source, size_bytes)
            shadow_copy(lanes, to, source, size_bytes)

        shadow_copy = Batch.copy_local.__get__(shadow)
        batch.need_local, batch.copy_local = need_local, copy_local  # type: ignore[method-assign]

    def returned(self, row: int, at: int, size_bytes: int) -> None:
        """A function that is no kernel's has written to a thread's local memory."""
        self.shadow.local.reshape(self.batch.count, -1)[row, at : at + size_bytes] = 0

    def taken(self, va: int, size_bytes: int) -> None:
        """malloc has given out memory of the heap."""
        of = getattr(self.shadow.memory, "of", None)
        if of is None:
            return
        if not of.has(START):
            of.fresh(START, SIZE_BYTES)
            of.written(START, SIZE_BYTES)
        of.again(va, size_bytes)

    # ------------------------------------------------------------ registers

    def of(self, slot: int) -> tuple[Lanes, Read] | None:
        """The shadow of a register; None where all of it was written."""
        return self.registers.get(slot)

    def put(self, slot: int, shadow: Lanes | None, read: Read | None, lanes: Lanes | None) -> None:
        """Some threads have written a register. shadow: for each thread, or one for all; None: written."""
        old = self.registers.get(slot)
        if lanes is None:
            if shadow is None or not shadow.any():
                self.registers.pop(slot, None)
            elif read is not None:
                self.registers[slot] = shadow, read
            return
        if shadow is None and old is None:
            return
        known = old[0] if old is not None else shadow
        assert known is not None
        dtype = known.dtype
        new = (
            np.zeros(self.batch.count, dtype)
            if old is None
            else np.broadcast_to(old[0], self.batch.count).copy()
        )
        new[lanes] = 0 if shadow is None else shadow[0] if len(shadow) == 1 else shadow[lanes]
        origin = read or (old[1] if old is not None else None)
        if origin is None or not new.any():
            self.registers.pop(slot, None)
        else:
            self.registers[slot] = new, origin

    def used(self, use: str, slots: list[int], one: Instruction, lanes: Lanes | None) -> None:
        """These threads use registers for something that shows."""
        for slot in slots:
            found = self.registers.get(slot)
            if found is None:
                continue
            shadow, read = found
            mine = of_lanes(shadow, lanes, self.batch.count)
            bad = np.flatnonzero(mine)
            if len(bad):
                who = names(self.batch, lanes)(int(bad[0]), len(mine))
                tell(self.checks, use, read, str(one), one.line, who, len(bad))

    # ------------------------------------------------------------ memory

    def changed(self, found: tuple[Lanes, Read], one: Instruction) -> None:
        """An atomic operation changes what has this shadow."""
        shadow, read = found
        tell(self.checks, "atomic", read, str(one), one.line, read.who, int(np.count_nonzero(shadow)))

    def load(
        self, where: spaces.Space, at: Lanes, lanes: Lanes | None, bits: Scalar, count: int, one: Instruction
    ) -> tuple[Lanes, Read] | None:
        """The shadow of what these threads load; None where all of it was written."""
        try:
            shadow = where.load(self.shadow, lanes, at, bits, count)
        except BadAccess:  # the instruction itself says so
            return None
        if shadow.dtype.kind != "u" or not shadow.any():
            return None
        first = int(np.flatnonzero(shadow.reshape(len(at), -1).any(axis=1))[0])
        address, space = int(at[first]), space_at(self.batch, where, int(at[first]))
        start, size = spaces.window_of(self.batch, space), self.batch.shared_window_bytes
        address = spaces.without_window(address, start, size if space == "shared" else spaces.WINDOW_BYTES)
        who = names(self.batch, lanes)(first, len(at))
        return shadow, Read(space, address, "", one.line, str(one), who)

    def store(self, where: spaces.Space, at: Lanes, lanes: Lanes | None, shadow: Lanes) -> None:
        """These threads store something with this shadow."""
        try:
            where.store(self.shadow, lanes, at, shadow)
        except BadAccess:
            pass


def space_at(batch: Batch, where: spaces.Space, address: int) -> str:
    """Which memory an address of this space is in."""
    if where is spaces.GENERIC:
        for name in ("shared", "local"):
            size = batch.shared_window_bytes if name == "shared" else spaces.WINDOW_BYTES
            if spaces.without_window(address, spaces.window_of(batch, name), size) != address:
                return name
    return "shared" if where is spaces.SHARED else "local" if where is spaces.LOCAL else "global"


def _writes_otherwise(functions: Iterable[Function]) -> bool:
    body = [one for function in functions for one in function.body]
    return any(
        one.opcode in OTHER_WRITERS or {"bulk", "async"} & set(one.modifiers) - _plain_copy(one)
        for one in body
    )


def _plain_copy(one: Instruction) -> set[str]:
    return {"async"} if one.opcode == "cp" and "bulk" not in one.modifiers else set()
