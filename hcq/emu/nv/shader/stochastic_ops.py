"""cvt.rs: conversions whose rounding random bits decide, which an operand gives.

In       Code whose .rs is claimed; floats, 32 random bits
Out      a step
Next     convert_ops.py (all other conversions)
Source   PTX ISA, "cvt", in words; which bits of the operand a number has where two share them: what others saw on a
         B200 (the first reads them backwards)

The bits are added to those of the fraction that are cut off, from the highest on; a carry rounds away from zero. That
they stand at the highest, too, where a subnormal number cuts more off, is inferred.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from hcq.emu.nv.shader import floats
from hcq.emu.nv.shader.decode import Code, Step
from hcq.emu.nv.shader.types import TYPES, Lanes
from hcq.emu.shader.small_floats import E2M1, E2M3, E3M2, E4M3, E5M2

SMALL = {"e4m3x4": E4M3, "e5m2x4": E5M2, "e2m3x4": E2M3, "e3m2x4": E3M2, "e2m1x4": E2M1}
FRACTION_BITS = {"f16x2": 10, "bf16x2": 7, "e4m3x4": 3, "e5m2x4": 2, "e2m3x4": 3, "e3m2x4": 2, "e2m1x4": 1}
LOWEST_EXPONENT = {
    "f16x2": -14, "bf16x2": -126, "e4m3x4": -6, "e5m2x4": -14, "e2m3x4": 0, "e3m2x4": -2, "e2m1x4": 0
}  # fmt: skip
RANDOM_BITS = {"f16x2": 13}  # of 16 otherwise
PAIRS = ("f16x2", "bf16x2")
_BACKWARDS = np.array([int(f"{byte:08b}"[::-1], 2) for byte in range(256)], np.uint32)


def rounded(x: Lanes, random: Lanes, name: str) -> Lanes:
    """Doubles to what the format has, as doubles; exponents are not limited above. random: all of its bits."""
    lowest, fraction, count = LOWEST_EXPONENT[name], FRACTION_BITS[name], RANDOM_BITS.get(name, 16)
    finite = np.isfinite(x)
    size = np.where(finite, np.abs(x), 0.0)
    exponent = np.maximum(np.frexp(size)[1] - 1, lowest)
    steps = np.floor(np.ldexp(size, fraction - exponent) + random / 2.0**count)
    return np.where(finite, np.copysign(np.ldexp(steps, exponent - fraction), x), x)


def _backwards(random: Lanes) -> Lanes:
    """16 bits, the last first."""
    return _BACKWARDS[random & np.uint32(0xFF)] << np.uint32(8) | _BACKWARDS[random >> np.uint32(8)]


def _random(bits: Lanes, name: str) -> tuple[Lanes, ...]:
    """The random bits of each number, the upper first."""
    upper, lower = bits >> np.uint32(16), bits & np.uint32(0xFFFF)
    if name in PAIRS:
        mask = np.uint32((1 << RANDOM_BITS.get(name, 16)) - 1)
        return upper & mask, lower & mask
    if name == "e2m1x4":  # bytes 3 and 1, then 2 and 0
        eight, byte = np.uint32(8), np.uint32(0xFF)
        upper, lower = (upper & ~byte) | lower >> eight, (upper & byte) << eight | (lower & byte)
    return _backwards(upper), upper, _backwards(lower), lower


def _packer(name: str, finite: bool) -> tuple[int, Callable[[Lanes], Lanes]]:
    """Bits of a number, and what makes them of the doubles that `rounded` gives."""
    if name in SMALL:
        kind = SMALL[name].saturating
        return (4 if name == "e2m1x4" else 8), lambda x: kind.narrow(x).astype(np.uint32)
    type_ = TYPES[name[:-2]]
    pack, largest = floats.packer(type_), 65504.0 if name == "f16x2" else float(np.ldexp(255, 120))

    def codes(x: Lanes) -> Lanes:
        if finite:
            x = np.where(np.isnan(x), x, np.clip(x, -largest, largest))
        with np.errstate(over="ignore"):
            return pack(x.astype(np.float32)).astype(np.uint32)

    return 16, codes


def convert(code: Code) -> Step:
    """The step of a cvt.rs."""
    relu, finite = code.flag("relu"), code.flag("satfinite")
    name = code.take(*FRACTION_BITS)
    if not name or code.type("f32").name != "f32":
        raise code.refuse(f".rs rounds .f32 to .{', .'.join(FRACTION_BITS)}")
    if name in SMALL and not finite:
        raise code.refuse(f".{name} needs .satfinite")
    code.expect(4 if name in PAIRS else 3)
    f32, b32 = TYPES["f32"], TYPES["b32"]
    operands = code.operands[1:3] if name in PAIRS else code.parts(code.operands[1], 4)
    slots = [code.slot(operand, f32) for operand in operands]
    seed = code.slot(code.operands[-1], b32)
    width, pack = _packer(name, finite)
    result = TYPES["b16" if name == "e2m1x4" else "b32"]

    def compute(*sources: Lanes) -> Lanes:
        found = np.zeros(1, np.uint32)
        for source, random in zip(sources, _random(sources[-1], name)):
            x = source.view(np.float32).astype(np.float64)
            if relu:
                x = np.where(x < 0, 0.0, x)
            found = found << np.uint32(width) | pack(rounded(x, random, name))
        return found.astype(result.bits)

    return code.pure(compute, code.destination(code.operands[0], result), *slots, seed)
