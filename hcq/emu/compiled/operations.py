"""Operations: a line of LLVM IR, or a few, for each function of NumPy that the shader cores' instructions use.

In       a Writer and operands: symbols, NumPy's arrays of constants, numbers
Out      symbols
Changes  the Writer
Next     symbols.py (who calls), writer.py (lines, casts, constants)
Source   NumPy's reference: "Universal functions"; LLVM's language reference

Bits are NumPy's: shifts by the width or more give 0 or the sign, integers wrap, fmin prefers a number to a NaN. A NaN
made of several has the bits of one of them: NumPy itself does not say of which.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from hcq.emu.compiled.symbols import NotTraced, Symbol, llvm_type

if TYPE_CHECKING:
    from hcq.emu.compiled.writer import Writer

INTEGER = {"add": "add", "subtract": "sub", "multiply": "mul"}
FLOAT = {"add": "fadd", "subtract": "fsub", "multiply": "fmul", "divide": "fdiv"}
BITS = {
    "bitwise_and": "and",
    "bitwise_or": "or",
    "bitwise_xor": "xor",
    "logical_and": "and",
    "logical_or": "or",
}
COMPARES = {
    "equal": "eq",
    "not_equal": "ne",
    "less": "lt",
    "less_equal": "le",
    "greater": "gt",
    "greater_equal": "ge",
}
WHOLE = {"floor": "floor", "ceil": "ceil", "trunc": "trunc", "rint": "rint"}


def common(inputs: tuple[Any, ...]) -> Any:
    """The type that NumPy computes in."""
    return np.result_type(
        *[one.dtype if isinstance(one, (Symbol, np.ndarray, np.generic)) else one for one in inputs]
    )


def arithmetic(w: Writer, name: str, inputs: tuple[Any, ...], kind: Any) -> Symbol:
    """Sums, products, quotients."""
    dtype = common(inputs) if kind is None else np.dtype(kind)
    if dtype.kind == "f":
        if dtype.itemsize == 2:  # as NumPy does: in float32
            return w.convert(arithmetic(w, name, _singles(w, inputs), None), dtype)
        return w.binary(FLOAT[name], dtype, *inputs)
    if dtype.kind == "b" or name not in INTEGER:
        raise NotTraced(f"{name} of {dtype}")
    return w.binary(INTEGER[name], dtype, *inputs)


def _singles(w: Writer, inputs: tuple[Any, ...]) -> tuple[Any, ...]:
    """Operands of float16 as float32."""
    return tuple(w.convert(w.as_symbol(one, np.dtype(np.float16)), np.dtype(np.float32)) for one in inputs)


def bitwise(w: Writer, name: str, inputs: tuple[Any, ...], kind: Any) -> Symbol:
    """Logic on bits."""
    dtype = common(inputs)
    if dtype.kind == "f" or (name.startswith("logical") and dtype.kind != "b"):
        raise NotTraced(f"{name} of {dtype}")
    return w.binary(BITS[name], dtype, *inputs)


def invert(w: Writer, name: str, inputs: tuple[Any, ...], kind: Any) -> Symbol:
    """All bits."""
    (x,) = inputs
    return w.binary(
        "xor", x.dtype, x, np.ones(1, np.bool_) if x.dtype.kind == "b" else np.array([-1]).astype(x.dtype)
    )


def shift(w: Writer, name: str, inputs: tuple[Any, ...], kind: Any) -> Symbol:
    """Shifts of integers; by as many bits as there are, or more, nothing is left but the sign."""
    dtype = common(inputs)
    if dtype.kind not in "ui":
        raise NotTraced(f"{name} of {dtype}")
    width = 8 * dtype.itemsize
    x, count = inputs
    if not isinstance(count, Symbol):
        known = np.asarray(count).astype(dtype)
        if known.size == 1 and 0 <= int(known.reshape(-1)[0]) < width:
            op = "shl" if name == "left_shift" else "ashr" if dtype.kind == "i" else "lshr"
            return w.binary(op, dtype, x, known)
    most = np.array([width - 1]).astype(dtype)
    unsigned = np.dtype(f"u{dtype.itemsize}")
    count = w.as_symbol(count, dtype)
    within = w.compare("ule", w.named(count, count.text, unsigned), most.astype(unsigned))
    if name == "right_shift" and dtype.kind == "i":
        return w.binary("ashr", dtype, x, w.select(within, count, most))
    op = "shl" if name == "left_shift" else "lshr"
    moved = w.binary(op, dtype, x, w.select(within, count, most))
    return w.select(within, moved, np.zeros(1, dtype))


def compare(w: Writer, name: str, inputs: tuple[Any, ...], kind: Any) -> Symbol:
    """Order: of floats, false where one is a NaN, but for "not equal"."""
    dtype, test = common(inputs), COMPARES[name]
    operands = [w.as_symbol(one, dtype) for one in inputs]
    if dtype.kind == "f":
        return w.compare(("u" if test == "ne" else "o") + test, *operands)
    if test not in ("eq", "ne"):
        test = ("s" if dtype.kind == "i" else "u") + test
    return w.compare(test, *operands)


def negative(w: Writer, name: str, inputs: tuple[Any, ...], kind: Any) -> Symbol:
    """The sign bit of floats, the complement of integers."""
    (x,) = inputs
    if x.dtype.kind == "f":
        return w.flip_sign(x)
    return w.binary("sub", x.dtype, np.zeros(1, x.dtype), x)


def absolute(w: Writer, name: str, inputs: tuple[Any, ...], kind: Any) -> Symbol:
    """Sizes."""
    (x,) = inputs
    if x.dtype.kind == "f":
        bits = x.view(f"u{x.dtype.itemsize}")
        top = 1 << 8 * x.dtype.itemsize - 1
        return w.binary("and", bits.dtype, bits, np.array([top - 1], bits.dtype)).view(x.dtype)
    if x.dtype.kind == "u":
        return w.as_symbol(x, x.dtype)
    less = w.compare("slt", x, np.zeros(1, x.dtype))
    return w.select(less, w.binary("sub", x.dtype, np.zeros(1, x.dtype), x), x)


def extreme(w: Writer, name: str, inputs: tuple[Any, ...], kind: Any) -> Symbol:
    """minimum and maximum: of integers; of floats a NaN wins, the first one's."""
    dtype = common(inputs)
    a, b = (w.as_symbol(one, dtype) for one in inputs)
    low = name == "minimum"
    if dtype.kind == "f":
        first = w.binary(
            "or", np.dtype(bool), w.compare("olt" if low else "ogt", a, b), w.compare("uno", a, a)
        )
        return w.select(first, a, b)
    sign = "s" if dtype.kind == "i" else "u"
    return w.select(w.compare(sign + ("lt" if low else "gt"), a, b), a, b)


