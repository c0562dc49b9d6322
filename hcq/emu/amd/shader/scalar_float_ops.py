"""Scalar floats (gfx11.5, gfx12): one float32 or float16 per wave, computed as a vector instruction does in a lane.

In       a Context for one SOP1, SOP2 or SOPC instruction on floats, or for a v_s_* transcendental
Out      a step that runs it on a Batch
Changes  SGPRs and SCC, when the step runs
Next     scalar_ops.py (integers), float_ops.py and convert_ops.py (what is computed)
Source   RDNA4 shader ISA document: scalar ALU floats

A float16 is the low half of its register; the high half of a result is zero.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from hcq.emu.amd.shader import compare_ops, convert_ops, float_ops
from hcq.emu.amd.shader.arrays import Array
from hcq.emu.amd.shader.floats import flushed
from hcq.emu.amd.shader.meaning import Meaning
from hcq.emu.amd.shader.operands import (
    TYPES,
    Context,
    Step,
    inline_constant,
    scalar32,
    scalar_write,
    width_of,
    with_modifiers,
)
from hcq.emu.amd.shader.waves import Batch

MEANINGS: dict[str, Meaning] = {**float_ops.FLOAT, **convert_ops.CONVERT}
NAMES = {
    **{
        f"s_{name}_{kind}": f"v_{name}_{kind}"
        for kind in ("f32", "f16")
        for name in "add sub mul fmac min max minimum maximum ceil floor trunc rndne".split()
    },
    **{f"s_{name}_num_{kind}": f"v_{name}_{kind}" for kind in ("f32", "f16") for name in ("min", "max")},
    **{f"s_{name}_f32": f"v_{name}_f32" for name in ("fmaak", "fmamk")},
    **{
        f"s_cvt_{name}": f"v_cvt_{name}"
        for name in "f32_i32 f32_u32 i32_f32 u32_f32 f16_f32 f32_f16 pk_rtz_f16_f32".split()
    },
    "s_cvt_hi_f32_f16": "v_cvt_f32_f16",
}


def compile_scalar_float(ctx: Context, name: str) -> Step | None:
    """The step of a scalar float instruction; None for any other."""
    parts = name.split("_")
    if name.startswith("s_cmp_") and parts[-1] in ("f32", "f16"):
        return comparison(ctx, parts[2], parts[-1])
    if name not in NAMES:
        return None
    meaning = MEANINGS[NAMES[name]]
    codes = [
        255 if operand.field == "literal32" else ctx.inst.fields[operand.field]
        for operand in ctx.inst.opcode.operands[1:]
    ]
    half = 1 if name == "s_cvt_hi_f32_f16" else 0
    readers = [number(ctx, code, kind, half) for code, kind in zip(codes, meaning.ins)]
    if meaning.accumulates:
        readers.append(number(ctx, ctx.inst.fields["sdst"], meaning.ins[-1]))
    return result(ctx, meaning, readers, ctx.inst.fields["sdst"])


def transcendental(ctx: Context, name: str) -> Step | None:
    """v_s_exp_f32 and its sisters: a vector unit's function of one scalar."""
    if not name.startswith("v_s_"):
        return None
    meaning, fields = MEANINGS["v_" + name[4:]], ctx.inst.fields
    read = number(ctx, fields["src0"], meaning.ins[0])
    read = with_modifiers(read, bool(fields["neg"] & 1), bool(fields["abs"] & 1))
    if fields["omod"] or fields["clamp"]:
        raise ctx.refuse("omod and clamp are not emulated here")
    return result(ctx, meaning, [read], fields["vdst"])


def number(ctx: Context, code: int, kind: str, half: int = 0) -> Callable[[Batch], Array]:
    """A scalar source as (wave,) numbers of a kind."""
    if width_of(kind) == 16 and 240 <= code <= 248:  # an inline constant has the width of its operand
        fixed = inline_constant(code, kind)
        return lambda b: np.full(b.waves, fixed)
    word, dtype, shift = scalar32(ctx, code), TYPES[kind], np.uint32(16 * half)
    if width_of(kind) == 16:
        return lambda b: (word(b) >> shift).astype(np.uint16).view(dtype)
    return lambda b: word(b).view(dtype)


def result(ctx: Context, meaning: Meaning, readers: list[Callable[[Batch], Array]], sdst: int) -> Step:
    """The step of a scalar float instruction with this meaning."""
    compute, write = meaning.make(ctx), scalar_write(ctx, sdst)
    flushes_in = [
        meaning.arithmetic and kind[0] == "f" and bool(ctx.mode.flush(kind) & 1) for kind in meaning.ins
    ]
    flushes_out = meaning.arithmetic and meaning.out[0] == "f" and bool(ctx.mode.flush(meaning.out) & 2)
    unsigned = TYPES[f"u{width_of(meaning.out)}"]

    def run(b: Batch) -> None:
        values = [flushed(read(b)) if flush else read(b) for read, flush in zip(readers, flushes_in)]
        x = compute(*values)
        if flushes_out:
            x = flushed(x)
        bits = x.astype(TYPES[meaning.out], copy=False).view(unsigned)
        write(b, bits.astype(np.uint32))

    return run


def comparison(ctx: Context, test: str, kind: str) -> Step:
    """The step of a scalar float compare: the answer goes to SCC."""
    fields, decide = ctx.inst.fields, compare_ops.TESTS[test]
    left, right = number(ctx, fields["ssrc0"], kind), number(ctx, fields["ssrc1"], kind)

    def run(b: Batch) -> None:
        b.scc = decide(left(b), right(b))

    return run
