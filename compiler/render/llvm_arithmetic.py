"""LLVM arithmetic: one spelling per operation and kind of number, with the meaning that ir/op.py gives it.

In       an operation, its dtype, the names and dtypes of its sources
Out      lines appended through the text being written; the name of the result
Next     ir/elementwise/ (the words of most), llvm.py (everything that is not arithmetic), ../passes/decompose.py
         (operations that no CPU has)
"""

from __future__ import annotations

import math
import struct
from typing import Protocol

from hcq.ir.dtype import DType, Kind, Scalar, dtypes, to_bits, truncate
from hcq.ir.elementwise.table import ELEMENTWISE
from hcq.ir.op import Op

Operand = tuple[str, DType]


class RenderError(ValueError):
    """An operation that the target has no spelling for."""


class Text(Protocol):
    """What spelling needs of the text being written."""

    # whether an instruction gives the greater of two numbers, and the second where one is a NaN, as MAXPS does
    has_extremes: bool
    extremes: frozenset[
        str
    ]  # LLVM's types of which one instruction gives the greater, and NaN where either is one
    power: str  # the intrinsic for 2**x of a float, where the target's own is not llvm.exp2

    def let(self, text: str) -> str:
        """A new name for the value of an instruction."""

    def call(self, result: str, function: str, arguments: list[tuple[str, str]]) -> str:
        """The value of an intrinsic; arguments are (type, value)."""

    def looked_up(self, of: DType, to: DType, name: str) -> str | None:
        """A whole number as a float from a table, None where a target has none for that."""

    def before_narrowing(self, dtype: DType, name: str) -> str:
        """A value that is about to be rounded to a narrower format."""

    def widened(self, of: DType, to: DType, name: str) -> str:
        """A float as one of a wider format."""

    def opaque(self, dtype: DType, name: str) -> str:
        """The same value, of which LLVM knows nothing where a target needs that."""


_REGISTER = {
    "bool": "i1",
    "index": "i64",
    "float16": "half",
    "bfloat16": "i16",
    "float32": "float",
    "float64": "double",
    "fp8e4m3": "i8",
    "fp8e5m2": "i8",
}
_FLOAT_SUFFIX = {"float": "f32", "double": "f64", "half": "f16"}
_SPELLED = {op: one.spelled["llvm"] for op, one in ELEMENTWISE.items() if "llvm" in one.spelled}
_AS_BITS = (dtypes.bfloat16, dtypes.fp8e4m3, dtypes.fp8e5m2)  # floats that registers hold as integers


def register_type(dtype: DType) -> str:
    """The LLVM type of a value in a register."""
    name = _REGISTER.get(dtype.scalar.name) or f"i{dtype.bits}"
    return name if dtype.lanes == 1 else f"<{dtype.lanes} x {name}>"


def memory_type(dtype: DType) -> str:
    """The LLVM type of a value in memory: a bool is a byte there."""
    if dtype.is_bool:
        return "i8" if dtype.lanes == 1 else f"<{dtype.lanes} x i8>"
    return register_type(dtype)


def literal(value: Scalar, dtype: DType) -> str:
    """A number of a scalar dtype, exact."""
    if dtype.kind is Kind.BOOL:
        return "true" if value else "false"
    if dtype in _AS_BITS:
        return str(to_bits(value, dtype))
    if dtype is dtypes.float16:
        return f"0xH{to_bits(value, dtype):04X}"
    if dtype.kind is Kind.FLOAT:
        return f"0x{struct.unpack('>Q', struct.pack('>d', float(truncate(value, dtype))))[0]:016X}"
    return str(int(truncate(value, dtype)))


def splat(value: Scalar, dtype: DType) -> str:
    """A number in every lane of `dtype`."""
    text = literal(value, dtype.scalar)
    return text if dtype.lanes == 1 else f"splat ({register_type(dtype.scalar)} {text})"


