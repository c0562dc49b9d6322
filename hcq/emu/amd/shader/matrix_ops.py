"""Matrix instructions: MFMA of gfx90a, gfx942 and gfx950.

In       a Context for one v_mfma_*, v_smfmac_* or v_accvgpr_* instruction
Out      a step: registers to matrices, one product per wave, matrices to registers
Changes  VGPRs and AccVGPRs, when the step runs
Next     scaled_matrix_ops.py (products with scales), wmma_ops.py (gfx11 and gfx12), convert_ops.py (byte floats)
Source   CDNA2, CDNA3 and CDNA4 ISA documents; positions from AMD's calculator

Products are added to C in float64 (int64 for integers), in the order of k, and rounded once; the hardware does not
document its order of sums.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from hcq.emu.amd.shader.arrays import Array, across_registers
from hcq.emu.amd.shader.operands import Context, Step, put, source
from hcq.emu.amd.shader.waves import Batch
from hcq.emu.shader.floats import widen_bf16
from hcq.emu.shader.small_floats import E2M1, E2M3, E3M2, E4M3, E4M3_FNUZ, E5M2, E5M2_FNUZ

ELEMENT_BITS = {
    "f64": 64,
    "f32": 32,
    "i32": 32,
    "xf32": 32,
    "f16": 16,
    "bf16": 16,
    "i8": 8,
    "iu8": 8,
    "iu4": 4,
    "fp8": 8,
    "bf8": 8,
    "ocp_fp8": 8,
    "ocp_bf8": 8,
    "fp6": 6,
    "bf6": 6,
    "fp4": 4,
}
BYTE_FLOATS = {"fp8": E4M3_FNUZ, "bf8": E5M2_FNUZ, "ocp_fp8": E4M3, "ocp_bf8": E5M2}
OCP = {"fp8": "ocp_fp8", "bf8": "ocp_bf8"}  # what the short names mean on gfx12 and gfx950
SMALL_FLOATS = {**BYTE_FLOATS, "fp6": E2M3, "bf6": E3M2, "fp4": E2M1}
SCALED_FORMATS = {0: "ocp_fp8", 1: "ocp_bf8", 2: "fp6", 3: "bf6", 4: "fp4"}  # by what cbsz and blgp hold


def elements(words: Array, kind: str, signed: bool = True) -> Array:
    """(register, wave, lane) words -> (element, wave, lane) float64 or int64, in the order they are packed."""
    if kind == "f64":
        pairs = np.stack([words[0::2], words[1::2]], axis=-1)
        return np.ascontiguousarray(pairs).view(np.float64)[..., 0]
    if kind == "f32":
        return words.view(np.float32).astype(np.float64)
    if kind == "xf32":
        return (words & np.uint32(0xFFFFE000)).view(np.float32).astype(np.float64)
    bits = ELEMENT_BITS[kind]
    mask = np.uint32((1 << bits) - 1)
    if 32 % bits:  # some lie across a border of registers
        flat = across_registers(words, bits)
        return SMALL_FLOATS[kind].values[flat].astype(np.float64)
    parts = np.stack([(words >> np.uint32(shift)) & mask for shift in range(0, 32, bits)], axis=1)
    flat = parts.reshape(-1, *words.shape[1:])
    if kind == "f16":
        return flat.astype(np.uint16).view(np.float16).astype(np.float64)
    if kind == "bf16":
        return widen_bf16(flat).astype(np.float64)
    if kind in SMALL_FLOATS:
        return SMALL_FLOATS[kind].values[flat].astype(np.float64)
    numbers = flat.astype(np.int64)
    if signed:
        top = 1 << (bits - 1)
        numbers = (numbers ^ top) - top
    return numbers


MFMA_NAME = re.compile(r"v_(mfma|smfmac)_(f32|f64|i32)_(\d+)x(\d+)x(\d+)(?:_(\d+)b)?_(\w+)")


CDNA2_NAME = re.compile(r"v_mfma_(f32|f64|i32)_(\d+)x(\d+)x(\d+)(f16|f32|f64|bf16|i8)(?:_1k)?")


@dataclass(frozen=True)
class Shape:
    """M x N x K in `blocks` independent products."""

    m: int
    n: int
    k: int
    blocks: int

    def element(self, size: int, k_size: int, parts: int = 1) -> tuple[Array, Array]:
        """(lane, packed element) of operand element (block, row, k) of an operand with `size` rows.

        parts  into which k is cut: a lane holds a piece of each, one behind the other
        """
        per_lane = size * k_size * self.blocks // 64 // parts
        block, row, k = np.ogrid[: self.blocks, :size, :k_size]
        part, k = k // (k_size // parts), k % (k_size // parts)
        lane = row + size * (block + self.blocks * (k // per_lane))
        return lane, part * per_lane + k % per_lane + 0 * (row + block)

    def result(self, double: bool) -> tuple[Array, Array]:
        """(lane, register) of result element (block, i, j); a register pair counts as one for float64."""
        block, i, j = np.ogrid[: self.blocks, : self.m, : self.n]
        if double and self.m == 16:
            return j + 16 * (i % 4) + 0 * block, i // 4 + 0 * (j + block)
        if double:
            return j + 4 * block + 16 * i, 0 * (i + j + block)
        if self.m == 32:
            return j + 32 * (i // 4 % 2) + 0 * block, 16 * block + 4 * (i // 8) + i % 4 + 0 * j
        if self.m == 16:
            return j + 16 * (i // 4) + 0 * block, 4 * block + i % 4 + 0 * j
        return j + 4 * block + 0 * i, i + 0 * (j + block)


@dataclass(frozen=True)
class Matrix:
    """Where elements lie: the lane, and the place among those that a lane has from register `first` on.

    The arrays are (block, i, k) of A, (block, k, j) of B, and (block, i, j) of C and D.
    """

    first: int
    kind: str
    lane: Array
    element: Array
    signed: bool = True


@dataclass(frozen=True)
class Product:
    """A step that is nothing but D = A * B + C: compiled code has a way of its own to the same bits."""

    run: Step
    a: Matrix
    b: Matrix
    c: Matrix | Callable[[Batch], Array]  # or a constant
    d: Matrix
    clamp: bool = False

    def __call__(self, b: Batch) -> None:
        self.run(b)


def accumulated(left: Array, right: Array, added: Array) -> Array:
    """added + left * right of (..., i, k) and (..., k, j), product after product in the order of k."""
    total = np.array(np.broadcast_to(added, (*left.shape[:-1], right.shape[-1])))
    room = np.empty_like(total)
    for k in range(left.shape[-1]):
        np.multiply(left[..., k, None], right[..., k, None, :], out=room)
        total += room
    return total


def compile_matrix(ctx: Context) -> Step:
    """The step of an MFMA, or of a move from or to an accumulation register."""
    inst = ctx.inst
    if inst.name in ("v_accvgpr_read_b32", "v_accvgpr_write_b32"):
        reads = inst.name == "v_accvgpr_read_b32"
        code = inst.fields["src0"] + (ctx.acc_offset if reads else 0)
        register = inst.fields["vdst"] + (0 if reads else ctx.acc_offset)
        value = source(ctx, code, "u32")
        return lambda b: put(b, b.u32[register], value(b))
    older = CDNA2_NAME.fullmatch(inst.name)
    if older is not None:  # gfx90a does not write down the number of blocks
        out_kind, kind = older[1], older[5]
        m, n, k = (int(older[index]) for index in (2, 3, 4))
        vdst = inst.opcode.operand("vdst")
        assert vdst is not None
        element_bits = 64 if out_kind == "f64" else 32
        shape = Shape(m, n, k, 64 * vdst.width // (element_bits * m * n))
        return mfma(ctx, False, out_kind, shape, kind, kind)
    match = MFMA_NAME.fullmatch(inst.name)
    if match is None:
        raise ctx.refuse()
    shape = Shape(int(match[3]), int(match[4]), int(match[5]), int(match[6] or 1))
    pair = [OCP.get(kind, kind) if ctx.isa.has_ocp_floats else kind for kind in match[7].split("_")]
    return mfma(ctx, match[1] == "smfmac", match[2], shape, pair[0], pair[-1])


def file_register(ctx: Context, code: int, accumulator: int) -> int:
    """The place of a VGPR or AccVGPR source in the unified file."""
    return code - 256 + (ctx.acc_offset if accumulator else 0)


def mfma(ctx: Context, sparse: bool, out_kind: str, shape: Shape, kind_a: str, kind_b: str) -> Step:
    """The step of one MFMA; sparse ones take half of each row of A, with indices."""
    fields = ctx.inst.fields
    double = out_kind == "f64"
    stored_k = shape.k // 2 if sparse else shape.k
    a_lane, a_element = shape.element(shape.m, stored_k)
    is_wide = sparse and register_count(shape, shape.n, shape.k, kind_b) == 8  # gfx950's: B in two parts
    b_lane, b_element = shape.element(shape.n, shape.k, parts=2 if is_wide else 1)
    if fields["cbsz"] and not sparse:
        if fields["cbsz"] > 4 or fields["abid"] >= 1 << fields["cbsz"] or 1 << fields["cbsz"] > shape.blocks:
            raise ctx.refuse(
                f"cbsz {fields['cbsz']} and abid {fields['abid']} name no block of {shape.blocks}"
            )
        source_block = (np.arange(shape.blocks) & ~((1 << fields["cbsz"]) - 1)) + fields["abid"]
        a_lane, a_element = a_lane[source_block], a_element[source_block]
    lanes = np.arange(64) if double else b_lanes(fields["blgp"])
    d_lane, d_register = shape.result(double)
    a_first = file_register(ctx, fields["src0"], fields["acc"] & 1)
    b_first = file_register(ctx, fields["src1"], fields["acc"] >> 1 & 1)
    a_count, b_count = (
        register_count(shape, shape.m, stored_k, kind_a),
        register_count(shape, shape.n, shape.k, kind_b),
    )
    vdst = fields["vdst"] + (ctx.acc_offset if fields["acc_cd"] else 0)
    read_c = mfma_accumulator(ctx, out_kind, vdst if sparse else None, d_lane, d_register)
    negated = [fields["blgp"] >> i & 1 if double else 0 for i in range(3)]
    write = write_result(out_kind, vdst, d_lane, d_register)
    index_register = fields["src2"] - 256 if sparse else 0

    def run(b: Batch) -> None:
        a = elements(b.u32[a_first : a_first + a_count], kind_a)[a_element, :, a_lane]  # (block, i, k, wave)
        c = elements(b.u32[b_first : b_first + b_count], kind_b)[b_element, :, lanes[b_lane]]
        if sparse:
            a = spread_sparse(b, a, a_lane, a_element, index_register, kind_a, fields)
        left, right = a.transpose(3, 0, 1, 2), c.transpose(3, 0, 2, 1)
        if negated[0]:
            left = -left
        if negated[1]:
            right = -right
        added = read_c(b)
        write(b, accumulated(left, right, -added if negated[2] else added))

    if sparse or double:
        return run
    code = fields["src2"]
    c_first = file_register(ctx, code, fields["acc_cd"])
    c_place = Matrix(c_first, out_kind, d_lane, d_register)
    return Product(
        run,
        Matrix(a_first, kind_a, a_lane, a_element),
        Matrix(b_first, kind_b, lanes[b_lane].swapaxes(1, 2), b_element.swapaxes(1, 2)),
        c_place if code >= 256 else source(ctx, code, out_kind),
        Matrix(vdst, out_kind, d_lane, d_register),
    )


def write_result(kind: str, vdst: int, d_lane: Array, d_register: Array) -> Callable[[Batch, Array], None]:
    """What puts (wave, block, i, j) results into registers from vdst on, each rounded once."""
    count = int(d_register.max()) + 1

    def write(b: Batch, total: Array) -> None:
        flat = np.zeros((count, b.waves, 64), total.dtype)
        flat[d_register, :, d_lane] = total.transpose(1, 2, 3, 0)
        for index in range(count):
            if kind == "f64":
                words = np.ascontiguousarray(flat[index]).view(np.uint32).reshape(b.waves, 64, 2)
                put(b, b.u32[vdst + 2 * index], words[..., 0])
                put(b, b.u32[vdst + 2 * index + 1], words[..., 1])
            elif kind == "f32":
                put(b, b.f32[vdst + index], flat[index].astype(np.float32))
            else:
                put(b, b.u32[vdst + index], flat[index].astype(np.uint32))

    return write


def register_count(shape: Shape, rows: int, k: int, kind: str) -> int:
    """How many registers a matrix takes in each lane."""
    per_lane = rows * k * shape.blocks // 64
    return max(1, per_lane * ELEMENT_BITS[kind] // 32)


def b_lanes(blgp: int) -> Array:
    """Which lane's B each lane uses."""
    lane = np.arange(64)
    if blgp == 1:
        return lane % 32
    if blgp == 2:
        return 32 + lane % 32
    if blgp == 3:
        return (lane + 16) % 64
    return lane if blgp == 0 else 16 * (blgp - 4) + lane % 16


