"""WMMA of gfx12: the products are those of gfx11, but no lane holds what another one has.

In       a Context for one v_wmma_* instruction of RDNA4
Out      a step: registers to matrices, one product per wave, matrices to registers
Changes  VGPRs, when the step runs
Next     matrix_ops.py (gfx11 and gfx942), packed_ops.py (the rest of the format)
Source   RDNA4 shader ISA document; positions from AMD's calculator

A row of A (a column of B) is spread over two lanes in wave32 and over four in wave64, 16 apart. `elements` gives what
a lane holds in the order in which it is packed, so a position is a lane and a place in that order.
"""

from __future__ import annotations

import re
from collections.abc import Callable

import numpy as np

from hcq.emu.amd.shader.arrays import Array
from hcq.emu.amd.shader.floats import f32_to_bf16
from hcq.emu.amd.shader.matrix_ops import ELEMENT_BITS, elements
from hcq.emu.amd.shader.operands import Context, Step, put, source
from hcq.emu.amd.shader.waves import Batch

NAME = re.compile(r"v_wmma_(f32|f16|bf16|i32)_16x16x(\d+)_(\w+)")
OCP = {"fp8": "ocp_fp8", "bf8": "ocp_bf8"}  # gfx12's byte floats are those of the Open Compute Project


def places(bits: int, depth: int, wave_size: int) -> tuple[Array, Array]:
    """(lane, place in it) of element (row, k) of A, or (column, k) of B."""
    row, k = np.ogrid[:16, :depth]
    narrow = wave_size == 32
    if bits == 16 and narrow:
        return row + 16 * (k >> 2 & 1), (k & 3 | k >> 1 & 4) + 0 * row
    if bits == 16:
        return row + 16 * (k >> 2), (k & 3) + 0 * row
    half = depth // 2  # bytes, and nibbles with 32 along k: a lane holds half of them, in wave64 a quarter
    if narrow or (depth == 16 and bits == 4):
        return row + 16 * (k // half), k % half + 0 * row
    quarter = half // 2
    return row + 16 * (k // half) + 32 * (k // quarter % 2), k % quarter + 0 * row


def result_places(wave_size: int) -> tuple[Array, Array]:
    """(lane, register) of element (i, j) of C and D, in 32 bits."""
    i, j = np.ogrid[:16, :16]
    if wave_size == 32:
        return j + 16 * (i // 8), i % 8 + 0 * j
    return j + 16 * (i >> 3 & 1) + 32 * (i >> 2 & 1), i % 4 + 0 * j


def compile_wmma_rdna4(ctx: Context) -> Step:
    match = NAME.fullmatch(ctx.inst.name)
    if match is None:
        raise ctx.refuse("sparse products are not emulated")
    out_kind, depth, kinds = match[1], int(match[2]), match[3].split("_")
    fields = ctx.inst.fields
    signed = [bool(fields["neg_lo"] >> index & 1) for index in range(2)]
    read_a = operand(ctx, 0, OCP.get(kinds[0], kinds[0]), depth, signed[0])
    read_b = operand(ctx, 1, OCP.get(kinds[-1], kinds[-1]), depth, signed[1])
    read_c = accumulator(ctx, out_kind)
    lane, register = result_places(ctx.wave_size)
    registers = 256 // ctx.wave_size
    vdst, clamp = fields["vdst"], bool(fields["clamp"])

    def run(b: Batch) -> None:
        total = np.matmul(read_a(b), read_b(b).transpose(0, 2, 1)) + read_c(b)
        if out_kind == "i32" and clamp:
            total = np.clip(total, -(2**31), 2**31 - 1)
        flat = np.zeros((registers, b.waves, ctx.wave_size), total.dtype)
        flat[register, :, lane] = total.transpose(1, 2, 0)
        if out_kind == "i32":
            for index in range(registers):
                put(b, b.u32[vdst + index], flat[index].astype(np.uint32))
        elif out_kind == "f32":
            for index in range(registers):
                put(b, b.f32[vdst + index], flat[index].astype(np.float32))
        else:
            halves = flat.astype(np.float16).view(np.uint16)
            if out_kind == "bf16":
                halves = f32_to_bf16(flat.astype(np.float32))
            for index in range(registers // 2):
                low, high = (halves[2 * index + part].astype(np.uint32) for part in range(2))
                put(b, b.u32[vdst + index], low | high << np.uint32(16))

    return run


def operand(ctx: Context, index: int, kind: str, depth: int, signed: bool) -> Callable[[Batch], Array]:
    """A or B as (wave, row or column, k)."""
    fields = ctx.inst.fields
    first = fields[f"src{index}"] - 256
    if first < 0:
        raise ctx.refuse("A and B are registers")
    lane, place = places(ELEMENT_BITS[kind], depth, ctx.wave_size)
    registers = max(1, (int(place.max()) + 1) * ELEMENT_BITS[kind] // 32)
    floating = not kind.startswith("iu")
    neg = [fields["neg_lo"] >> index & 1, fields["neg_hi"] >> index & 1] if floating else [0, 0]

    def read(b: Batch) -> Array:
        values = elements(b.u32[first : first + registers], kind, signed)
        if neg[0]:
            values[0::2] = -values[0::2]
        if neg[1]:
            values[1::2] = -values[1::2]
        return np.ascontiguousarray(values[place, :, lane].transpose(2, 0, 1))

    return read


def accumulator(ctx: Context, kind: str) -> Callable[[Batch], Array]:
    """C as (wave, i, j)."""
    fields = ctx.inst.fields
    code = fields["src2"]
    neg, absolute = fields["neg_lo"] >> 2 & 1, fields["neg_hi"] >> 2 & 1
    if code < 256:
        value = source(ctx, code, {"f16": "f16", "i32": "i32"}.get(kind, "f32"))
        return lambda b: np.broadcast_to(value(b)[:, :, None], (b.waves, 16, 16))
    first = code - 256
    lane, register = result_places(ctx.wave_size)
    registers = 256 // ctx.wave_size

    def read(b: Batch) -> Array:
        if kind in ("f16", "bf16"):
            x = elements(b.u32[first : first + registers // 2], kind)
        elif kind == "f32":
            x = b.f32[first : first + registers].astype(np.float64)
        else:
            x = b.i32[first : first + registers].astype(np.int64)
        if absolute:
            x = np.abs(x)
        if neg:
            x = -x
        return x[register, :, lane].transpose(2, 0, 1)

    return read
