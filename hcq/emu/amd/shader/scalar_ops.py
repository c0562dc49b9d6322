"""Scalar instructions: one number per wave, and SCC.

In       a Context for one SOP1, SOP2, SOPC or SOPK instruction that does not branch
Out      a step that runs it on a Batch
Changes  SGPRs, SCC, EXEC and M0, when the step runs
Next     control.py (branches, waits, MODE), scalar_memory_ops.py (loads), scalar_float_ops.py (gfx12), operands.py
Source   instruction descriptions of the RDNA3 and CDNA3 ISA documents

gfx942 and gfx12 spell some of these otherwise (s_andn2 for s_and_not1, s_add_co_u32 for s_add_u32): see ALIASES.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from hcq.emu.amd.shader.arrays import Array
from hcq.emu.amd.shader.integer_ops import field_signed, leading_signs, leading_zeros, trailing_zeros
from hcq.emu.amd.shader.operands import Context, Step, scalar32, scalar64, scalar_write
from hcq.emu.amd.shader.scalar_float_ops import compile_scalar_float
from hcq.emu.amd.shader.waves import EXEC, Batch
from hcq.emu.shader.bits import count_ones, reversed_bits

Two = Callable[[Array, Array], Array]

TOP_BIT = np.uint32(0x80000000)

ALIASES = {
    "s_add_co_u32": "s_add_u32",
    "s_sub_co_u32": "s_sub_u32",
    "s_add_co_i32": "s_add_i32",
    "s_sub_co_i32": "s_sub_i32",
    "s_add_co_ci_u32": "s_addc_u32",
    "s_sub_co_ci_u32": "s_subb_u32",
    "s_addk_co_i32": "s_addk_i32",
    "s_andn2_b32": "s_and_not1_b32",
    "s_andn2_b64": "s_and_not1_b64",
    "s_orn2_b32": "s_or_not1_b32",
    "s_orn2_b64": "s_or_not1_b64",
    "s_ff1_i32_b32": "s_ctz_i32_b32",
    "s_ff1_i32_b64": "s_ctz_i32_b64",
    "s_flbit_i32_b32": "s_clz_i32_u32",
    "s_flbit_i32_b64": "s_clz_i32_u64",
    "s_flbit_i32": "s_cls_i32",
    "s_flbit_i32_i64": "s_cls_i32_i64",
    **{
        f"s_{older}_{form}_{size}": f"s_{newer}_{form}_{size}"
        for older, newer in (
            ("andn2", "and_not1"),
            ("orn2", "or_not1"),
            ("andn1", "and_not0"),
            ("orn1", "or_not0"),
        )
        for form in ("saveexec", "wrexec")
        for size in ("b32", "b64")
    },
}


def signed(x: Array) -> Array:
    """The same bits as signed numbers."""
    return x.view(np.int64 if x.dtype == np.uint64 else np.int32)


def unsigned(x: Array) -> Array:
    """The same bits as unsigned numbers."""
    return x.view(np.uint64 if x.dtype == np.int64 else np.uint32)


def amount(x: Array, width: int) -> Array:
    """A shift count of the other operand's type."""
    count = x & np.uint32(width - 1)
    return count.astype(np.uint64) if width == 64 else count


