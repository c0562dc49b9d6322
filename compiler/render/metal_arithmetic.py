"""MSL arithmetic: one expression per operation and kind of number, with the meaning that ir/op.py gives it.

In       an operation, its dtype, the expressions and dtypes of its sources; one lane at a time
Out      an expression; what MSL has no word for is a small function, written once above the kernel
Next     metal.py (statements, loops, memory), cuda_arithmetic.py (the same meanings in CUDA C's words)
Source   Metal Shading Language Specification 3.1 and 4: scalar types, math mode and contraction, "Numerical Compliance"

MSL is C++ without float64. Signed overflow, long shifts and division by zero are asked about first, as for C. float16
is its bits in a ushort and computes in float: a sum, product or quotient of halves rounds from there to the same
half. Metal's GPUs take float32 below 2**-126 as zero; fast math, which would take more liberties, is off
(hcq/metal/device.py). Without it a product and a sum are fused within one statement only, so each statement of metal.py
has one operation on floats. How integers round to floats, MSL leaves open: to nearest even or towards zero.
"""

from __future__ import annotations

import math
from typing import Protocol

from hcq.compiler.render.llvm_arithmetic import RenderError
from hcq.ir.dtype import DType, Kind, Scalar, dtypes, to_bits, truncate
from hcq.ir.op import Op

Operand = tuple[str, DType]

_TYPE = {
    "bool": "bool",
    "index": "long",
    "float16": "ushort",
    "bfloat16": "ushort",
    "float32": "float",
    "fp8e4m3": "uchar",
    "fp8e5m2": "uchar",
}
_INTEGERS = {8: "char", 16: "short", 32: "int", 64: "long"}
_AS_BITS = (dtypes.float16, dtypes.bfloat16, dtypes.fp8e4m3, dtypes.fp8e5m2)
_SIGN = {Op.CMPLT: "<", Op.CMPLE: "<=", Op.CMPEQ: "==", Op.CMPNE: "!="}
_BOOL = {Op.ADD: "|", Op.MUL: "&", Op.MAX: "|", Op.MIN: "&", Op.AND: "&", Op.OR: "|", Op.XOR: "^"}
_PLAIN = {Op.ADD: "+", Op.MUL: "*", Op.DIV: "/", Op.AND: "&", Op.OR: "|", Op.XOR: "^"}


class Text(Protocol):
    """What spelling needs of the text being written."""

    def helper(self, name: str, text: str) -> str:
        """Write a function above the kernel, once; gives its name."""


def register_type(dtype: DType) -> str:
    """The MSL type of one lane in a register. Raises RenderError for float64, which MSL does not have."""
    scalar = dtype.scalar
    if scalar is dtypes.float64:
        raise RenderError(
            "float64: Metal's GPUs have no numbers of that size. Cast to float32 first: x.to(dtypes.float32)"
        )
    return _TYPE.get(scalar.name) or f"{'u' if scalar.is_unsigned else ''}{_INTEGERS[scalar.bits]}"


def memory_type(dtype: DType) -> str:
    """The MSL type of one element in memory: a bool is a byte there."""
    return "uchar" if dtype.is_bool else register_type(dtype)


def literal(value: Scalar, dtype: DType) -> str:
    """A number of a scalar dtype, exact."""
    kind = register_type(dtype)
    if dtype.kind is Kind.BOOL:
        return "true" if value else "false"
    if dtype in _AS_BITS:
        return f"({kind}){to_bits(value, dtype):#x}"
    if dtype.kind is Kind.FLOAT:
        number = float(truncate(value, dtype))
        return f"{number!r}f" if math.isfinite(number) else f"as_type<float>({to_bits(value, dtype):#x}u)"
    number = int(truncate(value, dtype))
    suffix = {"uint": "u", "long": "L", "ulong": "UL"}.get(kind, "")
    if kind in ("int", "long") and number == -(1 << (dtype.bits - 1)):
        return f"({number + 1}{suffix} - 1)"
    return f"({kind}){number}" if dtype.bits < 32 else f"{number}{suffix}"


