"""Steps that tell of every access to LDS and memory, for programs whose races are looked for.

In       instructions as a program compiles them; then the batches of waves that run them
Out      `Looking`: steps around those of the program
Changes  the Races of the resident waves; no register, no memory
Next     hcq/emu/shader/races.py (what comes of it), memory_order.py (fences, scopes), counters.py (the same for
         counting), program.py (who asks)

Lanes of a wave go in lock step: nothing has to order them.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from hcq.emu.amd.shader import lane_access
from hcq.emu.amd.shader.arrays import Array
from hcq.emu.amd.shader.classes import LOAD_BYTES, WAITS, WARP
from hcq.emu.amd.shader.lane_access import Access, active, parse_access
from hcq.emu.amd.shader.lds_ops import LdsStore, lane_addresses, offset16, pair_access, registers
from hcq.emu.amd.shader.loads_to_lds import access_to_lds, is_load_to_lds, place_in_lds
from hcq.emu.amd.shader.memory_ops import LOWEST_APERTURE, Buffer, address_of, indices, mover
from hcq.emu.amd.shader.memory_order import fence_of, level_of
from hcq.emu.amd.shader.operands import PRIVATE_APERTURE, SHARED_APERTURE, Context, Step, scalar64
from hcq.emu.amd.shader.scalar_memory_ops import offset_of
from hcq.emu.amd.shader.scalar_write_ops import places_of
from hcq.emu.amd.shader.stored_values import stored_in
from hcq.emu.amd.shader.typed_buffers import Places, typed_of
from hcq.emu.amd.shader.waves import Batch
from hcq.emu.shader.order import DEVICE, PLAIN
from hcq.emu.shader.races import Numbers, Races
from hcq.emu.shader.stored import Stored

LOADS, STORES = ("load", "read"), ("store", "write")


class Looking:
    """Makes the steps of one program tell what they do to memory. Their batches' Residents have `races`."""

    only_lds = False

    def around(self, ctx: Context, step: Step) -> Step:
        """The step of an instruction that touches memory, or orders that, with what it does told before."""
        look = _of(ctx, self.only_lds)
        if look is None:
            return step

        def looked(b: Batch) -> None:
            if b.answer is None:  # a guess of retry.py touches nothing
                look(b)
            step(b)

        return looked

    def head(self, instructions: list[Context]) -> Step | None:
        """Nothing before a block."""
        return None


class LookingAtLds(Looking):
    """What they do to LDS alone."""

    only_lds = True


def _of(ctx: Context, only_lds: bool) -> Step | None:
    form = ctx.inst.format
    if form == "DS":
        return _shared(ctx)
    if only_lds and form != "FLAT" and not is_load_to_lds(ctx.inst):
        return None
    fence = _fence(ctx)
    if fence is not None:
        return fence
    if form == "SMEM":
        return _scalar(ctx)
    if is_load_to_lds(ctx.inst):
        return _load_to_lds(ctx)
    if (typed := typed_of(ctx.inst.name)) is not None:
        return _typed(ctx, "load" if typed.is_load else "store")
    access = parse_access(ctx.inst.name.split("_", 1)[1]) if form in ("FLAT", "GLOBAL", "MUBUF") else None
    if access is None:
        return None
    return _buffer(ctx, access) if form == "MUBUF" else _vector(ctx, access)


def races_of(b: Batch) -> Races:
    """What its steps tell."""
    found = b.residents.races
    assert found is not None  # a program whose steps look runs with them
    return found


def _fence(ctx: Context) -> Step | None:
    fence = fence_of(ctx)
    if fence is None:
        return None

    def look(b: Batch) -> None:
        races, warps = races_of(b), b.residents.number_of[b.ids]
        if not races.order.syncs:
            return
        if fence.acquires:
            races.order.acquire(warps, DEVICE)
        elif fence.writes_back:
            b.residents.written_back[b.ids] = True
        else:
            if fence.of_loads:
                warps = warps[~b.residents.stores[b.ids]]
            else:
                b.residents.stores[b.ids] = False
            if fence.needs_write_back:
                warps = warps[b.residents.written_back[b.ids]]
                b.residents.written_back[b.ids] = False
            if len(warps):
                races.order.release(warps, DEVICE)

    return look


def _kind(tail: str) -> str:
    word = tail.split("_")[0].removesuffix("2st64").removesuffix("2")
    return "load" if word in LOADS else "store" if word in STORES else "atomic"


