"""Steps that follow what nobody wrote to its use: an address, a branch, a store, a matrix (HCQ_SANITIZE=init).

In       instructions as a program compiles them; then the batches of waves that run them
Out      `Following`: steps around those of the program
Changes  the Unwritten of the resident waves; no register, no memory
Next     shadows.py (where shadows are), shadow_results.py (instructions that compute), field_registers.py (which
         registers), hcq/emu/shader/unwritten.py (what is told), checks.py (who attaches an Unwritten)

An access to memory is made once more, by the same code, from shadows to shadows.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from hcq.emu.amd.shader import lane_access
from hcq.emu.amd.shader.arrays import Array
from hcq.emu.amd.shader.errors import PageFault
from hcq.emu.amd.shader.field_registers import SCALAR_FORMATS, VCC, VECTORS, Use, use_of
from hcq.emu.amd.shader.lane_access import access_of, active, parse_access
from hcq.emu.amd.shader.lds_ops import LdsStore, lane_addresses, offset16, pair_access, registers, waves_of
from hcq.emu.amd.shader.loads_to_lds import access_to_lds, is_load_to_lds, place_in_lds
from hcq.emu.amd.shader.memory_ops import Buffer, address_of, flat, indices, mover, scratch_of
from hcq.emu.amd.shader.operands import PRIVATE_APERTURE, SHARED_APERTURE, Context, Step, scalar64
from hcq.emu.amd.shader.scalar_memory_ops import LOAD_WORDS, offset_of
from hcq.emu.amd.shader.shadow_moves import moved
from hcq.emu.amd.shader.shadow_results import compute
from hcq.emu.amd.shader.shadows import SCC, Follow, Unwritten, number_of, numbers_of
from hcq.emu.amd.shader.waves import Batch
from hcq.emu.shader.unwritten import Read, tell

MATRICES = ("v_wmma", "v_swmmac", "v_mfma", "v_smfmac")


class Following:
    """Makes the steps of one program follow shadows. Their batches belong to Residents that have `unwritten`."""

    def around(self, ctx: Context, step: Step) -> Step:
        """The step of an instruction, with its shadows made before."""
        use = use_of(ctx.inst, ctx.wave_size, ctx.isa.has_halves)
        follow = _follow(ctx, use, step)
        written = [number_of(ctx, each) for part in use.writes for each in part.registers]
        named = [number_of(ctx, each) for part in (*use.reads, *use.writes) for each in part.registers]
        is_followed = ctx.inst.format in ("FLAT", "GLOBAL") and "swap" not in ctx.inst.name
        last = max(named, default=0) - VECTORS
        if ctx.inst.format in SCALAR_FORMATS and not ctx.inst.name.startswith("s_cmp_"):
            step = _with_condition(step)

        def run(b: Batch) -> None:
            unwritten = b.residents.unwritten
            if last >= b.residents.launch.vgprs and unwritten is not None:
                rows = b.u32
                b.bind(rows[: len(rows) // 2])  # where the shadows are, there is no register
                try:
                    step(b)
                finally:
                    b.bind(rows)
            elif unwritten is None or b.answer is not None:
                step(b)
            elif follow is not None:
                follow(unwritten, b)
                unwritten.is_followed = is_followed
                try:
                    step(b)
                finally:
                    unwritten.is_followed = False
            else:
                for number in written:
                    unwritten.put(b, number, None, None)
                step(b)

        return run

    def head(self, instructions: list[Context]) -> Step | None:
        """Nothing before a block."""
        return None

    def before_end(self, ctx: Context) -> Step | None:
        """What looks at the condition of a branch, which ends a block."""
        name, pc = ctx.inst.name, ctx.inst.pc
        if name in ("s_cbranch_scc0", "s_cbranch_scc1"):
            first, words = SCC, 1
        elif name in ("s_cbranch_vccz", "s_cbranch_vccnz"):
            first, words = VCC, ctx.wave_size // 32
        else:
            return None

        def run(b: Batch) -> None:
            unwritten = b.residents.unwritten
            if unwritten is not None:
                unwritten.used(b, "branch", range(first, first + words), pc)

        return run


def _with_condition(step: Step) -> Step:
    """A scalar step after which SCC is written, if the step writes it: a new array then."""

    def run(b: Batch) -> None:
        before = b.scc
        step(b)
        unwritten = b.residents.unwritten
        if b.scc is not before and unwritten is not None and b.answer is None:
            unwritten.put(b, SCC, None, None)

    return run


def _follow(ctx: Context, use: Use, step: Step) -> Follow | None:
    inst = ctx.inst
    if (move := moved(ctx, use, step)) is not None:
        return move
    if is_load_to_lds(inst):
        return _load_to_lds(ctx, use)
    if inst.format == "DS":
        return _lds(ctx, use)
    if inst.format in ("FLAT", "GLOBAL", "SCRATCH"):
        return _memory(ctx, use)
    if inst.format in ("SMEM", "MUBUF"):
        return _through(ctx, use)
    if inst.name.startswith(MATRICES):
        return _matrix(ctx, use)
    return compute(ctx, use)


def _after(
    unwritten: Unwritten, b: Batch, made: Batch, numbers: list[int], read: Callable[[Array], Read]
) -> None:
    """What was loaded is in the shadows of these registers: note where it came from."""
    for number in numbers:
        place = made.u32[number - VECTORS]
        if (place[b.lanes] != 0).any():
            unwritten.origins[number] = read(place)
        elif number in unwritten.origins and b.all_lanes and b.waves == len(unwritten.residents.group_of):
            del unwritten.origins[number]


def _read(unwritten: Unwritten, b: Batch, row: Array, space: str, addresses: Array, pc: int) -> Read:
    """The first lane whose register is unwritten, and from where it read that. row: the register's shadow."""
    place = int(np.argmax(active(b, row) != 0))
    wave, lane = (int(each[place]) for each in indices(b))
    address = int(addresses[place])
    address = address if space == "global" else address & 0xFFFFFFFF
    return Read(space, address, "", pc, unwritten.text_of(pc), b.lane_names(wave, lane))


