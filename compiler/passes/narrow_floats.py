"""Narrow floats: from float32 to the 16-bit and 8-bit formats and back, by integer operations.

In       a float32 value, or the bits of a narrow one (an unsigned integer of its size)
Out      a graph of integer arithmetic and a few float32 additions; no tables, no branches, one rounding
Next     promote_floats.py (who asks), tests/interpreter/arrays.py (the same for the interpreter)
Source   IEEE 754 (float16), bfloat16 = the upper half of float32, OCP 8-bit floating point 1.0 (e4m3, e5m2)

Rounding is to nearest even. What is too large becomes infinity, in e4m3, which has none, NaN.
"""

from __future__ import annotations

from hcq.compiler.passes.transcendental import bitcast
from hcq.ir.dtype import DType, dtypes, float_format, to_bits
from hcq.ir.node import Node, binary, const
from hcq.ir.op import Op

NARROW = frozenset({dtypes.float16, dtypes.bfloat16, dtypes.fp8e4m3, dtypes.fp8e5m2})
_INFINITY = 0x7F800000  # of float32, as are these
_MANTISSA, _BIAS = 23, 127
_BITS = {1: dtypes.uint8, 2: dtypes.uint16}


def bits_dtype(dtype: DType) -> DType:
    """The unsigned integer that holds the bits of a narrow format."""
    return _BITS[dtype.itemsize]


def widen(bits: Node, dtype: DType) -> Node:
    """The float32 that the bits of a narrow format stand for; every one has one."""
    exponent_bits, mantissa_bits = float_format(dtype)
    drop = _MANTISSA - mantissa_bits
    bits = bits.cast(dtypes.uint32)
    if exponent_bits == 8:
        return bitcast(binary(Op.SHL, bits, drop), dtypes.float32)
    bias = (1 << exponent_bits - 1) - 1
    sign_bit = 1 << exponent_bits + mantissa_bits
    magnitude = binary(Op.AND, bits, sign_bit - 1)
    field = binary(Op.SHL, magnitude, drop)
    normal = field + (_BIAS - bias << _MANTISSA)
    # a subnormal mantissa under the exponent of the least normal number, which is then taken off: exact
    least = _BIAS - bias + 1 << _MANTISSA
    least_normal = 2.0 ** (1 - bias)
    subnormal = bitcast(bitcast(binary(Op.OR, field, least), dtypes.float32) + -least_normal, dtypes.uint32)
    value = (magnitude < (1 << mantissa_bits)).where(subnormal, normal)
    if dtype is dtypes.fp8e4m3:
        value = magnitude.eq(sign_bit - 1).where(
            const(to_bits(float("nan"), dtypes.float32), dtypes.uint32), value
        )
    else:
        top = (1 << exponent_bits) - 1 << mantissa_bits
        value = (magnitude >= top).where(binary(Op.OR, field, _INFINITY), value)
    sign = binary(Op.SHL, binary(Op.AND, bits, sign_bit), 32 - dtype.bits)
    return bitcast(binary(Op.OR, value, sign), dtypes.float32)


def narrow(x: Node, dtype: DType) -> Node:
    """The bits of the narrow number nearest to a float32."""
    exponent_bits, mantissa_bits = float_format(dtype)
    drop = _MANTISSA - mantissa_bits
    bias = (1 << exponent_bits - 1) - 1
    bits = bitcast(x, dtypes.uint32)
    magnitude = binary(Op.AND, bits, 0x7FFFFFFF)
    # round up by just under a half, and by a half exactly when the kept part is odd; a carry goes into the exponent
    odd = binary(Op.AND, binary(Op.SHR, magnitude, drop), 1)
    value = binary(Op.SHR, magnitude + ((1 << drop - 1) - 1) + odd, drop)
    top = (1 << exponent_bits) - 1 << mantissa_bits
    nan = top | (1 << mantissa_bits - 1)
    if exponent_bits < 8:
        normal = value + ((bias - _BIAS) << mantissa_bits)
        # adding a number whose last bit weighs as much as the format's last subnormal bit makes float32 round there
        shifter = 2.0 ** (1 - bias + drop)
        shifted = bitcast(bitcast(magnitude, dtypes.float32) + shifter, dtypes.uint32)
        subnormal = shifted + -to_bits(shifter, dtypes.float32)
        value = (magnitude < (_BIAS - bias + 1 << _MANTISSA)).where(subnormal, normal)
        if dtype is dtypes.fp8e4m3:
            top = nan = (1 << dtype.bits - 1) - 1
        value = (value < top).where(value, const(top, dtypes.uint32))
    value = (magnitude > _INFINITY).where(const(nan, dtypes.uint32), value)
    sign = binary(Op.AND, binary(Op.SHR, bits, 32 - dtype.bits), 1 << dtype.bits - 1)
    return binary(Op.OR, value, sign).cast(bits_dtype(dtype))


def to_odd_float32(x: Node) -> Node:
    """A float64 as float32 whose last bit is set if anything was dropped, so that a second rounding sees no false tie.

    The nearest float32 is stepped back when it lies beyond x, then made odd; zero, infinities and NaN come out as such.
    """
    nearest = x.cast(dtypes.float32)
    back = nearest.cast(dtypes.float64)
    unsigned = const((1 << 63) - 1, dtypes.uint64)
    size, size_back = (binary(Op.AND, bitcast(value, dtypes.uint64), unsigned) for value in (x, back))
    bits = bitcast(nearest, dtypes.uint32)
    bits = bits + (size < size_back).where(const(0xFFFFFFFF, dtypes.uint32), const(0, dtypes.uint32))
    odd = binary(Op.OR, bits, 1)
    return x.ne(back).where(bitcast(odd, dtypes.float32), nearest)