def extreme_number(w: Writer, name: str, inputs: tuple[Any, ...], kind: Any) -> Symbol:
    """fmin and fmax: a number wins against a NaN."""
    dtype = common(inputs)
    a, b = (w.as_symbol(one, dtype) for one in inputs)
    test = "olt" if name == "fmin" else "ogt"
    first = w.binary("or", np.dtype(bool), w.compare(test, a, b), w.compare("uno", b, b))
    return w.select(first, a, b)


def whole(w: Writer, name: str, inputs: tuple[Any, ...], kind: Any) -> Symbol:
    """To a whole number."""
    (x,) = inputs
    if x.dtype.kind != "f":
        raise NotTraced(f"{name} of {x.dtype}")
    if x.dtype.itemsize == 2:
        return w.convert(whole(w, name, _singles(w, inputs), None), x.dtype)
    return w.unary_intrinsic(WHOLE[name], x)


def root(w: Writer, name: str, inputs: tuple[Any, ...], kind: Any) -> Symbol:
    """sqrt, correctly rounded."""
    (x,) = inputs
    if x.dtype.kind != "f":
        raise NotTraced(f"{name} of {x.dtype}")
    if x.dtype.itemsize == 2:
        return w.convert(root(w, name, _singles(w, inputs), None), x.dtype)
    return w.unary_intrinsic("sqrt", x if kind is None else w.convert(x, np.dtype(kind)))