def _shared_read(unwritten: Unwritten, b: Batch, addresses: Array, pc: int, row: Array) -> Read:
    return _read(unwritten, b, row, "shared", addresses, pc)


def _memory(ctx: Context, use: Use) -> Follow | None:
    """Global, flat and scratch memory."""
    inst = ctx.inst
    access = access_of(ctx, inst.name.split("_", 1)[1])
    if access is None:
        return None
    address, move, pc = address_of(ctx), mover(ctx, access), inst.pc
    has_saddr = use.read("saddr") is not None
    made_of = [*numbers_of(ctx, use.read("saddr"))]
    lane = numbers_of(ctx, use.read("addr"))
    if not (inst.format == "SCRATCH" and has_saddr and not inst.fields.get("sve", 0)):
        made_of += lane[:1] if has_saddr or inst.format == "SCRATCH" else lane
    data = numbers_of(ctx, use.read("data")) if access.verb == "store" else []
    results = [number_of(ctx, each) for part in use.writes for each in part.registers]
    changes = access.verb == "atomic" and ("cmpswap" in inst.name or "swap" not in inst.name)

    def follow(unwritten: Unwritten, b: Batch) -> None:
        if not b.lanes.any():
            return
        unwritten.used(b, "address", made_of, pc)
        addresses = active(b, address(b))
        high = addresses >> np.uint64(32)
        if access.verb == "store" and inst.format != "SCRATCH":
            is_global = np.zeros(b.lanes.shape, bool)
            is_global[b.lanes] = (high != SHARED_APERTURE) & (high != PRIVATE_APERTURE)
            unwritten.used(b, "store", data, pc, is_global)
        if access.verb == "atomic":
            for number in results:
                unwritten.put(b, number, None, None)
            if changes:
                _changed(unwritten, b, unwritten.shadow.memory, addresses, access.words, "global", pc)
            return
        made = unwritten.shadows(b)
        unwritten.settle(b, data)
        try:
            if inst.format == "SCRATCH":
                move(made, scratch_of(made, *indices(b)), addresses)
            elif inst.format == "GLOBAL":
                move(made, unwritten.shadow.memory, addresses)
            else:
                flat(made, addresses, move)
        except PageFault:  # the instruction itself says so
            return
        space = "local" if inst.format == "SCRATCH" or (high == PRIVATE_APERTURE).any() else "global"
        space = "shared" if (high == SHARED_APERTURE).any() else space
        _after(unwritten, b, made, results, lambda row: _read(unwritten, b, row, space, addresses, pc))

    return follow