def _shared(ctx: Context) -> Step | None:
    name, fields, pc = ctx.inst.name, ctx.inst.fields, ctx.inst.pc
    if WARP.match(name) or WAITS.match(name) or "addtid" in name or fields.get("gds") or "gws" in name:
        return None
    tail = name[3:].split("_tr_")[0]  # a transposing load reads what a plain one does
    kind = _kind(tail)
    pair = pair_access(name[3:])
    if pair is not None:
        _, bits, stride = pair
        size = bits // 8
        offsets = [np.uint64(fields[one] * stride * size) for one in ("offset0", "offset1")]
    else:
        access = parse_access(tail) or parse_access("atomic_" + name[3:].replace("_rtn", ""))
        if access is None:
            return None
        size, offsets = access.bits // 8, [offset16(ctx)]
    data0, data1, _ = registers(ctx)
    moved = Access("store", 8 * size) if pair is not None else access

    def look(b: Batch) -> None:
        wave, lane = indices(b)
        for offset, data in zip(offsets, (data0, data1)):
            at, stored = lane_addresses(b, fields["addr"], offset), None
            if kind == "store" and races_of(b).by_value and moved is not None:
                save = functools.partial(_save, moved, data)
                stored = stored_in(b, save, at, LdsStore(b, wave))
            polls = races_of(b).polls
            if pc in polls:
                _polled(b, wave, lane, at, size, pc)
                continue
            _in_lds(b, kind, wave, lane, at, size, pc, stored)
            if polls and kind == "store":  # who polls may find this one, and not the next
                races_of(b).order.tick(b.residents.number_of[b.ids[np.unique(wave)]])

    return look


def _polled(b: Batch, wave: Array, lane: Array, at: Array, size: int, pc: int) -> None:
    shared = races_of(b).shared
    if shared is not None:
        shared.poll(b.residents.number_of[b.ids[wave]], lane, at, size, pc)


def _save(access: Access, register: int, b: Batch, store: Any, addresses: Array) -> None:
    lane_access.save(b, store, access, register, addresses)


def _in_lds(
    b: Batch, kind: str, wave: Array, lane: Array, at: Array, size: int, pc: int, stored: Stored | None = None
) -> None:
    shared = races_of(b).shared
    if shared is not None:
        shared.access(kind, b.residents.number_of[b.ids[wave]], lane, at, size, pc, stored=stored)


def _everywhere(
    b: Batch,
    kind: str,
    wave: Array,
    lane: Array,
    at: Array,
    size: int,
    pc: int,
    level: int,
    stored: Stored | None = None,
) -> None:
    if kind != "load" and races_of(b).everywhere is not None:
        b.residents.stores[b.ids[wave]] = True
    _of_warps(b, kind, b.residents.number_of[b.ids[wave]], lane, at, size, pc, level, stored)


def _of_warps(
    b: Batch,
    kind: str,
    warps: Array,
    lane: Array,
    at: Array,
    size: int,
    pc: int,
    level: int,
    stored: Stored | None,
) -> None:
    races = races_of(b)
    if races.everywhere is not None:
        races.everywhere.access(races.order, kind, warps, lane, at, size, pc, level, stored)


def _warps_and_lanes(b: Batch) -> tuple[Array, Array]:
    """Of every active lane: its wave's number among those that run together, and its own in that."""
    races, width = races_of(b), b.lanes.shape[1]
    numbers = races.numbers
    if numbers is None or numbers.threads is not b.ids:
        warps = np.repeat(b.residents.number_of[b.ids].astype(np.int64), width)
        lanes = np.tile(np.arange(width), len(b.ids))
        numbers = races.numbers = Numbers(b.ids, warps, lanes, None)
    if b.all_lanes:
        return numbers.warps, numbers.lanes
    mask = b.lanes.reshape(-1)
    return numbers.warps[mask], numbers.lanes[mask]


def _load_to_lds(ctx: Context) -> Step | None:
    access = access_to_lds(ctx)
    if access is None:
        return None
    place, pc, size, level = (
        place_in_lds(ctx),
        ctx.inst.pc,
        access.bits // 8,
        level_of(ctx, "load", access.bits),
    )
    address = address_of(ctx) if ctx.inst.format == "GLOBAL" else None

    def look(b: Batch) -> None:
        wave, lane = indices(b)
        _in_lds(b, "store", wave, lane, place(b, wave, lane), max(4, size), pc)
        if address is not None:
            _everywhere(b, "load", wave, lane, active(b, address(b)), size, pc, level)

    return look