def arithmetic(
    text: Text,
    op: Op,
    dtype: DType,
    sources: list[Operand],
    numbers: list[Scalar | None],
    unsigned: bool = False,
) -> str:
    """Spell an op: the name of its value.

    sources    (name, dtype) of each
    numbers    of each source that is a number in every lane; None for the others
    unsigned   no source is negative
    Raises     RenderError for an op that has no spelling for that dtype
    """
    if op is Op.CAST:
        return cast(text, sources[0], dtype)
    if op is Op.BITCAST:
        return _bitcast(text, sources[0], dtype)
    if op is Op.WHERE:
        (condition, kind), (a, _), (b, _) = sources
        value = register_type(dtype)
        if dtype.is_float and dtype.scalar not in _AS_BITS:
            a = text.opaque(dtype, a)
        return text.let(f"select {register_type(kind)} {condition}, {value} {a}, {value} {b}")
    names = [name for name, _ in sources]
    of = sources[0][1]
    if of.scalar in _AS_BITS:
        raise RenderError(f"{op.name} on {of.scalar.name}: cast to float32 first (decompose does)")
    if of.is_float and op is Op.ADD:
        return _float_sum(text, of, names, numbers)
    if of.is_float and op in (Op.MAX, Op.MIN):
        return _float_extreme(text, op, of, names, numbers)
    if op is Op.EXP2 and text.power and of.scalar is dtypes.float32:
        return called_by_lane(text, text.power, of, names)
    words = _SPELLED[op].of(of) if op in _SPELLED else ""
    if words.startswith("llvm."):
        held = register_type(of)
        return text.call(held, f"{words}.{suffix(of)}", [(held, name) for name in names])
    if words:
        return text.let(f"{words} {register_type(of)} {', '.join(names)}")
    if of.is_float:
        raise RenderError(f"{op.name} on {of.scalar.name}: no CPU instruction; decompose it first")
    if op is Op.NOT:
        return text.let(f"xor {register_type(of)} {names[0]}, {_ones(of)}")
    if of.is_bool:
        raise RenderError(f"{op.name} on bool: cast to an integer first")
    return _on_integer(text, op, of, names, numbers, unsigned)


def _float_sum(text: Text, dtype: DType, names: list[str], numbers: list[Scalar | None]) -> str:
    # a product that overflows is no infinity inside an FMA: beside one that is known, it has to be
    meets_infinity = any(number in (math.inf, -math.inf) for number in numbers)
    words = "fadd" if meets_infinity else _SPELLED[Op.ADD].of(dtype)
    result = text.let(f"{words} {register_type(dtype)} {names[0]}, {names[1]}")
    return text.opaque(dtype, result) if 0 in numbers else result


def _float_extreme(text: Text, op: Op, dtype: DType, names: list[str], numbers: list[Scalar | None]) -> str:
    kind = register_type(dtype)
    a, b = names
    if register_type(dtype.scalar) in text.extremes:
        word = f"llvm.{'maximum' if op is Op.MAX else 'minimum'}.{suffix(dtype)}"
        return text.call(kind, word, [(kind, a), (kind, b)])
    known = numbers[1]
    if known is None and numbers[0] is not None:
        a, b, known = b, a, numbers[0]
    # a NaN in `a` compares false and stays: one instruction where b is a number
    loses = text.let(f"fcmp {'olt' if op is Op.MAX else 'ogt'} {kind} {a}, {b}")
    mask = register_type(dtypes.bool.vec(dtype.lanes))
    best = text.let(f"select {mask} {loses}, {kind} {b}, {kind} {a}")
    if known is not None and known == known:
        return best
    unordered = text.let(f"fcmp uno {kind} {b}, {b}")
    # a NaN of ours: if it were `b`, LLVM would make one choice of the two, and the instruction would be lost
    nan = splat(math.nan, dtype) if text.has_extremes else b
    return text.let(f"select {mask} {unordered}, {kind} {nan}, {kind} {best}")


def called_by_lane(text: Text, function: str, dtype: DType, names: list[str]) -> str:
    """A function of single floats, such as one instruction of the target is."""
    if dtype.lanes == 1:
        return text.call("float", function, [("float", name) for name in names])
    kind, made = register_type(dtype), "poison"
    for lane in range(dtype.lanes):
        taken = [("float", text.let(f"extractelement {kind} {name}, i64 {lane}")) for name in names]
        one = text.call("float", function, taken)
        made = text.let(f"insertelement {kind} {made}, float {one}, i64 {lane}")
    return made


def _on_integer(
    text: Text, op: Op, dtype: DType, names: list[str], numbers: list[Scalar | None], unsigned: bool
) -> str:
    if op is Op.NEG:
        return text.let(f"sub {register_type(dtype)} {splat(0, dtype)}, {names[0]}")
    if op in (Op.SHL, Op.SHR):
        return _shift(text, op, dtype, names, numbers[1])
    if op in (Op.FLOORDIV, Op.MOD):
        return _divide(text, op, dtype, names, numbers[1], unsigned or dtype.is_unsigned)
    raise RenderError(f"{op.name} on {dtype.scalar.name}: not an integer operation")


def _ones(dtype: DType) -> str:
    if dtype.is_bool:
        return splat(True, dtype)
    return splat((1 << dtype.scalar.bits) - 1 if dtype.is_unsigned else -1, dtype)


