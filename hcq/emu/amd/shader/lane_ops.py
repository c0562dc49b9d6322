"""Instructions that move data between lanes: DPP, readlane and writelane, permlane, mbcnt, relative registers.

In       a Context; a DPP word, or an instruction that reads other lanes
Out      steps, and readers for a src0 that comes from neighbours
Changes  registers, when a step runs
Next     lds_ops.py (permutations that go through LDS), vector_ops.py (everything that stays in its lane)
Source   RDNA3 and CDNA3 ISA documents: DPP control values
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from hcq.emu.amd.shader.arrays import Array
from hcq.emu.amd.shader.convert_ops import byte_float
from hcq.emu.amd.shader.isa import DPP8_FI, Dpp16
from hcq.emu.amd.shader.operands import (
    TYPES,
    Context,
    Reader,
    Step,
    put,
    scalar32,
    scalar_write,
    source,
    vector_source,
    vector_write,
)
from hcq.emu.amd.shader.vector_operands import Fetch, Sources, destination
from hcq.emu.amd.shader.waves import Batch
from hcq.emu.shader.bits import count_ones


def dpp_pattern(ctx: Context, ctrl: int) -> tuple[Array, Array]:
    """(source lane, whether there is one) for every lane."""
    lane = np.arange(ctx.wave_size)
    row, at = lane & ~15, lane & 15
    n = ctrl & 15
    none = np.zeros(ctx.wave_size, np.bool_)
    if ctrl < 0x100:
        return (lane & ~3) | ((ctrl >> (2 * (lane & 3))) & 3), ~none
    if 0x101 <= ctrl <= 0x10F:
        return row | ((at + n) & 15), at + n < 16
    if 0x111 <= ctrl <= 0x11F:
        return row | ((at - n) & 15), at - n >= 0
    if 0x121 <= ctrl <= 0x12F:
        return row | ((at - n) & 15), ~none
    if ctrl == 0x140:
        return row | (15 - at), ~none
    if ctrl == 0x141:
        return (lane & ~7) | (7 - (lane & 7)), ~none
    if 0x150 <= ctrl <= 0x15F:
        return row | n, ~none
    if 0x160 <= ctrl <= 0x16F and not ctx.is_gfx9:
        return lane ^ n, ~none
    if ctx.is_gfx9 and ctrl in (0x130, 0x134, 0x138, 0x13C):
        step = 1 if ctrl < 0x138 else -1
        wraps = ctrl in (0x134, 0x13C)
        return (lane + step) % ctx.wave_size, ~none if wraps else (lane + step >= 0) & (
            lane + step < ctx.wave_size
        )
    if ctx.is_gfx9 and ctrl == 0x142:
        return np.maximum(row - 1, 0), row >= 16
    if ctx.is_gfx9 and ctrl == 0x143:
        return np.full(ctx.wave_size, 31), lane >= 32
    raise ctx.refuse(f"DPP control {ctrl:#x} names no pattern")


def with_dpp(ctx: Context, compile_inner: Callable[[Fetch], Step]) -> Step:
    """Wrap an instruction: src0 comes from other lanes, and masked lanes are not written."""
    word = ctx.inst.dpp
    assert word is not None
    lane = np.arange(ctx.wave_size)
    if isinstance(word, Dpp16):
        lane_from, exists = dpp_pattern(ctx, word.ctrl)
        rows = (word.row_mask >> (lane // 16)) & 1
        banks = (word.bank_mask >> ((lane // 4) & 3)) & 1
        enabled = (rows & banks).astype(np.bool_)
        fetch_inactive, bound = bool(word.fetch_inactive), bool(word.bound_ctrl)
    else:
        selectors = word.values["selectors"]
        lane_from = (lane & ~7) | ((selectors >> (3 * (lane & 7))) & 7)
        exists, enabled = np.ones_like(lane, np.bool_), np.ones_like(lane, np.bool_)
        fetch_inactive, bound = ctx.inst.fields["src0"] == DPP8_FI, True
    register = word.values["src0"]

    def fetch(kind: str, half: int) -> Reader:
        plain = vector_source(kind, register, half)
        zero = np.zeros(1, TYPES[kind])
        return lambda b: np.where(b.readable, plain(b)[:, lane_from], zero)

    inner = compile_inner(fetch)

    def run(b: Batch) -> None:
        lanes, all_lanes = b.lanes, b.all_lanes
        valid = np.broadcast_to(exists, lanes.shape)
        if not fetch_inactive and not all_lanes:
            valid = valid & lanes[:, lane_from]
        b.readable = valid
        b.lanes = lanes & enabled if bound else lanes & enabled & valid
        b.all_lanes = False
        written = b.lanes
        try:
            inner(b)
        finally:
            if b.lanes is written:  # a compare may have replaced EXEC
                b.lanes, b.all_lanes = lanes, all_lanes

    return run


def compile_lanes(ctx: Context, name: str, operands: Sources) -> Step | None:
    """The step of an instruction that moves data between lanes; None when it is none."""
    maker = LANE_STEPS.get(name)
    return None if maker is None else maker(ctx, name, operands)


def first_lane(ctx: Context, name: str, operands: Sources) -> Step:
    """v_readfirstlane: the first active lane's value, for all; lane 0's when none is."""
    read = operands.read(0, "u32")
    write = scalar_write(ctx, ctx.inst.fields["vdst"])

    def run(b: Batch) -> None:
        x = np.broadcast_to(read(b), (b.waves, ctx.wave_size))
        write(b, x[np.arange(b.waves), b.lanes.argmax(axis=1)])

    return run


def read_lane(ctx: Context, name: str, operands: Sources) -> Step:
    """v_readlane: one lane's value, for all."""
    read = operands.read(0, "u32")
    lane = lane_number(ctx, operands.code(1))
    write = scalar_write(ctx, ctx.inst.fields["vdst"])

    def run(b: Batch) -> None:
        x = np.broadcast_to(read(b), (b.waves, ctx.wave_size))
        write(b, x[np.arange(b.waves), lane(b)])

    return run