def arithmetic(
    text: Text,
    op: Op,
    dtype: DType,
    sources: list[Operand],
    unsigned: bool = False,
    known: Scalar | None = None,
) -> str:
    """Spell an op for one lane: an expression.

    sources    (expression, dtype) of each
    unsigned   no source is negative
    known      the number that the second source is, if it is one
    Raises     RenderError for an op that has no spelling for that dtype
    """
    register_type(dtype)
    if op is Op.CAST:
        return cast(text, sources[0], dtype.scalar)
    if op is Op.BITCAST:
        return _bitcast(text, sources[0], dtype.scalar)
    names = [name for name, _ in sources]
    if op is Op.WHERE:
        return f"{names[0]} ? {names[1]} : {names[2]}"
    of = sources[0][1].scalar
    if of in _AS_BITS:
        return _on_bits(text, op, of, names)
    if op in _SIGN:
        return f"{names[0]} {_SIGN[op]} {names[1]}"
    if of.is_bool:
        return _on_bool(op, names)
    if of.is_float:
        return _on_float(text, op, of, names)
    plain = None if known is None else _by_number(op, of, names, unsigned or of.is_unsigned, int(known))
    return plain or _on_integer(text, op, of, names, unsigned)


def _by_number(op: Op, dtype: DType, names: list[str], unsigned: bool, known: int) -> str:
    """A shift or a division by a number that needs no question; "" for any other."""
    kind, same = register_type(dtype), _unsigned(dtype)
    if op in (Op.SHL, Op.SHR) and 0 <= known < dtype.bits:
        if op is Op.SHR:
            return f"({kind})({names[0]} >> {known})"
        return f"({kind})(({_wide(dtype)}){names[0]} << {known})"
    if op in (Op.FLOORDIV, Op.MOD) and unsigned and known > 0:
        suffix = "UL" if dtype.bits == 64 else "u"
        return f"({kind})(({same}){names[0]} {'/' if op is Op.FLOORDIV else '%'} {known}{suffix})"
    return ""


def _on_bool(op: Op, names: list[str]) -> str:
    if op is Op.NOT:
        return f"!{names[0]}"
    if op in _BOOL:
        return f"{names[0]} {_BOOL[op]} {names[1]}"
    raise RenderError(f"{op.name} on bool: cast to an integer first")


def _on_bits(text: Text, op: Op, dtype: DType, names: list[str]) -> str:
    """float16 by way of float, whose results round to the same float16; the others are only stored."""
    if dtype is not dtypes.float16:
        raise RenderError(f"{op.name} on {dtype.name}: cast to float32 first (decompose does)")
    if op is Op.NEG:
        return f"(ushort)({names[0]} ^ 0x8000)"
    wide = [cast(text, (name, dtype), dtypes.float32) for name in names]
    value = arithmetic(text, op, dtypes.float32, [(name, dtypes.float32) for name in wide])
    return value if op in _SIGN else cast(text, (value, dtypes.float32), dtype)


def _on_float(text: Text, op: Op, dtype: DType, names: list[str]) -> str:
    if op is Op.NEG:
        return f"-{names[0]}" if not names[0].startswith("-") else f"-({names[0]})"
    if op in (Op.ADD, Op.MUL, Op.DIV):
        return f"{names[0]} {_PLAIN[op]} {names[1]}"
    if op is Op.SQRT:
        return f"precise::sqrt({names[0]})"
    if op is Op.TRUNC:
        return f"trunc({names[0]})"
    if op in (Op.MAX, Op.MIN):  # a NaN in `a` compares false and stays
        word, sign = ("max", "<") if op is Op.MAX else ("min", ">")
        body = f"{{ return b != b ? b : a {sign} b ? b : a; }}"
        return f"{_helper(text, f'{word}_float', 'float', 'float a, float b', body)}({names[0]}, {names[1]})"
    raise RenderError(f"{op.name} on {dtype.name}: no instruction; decompose it first")


