"""WMMA: products of 16 x 16 matrices by a wave, on gfx11 and gfx12; on gfx12 also of sparse ones.

In       a Context for one v_wmma_* or v_swmmac_* instruction
Out      a step: registers to matrices, one product per wave, matrices to registers
Changes  VGPRs, when the step runs
Next     matrix_ops.py (gfx942), packed_ops.py (the rest of the format)
Source   RDNA3 and RDNA4 shader ISA documents; positions from AMD's calculator

Where an element lies is a lane, and a place in the order in which `elements` unpacks what the lane holds. On gfx11 a
lane holds a whole row of A (column of B), and the one 16 further the same; results of 16 bits fill one half of their
registers. On gfx12 no lane holds what another one has: a row is spread over two lanes in wave32 and over four in
wave64, 16 apart, and results of 16 bits come in pairs.
"""

from __future__ import annotations

import re
from collections.abc import Callable

import numpy as np

from hcq.emu.amd.shader.arrays import Array
from hcq.emu.amd.shader.matrix_ops import ELEMENT_BITS, OCP, Matrix, Product, accumulated, elements
from hcq.emu.amd.shader.operands import Context, Step, put, source
from hcq.emu.amd.shader.waves import Batch
from hcq.emu.shader.floats import narrow_bf16, widen_bf16

NAME = re.compile(r"v_(wmma|swmmac)_(f32|f16|bf16|i32)_16x16x(\d+)_(\w+)")


