"""Vector memory instructions: global, flat, scratch and buffer accesses; where their addresses come from.

In       a Context for one FLAT, GLOBAL, SCRATCH or MUBUF instruction
Out      a step that moves data for the active lanes
Changes  VGPRs, memory, scratch, and LDS through flat addresses
Next     lane_access.py (what moves), memory.py (the address space), lds_ops.py (LDS), scalar_memory_ops.py,
         loads_to_lds.py (loads whose result is no register's)
Source   RDNA3 and CDNA3 ISA documents: memory addressing

Scratch is held apart from memory, a part for each resident wave, a word of every lane beside each other; a flat address
reaches it through the private aperture.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from hcq.emu.amd.shader import lane_access
from hcq.emu.amd.shader.arrays import Array
from hcq.emu.amd.shader.errors import PageFault
from hcq.emu.amd.shader.field_registers import returns
from hcq.emu.amd.shader.isa import Instruction
from hcq.emu.amd.shader.lane_access import Access, access_of, active, located, parse_access, typed_access
from hcq.emu.amd.shader.lds_ops import LdsStore, modify_inside
from hcq.emu.amd.shader.operands import (
    PRIVATE_APERTURE,
    SHARED_APERTURE,
    Context,
    Step,
    scalar32,
    scalar64,
    vector_pair,
)
from hcq.emu.amd.shader.waves import Batch

LOWEST_APERTURE = min(SHARED_APERTURE, PRIVATE_APERTURE) << 32
SWIZZLE_ENABLE = 1 << 31
SPREAD_MASK = 0xF << 20 | 1 << 19  # element_size 19, 20; index_stride 21, 22; add_tid_enable 23
SPREAD_SCRATCH = 1 << 19 | 3 << 21 | 1 << 23  # elements of 4 bytes, 64 lanes, by lane
INDEX_STRIDE, SPREAD_GFX10 = 3 << 21, 1 << 23 | 1 << 22  # gfx10, elements of 4 bytes: 2 is 32 lanes, 3 is 64
INVALIDATES = {*"buffer_gl0_inv buffer_inv buffer_wbinvl1 buffer_wbinvl1_vol global_inv global_wbinv".split()}
OTHER_CACHES = {*"buffer_gl1_inv buffer_wbl2 buffer_invl2 global_wb".split()}


def only_stores(inst: Instruction) -> bool:
    """Whether an instruction gives nothing back; from gfx10 on such ones have a counter of their own, vscnt."""
    tail = inst.name.split("_", 1)[1].replace("_addtid", "")
    access = parse_access(tail) or typed_access(tail)
    return access is not None and (access.verb == "store" or (access.verb == "atomic" and not returns(inst)))


class ScratchStore:
    """The scratch of some lanes, seen as byte offsets of each; words of all lanes lie beside each other.

    memory   where they lie: a part of the emulator's own, or the kernel's memory
    step     bytes from a lane's word to its next one
    place    (offsets, size, "read" or "write") -> where in `memory` these bytes begin
    """

    def __init__(self, memory: Any, step: int, place: Callable[[Array, int, str], Array]) -> None:
        self.memory, self.step, self.place = memory, step, place

    def gather(self, offsets: Array, words: int) -> Array:
        """(n,) offsets -> (words, n) uint32. Any alignment; raises PageFault beyond the end."""
        if (offsets & np.uint64(3)).any():
            return np.stack([self.gather_bytes(offsets + np.uint64(4 * word), 4) for word in range(words)])
        at = self.place(offsets, 4 * words, "read")
        step = at.dtype.type(self.step)
        return np.stack([self.memory.gather(at + step * at.dtype.type(n), 1)[0] for n in range(words)])

    def gather_bytes(self, offsets: Array, size_bytes: int) -> Array:
        """(n,) offsets of a few bytes each -> (n,) uint32. Raises PageFault beyond the end."""
        value = np.zeros(len(offsets), np.uint32)
        for i in range(size_bytes):
            at = self.place(offsets + np.uint64(i), 1, "read")
            value |= self.memory.gather_bytes(at, 1) << np.uint32(8 * i)
        return value

    def scatter(self, offsets: Array, data: Array) -> None:
        """Write (words, n) uint32 at (n,) offsets. Raises PageFault beyond the end."""
        if (offsets & np.uint64(3)).any():
            for word in range(len(data)):
                self.scatter_bytes(offsets + np.uint64(4 * word), data[word], 4)
            return
        at = self.place(offsets, 4 * len(data), "write")
        step = at.dtype.type(self.step)
        for n in range(len(data)):
            self.memory.scatter(at + step * at.dtype.type(n), data[n : n + 1])

    def scatter_bytes(self, offsets: Array, data: Array, size_bytes: int) -> None:
        """Write the low bytes of (n,) uint32 at (n,) offsets. Raises PageFault beyond the end."""
        for i in range(size_bytes):
            at = self.place(offsets + np.uint64(i), 1, "write")
            self.memory.scatter_bytes(at, data >> np.uint32(8 * i), 1)

    def update(self, offsets: Array, dtype: Any, change: Callable[[Array], Array]) -> Array:
        """Refused: scratch memory has no atomics."""
        raise PageFault(int(offsets[0]), np.dtype(dtype).itemsize, "scratch atomic", "scratch has no atomics")


def scratch_of(b: Batch, wave: Array, lane: Array) -> ScratchStore:
    """The scratch of these lanes. On gfx90a it is where the kernel has set FLAT_SCRATCH to."""
    residents, lanes = b.residents, b.residents.wave_size
    if residents.flat_scratch:
        halves = b.s[wave, residents.flat_scratch : residents.flat_scratch + 2].astype(np.uint64)
        base = halves[:, 0] | halves[:, 1] << np.uint64(32)
        return scratch_at(residents.memory, base, lane, lanes, limit_of(b))
    size = residents.scratch_size
    first = b.ids[wave].astype(np.int64) * (size // 4) * lanes + lane

    def place(offsets: Array, size_bytes: int, kind: str) -> Array:
        if len(offsets) and int(offsets.max()) + size_bytes > size:
            raise _beyond_scratch(offsets, size_bytes, kind, size)
        signed = offsets.astype(np.int64)
        return ((signed >> 2) * lanes + first) * 4 + (signed & 3)

    return ScratchStore(residents.scratch, 4 * lanes, place)


def scratch_at(
    memory: Any, base: Array, lane: Array, lanes: int, limit: int = 0, stack: Array | None = None
) -> ScratchStore:
    """Scratch in the kernel's memory: `base` is where that of each lane's wave begins.

    limit  bytes that each lane has, where somebody wants to know of accesses beyond; 0: nobody does
    stack  how far behind the beginning of its own each lane's offsets are counted; None: not at all
    """
    own = base + np.uint64(4) * lane.astype(np.uint64)
    stride, three = np.uint64(lanes), np.uint64(3)

    def place(at: Array, size_bytes: int, kind: str) -> Array:
        if limit and len(at):
            offsets = at if stack is None else at + stack
            if int(offsets.max()) + size_bytes > limit:
                raise _beyond_scratch(offsets, size_bytes, kind, limit)
        return own + (at & ~three) * stride + (at & three)

    return ScratchStore(memory, 4 * lanes, place)


def limit_of(b: Batch) -> int:
    """The bytes of scratch of a lane on gfx90a, where accesses to memory are looked at; else 0.

    Hardware does not stop what goes beyond: it reaches what another lane, or another wave, has.
    """
    return 0 if b.residents.watch is None else b.residents.launch.scratch_bytes


def _beyond_scratch(offsets: Array, size_bytes: int, kind: str, size: int) -> PageFault:
    worst = int(offsets[offsets + np.uint64(size_bytes) > size][0])
    return PageFault(worst, size_bytes, f"scratch {kind}", f"the kernel has {size} bytes a work-item")


def indices(b: Batch) -> tuple[Array, Array]:
    """(wave, lane) of every active lane."""
    wave, lane = np.nonzero(b.lanes)
    return wave, lane


def compile_memory(ctx: Context) -> Step:
    """The step of a vector memory instruction."""
    inst = ctx.inst
    if inst.name in INVALIDATES:
        return lambda b: b.residents.memory.acquire()
    if inst.name in OTHER_CACHES:
        return lambda b: None  # a kernel neither invalidates nor writes back the L2
    tail = inst.name.split("_", 1)[1]
    if tail.endswith(("_addtid", "_addtid_b32")):
        return by_thread(ctx, tail)
    access = access_of(ctx, tail)
    if access is None:
        raise ctx.refuse()
    if inst.format == "MUBUF":
        return buffer_access(ctx, access)
    address = address_of(ctx)
    move = mover(ctx, access)
    segment = inst.format

    def run(b: Batch) -> None:
        if not b.all_lanes and not b.lanes.any():
            return
        addresses = active(b, address(b))
        if segment == "GLOBAL":
            located(inst.pc, b, addresses, lambda: move(b, b.residents.memory, addresses))
        elif segment == "SCRATCH":
            located(inst.pc, b, addresses, lambda: move(b, scratch_of(b, *indices(b)), addresses))
        else:
            located(inst.pc, b, addresses, lambda: flat(b, addresses, move))

    return run


def flat(b: Batch, addresses: Array, move: Callable[[Batch, Any, Array], None]) -> None:
    """Send each lane where the high word of its address says: LDS, scratch or memory."""
    if int(addresses.max()) < LOWEST_APERTURE:
        move(b, b.residents.memory, addresses)
        return
    high = addresses >> np.uint64(32)
    shared, private = high == SHARED_APERTURE, high == PRIVATE_APERTURE
    if not shared.any() and not private.any():
        move(b, b.residents.memory, addresses)
        return
    wave, lane = indices(b)
    saved = b.lanes, b.all_lanes
    low = addresses & np.uint64(0xFFFFFFFF)
    try:
        for chosen, kind in ((shared, "lds"), (private, "scratch"), (~(shared | private), "memory")):
            if not chosen.any():
                continue
            part = np.zeros_like(saved[0])
            part[wave[chosen], lane[chosen]] = True
            b.lanes, b.all_lanes = part, False
            if kind == "lds":
                move(b, LdsStore(b, wave[chosen]), low[chosen])
            elif kind == "scratch":
                move(b, scratch_of(b, wave[chosen], lane[chosen]), low[chosen])
            else:
                move(b, b.residents.memory, addresses[chosen])
    finally:
        b.lanes, b.all_lanes = saved


def mover(ctx: Context, access: Access, first: int = 0) -> Callable[[Batch, Any, Array], None]:
    """What happens to the addressed store: registers come from the instruction's data and vdst fields.

    first   so many registers behind those
    """
    fields = ctx.inst.fields
    file = first + (ctx.acc_offset if fields.get("acc") else 0)
    data_field = "vdata" if ctx.inst.format == "MUBUF" else "data"
    data = fields[data_field] + file
    vdst = fields.get("vdst", fields[data_field]) + file
    if access.verb == "load":
        return lambda b, store, addresses: lane_access.load(b, store, access, vdst, addresses)
    if access.verb == "store":
        return lambda b, store, addresses: lane_access.save(b, store, access, data, addresses)
    atomic = access.atomic
    assert atomic is not None
    second = data + access.words if atomic.takes_two else None
    returned = vdst if atomic_returns(ctx) else None

    def modify(b: Batch, store: Any, addresses: Array) -> None:
        how = modify_inside if isinstance(store, LdsStore) else lane_access.modify
        how(b, store, atomic, data, second, returned, addresses)

    return modify


def atomic_returns(ctx: Context) -> bool:
    """Whether an atomic puts what it found into registers."""
    return returns(ctx.inst)


def signed_offset(ctx: Context) -> int:
    """The offset in the instruction, with its sign where it has one."""
    return ctx.inst.fields["offset"] if ctx.inst.format == "MUBUF" and not ctx.is_gfx12 else ctx.offset


def address_of(ctx: Context) -> Callable[[Batch], Array]:
    """The addresses of the active lanes, from registers and offset."""
    fields = ctx.inst.fields
    offset = np.uint64(signed_offset(ctx) & 0xFFFFFFFFFFFFFFFF)
    saddr, vgpr = fields["saddr"], fields["addr"]
    has_saddr = saddr not in (ctx.isa.no_saddr, ctx.isa.no_address)
    if ctx.inst.format == "SCRATCH":
        mask = np.uint64(0xFFFFFFFF)
        base = scalar32(ctx, saddr) if has_saddr else None
        uses_vgpr = fields["sve"] if "sve" in fields else saddr == ctx.isa.no_saddr

        def scratch_offset(b: Batch) -> Array:
            total: Array = np.full((1, 1), offset, np.uint64)
            if base is not None:
                total = total + base(b)[:, None]
            if uses_vgpr:
                total = total + b.u32[vgpr]
            return total & mask

        return scratch_offset
    if ctx.inst.format == "GLOBAL" and has_saddr:
        scalar_base = scalar64(ctx, saddr)

        def from_base(b: Batch) -> Array:
            bases = scalar_base(b)
            addresses = b.u32[vgpr].astype(np.uint64)
            # nearly always all waves have one base, and adding a number is quicker than adding a column
            addresses += (bases[0] if (bases == bases[0]).all() else bases[:, None]) + offset
            return addresses

        return from_base
    pair = vector_pair(vgpr, np.uint64)
    return lambda b: pair(b) + offset if offset else pair(b)


class Buffer:
    """Where a buffer instruction goes: a 128-bit descriptor, a scalar offset, offsets and indices of lanes."""

    def __init__(self, ctx: Context, access: Access) -> None:
        fields = self.fields = ctx.inst.fields
        self.refuse = ctx.refuse
        self.descriptor = fields["srsrc"] if ctx.is_gfx12 else 4 * fields["srsrc"]
        self.scalar_offset = scalar32(ctx, fields["soffset"])
        self.immediate = np.uint64(signed_offset(ctx) & 0xFFFFFFFFFFFFFFFF)
        self.size = np.uint64(access.bits // 8)
        self.may_spread = bool(ctx.isa.flat_scratch) and not fields["idxen"]
        self.lanes = ctx.wave_size
        # what the last word of a swizzled descriptor must have, and where: only scratch memory's is emulated
        self.spread_bits, self.spread_mask = SPREAD_SCRATCH, SPREAD_MASK
        if not ctx.is_gfx9:
            self.spread_bits, self.spread_mask = (
                SPREAD_GFX10 | (self.lanes == 64) << 21,
                INDEX_STRIDE | 1 << 23,
            )

    def words(self, b: Batch) -> Array:
        """(waves, 1, 4) words of the descriptors."""
        found: Array = b.s[:, self.descriptor : self.descriptor + 4].astype(np.uint64)[:, None, :]
        return found

    def word(self, b: Batch, number: int) -> Array:
        """(waves, 1) words of the descriptors, of one place in them."""
        found: Array = b.scalar(self.descriptor + number).astype(np.uint64)[:, None]
        return found

    def is_spread(self, b: Batch) -> bool:
        """Whether the descriptor is swizzled."""
        return self.may_spread and bool(b.s[0, self.descriptor + 1] & SWIZZLE_ENABLE)

    def spread(self, b: Batch) -> tuple[ScratchStore, Array]:
        """Swizzled: the lanes of a wave have their words beside each other, as scratch memory has; active lanes'."""
        control = int(self.word(b, 3)[0, 0])
        if control & self.spread_mask != self.spread_bits:
            raise self.refuse(f"a swizzled descriptor with {control:#x} in its last word is not emulated")
        wave, lane = indices(b)
        start, offsets = self.spread_places(b)
        limit = limit_of(b)
        stack = self.stack(b)[wave] if limit else None
        store = scratch_at(b.residents.memory, start[wave, 0], lane, self.lanes, limit, stack)
        return store, active(b, offsets)

    def spread_places(self, b: Batch) -> tuple[Array, Array]:
        """Of a swizzled access: (where each wave's first word is, offsets of all lanes)."""
        offsets = np.full(b.lanes.shape, self.immediate, np.uint64)
        if self.fields["offen"]:
            offsets = offsets + b.u32[self.fields["vaddr"]]
        base = self.word(b, 0) | (self.word(b, 1) & np.uint64(0xFFFF)) << np.uint64(32)
        return base + self.scalar_offset(b)[:, None], offsets & np.uint64(0xFFFFFFFF)

    def stack(self, b: Batch) -> Array:
        """(waves,) where the stack pointer is that a swizzled access goes by, in bytes of each lane.

        It counts the bytes of all lanes. What is larger than all they have leads to another wave's memory: compilers
        before LLVM 11 passed their wave's own place so.
        """
        found: Array = np.broadcast_to(np.asarray(self.scalar_offset(b), np.uint64), (b.waves,))
        size = np.uint64(self.lanes * b.residents.launch.scratch_bytes)
        return np.where(found < size, found, np.uint64(0)) // np.uint64(self.lanes)

    def reported(self, b: Batch, store: ScratchStore, offsets: Array) -> Array:
        """What a fault of a swizzled access names: offsets of lanes where these have an end, else addresses."""
        if limit_of(b):
            return offsets + self.stack(b)[indices(b)[0]]
        return store.place(offsets, 1, "read")

    def places(self, b: Batch) -> tuple[Array, Array]:
        """(addresses of all lanes, which of them are in the descriptor's range)."""
        addresses, room = self.reach(b)
        return addresses, room >= self.size

    def reach(self, b: Batch) -> tuple[Array, Array]:
        """(addresses of all lanes, how many bytes of the descriptor's range begin there)."""
        low, high, records = (self.word(b, number) for number in range(3))
        fields = self.fields
        base = low | ((high & np.uint64(0xFFFF)) << np.uint64(32))
        stride = (high >> np.uint64(16)) & np.uint64(0x3FFF)
        offset = np.full(b.lanes.shape, self.immediate, np.uint64)
        index = np.zeros(b.lanes.shape, np.uint64)
        if fields["idxen"]:
            index = b.u32[fields["vaddr"]].astype(np.uint64)
        if fields["offen"]:
            offset = offset + b.u32[fields["vaddr"] + (1 if fields["idxen"] else 0)]
        left = np.where(offset < records, records - offset, np.uint64(0))
        room = np.where(stride == 0, left, np.where(index < records, self.size, np.uint64(0)))
        return base + index * stride + offset + self.scalar_offset(b)[:, None], room