def _shift(text: Text, op: Op, dtype: DType, names: list[str], by: Scalar | None) -> str:
    """A count of the width or more gives 0, or the sign; a negative count is a huge one."""
    kind, mask = register_type(dtype), register_type(dtypes.bool.vec(dtype.lanes))
    value, count = names
    width = dtype.scalar.bits
    limit = splat(width - 1, dtype)
    is_signed = op is Op.SHR and not dtype.is_unsigned
    word = "shl" if op is Op.SHL else "ashr" if is_signed else "lshr"
    if by is not None and 0 <= by < width:
        return text.let(f"{word} {kind} {value}, {count}")
    if is_signed:
        bounded = text.call(kind, f"llvm.umin.{suffix(dtype)}", [(kind, count), (kind, limit)])
        return text.let(f"ashr {kind} {value}, {bounded}")
    fits = text.let(f"icmp ule {kind} {count}, {limit}")
    # not a select: LLVM 22's NVPTX takes that for a shift that saturates, and drops the upper half of a 64-bit count
    bounded = text.let(f"and {kind} {count}, {limit}")
    shifted = text.let(f"{word} {kind} {value}, {bounded}")
    return text.let(f"select {mask} {fits}, {kind} {shifted}, {kind} zeroinitializer")


def _divide(text: Text, op: Op, dtype: DType, names: list[str], by: Scalar | None, unsigned: bool) -> str:
    """Floor division and its remainder, for every divisor: x // 0 = x % 0 = 0, and the least number // -1 wraps."""
    kind, mask = register_type(dtype), register_type(dtypes.bool.vec(dtype.lanes))
    a, b = names
    zero, one = splat(0, dtype), splat(1, dtype)
    is_safe = by is not None and by not in (0, -1)
    if unsigned:
        word = "udiv" if op is Op.FLOORDIV else "urem"
        if is_safe:
            return text.let(f"{word} {kind} {a}, {b}")
        is_zero = text.let(f"icmp eq {kind} {b}, {zero}")
        safe = text.let(f"select {mask} {is_zero}, {kind} {one}, {kind} {b}")
        result = text.let(f"{word} {kind} {a}, {safe}")
        return text.let(f"select {mask} {is_zero}, {kind} {zero}, {kind} {result}")
    safe, is_zero, is_minus = b, "", ""
    if not is_safe:  # both would trap
        is_zero = text.let(f"icmp eq {kind} {b}, {zero}")
        is_minus = text.let(f"icmp eq {kind} {b}, {splat(-1, dtype)}")
        traps = text.let(f"or {mask} {is_zero}, {is_minus}")
        safe = text.let(f"select {mask} {traps}, {kind} {one}, {kind} {b}")
    rest = text.let(f"srem {kind} {a}, {safe}")
    has_rest = text.let(f"icmp ne {kind} {rest}, {zero}")
    signs = text.let(f"xor {kind} {rest}, {safe}")
    opposite = text.let(f"icmp slt {kind} {signs}, {zero}")
    adjust = text.let(f"and {mask} {has_rest}, {opposite}")
    if op is Op.MOD:
        moved = text.let(f"add {kind} {rest}, {safe}")
        result = text.let(f"select {mask} {adjust}, {kind} {moved}, {kind} {rest}")
        return result if is_safe else text.let(f"select {mask} {traps}, {kind} {zero}, {kind} {result}")
    quotient = text.let(f"sdiv {kind} {a}, {safe}")
    lower = text.let(f"sub {kind} {quotient}, {one}")
    result = text.let(f"select {mask} {adjust}, {kind} {lower}, {kind} {quotient}")
    if is_safe:
        return result
    negated = text.let(f"sub {kind} {zero}, {a}")
    result = text.let(f"select {mask} {is_minus}, {kind} {negated}, {kind} {result}")
    return text.let(f"select {mask} {is_zero}, {kind} {zero}, {kind} {result}")


# -- conversions ----------------------------------------------------------------------------------------------------


def cast(text: Text, source: Operand, to: DType) -> str:
    """The value under another dtype: to bool tests for zero, float to integer saturates and NaN becomes 0.

    Raises RenderError for what becomes an 8-bit float.
    """
    name, of = source
    a, b = of.scalar, to.scalar
    if a is b:
        return name
    if b.is_storage_only:
        raise RenderError(f"CAST {a.name} to {b.name}: 8-bit floats are made of their bits (decompose does)")
    if a.is_storage_only:
        half = dtypes.float16.vec(of.lanes)
        return cast(text, (_from_minifloat(text, name, of), half), to)
    if a is dtypes.bfloat16:
        return cast(text, (_from_bfloat16(text, name, of), dtypes.float32.vec(of.lanes)), to)
    if b is dtypes.bfloat16:
        single = dtypes.float32.vec(to.lanes)
        return _to_bfloat16(text, cast(text, source, single), single)
    kind, into = register_type(of), register_type(to)
    if b.is_bool:
        test = "fcmp une" if a.is_float else "icmp ne"
        return text.let(f"{test} {kind} {name}, zeroinitializer")
    if a.is_float and b.is_float:
        if b.itemsize < a.itemsize:
            return text.let(f"fptrunc {kind} {text.before_narrowing(of, name)} to {into}")
        return text.widened(of, to, name)
    if a.is_float:
        if a is dtypes.float16:
            single = dtypes.float32.vec(of.lanes)
            return cast(text, (cast(text, source, single), single), to)
        sign = "u" if b.is_unsigned else "s"
        return text.call(into, f"llvm.fpto{sign}i.sat.{suffix(to)}.{suffix(of)}", [(kind, name)])
    if b.is_float:
        if (found := text.looked_up(of, to, name)) is not None:
            return found
        word = "uitofp" if a.is_unsigned or a.is_bool else "sitofp"
        return text.let(f"{word} {kind} {name} to {into}")
    if a.bits == b.bits:
        return name
    if a.bits > b.bits:
        return text.let(f"trunc {kind} {name} to {into}")
    return text.let(f"{'zext' if a.is_unsigned or a.is_bool else 'sext'} {kind} {name} to {into}")


