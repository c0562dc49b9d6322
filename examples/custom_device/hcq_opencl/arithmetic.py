"""Arithmetic: an expression of OpenCL C for each operation, with the meaning that hcq/ir/op.py gives it.

In       an operation, dtypes, the expressions of its sources
Out      an expression; what C leaves undefined is a function of PRELUDE
Next     codegen.py (statements, loops, memory), docs/semantics.md (the meanings)
Source   OpenCL C 1.2 specification: 6.2.3 (conversions, _sat and _rtz), 6.2.4 (as_TYPE), 6.12.2 (sqrt, trunc)
"""

from __future__ import annotations

import math

from hcq.ir.dtype import DType, Scalar, to_bits, truncate
from hcq.ir.op import Op

# sums wrap in unsigned types; every shift and every division has a result
_SIGNED = """\
#define SIGNED(T, U, BITS) \\
  static T floor_div_##T(T a, T b) { \\
    if (b == 0) return 0; \\
    if (b == -1) return (T)((U)0 - (U)a); \\
    return (T)(a / b - (a % b != 0 && ((a % b) ^ b) < 0)); \\
  } \\
  static T floor_mod_##T(T a, T b) { \\
    if (b == 0 || b == -1) return 0; \\
    return (T)(a % b != 0 && ((a % b) ^ b) < 0 ? a % b + b : a % b); \\
  } \\
  static T shl_##T(T a, T n) { return n < 0 || n >= BITS ? (T)0 : (T)((U)a << n); } \\
  static T shr_##T(T a, T n) { return (T)(a >> (n < 0 || n >= BITS ? (T)(BITS - 1) : n)); }"""
_UNSIGNED = """\
#define UNSIGNED(T, U, BITS) \\
  static T floor_div_##T(T a, T b) { return b == 0 ? (T)0 : (T)(a / b); } \\
  static T floor_mod_##T(T a, T b) { return b == 0 ? (T)0 : (T)(a % b); } \\
  static T shl_##T(T a, T n) { return n >= BITS ? (T)0 : (T)((U)a << n); } \\
  static T shr_##T(T a, T n) { return n >= BITS ? (T)0 : (T)(a >> n); }"""
_SIZES = {"char": 8, "short": 16, "int": 32, "long": 64}
PRELUDE = "\n".join(
    [
        *(
            "#pragma OPENCL EXTENSION cl_khr_fp64 : enable",
            "#pragma OPENCL FP_CONTRACT ON",
            _SIGNED,
            _UNSIGNED,
        ),
        *[f"SIGNED({name}, u{'long' if size == 64 else 'int'}, {size})" for name, size in _SIZES.items()],
        *[f"UNSIGNED(u{name}, u{'long' if size == 64 else 'int'}, {size})" for name, size in _SIZES.items()],
    ]
)

_NAMES = {8: "char", 16: "short", 32: "int", 64: "long"}
_COMPARE = {Op.CMPLT: "<", Op.CMPLE: "<=", Op.CMPEQ: "==", Op.CMPNE: "!="}
_BOOL = {Op.ADD: "|", Op.MUL: "&", Op.MAX: "|", Op.MIN: "&", Op.AND: "&", Op.OR: "|", Op.XOR: "^"}
_BITWISE = {Op.AND: "&", Op.OR: "|", Op.XOR: "^"}
_WRAPS = {Op.ADD: "+", Op.MUL: "*"}
_CALLS = {Op.FLOORDIV: "floor_div", Op.MOD: "floor_mod", Op.SHL: "shl", Op.SHR: "shr"}
_FLOATS = {Op.ADD: "+", Op.MUL: "*", Op.DIV: "/"}


def register_type(dtype: DType) -> str:
    """The type of a value. Floats of fewer than 32 bits are their bits: the compiler computes them in float."""
    if dtype.is_bool:
        return "bool"
    if dtype.is_float and dtype.bits >= 32:
        return "float" if dtype.bits == 32 else "double"
    return ("u" if dtype.is_unsigned or dtype.is_float else "") + _NAMES[dtype.bits]