def buffer_access(ctx: Context, access: Access) -> Step:
    """Through a 128-bit descriptor: what is out of its range reads 0 and is not written.

    Each word of a plain load or store of several words is in the range or not by itself; an atomic is as a whole.
    """
    fields, inst = ctx.inst.fields, ctx.inst
    if fields.get("lds") or fields.get("tfe"):
        raise ctx.refuse("buffer stores with lds, and accesses with tfe, do not run here")
    buffer, move = Buffer(ctx, access), mover(ctx, access)
    data = fields["vdata"] + (ctx.acc_offset if fields.get("acc") else 0)
    is_wide = access.words > 1 and access.verb != "atomic"
    word_moves = [mover(ctx, Access(access.verb, 32), word) for word in range(access.words if is_wide else 0)]

    def run(b: Batch) -> None:
        if buffer.is_spread(b):
            store, offsets = buffer.spread(b)
            located(inst.pc, b, buffer.reported(b, store, offsets), lambda: move(b, store, offsets))
            return
        addresses, room = buffer.reach(b)
        inside = room >= buffer.size
        saved = b.lanes, b.all_lanes
        if access.verb == "load":
            out = saved[0] & ~inside
            is_half = access.half is not None and not access.clears
            rows = [b.u16[data, :, :, access.half]] if is_half else list(b.u32[data : data + access.words])
            for row in rows:
                np.copyto(row, row.dtype.type(0), where=out)
        try:
            parts = [(saved[0] & inside, 0, move)]
            if is_wide:
                partly = saved[0] & ~inside & (room >= np.uint64(4))
                if partly.any():
                    parts += [
                        (partly & (room >= np.uint64(4 * word + 4)), 4 * word, one)
                        for word, one in enumerate(word_moves)
                    ]
            for lanes, offset, how in parts:
                b.lanes = lanes
                b.all_lanes = bool(lanes.all())
                if lanes.any():
                    reached = active(b, addresses + np.uint64(offset))
                    located(inst.pc, b, reached, partial(how, b, b.residents.memory, reached))
        finally:
            b.lanes, b.all_lanes = saved

    return run


def address_by_thread(ctx: Context) -> Callable[[Batch], Array]:
    """Scalar base + offset + 4 * lane."""
    base = scalar64(ctx, ctx.inst.fields["saddr"])
    offset = np.uint64(signed_offset(ctx) & 0xFFFFFFFFFFFFFFFF)
    lanes = 4 * np.arange(ctx.wave_size, dtype=np.uint64)
    return lambda b: (base(b) + offset)[:, None] + lanes


def by_thread(ctx: Context, tail: str) -> Step:
    """global_load_addtid and its store."""
    address = address_by_thread(ctx)
    access = Access("load" if tail.startswith("load") else "store", 32)
    move = mover(ctx, access)

    def run(b: Batch) -> None:
        if not b.lanes.any():
            return
        addresses = active(b, address(b))
        located(ctx.inst.pc, b, addresses, lambda: move(b, b.residents.memory, addresses))

    return run
