"""Loads and stores of gfx12 that move what no other does: a block of registers by a mask, and transposing loads.

In       a Context for one GLOBAL or SCRATCH instruction of those
Out      its step
Changes  VGPRs, memory, scratch
Next     memory_ops.py (addresses), lane_access.py (other loads and stores)
Source   LLVM: spills of blocks of registers (bit i of M0: register i, at 4 * i); measurements on gfx1201 by others of
         global_load_tr_b128 (two of them agree)

A transposing load takes sixteen bytes from each lane's address, eight halves. Of each eight lanes beside each other, it
gives lane L of them half L of what lane j loaded as its half j. A wave of 64 lanes has another form, of which no source
tells; nor does one of global_load_tr_b64. Lanes that are off give zeros.
"""

from __future__ import annotations

import numpy as np

from hcq.emu.amd.shader.lane_access import active, located
from hcq.emu.amd.shader.memory_ops import address_of, indices, scratch_of
from hcq.emu.amd.shader.operands import Context, Step
from hcq.emu.amd.shader.waves import Batch

BLOCK = 32
GROUP = 8  # lanes that a transposing load moves between


def compile_block_access(ctx: Context) -> Step | None:
    """The step of such an instruction; None for others."""
    name = ctx.inst.name
    if name.endswith(("load_block", "store_block")):
        return _block(ctx)
    if name == "global_load_tr_b128" and ctx.wave_size == 32:
        return _transposing(ctx)
    if name.startswith("global_load_tr_"):
        raise ctx.refuse(
            "no source says which lane gets what, but for global_load_tr_b128 in waves of 32 lanes"
        )
    return None


def _block(ctx: Context) -> Step:
    inst = ctx.inst
    is_load, is_scratch = "load" in inst.name, inst.format == "SCRATCH"
    first = inst.fields["vdst" if is_load else "data"]
    address, m0 = address_of(ctx), ctx.m0

    def run(b: Batch) -> None:
        masks = b.s[:, m0]
        addresses = np.broadcast_to(address(b), b.lanes.shape)
        saved = b.lanes, b.all_lanes
        try:
            for register in range(BLOCK):
                chosen = (masks >> np.uint32(register) & np.uint32(1)).astype(np.bool_)
                b.lanes, b.all_lanes = saved[0] & chosen[:, None], False
                if not b.lanes.any():
                    continue
                reached = active(b, addresses) + np.uint64(4 * register)
                store = scratch_of(b, *indices(b)) if is_scratch else b.residents.memory
                row = b.u32[first + register]

                def move() -> None:
                    if is_load:
                        row[b.lanes] = store.gather(reached, 1)[0]  # noqa: B023
                    else:
                        store.scatter(reached, active(b, row)[None])  # noqa: B023

                located(inst.pc, b, reached, move)
        finally:
            b.lanes, b.all_lanes = saved

    return run


def _transposing(ctx: Context) -> Step:
    address, first, pc = address_of(ctx), ctx.inst.fields["vdst"], ctx.inst.pc

    def run(b: Batch) -> None:
        if not b.lanes.any():
            return
        reached = active(b, address(b))
        words = np.zeros((*b.lanes.shape, 4), np.uint32)

        def load() -> None:
            words[b.lanes] = b.residents.memory.gather(reached, 4).T

        located(pc, b, reached, load)
        halves = words.view(np.uint16).reshape(b.waves, -1, GROUP, GROUP)
        turned = np.ascontiguousarray(halves.swapaxes(2, 3)).view(np.uint32).reshape(words.shape)
        for word in range(4):
            np.copyto(b.u32[first + word], turned[..., word], where=b.lanes)

    return run