def _on_integer(text: Text, op: Op, dtype: DType, names: list[str], unsigned: bool) -> str:
    kind, wide = register_type(dtype), _wide(dtype)
    if op is Op.NEG:
        return f"({kind})(({wide})0 - ({wide}){names[0]})"
    if op is Op.NOT:
        return f"({kind})~{names[0]}"
    if dtype.kind is Kind.INDEX and op in (Op.ADD, Op.MUL):
        return f"{names[0]} {_PLAIN[op]} {names[1]}"  # indices do not overflow
    if op in (Op.ADD, Op.MUL):
        return f"({kind})(({wide}){names[0]} {_PLAIN[op]} ({wide}){names[1]})"
    if op in (Op.AND, Op.OR, Op.XOR):
        return f"({kind})({names[0]} {_PLAIN[op]} {names[1]})"
    if op in (Op.MAX, Op.MIN):
        return f"{names[0]} {'<' if op is Op.MIN else '>'} {names[1]} ? {names[0]} : {names[1]}"
    if op in (Op.SHL, Op.SHR):
        function = _shift(text, op, dtype)
    elif op in (Op.FLOORDIV, Op.MOD):
        function = _divide(text, op, dtype, unsigned or dtype.is_unsigned)
    else:
        raise RenderError(f"{op.name} on {dtype.name}: not an integer operation")
    return f"{function}({names[0]}, {names[1]})"


def _helper(text: Text, name: str, result: str, parameters: str, body: str) -> str:
    return text.helper(name, f"static inline {result} {name}({parameters}) {body}")


def _unsigned(dtype: DType) -> str:
    return f"u{_INTEGERS[dtype.bits]}"


def _wide(dtype: DType) -> str:
    """The unsigned type in which sums of a dtype wrap."""
    return "ulong" if dtype.bits == 64 else "uint"


def _shift(text: Text, op: Op, dtype: DType) -> str:
    """A count of the width or more gives 0, or the sign; a negative count is a huge one."""
    kind, same, width = register_type(dtype), _unsigned(dtype), dtype.bits
    if op is Op.SHL:
        body = f"{{ return ({same})n < {width} ? ({kind})(({_wide(dtype)})a << n) : ({kind})0; }}"
        return _helper(text, f"shl_{kind}", kind, f"{kind} a, {kind} n", body)
    if dtype.is_unsigned:
        body = f"{{ return n < {width} ? ({kind})(a >> n) : ({kind})0; }}"
    else:
        body = f"{{ return ({kind})(a >> (({same})n < {width} ? n : ({kind}){width - 1})); }}"
    return _helper(text, f"shr_{kind}", kind, f"{kind} a, {kind} n", body)


def _divide(text: Text, op: Op, dtype: DType, unsigned: bool) -> str:
    """Floor division and its remainder for every divisor: x // 0 = x % 0 = 0, and the least number // -1 wraps."""
    kind, same, wide = register_type(dtype), _unsigned(dtype), _wide(dtype)
    word, sign = ("div", "/") if op is Op.FLOORDIV else ("mod", "%")
    if unsigned:
        body = f"{{ return b == 0 ? ({kind})0 : ({kind})(({same})a {sign} ({same})b); }}"
        return _helper(text, f"{word}_plain_{kind}", kind, f"{kind} a, {kind} b", body)
    minus = f"({kind})(({wide})0 - ({wide})a)" if op is Op.FLOORDIV else f"({kind})0"
    moved = f"({kind})(a / b - 1) : ({kind})(a / b)" if op is Op.FLOORDIV else f"({kind})(r + b) : r"
    body = (
        "{\n"
        f"  if (b == 0) return ({kind})0;\n"
        f"  if (b == -1) return {minus};\n"
        f"  const {kind} r = ({kind})(a % b);\n"
        f"  return r != 0 && (r ^ b) < 0 ? {moved};\n"
        "}"
    )
    return _helper(text, f"floor_{word}_{kind}", kind, f"{kind} a, {kind} b", body)


