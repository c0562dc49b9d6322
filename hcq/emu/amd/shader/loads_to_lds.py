"""Loads to LDS: global_load_lds_dword and its sisters, whose result goes to LDS and no register.

In       a Context for one such instruction; for the others of a program that has some: their steps
Out      a step that reads memory at once, and steps by which what was read comes to LDS no sooner than it must
Changes  LDS, by way of the Arrivals of the resident waves
Next     arrivals.py (what is under way), memory_ops.py (addresses), lds_ops.py (LDS), counters.py (counts both ways)
Source   CDNA3 ISA, 10.3 (the same in CDNA4's): LDS_ADDR = LDSbase + M0[17:2] * 4 + INST.OFFSET + ThreadID * 4, and such
         an instruction counts in vmcnt alone. LLVM 22: before gfx940 it is the bit `lds` of global_load_dword
         (FLATInstructions.td); no invalidation of caches counts in vmcnt (SIInsertWaitcnts.cpp)

A lane has a word of LDS whatever it loads: bytes and halves are widened. What lies outside of LDS is dropped.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from hcq.emu.amd.shader.arrays import Array
from hcq.emu.amd.shader.isa import Instruction
from hcq.emu.amd.shader.lane_access import Access, active, located, parse_access
from hcq.emu.amd.shader.lds_ops import LdsStore
from hcq.emu.amd.shader.memory_ops import (
    INVALIDATES,
    OTHER_CACHES,
    address_of,
    indices,
    scratch_of,
    signed_offset,
)
from hcq.emu.amd.shader.operands import Context, Step
from hcq.emu.amd.shader.waves import Batch

SEGMENTS = ("FLAT", "GLOBAL", "SCRATCH")
M0_BYTES = 0x3FFFC  # M0[17:2] * 4


def is_load_to_lds(inst: Instruction) -> bool:
    """Whether an instruction loads to LDS by itself."""
    return inst.format in SEGMENTS and ("_load_lds_" in inst.name or bool(inst.fields.get("lds")))


def access_to_lds(inst: Instruction) -> Access | None:
    """What such an instruction loads; None for what no lane's word of LDS takes."""
    access = parse_access(inst.name.split("_", 1)[1].replace("load_lds_", "load_"))
    is_plain = access is not None and access.verb == "load" and access.half is None and access.bits <= 32
    return access if is_plain else None


def compile_load_to_lds(ctx: Context) -> Step:
    """Memory is read, and faults, at once; LDS has the words when the wave has waited."""
    access = access_to_lds(ctx.inst)
    if access is None or ctx.inst.format == "FLAT":
        raise ctx.refuse("only loads of 1, 2 and 4 bytes from global memory or scratch go to LDS")
    loaded, address, place = access, address_of(ctx), place_in_lds(ctx)
    is_scratch = ctx.inst.format == "SCRATCH"

    def run(b: Batch) -> None:
        if not b.lanes.any():
            return
        wave, lane = indices(b)
        addresses = active(b, address(b))
        memory = scratch_of(b, wave, lane) if is_scratch else b.residents.memory

        def move() -> None:
            if loaded.bits == 32:
                words = memory.gather(addresses, 1)[0]
            else:
                words = memory.gather_bytes(addresses, loaded.bits // 8)
                if loaded.signed:
                    top = np.uint32(1 << (loaded.bits - 1))
                    words = (words ^ top) - top
            at, inside = LdsStore(b, wave).place(place(b, wave, lane), 4)
            ids = b.ids[wave]
            if inside is not None:
                ids, at, words = ids[inside], at[inside], words[inside]
            b.residents.arrivals.begin(ids, at, words, ctx.inst.pc)

        located(ctx.inst.pc, b, addresses, move)

    return run


def place_in_lds(ctx: Context) -> Callable[[Batch, Array, Array], Array]:
    """Where such an instruction puts what these lanes load: (batch, wave, lane) -> offsets in LDS."""
    offset, m0 = signed_offset(ctx), ctx.m0

    def place(b: Batch, wave: Array, lane: Array) -> Array:
        base = b.s[wave, m0] & np.uint32(M0_BYTES)
        found: Array = (base.astype(np.int64) + offset + 4 * lane).astype(np.uint64)
        return found

    return place


def counted(ctx: Context, step: Step) -> Step:
    """An instruction's step, which waits if it is s_waitcnt, and is counted in vmcnt if it belongs there."""
    inst = ctx.inst
    if inst.name == "s_waitcnt":
        bits = inst.fields["simm16"]
        left = bits & 0xF | bits >> 14 << 4
        return lambda b: b.residents.arrivals.wait(b.ids, left)
    if inst.format not in (*SEGMENTS, "MUBUF") or inst.name in INVALIDATES or inst.name in OTHER_CACHES:
        return step

    def run(b: Batch) -> None:
        step(b)
        if b.answer is None:  # a guess of retry.py issues nothing
            b.residents.arrivals.count(b.ids)

    return run


def all_arrive(b: Batch) -> None:
    """A wave ends: that waits for all that is under way."""
    b.residents.arrivals.wait(b.ids, 0)
