"""LDS: the memory that a workgroup shares, and the lane permutations that use its crossbar.

In       a Context for one DS instruction
Out      a step that moves data for the active lanes
Changes  VGPRs and LDS
Next     lane_access.py (what moves), atomic_ops.py, memory_ops.py (flat addresses come here too)
Source   RDNA3 and CDNA3 ISA documents: data share

Out-of-range reads give 0 and writes there are dropped, as on hardware.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np

from hcq.emu.amd.shader import lane_access
from hcq.emu.amd.shader.arrays import Array, across_registers, packed_in_registers
from hcq.emu.amd.shader.atomic_ops import Atomic, parse_atomic
from hcq.emu.amd.shader.lane_access import Access, access_of, active, deliver
from hcq.emu.amd.shader.operands import Context, Step, put
from hcq.emu.amd.shader.waves import Batch

NOTHING = {"ds_nop"}


class LdsStore:
    """The LDS of some lanes' workgroups, seen as byte addresses from 0. `wave` is each lane's wave in the batch."""

    def __init__(self, b: Batch, wave: Array) -> None:
        residents = b.residents
        self._batch, self._wave = b, wave
        self.bytes, self.size = residents.lds, residents.lds_size
        self.base = b.groups[wave].astype(np.int64) * residents.lds_stride

    def place(self, addresses: Array, size_bytes: int) -> tuple[Array, Array | None]:
        """(byte positions, which lanes are inside; None when all are). Positions outside are moved to 0."""
        signed = addresses.astype(np.int64)
        if not len(signed) or int(signed.max()) + size_bytes <= self.size:
            return signed + self.base, None
        inside = signed + size_bytes <= self.size
        strays = self._batch.residents.strays
        if strays is not None and self._batch.answer is None:  # a guess of retry.py reaches nothing
            strays.add(signed, inside, size_bytes, self._name)
        return np.where(inside, signed, 0) + self.base, inside

    def _name(self, number: int) -> str:
        """A lane by its place among those of an access."""
        batch = self._batch
        lanes = np.nonzero(batch.lanes)[1]
        lane = int(lanes[number]) if len(lanes) == len(self._wave) else 0  # else one access is a whole wave's
        return batch.lane_names(int(self._wave[number]), lane)

    def gather(self, addresses: Array, words: int) -> Array:
        """(n,) addresses -> (words, n); zeros beyond the end."""
        if self.size < 4 * words:
            self.place(addresses, 4 * words)  # all are outside
            return np.zeros((words, len(addresses)), np.uint32)
        at, inside = self.place(addresses, 4 * words)
        rows = self.bytes.gather(at, words)
        return rows if inside is None else np.where(inside, rows, np.uint32(0))

    def gather_bytes(self, addresses: Array, size_bytes: int) -> Array:
        """(n,) addresses of 1 or 2 bytes -> (n,); zeros beyond the end."""
        if self.size < size_bytes:
            self.place(addresses, size_bytes)
            return np.zeros(len(addresses), np.uint32)
        at, inside = self.place(addresses, size_bytes)
        value = self.bytes.gather_bytes(at, size_bytes)
        return value if inside is None else np.where(inside, value, np.uint32(0))

    def scatter(self, addresses: Array, data: Array) -> None:
        """Write (words, n) at (n,) addresses; nothing beyond the end."""
        at, inside = self.place(addresses, 4 * len(data))
        if inside is not None:
            at, data = at[inside], data[:, inside]
        self.bytes.scatter(at, data)

    def scatter_bytes(self, addresses: Array, data: Array, size_bytes: int) -> None:
        """Write the low bytes of (n,) at (n,) addresses; nothing beyond the end."""
        at, inside = self.place(addresses, size_bytes)
        if inside is not None:
            at, data = at[inside], data[inside]
        self.bytes.scatter_bytes(at, data, size_bytes)

    def update(self, addresses: Array, dtype: Any, change: Callable[[Array], Array]) -> Array:
        """Positions in all of LDS, from place()."""
        at = addresses.astype(np.int64)
        old = self.bytes.load(at, dtype)
        self.bytes.store(at, change(old))
        return old


def compile_lds(ctx: Context) -> Step:
    """The step of a DS instruction."""
    inst = ctx.inst
    if inst.name in NOTHING:
        return lambda b: None
    if inst.fields.get("gds") or "gws" in inst.name:
        raise ctx.refuse("global data share, and semaphores of global wave sync, are not emulated")
    tail = inst.name[3:]
    special = PERMUTATIONS.get(tail)
    if special is not None:
        return special(ctx)
    pair = pair_access(tail)
    if pair is not None:
        return pair_step(ctx, *pair)
    access = access_of(ctx, tail)
    if access is not None:
        return plain_step(ctx, access)
    atomic = parse_atomic(tail.replace("_rtn", ""))
    if atomic is None:
        raise ctx.refuse()
    return atomic_step(ctx, atomic, "_rtn" in tail)


def offset16(ctx: Context) -> np.uint64:
    """The offset of an instruction with one address."""
    return np.uint64(ctx.inst.fields["offset0"] | ctx.inst.fields["offset1"] << 8)


def registers(ctx: Context) -> tuple[int, int, int]:
    """(data0, data1, vdst), in the accumulation file when the acc bit says so."""
    fields = ctx.inst.fields
    file = ctx.acc_offset if fields.get("acc") else 0
    return fields["data0"] + file, fields["data1"] + file, fields["vdst"] + file


def lane_addresses(b: Batch, register: int, offset: np.uint64) -> Array:
    """LDS addresses of active lanes; they wrap at 32 bits."""
    return (active(b, b.u32[register]).astype(np.uint64) + offset) & np.uint64(0xFFFFFFFF)


def waves_of(b: Batch) -> Array:
    """The wave of every active lane."""
    if b.all_lanes:
        return np.repeat(np.arange(b.waves), b.lanes.shape[1])
    return np.nonzero(b.lanes)[0]


def plain_step(ctx: Context, access: Access) -> Step:
    """A load, a store or an atomic with one address."""
    data0, _, vdst = registers(ctx)
    address, offset = ctx.inst.fields["addr"], offset16(ctx)

    def run(b: Batch) -> None:
        store = LdsStore(b, waves_of(b))
        addresses = lane_addresses(b, address, offset)
        if access.verb == "load":
            lane_access.load(b, store, access, vdst, addresses)
        else:
            lane_access.save(b, store, access, data0, addresses)

    return run


def pair_access(tail: str) -> tuple[str, int, int] | None:
    """(load, store or swap; bits of one element; stride in elements) of the two-address forms."""
    forms = {"load_2addr": "load", "read2": "load", "store_2addr": "store", "write2": "store"}
    forms |= {"storexchg_2addr": "swap", "wrxchg2": "swap"}
    for prefix, verb in forms.items():
        if tail.startswith(prefix):
            stride = 64 if "stride64" in tail or "st64" in tail else 1
            return verb, int(tail[-2:]), stride
    return None


def pair_step(ctx: Context, verb: str, bits: int, stride: int) -> Step:
    """Two elements per lane, at two offsets in units of the element."""
    data0, data1, vdst = registers(ctx)
    fields = ctx.inst.fields
    access = Access(verb, bits)
    offsets = [np.uint64(fields[name] * stride * bits // 8) for name in ("offset0", "offset1")]
    swap = parse_atomic(f"swap_b{bits}")
    assert swap is not None

    def run(b: Batch) -> None:
        store = LdsStore(b, waves_of(b))
        both = [lane_addresses(b, fields["addr"], offset) for offset in offsets]
        if verb == "load":
            rows = [store.gather(addresses, access.words) for addresses in both]
            for index, row in enumerate(np.concatenate(rows)):
                deliver(b, b.u32[vdst + index], row)
        elif verb == "store":
            lane_access.save(b, store, access, data0, both[0])
            lane_access.save(b, store, access, data1, both[1])
        else:  # what the first returns may go where the second's data are
            first, second, words = vdst, vdst + access.words, access.words
            data = b.u32[data1 : data1 + words].copy()
            modify_inside(b, store, swap, data0, None, first, both[0])
            found = b.u32[first:second].copy()
            b.u32[data1 : data1 + words] = data
            modify_inside(b, store, swap, data1, None, second, both[1])
            b.u32[first:second] = found

    return run


def atomic_step(ctx: Context, atomic: Atomic, returns: bool) -> Step:
    """An LDS atomic. Compare-stores have compare first on gfx942 and second on gfx11."""
    data0, data1, vdst = registers(ctx)
    if ctx.inst.name.startswith("ds_cmpst_"):
        data0, data1 = data1, data0
    address, offset = ctx.inst.fields["addr"], offset16(ctx)
    second, returned = data1 if atomic.takes_two else None, vdst if returns else None

    def run(b: Batch) -> None:
        store = LdsStore(b, waves_of(b))
        modify_inside(b, store, atomic, data0, second, returned, lane_addresses(b, address, offset))

    return run


def modify_inside(
    b: Batch,
    store: LdsStore,
    atomic: Atomic,
    data: int,
    second: int | None,
    returned: int | None,
    addresses: Array,
) -> None:
    """An atomic by the lanes whose address is inside LDS; the others get 0."""
    size = np.dtype(atomic.dtype).itemsize
    at, inside = store.place(addresses, size)
    if inside is None:
        lane_access.modify(b, store, atomic, data, second, returned, at.astype(np.uint64))
        return
    saved = b.lanes, b.all_lanes
    try:
        b.lanes, b.all_lanes = saved[0].copy(), False
        b.lanes[saved[0]] = inside
        lane_access.modify(b, store, atomic, data, second, returned, at[inside].astype(np.uint64))
        if returned is not None:  # of the others alone: what is returned may go where the data are
            b.lanes = saved[0] & ~b.lanes
            for word in range(size // 4):
                put(b, b.u32[returned + word], np.zeros(1, np.uint32))
    finally:
        b.lanes, b.all_lanes = saved


# -- permutations -----------------------------------------------------------------------------------------------------
def swizzle_pattern(offset: int, lanes: int) -> Array:
    """The source lane of each lane for a ds_swizzle offset."""
    lane = np.arange(lanes)
    inside = lane & 31
    if offset >= 0xE000:
        raise ValueError("FFT swizzles are not emulated")
    if offset >= 0xC000:  # rotate within 32 lanes, keeping the masked bits
        mask, amount = offset & 31, offset >> 5 & 31
        step = -amount if offset & 0x400 else amount
        return (lane & ~31) | (inside & mask) | ((inside + step) & ~mask & 31)
    if offset & 0x8000:
        return (lane & ~3) | ((offset >> (2 * (lane & 3))) & 3)
    return (lane & ~31) | (((inside & offset & 31) | (offset >> 5 & 31)) ^ (offset >> 10 & 31))


def swizzle(ctx: Context) -> Step:
    """ds_swizzle: each lane reads the lane that a pattern names."""
    try:
        pattern = swizzle_pattern(int(offset16(ctx)), ctx.wave_size)
    except ValueError as why:
        raise ctx.refuse(str(why)) from None
    source, (_, _, vdst) = ctx.inst.fields["addr"], registers(ctx)

    def run(b: Batch) -> None:
        moved = b.u32[source][:, pattern]
        if not b.all_lanes:
            moved = np.where(b.lanes[:, pattern], moved, np.uint32(0))
        put(b, b.u32[vdst], moved)

    return run


def row_of_32(ctx: Context) -> int:
    """How many lanes a permute reaches: 32 on gfx11 even in wave64, all 64 on gfx942."""
    return 64 if ctx.is_gfx9 else 32


def backward_permute(ctx: Context) -> Step:
    """ds_bpermute: each lane reads the lane that it names."""
    address, offset, (data, _, vdst) = ctx.inst.fields["addr"], np.uint32(offset16(ctx)), registers(ctx)
    reach = row_of_32(ctx)
    base = np.arange(ctx.wave_size) & ~(reach - 1)
    fetch_inactive = ctx.inst.name == "ds_bpermute_fi_b32"

    def run(b: Batch) -> None:
        lane = (((b.u32[address] + offset) >> np.uint32(2)) & np.uint32(reach - 1)).astype(np.intp) | base
        moved = np.take_along_axis(b.u32[data], lane, axis=1)
        if not b.all_lanes and not fetch_inactive:
            moved = np.where(np.take_along_axis(b.lanes, lane, axis=1), moved, np.uint32(0))
        put(b, b.u32[vdst], moved)

    return run


def forward_permute(ctx: Context) -> Step:
    """ds_permute: each lane writes to the lane that it names."""
    address, offset, (data, _, vdst) = ctx.inst.fields["addr"], np.uint32(offset16(ctx)), registers(ctx)
    reach = row_of_32(ctx)
    base = np.arange(ctx.wave_size) & ~(reach - 1)

    def run(b: Batch) -> None:
        lane = (((b.u32[address] + offset) >> np.uint32(2)) & np.uint32(reach - 1)).astype(np.intp) | base
        moved = np.zeros_like(b.u32[data])
        for source in range(ctx.wave_size):  # in lane order: the last writer wins
            writes = np.nonzero(b.lanes[:, source])[0]
            moved[writes, lane[writes, source]] = b.u32[data][writes, source]
        put(b, b.u32[vdst], moved)

    return run


def count_active(ctx: Context) -> Step:
    """ds_append and ds_consume: a counter at M0 + offset rises or falls by the active lanes of the wave."""
    _, _, vdst = registers(ctx)
    m0, offset, sign = ctx.m0, offset16(ctx), 1 if ctx.inst.name == "ds_append" else -1

    def run(b: Batch) -> None:
        for wave in range(b.waves):
            store = LdsStore(b, np.array([wave]))
            where = np.array([int(b.s[wave, m0] & 0xFFFF) + int(offset)], np.uint64)
            before = store.gather(where, 1)
            active_lanes = int(b.lanes[wave].sum())
            store.scatter(where, (before.astype(np.int64) + sign * active_lanes).astype(np.uint32))
            b.u32[vdst, wave][b.lanes[wave]] = before[0, 0]

    return run


def by_thread(ctx: Context) -> Step:
    """ds_load_addtid and ds_store_addtid: M0 + offset + 4 * lane."""
    data0, _, vdst = registers(ctx)
    m0, offset = ctx.m0, offset16(ctx)
    lanes = 4 * np.arange(ctx.wave_size, dtype=np.uint64)
    is_load = "load" in ctx.inst.name or "read" in ctx.inst.name
    access = Access("load" if is_load else "store", 32)

    def run(b: Batch) -> None:
        base = (b.s[:, m0] & np.uint32(0xFFFF)).astype(np.uint64) + offset
        addresses = active(b, base[:, None] + lanes)
        store = LdsStore(b, waves_of(b))
        if is_load:
            lane_access.load(b, store, access, vdst, addresses)
        else:
            lane_access.save(b, store, access, data0, addresses)

    return run


def transposing_load(ctx: Context) -> Step:
    """ds_read_*_tr_*: each lane reads its own words; then 16 lanes exchange their numbers as rows for columns.

    The 16 lanes hold a tile of 16 columns, row after row, and each of them gets a column.
    """
    match = re.fullmatch(r"ds_read_b(\d+)_tr_b(\d+)", ctx.inst.name)
    assert match is not None
    total, bits = int(match[1]), int(match[2])
    words, count = total // 32, total // bits
    item, lane = np.arange(count)[:, None], np.arange(ctx.wave_size)
    from_lane = (lane & ~15) + 16 // count * item + (lane & 15) // count
    from_item = np.broadcast_to((lane & 15) % count, from_lane.shape)
    address, offset, (_, _, vdst) = ctx.inst.fields["addr"], offset16(ctx), registers(ctx)

    def run(b: Batch) -> None:
        if not b.lanes.any():
            return
        own = np.zeros((words, *b.lanes.shape), np.uint32)
        own[:, b.lanes] = LdsStore(b, waves_of(b)).gather(lane_addresses(b, address, offset), words)
        numbers = across_registers(own, bits)[from_item, :, from_lane]  # (item, lane, wave)
        for number, row in enumerate(packed_in_registers(numbers.transpose(0, 2, 1), bits)):
            put(b, b.u32[vdst + number], row)

    return run


PERMUTATIONS: dict[str, Callable[[Context], Step]] = {
    "swizzle_b32": swizzle,
    "bpermute_b32": backward_permute,
    "bpermute_fi_b32": backward_permute,
    "permute_b32": forward_permute,
    "append": count_active,
    "consume": count_active,
    "load_addtid_b32": by_thread,
    "read_addtid_b32": by_thread,
    "store_addtid_b32": by_thread,
    "write_addtid_b32": by_thread,
    "read_b64_tr_b4": transposing_load,
    "read_b96_tr_b6": transposing_load,
    "read_b64_tr_b8": transposing_load,
    "read_b64_tr_b16": transposing_load,
}