# -- conversions ----------------------------------------------------------------------------------------------------


def cast(text: Text, source: Operand, to: DType) -> str:
    """The value under another dtype: to bool tests for zero, float to integer saturates and NaN becomes 0.

    Raises RenderError for what becomes an 8-bit float, and for float64.
    """
    name, of = source[0], source[1].scalar
    kind, _ = register_type(to), register_type(of)
    if of is to:
        return name
    if to.is_storage_only:
        raise RenderError(
            f"CAST {of.name} to {to.name}: 8-bit floats are made of their bits (decompose does)"
        )
    single = dtypes.float32
    if of.is_storage_only:
        return cast(text, (f"{_from_minifloat(text, of)}({name})", dtypes.float16), to)
    if of is dtypes.bfloat16:
        return cast(text, (f"as_type<float>((uint){name} << 16)", single), to)
    if of is dtypes.float16:
        return cast(text, (f"(float)as_type<half>({name})", single), to)
    if to is dtypes.bfloat16:
        return f"{_to_bfloat16(text)}({cast(text, source, single)})"
    if to is dtypes.float16:  # to nearest even; from integers MSL leaves the rounding open
        return f"as_type<ushort>((half)({name}))"
    if to.is_bool:
        return f"({name}) != 0"
    if of.is_float and not to.is_float:
        return f"{_to_integer(text, to)}({name})"
    return f"({kind})({name})"


def _from_minifloat(text: Text, of: DType) -> str:
    """As float16: e5m2 is its upper half; e4m3 has a bit less of exponent, which counts 8 less."""
    if of is dtypes.fp8e5m2:
        return _helper(text, "from_e5m2", "ushort", "uchar x", "{ return (ushort)(x << 8); }")
    body = (
        "{\n"
        "  const ushort bits = (ushort)((x & 0x80) << 8 | (x & 0x7f) << 7);\n"
        "  const ushort r = as_type<ushort>((half)((float)as_type<half>(bits) * 256.0f));\n"
        "  return (x & 0x7f) == 0x7f ? (ushort)0x7e00 : r;\n"
        "}"
    )
    return _helper(text, "from_e4m3", "ushort", "uchar x", body)


def _to_bfloat16(text: Text) -> str:
    """Round to nearest even in integer arithmetic: NaN stays NaN."""
    body = (
        "{\n"
        "  const uint bits = as_type<uint>(x);\n"
        "  return x != x ? (ushort)0x7fc0 : (ushort)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);\n"
        "}"
    )
    return _helper(text, "to_bf16", "ushort", "float x", body)


def _to_integer(text: Text, to: DType) -> str:
    """What is too large or too small, or no number, is asked about first: there MSL leaves the result open."""
    kind = register_type(to)
    low, high = (0, (1 << to.bits) - 1) if to.is_unsigned else (-(1 << to.bits - 1), (1 << to.bits - 1) - 1)
    least, most = literal(float(low), dtypes.float32), literal(float(high + 1), dtypes.float32)
    body = (
        "{\n"
        "  if (x != x) return (KIND)0;\n"
        f"  if (x <= {least}) return {literal(low, to)};\n"
        f"  if (x >= {most}) return {literal(high, to)};\n"
        "  return (KIND)x;\n"
        "}"
    )
    return _helper(text, f"to_{kind}", kind, "float x", body.replace("KIND", kind))


def _bitcast(text: Text, source: Operand, to: DType) -> str:
    name, of = source[0], source[1].scalar
    if of.is_bool or to.is_bool:
        return cast(text, source, to)
    kind, into = register_type(of), register_type(to)
    return name if kind == into else f"as_type<{into}>({name})"