def quads(x: Array, width: int) -> Array:
    """Bit i: any of bits 4i..4i+3."""
    wide = x.astype(np.uint64)
    out = np.zeros_like(wide)
    for i in range(width // 4):
        out |= (((wide >> np.uint64(4 * i)) & np.uint64(15)) != 0).astype(np.uint64) << np.uint64(i)
    return out.astype(x.dtype)


def whole_quads(x: Array, width: int) -> Array:
    """Four bits set wherever one of them is."""
    wide = x.astype(np.uint64)
    out = np.zeros_like(wide)
    for i in range(width // 4):
        any_set = ((wide >> np.uint64(4 * i)) & np.uint64(15)) != 0
        out |= np.where(any_set, np.uint64(15), np.uint64(0)) << np.uint64(4 * i)
    return out.astype(x.dtype)


def replicate(x: Array) -> Array:
    """Each bit twice: 32 -> 64 bits."""
    out = np.zeros(x.shape, np.uint64)
    for i in range(32):
        out |= ((x.astype(np.uint64) >> np.uint64(i)) & np.uint64(1)) * np.uint64(3) << np.uint64(2 * i)
    return out


def first_zero(x: Array, width: int) -> Array:
    """The place of the lowest zero; -1 when there is none."""
    return trailing_zeros(~x if width == 64 else (~x).astype(np.uint32))


def extract(x: Array, control: Array, is_signed: bool) -> Array:
    """s_bfe: a field, of which the control word has offset and width."""
    width = 64 if x.dtype == np.uint64 else 32
    offset = control & np.uint32(width - 1)
    size = np.minimum((control >> np.uint32(16)) & np.uint32(127), width)
    if width == 32:
        wide = x.astype(np.uint64)
        mask = (np.uint64(1) << size.astype(np.uint64)) - np.uint64(1)
        if is_signed:
            return unsigned(field_signed(signed(x), offset, size))
        return ((wide >> offset.astype(np.uint64)) & mask).astype(np.uint32)
    moved = x >> offset.astype(np.uint64)
    full = size >= 64
    mask = np.where(
        full, ~np.uint64(0), (np.uint64(1) << (size.astype(np.uint64) & np.uint64(63))) - np.uint64(1)
    )
    field = moved & mask
    if not is_signed:
        return field
    top = np.where(
        size == 0, np.uint64(0), np.uint64(1) << ((size.astype(np.uint64) - np.uint64(1)) & np.uint64(63))
    )
    return (field ^ top) - top


def field_mask(size: Array, offset: Array, width: int) -> Array:
    """`size` ones from `offset` on."""
    kind = np.uint64 if width == 64 else np.uint32
    ones = (kind(1) << amount(size, width)) - kind(1)
    return ones << amount(offset, width)


def halves(a: Array, b: Array, low_a: bool, low_b: bool) -> Array:
    """s_pack: a half of each as one word."""
    x = a & np.uint32(0xFFFF) if low_a else a >> np.uint32(16)
    y = b & np.uint32(0xFFFF) if low_b else b >> np.uint32(16)
    return x | (y << np.uint32(16))


# results whose SCC is "not zero"
LOGIC: dict[str, Two] = {
    "and": np.bitwise_and,
    "or": np.bitwise_or,
    "xor": np.bitwise_xor,
    "nand": lambda a, b: ~(a & b),
    "nor": lambda a, b: ~(a | b),
    "xnor": lambda a, b: ~(a ^ b),
    "and_not1": lambda a, b: a & ~b,
    "or_not1": lambda a, b: a | ~b,
    "and_not0": lambda a, b: ~a & b,
    "or_not0": lambda a, b: ~a | b,
}
NONZERO: dict[str, Two] = {
    **{f"s_{name}_b{width}": compute for name, compute in LOGIC.items() for width in (32, 64)},
    "s_lshl_b32": lambda a, b: a << amount(b, 32),
    "s_lshl_b64": lambda a, b: a << amount(b, 64),
    "s_lshr_b32": lambda a, b: a >> amount(b, 32),
    "s_lshr_b64": lambda a, b: a >> amount(b, 64),
    "s_ashr_i32": lambda a, b: unsigned(signed(a) >> signed(amount(b, 32))),
    "s_ashr_i64": lambda a, b: unsigned(signed(a) >> signed(amount(b, 64))),
    "s_bfe_u32": lambda a, b: extract(a, b, False),
    "s_bfe_i32": lambda a, b: extract(a, b, True),
    "s_bfe_u64": lambda a, b: extract(a, b, False),
    "s_bfe_i64": lambda a, b: extract(a, b, True),
    "s_absdiff_i32": lambda a, b: np.abs(signed(a).astype(np.int64) - signed(b)).astype(np.uint32),
}
# results that leave SCC alone
QUIET: dict[str, Two] = {
    "s_bfm_b32": lambda a, b: field_mask(a, b, 32),
    "s_bfm_b64": lambda a, b: field_mask(a, b, 64),
    "s_mul_i32": np.multiply,
    "s_mul_u64": np.multiply,
    "s_add_nc_u64": np.add,
    "s_sub_nc_u64": np.subtract,
    "s_mul_hi_u32": lambda a, b: ((a.astype(np.uint64) * b) >> np.uint64(32)).astype(np.uint32),
    "s_mul_hi_i32": lambda a, b: ((signed(a).astype(np.int64) * signed(b)) >> np.int64(32)).astype(np.uint32),
    "s_pack_ll_b32_b16": lambda a, b: halves(a, b, True, True),
    "s_pack_lh_b32_b16": lambda a, b: halves(a, b, True, False),
    "s_pack_hh_b32_b16": lambda a, b: halves(a, b, False, False),
    "s_pack_hl_b32_b16": lambda a, b: halves(a, b, False, True),
}
ONE_NONZERO: dict[str, Callable[[Array], Array]] = {
    "s_not_b32": np.invert,
    "s_not_b64": np.invert,
    "s_abs_i32": lambda a: np.abs(signed(a).astype(np.int64)).astype(np.uint32),
    "s_bcnt0_i32_b32": lambda a: np.uint32(32) - count_ones(a),
    "s_bcnt0_i32_b64": lambda a: np.uint32(64) - count_ones(a),
    "s_bcnt1_i32_b32": count_ones,
    "s_bcnt1_i32_b64": count_ones,
    "s_quadmask_b32": lambda a: quads(a, 32),
    "s_quadmask_b64": lambda a: quads(a, 64),
    "s_wqm_b32": lambda a: whole_quads(a, 32),
    "s_wqm_b64": lambda a: whole_quads(a, 64),
}
ONE_QUIET: dict[str, Callable[[Array], Array]] = {
    "s_mov_b32": lambda a: a,
    "s_mov_b64": lambda a: a,
    "s_brev_b32": reversed_bits,
    "s_brev_b64": reversed_bits,
    "s_ctz_i32_b32": lambda a: unsigned(trailing_zeros(a)),
    "s_ctz_i32_b64": lambda a: unsigned(trailing_zeros(a)),
    "s_ff0_i32_b32": lambda a: unsigned(first_zero(a, 32)),
    "s_ff0_i32_b64": lambda a: unsigned(first_zero(a, 64)),
    "s_clz_i32_u32": lambda a: unsigned(leading_zeros(a, 32)),
    "s_clz_i32_u64": lambda a: unsigned(leading_zeros(a, 64)),
    "s_cls_i32": lambda a: unsigned(leading_signs(signed(a), 32)),
    "s_cls_i32_i64": lambda a: unsigned(leading_signs(signed(a), 64)),
    "s_sext_i32_i8": lambda a: unsigned(a.astype(np.int8).astype(np.int32)),
    "s_sext_i32_i16": lambda a: unsigned(a.astype(np.int16).astype(np.int32)),
    "s_bitreplicate_b64_b32": replicate,
}
COMPARES: dict[str, Two] = {
    "eq": np.equal,
    "lg": np.not_equal,
    "gt": np.greater,
    "ge": np.greater_equal,
    "lt": np.less,
    "le": np.less_equal,
}


def compile_scalar(ctx: Context) -> Step:
    """The step of a scalar instruction."""
    name = ALIASES.get(ctx.inst.name, ctx.inst.name)
    if ctx.inst.format == "SOPK":
        return compile_sopk(ctx, name)
    for group in (compile_scalar_float, arithmetic, logic, moves, exec_masks, compares):
        step = group(ctx, name)
        if step is not None:
            return step
    raise ctx.refuse()


def read(ctx: Context, field: str) -> Callable[[Batch], Array]:
    """A scalar source, 32 or 64 bits wide as the opcode says."""
    operand = ctx.inst.opcode.operand(field)
    assert operand is not None
    one = scalar64 if operand.width == 64 else scalar32
    return one(ctx, ctx.inst.fields[field])


def write(ctx: Context) -> Callable[[Batch, Array], None]:
    """What writes its result."""
    operand = ctx.inst.opcode.operand("sdst")
    assert operand is not None
    return scalar_write(ctx, ctx.inst.fields["sdst"], operand.width // 32)


def logic(ctx: Context, name: str) -> Step | None:
    """Results of one or two sources, with SCC set to 'not zero' or left alone."""
    if name in NONZERO or name in QUIET:
        compute, first, second, out = (
            NONZERO.get(name) or QUIET[name],
            read(ctx, "ssrc0"),
            read(ctx, "ssrc1"),
            write(ctx),
        )
        if name in QUIET:
            return lambda b: out(b, compute(first(b), second(b)))

        def two(b: Batch) -> None:
            result = compute(first(b), second(b))
            b.scc = result != 0
            out(b, result)

        return two
    if name in ONE_NONZERO or name in ONE_QUIET:
        alone, only, out = ONE_NONZERO.get(name) or ONE_QUIET[name], read(ctx, "ssrc0"), write(ctx)
        if name in ONE_QUIET:
            return lambda b: out(b, alone(only(b)))

        def one(b: Batch) -> None:
            result = alone(only(b))
            b.scc = result != 0
            out(b, result)

        return one
    return None


def wide_signed(x: Array) -> Array:
    """32 bits with their sign, as int64."""
    return x.view(np.int32).astype(np.int64)


def arithmetic(ctx: Context, name: str) -> Step | None:
    """Sums with carry or overflow in SCC, minimum and maximum."""
    if name[2:] in ("min_i32", "min_u32", "max_i32", "max_u32"):
        return extremes(ctx, name)
    if name.startswith("s_lshl") and name.endswith("_add_u32"):
        shift = np.uint64(int(name[6]))
        a, c, out = read(ctx, "ssrc0"), read(ctx, "ssrc1"), write(ctx)

        def shift_add(b: Batch) -> None:
            total = (a(b).astype(np.uint64) << shift) + c(b)
            b.scc = total > 0xFFFFFFFF
            out(b, total.astype(np.uint32))

        return shift_add
    if name[2:] not in ("add_u32", "sub_u32", "addc_u32", "subb_u32", "add_i32", "sub_i32"):
        return None
    left, right, out = read(ctx, "ssrc0"), read(ctx, "ssrc1"), write(ctx)
    adds = name.startswith("s_add")
    with_carry = name in ("s_addc_u32", "s_subb_u32")
    is_signed = name.endswith("i32")

    if is_signed:

        def add_signed(b: Batch) -> None:
            x, y = left(b), right(b)
            if adds:
                total = x + y
                flips = (x ^ total) & (y ^ total)  # the sum's sign differs from that of both
            else:
                total = x - y
                flips = (x ^ y) & (x ^ total)
            b.scc = flips >= TOP_BIT
            out(b, total)

        return add_signed

    def add_unsigned(b: Batch) -> None:
        x, y = left(b), right(b)
        total = x + y if adds else x - y
        carry = total < x if adds else x < y
        if with_carry:
            partial = total
            total = partial + b.scc if adds else partial - b.scc
            carry = carry | (total < partial if adds else total > partial)
        b.scc = carry
        out(b, total)

    return add_unsigned


def extremes(ctx: Context, name: str) -> Step:
    """s_min, s_max: SCC says whether the first one was taken."""
    left, right, out = read(ctx, "ssrc0"), read(ctx, "ssrc1"), write(ctx)
    is_signed, lowest = name.endswith("i32"), "min" in name

    def run(b: Batch) -> None:
        x, y = left(b), right(b)
        if is_signed:
            x, y = signed(x), signed(y)
        first = x < y if lowest else x >= y
        b.scc = first
        out(b, unsigned(np.where(first, x, y)))

    return run


def moves(ctx: Context, name: str) -> Step | None:
    """Conditional moves, selection, single bits, relative registers."""
    inst = ctx.inst
    if name.startswith("s_cselect"):
        yes, no, out = read(ctx, "ssrc0"), read(ctx, "ssrc1"), write(ctx)
        return lambda b: out(b, np.where(b.scc, yes(b), no(b)))
    if name.startswith("s_cmov_"):
        new, out = read(ctx, "ssrc0"), write(ctx)
        operand = inst.opcode.operand("sdst")
        assert operand is not None
        old = (scalar64 if operand.width == 64 else scalar32)(ctx, inst.fields["sdst"])
        return lambda b: out(b, np.where(b.scc, new(b), old(b)))
    if name.startswith("s_bitset"):
        return set_bit(ctx, name)
    if name.startswith("s_movrel"):
        return move_relative(ctx, name)
    return None


def set_bit(ctx: Context, name: str) -> Step:
    """s_bitset0, s_bitset1."""
    width, value = int(name[-2:]), name[8] == "1"
    position, out = read(ctx, "ssrc0"), write(ctx)
    old = (scalar64 if width == 64 else scalar32)(ctx, ctx.inst.fields["sdst"])
    one = np.uint64(1) if width == 64 else np.uint32(1)

    def run(b: Batch) -> None:
        bit = one << amount(position(b), width)
        out(b, old(b) | bit if value else old(b) & ~bit)

    return run


def move_relative(ctx: Context, name: str) -> Step:
    """s_movrels, s_movreld: a register's number has M0 added."""
    sdst, ssrc, m0 = ctx.inst.fields["sdst"], ctx.inst.fields["ssrc0"], ctx.m0
    words = 2 if name.endswith("b64") else 1
    moves_source, moves_destination = "movrels" in name, "movreld" in name or "movrelsd" in name
    both = name == "s_movrelsd_2_b32"
    constant = read(ctx, "ssrc0")

    def run(b: Batch) -> None:
        index = b.s[:, m0].astype(np.intp)
        from_offset, to_offset = (index & 0x3FF, (index >> 16) & 0x3FF) if both else (index, index)
        wave = np.arange(b.waves)
        b.known.clear()
        for word in range(words):
            if moves_source:
                at = ssrc + from_offset + word
                if (at > 107).any():
                    raise ctx.refuse(f"register s{int(at.max())} is beyond the scalar file")
                value = b.s[wave, at]
            else:
                value = (constant(b).astype(np.uint64) >> np.uint64(32 * word)).astype(np.uint32)
            to = sdst + to_offset + word if moves_destination else np.full(b.waves, sdst + word)
            if (to > 107).any():
                raise ctx.refuse(f"register s{int(to.max())} is beyond the scalar file")
            b.s[wave, to] = value

    return run


def exec_masks(ctx: Context, name: str) -> Step | None:
    """s_<logic>_saveexec: D = old EXEC, EXEC = S0 op EXEC. s_<logic>_wrexec: D = the new one."""
    form = next((form for form in ("_saveexec_", "_wrexec_") if form in name), None)
    if form is None:
        return None
    compute = LOGIC[name[2 : name.index(form)]]
    mask, out = read(ctx, "ssrc0"), write(ctx)
    old = (scalar64 if name.endswith("64") else scalar32)(ctx, EXEC)
    set_exec = scalar_write(ctx, EXEC, 2 if name.endswith("64") else 1)
    saves = form == "_saveexec_"

    def run(b: Batch) -> None:
        before = old(b).copy()
        after = compute(mask(b), before)
        b.scc = after != 0
        out(b, before if saves else after)
        set_exec(b, after)

    return run


def compares(ctx: Context, name: str) -> Step | None:
    """s_cmp and s_bitcmp: the answer goes to SCC; None when it is neither."""
    if name.startswith("s_cmp_"):
        _, _, test, kind = name.split("_")
        left, right, decide = read(ctx, "ssrc0"), read(ctx, "ssrc1"), COMPARES[test]
        is_signed = kind[0] == "i"

        def run(b: Batch) -> None:
            x, y = left(b), right(b)
            b.scc = decide(signed(x), signed(y)) if is_signed else decide(x, y)

        return run
    if name.startswith("s_bitcmp"):
        width, wanted = int(name[-2:]), int(name[8])
        word, position = read(ctx, "ssrc0"), read(ctx, "ssrc1")

        def test_bit(b: Batch) -> None:
            x = word(b)
            b.scc = ((x >> amount(position(b), width)) & x.dtype.type(1)) == wanted

        return test_bit
    return None


def compile_sopk(ctx: Context, name: str) -> Step:
    """The step of a scalar instruction with a 16-bit constant."""
    sdst = ctx.inst.fields["sdst"]
    immediate = ctx.inst.fields["simm16"]
    extended = (immediate ^ 0x8000) - 0x8000
    word = np.uint32(extended & 0xFFFFFFFF)
    old, out = scalar32(ctx, sdst), scalar_write(ctx, sdst)
    if name == "s_movk_i32":
        return lambda b: out(b, np.full(b.waves, word))
    if name == "s_cmovk_i32":
        return lambda b: out(b, np.where(b.scc, word, old(b)))
    if name == "s_mulk_i32":
        return lambda b: out(b, old(b) * word)
    if name == "s_addk_i32":

        def add(b: Batch) -> None:
            total = wide_signed(old(b)) + extended
            b.scc = total != total.astype(np.int32)
            out(b, total.astype(np.uint32))

        return add
    if name.startswith("s_cmpk_"):
        _, _, test, kind = name.split("_")
        decide = COMPARES[test]
        if kind == "i32":
            right = np.int32(extended)

            def compare_signed(b: Batch) -> None:
                b.scc = decide(signed(old(b)), right)

            return compare_signed
        limit = np.uint32(immediate)

        def compare_unsigned(b: Batch) -> None:
            b.scc = decide(old(b), limit)

        return compare_unsigned
    raise ctx.refuse()
