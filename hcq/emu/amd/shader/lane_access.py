"""Loads, stores and atomics by lane: one description of what an access moves, one way to carry it out.

In       the tail of an instruction's name ('load_d16_hi_u8', 'store_dwordx3', 'atomic_add_x2'), a store of memory
Out      Access, and steps that move data between active lanes and that store
Changes  VGPRs and memory
Next     memory_ops.py (addresses of global, flat, scratch and buffer accesses), lds_ops.py (addresses in LDS),
         atomic_ops.py
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from hcq.emu.amd.shader.arrays import Array
from hcq.emu.amd.shader.atomic_ops import Atomic, parse_atomic, run_atomic
from hcq.emu.amd.shader.errors import PageFault
from hcq.emu.amd.shader.operands import Context
from hcq.emu.amd.shader.waves import Batch

WORDS = {
    "read": "load",
    "write": "store",
    "ubyte": "u8",
    "sbyte": "i8",
    "ushort": "u16",
    "sshort": "i16",
    "byte": "b8",
    "short": "b16",
    "dword": "b32",
    "dwordx2": "b64",
    "dwordx3": "b96",
    "dwordx4": "b128",
}

# (batch, active (wave, lane) index or None) -> what the addresses of those lanes refer to
Store = Any


@dataclass(frozen=True)
class Access:
    """What moves: `bits` per lane, sign-extended or not, into or out of half `half` of a register (None: all of it).

    clears  a load into a half sets the other half to 0
    """

    verb: str  # load, store, atomic
    bits: int
    signed: bool = False
    half: int | None = None
    atomic: Atomic | None = None
    clears: bool = False

    @property
    def words(self) -> int:
        """How many registers it moves."""
        return max(1, self.bits // 32)


def parse_access(text: str) -> Access | None:
    """What an instruction's name says it moves, "load_u16" or "atomic_add_u32"; None when it moves nothing."""
    parts = [WORDS.get(part, part) for part in text.split("_")]
    if parts[0] == "atomic":
        atomic = parse_atomic("_".join(text.split("_")[1:]))
        return (
            None if atomic is None else Access("atomic", 8 * np.dtype(atomic.dtype).itemsize, atomic=atomic)
        )
    if parts[0] not in ("load", "store"):
        return None
    rest = parts[1:]
    half = None
    if "d16" in rest:
        rest.remove("d16")
        half = 0
        if "hi" in rest:
            rest.remove("hi")
            half = 1
    if len(rest) != 1 or rest[0][0] not in "uib" or not rest[0][1:].isdigit():
        return None
    return Access(parts[0], int(rest[0][1:]), rest[0][0] == "i", half)


def typed_access(text: str) -> Access | None:
    """As parse_access, of a typed access: as many words as it has registers, whatever memory has."""
    found = re.fullmatch(r"(load|store)_(?:(d16)_)?(hi_)?format_(?:(d16)_)?(hi_)?([xyzw]+)", text)
    if found is None:
        return None
    count = len(found[6])
    if not (found[2] or found[4]):
        return Access(found[1], 32 * count)
    return (
        Access(found[1], 16, half=int(bool(found[3] or found[5])))
        if count == 1
        else Access(found[1], 32 * (-(-count // 2)))
    )


def access_of(ctx: Context, text: str) -> Access | None:
    """What an instruction's name says it moves, on its architecture.

    All GFX9 parts here keep ECC with their registers, whose words are written whole: a load into one half clears the
    other (LLVM's feature sramecc). hipBLASLt's kernels join two such loads with v_or_b32.
    """
    access = parse_access(text)
    if access is None or access.half is None or access.verb != "load":
        return access
    return replace(access, clears=ctx.is_gfx9)


def active(b: Batch, values: Array) -> Array:
    """The numbers of active lanes, wave after wave."""
    whole = values if values.shape == b.lanes.shape else np.broadcast_to(values, b.lanes.shape)
    return whole.reshape(-1) if b.all_lanes else whole[b.lanes]


def load(b: Batch, store: Store, access: Access, register: int, addresses: Array) -> None:
    """From memory to registers, for the lanes that are on."""
    if access.bits >= 32:
        rows = store.gather(addresses, access.words)
        for word in range(access.words):
            deliver(b, b.u32[register + word], rows[word])
        return
    value = store.gather_bytes(addresses, access.bits // 8)
    if access.signed:
        top = np.uint32(1 << (access.bits - 1))
        value = (value ^ top) - top
    if access.half is None:
        deliver(b, b.u32[register], value)
    elif access.clears:
        deliver(b, b.u32[register], (value & np.uint32(0xFFFF)) << np.uint32(16 * access.half))
    else:
        deliver(b, b.u16[register, :, :, access.half], value.astype(np.uint16))


def deliver(b: Batch, place: Array, row: Array) -> None:
    """Put a value for each active lane where those lanes are."""
    if b.all_lanes:
        place[...] = row.reshape(place.shape)
    else:
        place[b.lanes] = row


def save(b: Batch, store: Store, access: Access, register: int, addresses: Array) -> None:
    """From registers to memory, for the lanes that are on."""
    if access.bits >= 32:
        store.scatter(
            addresses, np.stack([active(b, b.u32[register + word]) for word in range(access.words)])
        )
        return
    value = active(b, b.u32[register])
    if access.half:
        value = value >> np.uint32(16)
    store.scatter_bytes(addresses, value, access.bits // 8)


def numbers(b: Batch, register: int, dtype: Any) -> Array:
    """Active lanes' numbers of a 32- or 64-bit type, from one or two registers."""
    low = active(b, b.u32[register])
    if np.dtype(dtype).itemsize == 4:
        return np.ascontiguousarray(low).view(dtype)
    return np.stack([low, active(b, b.u32[register + 1])], axis=1).view(dtype)[:, 0]


def deliver_numbers(b: Batch, register: int, values: Array) -> None:
    """Put a number of any width for each active lane into registers."""
    words = np.ascontiguousarray(values).view(np.uint32).reshape(len(values), -1)
    for word in range(words.shape[1]):
        deliver(b, b.u32[register + word], words[:, word])


def modify(
    b: Batch,
    store: Store,
    atomic: Atomic,
    data: int,
    second: int | None,
    returned: int | None,
    addresses: Array,
) -> None:
    """An atomic: `data` and `second` are registers; what was found goes to register `returned`."""
    if not len(addresses):
        return
    values = numbers(b, data, atomic.dtype)
    seconds = values if second is None else numbers(b, second, atomic.dtype)
    found = (b.answer or run_atomic)(store, atomic, addresses, values, seconds)
    if returned is not None:
        deliver_numbers(b, returned, found)


def located(pc: int, b: Batch, addresses: Array, run: Callable[[], None]) -> None:
    """Run an access; a page fault learns its instruction and the first lane that made it."""
    try:
        run()
    except PageFault as fault:
        lanes = np.nonzero(b.lanes.reshape(-1))[0]
        which = np.nonzero(addresses == np.uint64(fault.address))[0]
        where = ""
        if len(which):
            wave, lane = divmod(int(lanes[which[0]]), b.lanes.shape[1])
            where = b.lane_names(wave, lane)
        raise fault.at(pc, where) from None
