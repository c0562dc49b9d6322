"""Scalar memory: loads and stores of whole words for all lanes of a wave, and clocks.

In       a Context for one SMEM instruction
Out      a step that loads SGPRs
Changes  SGPRs
Next     memory.py (the address space), scalar_write_ops.py (atomics, scratch, by descriptor), scalar_ops.py
Source   RDNA3 and CDNA3 ISA documents: scalar memory
"""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np

from hcq.emu.amd.shader.arrays import Array
from hcq.emu.amd.shader.errors import PageFault
from hcq.emu.amd.shader.lane_access import parse_access
from hcq.emu.amd.shader.operands import Context, Step, scalar32, scalar64, scalar_write
from hcq.emu.amd.shader.scalar_write_ops import compile_scalar_write
from hcq.emu.amd.shader.waves import Batch

CACHE_ONLY = {
    *"s_gl1_inv s_dcache_inv s_dcache_wb s_dcache_inv_vol s_dcache_wb_vol s_atc_probe s_atc_probe_buffer".split(),
    *"s_dcache_discard s_dcache_discard_x2 s_prefetch_inst s_prefetch_inst_pc_rel s_prefetch_data".split(),
    *"s_prefetch_data_pc_rel s_buffer_prefetch_data".split(),
}
LOAD_WORDS = {
    **{f"b{32 * n}": n for n in (1, 2, 3, 4, 8, 16)},
    "dword": 1,
    **{f"dwordx{n}": n for n in (2, 4, 8, 16)},
}
VCC_HI, EXEC_HI = 107, 127
REALTIME_HZ = 100_000_000


def clock() -> int:
    """The constant 100 MHz counter."""
    return time.perf_counter_ns() * REALTIME_HZ // 1_000_000_000


def compile_scalar_memory(ctx: Context) -> Step:
    """The step of an SMEM instruction."""
    name = ctx.inst.name
    if name in CACHE_ONLY:
        return lambda b: None
    if name in ("s_memtime", "s_memrealtime"):
        write = scalar_write(ctx, ctx.inst.fields["sdata"], 2)
        count = time.perf_counter_ns if name == "s_memtime" else clock
        return lambda b: write(b, np.full(b.waves, count(), np.uint64))
    if name.endswith(("_i8", "_u8", "_i16", "_u16")):
        return load_narrow(ctx)
    if name.startswith("s_load_"):
        return load(ctx, LOAD_WORDS[name[7:]], False)
    if name.startswith("s_buffer_load_"):
        return load(ctx, LOAD_WORDS[name[14:]], True)
    if name.startswith("s_store_"):
        return store(ctx)
    step = compile_scalar_write(ctx, offset_of(ctx)) if ctx.is_gfx9 else None
    if step is None:
        raise ctx.refuse()
    return step


def offset_of(ctx: Context) -> Callable[[Batch], Array]:
    """Immediate and register offsets, as (wave,) uint64."""
    fields = ctx.inst.fields
    immediate = np.uint64(ctx.offset & 0xFFFFFFFFFFFFFFFF)
    if not ctx.is_gfx9:
        if fields["soffset"] == ctx.null:
            return lambda b: np.full(b.waves, immediate)
        extra = scalar32(ctx, fields["soffset"])
        return lambda b: extra(b).astype(np.uint64) + immediate
    if fields["imm"] and not fields["soffset_en"]:
        return lambda b: np.full(b.waves, immediate)
    if not fields["imm"] and not fields["soffset_en"]:
        only = scalar32(ctx, fields["offset"] & 127)
        return lambda b: only(b).astype(np.uint64)
    added = scalar32(ctx, fields["soffset"])
    constant = immediate if fields["imm"] else np.uint64(0)
    return lambda b: added(b).astype(np.uint64) + constant


def load(ctx: Context, words: int, through_descriptor: bool) -> Step:
    """Words from memory to scalar registers, directly or through a buffer descriptor."""
    fields, pc = ctx.inst.fields, ctx.inst.pc
    first = 2 * fields["sbase"]
    base, offset = scalar64(ctx, first), offset_of(ctx)
    sdata = fields["sdata"]
    write = [scalar_write(ctx, sdata + i) for i in range(words)]
    plain = sdata + words <= VCC_HI + 1

    def run(b: Batch) -> None:
        if through_descriptor:
            start = base(b) & np.uint64(0xFFFFFFFFFFFF)
            addresses = (start + offset(b)) & ~np.uint64(3)
            inside = offset(b) + np.uint64(4 * words) <= b.s[:, first + 2]
        else:
            addresses = (base(b) + offset(b)) & ~np.uint64(3)
            inside = None
        try:
            if inside is None:
                if len(addresses) > 1 and (addresses == addresses[0]).all():
                    addresses = addresses[:1]  # nearly always all waves load the same: arguments
                rows = b.residents.scalar_memory.gather(addresses, words)
            else:
                rows = np.zeros((words, b.waves), np.uint32)
                if inside.any():
                    rows[:, inside] = b.residents.scalar_memory.gather(addresses[inside], words)
        except PageFault as fault:
            wave = int(np.nonzero(addresses == np.uint64(fault.address))[0][0])
            raise fault.at(pc, b.lane_names(wave, 0)) from None
        if plain:
            b.forget(sdata, words)
            b.scalars[:, sdata : sdata + words] = rows.T
            return
        for index in range(words):
            write[index](b, rows[index])

    return run


def load_narrow(ctx: Context) -> Step:
    """One byte or half word, extended to a register."""
    first = 2 * ctx.inst.fields["sbase"]
    base, offset = scalar64(ctx, first), offset_of(ctx)
    write = scalar_write(ctx, ctx.inst.fields["sdata"])
    kind = ctx.inst.name.rpartition("_")[2]
    bits, is_signed = int(kind[1:]), kind[0] == "i"
    size, top = bits // 8, np.uint32(1 << bits - 1)
    through_descriptor = ctx.inst.name.startswith("s_buffer")

    def run(b: Batch) -> None:
        start = base(b) & np.uint64(0xFFFFFFFFFFFF) if through_descriptor else base(b)
        addresses = (start + offset(b)) & ~np.uint64(size - 1)
        inside = np.ones(b.waves, np.bool_)
        if through_descriptor:
            inside = offset(b) + np.uint64(size) <= b.s[:, first + 2]
        value = np.zeros(b.waves, np.uint32)
        try:
            if inside.any():
                value[inside] = b.residents.scalar_memory.gather_bytes(addresses[inside], size)
        except PageFault as fault:
            wave = int(np.nonzero(addresses == np.uint64(fault.address))[0][0])
            raise fault.at(ctx.inst.pc, b.lane_names(wave, 0)) from None
        write(b, (value ^ top) - top if is_signed else value)

    return run


def store(ctx: Context) -> Step:
    """Words from scalar registers to memory."""
    access = parse_access("store_" + ctx.inst.name[8:])
    if access is None:
        raise ctx.refuse()
    fields, words = ctx.inst.fields, access.words
    base, offset = scalar64(ctx, 2 * fields["sbase"]), offset_of(ctx)

    def run(b: Batch) -> None:
        addresses = (base(b) + offset(b)) & ~np.uint64(3)
        try:
            b.residents.scalar_memory.scatter(addresses, b.s[:, fields["sdata"] : fields["sdata"] + words].T)
        except PageFault as fault:
            raise fault.at(ctx.inst.pc, b.lane_names(0, 0)) from None

    return run
