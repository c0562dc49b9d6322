"""Steps that tell of every access to LDS, for programs whose races are looked for.

In       instructions as a program compiles them; then the batches of waves that run them
Out      `Looking`: steps around those of the program
Changes  the SharedRaces of the resident waves; no register, no memory
Next     hcq/emu/shader/shared_races.py (what comes of it), counters.py (the same for counting), program.py (who asks)
"""

from __future__ import annotations

import numpy as np

from hcq.emu.amd.shader.counters import WAITS, WARP
from hcq.emu.amd.shader.lane_access import active, parse_access
from hcq.emu.amd.shader.lds_ops import lane_addresses, offset16, pair_access
from hcq.emu.amd.shader.loads_to_lds import access_to_lds, is_load_to_lds, place_in_lds
from hcq.emu.amd.shader.memory_ops import LOWEST_APERTURE, address_of, indices
from hcq.emu.amd.shader.operands import SHARED_APERTURE, Context, Step
from hcq.emu.amd.shader.waves import Batch
from hcq.emu.shader.shared_races import SharedRaces

LOADS, STORES = ("load", "read"), ("store", "write")


class Looking:
    """Makes the steps of one program tell what they do to LDS. Their batches belong to Residents that have `races`."""

    def around(self, ctx: Context, step: Step) -> Step:
        """The step of an instruction that touches LDS, with what it touches told before."""
        look = _of(ctx)
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


def _of(ctx: Context) -> Step | None:
    form = ctx.inst.format
    if form == "DS":
        return _shared(ctx)
    if is_load_to_lds(ctx.inst):
        return _load_to_lds(ctx)
    return _flat(ctx) if form == "FLAT" else None


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

    def look(b: Batch) -> None:
        wave, lane = indices(b)
        for offset in offsets:
            _races(b).access(kind, b.ids[wave], lane, lane_addresses(b, fields["addr"], offset), size, pc)

    return look


def _load_to_lds(ctx: Context) -> Step | None:
    access = access_to_lds(ctx)
    if access is None:
        return None
    place, pc, size = place_in_lds(ctx), ctx.inst.pc, max(4, access.bits // 8)

    def look(b: Batch) -> None:
        wave, lane = indices(b)
        _races(b).access("store", b.ids[wave], lane, place(b, wave, lane), size, pc)

    return look


def _flat(ctx: Context) -> Step | None:
    tail = ctx.inst.name.split("_", 1)[1]
    access = parse_access(tail)
    if access is None:
        return None
    address, kind, size, pc = address_of(ctx), access.verb, access.bits // 8, ctx.inst.pc

    def look(b: Batch) -> None:
        at = active(b, address(b))
        if int(at.max(initial=0)) < LOWEST_APERTURE:
            return
        inside = at >> np.uint64(32) == SHARED_APERTURE
        wave, lane = indices(b)
        low = at[inside] & np.uint64(0xFFFFFFFF)
        _races(b).access(kind, b.ids[wave[inside]], lane[inside], low, size, pc)

    return look


def _races(b: Batch) -> SharedRaces:
    found = b.residents.races
    assert found is not None  # a program whose steps look runs with one
    return found
