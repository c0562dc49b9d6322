"""CUDA C arithmetic: one expression per operation and kind of number, with the meaning that ir/op.py gives it.

In       an operation, its dtype, the expressions and dtypes of its sources; one lane at a time
Out      an expression; what C has no word for is a small function, written once above the kernel
Next     cuda.py (statements, loops, memory), llvm_arithmetic.py (the same meanings in LLVM's words)
Source   CUDA C++ Programming Guide and Math API (which conversions round or saturate how); PTX ISA, cvt

C leaves signed overflow, long shifts and division by zero undefined, so sums wrap in unsigned types and the rest is
asked about first. float16 is its bits in a u16 and computes in float; conversions are PTX's own, so no header is read.
"""

from __future__ import annotations

import math
from typing import Protocol

from hcq.compiler.render.llvm_arithmetic import RenderError
from hcq.ir.dtype import DType, Kind, Scalar, dtypes, to_bits, truncate
from hcq.ir.op import Op

Operand = tuple[str, DType]

PRELUDE = """\
typedef signed char i8; typedef short i16; typedef int i32; typedef long long i64;
typedef unsigned char u8; typedef unsigned short u16; typedef unsigned int u32; typedef unsigned long long u64;
typedef float f32; typedef double f64;"""

_TYPE = {
    "bool": "bool",
    "index": "i64",
    "float16": "u16",
    "bfloat16": "u16",
    "float32": "f32",
    "float64": "f64",
    "fp8e4m3": "u8",
    "fp8e5m2": "u8",
}
_AS_BITS = (dtypes.float16, dtypes.bfloat16, dtypes.fp8e4m3, dtypes.fp8e5m2)
_SIGN = {Op.CMPLT: "<", Op.CMPLE: "<=", Op.CMPEQ: "==", Op.CMPNE: "!="}
_BOOL = {Op.ADD: "|", Op.MUL: "&", Op.MAX: "|", Op.MIN: "&", Op.AND: "&", Op.OR: "|", Op.XOR: "^"}
_PLAIN = {Op.ADD: "+", Op.MUL: "*", Op.DIV: "/", Op.AND: "&", Op.OR: "|", Op.XOR: "^"}
_FROM_FLOAT = {  # round to zero, saturating: what cvt.rzi does
    "i32": "int",
    "u32": "uint",
    "i64": "ll",
    "u64": "ull",
}


class Text(Protocol):
    """What spelling needs of the text being written."""

    def helper(self, name: str, text: str) -> str:
        """Write a function above the kernel, once; gives its name."""


def register_type(dtype: DType) -> str:
    """The C type of one lane in a register."""
    scalar = dtype.scalar
    return _TYPE.get(scalar.name) or f"{'u' if scalar.is_unsigned else 'i'}{scalar.bits}"


def memory_type(dtype: DType) -> str:
    """The C type of one element in memory: a bool is a byte there."""
    return "u8" if dtype.is_bool else register_type(dtype)


def literal(value: Scalar, dtype: DType) -> str:
    """A number of a scalar dtype, exact."""
    if dtype.kind is Kind.BOOL:
        return "true" if value else "false"
    if dtype in _AS_BITS:
        return f"({register_type(dtype)}){to_bits(value, dtype):#x}"
    if dtype.kind is Kind.FLOAT:
        number = float(truncate(value, dtype))
        single = dtype is dtypes.float32
        if math.isfinite(number):
            return f"{number!r}{'f' if single else ''}"
        bits = to_bits(value, dtype)
        return f"__uint_as_float({bits:#x}u)" if single else f"__longlong_as_double((i64){bits:#x}ULL)"
    number = int(truncate(value, dtype))
    kind = register_type(dtype)
    suffix = {"u32": "u", "i64": "LL", "u64": "ULL"}.get(kind, "")
    if kind in ("i32", "i64") and number == -(1 << (dtype.bits - 1)):
        return (
            f"({number + 1}{suffix} - 1)"  # C reads -2147483648 as the negative of a number that does not fit
        )
    return f"{number}{suffix}"


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
        return f"({kind})(({'u64' if dtype.bits == 64 else 'u32'}){names[0]} << {known})"
    if op in (Op.FLOORDIV, Op.MOD) and unsigned and known > 0:
        suffix = "ULL" if dtype.bits == 64 else "u"
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
        return f"(u16)({names[0]} ^ 0x8000)"
    wide = [cast(text, (name, dtype), dtypes.float32) for name in names]
    value = arithmetic(text, op, dtypes.float32, [(name, dtypes.float32) for name in wide])
    return value if op in _SIGN else cast(text, (value, dtypes.float32), dtype)