def memory_type(dtype: DType) -> str:
    """The type of an element in memory: a bool is a byte there."""
    return "uchar" if dtype.is_bool else register_type(dtype)


def literal(value: Scalar, dtype: DType) -> str:
    """A number, exact."""
    kind = register_type(dtype)
    if dtype.is_bool:
        return "true" if value else "false"
    if kind in ("float", "double"):
        bits = f"{to_bits(value, dtype):#x}"
        number = float(truncate(value, dtype))
        if math.isfinite(number):
            return f"{number!r}{'f' if kind == 'float' else ''}"
        return f"as_float({bits}u)" if kind == "float" else f"as_double({bits}ul)"
    whole = to_bits(value, dtype) if dtype.is_float else int(truncate(value, dtype))
    if whole == -(1 << dtype.bits - 1):
        return f"(({kind})({whole + 1}l - 1l))"  # C reads -2147483648 as the negative of a number that does not fit
    return f"(({kind}){whole}{'ul' if kind == 'ulong' else 'l' if dtype.bits == 64 else ''})"


def spell(op: Op, dtype: DType, of: DType, names: list[str], is_plain: bool = False) -> str:
    """An operation on values of dtype `of`, the second and third where there are two.

    is_plain  a division of what is not negative by a positive number: C's own
    Raises    ValueError for what OpenCL C has no words for; the compiler says it in other operations
    """
    a, b = names[0], names[1] if len(names) > 1 else ""
    kind = register_type(of)
    if op is Op.CAST:
        return _cast(a, of, dtype)
    if op is Op.BITCAST:
        into = register_type(dtype)
        return a if into == kind else _cast(a, of, dtype) if "bool" in (kind, into) else f"as_{into}({a})"
    if op is Op.WHERE:
        return f"{a} ? {b} : {names[2]}"
    if op in _COMPARE:
        return f"{a} {_COMPARE[op]} {b}"
    if kind == "bool" and (op is Op.NOT or op in _BOOL):
        return f"!{a}" if op is Op.NOT else f"{a} {_BOOL[op]} {b}"
    if op in (Op.MAX, Op.MIN):  # a NaN in `a` compares false and stays
        is_nan = f"{b} != {b} || " if of.is_float else ""
        return f"{is_nan}{a} {'<' if op is Op.MAX else '>'} {b} ? {b} : {a}"
    if of.is_float and op in _FLOATS:
        return f"{a} {_FLOATS[op]} {b}"
    if of.is_float and op in (Op.NEG, Op.SQRT, Op.TRUNC):
        return f"-({a})" if op is Op.NEG else f"{op.name.lower()}({a})"
    if not of.is_float:
        return _on_integers(op, of, kind, a, b, is_plain)
    raise ValueError(f"[render] OpenCL C has no {op.name} on {of.name}")


def _on_integers(op: Op, of: DType, kind: str, a: str, b: str, is_plain: bool) -> str:
    wide = "ulong" if of.bits == 64 else "uint"
    if op in _WRAPS:
        return f"({kind})(({wide}){a} {_WRAPS[op]} ({wide}){b})"
    if op in _BITWISE:
        return f"({kind})({a} {_BITWISE[op]} {b})"
    if op in (Op.NEG, Op.NOT):
        return f"({kind})~{a}" if op is Op.NOT else f"({kind})(({wide})0 - ({wide}){a})"
    if is_plain and op in (Op.FLOORDIV, Op.MOD):
        return f"{a} {'/' if op is Op.FLOORDIV else '%'} {b}"
    if op in _CALLS:
        return f"{_CALLS[op]}_{kind}({a}, {b})"
    raise ValueError(f"[render] OpenCL C has no {op.name} on {of.name}")


def _cast(a: str, of: DType, to: DType) -> str:
    """To bool: whether it is not zero; float to integer: towards zero, saturating, and NaN becomes 0."""
    kind = register_type(to)
    if to.is_bool:
        return f"{a} != 0"
    if of.is_float and not to.is_float:
        return f"convert_{kind}_sat_rtz({a})"
    return f"({kind}){a}"
