"""Shadows that move: of instructions that put bits of their sources elsewhere, in one lane or among those of a wave.

In       the Context of such an instruction, and its own step
Out      `moved`: what it makes of shadows; None: it computes; `sdwa_readers`: the parts that an SDWA word names
Changes  the Unwritten of the resident waves
Next     shadow_results.py (instructions that compute), shadows.py (where shadows are), init_steps.py (who asks)

The step itself is run once more, on the registers' shadows. What says where bits go (a selector, a lane, a position)
keeps its value; where that is unwritten, so is the whole result.
"""

from __future__ import annotations

import numpy as np

from hcq.emu.amd.shader.arrays import Array
from hcq.emu.amd.shader.field_registers import VECTORS, Use
from hcq.emu.amd.shader.lane_ops import lane_number
from hcq.emu.amd.shader.operands import Context, Reader, Step, source
from hcq.emu.amd.shader.shadows import Follow, Unwritten, number_of, numbers_of
from hcq.emu.amd.shader.vector_operands import sdwa_part
from hcq.emu.amd.shader.waves import Batch

# which sources an instruction moves; the others say where to
MOVES = {
    "v_perm_b32": ("src0", "src1"), "v_alignbit_b32": ("src0", "src1"), "v_alignbyte_b32": ("src0", "src1"),
    "v_bfe_u32": ("src0",), "v_bfe_i32": ("src0",), "v_bfrev_b32": ("src0",),
    "v_permlane16_b32": ("src0",), "v_permlanex16_b32": ("src0",), "v_permlane16_var_b32": ("src0",),
    "v_permlanex16_var_b32": ("src0",), "v_permlane64_b32": ("src0",), "v_permlane16_swap_b32": ("src0",),
    "v_permlane32_swap_b32": ("src0",), "v_swap_b32": ("src0",),
    "ds_bpermute_b32": ("data0",), "ds_bpermute_fi_b32": ("data0",), "ds_permute_b32": ("data0",),
    "ds_swizzle_b32": ("addr",),
}  # fmt: skip
KEEPS = ("v_swap", "v_permlane")  # what is in the destination before may stay, or move


def moved(ctx: Context, use: Use, step: Step) -> Follow | None:
    """An instruction that moves bits of vector registers. step: its own, which tells nobody."""
    if ctx.inst.name == "v_writelane_b32":
        return _written_lane(ctx, use)
    fields = MOVES.get(ctx.inst.name)
    if fields is None or ctx.inst.sdwa is not None or ctx.inst.dpp is not None:
        return None
    parts = [part for part in use.reads if part.field in fields]
    results = [number for part in use.writes for number in numbers_of(ctx, part)]
    data = [number for part in parts for number in numbers_of(ctx, part)]
    if ctx.inst.name.startswith(KEEPS):
        data += results
    controls = [
        number for part in use.reads if part not in parts and part.field != "old" for number in part.registers
    ]
    if len(parts) != len(fields) or any(part.first < VECTORS for part in parts) or set(data) & set(controls):
        return None

    def follow(unwritten: Unwritten, b: Batch) -> None:
        decides = unwritten.origin(controls)
        read = decides or unwritten.origin(data)
        if read is None:
            for number in results:
                unwritten.put(b, number, None, None)
            return
        if decides is not None and any((unwritten.of(b, one) * b.lanes).any() for one in controls):
            for number in results:
                unwritten.put(b, number, np.full((1, 1), 0xFFFFFFFF, np.uint32), read)
            return
        unwritten.settle(b, (*data, *results))
        made = unwritten.shadows(b)
        rows = [number - VECTORS for number in controls if number >= VECTORS]
        kept = [made.u32[row].copy() for row in rows]
        for row in rows:
            made.u32[row] = b.u32[row]
        step(made)
        for row, old in zip(rows, kept):
            if row + VECTORS not in results:
                made.u32[row] = old
        for number in results:
            unwritten.note(b, number, read)

    return follow


def _written_lane(ctx: Context, use: Use) -> Follow:
    """v_writelane: one lane has what was written, or was not, of a scalar register; the others stay."""
    number = number_of(ctx, use.writes[0].first)
    reads = [one for part in use.reads if part.field == "src0" for one in part.registers]
    lane = lane_number(ctx, ctx.inst.fields["src1"])

    def follow(unwritten: Unwritten, b: Batch) -> None:
        before, read = unwritten.origin([number]), unwritten.origin(reads)
        if before is None and read is None:
            return
        unwritten.settle(b, [number])
        row = unwritten.shadows(b).u32[number - VECTORS]
        row[np.arange(b.waves), lane(b)] = (
            unwritten.of(b, reads[0])[:, 0] if read is not None else np.uint32(0)
        )
        if read is not None:
            unwritten.origins[number] = read

    return follow


def sdwa_readers(ctx: Context) -> dict[str, Reader]:
    """For each source of an instruction with an SDWA word, the byte or half that it takes, extended."""
    word = ctx.inst.sdwa
    if word is None:
        return {}
    first = _part_reader(ctx, word.src0 if word.s0 else 256 + word.src0, word.src0_sel, bool(word.sext0))
    if "vsrc1" not in ctx.inst.fields:
        return {"src0": first}
    register = ctx.inst.fields["vsrc1"]
    second = _part_reader(ctx, register if word.s1 else 256 + register, word.src1_sel, bool(word.sext1))
    return {"src0": first, "vsrc1": second}


def _part_reader(ctx: Context, code: int, selector: int, is_signed: bool) -> Reader:
    whole = source(ctx, code, "u32")
    shift, width = sdwa_part(selector)
    mask, top = np.uint32((1 << width) - 1), np.uint32(1 << (width - 1))

    def read(b: Batch) -> Array:
        piece: Array = (whole(b) >> np.uint32(shift)) & mask
        return (piece ^ top) - top if is_signed else piece

    return read