def _on_float(text: Text, op: Op, dtype: DType, names: list[str]) -> str:
    kind, single = register_type(dtype), dtype is dtypes.float32
    if op is Op.NEG:
        return f"-{names[0]}" if not names[0].startswith("-") else f"-({names[0]})"
    if op in (Op.ADD, Op.MUL, Op.DIV):
        return f"{names[0]} {_PLAIN[op]} {names[1]}"
    if op is Op.SQRT:
        return f"{'__fsqrt_rn' if single else '__dsqrt_rn'}({names[0]})"
    if op is Op.TRUNC:
        return f"{'truncf' if single else 'trunc'}({names[0]})"
    if op in (Op.MAX, Op.MIN):  # a NaN in `a` compares false and stays
        word, sign = ("max", "<") if op is Op.MAX else ("min", ">")
        body = f"{{ return b != b ? b : a {sign} b ? b : a; }}"
        return f"{_helper(text, f'{word}_{kind}', kind, f'{kind} a, {kind} b', body)}({names[0]}, {names[1]})"
    raise RenderError(f"{op.name} on {dtype.name}: no instruction; decompose it first")


def _on_integer(text: Text, op: Op, dtype: DType, names: list[str], unsigned: bool) -> str:
    kind = register_type(dtype)
    wide = "u64" if dtype.bits == 64 else "u32"
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
    return text.helper(name, f"static __device__ __forceinline__ {result} {name}({parameters}) {body}")


def _unsigned(dtype: DType) -> str:
    return f"u{dtype.bits}"


def _shift(text: Text, op: Op, dtype: DType) -> str:
    """A count of the width or more gives 0, or the sign; a negative count is a huge one."""
    kind, same, width = register_type(dtype), _unsigned(dtype), dtype.bits
    wide = "u64" if width == 64 else "u32"
    if op is Op.SHL:
        body = f"{{ return ({same})n < {width} ? ({kind})(({wide})a << n) : ({kind})0; }}"
        return _helper(text, f"shl_{kind}", kind, f"{kind} a, {kind} n", body)
    if dtype.is_unsigned:
        body = f"{{ return n < {width} ? ({kind})(a >> n) : ({kind})0; }}"
    else:
        body = f"{{ return ({kind})(a >> (({same})n < {width} ? ({same})n : {width - 1})); }}"
    return _helper(text, f"shr_{kind}", kind, f"{kind} a, {kind} n", body)


def _divide(text: Text, op: Op, dtype: DType, unsigned: bool) -> str:
    """Floor division and its remainder for every divisor: x // 0 = x % 0 = 0, and the least number // -1 wraps."""
    kind, same = register_type(dtype), _unsigned(dtype)
    word, sign = ("div", "/") if op is Op.FLOORDIV else ("mod", "%")
    if unsigned:
        body = f"{{ return b == 0 ? ({kind})0 : ({kind})(({same})a {sign} ({same})b); }}"
        return _helper(text, f"{word}_plain_{kind}", kind, f"{kind} a, {kind} b", body)
    wide = "u64" if dtype.bits == 64 else "u32"
    minus = f"({kind})(({wide})0 - ({wide})a)" if op is Op.FLOORDIV else f"({kind})0"
    moved = f"({kind})(a / b - 1) : ({kind})(a / b)" if op is Op.FLOORDIV else f"({kind})(r + b) : r"
    body = (
        "{\n"
        f"  if (b == 0) return 0;\n"
        f"  if (b == -1) return {minus};\n"
        f"  {kind} r = ({kind})(a % b);\n"
        f"  return r != 0 && (r ^ b) < 0 ? {moved};\n"
        "}"
    )
    return _helper(text, f"floor_{word}_{kind}", kind, f"{kind} a, {kind} b", body)


# -- conversions ----------------------------------------------------------------------------------------------------


