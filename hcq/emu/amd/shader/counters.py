"""Counters: what the waves of a launch do, counted by steps that stand around those of the kernel.

In       instructions as a program compiles them; then the batches of waves that run them
Out      steps that count: `Counting`, a choice made when a program is decoded
Changes  the Tally of the launch; no register, no memory
Next     hcq/emu/shader/traffic.py (Tally), program.py (who asks for it), ../../nv/shader/counters.py (the sister)
Source   RDNA3, RDNA4, CDNA2 and CDNA3 ISA documents: formats and names of instructions

A program that is decoded without has none of these steps. Rounds of a compare-and-swap loop that are guessed at once
(retry.py) are not counted. Where the sister counts branches of threads, lanes here part by EXEC: an instruction that
takes some of a wave's lanes away, and leaves some, is a divergent branch.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable

import numpy as np

from hcq.emu.amd.shader.arrays import Array
from hcq.emu.amd.shader.chains import Walk
from hcq.emu.amd.shader.classes import LOAD_BYTES, WAITS, WARP, class_of, flops_of, matrix_flops
from hcq.emu.amd.shader.lane_access import active, parse_access
from hcq.emu.amd.shader.lds_ops import lane_addresses, offset16, pair_access
from hcq.emu.amd.shader.loads_to_lds import access_to_lds, is_load_to_lds, place_in_lds
from hcq.emu.amd.shader.memory_ops import (
    INVALIDATES,
    LOWEST_APERTURE,
    OTHER_CACHES,
    Buffer,
    ScratchStore,
    address_by_thread,
    address_of,
    indices,
    scratch_of,
)
from hcq.emu.amd.shader.operands import PRIVATE_APERTURE, SHARED_APERTURE, Context, Step, scalar64
from hcq.emu.amd.shader.scalar_memory_ops import CACHE_ONLY, offset_of
from hcq.emu.amd.shader.waves import Batch
from hcq.emu.shader.traffic import Tally

Count = Callable[[Batch], None]
TAKES_LANES = re.compile(r"s_\w+_saveexec_|v_cmpx_")


# ------------------------------------------------------------ steps that count


class Counting:
    """Makes the steps of one program count. Batches that run them belong to Residents that have a Tally."""

    def __init__(self) -> None:
        self.walk = Walk()

    def around(self, ctx: Context, step: Step) -> Step:
        """An instruction's step, with what it asks of memory counted before, and lanes that it takes away after."""
        name = ctx.inst.name
        if TAKES_LANES.match(name):
            return _divergence(step)
        count = access_of(ctx)
        if count is None:
            return step

        def counted(b: Batch) -> None:
            if b.answer is None and (
                b.all_lanes or b.lanes.any()
            ):  # a guess of retry.py asks nothing of memory
                count(b)
            step(b)

        return counted

    def head(self, instructions: list[Context]) -> Step:
        """A step before a block: what the instructions of it are."""
        each = [class_of(one.inst) for one in instructions]
        classes, chain = dict(Counter(each)), self.walk.block(instructions, each)
        flops: Counter[str] = Counter()
        matrix: Counter[str] = Counter()
        for one in instructions:
            names = [one.inst.name] if one.inst.pair is None else [half.name for half in one.inst.pair]
            for found in filter(None, map(flops_of, names)):
                flops[found[0]] += found[1]
            product = matrix_flops(one)
            if product is not None:
                matrix[product[0]] += product[1]
        barriers = sum(one.inst.name in ("s_barrier", "s_barrier_wait") for one in instructions)
        branches = sum(one.inst.name.startswith("s_cbranch") for one in instructions)

        def head(b: Batch) -> None:
            if b.answer is not None:
                return
            tally, lanes = _tally(b), int(np.count_nonzero(b.lanes))
            tally.instructions(classes, b.waves, lanes)
            tally.chain(chain.ops, chain.waits, b.waves)
            tally.record.barriers += barriers * b.waves
            tally.record.branches += branches * b.waves
            if flops:
                tally.flops(flops, lanes)
            for name, count in matrix.items():
                tally.matrix(name, count, b.waves)

        return head