def is_nan(w: Writer, name: str, inputs: tuple[Any, ...], kind: Any) -> Symbol:
    """NaNs, infinities, the rest."""
    (x,) = inputs
    bits = absolute(w, "absolute", (x,), None).view(f"u{x.dtype.itemsize}")
    infinity = np.array([np.inf], x.dtype).view(bits.dtype)
    return w.compare({"isnan": "ugt", "isinf": "eq", "isfinite": "ult"}[name], bits, infinity)


def sign_bit(w: Writer, name: str, inputs: tuple[Any, ...], kind: Any) -> Symbol:
    """Whether the sign bit is set."""
    (x,) = inputs
    bits = x.view(f"i{x.dtype.itemsize}")
    return w.compare("slt", bits, np.zeros(1, bits.dtype))


def copy_sign(w: Writer, name: str, inputs: tuple[Any, ...], kind: Any) -> Symbol:
    """The size of the first, the sign of the second."""
    dtype = common(inputs)
    bits = np.dtype(f"u{dtype.itemsize}")
    top = 1 << 8 * dtype.itemsize - 1
    size, sign = (w.as_symbol(one, dtype).view(bits) for one in inputs)
    size = w.binary("and", bits, size, np.array([top - 1], bits))
    return w.binary("or", bits, size, w.binary("and", bits, sign, np.array([top], bits))).view(dtype)


def power_of_two(w: Writer, exponent: Symbol) -> Symbol:
    """2**exponent as a double, of an int64 from -1022 to 1023."""
    i64 = np.dtype(np.int64)
    biased = w.binary("add", i64, exponent, np.array([1023]))
    return w.binary("shl", i64, biased, np.array([52])).view(np.float64)


def scaled(w: Writer, name: str, inputs: tuple[Any, ...], kind: Any) -> Symbol:
    """ldexp: by a power of two, rounded once."""
    x, count = w.as_symbol(inputs[0], inputs[0].dtype), w.as_symbol(inputs[1], np.dtype(np.int64))
    i64, double = np.dtype(np.int64), np.dtype(np.float64)
    if x.dtype == np.float32:  # exact in a double, but for the last step
        near = clip(w, count, -400, 400)
        return w.convert(w.binary("fmul", double, x, power_of_two(w, near)), x.dtype)
    if x.dtype != double:
        raise NotTraced(f"ldexp of {x.dtype}")
    # in three steps; only the last one rounds, or the result is 0 or infinite
    near = clip(w, count, -2150, 2100)
    steps = [near, w.as_symbol(0, i64), w.as_symbol(0, i64)]
    for test, limit, parts in (
        ("slt", -1022, (969, -969, None)),
        ("slt", -1991, (-969, -200, 1169)),
        ("sgt", 1023, (-1023, 1023, None)),
        ("sgt", 2046, (1023, 1023, -2046)),
    ):
        applies = w.compare(test, near, np.array([limit]))
        offset = 2 if parts[2] is not None else 0  # which step is what is left of the exponent
        for place, part in enumerate(parts):
            number = (
                w.binary("add", i64, near, np.array([part or 0]))
                if place == offset
                else w.as_symbol(part or 0, i64)
            )
            steps[place] = w.select(applies, number, steps[place])
    for step in steps:
        x = w.binary("fmul", double, x, power_of_two(w, step))
    return x


def taken_apart(w: Writer, name: str, inputs: tuple[Any, ...], kind: Any) -> Any:
    """frexp: a number from 0.5 to 1, and the power of two to it."""
    (x,) = inputs
    if x.dtype in (np.float16, np.float32):
        part, exponent = taken_apart(w, name, (w.convert(x, np.dtype(np.float64)),), None)
        return w.convert(part, x.dtype), exponent
    if x.dtype != np.float64:
        raise NotTraced(f"frexp of {x.dtype}")
    u64, i64 = np.dtype(np.uint64), np.dtype(np.int64)
    size = absolute(w, "absolute", (x,), None)
    is_small = w.compare("olt", size, np.array([2.0**-1022]))
    large = w.select(is_small, w.binary("fmul", x.dtype, x, np.array([2.0**64])), x)
    bits = large.view(u64)
    field = w.binary("and", u64, w.binary("lshr", u64, bits, np.array([52])), np.array([0x7FF]))
    half = w.binary(
        "or", u64, w.binary("and", u64, bits, np.array([0x800FFFFFFFFFFFFF], u64)), np.array([1022 << 52])
    )
    bias = w.select(is_small, np.array([-1022 - 64]), w.as_symbol(-1022, i64))
    power = w.binary("add", i64, field, bias)
    usual = w.compare("ult", w.binary("sub", u64, field, np.array([1])), np.array([0x7FE], u64))
    part = w.select(usual, half.view(x.dtype), x)
    return part, w.convert(w.select(usual, power, np.zeros(1, i64)), np.dtype(np.int32))


