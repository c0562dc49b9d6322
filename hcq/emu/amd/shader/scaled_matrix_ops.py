"""Products of matrices of floats of four, six and eight bits, with a scale for each 32 values: gfx950.

In       a Context for one v_mfma_*_f8f6f4 or v_mfma_scale_*_f8f6f4
Out      a step: registers to matrices, one product per wave, matrices to registers
Changes  VGPRs and AccVGPRs, when the step runs
Next     matrix_ops.py (all other products), hcq/emu/shader/small_floats.py (the formats)
Source   CDNA4 ISA document, 7.1.5 and 7.2

Each operand has a format of its own, in cbsz and blgp. A lane holds 32 values; those of eight bits are of two stretches
along k. A scale is a power of two, the byte of a register: lane l has that of row l % rows, for the 32 values of k from
32 * (l // rows) on. The sum is made in float64 and rounded once; the hardware does not document its order.
"""

from __future__ import annotations

import re
from collections.abc import Callable

import numpy as np

from hcq.emu.amd.shader import matrix_ops
from hcq.emu.amd.shader.arrays import Array
from hcq.emu.amd.shader.matrix_ops import (
    ELEMENT_BITS,
    SCALED_FORMATS,
    Shape,
    accumulated,
    elements,
    file_register,
    mfma_accumulator,
    write_result,
)
from hcq.emu.amd.shader.operands import Context, Step, source
from hcq.emu.amd.shader.waves import Batch

NAME = re.compile(r"v_mfma_(?:scale_)?f32_(\d+)x(\d+)x(\d+)_f8f6f4")
SCALE_BLOCK = 32  # values of k that share a scale
SCALE_BIAS, SCALE_NAN = 127, 0xFF

Scales = Callable[[Batch], Array]  # (row, block of k, wave) numbers


def compile_matrix(ctx: Context) -> Step:
    """The step of a matrix instruction, of these or of the others."""
    name = NAME.fullmatch(ctx.inst.name)
    if name is None:
        return matrix_ops.compile_matrix(ctx)
    return scaled(ctx, Shape(int(name[1]), int(name[2]), int(name[3]), 1))


def scaled(ctx: Context, shape: Shape) -> Step:
    """The step of one such product."""
    fields = ctx.inst.fields
    is_scaled = ctx.inst.format == "SCALED"
    read_a = _operand(ctx, 0, fields["cbsz"], shape.m, shape.k)
    read_b = _operand(ctx, 1, fields["blgp"], shape.n, shape.k)
    if is_scaled:
        scale_a, scale_b = _scales(ctx, 0, shape.m), _scales(ctx, 1, shape.n)
    d_lane, d_register = shape.result(False)
    vdst = fields["vdst"] + (ctx.acc_offset if fields["acc_cd"] else 0)
    read_c = mfma_accumulator(ctx, "f32", None, d_lane, d_register)
    write = write_result("f32", vdst, d_lane, d_register)
    blocks = shape.k // SCALE_BLOCK

    def run(b: Batch) -> None:
        a, c = read_a(b), read_b(b)  # (row, k, wave), (column, k, wave)
        if is_scaled:
            a = _times(a, scale_a(b), blocks)
            c = _times(c, scale_b(b), blocks)
        left, right = a.transpose(2, 0, 1)[:, None], c.transpose(2, 1, 0)[:, None]
        write(b, accumulated(left, right, read_c(b)))

    return run


def _times(values: Array, scales: Array, blocks: int) -> Array:
    rows, k, waves = values.shape
    found: Array = (values.reshape(rows, blocks, SCALE_BLOCK, waves) * scales[:, :, None]).reshape(
        rows, k, waves
    )
    return found


def _operand(ctx: Context, index: int, code: int, rows: int, k: int) -> Callable[[Batch], Array]:
    """A or B, by its format's number, as (row, k, wave) float64."""
    kind = SCALED_FORMATS.get(code)
    if kind is None:
        raise ctx.refuse(
            f"{'blgp' if index else 'cbsz'} {code} names no format; 0 to {len(SCALED_FORMATS) - 1} do"
        )
    fields, bits = ctx.inst.fields, ELEMENT_BITS[kind]
    lane, element = Shape(rows, rows, k, 1).element(rows, k, parts=2 if bits == 8 else 1)
    first = file_register(ctx, fields[f"src{index}"], fields["acc"] >> index & 1)
    count = rows * k // 64 * bits // 32

    def read(b: Batch) -> Array:
        found: Array = elements(b.u32[first : first + count], kind)[element[0], :, lane[0]]
        return found

    return read


def _scales(ctx: Context, index: int, rows: int) -> Scales:
    """The scales of A or B: a byte of each lane's register; of a constant, the exponent of its float32."""
    fields = ctx.inst.fields
    code = fields[f"scale{index}"]
    if code >= 256:
        chosen = fields["opsel"] >> index & 1 | (fields["opsel_hi"] >> index & 1) << 1
        shift, read = np.uint32(8 * chosen), source(ctx, code, "u32")
    else:
        floating = source(ctx, code, "f32")
        shift, read = np.uint32(23), lambda b: np.asarray(floating(b)).view(np.uint32)
    blocks = 64 // rows
    lane = np.arange(rows)[:, None] + rows * np.arange(blocks)  # (row, block of k)

    def scales(b: Batch) -> Array:
        words = np.broadcast_to(read(b), (b.waves, 64))
        exponents = (words >> shift & np.uint32(0xFF)).astype(np.int64)
        values = np.where(exponents == SCALE_NAN, np.nan, np.ldexp(1.0, exponents - SCALE_BIAS))
        return values.T[lane]

    return scales
