"""Conversions between wide floats and floats of four, six and eight bits, with a scale or by a random seed.

In       a Context for one v_cvt_scalef32_* or v_cvt_sr_* instruction
Out      a step that runs it on a Batch; None for other instructions
Changes  VGPRs, when the step runs
Next     convert_ops.py (conversions of one number without a scale), hcq/emu/shader/small_floats.py (the formats)
Source   CDNA3 and CDNA4 ISA documents, 7.3 and 12.11; the layout of operands: LLVM's assembler

A scale is the exponent of a float32: what is narrowed is divided by that power of two first, what is widened is
multiplied by it. A stochastic conversion adds the highest bits of the seed below the last bit that is kept, and
truncates. With several numbers each next one takes the seed that v_prng_b32 makes of the one before.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from hcq.emu.amd.shader.arrays import Array, across_registers, packed_in_registers
from hcq.emu.amd.shader.convert_ops import byte_float
from hcq.emu.amd.shader.integer_ops import next_random
from hcq.emu.amd.shader.operands import Context, Reader, Step, put
from hcq.emu.amd.shader.vector_operands import Sources
from hcq.emu.amd.shader.waves import Batch
from hcq.emu.shader.floats import narrow_bf16, widen_bf16
from hcq.emu.shader.small_floats import E2M1, E2M3, E3M2, SmallFloat

NAME = re.compile(
    r"v_cvt_(scalef32_)?(sr_)?(2xpk16_|pk32_|pk_)?(f32|f16|bf16|fp8|bf8|fp6|bf6|fp4)_(f32|f16|bf16|fp8|bf8|fp6|bf6|fp4)"
)
COUNTS = {None: 1, "pk_": 2, "pk32_": 32, "2xpk16_": 32}
WIDE_BITS = {"f32": 32, "f16": 16, "bf16": 16}
BITS = {"fp8": 8, "bf8": 8, "fp6": 6, "bf6": 6, "fp4": 4}
# without infinities and NaNs: what is too large saturates, and a NaN becomes zero
SATURATING = {"fp6": replace(E2M3, nan=0), "bf6": replace(E3M2, nan=0), "fp4": replace(E2M1, nan=0)}
MANTISSA_BITS = {"fp8": 3, "bf8": 2, "fp6": 3, "bf6": 2, "fp4": 1, "f16": 10, "bf16": 7}
LEAST_EXPONENT = {"fp6": 0, "bf6": -2, "fp4": 0, "f16": -14, "bf16": -126}  # of a normal number
SCALE_BIAS, SCALE_NAN = 127, 0xFF

Numbers = Callable[[Batch], list[Array]]  # float64, each (wave, lane)


class Conversion(NamedTuple):
    """What a name says: so many numbers, from one format into another."""

    is_scaled: bool
    is_random: bool
    numbers: int
    out: str
    source: str
    is_interleaved: bool


def parse(name: str) -> Conversion | None:
    """The conversion that a name stands for, if it is one of these."""
    match = NAME.fullmatch(name)
    if match is None or not (match[1] or match[2]):
        return None
    return Conversion(
        bool(match[1]), bool(match[2]), COUNTS[match[3]], match[4], match[5], match[3] == "2xpk16_"
    )


def compile_conversion(ctx: Context, name: str, operands: Sources) -> Step | None:
    """The step of such an instruction; None when it is none."""
    what = parse(name)
    if what is None:
        return None
    power = _power(operands.read(len(operands) - 1, "u32")) if what.is_scaled else None
    if what.source in BITS:
        return _widening(ctx, what, operands, power)
    return _narrowing(ctx, what, operands, power)


def _power(read: Reader) -> Reader:
    """The exponent of a scale as a power of two, or NaN."""

    def power(b: Batch) -> Array:
        exponent = (read(b) >> np.uint32(23) & np.uint32(0xFF)).astype(np.int64)
        found: Array = np.where(exponent == SCALE_NAN, np.nan, np.ldexp(1.0, exponent - SCALE_BIAS))
        return found

    return power


def _format(ctx: Context, kind: str) -> SmallFloat:
    return SATURATING[kind] if kind in SATURATING else byte_float(ctx, kind)


# ------------------------------------------------------------ narrowing


def _narrowing(ctx: Context, what: Conversion, operands: Sources, power: Reader | None) -> Step:
    numbers = _wide_numbers(ctx, what, operands)
    seed = operands.read(len(operands) - 1 - what.is_scaled, "u32") if what.is_random else None
    write = _placed(ctx, what)
    encode = _encoder(ctx, what.out)

    def run(b: Batch) -> None:
        values = numbers(b)
        if power is not None:
            scale = power(b)
            values = [value / scale for value in values]
        if seed is not None:
            bits, rounded = seed(b), []
            for value in values:
                rounded.append(_at_random(ctx, what.out, value, bits))
                bits = next_random(bits)
            values = rounded
        write(b, [encode(value) for value in values])

    return run


def _wide_numbers(ctx: Context, what: Conversion, operands: Sources) -> Numbers:
    """What an instruction narrows, in order."""
    if what.source == "f32" and what.numbers <= 2 and operands.operands[0].width == 32:
        floats = [operands.read(index, "f32") for index in range(what.numbers)]
        return lambda b: [read(b).astype(np.float64) for read in floats]
    sources = 2 if what.is_interleaved else 1
    for index in range(sources):
        if ctx.inst.fields["neg"] >> index & 1 or ctx.inst.fields["abs"] >> index & 1:
            raise ctx.refuse("neg and abs of several numbers in one operand are not emulated")
    if operands.code(0) < 256 and (what.numbers > 2 or what.source == "f32"):
        raise ctx.refuse("its numbers are in vector registers")
    words = [_words(ctx, operands, index) for index in range(sources)]

    def numbers(b: Batch) -> list[Array]:
        found = [_floats(read(b), what.source) for read in words]
        if what.is_interleaved:
            return [value for pair in zip(*found) for value in pair]
        return found[0][: what.numbers]

    return numbers


def _words(ctx: Context, operands: Sources, index: int) -> Callable[[Batch], Array]:
    """(register, wave, lane) words of an operand."""
    code, count = operands.code(index), max(1, operands.operands[index].width // 32)
    if code < 256:
        one = operands.read(index, "u32")
        return lambda b: np.broadcast_to(one(b), (b.waves, ctx.wave_size))[None]
    first = code - 256
    return lambda b: b.u32[first : first + count]


def _floats(words: Array, kind: str) -> list[Array]:
    """Numbers of a wide kind, those of 16 bits two in a word."""
    if kind == "f32":
        return [word.view(np.float32).astype(np.float64) for word in words]
    halves = [half for word in words for half in (word & np.uint32(0xFFFF), word >> np.uint32(16))]
    if kind == "bf16":
        return [widen_bf16(half).astype(np.float64) for half in halves]
    return [half.astype(np.uint16).view(np.float16).astype(np.float64) for half in halves]


def _at_random(ctx: Context, kind: str, value: Array, seed: Array) -> Array:
    """Numbers that the format has, below or above a value as the seed says."""
    if kind in LEAST_EXPONENT:
        least = LEAST_EXPONENT[kind]
    else:
        least = (1 - 8 if kind == "fp8" else 1 - 16) + (1 if ctx.isa.has_ocp_floats else 0)
    mantissa = MANTISSA_BITS[kind]
    used = 23 - mantissa  # bits of the seed
    part = (seed >> np.uint32(32 - used)).astype(np.float64) / (1 << used)
    size = np.abs(value)
    finite = np.where(np.isfinite(size), size, 0.0)
    _, exponent = np.frexp(finite)  # 0.5 <= the rest < 1
    quantum = np.ldexp(1.0, np.maximum(exponent - 1, least) - mantissa)
    rounded = np.copysign(np.floor(finite / quantum + part) * quantum, value)
    found: Array = np.where(np.isfinite(value), rounded, value)
    return found


def _encoder(ctx: Context, kind: str) -> Callable[[Array], Array]:
    """float64 to the nearest codes, as uint32."""
    if kind == "f16":
        return lambda x: x.astype(np.float16).view(np.uint16).astype(np.uint32)
    if kind == "bf16":
        return lambda x: narrow_bf16(x.astype(np.float32)).astype(np.uint32)
    small = _format(ctx, kind)
    return lambda x: small.narrow(x).astype(np.uint32)


def _placed(ctx: Context, what: Conversion) -> Callable[[Batch, list[Array]], None]:
    """Codes into the destination: its registers, or the part of it that op_sel names, whose rest stays."""
    fields = ctx.inst.fields
    register = fields["vdst"]
    bits = BITS.get(what.out, 16)
    total = bits * what.numbers
    if total > 32:
        return lambda b, codes: _put_words(b, register, codes, bits)
    shift = total * (fields["opsel"] >> (3 if total == 16 else 2) & (1 if total == 16 else 3))
    mask = np.uint32(((1 << total) - 1) << shift)

    def write(b: Batch, codes: list[Array]) -> None:
        word = sum(
            (code << np.uint32(shift + bits * number) for number, code in enumerate(codes)), np.uint32(0)
        )
        put(b, b.u32[register], b.u32[register] & ~mask | word)

    return write


def _put_words(b: Batch, register: int, codes: list[Array], bits: int) -> None:
    items = np.stack([np.broadcast_to(code, b.lanes.shape) for code in codes])
    for number, word in enumerate(packed_in_registers(items, bits)):
        put(b, b.u32[register + number], word)


# ------------------------------------------------------------ widening


def _widening(ctx: Context, what: Conversion, operands: Sources, power: Reader | None) -> Step:
    fields, small, bits = ctx.inst.fields, _format(ctx, what.source), BITS[what.source]
    total = bits * what.numbers
    words = _words(ctx, operands, 0)
    shift = 0
    if total <= 16:
        shift = total * (fields["opsel"] & (1 if total == 16 else 3))
    register = fields["vdst"]

    def run(b: Batch) -> None:
        codes = (
            across_registers(words(b), bits)
            if total > 32
            else _codes(words(b)[0] >> np.uint32(shift), bits, what.numbers)
        )
        values = [small.values[code].astype(np.float64) for code in codes]
        if power is not None:
            scale = power(b)
            values = [value * scale for value in values]
        if what.out == "f32":
            for number, value in enumerate(values):
                put(b, b.f32[register + number], value.astype(np.float32))
        elif what.numbers == 1:
            place = fields["opsel"] >> 3
            put(b, b.u16[register, :, :, place], _narrowed(ctx, what.out, values)[0].astype(np.uint16))
        else:
            _put_words(b, register, _narrowed(ctx, what.out, values), 16)

    return run


def _narrowed(ctx: Context, kind: str, values: list[Array]) -> list[Array]:
    encode = _encoder(ctx, kind)
    return [encode(value) for value in values]


def _codes(word: Array, bits: int, count: int) -> list[Array]:
    mask = np.uint32((1 << bits) - 1)
    return [word >> np.uint32(bits * number) & mask for number in range(count)]
