"""Sine and cosine in plain arithmetic, right for every argument, however large.

In       a float32 or float64 value of the kernel stage
Out      a graph of arithmetic, comparisons, shifts and bit casts; no tables in memory, no branches
Next     transcendental.py, decompose.py (who asks), tests/compiler/passes/fit_polynomials.py (the coefficients)
Source   M. Payne and R. Hanek, "Radian reduction for trigonometric functions" (1983); Cody and Waite for the short
         way

|x| = n pi/2 + r with |r| <= pi/4, and n modulo 4 says which of sin(r), cos(r), -sin(r), -cos(r) is asked for. Two ways
lead to r:

the short way   subtract n times pi/2 in three pieces. Taken when the graph itself proves that |x| is small (a uniform
                number times 2 pi, a clamp): at most SHORT_WAY_LIMIT. About 30 instructions in float32.
the exact way   multiply the mantissa with the 96 bits of 2/pi (192 for float64) that matter for the exponent, in
                integers. Taken everywhere else, since a value's size is known only at run time: about 80 instructions
                in float32, and no argument that gives garbage.

Worst errors over dense samples are 1.6 ulp for float32 and 1.7 ulp for float64, near multiples of pi/2 too; where
there is no float64 to keep the rest of the exact way in, 2.7 ulp. The polynomials are our own minimax fits (Remez
exchange in 60-digit arithmetic, relative error, rounded to the format).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import pairwise

from hcq.compiler.passes.transcendental import Format, bitcast, format_of, minus, numbers, polynomial
from hcq.ir.dtype import dtypes, to_bits
from hcq.ir.node import Node, binary, const
from hcq.ir.op import Op

# (sin(r) - r) / r**3 and (cos(r) - 1 + r**2 / 2) / r**4 in powers of r**2, for |r| <= pi / 4
_SIN = {
    dtypes.float32: (-0.16666655242443085, 0.008332177996635437, -0.00019517235341481864),
    dtypes.float64: numbers(
        "-0.16666666666666632 0.008333333333322413 -0.00019841269829807778 2.7557313691915717e-06 "
        "-2.50507581157251e-08 1.5896795715103863e-10"
    ),
}
_COS = {
    dtypes.float32: (0.04166664555668831, -0.0013887366512790322, 2.4438380933133885e-05),
    dtypes.float64: numbers(
        "0.0416666666666666 -0.0013888888888874125 2.480158728948234e-05 -2.755731435237232e-07 "
        "2.087572327815284e-09 -1.13596480433772e-11"
    ),
}
# pi/2 in three pieces; the first two have few enough bits that n times one is exact for every n up to the limit
_HALF_PI = {
    dtypes.float32: (1.5707855224609375, 1.0804273188114166e-05, 6.077100506506192e-11),
    dtypes.float64: (1.5707963267341256, 6.077100506303966e-11, 2.0222662487959506e-21),
}
_HALF_PI_TOP, _HALF_PI_REST = 1.570796012878418, 3.139164786504813e-07  # 22 bits, and what they leave
SHORT_WAY_LIMIT = {dtypes.float32: 190.0, dtypes.float64: 1.0e6}

# the first 1280 bits of 2/pi after the binary point
TWO_OVER_PI = int(
    "a2f9836e4e441529fc2757d1f534ddc0db6295993c439041fe5163abdebbc561b7246e3a424dd2e0"
    "06492eea09d1921cfe1deb1cb129a73ee88235f52ebb4484e99c7026b45f7e413991d639835339f4"
    "9c845f8bbdf9283b1ff897ffde05980fef2f118b5a0a6d1f6d367ecf27cb09b74f463f669e5fea2d"
    "7527bac7ebe5f17b3d0739f78a5292ea6bfb5fb11f8d5d0856033046fc7b6babf0cfbc209af4361d",
    16,
)
TWO_OVER_PI_BITS = 1280
_WINDOW_WORDS = {dtypes.float32: 3, dtypes.float64: 6}  # words of 2/pi that a product is made with


def sin(x: Node) -> Node:
    """The sine of an angle in radians; of an infinity NaN, of -0.0 it is -0.0."""
    return _sine_or_cosine(x, is_cosine=False)


def cos(x: Node) -> Node:
    """The cosine of an angle in radians; of an infinity NaN."""
    return _sine_or_cosine(x, is_cosine=True)


def sin_single(x: Node) -> Node:
    """The sine, for a target without float64: the rest is a float32 at once."""
    return _sine_or_cosine(x, is_cosine=False, has_double=False)


def cos_single(x: Node) -> Node:
    """The cosine, the same way."""
    return _sine_or_cosine(x, is_cosine=True, has_double=False)


def _sine_or_cosine(x: Node, is_cosine: bool, has_double: bool = True) -> Node:
    form = format_of(x)
    unsigned, sign_bit = form.unsigned, 1 << (8 * form.dtype.itemsize - 1)
    bits = bitcast(x, unsigned)
    size = binary(Op.AND, bits, sign_bit - 1)
    if largest(x) <= SHORT_WAY_LIMIT[form.dtype]:
        turns, r = _short_way(form, size)
    else:
        turns, r = _exact_way(form, size, has_double)
    square = r * r
    sine = (r * square) * polynomial(_SIN[form.dtype], square) + r
    cosine = (square * square) * polynomial(_COS[form.dtype], square) + (square * -0.5 + 1.0)
    if is_cosine:
        turns = turns + 1
    value = binary(Op.AND, turns, 1).ne(0).where(cosine, sine)
    # the second and the third quarter of a turn are negative: bit 1 of the turns becomes the sign
    sign = binary(Op.SHL, turns, 8 * form.dtype.itemsize - 2)
    sign = binary(Op.AND, sign if is_cosine else binary(Op.XOR, sign, bits), sign_bit)
    value = bitcast(binary(Op.XOR, bitcast(value, unsigned), sign), form.dtype)
    return (size < to_bits(math.inf, form.dtype)).where(value, const(math.nan, form.dtype))


def _short_way(form: Format, size: Node) -> tuple[Node, Node]:
    """Quarter turns (the low bits of an unsigned integer) and the rest, of a small positive number given by its bits.

    The second subtraction may round; what it dropped is found again and goes in with the third piece.
    """
    x = bitcast(size, form.dtype)
    shifted = x * (2.0 / math.pi) + form.integer_part
    n = shifted + -form.integer_part
    first, second, third = _HALF_PI[form.dtype]
    x = n * -first + x
    r = n * -second + x
    dropped = minus(x, r) + n * -second
    return bitcast(shifted, form.unsigned), r + (n * -third + dropped)


def _exact_way(form: Format, size: Node, has_double: bool) -> tuple[Node, Node]:
    """Quarter turns and the rest, of any positive number given by its bits.

    x = m 2**k with an integer m. Bits of 2/pi so high that m times them is a multiple of four quarter turns are left
    out: the window starts at the first bit that counts, and m times it, modulo 2**(its bits), is x * 2/pi modulo 4.
    """
    window = _window(form, size)
    mantissa = binary(Op.OR, binary(Op.AND, size, (1 << form.mantissa) - 1), 1 << form.mantissa).cast(
        dtypes.uint64
    )
    if form.dtype is dtypes.float32:
        turns, rest = _product_float32(window, mantissa, has_double)
    else:
        turns, rest = _product_float64(window, mantissa)
    is_small = size < to_bits(math.pi / 4, form.dtype)
    turns = is_small.where(const(0, form.unsigned), turns.cast(form.unsigned))
    return turns, is_small.where(bitcast(size, form.dtype), rest.cast(form.dtype))


def _product_float32(window: list[Node], mantissa: Node, has_double: bool) -> tuple[Node, Node]:
    """Quarter turns and the rest (float64), from three words and 24 bits: the upper 64 of the 96 bits are enough.

    No float32 comes closer to a multiple of pi/2 than 2**-30 of it, so a fraction of 62 bits keeps 32 good ones.
    has_double   without it the rest is float32, rounded twice more
    """
    product = binary(Op.SHL, window[0] * mantissa, 32) + window[1] * mantissa
    product = product + binary(Op.SHR, window[2] * mantissa, 32)
    turns = binary(Op.SHR, product + (1 << 61), 62)  # to the nearest
    fraction = bitcast(binary(Op.SHL, product, 2), dtypes.int64)
    size = bitcast(binary(Op.XOR, fraction, binary(Op.SHR, fraction, 63)), dtypes.uint64)
    if not has_double:
        total = size.cast(dtypes.float32) * (math.pi / 2 * 2.0**-64)
        return turns, (fraction < 0).where(Node(Op.NEG, dtypes.float32, (total,)), total)
    high = _small_to_float64(binary(Op.SHR, size, 32)) * (math.pi / 2 * 2.0**-32)
    total = _small_to_float64(binary(Op.AND, size, 0xFFFFFFFF)) * (math.pi / 2 * 2.0**-64) + high
    return turns, (fraction < 0).where(Node(Op.NEG, dtypes.float64, (total,)), total)


def _product_float64(window: list[Node], mantissa: Node) -> tuple[Node, Node]:
    """Quarter turns and the rest, from six words and 53 bits, word by word."""
    product = _multiply_words(window, binary(Op.AND, mantissa, 0xFFFFFFFF))
    high = _multiply_words(window[1:], binary(Op.SHR, mantissa, 32))
    product = _add_words(product, [*high, const(0, dtypes.uint64)])
    fraction = [
        binary(Op.AND, binary(Op.OR, binary(Op.SHL, word, 2), binary(Op.SHR, following, 30)), 0xFFFFFFFF)
        for word, following in pairwise([*product, const(0, dtypes.uint64)])
    ]
    # a fraction of a half or more belongs to the next quarter: there the rest is the (negative) distance from one
    rounds_up = binary(Op.SHR, fraction[0], 31)
    flip = rounds_up * 0xFFFFFFFF
    parts = [
        _small_to_float64(binary(Op.XOR, word, flip)) * 2.0 ** (-32 * (place + 1))
        for place, word in enumerate(fraction)
    ]
    below = parts[-1]
    for part in reversed(parts[1:-1]):
        below = part + below
    # times pi/2: the first part has at most 31 bits, so its product with the first 22 bits of pi/2 is exact
    total = parts[0] * _HALF_PI_TOP + (parts[0] * _HALF_PI_REST + below * (math.pi / 2))
    rest = rounds_up.ne(0).where(Node(Op.NEG, dtypes.float64, (total,)), total)
    return binary(Op.SHR, product[0], 30) + rounds_up, rest


def _window(form: Format, size: Node) -> list[Node]:
    """The 32-bit words (as uint64) of 2/pi that matter for this exponent, the highest first.

    The words are constants; each bit of the word number chooses, from the highest bit on, between the list and the list
    moved along, and the bits within a word are shifted out at the end.
    """
    needed = _WINDOW_WORDS[form.dtype] + 1
    # zeros in front, so that the least exponent of this way (numbers from pi/4 on: -1) begins at bit 0
    bits = TWO_OVER_PI_BITS + form.mantissa + 3
    count = bits // 32
    stream = TWO_OVER_PI >> (bits - 32 * count)
    words = [const(stream >> 32 * (count - 1 - place) & 0xFFFFFFFF, dtypes.uint32) for place in range(count)]
    offset = (binary(Op.SHR, size, form.mantissa) + -(form.bias - 1)).cast(dtypes.uint32)
    number = binary(Op.SHR, offset, 5)
    last = (form.bias + 1) >> 5  # the word number of the largest finite exponent
    words = words[: last + needed]
    for bit in reversed(range(last.bit_length())):
        is_set = binary(Op.AND, number, 1 << bit).ne(0)
        kept = needed + (1 << bit) - 1
        words = [
            is_set.where(words[place + (1 << bit)], word) if place + (1 << bit) < len(words) else word
            for place, word in enumerate(words[:kept])
        ]
    shift = binary(Op.AND, offset, 31)
    # 31 - shift, never 32, so that no target has to guard the shift; 1 more goes first
    back = binary(Op.XOR, shift, 31)
    return [
        binary(Op.OR, binary(Op.SHL, word, shift), binary(Op.SHR, binary(Op.SHR, following, 1), back)).cast(
            dtypes.uint64
        )
        for word, following in pairwise(words)
    ]


def _multiply_words(words: Sequence[Node], factor: Node) -> list[Node]:
    """A number of 32-bit words (uint64, the highest first) times a 32-bit factor; what overflows the top is dropped."""
    product: list[Node] = []
    carry: Node | None = None
    for word in reversed(words):
        column = word * factor if carry is None else word * factor + carry
        product.append(binary(Op.AND, column, 0xFFFFFFFF))
        carry = binary(Op.SHR, column, 32)
    return product[::-1]


def _add_words(a: Sequence[Node], b: Sequence[Node]) -> list[Node]:
    """The sum of two numbers of 32-bit words; what overflows the top is dropped."""
    total: list[Node] = []
    carry: Node | None = None
    for one, other in zip(reversed(a), reversed(b), strict=True):
        column = one + other if carry is None else one + other + carry
        total.append(binary(Op.AND, column, 0xFFFFFFFF))
        carry = binary(Op.SHR, column, 32)
    return total[::-1]


def _small_to_float64(x: Node) -> Node:
    """A uint64 below 2**52 as float64, exactly: put under the exponent of 2**52, which is then taken off."""
    return bitcast(binary(Op.OR, x, to_bits(2.0**52, dtypes.float64)), dtypes.float64) + -(2.0**52)


# -- what the graph says about the size of a value ---------------------------------------------------------------------


Interval = tuple[float, float]


def largest(x: Node) -> float:
    """A bound of |x| that holds for whatever the memory holds, NaN aside; infinity when the graph does not say."""
    return max(abs(end) for end in _interval(x, depth=8))


def _interval(x: Node, depth: int) -> Interval:
    """Where a value lies, NaN aside; widened by a percent at each rounding, so that it holds for rounded values."""
    anywhere = (float(x.dtype.min), float(x.dtype.max))
    if x.op is Op.CONST:
        return (float(x.arg), float(x.arg)) if x.arg == x.arg else anywhere
    if depth == 0 or x.op not in _KNOWN_SIZE:
        return anywhere
    sources = [_interval(source, depth - 1) for source in x.src if not source.dtype.is_bool]
    if not sources or any(source.dtype.is_bool for source in x.src) is not (x.op is Op.WHERE):
        return anywhere
    low, high = _KNOWN_SIZE[x.op](*sources)
    if x.op in (Op.ADD, Op.MUL, Op.CAST):
        low, high = low - abs(low) * 0.01, high + abs(high) * 0.01
    # NaN, or integers that may wrap
    return (low, high) if anywhere[0] <= low <= high <= anywhere[1] else anywhere


def _of_sum(a: Interval, b: Interval) -> Interval:
    return a[0] + b[0], a[1] + b[1]


def _of_product(a: Interval, b: Interval) -> Interval:
    ends = [one * other for one in a for other in b]
    return (math.nan, math.nan) if any(end != end for end in ends) else (min(ends), max(ends))


def _of_right_shift(a: Interval, count: Interval) -> Interval:
    if a[0] < 0.0 or count[0] < 0.0:
        return math.nan, math.nan
    return 0.0, a[1] / 2.0 ** min(count[0], 64.0)


def _of_and(a: Interval, b: Interval) -> Interval:
    return (math.nan, math.nan) if a[0] < 0.0 or b[0] < 0.0 else (0.0, min(a[1], b[1]))


_KNOWN_SIZE: dict[Op, Callable[..., Interval]] = {
    Op.NEG: lambda a: (-a[1], -a[0]),
    Op.TRUNC: lambda a: (min(a[0], 0.0), max(a[1], 0.0)),
    Op.CAST: lambda a: (min(a[0], 0.0), max(a[1], 0.0)),  # NaN becomes 0
    Op.SIN: lambda a: (-1.0, 1.0),
    Op.COS: lambda a: (-1.0, 1.0),
    Op.ADD: _of_sum,
    Op.MUL: _of_product,
    Op.MAX: lambda a, b: (max(a[0], b[0]), max(a[1], b[1])),
    Op.MIN: lambda a, b: (min(a[0], b[0]), min(a[1], b[1])),
    Op.SHR: _of_right_shift,
    Op.AND: _of_and,
    Op.WHERE: lambda a, b: (min(a[0], b[0]), max(a[1], b[1])),
}