def quotient(w: Writer, name: str, inputs: tuple[Any, ...], kind: Any) -> Symbol:
    """Quotients and remainders of integers: floor_divide, remainder and fmod; 0 where the divisor is 0."""
    dtype = common(inputs)
    if dtype.kind not in "ui" or (dtype.kind == "i" and name == "remainder"):
        raise NotTraced(f"{name} of {dtype}")
    unsigned = np.dtype(f"u{dtype.itemsize}")
    a, b = (w.as_symbol(one, dtype) for one in inputs)
    zero, one = np.zeros(1, dtype), np.ones(1, dtype)
    is_zero = w.compare("eq", b, zero)
    # sizes, without signs: the least number by -1 would stop the processor
    x, y = (w.convert(absolute(w, "absolute", (v,), None), unsigned) for v in (a, w.select(is_zero, one, b)))
    whole = w.convert(_whole_quotient(w, x, y), dtype)
    if name != "floor_divide":
        rest = w.binary("sub", dtype, w.convert(x, dtype), w.binary("mul", dtype, whole, w.convert(y, dtype)))
        if dtype.kind == "i":
            rest = w.select(w.compare("slt", a, zero), w.binary("sub", dtype, zero, rest), rest)
        return w.select(is_zero, zero, rest)
    if dtype.kind == "i":
        down = w.compare("slt", w.binary("xor", dtype, a, b), zero)
        negative = w.binary("sub", dtype, zero, whole)
        product = w.binary("mul", dtype, whole, w.convert(y, dtype))
        is_inexact = w.compare("ne", product, w.convert(x, dtype))
        less = w.select(is_inexact, w.binary("sub", dtype, negative, one), negative)
        whole = w.select(down, less, whole)
    return w.select(is_zero, zero, whole)


def _whole_quotient(w: Writer, x: Symbol, y: Symbol) -> Symbol:
    """Of unsigned numbers, the second of which is none of them 0: doubles are exact enough for 32 bits."""
    if x.itemsize == 8:
        return w.binary("udiv", x.dtype, x, y)
    double = np.dtype(np.float64)
    found = w.binary("fdiv", double, x, y)
    return w.convert(w.convert(found, np.dtype(np.uint32)), x.dtype)


def sign(w: Writer, name: str, inputs: tuple[Any, ...], kind: Any) -> Symbol:
    """-1, 0 or 1; a NaN stays one."""
    (x,) = inputs
    if x.dtype.kind != "f":
        raise NotTraced(f"{name} of {x.dtype}")
    zero, one = np.zeros(1, x.dtype), np.ones(1, x.dtype)
    found = w.select(w.compare("oeq", x, zero), zero, x)
    found = w.select(w.compare("olt", x, zero), -one, found)
    return w.select(w.compare("ogt", x, zero), one, found)


def neighbour(w: Writer, name: str, inputs: tuple[Any, ...], kind: Any) -> Symbol:
    """nextafter: the next number towards another."""
    dtype = common(inputs)
    x, to = (w.as_symbol(one, dtype) for one in inputs)
    bits, boolean, zero = np.dtype(f"u{dtype.itemsize}"), np.dtype(bool), np.zeros(1, dtype)
    one = np.ones(1, bits)
    up, positive = w.compare("ogt", to, x), w.compare("ogt", x, zero)
    pattern = x.view(bits)
    grows = w.compare("eq", up, positive)
    moved = w.select(grows, w.binary("add", bits, pattern, one), w.binary("sub", bits, pattern, one))
    least = copy_sign(w, "copysign", (w.as_symbol(one, bits).view(dtype), to), None)
    found = w.select(w.compare("oeq", x, zero), least, moved.view(dtype))
    found = w.select(w.compare("oeq", x, to), to, found)
    unordered = w.binary("or", boolean, w.compare("uno", x, x), w.compare("uno", to, to))
    return w.select(unordered, arithmetic(w, "add", (x, to), None), found)


