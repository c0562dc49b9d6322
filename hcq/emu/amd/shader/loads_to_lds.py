"""Loads to LDS: global_load_lds_dword, buffer_load_dword with lds, and their sisters: no register gets the result.

In       a Context for one such instruction; for the others of a program that has some: their steps
Out      a step that reads memory at once, and steps by which what was read comes to LDS no sooner than it must
Changes  LDS, by way of the Arrivals of the resident waves
Next     arrivals.py (what is under way), memory_ops.py (addresses), lds_ops.py (LDS), counters.py (counts both ways)
Source   CDNA3 ISA, 10.3 (the same in CDNA4's): LDS_ADDR = LDSbase + M0[17:2] * 4 + INST.OFFSET + ThreadID * 4, and such
         an instruction counts in vmcnt alone; gfx950's of 12 and 16 bytes have ThreadID * 16.
         LLVM 22: before gfx940 it is the bit `lds` of global_load_dword
         (FLATInstructions.td); no invalidation of caches counts in vmcnt (SIInsertWaitcnts.cpp)

A lane has a word of LDS for all that is smaller: bytes and halves are widened. What lies outside of LDS is dropped.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from hcq.emu.amd.shader.arrays import Array
from hcq.emu.amd.shader.isa import Instruction, wait_counts
from hcq.emu.amd.shader.lane_access import Access, active, located, parse_access
from hcq.emu.amd.shader.lds_ops import LdsStore
from hcq.emu.amd.shader.memory_ops import (
    INVALIDATES,
    OTHER_CACHES,
    Buffer,
    address_of,
    indices,
    only_stores,
    scratch_of,
    signed_offset,
)
from hcq.emu.amd.shader.operands import Context, Step
from hcq.emu.amd.shader.waves import Batch

SEGMENTS = ("FLAT", "GLOBAL", "SCRATCH")
LARGE_BITS = (96, 128)  # gfx950 alone has these
M0_BYTES = 0x3FFFC  # M0[17:2] * 4


def is_load_to_lds(inst: Instruction) -> bool:
    """Whether an instruction loads to LDS by itself."""
    if inst.format == "MUBUF":
        return bool(inst.fields.get("lds")) and "_load_" in inst.name
    return inst.format in SEGMENTS and ("_load_lds_" in inst.name or bool(inst.fields.get("lds")))


def access_to_lds(ctx: Context) -> Access | None:
    """What such an instruction loads; None for what no lane's place in LDS takes."""
    access = parse_access(ctx.inst.name.split("_", 1)[1].replace("load_lds_", "load_"))
    if access is None or access.verb != "load" or access.half is not None:
        return None
    fits = access.bits <= 32 or (ctx.isa.has_wide_loads_to_lds and access.bits in LARGE_BITS)
    return access if fits else None


def compile_load_to_lds(ctx: Context) -> Step:
    """Memory is read, and faults, at once; LDS has the words when the wave has waited."""
    access = access_to_lds(ctx)
    if access is None or ctx.inst.format == "FLAT":
        sizes = "1, 2, 4, 12 and 16" if ctx.isa.has_wide_loads_to_lds else "1, 2 and 4"
        raise ctx.refuse(f"only loads of {sizes} bytes from global memory or scratch go to LDS")
    if ctx.inst.fields.get("tfe"):
        raise ctx.refuse("buffer accesses with tfe do not run here")
    loaded, place = access, place_in_lds(ctx)
    size_bytes = max(4, loaded.bits // 8)
    is_scratch = ctx.inst.format == "SCRATCH"
    buffer = Buffer(ctx, access) if ctx.inst.format == "MUBUF" else None
    address = address_of(ctx) if buffer is None else None

    def run(b: Batch) -> None:
        if not b.lanes.any():
            return
        wave, lane = indices(b)
        in_range = None
        if buffer is None:
            assert address is not None
            addresses = active(b, address(b))
        elif buffer.is_spread(b):
            raise ctx.refuse("a swizzled descriptor of a load to LDS is not emulated")
        else:
            everywhere, inside = buffer.places(b)
            in_range, addresses = active(b, inside), active(b, everywhere)
        memory = scratch_of(b, wave, lane) if is_scratch else b.residents.memory
        reached = addresses if in_range is None else addresses[in_range]

        def move() -> None:
            rows = _loaded(memory, loaded, reached)
            if in_range is not None:  # what is beyond the descriptor's range is zeros
                some, rows = rows, np.zeros((len(rows), len(addresses)), np.uint32)
                rows[:, in_range] = some
            at, fits = LdsStore(b, wave).place(place(b, wave, lane), size_bytes)
            ids = b.ids[wave]
            if fits is not None:
                ids, at, rows = ids[fits], at[fits], rows[:, fits]
            for number, words in enumerate(rows):
                b.residents.arrivals.begin(ids, at + 4 * number, words, ctx.inst.pc)

        located(ctx.inst.pc, b, reached, move)

    return run


def _loaded(memory: Any, access: Access, addresses: Array) -> Array:
    """(word, lane) words as they come to LDS: bytes and halves are widened."""
    if access.bits >= 32:
        rows: Array = memory.gather(addresses, access.words)
        return rows
    words: Array = memory.gather_bytes(addresses, access.bits // 8)
    if access.signed:
        top = np.uint32(1 << (access.bits - 1))
        words = (words ^ top) - top
    return words[None]


def place_in_lds(ctx: Context) -> Callable[[Batch, Array, Array], Array]:
    """Where such an instruction puts what these lanes load: (batch, wave, lane) -> offsets in LDS."""
    access = access_to_lds(ctx)
    stride = 16 if access is not None and access.bits in LARGE_BITS else 4
    offset, m0 = signed_offset(ctx), ctx.m0

    def place(b: Batch, wave: Array, lane: Array) -> Array:
        base = b.s[wave, m0] & np.uint32(M0_BYTES)
        found: Array = (base.astype(np.int64) + offset + stride * lane).astype(np.uint64)
        return found

    return place


def counted(ctx: Context, step: Step) -> Step:
    """An instruction's step, which waits if it is s_waitcnt, and is counted in vmcnt if it belongs there."""
    inst = ctx.inst
    if inst.name in ("s_waitcnt", "s_waitcnt_vmcnt"):
        bits = inst.fields["simm16"]
        left = wait_counts(bits, ctx.isa.generation)[0] if inst.name == "s_waitcnt" else bits
        return lambda b: b.residents.arrivals.wait(b.ids, left)
    if inst.format not in (*SEGMENTS, "MUBUF") or inst.name in INVALIDATES or inst.name in OTHER_CACHES:
        return step
    if not ctx.is_gfx9 and only_stores(inst):
        return step

    def run(b: Batch) -> None:
        step(b)
        if b.answer is None:  # a guess of retry.py issues nothing
            b.residents.arrivals.count(b.ids)

    return run


def all_arrive(b: Batch) -> None:
    """A wave ends: that waits for all that is under way."""
    b.residents.arrivals.wait(b.ids, 0)