def operand_places(ctx: Context, bits: int, depth: int) -> tuple[Array, Array]:
    """(lane, place in it) of element (row, k) of A, or (column, k) of B."""
    row, k = np.ogrid[:16, :depth]
    if not ctx.is_gfx12:
        return row + 0 * k, k + 0 * row
    narrow = ctx.wave_size == 32
    if bits == 16 and narrow:
        return row + 16 * (k >> 2 & 1), (k & 3 | k >> 1 & 4) + 0 * row
    if bits == 16:
        return row + 16 * (k >> 2), (k & 3) + 0 * row
    half = depth // 2  # bytes, and nibbles with 32 along k: a lane holds half of them, in wave64 a quarter
    if narrow or (depth == 16 and bits == 4):
        return row + 16 * (k // half), k % half + 0 * row
    quarter = half // 2
    return row + 16 * (k // half) + 32 * (k // quarter % 2), k % quarter + 0 * row


def result_places(ctx: Context) -> tuple[Array, Array]:
    """(lane, place in it) of element (i, j) of C and D."""
    i, j = np.ogrid[:16, :16]
    if not ctx.is_gfx12:
        rows = ctx.wave_size // 16  # in one register
        return j + 16 * (i % rows), i // rows + 0 * j
    if ctx.wave_size == 32:
        return j + 16 * (i // 8), i % 8 + 0 * j
    return j + 16 * (i >> 3 & 1) + 32 * (i >> 2 & 1), i % 4 + 0 * j


def moved(values: Array, order: Array) -> Array:
    """(wave, n) -> (wave, *order.shape): element order[i] of each wave at i; on gfx11 C and D already lie so."""
    if np.array_equal(order.reshape(-1), np.arange(order.size)):
        return values.reshape(len(values), *order.shape)
    return np.take(values, order, axis=1)


def compile_wmma(ctx: Context) -> Step:
    """The step of a WMMA instruction."""
    match = NAME.fullmatch(ctx.inst.name)
    if match is None:
        raise ctx.refuse()
    is_sparse, out_kind, depth = match[1] == "swmmac", match[2], int(match[3])
    kinds = [OCP.get(kind, kind) for kind in match[4].split("_")]
    fields = ctx.inst.fields
    if is_sparse:
        read_a, read_b = sparse_operands(ctx, kinds, depth)
    else:
        read_a, read_b = (
            operand(ctx, index, kind, operand_places(ctx, ELEMENT_BITS[kind], depth))
            for index, kind in enumerate((kinds[0], kinds[-1]))
        )
    read_c = accumulator(ctx, out_kind, fields["vdst"] + 256 if is_sparse else fields["src2"])
    count = 256 // ctx.wave_size
    lane, place = result_places(ctx)
    origin = np.argsort((place * ctx.wave_size + lane).reshape(-1)).reshape(
        count, -1
    )  # what each place holds
    vdst, clamp, upper = fields["vdst"], bool(fields["clamp"]), fields["opsel"] >> 2 & 1

    def run(b: Batch) -> None:
        total = accumulated(read_a(b), read_b(b).transpose(0, 2, 1), read_c(b))
        if out_kind == "i32" and clamp:
            total = np.clip(total, -(2**31), 2**31 - 1)
        flat = moved(total.reshape(b.waves, 256), origin).transpose(1, 0, 2)
        if out_kind == "i32":
            words = flat.astype(np.uint32)
        elif out_kind == "f32":
            words = flat.astype(np.float32, order="C").view(np.uint32)
        else:
            halves = flat.astype(np.float16, order="C").view(np.uint16)
            if out_kind == "bf16":
                halves = narrow_bf16(flat.astype(np.float32))
            if not ctx.is_gfx12:
                for index in range(count):
                    put(b, b.u16[vdst + index, :, :, upper], halves[index])
                return
            wide = halves.astype(np.uint32)
            words = wide[0::2] | wide[1::2] << np.uint32(16)
        for index in range(len(words)):
            put(b, b.u32[vdst + index], words[index])

    is_float = not kinds[0].startswith("iu")
    changes = is_float and fields["neg_lo"] | fields["neg_hi"]
    if is_sparse or changes or out_kind not in ("f32", "i32"):
        return run
    sources = []
    for index, kind in enumerate((kinds[0], kinds[-1])):
        at = operand_places(ctx, ELEMENT_BITS[kind], depth)
        signed = is_float or bool(fields["neg_lo"] >> index & 1)
        one_lane, one_place = (x[None] if not index else x.T[None] for x in at)
        sources.append(Matrix(fields[f"src{index}"] - 256, kind, one_lane, one_place, signed))
    code, result = fields["src2"], (lane[None], place[None])
    c = Matrix(code - 256, out_kind, *result) if code >= 256 else source(ctx, code, out_kind)
    return Product(
        run, sources[0], sources[1], c, Matrix(vdst, out_kind, *result), clamp and out_kind == "i32"
    )


def sparse_operands(
    ctx: Context, kinds: list[str], depth: int
) -> tuple[Callable[[Batch], Array], Callable[[Batch], Array]]:
    """A, of which two of every four values along k are stored, with zeros in the places of the others; and B."""
    bits = ELEMENT_BITS[kinds[0]]
    lane, place = operand_places(ctx, bits, depth // 2)
    read_kept = operand(ctx, 0, kinds[0], (lane, place))
    column, k = np.ogrid[:16, :depth]
    if ctx.wave_size == 32:
        part = 8 if bits == 16 else depth // 2
        places_b = column + 16 * (k // part % 2), part * (k // (2 * part)) + k % part + 0 * column
    elif bits == 16:
        places_b = column + 16 * (k // 8), k % 8 + 0 * column
    else:
        quarter = depth // 4
        places_b = column + 16 * (k // (2 * quarter)) + 32 * (k // quarter % 2), k % quarter + 0 * column
    read_b = operand(ctx, 1, kinds[-1], places_b)
    per_lane = int(place.max()) + 1
    # two bits for each value of a lane, in the order of its values: a quarter of a register, a half, or all of one
    shift = np.uint32(2 * per_lane * (ctx.inst.fields["opsel"] & 16 // per_lane - 1))
    register = ctx.inst.fields["src2"] - 256
    if register < 0:
        raise ctx.refuse("the places of the values are in a vector register")

    def read_a(b: Batch) -> Array:
        kept = read_kept(b)  # (wave, row, kept k)
        chosen = (b.u32[register] >> shift)[:, lane] >> (2 * place).astype(np.uint32) & np.uint32(3)
        at = 4 * (np.arange(depth // 2) // 2) + chosen.astype(np.intp)
        whole = np.zeros((*kept.shape[:2], depth), kept.dtype)
        np.put_along_axis(whole, at, kept, axis=2)
        return whole

    return read_a, read_b


def operand(ctx: Context, index: int, kind: str, places: tuple[Array, Array]) -> Callable[[Batch], Array]:
    """A or B as (wave, row or column, k). places: as operand_places gives them."""
    fields = ctx.inst.fields
    signed = bool(fields["neg_lo"] >> index & 1)
    first = fields[f"src{index}"] - 256
    if first < 0:
        raise ctx.refuse("A and B are registers")
    lane, place = places
    registers = max(1, (int(place.max()) + 1) * ELEMENT_BITS[kind] // 32)
    lanes = int(lane.max()) + 1
    order = place * lanes + lane
    floating = not kind.startswith("iu")
    neg = [fields["neg_lo"] >> index & 1, fields["neg_hi"] >> index & 1] if floating else [0, 0]

    def read(b: Batch) -> Array:
        values = elements(b.u32[first : first + registers, :, :lanes], kind, signed)
        if neg[0]:
            values[0::2] = -values[0::2]
        if neg[1]:
            values[1::2] = -values[1::2]
        if not ctx.is_gfx12:
            rows = values.transpose(1, 2, 0)
            return rows if floating else np.ascontiguousarray(rows)  # as NumPy's integer products want them
        return np.take(values.transpose(1, 0, 2).reshape(b.waves, -1), order, axis=1)

    return read


def accumulator(ctx: Context, kind: str, code: int) -> Callable[[Batch], Array]:
    """C as (wave, i, j). code: of its source operand."""
    fields = ctx.inst.fields
    # of integers C's bits mean nothing: hipBLASLt sets neg_lo:[1,1,1]; the first two say that A and B are signed
    neg, absolute = (fields["neg_lo"] >> 2 & 1, fields["neg_hi"] >> 2 & 1) if kind != "i32" else (0, 0)
    if code < 256:
        value = source(ctx, code, {"f16": "f16", "i32": "i32"}.get(kind, "f32"))
        return lambda b: np.broadcast_to(value(b)[:, :, None], (b.waves, 16, 16))
    first, registers, upper = code - 256, 256 // ctx.wave_size, fields["opsel"] >> 2 & 1
    in_pairs = kind in ("f16", "bf16") and ctx.is_gfx12
    if in_pairs:
        registers //= 2
    lane, place = result_places(ctx)
    order = place * ctx.wave_size + lane

    def read(b: Batch) -> Array:
        if kind == "i32":
            x = b.i32[first : first + registers].astype(np.int64)
        elif kind == "f32" or in_pairs:
            x = elements(b.u32[first : first + registers], kind)
        else:
            halves = b.u16[first : first + registers, :, :, upper]
            x = (halves.view(np.float16) if kind == "f16" else widen_bf16(halves)).astype(np.float64)
        if absolute:
            x = np.abs(x)
        if neg:
            x = -x
        return moved(x.transpose(1, 0, 2).reshape(b.waves, 256), order)

    return read