UFUNCS: dict[str, Callable[..., Symbol]] = {
    **dict.fromkeys(("add", "subtract", "multiply", "divide", "true_divide"), arithmetic),
    **dict.fromkeys(BITS, bitwise),
    **dict.fromkeys(("left_shift", "right_shift"), shift),
    **dict.fromkeys(COMPARES, compare),
    **dict.fromkeys(("minimum", "maximum"), extreme),
    **dict.fromkeys(("fmin", "fmax"), extreme_number),
    **dict.fromkeys(WHOLE, whole),
    **dict.fromkeys(("isnan", "isinf", "isfinite"), is_nan),
    **dict.fromkeys(("invert", "logical_not"), invert),
    "negative": negative,
    "absolute": absolute,
    "fabs": absolute,
    "sqrt": root,
    "signbit": sign_bit,
    "copysign": copy_sign,
    **dict.fromkeys(("floor_divide", "remainder", "fmod"), quotient),
    "sign": sign,
    "ldexp": scaled,
    "nextafter": neighbour,
    "frexp": taken_apart,
}


# -- functions that are no ufuncs


def where(w: Writer, condition: Any, x: Any, y: Any) -> Symbol:
    """One or the other."""
    dtype = common((x, y))
    return w.select(w.as_symbol(condition, np.dtype(bool)), w.as_symbol(x, dtype), w.as_symbol(y, dtype))


def clip(w: Writer, x: Any, low: Any, high: Any) -> Symbol:
    """Into a range; a NaN, and a zero of either sign, stays what it is."""
    low, high = (w.as_symbol(one, x.dtype) for one in (low, high))
    sign = {"f": "o", "i": "s", "u": "u"}[x.dtype.kind]
    inside = w.select(w.compare(sign + "lt", x, low), low, x)
    return w.select(w.compare(sign + "gt", x, high), high, inside)


def select(w: Writer, conditions: Any, choices: Any, default: Any = 0) -> Symbol:
    """The choice of the first condition that holds."""
    dtype = common((*choices, default))
    found = w.as_symbol(default, dtype)
    for condition, choice in reversed(list(zip(conditions, choices))):
        found = w.select(w.as_symbol(condition, np.dtype(bool)), w.as_symbol(choice, dtype), found)
    return found


def choose(w: Writer, which: Any, choices: Any) -> Symbol:
    """The choice of this number."""
    return select(
        w, [which == np.int64(number) for number in range(len(choices) - 1)], choices[:-1], choices[-1]
    )


def copyto(w: Writer, place: Any, x: Any, casting: str = "", where: Any = True) -> None:
    """Into a register, where lanes are on."""
    if not hasattr(place, "put"):
        raise NotTraced("a copy into what is no register")
    place.put(x, where)


def same(w: Writer, x: Any, *rest: Any, **options: Any) -> Any:
    """What changes the form of an array, and no number."""
    return x


def same_all(w: Writer, *x: Any) -> tuple[Any, ...]:
    """The same of many."""
    return x


def listed(w: Writer, x: Any, axis: int = 0) -> list[Any]:
    """Rows of a new array."""
    if axis:
        raise NotTraced("columns of a new array")
    return list(x)


def along(w: Writer, x: Any, index: Any, axis: int) -> Any:
    """For each lane the number of another lane."""
    if not hasattr(x, "along") or axis != 1:
        raise NotTraced("other lanes of what is no register")
    return x.along(w.as_symbol(index, np.dtype(np.int64)))


def zeros_like(w: Writer, x: Any) -> Symbol:
    """Zeros."""
    return w.as_symbol(np.zeros(1, x.dtype), x.dtype)


FUNCTIONS: dict[str, Callable[..., Any]] = {
    "where": where,
    "clip": clip,
    "select": select,
    "choose": choose,
    "copyto": copyto,
    "ascontiguousarray": same,
    "broadcast_to": same,
    "atleast_1d": same,
    "broadcast_arrays": same_all,
    "stack": listed,
    "zeros_like": zeros_like,
    "take_along_axis": along,
}

__all__ = ["FUNCTIONS", "UFUNCS", "llvm_type"]
