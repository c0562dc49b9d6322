"""Shadows of the registers and memory of resident waves: what of them nobody wrote (HCQ_SANITIZE=init).

In       the waves that run together; what instructions make of shadows
Out      `Unwritten`: shadows of registers, LDS and scratch, and what is told of their use
Changes  itself, and what lies behind the registers of a batch
Next     init_steps.py and shadow_results.py (who follow instructions), hcq/emu/shader/unwritten.py (what is told),
         machine.py (the first registers)

Each register has a shadow, with a bit set where nobody wrote: behind the registers of a batch are as many shadows, so
that they are copied, parted and joined with these. Memory has a shadow of the same layout.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

import numpy as np

from hcq.emu.amd.shader.arrays import Array
from hcq.emu.amd.shader.field_registers import SCALARS, VECTORS, Part
from hcq.emu.amd.shader.memory import Bytes, Memory
from hcq.emu.amd.shader.operands import Context
from hcq.emu.amd.shader.residents import Residents
from hcq.emu.amd.shader.waves import Batch
from hcq.emu.shader.checks import Checks
from hcq.emu.shader.unwritten import Read, tell

if TYPE_CHECKING:
    from hcq.events.unwritten_memory import UnwrittenMemory

SCC = 127  # its shadow is in the place of a shadow that EXEC's upper half does not need
FIRST_SPECIAL = 102  # scalar registers from here on count as set
Follow = Callable[["Unwritten", Batch], None]


class _Global:
    """The shadow of global memory. of: what is known of it; None: all of it counts as written."""

    def __init__(self, of: UnwrittenMemory | None) -> None:
        self.of = of

    def gather(self, addresses: Array, words: int) -> Array:
        """As Memory.gather."""
        found = None if self.of is None else self.of.load(addresses, 4 * words)
        if found is None:
            return np.zeros((words, len(addresses)), np.uint32)
        return np.ascontiguousarray(found.view(np.uint32).T)

    def gather_bytes(self, addresses: Array, size_bytes: int) -> Array:
        """As Memory.gather_bytes."""
        found = None if self.of is None else self.of.load(addresses, size_bytes)
        if found is None:
            return np.zeros(len(addresses), np.uint32)
        made: Array = sum(
            found[:, byte].astype(np.uint32) << np.uint32(8 * byte) for byte in range(size_bytes)
        )
        return made

    def scatter(self, addresses: Array, data: Array) -> None:
        """As Memory.scatter."""
        if self.of is not None:
            rows = np.ascontiguousarray(data.T).view(np.uint8) if data.any() else None
            self.of.store(addresses, rows, 4 * len(data))

    def scatter_bytes(self, addresses: Array, data: Array, size_bytes: int) -> None:
        """As Memory.scatter_bytes."""
        if self.of is not None:
            rows = np.ascontiguousarray(data.astype(np.uint32)[:, None]).view(np.uint8)[:, :size_bytes]
            self.of.store(addresses, rows if rows.any() else None, size_bytes)


class Marking:
    """Memory as it is, in which what is stored by steps that are not followed is written."""

    def __init__(self, memory: Memory, unwritten: Unwritten, of: UnwrittenMemory) -> None:
        self.memory, self.unwritten, self.of = memory, unwritten, of
        self.gather, self.gather_bytes, self.acquire = memory.gather, memory.gather_bytes, memory.acquire
        self.read = memory.read

    def scatter(self, addresses: Array, data: Array) -> None:
        """As Memory.scatter."""
        self._mark(addresses, 4 * len(data))
        self.memory.scatter(addresses, data)

    def scatter_bytes(self, addresses: Array, data: Array, size_bytes: int) -> None:
        """As Memory.scatter_bytes."""
        self._mark(addresses, size_bytes)
        self.memory.scatter_bytes(addresses, data, size_bytes)

    def update(self, addresses: Array, dtype: Any, change: Callable[[Array], Array]) -> Array:
        """As Memory.update."""
        self._mark(addresses, np.dtype(dtype).itemsize)
        return self.memory.update(addresses, dtype, change)

    def _mark(self, addresses: Array, size_bytes: int) -> None:
        if not self.unwritten.is_followed:
            self.of.store(addresses, None, size_bytes)


class Unwritten:
    """What nobody wrote of the resident waves.

    is_followed  the step that runs has made the shadow of what it stores
    origins   register -> where what is unwritten of it came from; all of a register that is not here was written
    """

    def __init__(self, checks: Checks, residents: Residents, text_of: Callable[[int], str]) -> None:
        self.checks, self.text_of, self.residents = checks, text_of, residents
        self.is_followed = False
        launch = residents.launch
        made = self.shadow = object.__new__(Residents)
        made.__dict__.update(residents.__dict__)
        made.strays = None
        of = None if checks.known is None else checks.known.unwritten
        if of is not None:
            residents.memory = Marking(residents.memory, self, of)
            residents.scalar_memory = Marking(residents.scalar_memory, self, of)
        made.memory = _Global(of)  # type: ignore[assignment]
        made.flat_scratch, made.watch = 0, None  # that of gfx90a has a shadow like the others'
        made.scratch_size = -(-launch.scratch_bytes // 4) * 4
        lanes = len(residents.group_of) * residents.wave_size
        made.lds, made.scratch = (
            Bytes.zeros(len(residents.lds.data)),
            Bytes.zeros(max(4, lanes * made.scratch_size)),
        )
        made.lds.data.fill(0xFF)
        made.scratch.data.fill(0xFF)
        first = launch.user_sgpr_count + sum(launch.group_ids) + 1
        never = [*range(first, FIRST_SPECIAL), *(VECTORS + n for n in range(1, launch.vgprs))]
        self.origins = {number: Read("register", name=name_of(number, launch.acc_offset)) for number in never}

    def start(self, v: Array, s: Array, written: int) -> tuple[Array, Array]:
        """Registers, of which the first vector registers are written, and behind them their shadows."""
        shadow_v, shadow_s = np.full_like(v, 0xFFFFFFFF), np.zeros_like(s)
        shadow_v[:written] = 0
        for number in self.origins:
            if number < SCALARS:
                shadow_s[:, number] = 0xFFFFFFFF
        return np.concatenate([v, shadow_v]), np.concatenate([s, shadow_s], axis=1)

    # ------------------------------------------------------------ registers

    def shadows(self, b: Batch) -> Batch:
        """The batch of shadows: what a step of an access does to it, it does to shadows."""
        made = object.__new__(Batch)
        made.__dict__.update(b.__dict__)
        made.residents = self.shadow
        made.bind(b.u32[len(b.u32) // 2 :])
        return made

    def of(self, b: Batch, number: int) -> Array:
        """(wave, lane) or (wave, 1) shadows of a register."""
        if number not in self.origins:
            return np.zeros((1, 1), np.uint32)
        if number < SCALARS:
            return b.scalars[:, SCALARS + number][:, None]
        return b.u32[len(b.u32) // 2 + number - VECTORS]

    def put(self, b: Batch, number: int, shadow: Array | None, read: Read | None) -> None:
        """A register was written. shadow: None where all of it was."""
        if shadow is not None and not shadow.any():
            shadow = None
        if shadow is None and number not in self.origins:
            return
        value: Any = np.uint32(0) if shadow is None else shadow
        if number < SCALARS:
            b.scalars[:, SCALARS + number] = (
                value if shadow is None else np.broadcast_to(value, (b.waves, 1))[:, 0]
            )
            is_all = True
        else:
            place = b.u32[len(b.u32) // 2 + number - VECTORS]
            is_all = b.all_lanes
            if is_all:
                place[...] = value
            else:
                np.copyto(place, value, where=b.lanes)
        if shadow is not None and read is not None:
            self.origins[number] = read
        elif shadow is None and is_all and b.waves == len(self.residents.group_of):
            del self.origins[number]

    def settle(self, b: Batch, numbers: Iterable[int]) -> None:
        """Shadows of vector registers that are known to be written may be out of date: they are made zeros."""
        half = len(b.u32) // 2
        for number in numbers:
            if number not in self.origins:
                b.u32[half + number - VECTORS] = 0

    def note(self, b: Batch, number: int, read: Read) -> None:
        """The shadow of a vector register was made in its place."""
        if (b.u32[len(b.u32) // 2 + number - VECTORS][b.lanes] != 0).any():
            self.origins[number] = read
        elif number in self.origins and b.all_lanes and b.waves == len(self.residents.group_of):
            del self.origins[number]

    def origin(self, numbers: Iterable[int]) -> Read | None:
        """Where the first of these came from that may be unwritten."""
        return next((self.origins[number] for number in numbers if number in self.origins), None)

    def used(self, b: Batch, use: str, numbers: Iterable[int], pc: int, lanes: Array | None = None) -> None:
        """The lanes that are on use these registers for something that shows."""
        for number in numbers:
            read = self.origins.get(number)
            if read is None or (use == "store" and read.is_copied):
                continue
            bad = np.broadcast_to(self.of(b, number) != 0, b.lanes.shape) & b.lanes
            if lanes is not None:
                bad = bad & lanes
            if bad.any():
                wave, lane = (int(each[0]) for each in np.nonzero(bad))
                who, times = b.lane_names(wave, lane), int(np.count_nonzero(bad))
                tell(self.checks, use, read, self.text_of(pc), pc, who, times)
                return


def name_of(number: int, acc_offset: int = 0) -> str:
    """A register as assembly has it."""
    if number < VECTORS:
        return f"s{number}"
    vector = number - VECTORS
    return f"a{vector - acc_offset}" if acc_offset and vector >= acc_offset else f"v{vector}"


def number_of(ctx: Context, register: int) -> int:
    """Accumulation registers lie behind the vector registers."""
    return register - 1024 + VECTORS + ctx.acc_offset if register >= 1024 else register


def numbers_of(ctx: Context, part: Part | None) -> list[int]:
    """The registers of a field; none where the instruction has no such."""
    return [] if part is None else [number_of(ctx, each) for each in part.registers]
