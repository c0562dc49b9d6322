"""What tells of accesses to LDS, where waits are looked for.

In       a Context; then the batches of waves that run its instruction
Out      `lds_access`: what tells of it, before its step
Changes  the LdsWaits of the resident waves
Next     lds_waits.py (what comes of it), wait_steps.py (who asks), race_steps.py (the sister)
"""

from __future__ import annotations

import numpy as np

from hcq.emu.amd.shader.classes import WARP
from hcq.emu.amd.shader.lane_access import active, parse_access
from hcq.emu.amd.shader.lds_ops import lane_addresses, offset16, pair_access
from hcq.emu.amd.shader.lds_waits import LdsWaits
from hcq.emu.amd.shader.memory_ops import address_of, indices
from hcq.emu.amd.shader.operands import SHARED_APERTURE, Context, Step
from hcq.emu.amd.shader.waves import Batch


def lds_access(ctx: Context) -> Step | None:
    """What tells which bytes of LDS an instruction accesses; None for one that accesses none."""
    inst, fields = ctx.inst, ctx.inst.fields
    if inst.format == "FLAT":
        return _flat(ctx)
    if inst.format != "DS" or WARP.match(inst.name) or "addtid" in inst.name or "nop" in inst.name:
        return None
    pair = pair_access(inst.name[3:])
    if pair is not None:
        stores, size = pair[0] != "load", pair[1] // 8
        offsets = [np.uint64(fields[one] * pair[2] * size) for one in ("offset0", "offset1")]
    else:
        access = parse_access(inst.name[3:]) or parse_access("atomic_" + inst.name[3:].replace("_rtn", ""))
        if access is None:
            return None
        stores, size, offsets = access.verb != "load", access.bits // 8, [offset16(ctx)]

    def look(b: Batch) -> None:
        wave, lane = indices(b)
        for offset in offsets:
            at = lane_addresses(b, fields["addr"], offset)
            _waits(b).accessed(b.ids[wave], lane, at, size, inst.pc, stores)

    return look


def _flat(ctx: Context) -> Step | None:
    access = parse_access(ctx.inst.name.split("_", 1)[1])
    if access is None:
        return None
    address, size, pc = address_of(ctx), access.bits // 8, ctx.inst.pc

    def look(b: Batch) -> None:
        at = active(b, address(b))
        inside = at >> np.uint64(32) == SHARED_APERTURE
        if inside.any():
            wave, lane = indices(b)
            low = at[inside] & np.uint64(0xFFFFFFFF)
            _waits(b).accessed(b.ids[wave[inside]], lane[inside], low, size, pc, access.verb != "load")

    return look


def _waits(b: Batch) -> LdsWaits:
    found = b.residents.lds_waits
    assert found is not None  # a program whose steps tell runs with one
    return found
