"""Vector instructions that also read or write a mask: carries, selection, wide products, division scaling.

In       VOP2 and VOP3SD sums with carry, v_cndmask, v_mad_u64_u32, v_div_scale, v_div_fmas
Out      a step that writes its vector result and its mask
Changes  VGPRs and SGPRs, when the step runs
Next     float_ops.py (the arithmetic of division), vector_operands.py
"""

from __future__ import annotations

import numpy as np

from hcq.emu.amd.shader import float_ops
from hcq.emu.amd.shader.floats import flushed
from hcq.emu.amd.shader.operands import Context, Reader, Step, lane_mask, vector_write, write_lane_mask
from hcq.emu.amd.shader.vector_operands import Sources, destination, flushing
from hcq.emu.amd.shader.waves import VCC, Batch

CARRIES = {
    f"v_{name}_{form}_u32": (name, form == "co_ci")
    for name in ("add", "sub", "subrev")
    for form in ("co", "co_ci")
}


def compile_carry(ctx: Context, name: str, operands: Sources) -> Step | None:
    """The step of an instruction that reads or writes a mask beside its numbers; None when it is none."""
    if name in CARRIES:
        return sum_with_carry(ctx, *CARRIES[name], operands)
    if name in ("v_cndmask_b32", "v_cndmask_b16"):
        return select(ctx, name, operands)
    if name in ("v_mad_u64_u32", "v_mad_i64_i32"):
        return wide_product(ctx, name, operands)
    if name.startswith("v_div_scale"):
        return scale(ctx, name[-3:], operands)
    if name.startswith("v_div_fmas"):
        return fmas(ctx, name[-3:], operands)
    return None


def mask_register(ctx: Context) -> int:
    """Where a VOP3SD instruction writes its mask; the VOP2 forms use VCC."""
    return ctx.inst.fields["sdst"] if ctx.inst.format == "VOP3SD" else VCC


def sum_with_carry(ctx: Context, name: str, carry_in: bool, operands: Sources) -> Step:
    """v_add_co, v_sub_co, v_addc and the like: a sum per lane, its carry into a mask."""
    left, right = operands.read(0, "u32"), operands.read(1, "u32")
    if name == "subrev":
        left, right = right, left
    carried = None
    if carry_in:
        carried = lane_mask(ctx, ctx.inst.fields["src2"] if ctx.inst.format == "VOP3SD" else VCC)
    write = destination(ctx, ctx.inst.name, "u32")
    target = mask_register(ctx)
    write_mask = write_lane_mask(ctx, target)
    adds = name == "add"
    compute = np.add if adds else np.subtract
    clamp = bool(ctx.inst.fields.get("clamp", 0))
    beyond = np.uint32(0xFFFFFFFF if adds else 0)  # what a carry or a borrow becomes with clamp
    register = ctx.inst.fields["vdst"]
    # a sum carries where it is less than either operand: the one that it does not take the place of
    kept = right if operands.code(0) == 256 + register else left
    is_plain = ctx.inst.sdwa is None and ctx.inst.dpp is None and target != ctx.null
    is_plain = is_plain and not clamp and not (adds and operands.code(0) == operands.code(1))

    def run(b: Batch) -> None:
        extra = carried(b) if carried is not None else None
        if extra is not None and not extra.any():
            extra = None  # the upper half of an address: hardly ever does one reach over 4 GiB
        x, y = left(b), right(b)
        if extra is None and is_plain and b.all_lanes:
            place = b.u32[register]
            if not adds:
                out = x < y
                np.subtract(x, y, out=place)
            else:
                np.add(x, y, out=place)
                out = place < kept(b)
            write_mask(b, out)
            return
        total = compute(x, y)
        if target == ctx.null and not clamp:
            write(b, total if extra is None else compute(total, extra))
            return
        out = total < x if adds else x < y
        if extra is not None:
            partial = total
            total = compute(partial, extra)
            out = out | (total < partial if adds else total > partial)
        write(b, np.where(out, beyond, total) if clamp else total)
        write_mask(b, out)

    return run


def select(ctx: Context, name: str, operands: Sources) -> Step:
    """mask ? S1 : S0. Sources are read as floats because neg and abs apply to them; bits pass unchanged."""
    kind = "f32" if name.endswith("b32") else "f16"
    first, second = operands.read(0, kind), operands.read(1, kind)
    mask = lane_mask(ctx, ctx.inst.fields["src2"] if ctx.inst.format == "VOP3" else VCC)
    write = destination(ctx, ctx.inst.name, kind)
    if kind == "f16":
        return lambda b: write(b, np.where(mask(b), second(b), first(b)))
    write_bits = destination(ctx, ctx.inst.name, "u32")

    def run(b: Batch) -> None:
        # by arithmetic on bits, which costs the same for all masks; np.where guesses, and mixed lanes cost it double
        bits = mask(b).astype(np.uint32)
        if bits.shape != b.lanes.shape:
            bits = np.broadcast_to(bits, b.lanes.shape).copy()
        x, y = first(b).view(np.uint32), second(b).view(np.uint32)
        bits *= x ^ y
        bits ^= x
        write_bits(b, bits)

    return run


def wide_product(ctx: Context, name: str, operands: Sources) -> Step:
    """32 x 32 + 64 -> 64 bits; the mask gets carry or signed overflow."""
    signed = name == "v_mad_i64_i32"
    narrow, wide = ("i32", "i64") if signed else ("u32", "u64")
    dtype = np.int64 if signed else np.uint64
    a, c, addend = operands.read(0, narrow), operands.read(1, narrow), operands.read(2, wide)
    write = vector_write(wide, ctx.inst.fields["vdst"])
    write_mask = write_lane_mask(ctx, mask_register(ctx))

    def run(b: Batch) -> None:
        product = a(b).astype(dtype) * c(b).astype(dtype)
        added = addend(b)
        total = product + added
        overflow = ((total < product) != (added < 0)) if signed else total < product
        write(b, total)
        write_mask(b, overflow)

    return run


def division_sources(ctx: Context, kind: str, operands: Sources) -> list[Reader]:
    """The three operands, with denormals flushed when the mode says so."""
    readers = [operands.read(i, kind) for i in range(3)]
    return [flushing(read) for read in readers] if ctx.mode.flush(kind) & 1 else readers


def scale(ctx: Context, kind: str, operands: Sources) -> Step:
    """v_div_scale: numbers brought into a range where the division's steps do not overflow, and which lanes were."""
    readers = division_sources(ctx, kind, operands)
    write = vector_write(kind, ctx.inst.fields["vdst"])
    write_mask = write_lane_mask(ctx, mask_register(ctx))

    def run(b: Batch) -> None:
        scaled, needs_more = float_ops.divide_scale(*(read(b) for read in readers))
        write(b, scaled)
        write_mask(b, needs_more)

    return run


def fmas(ctx: Context, kind: str, operands: Sources) -> Step:
    """v_div_fmas: a fused multiply-add that undoes the scale."""
    readers = division_sources(ctx, kind, operands)
    write = destination(ctx, ctx.inst.name, kind)
    flushes = bool(ctx.mode.flush(kind) & 2)

    def run(b: Batch) -> None:
        x, y, z = (read(b) for read in readers)
        result = float_ops.divide_fmas(x, y, z, b.mask(VCC))
        write(b, flushed(result) if flushes else result)

    return run