def _changed(
    unwritten: Unwritten, b: Batch, shadows: Any, addresses: Array, words: int, space: str, pc: int
) -> None:
    """An atomic operation of all lanes that are on: what nobody wrote there is told once, and counts as written."""
    found = shadows.gather(addresses, words).any(axis=0)
    which = np.flatnonzero(found)
    if not len(which):
        return
    wave, lane = (int(each[which[0]]) for each in indices(b))
    address, who, text = int(addresses[which[0]]), b.lane_names(wave, lane), unwritten.text_of(pc)
    read = Read(space, address if space == "global" else address & 0xFFFFFFFF, "", pc, text, who)
    tell(unwritten.checks, "atomic", read, text, pc, who, len(which))
    shadows.scatter(addresses, np.zeros((words, len(addresses)), np.uint32))


def _lds(ctx: Context, use: Use) -> Follow | None:
    inst = ctx.inst
    tail = inst.name[3:]
    pair, access, pc = pair_access(tail), access_of(ctx, inst.name[3:]), inst.pc
    results = [number_of(ctx, each) for part in use.writes for each in part.registers]
    made_of = numbers_of(ctx, use.read("addr"))
    data0, data1, vdst = registers(ctx)
    if pair is not None and pair[0] in ("load", "store"):
        verb, bits, stride = pair
        offsets = [np.uint64(inst.fields[one] * stride * bits // 8) for one in ("offset0", "offset1")]
        access = lane_access.Access(verb, bits)
        places = [vdst, vdst + access.words] if verb == "load" else [data0, data1]
    elif access is not None and access.verb in ("load", "store") and "addtid" not in tail:
        offsets, places = [offset16(ctx)], [vdst if access.verb == "load" else data0]
    else:
        return _lds_other(ctx, results, made_of)
    moved = access
    address = inst.fields["addr"]

    def follow(unwritten: Unwritten, b: Batch) -> None:
        if not b.lanes.any():
            return
        unwritten.used(b, "address", made_of, pc)
        made = unwritten.shadows(b)
        store = LdsStore(made, waves_of(b))
        for place, offset in zip(places, offsets):
            addresses = lane_addresses(b, address, offset)
            numbers = [VECTORS + place + word for word in range(moved.words)]
            if moved.verb == "store":
                unwritten.settle(b, numbers)
                lane_access.save(made, store, moved, place, addresses)
            else:
                lane_access.load(made, store, moved, place, addresses)
                _after(
                    unwritten, b, made, numbers, functools.partial(_shared_read, unwritten, b, addresses, pc)
                )

    return follow


def _lds_other(ctx: Context, results: list[int], made_of: list[int]) -> Follow:
    """Atomics: who changes what nobody wrote is told, an exchange writes it; and others, of which less is known."""
    inst = ctx.inst
    size = 8 if inst.name.endswith("64") else 4
    writes = "xchg" in inst.name or "wrxchg" in inst.name or "addtid" in inst.name or "append" in inst.name
    offset, address, pc = offset16(ctx), inst.fields["addr"], inst.pc
    changes = parse_access("atomic_" + inst.name[3:].replace("_rtn", "")) if not writes else None

    def follow(unwritten: Unwritten, b: Batch) -> None:
        if made_of:
            unwritten.used(b, "address", made_of, pc)
        if changes is not None and not inst.fields.get("gds"):
            store = LdsStore(unwritten.shadows(b), waves_of(b))
            _changed(unwritten, b, store, lane_addresses(b, address, offset), changes.words, "shared", pc)
        if writes:  # where exactly does not matter: less is found
            made = unwritten.shadows(b)
            if "addtid" in inst.name or "2addr" in inst.name or "2_" in inst.name or "append" in inst.name:
                unwritten.shadow.lds.data.fill(0)
            else:
                rows = np.zeros((size // 4, int(np.count_nonzero(b.lanes))), np.uint32)
                LdsStore(made, waves_of(b)).scatter(lane_addresses(b, address, offset), rows)
        for number in results:
            unwritten.put(b, number, None, None)

    return follow


def _load_to_lds(ctx: Context, use: Use) -> Follow | None:
    """What it brings was written."""
    if access_to_lds(ctx) is None:
        return None
    place = place_in_lds(ctx)

    def follow(unwritten: Unwritten, b: Batch) -> None:
        wave, lane = indices(b)
        if len(wave):
            rows = np.zeros((1, len(wave)), np.uint32)
            LdsStore(unwritten.shadows(b), wave).scatter(
                np.asarray(place(b, wave, lane)).astype(np.uint64), rows
            )

    return follow


def _through(ctx: Context, use: Use) -> Follow:
    """Scalar loads, and accesses by a descriptor: global memory, and scratch where the descriptor is swizzled."""
    pc, name = ctx.inst.pc, ctx.inst.name
    fields = [field for field in ("sbase", "soffset", "srsrc", "vaddr") if use.read(field) is not None]
    made_of = [number for field in fields for number in numbers_of(ctx, use.read(field))]
    data = numbers_of(ctx, use.read("vdata")) if "store" in name and "lds" not in name else []
    results = [number_of(ctx, each) for part in use.writes for each in part.registers]
    private = _private(ctx, results, data)
    words = LOAD_WORDS.get(name.removeprefix("s_load_")) if name.startswith("s_load_") else None
    scalars = None if words is None else _scalars(ctx, results, words)

    def follow(unwritten: Unwritten, b: Batch) -> None:
        unwritten.used(b, "address", made_of, pc)
        if scalars is not None:
            scalars(unwritten, b)
            return
        if private is not None and private(unwritten, b):
            return
        unwritten.used(b, "store", data, pc)
        for number in results:
            unwritten.put(b, number, None, None)

    return follow


def _scalars(ctx: Context, results: list[int], words: int) -> Follow:
    """A scalar load of words."""
    base, offset, pc = scalar64(ctx, 2 * ctx.inst.fields["sbase"]), offset_of(ctx), ctx.inst.pc

    def follow(unwritten: Unwritten, b: Batch) -> None:
        addresses = (base(b) + offset(b)) & ~np.uint64(3)
        rows = unwritten.shadow.memory.gather(addresses, words)
        for word, number in enumerate(results[:words]):
            row, read = rows[word][:, None], None
            if row.any():
                wave = int(np.argmax(row[:, 0] != 0))
                at, who = int(addresses[wave]) + 4 * word, b.lane_names(wave, 0)
                read = Read("global", at, "", pc, unwritten.text_of(pc), who)
            unwritten.put(b, number, None if read is None else row, read)

    return follow


def _private(ctx: Context, results: list[int], data: list[int]) -> Callable[[Unwritten, Batch], bool] | None:
    """What follows an access of scratch by a descriptor, as gfx90a has it; it says whether that was one."""
    access = access_of(ctx, ctx.inst.name.split("_", 1)[1]) if ctx.inst.format == "MUBUF" else None
    if access is None or access.verb == "atomic" or not ctx.isa.flat_scratch or ctx.inst.fields.get("lds"):
        return None
    buffer, move, pc = Buffer(ctx, access), mover(ctx, access), ctx.inst.pc

    def follow(unwritten: Unwritten, b: Batch) -> bool:
        if not buffer.is_spread(b):
            return False
        if not b.lanes.any():
            return True
        offsets = buffer.spread(b)[1] + buffer.stack(b)[indices(b)[0]]
        made = unwritten.shadows(b)
        unwritten.settle(b, data)
        try:
            move(made, scratch_of(made, *indices(b)), offsets)
        except PageFault:  # beyond its end; the instruction itself says so, where somebody asks
            for number in results:
                unwritten.put(b, number, None, None)
            return True
        _after(unwritten, b, made, results, lambda row: _read(unwritten, b, row, "local", offsets, pc))
        return True

    return follow


def _matrix(ctx: Context, use: Use) -> Follow:
    sources = [number_of(ctx, each) for part in use.reads for each in part.registers]
    results = [number_of(ctx, each) for part in use.writes for each in part.registers]
    pc = ctx.inst.pc

    def follow(unwritten: Unwritten, b: Batch) -> None:
        unwritten.used(b, "matrix", sources, pc)
        for number in results:
            unwritten.put(b, number, None, None)

    return follow