def write_lane(ctx: Context, name: str, operands: Sources) -> Step:
    """v_writelane: a scalar into one lane."""
    value = scalar32(ctx, operands.code(0))
    lane = lane_number(ctx, operands.code(1))
    register = ctx.inst.fields["vdst"]

    def run(b: Batch) -> None:
        b.u32[register][np.arange(b.waves), lane(b)] = value(b)

    return run


def lane_number(ctx: Context, code: int) -> Callable[[Batch], Array]:
    """Which lane a scalar operand names, for each wave."""
    read = scalar32(ctx, code)
    mask = np.uint32(ctx.wave_size - 1)
    return lambda b: (read(b) & mask).astype(np.intp)


def permute_rows(ctx: Context, name: str, operands: Sources) -> Step:
    """v_permlane16 reads within a row of 16, v_permlanex16 from the other row of the pair; the _var forms say for every
    lane which one, the others hold 16 such numbers of four bits in two scalar sources."""
    read = operands.read(0, "u32")
    lane = np.arange(ctx.wave_size)
    base = (lane & ~15) ^ (16 if name.startswith("v_permlanex16") else 0)
    if "_var_" in name:
        chosen = operands.read(1, "u32")
    else:
        low, high = scalar32(ctx, operands.code(1)), scalar32(ctx, operands.code(2))
        shift, upper = (4 * (lane & 7)).astype(np.uint32), (lane & 8) != 0

        def chosen(b: Batch) -> Array:
            return np.where(upper, high(b)[:, None], low(b)[:, None]) >> shift

    opsel, register = ctx.inst.fields["opsel"], ctx.inst.fields["vdst"]
    fetch_inactive, bound = bool(opsel & 1), bool(opsel & 2)

    def run(b: Batch) -> None:
        shape = (b.waves, ctx.wave_size)
        from_lane = base | (np.broadcast_to(chosen(b), shape) & np.uint32(15)).astype(np.intp)
        moved = np.take_along_axis(np.broadcast_to(read(b), shape), from_lane, axis=1)
        if not b.all_lanes and not fetch_inactive:
            valid = np.take_along_axis(b.lanes, from_lane, axis=1)
            moved = np.where(valid, moved, np.uint32(0) if bound else b.u32[register])
        put(b, b.u32[register], moved)

    return run


def permute_halves(ctx: Context, name: str, operands: Sources) -> Step:
    """v_permlane64: lanes 0 .. 31 and 32 .. 63 change places."""
    read = operands.read(0, "u32")
    register = ctx.inst.fields["vdst"]
    swap = np.arange(ctx.wave_size) ^ (32 if ctx.wave_size == 64 else 0)
    return lambda b: put(b, b.u32[register], read(b)[:, swap])


