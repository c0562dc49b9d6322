"""Vector instructions compiled: operands around a meaning, modifiers, EXEC, DPP, SDWA and dual issue.

In       a Context for one VOP1, VOP2, VOPC, VOP3, VOP3SD or VOPD instruction
Out      a step that runs it on a Batch
Changes  registers, when the step runs
Next     integer_ops.py, float_ops.py, convert_ops.py (meanings), compare_ops.py, carry_ops.py, lane_ops.py
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import numpy as np

from hcq.emu.amd.shader import (
    carry_ops,
    compare_ops,
    convert_ops,
    float_ops,
    integer_ops,
    lane_ops,
    scalar_float_ops,
    scaled_convert_ops,
    truth_table_ops,
    video_ops,
)
from hcq.emu.amd.shader.arrays import Array
from hcq.emu.amd.shader.isa import Opcode
from hcq.emu.amd.shader.meaning import ALIASES, ALIASES_RDNA4, Meaning
from hcq.emu.amd.shader.operands import TYPES, Context, Reader, Step, source, vector_source, vector_write
from hcq.emu.amd.shader.vector_operands import (
    Fetch,
    Sources,
    clamped,
    destination,
    flushing,
    old_destination,
    scaled,
)
from hcq.emu.amd.shader.waves import Batch

MEANINGS: dict[str, Meaning] = {
    **integer_ops.INTEGER,
    **float_ops.FLOAT,
    **convert_ops.CONVERT,
    **video_ops.VIDEO,
}
NOTHING = {"v_nop", "v_pipeflush", "v_clrexcp"}


def canonical(ctx: Context) -> str:
    """The name our tables use."""
    name = ctx.inst.name
    if ctx.is_gfx12:
        return ALIASES_RDNA4.get(name, name.replace("_num_", "_"))
    return ALIASES.get(name, name)


def compile_vector(ctx: Context) -> Step:
    """The step of a vector instruction."""
    name = canonical(ctx)
    if name in NOTHING:
        return lambda b: None
    if ctx.inst.format == "VOPD":
        return compile_dual(ctx)
    if ctx.inst.dpp is not None:
        return lane_ops.with_dpp(ctx, lambda fetch: compile_plain(ctx, name, fetch))
    return compile_plain(ctx, name, None)


def compile_plain(ctx: Context, name: str, fetch: Fetch | None) -> Step:
    """`fetch` reads src0 when a DPP word moves lanes."""
    operands = Sources(ctx, fetch)
    scalar = scalar_float_ops.transcendental(ctx, name)
    if scalar is not None:
        return scalar
    for special in (
        compare_ops.compile_compare,
        carry_ops.compile_carry,
        lane_ops.compile_lanes,
        scaled_convert_ops.compile_conversion,
        truth_table_ops.compile_truth_table,
        video_ops.compile_wide_distances,
    ):
        step = special(ctx, name, operands)
        if step is not None:
            return step
    meaning = MEANINGS.get(name)
    if meaning is None:
        raise ctx.refuse()
    return compile_meaning(ctx, name, meaning, operands)


def compile_meaning(ctx: Context, name: str, meaning: Meaning, operands: Sources) -> Step:
    """Operands around a function: the step of most instructions."""
    compute = value_of(ctx, meaning, operands)
    write = destination(ctx, name, meaning.out)
    return lambda b: write(b, compute(b))


def value_of(ctx: Context, meaning: Meaning, operands: Sources) -> Callable[[Batch], Array]:
    """The result of an instruction before it is written: sources read, denormals flushed, clamped and scaled."""
    inst = ctx.inst
    readers = [operands.read(i, kind) for i, kind in enumerate(meaning.ins[: len(operands)])]
    if meaning.accumulates:
        readers.append(old_destination(ctx, meaning.ins[-1]))
    if len(readers) != len(meaning.ins):
        raise ctx.refuse(f"has {len(readers)} sources where its meaning takes {len(meaning.ins)}")
    if meaning.arithmetic:
        readers = [
            flushing(read) if kind[0] == "f" and ctx.mode.flush(kind) & 1 else read
            for read, kind in zip(readers, meaning.ins)
        ]
    compute = meaning.make(ctx)
    clamp = bool(inst.fields.get("clamp", 0)) or (inst.sdwa is not None and bool(inst.sdwa.clamp))
    if clamp and meaning.out[0] != "f":
        if meaning.clamped is None:
            raise ctx.refuse("clamp has no meaning here")
        compute = meaning.clamped
    value = apply(compute, readers)
    if meaning.out[0] != "f":
        return value
    omod = inst.fields.get("omod", 0) or (inst.sdwa.omod if inst.sdwa is not None else 0)
    if omod:
        value = scaled(value, {1: 2.0, 2: 4.0, 3: 0.5}[omod], TYPES[meaning.out])
    if clamp:
        value = clamped(value, ctx.mode.dx10_clamp)
    if meaning.arithmetic and ctx.mode.flush(meaning.out) & 2:
        value = flushing(value)
    return value


def apply(compute: Callable[..., Array], readers: list[Reader]) -> Callable[[Batch], Array]:
    """A function of what the readers give."""
    if len(readers) == 1:
        (one,) = readers
        return lambda b: compute(one(b))
    if len(readers) == 2:
        first, second = readers
        return lambda b: compute(first(b), second(b))
    first, second, third = readers
    return lambda b: compute(first(b), second(b), third(b))


# -- VOPD: X and Y both read before either writes ---------------------------------------------------------------------


def compile_dual(ctx: Context) -> Step:
    """Two instructions at once (VOPD): both read before either writes."""
    assert ctx.inst.pair is not None
    fields = ctx.inst.fields
    vdst_x = fields["vdstx"]
    vdst_y = 2 * fields["vdsty"] + (1 - (vdst_x & 1))
    x = dual_half(ctx, ctx.inst.pair[0], fields["src0x"], fields["vsrc1x"], vdst_x)
    y = dual_half(ctx, ctx.inst.pair[1], fields["src0y"], fields["vsrc1y"], vdst_y)
    write_x, write_y = vector_write("u32", vdst_x), vector_write("u32", vdst_y)

    def run(b: Batch) -> None:
        first, second = x(b), y(b).copy()  # a copy: Y may have read a register that X writes
        write_x(b, first)
        write_y(b, second)

    return run


def dual_half(ctx: Context, opcode: Opcode, src0: int, vsrc1: int, vdst: int) -> Reader:
    """One half's result as bits. It is the VOP2 or VOP1 instruction of the same name."""
    name = opcode.name.replace("v_dual_", "v_").replace("_num_", "_")
    if name == "v_cndmask_b32":
        a, c = source(ctx, src0, "u32"), vector_source("u32", vsrc1)
        return lambda b: np.where(b.mask(106), c(b), a(b))
    form = "VOP1" if name == "v_mov_b32" else "VOP2"
    like = "v_mov_b32" if form == "VOP1" else name if "fmaak" in name or "fmamk" in name else "v_add_f32"
    own = Opcode(0, name, ctx.isa.find(like, form)[1].operands)
    inst = dataclasses.replace(
        ctx.inst, format=form, opcode=own, fields={"src0": src0, "vsrc1": vsrc1, "vdst": vdst}, pair=None
    )
    half = dataclasses.replace(ctx, inst=inst)
    value = value_of(half, MEANINGS[name], Sources(half))
    return lambda b: value(b).view(np.uint32)