def _tally(b: Batch) -> Tally:
    found = b.residents.tally
    assert found is not None  # a program that counts runs with one
    return found


def _divergence(step: Step) -> Step:
    """Counts the waves of which some lanes go on and some wait."""

    def counted(b: Batch) -> None:
        before = np.count_nonzero(b.lanes, axis=1)
        step(b)
        if b.answer is None:
            after = np.count_nonzero(b.lanes, axis=1)
            _tally(b).record.divergent_branches += int(np.count_nonzero((after > 0) & (after < before)))

    return counted


def access_of(ctx: Context) -> Count | None:
    """What counts the memory that an instruction asks for; None where it asks for none that is counted."""
    inst = ctx.inst
    if inst.name in INVALIDATES or inst.name in OTHER_CACHES or inst.name in CACHE_ONLY:
        return None
    if inst.format == "DS":
        return _shared(ctx)
    if inst.format == "SMEM":
        return _scalar(ctx)
    if inst.format == "MUBUF":
        return _buffer(ctx)
    if inst.format in ("FLAT", "GLOBAL", "SCRATCH"):
        return _vector(ctx)
    return None


def _left_out(name: str) -> Count:
    """An instruction that reaches memory in a way that nobody models yet."""
    return lambda b: _tally(b).leave_out(name, b.waves)


def _of_waves(b: Batch, wave: Array) -> tuple[Array, Array]:
    """(waves, as their numbers in the launch; their blocks' numbers in the grid) of places in the batch."""
    ids = b.ids[wave]
    residents = b.residents
    blocks = residents.group_ids[ids]
    return blocks * residents.waves_per_group + residents.place_in_group[ids], blocks


def is_kept_by_l1(ctx: Context) -> bool:
    """Whether a load may be answered by the unit's own cache: not if it is to see what other units wrote."""
    fields = ctx.inst.fields
    return not (fields.get("glc") or fields.get("sc1") or fields.get("scope"))


def _vector(ctx: Context) -> Count:
    """Global, flat and scratch instructions, those that load into LDS as well."""
    form, tail = ctx.inst.format, ctx.inst.name.split("_", 1)[1]
    to_lds = is_load_to_lds(ctx.inst)
    by_thread = tail.endswith("addtid_b32")
    access = access_to_lds(ctx) if to_lds else parse_access(tail.replace("_addtid", ""))
    if access is None:
        return _left_out(ctx.inst.name)
    address = address_by_thread(ctx) if by_thread else address_of(ctx)
    place = place_in_lds(ctx) if to_lds else None
    kind, size, by_l1 = access.verb, access.bits // 8, is_kept_by_l1(ctx)

    def count(b: Batch) -> None:
        at = active(b, address(b))
        wave, lane = indices(b)
        if place is not None:
            _tally(b).shared(_of_waves(b, wave)[0], lane, place(b, wave, lane), max(4, size))
        if form == "SCRATCH":
            _count_scratch(b, kind, wave, lane, at, size)
            return
        if form == "FLAT" and int(at.max(initial=0)) >= LOWEST_APERTURE:
            high, low = at >> np.uint64(32), at & np.uint64(0xFFFFFFFF)
            shared, private = high == SHARED_APERTURE, high == PRIVATE_APERTURE
            if shared.any():
                _tally(b).shared(_of_waves(b, wave[shared])[0], lane[shared], low[shared], size)
            if private.any():
                _count_scratch(b, kind, wave[private], lane[private], low[private], size)
            rest = ~(shared | private)
            at, wave = at[rest], wave[rest]
        warps, blocks = _of_waves(b, wave)
        _tally(b).memory(kind, warps, blocks, at, size, by_l1)

    return count