def swap_rows(ctx: Context, name: str, operands: Sources) -> Step:
    """v_permlane16_swap, v_permlane32_swap: the odd rows of the destination and the even ones of the source."""
    code, register = operands.code(0) - 256, ctx.inst.fields["vdst"]
    if code < 0:
        raise ctx.refuse("both operands are vector registers")
    row = 16 if "16" in name else 32
    lane = np.arange(ctx.wave_size)
    of_destination, of_source = lane[lane & row != 0], lane[lane & row == 0]
    fetches_inactive = bool(ctx.inst.fields.get("opsel", 0) & 1)

    def run(b: Batch) -> None:
        first, second = b.u32[register], b.u32[code]
        left, right = first[:, of_destination].copy(), second[:, of_source].copy()
        here, there = b.lanes[:, of_destination], b.lanes[:, of_source]
        if not fetches_inactive:
            here = there = here & there
        first[:, of_destination] = np.where(here, right, left)
        second[:, of_source] = np.where(there, left, right)

    return run


def swap(ctx: Context, name: str, operands: Sources) -> Step:
    """v_swap: two registers change places."""
    kind = "u16" if name.endswith("b16") else "u32"
    read_source, write_destination = operands.read(0, kind), destination(ctx, name, kind)
    code, register, half, own_half = operands.code(0) - 256, ctx.inst.fields["vdst"], 0, 0
    if kind == "u16":
        code, half, register, own_half = code & 127, code >> 7, register & 127, register >> 7
    read_destination = vector_source(kind, register, own_half)
    write_source = vector_write(kind, code, half)

    def run(b: Batch) -> None:
        first, second = read_source(b).copy(), read_destination(b).copy()
        write_destination(b, first)
        write_source(b, second)

    return run


def count_below(ctx: Context, name: str, operands: Sources) -> Step:
    """v_mbcnt: how many bits of a mask are below each lane."""
    lane = np.arange(ctx.wave_size, dtype=np.uint64)
    if "lo" in name:
        below = np.where(lane < 32, (np.uint64(1) << lane) - np.uint64(1), np.uint64(0xFFFFFFFF))
    else:
        below = np.where(
            lane < 32, np.uint64(0), (np.uint64(1) << (lane - np.uint64(32)) % np.uint64(64)) - np.uint64(1)
        )
    mask = below.astype(np.uint32)
    bits, start = operands.read(0, "u32"), operands.read(1, "u32")
    register = ctx.inst.fields["vdst"]
    return lambda b: put(b, b.u32[register], count_ones(bits(b) & mask) + start(b))


def move_relative(ctx: Context, name: str, operands: Sources) -> Step:
    """Registers chosen by M0: v_movreld, v_movrels, v_movrelsd and the form with two indexes."""
    m0, two = ctx.m0, name == "v_movrelsd_2_b32"
    moves_source, moves_destination = name != "v_movreld_b32", name != "v_movrels_b32"
    plain, code = operands.read(0, "u32"), operands.code(0)
    move = indexed_move(ctx, plain, code, moves_source, moves_destination)

    def run(b: Batch) -> None:
        offset = b.s[:, m0].astype(np.intp)
        move(b, offset & 0x3FF if two else offset, offset >> 16 & 0x3FF if two else offset)

    return run


def swap_relative(ctx: Context, name: str, operands: Sources) -> Step:
    """v_swaprel: two registers, whose numbers M0 moves, change places."""
    first, second, m0 = ctx.inst.fields["vdst"], operands.code(0) - 256, ctx.m0

    def run(b: Batch) -> None:
        wave, offset = np.arange(b.waves), b.s[:, m0].astype(np.intp)
        left = in_file(ctx, b, first + (offset >> 16 & 0x3FF))
        right = in_file(ctx, b, second + (offset & 0x3FF))
        x, y = b.u32[left, wave], b.u32[right, wave]
        b.u32[left, wave] = np.where(b.lanes, y, x)
        b.u32[right, wave] = np.where(b.lanes, x, y)

    return run


def indexed_move(
    ctx: Context, plain: Reader, code: int, moves_source: bool, moves_destination: bool
) -> Callable[[Batch, Array, Array], None]:
    """A move whose register numbers, that of the source or of the destination, have (wave,) offsets."""
    vdst = ctx.inst.fields["vdst"]

    def run(b: Batch, from_offset: Array, to_offset: Array) -> None:
        wave = np.arange(b.waves)
        x = np.broadcast_to(plain(b), (b.waves, ctx.wave_size))
        if moves_source:
            x = b.u32[in_file(ctx, b, code - 256 + from_offset), wave]
        if not moves_destination:
            put(b, b.u32[vdst], x)
            return
        to = in_file(ctx, b, vdst + to_offset)
        b.u32[to, wave] = np.where(b.lanes, x, b.u32[to, wave])

    return run


def in_file(ctx: Context, b: Batch, register: Array) -> Array:
    """Register numbers, all of which the kernel must have."""
    if (register >= b.u32.shape[0]).any():
        raise ctx.refuse(f"register v{int(register.max())} is beyond the {b.u32.shape[0]} the kernel has")
    return register