def _from_minifloat(text: Text, name: str, of: DType) -> str:
    """As float16: e5m2 is its upper half; e4m3 has a bit less of exponent, which counts 8 less."""
    bits, half = dtypes.uint16.vec(of.lanes), dtypes.float16.vec(of.lanes)
    kind, into = register_type(bits), register_type(half)
    wide = text.let(f"zext {register_type(of)} {name} to {kind}")
    shifted = text.let(f"shl {kind} {wide}, {splat(8, bits)}")
    if of.scalar is dtypes.fp8e5m2:
        return text.let(f"bitcast {kind} {shifted} to {into}")
    sign = text.let(f"and {kind} {shifted}, {splat(0x8000, bits)}")
    magnitude = text.let(f"and {kind} {wide}, {splat(0x7F, bits)}")
    rest = text.let(f"shl {kind} {magnitude}, {splat(7, bits)}")
    whole = text.let(f"or {kind} {sign}, {rest}")
    made = text.let(f"bitcast {kind} {whole} to {into}")
    value = text.let(f"fmul {into} {made}, {splat(256.0, half)}")
    is_nan = text.let(f"icmp eq {kind} {magnitude}, {splat(0x7F, bits)}")
    mask = register_type(dtypes.bool.vec(of.lanes))
    return text.let(f"select {mask} {is_nan}, {into} {splat(float('nan'), half)}, {into} {value}")


def _from_bfloat16(text: Text, name: str, of: DType) -> str:
    bits = dtypes.uint32.vec(of.lanes)
    wide = text.let(f"zext {register_type(of)} {name} to {register_type(bits)}")
    high = text.let(f"shl {register_type(bits)} {wide}, {splat(16, bits)}")
    return text.let(f"bitcast {register_type(bits)} {high} to {register_type(dtypes.float32.vec(of.lanes))}")


def _to_bfloat16(text: Text, name: str, single: DType) -> str:
    """Round to nearest even in integer arithmetic: exact for denormals too, and NaN stays NaN."""
    bits = dtypes.uint32.vec(single.lanes)
    kind, mask = register_type(bits), register_type(dtypes.bool.vec(single.lanes))
    raw = text.let(f"bitcast {register_type(single)} {name} to {kind}")
    top = text.let(f"lshr {kind} {raw}, {splat(16, bits)}")
    odd = text.let(f"and {kind} {top}, {splat(1, bits)}")
    half = text.let(f"add {kind} {odd}, {splat(0x7FFF, bits)}")
    rounded = text.let(f"add {kind} {raw}, {half}")
    shifted = text.let(f"lshr {kind} {rounded}, {splat(16, bits)}")
    nan = text.let(f"fcmp uno {register_type(single)} {name}, zeroinitializer")
    chosen = text.let(f"select {mask} {nan}, {kind} {splat(0x7FC0, bits)}, {kind} {shifted}")
    return text.let(f"trunc {kind} {chosen} to {register_type(dtypes.bfloat16.vec(single.lanes))}")


def _bitcast(text: Text, source: Operand, to: DType) -> str:
    name, of = source
    if of.is_bool or to.is_bool:
        return cast(text, (name, of), to)
    kind, into = register_type(of), register_type(to)
    return name if kind == into else text.let(f"bitcast {kind} {name} to {into}")


def suffix(dtype: DType) -> str:
    """How intrinsics name a type: v16f32, i64."""
    scalar = register_type(dtype.scalar)
    scalar = _FLOAT_SUFFIX.get(scalar, scalar)
    return scalar if dtype.lanes == 1 else f"v{dtype.lanes}{scalar}"


def memory_suffix(dtype: DType) -> str:
    """How intrinsics of memory name a type: always a vector, bools as bytes."""
    scalar = memory_type(dtype.scalar)
    return f"v{dtype.lanes}{_FLOAT_SUFFIX.get(scalar, scalar)}"