def _vector(ctx: Context, access: Access) -> Step:
    address, kind, size, pc = address_of(ctx), access.verb, access.bits // 8, ctx.inst.pc
    level, is_flat = level_of(ctx, kind, access.bits), ctx.inst.format == "FLAT"
    save = mover(ctx, access) if kind == "store" else None

    def look(b: Batch) -> None:
        at = active(b, address(b))
        stored = None
        if (
            save is not None
            and races_of(b).by_value
            and not (is_flat and int(at.max(initial=0)) >= LOWEST_APERTURE)
        ):
            stored = stored_in(b, save, at, b.residents.memory)
        if is_flat and int(at.max(initial=0)) >= LOWEST_APERTURE:
            (wave, lane), high = indices(b), at >> np.uint64(32)
            inside = high == SHARED_APERTURE
            if inside.any():
                low = at[inside] & np.uint64(0xFFFFFFFF)
                _in_lds(b, kind, wave[inside], lane[inside], low, size, pc)
            rest = ~inside & (high != PRIVATE_APERTURE)
            _everywhere(b, kind, wave[rest], lane[rest], at[rest], size, pc, level, stored)
        else:
            if kind != "load" and races_of(b).everywhere is not None:
                b.residents.stores[b.ids[b.lanes.any(axis=1)]] = True
            _of_warps(b, kind, *_warps_and_lanes(b), at, size, pc, level, stored)

    return look


def _buffer(ctx: Context, access: Access) -> Step | None:
    if ctx.inst.fields.get("lds") or ctx.inst.fields.get("tfe"):
        return None
    buffer, kind, size, pc = Buffer(ctx, access), access.verb, access.bits // 8, ctx.inst.pc
    level = level_of(ctx, kind, access.bits)

    def look(b: Batch) -> None:
        if buffer.is_spread(b):
            return  # scratch
        addresses, inside = buffer.places(b)
        wave, lane = indices(b)
        reached = active(b, inside)
        _everywhere(b, kind, wave[reached], lane[reached], active(b, addresses)[reached], size, pc, level)

    return look


def _typed(ctx: Context, kind: str) -> Step | None:
    if ctx.inst.fields.get("lds") or ctx.inst.fields.get("tfe"):
        return None
    places, pc = Places(ctx), ctx.inst.pc

    def look(b: Batch) -> None:
        for _, inside, addresses, element, _ in places.of(b):
            wave, lane = np.nonzero(inside)
            at, size = np.broadcast_to(addresses, inside.shape)[inside], element.size_bytes
            _everywhere(b, kind, wave, lane, at, size, pc, level_of(ctx, kind, 8 * size))

    return look


def _scalar_write(ctx: Context) -> Step | None:
    """A store, or an atomic operation, by a wave as a whole (gfx9)."""
    name, pc = ctx.inst.name, ctx.inst.pc
    start = "s_buffer_" if name.startswith("s_buffer_") else "s_"
    access = parse_access(name.removeprefix(start))
    if access is None or access.verb == "load" or not ctx.is_gfx9:
        return None
    places, size, kind = places_of(ctx, start, offset_of(ctx)), access.bits // 8, access.verb
    level = DEVICE if kind == "atomic" else PLAIN

    def look(b: Batch) -> None:
        addresses, inside = places(b, size)
        wave = np.flatnonzero(inside)
        _everywhere(b, kind, wave, np.zeros(len(wave), np.int64), addresses[wave], size, pc, level)

    return look


def _scalar(ctx: Context) -> Step | None:
    """A load by a wave as a whole."""
    name, pc = ctx.inst.name, ctx.inst.pc
    verb, _, what = name.removeprefix("s_buffer_").removeprefix("s_").partition("_")
    if verb != "load" or what not in LOAD_BYTES:
        return _scalar_write(ctx)
    first, size = 2 * ctx.inst.fields["sbase"], LOAD_BYTES[what]
    base, offset = scalar64(ctx, first), offset_of(ctx)
    through_descriptor = name.startswith("s_buffer_")

    def look(b: Batch) -> None:
        start, wave = base(b), np.arange(b.waves)
        if through_descriptor:
            start = start & np.uint64(0xFFFFFFFFFFFF)
            wave = np.flatnonzero(offset(b) + np.uint64(size) <= b.s[:, first + 2])
        at = ((start + offset(b)) & ~np.uint64(min(size, 4) - 1))[wave]
        _everywhere(b, "load", wave, np.zeros(len(wave), np.int64), at, size, pc, PLAIN)

    return look