def cast(text: Text, source: Operand, to: DType) -> str:
    """The value under another dtype: to bool tests for zero, float to integer saturates and NaN becomes 0.

    Raises RenderError for what becomes an 8-bit float.
    """
    name, of = source[0], source[1].scalar
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
        return cast(text, (f"__uint_as_float((u32){name} << 16)", single), to)
    if of is dtypes.float16:
        return cast(text, (f"{_from_half(text)}({name})", single), to)
    if to is dtypes.bfloat16:
        return f"{_to_bfloat16(text)}({cast(text, source, single)})"
    if to is dtypes.float16:
        return _to_half(text, name, of)
    kind = register_type(to)
    if to.is_bool:
        return f"({name}) != 0"
    if of.is_float and not to.is_float:
        return f"{_to_integer(text, of, to)}({name})"
    return f"({kind})({name})"


def _from_half(text: Text) -> str:
    body = '{ f32 r; asm("cvt.f32.f16 %0, %1;" : "=f"(r) : "h"(x)); return r; }'
    return _helper(text, "from_f16", "f32", "u16 x", body)


def _from_minifloat(text: Text, of: DType) -> str:
    """As float16: e5m2 is its upper half; e4m3 has a bit less of exponent, which counts 8 less."""
    if of is dtypes.fp8e5m2:
        return _helper(text, "from_e5m2", "u16", "u8 x", "{ return (u16)(x << 8); }")
    body = (
        "{\n"
        "  u16 r, bits = (u16)((x & 0x80) << 8 | (x & 0x7f) << 7);\n"
        '  asm("mul.rn.f16 %0, %1, %2;" : "=h"(r) : "h"(bits), "h"((u16)0x5c00));  // 256\n'
        "  return (x & 0x7f) == 0x7f ? (u16)0x7e00 : r;\n"
        "}"
    )
    return _helper(text, "from_e4m3", "u16", "u8 x", body)


def _to_half(text: Text, name: str, of: DType) -> str:
    """Rounded once, to nearest even: also from float64 and from integers."""
    letters = {"f32": "f", "f64": "d", "i32": "r", "u32": "r", "i64": "l", "u64": "l"}
    kind = register_type(of)
    if kind not in letters:  # narrower integers and bool fit in an int
        kind = "i32"
    body = (
        f'{{ u16 r; asm("cvt.rn.f16.{kind.replace("i", "s")} %0, %1;" : "=h"(r) : "{letters[kind]}"(x)); '
        "return r; }"
    )
    function = _helper(text, f"to_f16_{kind}", "u16", f"{kind} x", body)
    return f"{function}({name})"


def _to_bfloat16(text: Text) -> str:
    """Round to nearest even in integer arithmetic: exact for denormals too, and NaN stays NaN."""
    body = (
        "{\n"
        "  u32 bits = __float_as_uint(x);\n"
        "  return x != x ? (u16)0x7fc0 : (u16)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);\n"
        "}"
    )
    return _helper(text, "to_bf16", "u16", "f32 x", body)


def _to_integer(text: Text, of: DType, to: DType) -> str:
    """cvt.rzi saturates; what it makes of NaN depends on the sizes, so NaN is asked about."""
    kind, source = register_type(to), register_type(of)
    wide = kind if to.bits >= 32 else "i32"
    convert = f"__{'float' if source == 'f32' else 'double'}2{_FROM_FLOAT[wide]}_rz(x)"
    name = f"to_{kind}_{source}"
    if wide == kind:
        return _helper(text, name, kind, f"{source} x", f"{{ return x != x ? 0 : {convert}; }}")
    low, high = (0, (1 << to.bits) - 1) if to.is_unsigned else (-(1 << to.bits - 1), (1 << to.bits - 1) - 1)
    body = f"{{ i32 r = x != x ? 0 : {convert}; return r < {low} ? {low} : r > {high} ? {high} : r; }}"
    return _helper(text, name, kind, f"{source} x", body)


def _bitcast(text: Text, source: Operand, to: DType) -> str:
    name, of = source[0], source[1].scalar
    if of.is_bool or to.is_bool:
        return cast(text, source, to)
    kind, into = register_type(of), register_type(to)
    if kind == into:
        return name
    if kind == "f32":
        return f"({into})__float_as_uint({name})"
    if kind == "f64":
        return f"({into})__double_as_longlong({name})"
    if into == "f32":
        return f"__uint_as_float((u32){name})"
    if into == "f64":
        return f"__longlong_as_double((i64){name})"
    return f"({into}){name}"