def mfma_accumulator(
    ctx: Context, kind: str, own: int | None, d_lane: Array, d_register: Array
) -> Callable[[Batch], Array]:
    """C as (wave, block, i, j): registers, an inline constant, or for sparse products the destination itself."""
    fields = ctx.inst.fields
    code = fields["src2"]
    if own is None and code < 256:
        value = source(ctx, code, kind if kind != "i32" else "i32")
        return lambda b: value(b)[:, :, None, None].astype(np.int64 if kind == "i32" else np.float64)
    first = own if own is not None else file_register(ctx, code, fields["acc_cd"])
    count = int(d_register.max()) + 1

    def read(b: Batch) -> Array:
        if kind == "f64":
            values = elements(b.u32[first : first + 2 * count], "f64")
        elif kind == "f32":
            values = b.f32[first : first + count].astype(np.float64)
        else:
            values = b.i32[first : first + count].astype(np.int64)
        return values[d_register, :, d_lane].transpose(3, 0, 1, 2)

    return read


def spread_sparse(
    b: Batch, a: Array, a_lane: Array, a_element: Array, register: int, kind: str, fields: dict[str, int]
) -> Array:
    """Kept elements to their places: two of every four along k, each with a 2-bit position in the index register."""
    bits = 2 * (int(a_element.max()) + 1)  # of a lane's own
    part = fields["abid"] if not fields["cbsz"] else 0
    index = (b.u32[register] >> np.uint32(bits * (part % (32 // bits)))).astype(np.int64)  # (wave, lane)
    position = (index[:, a_lane] >> (2 * a_element)) & 3  # (wave, block, i, kept k)
    blocks, rows, kept, waves = a.shape
    out = np.zeros((blocks, rows, 2 * kept, waves), a.dtype)
    # (block, i, wave, kept)
    where = 4 * (np.arange(kept) // 2) + position.transpose(1, 2, 3, 0).swapaxes(2, 3)
    values = a.swapaxes(2, 3)
    block, row, wave = np.ogrid[:blocks, :rows, :waves]
    target = out.swapaxes(2, 3)
    for k in range(kept):
        target[block, row, wave, where[..., k]] = values[..., k]
    return out
