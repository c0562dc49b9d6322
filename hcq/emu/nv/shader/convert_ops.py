"""cvt: every pair of types, with its roundings, saturation and relu; and cvt.pack.

In       Code
Out      steps
Next     floats.py (narrow formats), stochastic_ops.py (random roundings)
Source   PTX ISA, "Data Movement and Conversion Instructions: cvt"

Float to integer saturates. NaN becomes 0, or the top bit alone when the source is f64 or the result has 64 bits.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from hcq.emu.nv.shader import floats, stochastic_ops
from hcq.emu.nv.shader.decode import Code, Registers, Rules, Step
from hcq.emu.nv.shader.groups import Group
from hcq.emu.nv.shader.types import TYPES, Lanes, Type
from hcq.emu.shader.exact_floats import round_to_odd, two_sum
from hcq.emu.shader.small_floats import E2M1, E2M3, E3M2, E4M3, E5M2, SmallFloat

RULES = Rules()
Compute = Callable[[Lanes], Lanes]
TO_INTEGER: dict[str, Callable[[Lanes], Lanes]] = {
    "rni": np.rint,
    "rzi": np.trunc,
    "rmi": np.floor,
    "rpi": np.ceil,
}


class Minifloat(NamedTuple):
    """A format of at most 8 bits, of which pairs are converted. bits: of one in its place.

    narrow   (floats, rounds up, infinities become finite) -> codes
    """

    bits: int
    narrow: Callable[[Lanes, bool, bool], Lanes]
    widen: Callable[[Lanes], Lanes]


def _minifloat(kind: SmallFloat) -> Minifloat:
    """What is too large becomes the largest number, always."""
    bits, finite_kind = 4 if kind is E2M1 else 8, kind.saturating
    return Minifloat(bits, lambda x, up, finite: finite_kind.narrow(x), kind.widen)


MINIFLOATS = {
    "e4m3x2": _minifloat(E4M3),
    "e5m2x2": _minifloat(E5M2),
    "e2m1x2": _minifloat(E2M1),
    "e2m3x2": _minifloat(E2M3),
    "e3m2x2": _minifloat(E3M2),
    "ue8m0x2": Minifloat(8, floats.narrow_exponent, floats.widen_exponent),
}
# cvt.pack: bits of an element, and whether it has a sign
PACKED = {"u16": (16, False), "s16": (16, True), "u8": (8, False), "s8": (8, True), "u4": (4, False), "s4": (4, True),
          "u2": (2, False), "s2": (2, True)}  # fmt: skip


@RULES.on("cvt")
def cvt(code: Code) -> Step:
    """`cvt` from any type to any, rounded and saturated as its modifiers say."""
    if code.flag("pack"):
        return _pack(code)
    mode = code.take(*TO_INTEGER, "rn", "rz", "rm", "rp", "rna", "rs")
    if mode == "rs":
        return stochastic_ops.convert(code)
    ftz, sat, relu = code.flag("ftz"), code.flag("sat"), code.flag("relu")
    finite = code.flag("satfinite")
    to, source = code.type(), code.type()
    if to.name in MINIFLOATS:
        return _to_minifloats(code, to, source, mode, relu, finite)
    if source.name in MINIFLOATS:
        return _from_minifloats(code, to, source, relu)
    if to.packed == 2 and source.name == "f32":
        return _two_to_packed(code, to, mode, relu, finite)
    compute = conversion(to, source, mode, ftz, sat, relu, finite)
    code.expect(2)
    a = code.source(1, source, is_wide=True)
    destination = code.destination(code.operands[0], to, is_wide=True)
    source_bits = code.lowering.decoded.first[a].dtype.type
    result_bits = code.lowering.decoded.first[destination].dtype.type
    narrows = source_bits != source.bits
    extends = result_bits != to.bits
    if not narrows and not extends:
        return code.pure(compute, destination, a)
    signed = to.kind == "s"

    def fitted(x: Lanes) -> Lanes:
        value = compute(x.astype(source.bits) if narrows else x)
        if not extends:
            return value
        if signed:
            wide = np.dtype(f"i{np.dtype(result_bits).itemsize}").type
            return value.view(to.scalar).astype(wide).view(result_bits)
        return value.astype(result_bits)

    return code.pure(fitted, destination, a)


def conversion(
    to: Type,
    source: Type,
    mode: str = "",
    ftz: bool = False,
    sat: bool = False,
    relu: bool = False,
    finite: bool = False,
) -> Compute:
    """Register bits of one type to register bits of another."""
    if source.is_integer and to.is_integer:
        return _integer_to_integer(to, source, sat)
    if source.is_float and to.is_integer:
        return _float_to_integer(to, source, mode, ftz)
    if source.is_integer:
        return _integer_to_float(to, source, mode, sat)
    return _float_to_float(to, source, mode, ftz, sat, relu, finite)


def _integer_to_integer(to: Type, source: Type, sat: bool) -> Compute:
    if not sat:
        return lambda a: a.view(source.scalar).astype(to.scalar).view(to.bits)
    low, high = int(np.iinfo(to.scalar).min), int(np.iinfo(to.scalar).max)
    source_info = np.iinfo(source.scalar)
    lowest, highest = max(low, int(source_info.min)), min(high, int(source_info.max))
    bottom, top = source.scalar(lowest), source.scalar(highest)
    return lambda a: np.clip(a.view(source.scalar), bottom, top).astype(to.scalar).view(to.bits)


def _float_to_integer(to: Type, source: Type, mode: str, ftz: bool) -> Compute:
    read, rounding = floats.reader(source), TO_INTEGER.get(mode, np.trunc)
    info = np.iinfo(to.scalar)
    nan = to.bits(1 << (to.width - 1)) if source.name == "f64" or to.size_bytes == 8 else to.bits(0)
    wide = np.float64 if source.name != "f32" or to.size_bytes >= 4 else np.float32
    # the largest float that still fits; the integer's own limits are put in where the float is beyond it
    too_high, too_low = wide(2.0 ** (to.width - (to.kind == "s"))), wide(info.min)
    highest, lowest = to.bits(int(info.max)), to.bits(int(info.min) % (1 << to.width))

    def compute(a: Lanes) -> Lanes:
        value = read(a)
        if ftz and source.name == "f32":
            value = floats.flush(value)
        value = rounding(value).astype(wide)
        high, low, bad = value >= too_high, value < too_low, np.isnan(value)
        odd = high | low | bad
        if not odd.any():
            return value.astype(to.scalar).view(to.bits)
        found = np.where(odd, wide(0), value).astype(to.scalar).view(to.bits)
        return np.where(bad, nan, np.where(high, highest, np.where(low, lowest, found)))

    return compute


def _integer_to_float(to: Type, source: Type, mode: str, sat: bool) -> Compute:
    pack = floats.packer(to)

    def convert(x: Lanes) -> Lanes:
        if to.size_bytes == 2:
            return _round_narrow(to, *_as_doubles(x))
        if mode in ("", "rn"):
            return x.astype(to.scalar)
        high, low = _as_doubles(x)
        if to.name == "f32":
            return floats.directed32(high, low, mode)
        return _directed64(high, low, mode)

    def compute(a: Lanes) -> Lanes:
        value = convert(a.view(source.scalar))
        return pack(floats.saturate(value) if sat else value)

    return compute


def _as_doubles(x: Lanes) -> tuple[Lanes, Lanes]:
    """An integer as a double and the rest that it has no room for."""
    if x.itemsize < 8:
        return x.astype(np.float64), np.zeros(1)
    upper = (x >> x.dtype.type(32)).astype(np.float64) * 4294967296.0
    lower = (x & x.dtype.type(0xFFFFFFFF)).astype(np.float64)
    return two_sum(upper, lower)


def _directed64(s: Lanes, e: Lanes, mode: str) -> Lanes:
    down, up = np.nextafter(s, -np.inf), np.nextafter(s, np.inf)
    goes_down = (e < 0) & ((mode == "rm") | ((mode == "rz") & (s > 0)))
    goes_up = (e > 0) & ((mode == "rp") | ((mode == "rz") & (s < 0)))
    return np.where(goes_down, down, np.where(goes_up, up, s))


def _round_narrow(to: Type, s: Lanes, e: Lanes) -> Lanes:
    """What the packer rounds once more to f16 or bf16 without a double rounding error."""
    return floats.float_to_odd(round_to_odd(s, np.broadcast_to(e, s.shape)))


def _float_to_float(
    to: Type, source: Type, mode: str, ftz: bool, sat: bool, relu: bool, finite: bool
) -> Compute:
    read = floats.reader(source)
    narrow = _narrowing(to, source, mode)

    def compute(a: Lanes) -> Lanes:
        value = read(a)
        if ftz and source.name == "f32":
            value = floats.flush(value)
        if sat:
            value = floats.saturate(value)
        if relu:
            value = np.where(value < 0, value.dtype.type(0), value)
        if mode in TO_INTEGER:
            value = TO_INTEGER[mode](value)
        bits = narrow(value)
        if ftz and to.name == "f32":
            bits = floats.flush(bits.view(np.float32)).view(np.uint32)
        if finite:
            bits = _no_infinity(bits, to)
        return bits

    return compute


def _no_infinity(bits: Lanes, to: Type) -> Lanes:
    """Infinities become the largest finite values."""
    largest = {"f16": 0x7BFF, "bf16": 0x7F7F, "tf32": 0x7F7FE000}.get(to.name)
    if largest is None:
        return bits
    infinity = {"f16": 0x7C00, "bf16": 0x7F80, "tf32": 0x7F800000}[to.name]
    sign = to.bits(1 << (to.width - 1))
    return np.where((bits & ~sign) == to.bits(infinity), (bits & sign) | to.bits(largest), bits)


def _narrowing(to: Type, source: Type, mode: str) -> Callable[[Lanes], Lanes]:
    """Floats as `reader` gives them to the bits of another float type."""
    if to.name == "tf32":
        return _narrow_tf32
    if to.size_bytes == 2:
        to_bits = floats.packer(to)
        if mode in ("rz", "rm", "rp"):
            return lambda x: _directed_narrow(x, to, mode)
        if source.name == "f64":
            return lambda x: to_bits(floats.float_to_odd(x))
        return to_bits
    if to.name == "f32" and source.name == "f64":
        if mode in ("rz", "rm", "rp"):
            return lambda x: floats.directed32(x, np.zeros(1), mode).view(np.uint32)
        return lambda x: x.astype(np.float32).view(np.uint32)
    return lambda x: x.astype(to.scalar).view(to.bits)


def _narrow_tf32(x: Lanes) -> Lanes:
    """Ten bits of fraction, to nearest, ties away from zero."""
    bits = x.view(np.uint32)
    rounded = (bits + np.uint32(0x1000)) & np.uint32(0xFFFFE000)
    return np.where(np.isfinite(x), rounded, np.where(np.isnan(x), np.uint32(0x7FFFFFFF), bits))


def _directed_narrow(x: Lanes, to: Type, mode: str) -> Lanes:
    """f16 or bf16 with a directed rounding: the nearest value, and one place on where it is on the wrong side."""
    pack, read = floats.packer(to), floats.reader(to)
    bits = pack(floats.float_to_odd(x) if x.dtype == np.float64 else x)
    back = read(bits).astype(np.float64)
    wide = x.astype(np.float64)
    high, low = back > wide, back < wide
    if mode == "rz":
        move_in, move_out = np.abs(back) > np.abs(wide), np.zeros(1, bool)
    elif mode == "rm":
        move_in, move_out = high & (back > 0), high & (back <= 0)
    else:
        move_in, move_out = low & (back < 0), low & (back >= 0)
    one = np.uint16(1)
    moved = np.where(move_in, bits - one, np.where(move_out, bits + one, bits))
    negative_tiny = move_out & (back == 0) & (mode == "rm")
    return np.where(negative_tiny, np.uint16(0x8001), moved)


def _two_to_packed(code: Code, to: Type, mode: str, relu: bool, finite: bool) -> Step:
    """cvt.rn.f16x2.f32 d, a, b: a becomes the upper half, b the lower."""
    f32 = TYPES["f32"]
    half = TYPES["bf16" if to.kind == "bf" else "f16"]
    convert = conversion(half, f32, mode, relu=relu, finite=finite)

    def pack(x: Lanes, y: Lanes) -> Lanes:
        return (convert(x).astype(np.uint32) << np.uint32(16)) | convert(y)

    return code.step(pack, to, f32, f32)


def _to_minifloats(code: Code, to: Type, source: Type, mode: str, relu: bool, finite: bool) -> Step:
    """cvt.rn.satfinite.e4m3x2.f32 d, a, b, or .f16x2 d, a: what comes from a, or its upper half, is the upper one."""
    bits, narrow, _ = MINIFLOATS[to.name]
    modes = ("rz", "rp") if to.name == "ue8m0x2" else ("rn",)
    if mode not in modes or source.name not in ("f32", "f16x2", "bf16x2"):
        raise code.refuse(
            f"pairs of .f32, .f16x2 and .bf16x2 become .{to.name}, rounded by .{' or .'.join(modes)}"
        )
    read, up = floats.reader(source), mode == "rp"

    def codes(x: Lanes) -> Lanes:
        value = np.where(x < 0, np.float32(0), x) if relu else x
        return narrow(value, up, finite).astype(to.bits)

    def of_two(x: Lanes, y: Lanes) -> Lanes:
        upper, lower = codes(read(x)), codes(read(y))
        return (upper << to.bits(bits)) | lower

    def of_pair(a: Lanes) -> Lanes:
        found = codes(read(a))
        return (found[:, 1] << to.bits(bits)) | found[:, 0]

    if source.name == "f32":
        return code.step(of_two, to, source, source)
    return code.step(of_pair, to, source)


def _from_minifloats(code: Code, to: Type, source: Type, relu: bool) -> Step:
    """cvt.rn.f16x2.e4m3x2: all values of these formats are values of those."""
    bits, _, widen = MINIFLOATS[source.name]
    if to.name not in ("f16x2", "bf16x2") or (source.name == "ue8m0x2" and to.name != "bf16x2"):
        raise code.refuse(f".{source.name} does not become .{to.name}")
    pack, mask = floats.packer(to), source.bits((1 << bits) - 1)

    def compute(a: Lanes) -> Lanes:
        value = widen(np.stack((a & mask, a >> source.bits(bits)), axis=1).astype(np.uint8))
        if relu:
            value = np.where(value < 0, np.float32(0), value)
        return pack(value)

    return code.step(compute, to, source)


def _pack(code: Code) -> Step:
    """cvt.pack.sat: a and b saturated to a narrow type, below what c holds."""
    code.flag("sat")
    to = code.take(*PACKED)
    if not to:
        raise code.refuse(f"cvt.pack makes .{', .'.join(PACKED)}")
    width, is_signed = PACKED[to]
    code.type("s32")
    has_third = code.flag("b32")
    if has_third == (width == 16):
        raise code.refuse(
            "halfwords are all of the result, and what is smaller stands below those of a third operand"
        )
    code.expect(4 if has_third else 3)
    s32, b32 = TYPES["s32"], TYPES["b32"]
    a, b = code.source(1, s32), code.source(2, s32)
    c = code.source(3, b32) if has_third else code.lowering.constant(0, np.uint32)
    write = code.result(b32)
    low, high = (-(1 << width - 1), (1 << width - 1) - 1) if is_signed else (0, (1 << width) - 1)
    shift, mask = np.uint32(width), np.uint32((1 << width) - 1)

    def narrow(x: Lanes) -> Lanes:
        return np.clip(x.view(np.int32), np.int32(low), np.int32(high)).view(np.uint32) & mask

    def step(registers: Registers, group: Group) -> None:
        pair = (narrow(registers[a]) << shift) | narrow(registers[b])
        if has_third:
            pair = pair | (registers[c] << np.uint32(2 * width))
        write(registers, group, pair)

    return step