def _count_scratch(b: Batch, kind: str, wave: Array, lane: Array, offsets: Array, size: int) -> None:
    """Scratch of these lanes, by offsets. On gfx90a it is in the kernel's memory, else in a place of the model's."""
    warps, blocks = _of_waves(b, wave)
    if b.residents.flat_scratch:
        _count_words(b, kind, wave, scratch_of(b, wave, lane), offsets, size)
    else:
        _tally(b).private(kind, warps, blocks, lane, offsets, size)


def _count_words(b: Batch, kind: str, wave: Array, store: ScratchStore, offsets: Array, size: int) -> None:
    """Of scratch in memory: a lane's words lie apart."""
    warps, blocks = _of_waves(b, wave)
    words = max(1, size // 4)
    at = np.concatenate([store.place(offsets + np.uint64(4 * n), 4, kind) for n in range(words)])
    _tally(b).memory(kind, np.tile(warps, words), np.tile(blocks, words), at, min(size, 4), is_local=True)


def _buffer(ctx: Context) -> Count:
    fields = ctx.inst.fields
    to_lds = is_load_to_lds(ctx.inst)
    access = access_to_lds(ctx) if to_lds else parse_access(ctx.inst.name.split("_", 1)[1])
    if access is None or (fields.get("lds") and not to_lds) or fields.get("tfe"):
        return _left_out(ctx.inst.name)
    place = place_in_lds(ctx) if to_lds else None
    buffer, kind, size, by_l1 = Buffer(ctx, access), access.verb, access.bits // 8, is_kept_by_l1(ctx)

    def count(b: Batch) -> None:
        wave, lane = indices(b)
        if place is not None:
            _tally(b).shared(_of_waves(b, wave)[0], lane, place(b, wave, lane), max(4, size))
        if buffer.is_spread(b):
            store, offsets = buffer.spread(b)
            _count_words(b, kind, wave, store, offsets, size)
            return
        addresses, inside = buffer.places(b)
        reached = active(b, inside)
        warps, blocks = _of_waves(b, wave[reached])
        _tally(b).memory(kind, warps, blocks, active(b, addresses)[reached], size, by_l1)

    return count


def _shared(ctx: Context) -> Count | None:
    name = ctx.inst.name
    if WARP.match(name) or WAITS.match(name):
        return None
    if "addtid" in name or ctx.inst.fields.get("gds") or "gws" in name:
        return _left_out(name)
    fields = ctx.inst.fields
    pair = pair_access(name[3:])
    if pair is not None:
        _, bits, stride = pair
        size = bits // 8
        offsets = [np.uint64(fields[one] * stride * size) for one in ("offset0", "offset1")]
    else:
        access = parse_access(name[3:]) or parse_access("atomic_" + name[3:].replace("_rtn", ""))
        if access is None:
            return _left_out(name)
        size, offsets = access.bits // 8, [offset16(ctx)]

    def count(b: Batch) -> None:
        wave, lane = indices(b)
        warps, _ = _of_waves(b, wave)
        for offset in offsets:
            _tally(b).shared(warps, lane, lane_addresses(b, fields["addr"], offset), size)

    return count


def _scalar(ctx: Context) -> Count | None:
    name = ctx.inst.name
    if "time" in name:
        return None
    verb, _, what = name.removeprefix("s_buffer_").removeprefix("s_").partition("_")
    if verb != "load" or what not in LOAD_BYTES:
        return _left_out(name)
    first, size = 2 * ctx.inst.fields["sbase"], LOAD_BYTES[what]
    base, offset = scalar64(ctx, first), offset_of(ctx)
    through_descriptor = name.startswith("s_buffer_")

    def count(b: Batch) -> None:
        start, inside = base(b), np.ones(b.waves, bool)
        if through_descriptor:
            start = start & np.uint64(0xFFFFFFFFFFFF)
            inside = offset(b) + np.uint64(size) <= b.s[:, first + 2]
        at = (start + offset(b)) & ~np.uint64(min(size, 4) - 1)
        warps, blocks = _of_waves(b, np.flatnonzero(inside))
        _tally(b).scalar(warps, blocks, at[inside], size)

    return count
