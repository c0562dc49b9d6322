"""Shadows of results: what is unwritten of what an instruction computes, from the shadows of its sources.

In       the Context of an instruction that computes registers, a mask, or SCC
Out      `compute`: what it makes of shadows; None: all that it writes is written
Changes  the Unwritten of the resident waves
Next     shadows.py (where shadows are), init_steps.py (who asks), hcq/emu/shader/shadow_bits.py (which bits)
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

import numpy as np

from hcq.emu.amd.shader.arrays import Array, pack_lanes, unpack_lanes
from hcq.emu.amd.shader.field_registers import EXEC, SCALARS, VCC, VECTORS, Part, Use
from hcq.emu.amd.shader.isa import Instruction
from hcq.emu.amd.shader.lane_ops import with_dpp
from hcq.emu.amd.shader.operands import Context, Reader, Step
from hcq.emu.amd.shader.shadow_moves import sdwa_readers
from hcq.emu.amd.shader.shadows import SCC, Follow, Unwritten, number_of, numbers_of
from hcq.emu.amd.shader.vector_operands import Fetch, sdwa_write
from hcq.emu.amd.shader.waves import Batch
from hcq.emu.shader import shadow_bits
from hcq.emu.shader.unwritten import Read, tell

Bitwise = Callable[[Array, Array, Array, Array], Array]
BITWISE: dict[str, Bitwise] = {
    "and": shadow_bits.of_and,
    "or": shadow_bits.of_or,
    "xor": lambda a, b, shadow_a, shadow_b: shadow_a | shadow_b,
}
COPIES = ("v_mov_b32", "v_mov_b64", "v_not_b32", "s_mov_b32", "s_mov_b64", "s_not_b32", "s_not_b64", "v_accvgpr_read",
          "v_accvgpr_write", "v_accvgpr_mov")  # fmt: skip
SUMS = ("v_add_nc_u32", "v_add_u32", "v_sub_nc_u32", "v_sub_u32", "v_mul_lo_u32", "v_add3_u32", "s_add_u32",
        "s_add_i32", "s_sub_u32", "s_sub_i32", "s_mul_i32")  # fmt: skip
FLOATS = ("add", "sub", "subrev", "mul", "fma", "fmac", "mac", "mad", "max", "min", "exp", "log", "rcp", "rsq", "sqrt",
          "sin", "cos", "floor", "ceil", "trunc", "rndne", "fract")  # fmt: skip
NUMBERS = ("f16", "f32", "f64", "i32", "u32")
WHOLE = (
    *(f"v_{name}_f32" for name in FLOATS), *(f"v_{name}_f64" for name in FLOATS),
    "v_add_co_u32", "v_add_co_ci_u32", "v_addc_co_u32", "v_sub_co_u32", "v_lshl_add_u32", "v_lshl_add_u64",
    "v_mad_u64_u32", "v_mad_u32_u24", "v_mul_u32_u24", "v_mul_hi_u32", "v_cvt_f32_u32", "v_cvt_f32_i32",
    "v_cvt_u32_f32", "v_cvt_i32_f32", "s_addc_u32", "s_subb_u32", "s_add_u64", "v_max_u32", "v_min_u32",
    "v_max_i32", "v_min_i32", "v_mad_u32_u16", "v_mad_i32_i24", "v_mul_i32_i24", "v_add_lshl_u32", "v_med3_f32",
    "v_med3_i32", "v_med3_u32", "v_max3_f32", "v_min3_f32", "v_max3_u32", "v_min3_u32", "v_max3_i32", "v_min3_i32",
    "v_ldexp_f32", "v_ldexp_f64", "v_cvt_pkrtz_f16_f32", "v_cvt_pk_rtz_f16_f32", "v_bcnt_u32_b32", "v_mbcnt_lo_u32_b32",
    "v_mbcnt_hi_u32_b32", "v_ffbh_u32", "v_ffbl_b32", "v_clz_i32_u32", "v_ctz_i32_b32", "v_sad_u32",
    *(f"v_cvt_{to}_{of}" for to in NUMBERS for of in NUMBERS if to != of),
)  # fmt: skip
SHIFTS = {"v_lshlrev_b32": "left", "v_lshrrev_b32": "right", "v_ashrrev_i32": "signed", "s_lshl_b32": "left",
          "s_lshr_b32": "right", "s_ashr_i32": "signed"}  # fmt: skip
FUNCTIONS: dict[str, Callable[..., Array]] = {
    "v_bfi_b32": lambda a, b, c: (a & b) | (~a & c),
    "v_and_or_b32": lambda a, b, c: (a & b) | c,
    "v_or3_b32": lambda a, b, c: a | b | c,
    "v_xor3_b32": lambda a, b, c: a ^ b ^ c,
}
DUALS = {"v_dual_mov_b32", "v_dual_add_f32", "v_dual_mul_f32", "v_dual_sub_f32", "v_dual_fmac_f32", "v_dual_max_f32",
         "v_dual_min_f32", "v_dual_add_nc_u32", "v_dual_lshlrev_b32"}  # fmt: skip


def compute(ctx: Context, use: Use) -> Follow | None:
    """What an instruction that computes makes of shadows."""
    if ctx.inst.format == "VOPD":
        return _dual(ctx, use)
    if ctx.inst.dpp is not None:
        return _across_lanes(ctx, use)
    return _plain(ctx, use, sdwa_readers(ctx))


def _dual(ctx: Context, use: Use) -> Follow:
    """Two instructions in one, of which the usual ones are followed."""
    assert ctx.inst.pair is not None
    halves: list[tuple[int, list[int], bool]] = []
    for opcode, side, part in zip(ctx.inst.pair, "xy", use.writes):
        names: tuple[str, ...] = ("src0", "vsrc1", "old") if "fmac" in opcode.name else ("src0", "vsrc1")
        names = names[:1] if "mov" in opcode.name else names
        sources = [each for name in names for each in numbers_of(ctx, use.read(f"{name}{side}"))]
        halves.append((part.first, sources if opcode.name in DUALS else [], "mov" not in opcode.name))

    def follow(unwritten: Unwritten, b: Batch) -> None:
        made = []
        for target, sources, computes in halves:
            read = unwritten.origin(sources)
            shadow = None
            if read is not None:
                read = read.computed() if computes else read
                shadow = shadow_bits.whole(_either(unwritten, b, sources), np.uint32)
            made.append((target, shadow, read))
        for target, shadow, read in made:
            unwritten.put(b, target, shadow, read)

    return follow


def _either(unwritten: Unwritten, b: Batch, numbers: Iterable[int]) -> Array:
    found = np.zeros((1, 1), np.uint32)
    for number in numbers:
        found = found | unwritten.of(b, number)
    return found


class _Source(NamedTuple):
    """A source: as its Part. read: the bits of one that DPP or SDWA moves."""

    field: str
    first: int
    words: int
    read: Reader | None = None

    @property
    def registers(self) -> range:
        """Their numbers."""
        return Part(self.field, self.first, self.words).registers


def _values(b: Batch, inst: Instruction, part: _Source, word: int) -> Array:
    """(wave, lane) or (wave, 1) values of a source."""
    if part.read is not None:
        return part.read(b)
    if part.first < 0:
        code = inst.fields.get(part.field, 128)
        number = code - 128 if 128 <= code <= 192 else 192 - code if 193 <= code <= 208 else inst.literal or 0
        return np.array([[(number if word == 0 else -(number < 0)) & 0xFFFFFFFF]], np.uint32)
    if part.first < SCALARS:
        return b.scalar(part.first + word)[:, None]
    return b.u32[part.first - VECTORS + word]


def _across_lanes(ctx: Context, use: Use) -> Follow | None:
    """An instruction whose first source DPP takes from other lanes."""
    made: list[Follow | None] = []
    now: list[Unwritten] = []

    def inner(fetch: Fetch) -> Step:
        follow = _plain(ctx, use, {"src0": fetch("u32", 0)})
        made.append(follow)
        return lambda b: None if follow is None else follow(now[-1], b)

    step = with_dpp(ctx, inner)
    if made[0] is None:
        return None

    def follow(unwritten: Unwritten, b: Batch) -> None:
        now[:] = [unwritten]
        step(b)

    return follow


def _plain(ctx: Context, use: Use, readers: dict[str, Reader]) -> Follow | None:
    """An instruction that computes registers from others. readers: of sources that DPP or SDWA moves."""
    inst, name = ctx.inst, ctx.inst.name
    sources = [
        _Source(*part, readers.get(part.field)) for part in use.reads if part.field not in ("vcc", "old")
    ]
    if any(1024 <= part.first for part in (*use.reads, *use.writes)) and not name.startswith("v_accvgpr"):
        return None
    results = [number_of(ctx, each) for part in use.writes for each in part.registers]
    if "saveexec" in name or (results and set(results) & {EXEC, EXEC + 1} and inst.format.startswith("SO")):
        return _exec(ctx, use, sources, results)
    if name.startswith(("v_cmp_", "s_cmp_", "v_cmpx_")):
        return None if readers else _comparison(ctx, use, sources)
    if not use.writes or not sources:
        return None
    target, rest = use.writes[0], use.writes[1:]
    make = _formula(name, inst, sources)
    if make is None:
        return None
    reads = [number for part in use.reads if part.field != "vcc" for number in numbers_of(ctx, part)]
    words = [number_of(ctx, each) for each in target.registers]
    others = [number_of(ctx, each) for part in rest for each in part.registers]
    computes = name in SUMS or name in WHOLE or name.startswith("v_pk_")
    old = use.read("old")
    everything = [*sources, *([_Source(*old)] if old is not None else [])]
    place = (
        None if inst.sdwa is None or len(words) != 1 else sdwa_write(inst.sdwa, inst.fields["vdst"], "u32")
    )
    if place is not None:
        reads += words  # what it leaves of the register

    def follow(unwritten: Unwritten, b: Batch) -> None:
        read = unwritten.origin(reads)
        if read is None:
            for number in (*words, *others):
                unwritten.put(b, number, None, None)
            return
        read = read.computed() if computes else read
        made = [make(unwritten, b, ctx, everything, word) for word in range(len(words))]
        if place is not None:
            unwritten.settle(b, words)
            place(unwritten.shadows(b), np.broadcast_to(made[0], b.lanes.shape))
            unwritten.note(b, words[0], read)
        else:
            for number, shadow in zip(words, made):
                unwritten.put(b, number, shadow, read)
        for number in others:
            unwritten.put(b, number, None, None)

    return follow


Make = Callable[[Unwritten, Batch, Context, list[_Source], int], Array]


def _shadow(unwritten: Unwritten, b: Batch, ctx: Context, part: _Source, word: int) -> Array:
    if part.first < 0 or word >= part.words:
        return np.zeros((1, 1), np.uint32)
    number = number_of(ctx, part.first + word)
    if part.read is None:
        return unwritten.of(b, number)
    if number not in unwritten.origins or number < VECTORS:
        return np.zeros((1, 1), np.uint32)
    return part.read(unwritten.shadows(b))


def _formula(name: str, inst: Instruction, sources: list[_Source]) -> Make | None:
    """The shadow of one word of a result."""
    if name.startswith(COPIES) and len(sources) == 1:
        return lambda u, b, ctx, parts, word: _shadow(u, b, ctx, parts[0], word)
    if name == "v_readfirstlane_b32":
        return _first_lane
    if name == "v_readlane_b32":
        return _one_lane
    if name in FUNCTIONS:
        return _function(FUNCTIONS[name])
    if name == "v_lshl_or_b32":
        return _shifted_or
    if name.startswith("v_pk_") and not name.endswith(("f32", "b32")):
        return _halves(inst)
    bitwise = next(
        (BITWISE[each] for each in BITWISE if name in (f"v_{each}_b32", f"s_{each}_b32", f"s_{each}_b64")),
        None,
    )
    if bitwise is not None:
        formula = bitwise
        return lambda u, b, ctx, parts, word: formula(
            *(_values(b, inst, part, word) for part in parts[:2]),
            *(_shadow(u, b, ctx, part, word) for part in parts[:2]),
        )
    if name in SHIFTS:
        return _shifted(name)
    if name in SUMS:
        return lambda u, b, ctx, parts, word: shadow_bits.upwards(_any(u, b, ctx, parts, word))
    if name == "v_cndmask_b32":
        return _choice
    if name in WHOLE and "f64" in name:  # each half of a double decides about all of the result
        return lambda u, b, ctx, parts, word: shadow_bits.whole(_any(u, b, ctx, parts, 1), np.uint32)
    if name in WHOLE:
        return lambda u, b, ctx, parts, word: shadow_bits.whole(_any(u, b, ctx, parts, word), np.uint32)
    return None


def _first_lane(unwritten: Unwritten, b: Batch, ctx: Context, parts: list[_Source], word: int) -> Array:
    """v_readfirstlane: of the first lane that is on."""
    shadow = np.broadcast_to(_shadow(unwritten, b, ctx, parts[0], 0), b.lanes.shape)
    return np.take_along_axis(shadow, b.lanes.argmax(axis=1)[:, None], axis=1)


def _one_lane(unwritten: Unwritten, b: Batch, ctx: Context, parts: list[_Source], word: int) -> Array:
    """v_readlane: of the lane that a number names."""
    shadow = np.broadcast_to(_shadow(unwritten, b, ctx, parts[0], 0), b.lanes.shape)
    lane = _values(b, ctx.inst, parts[1], 0) & np.uint32(ctx.wave_size - 1)
    return np.take_along_axis(shadow, np.broadcast_to(lane, (b.waves, 1)).astype(np.intp), axis=1)


def _function(function: Callable[..., Array]) -> Make:
    """A function of each bit of three words."""
    return lambda u, b, ctx, parts, word: shadow_bits.of_function(
        function,
        [_values(b, ctx.inst, part, word) for part in parts[:3]],
        [_shadow(u, b, ctx, part, word) for part in parts[:3]],
    )


def _shifted_or(unwritten: Unwritten, b: Batch, ctx: Context, parts: list[_Source], word: int) -> Array:
    """v_lshl_or: the first, moved up, or the third."""
    by = _values(b, ctx.inst, parts[1], 0) & np.uint32(31)
    value, shadow = (_values(b, ctx.inst, parts[0], 0) << by, _shadow(unwritten, b, ctx, parts[0], 0) << by)
    other = _values(b, ctx.inst, parts[2], 0), _shadow(unwritten, b, ctx, parts[2], 0)
    found = shadow_bits.of_or(value, other[0], shadow, other[1])
    return found | shadow_bits.whole(_shadow(unwritten, b, ctx, parts[1], 0), np.uint32)


def _halves(inst: Instruction) -> Make:
    """Two results in one register, each of the halves that op_sel and op_sel_hi name."""
    low, high = inst.fields["opsel"], inst.fields["opsel_hi"] | inst.fields["opsel_hi2"] << 2

    def make(unwritten: Unwritten, b: Batch, ctx: Context, parts: list[_Source], word: int) -> Array:
        found = np.zeros((1, 1), np.uint32)
        for index, part in enumerate(parts):
            shadow = _shadow(unwritten, b, ctx, part, 0)
            for chosen, mask in ((low, 0xFFFF), (high, 0xFFFF0000)):
                half = shadow >> np.uint32(16 * (chosen >> index & 1)) & np.uint32(0xFFFF)
                if part.field == "old":
                    half = shadow & np.uint32(mask)
                found = found | np.where(half != 0, np.uint32(mask), np.uint32(0))
        return found

    return make


def _any(unwritten: Unwritten, b: Batch, ctx: Context, parts: list[_Source], word: int) -> Array:
    """Of all sources, this word and those below."""
    found = np.zeros((1, 1), np.uint32)
    for part in parts:
        for below in range(min(word + 1, part.words)):
            found = found | _shadow(unwritten, b, ctx, part, below)
    return found


def _shifted(name: str) -> Make:
    is_vector, how = name.startswith("v_"), SHIFTS[name]

    def make(unwritten: Unwritten, b: Batch, ctx: Context, parts: list[_Source], word: int) -> Array:
        count, value = (parts[0], parts[1]) if is_vector else (parts[1], parts[0])
        by = _values(b, ctx.inst, count, 0) & np.uint32(31)
        shadow = _shadow(unwritten, b, ctx, value, 0)
        moved = shadow << by if how == "left" else shadow >> by
        if how == "signed":
            moved = (shadow.view(np.int32) >> by.view(np.int32)).view(np.uint32)
        return moved | shadow_bits.whole(_shadow(unwritten, b, ctx, count, 0), np.uint32)

    return make


def _choice(unwritten: Unwritten, b: Batch, ctx: Context, parts: list[_Source], word: int) -> Array:
    """v_cndmask: the second source where the mask has a bit."""
    no, yes = parts[0], parts[1]
    register = parts[2].first if len(parts) > 2 and parts[2].first >= 0 else VCC
    mask = b.mask(register)
    chosen = np.where(mask, _shadow(unwritten, b, ctx, yes, 0), _shadow(unwritten, b, ctx, no, 0))
    size = b.mask_words
    if any(register + each in unwritten.origins for each in range(size)):
        bits = unpack_lanes(b.scalars[:, SCALARS + register : SCALARS + register + size])
        differ = _values(b, ctx.inst, yes, 0) != _values(b, ctx.inst, no, 0)
        chosen = np.where(bits & differ, np.uint32(0xFFFFFFFF), chosen)
    return np.asarray(chosen, np.uint32)


# ---------------------------------------------------------------- masks and branches


def _comparison(ctx: Context, use: Use, sources: list[_Source]) -> Follow | None:
    """Compares, whose result is a mask, or SCC; v_cmpx decides which lanes go on."""
    inst, name, pc = ctx.inst, ctx.inst.name, ctx.inst.pc
    if len(sources) != 2:
        return None
    is_scalar, is_exec = name.startswith("s_"), name.startswith("v_cmpx")
    kind = name.rpartition("_")[2]
    is_equality, is_integer = "_eq_" in name or "_lg_" in name or "_ne_" in name, kind in ("u32", "i32")
    reads = [number_of(ctx, each) for part in sources for each in part.registers]
    target = use.writes[0].first if use.writes else VCC

    def follow(unwritten: Unwritten, b: Batch) -> None:
        read = unwritten.origin(reads)
        masks = [] if is_scalar or is_exec else list(range(target, target + b.mask_words))
        if read is None:
            for number in masks or ([SCC] if is_scalar else []):
                unwritten.put(b, number, None, None)
            return
        if is_integer:
            values = [_values(b, inst, part, 0) for part in sources]
            shadows = [_shadow(unwritten, b, ctx, part, 0) for part in sources]
            found = shadow_bits.of_comparison(
                values[0], values[1], shadows[0], shadows[1], is_equality, kind == "i32"
            )
        else:
            found = _either(unwritten, b, reads) != 0
        bad = np.logical_and(np.broadcast_to(found, b.lanes.shape), b.lanes)
        if is_scalar:
            unwritten.put(b, SCC, np.logical_or.reduce(bad, axis=1)[:, None].astype(np.uint32), read)
        elif is_exec:
            _tell(unwritten, b, bad, read, pc)
        else:
            bits = pack_lanes(np.ascontiguousarray(bad))
            for index, number in enumerate(masks):
                unwritten.put(b, number, bits[:, index : index + 1], read)

    return follow


def _tell(unwritten: Unwritten, b: Batch, bad: Array, read: Read, pc: int) -> None:
    if bad.any():
        wave, lane = (int(each[0]) for each in np.nonzero(bad))
        who = b.lane_names(wave, lane)
        tell(unwritten.checks, "branch", read, unwritten.text_of(pc), pc, who, int(np.count_nonzero(bad)))


def _exec(ctx: Context, use: Use, sources: list[_Source], results: list[int]) -> Follow:
    """A mask decides which lanes go on."""
    pc = ctx.inst.pc
    reads = [number for part in sources for number in part.registers if number not in (EXEC, EXEC + 1)]

    def follow(unwritten: Unwritten, b: Batch) -> None:
        for first in reads[:: b.mask_words]:
            read = unwritten.origin(range(first, first + b.mask_words))
            if read is not None:
                bits = unpack_lanes(b.scalars[:, SCALARS + first : SCALARS + first + b.mask_words])
                _tell(unwritten, b, bits & b.lanes, read, pc)
        for number in results:
            if number not in (EXEC, EXEC + 1):
                unwritten.put(b, number, None, None)

    return follow