def unpack_bytes(ctx: Context, name: str, operands: Sources) -> Step:
    """Two byte floats of a half to two float32 in a register pair."""
    read = operands.read(0, "u32")
    widen = byte_float(ctx, name).widen
    register = ctx.inst.fields["vdst"]
    shift = np.uint32(16 if ctx.inst.fields.get("opsel", 0) & 1 else 0)

    def run(b: Batch) -> None:
        x = read(b) >> shift
        low, high = widen(x), widen(x >> np.uint32(8))
        put(b, b.f32[register], low)
        put(b, b.f32[register + 1], high)

    return run


def pack_byte_floats(ctx: Context, name: str, operands: Sources) -> Step:
    """Two float32 to two byte floats in the half that op_sel names; the other half is kept."""
    first, second = operands.read(0, "f32"), operands.read(1, "f32")
    kind = byte_float(ctx, name)
    write = vector_write("u16", ctx.inst.fields["vdst"], ctx.inst.fields["opsel"] >> 3 & 1)

    def run(b: Batch) -> None:
        low, high = (kind.narrow(read(b)).astype(np.uint16) for read in (first, second))
        write(b, low | (high << np.uint16(8)))

    return run


LANE_STEPS: dict[str, Callable[[Context, str, Sources], Step]] = {
    "v_readfirstlane_b32": first_lane,
    "v_readlane_b32": read_lane,
    "v_writelane_b32": write_lane,
    "v_permlane16_b32": permute_rows,
    "v_permlanex16_b32": permute_rows,
    "v_permlane16_var_b32": permute_rows,
    "v_permlanex16_var_b32": permute_rows,
    "v_permlane64_b32": permute_halves,
    "v_permlane16_swap_b32": swap_rows,
    "v_permlane32_swap_b32": swap_rows,
    "v_swap_b32": swap,
    "v_swap_b16": swap,
    "v_mbcnt_lo_u32_b32": count_below,
    "v_mbcnt_hi_u32_b32": count_below,
    "v_movreld_b32": move_relative,
    "v_movrels_b32": move_relative,
    "v_movrelsd_b32": move_relative,
    "v_movrelsd_2_b32": move_relative,
    "v_swaprel_b32": swap_relative,
    "v_cvt_pk_f32_fp8": unpack_bytes,
    "v_cvt_pk_f32_bf8": unpack_bytes,
    "v_cvt_pk_fp8_f32": pack_byte_floats,
    "v_cvt_pk_bf8_f32": pack_byte_floats,
}


def relative_moves(ctx: Context, index: int) -> tuple[int, Step] | None:
    """gfx942's VGPR indexing: between s_set_gpr_idx_on and _off, v_mov_b32 adds M0[7:0] to register numbers.

    `index` is the mode in force: bit 0 sources, bit 3 destinations. Returns the mode after this instruction and its
    step, or None when indexing does not concern it.
    """
    inst = ctx.inst
    m0 = ctx.m0
    if inst.name == "s_set_gpr_idx_on":
        mode = inst.fields["ssrc1"] & 15
        read = scalar32(ctx, inst.fields["ssrc0"])

        def turn_on(b: Batch) -> None:
            kept = b.s[:, m0] & np.uint32(0xFFFF0F00)
            b.s[:, m0] = kept | (read(b) & np.uint32(0xFF)) | np.uint32(mode << 12)

        return mode, turn_on
    if inst.name == "s_set_gpr_idx_idx":
        read = scalar32(ctx, inst.fields["ssrc0"])

        def set_index(b: Batch) -> None:
            b.s[:, m0] = (b.s[:, m0] & np.uint32(0xFFFFFF00)) | (read(b) & np.uint32(0xFF))

        return index, set_index
    if inst.name == "s_set_gpr_idx_mode":
        return inst.fields["simm16"] & 15, lambda b: None
    if inst.name == "s_set_gpr_idx_off":
        return 0, lambda b: None
    if not index or inst.format[0] != "V":
        return None
    if inst.name != "v_mov_b32" or inst.format != "VOP1":
        raise ctx.refuse("only v_mov_b32 runs under VGPR indexing here")
    code = inst.fields["src0"]
    plain, moves_source = source(ctx, code, "u32"), bool(index & 1) and code >= 256
    move = indexed_move(ctx, plain, code, moves_source, bool(index & 8))

    def run(b: Batch) -> None:
        offset = (b.s[:, m0] & np.uint32(0xFF)).astype(np.intp)
        move(b, offset, offset)

    return index, run
