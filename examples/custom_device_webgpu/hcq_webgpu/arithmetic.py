"""Arithmetic: an expression of WGSL for each operation, with the meaning that hcq/ir/op.py gives it.

In       an operation, dtypes, the expressions of its sources
Out      an expression; what takes more than that is a function of HELPERS, written above kernels that call it
Next     codegen.py (statements, loops, memory), docs/semantics.md (the meanings)
Source   WGSL (W3C): 6.2 (types), 8.7 (arithmetic: integers wrap), 15.7 (floats: accuracy, and what may be assumed of
         them); naga: i64, u64 and f64

WGSL's integers have 32 bits, or 64 by wgpu-native's extension. Narrower ones are computed in 32 and cut to their width
again. WGSL lets a compiler assume that there are no NaN and no infinities, and Mesa's takes x == x for true; so whether
a number is NaN is asked of its bits.
"""

from __future__ import annotations

import math

from hcq.ir.dtype import DType, Scalar, to_bits, truncate
from hcq.ir.op import Op

_COMPARE = {Op.CMPLT: "<", Op.CMPLE: "<=", Op.CMPEQ: "==", Op.CMPNE: "!="}
_ON_BOOL = {
    **dict.fromkeys((Op.ADD, Op.MAX, Op.OR), "{0} | {1}"),
    **dict.fromkeys((Op.MUL, Op.MIN, Op.AND), "{0} & {1}"),
    **dict.fromkeys((Op.XOR, Op.CMPNE), "{0} != {1}"),
    Op.CMPEQ: "{0} == {1}",
    Op.CMPLT: "!{0} & {1}",
    Op.CMPLE: "!{0} | {1}",
    Op.NOT: "!{0}",
}
_SYMBOL = {Op.ADD: "+", Op.MUL: "*", Op.DIV: "/", Op.AND: "&", Op.OR: "|", Op.XOR: "^"}
_SUFFIX = {"i32": "i", "u32": "u", "i64": "li", "u64": "lu"}
_NAN = {
    "f32": "(bitcast<u32>(x) & 0x7fffffffu) > 0x7f800000u",
    "f64": "(bitcast<u64>(x) & 0x7ffffffffffffffflu) > 0x7ff0000000000000lu",
}


def register_type(dtype: DType) -> str:
    """The type of a value. Floats of fewer than 32 bits are their bits: the compiler computes them in float32."""
    if dtype.is_bool:
        return "bool"
    if dtype.is_float and dtype.bits >= 32:
        return f"f{dtype.bits}"
    return f"{'u' if dtype.is_unsigned or dtype.is_float else 'i'}{max(32, dtype.bits)}"


def literal(value: Scalar, dtype: DType) -> str:
    """A number, exact."""
    kind = register_type(dtype)
    if dtype.is_bool:
        return "true" if value else "false"
    if kind[0] == "f":
        number, bits = float(truncate(value, dtype)), to_bits(value, dtype)
        if math.isfinite(number) and (number == 0 or abs(number) >= 2.0**-126):
            return f"({number!r}{'f' if kind == 'f32' else 'lf'})"
        return f"{kind}_of({bits:#x}{'u' if kind == 'f32' else 'lu'})"
    whole = to_bits(value, dtype) if dtype.is_float else int(truncate(value, dtype))
    suffix = _SUFFIX[kind]
    if whole == -(1 << dtype.bits - 1) and dtype.bits >= 32:
        return f"({whole + 1}{suffix} - 1{suffix})"  # the number without its sign does not fit
    return f"({whole}{suffix})" if whole < 0 else f"{whole}{suffix}"


def spell(op: Op, dtype: DType, of: DType, names: list[str], known: int | None, is_plain: bool) -> str:
    """An operation on values of dtype `of`, the second and third where there are two.

    known     what the second is, if that is a number
    is_plain  no source is negative
    Raises    ValueError for what WGSL has no words for; the compiler says it in other operations
    """
    a, b = names[0], names[1] if len(names) > 1 else ""
    kind = register_type(of)
    if op is Op.CAST:
        return _cast(a, of, dtype)
    if op is Op.BITCAST:
        return _cut(_bitcast(a, of, dtype), dtype)
    if op is Op.WHERE:
        return f"select({names[2]}, {b}, {a})"
    if of.is_bool and op in _ON_BOOL:
        return _ON_BOOL[op].format(a, b)
    if (
        op in _COMPARE and kind[0] == "f" and op is not Op.CMPLT
    ):  # of x with itself, too, where compilers fold it
        nan = f"| nan_{kind}({a}) | nan_{kind}({b})" if op is Op.CMPNE else f"& !nan_{kind}({a})"
        return f"({a} {_COMPARE[op]} {b}) {nan}"
    if op in _COMPARE:
        return f"{a} {_COMPARE[op]} {b}"
    if kind[0] == "f":
        return _on_floats(op, of, kind, a, b)
    if of.is_float:
        raise ValueError(f"[render] WGSL has no {op.name} on {of.name}")
    return _on_integers(op, of, kind, a, b, known, is_plain)


def _on_floats(op: Op, of: DType, kind: str, a: str, b: str) -> str:
    if op in (Op.ADD, Op.MUL, Op.DIV):
        return f"{a} {_SYMBOL[op]} {b}"
    if op is Op.NEG:
        return f"-({a})"
    if op in (Op.SQRT, Op.TRUNC):
        return f"{op.name.lower()}({a})"
    if op in (Op.MAX, Op.MIN):
        return f"{op.name.lower()}_{kind}({a}, {b})"
    raise ValueError(f"[render] WGSL has no {op.name} on {of.name}")


def _on_integers(op: Op, of: DType, kind: str, a: str, b: str, known: int | None, is_plain: bool) -> str:
    if op in (Op.ADD, Op.MUL):
        return _cut(f"({a} {_SYMBOL[op]} {b})", of)
    if op in (Op.AND, Op.OR, Op.XOR):
        return f"{a} {_SYMBOL[op]} {b}"
    if op is Op.NEG:
        return _cut(f"(0{_SUFFIX[kind]} - {a})", of)
    if op is Op.NOT:
        return _cut(f"~{a}", of)
    if op in (Op.MAX, Op.MIN):
        return f"select({b}, {a}, {a} {'>' if op is Op.MAX else '<'} {b})"
    if op in (Op.SHL, Op.SHR) and known is not None and 0 <= known < of.bits:
        shifted = f"({a} {'<<' if op is Op.SHL else '>>'} {known}u)"
        return _cut(shifted, of) if op is Op.SHL else shifted
    if op is Op.SHL:
        return _cut(f"shl_{kind}({a}, {b}, {of.bits}u)", of)
    if op is Op.SHR:
        return f"shr_{kind}({a}, {b}, {of.bits}u)"
    if op in (Op.FLOORDIV, Op.MOD):
        word, symbol = ("div", "/") if op is Op.FLOORDIV else ("mod", "%")
        if known is not None and known > 0 and (is_plain or of.is_unsigned):
            return f"{a} {symbol} {b}"
        return _cut(f"{word}_{kind}({a}, {b})", of)  # the least number by -1 leaves its width
    raise ValueError(f"[render] WGSL has no {op.name} on {of.name}")


def _cut(a: str, to: DType) -> str:
    """The lowest bits of an integer, as its dtype has them."""
    if to.is_bool or to.bits >= 32:
        return a
    return f"extractBits({a}, 0u, {to.bits}u)"


def _cast(a: str, of: DType, to: DType) -> str:
    """To bool: whether it is not zero; float to integer: towards zero, saturating, and NaN becomes 0."""
    kind, into = register_type(of), register_type(to)
    if of.is_bool:
        return a if to.is_bool else f"select({literal(0, to)}, {literal(1, to)}, {a})"
    if to.is_bool:
        zero = literal(0, of)
        return f"({a} != {zero}) | nan_{kind}({a})" if kind[0] == "f" else f"{a} != {zero}"
    if kind[0] == "f" and into[0] != "f":
        low, high = int(to.min), int(to.max)
        return f"{into}_from_{kind}({a}, {literal(low, to)}, {literal(high, to)})"
    if kind[0] == "f" or into[0] == "f":
        return f"{into}({a})"
    return _cut(_resize(a, kind, into), to)


def _resize(a: str, kind: str, into: str) -> str:
    """An integer in another type, its value kept or its upper bits dropped."""
    if kind == into:
        return a
    if kind[1:] != into[1:]:
        kind, a = kind[0] + into[1:], f"{kind[0]}{into[1:]}({a})"
        a = widened(a) if kind == "i64" else a
    return a if kind == into else f"bitcast<{into}>({a})"


def widened(a: str) -> str:
    """An i64 that was a narrower number: Mesa 22.3 compares such a one with a constant wrongly, if it sees that."""
    return f"seal_i64({a})"


def _bitcast(a: str, of: DType, to: DType) -> str:
    kind, into = register_type(of), register_type(to)
    if "bool" in (kind, into):
        return _cast(a, of, to)
    return a if kind == into else f"bitcast<{into}>({a})"


def helpers(text: str) -> list[str]:
    """The functions that a kernel's text calls, and those that these call."""
    found: dict[str, str] = {}
    while True:
        more = {name: body for name, body in HELPERS.items() if name not in found and f"{name}(" in text}
        if not more:
            return [body for name, body in HELPERS.items() if name in found]
        found.update(more)
        text += "".join(more.values())


def _of_floats(kind: str, bits: str) -> dict[str, str]:
    return {
        # by a function: as a constant expression an infinity or a NaN is an error
        f"{kind}_of": f"fn {kind}_of(x: {bits}) -> {kind} {{ return bitcast<{kind}>(x); }}",
        f"nan_{kind}": f"fn nan_{kind}(x: {kind}) -> bool {{ return {_NAN[kind]}; }}",
        **{
            f"{word}_{kind}": f"""fn {word}_{kind}(a: {kind}, b: {kind}) -> {kind} {{
  if (nan_{kind}(a)) {{ return a; }}
  if (nan_{kind}(b)) {{ return b; }}
  return select(b, a, a {sign} b);
}}"""
            for word, sign in (("max", ">"), ("min", "<"))
        },
        **{
            # as a float `low` is itself; what is not below `high + 1`, a power of two, is too large
            f"{into}_from_{kind}": f"""fn {into}_from_{kind}(x: {kind}, low: {into}, high: {into}) -> {into} {{
  if (nan_{kind}(x)) {{ return {into}(0); }}
  if (x <= {kind}(low)) {{ return low; }}
  if (x >= {kind}(high / {into}(2) + {into}(1)) * {kind}(2)) {{ return high; }}
  return {into}(x);
}}"""
            for into in ("i32", "u32", "i64", "u64")
        },
    }


def _seal(kind: str, bits: str) -> dict[str, str]:
    """No optimiser sees through it: codegen.py says where that is wanted."""
    sealed = f"bitcast<{kind}>(bitcast<{bits}>(x) ^ {bits}(zero_))" if kind != bits else f"x ^ {bits}(zero_)"
    return {f"seal_{kind}": f"fn seal_{kind}(x: {kind}) -> {kind} {{ return {sealed}; }}"}


def _of_integers(kind: str) -> dict[str, str]:
    bits, width = f"u{kind[1:]}", int(kind[1:])
    zero, one = f"{kind}(0)", f"{kind}(1)"
    beyond = "u32(n)" if width == 32 else f"u32(min(bitcast<{bits}>(n), {bits}(64)))"
    beyond = beyond if kind[0] == "u" or width == 64 else "bitcast<u32>(n)"
    if kind == "u64":
        beyond = "u32(min(n, u64(64)))"
    last = zero if kind[0] == "u" else f"a >> {width - 1}u"
    made = {
        f"shl_{kind}": f"""fn shl_{kind}(a: {kind}, n: {kind}, width: u32) -> {kind} {{
  let by = {beyond};
  return select({zero}, a << (by % {width}u), by < width);
}}""",
        f"shr_{kind}": f"""fn shr_{kind}(a: {kind}, n: {kind}, width: u32) -> {kind} {{
  let by = {beyond};
  return select({last}, a >> (by % {width}u), by < width);
}}""",
    }
    for word, symbol in (("div", "/"), ("mod", "%")):
        head = (
            f"fn {word}_{kind}(a: {kind}, b: {kind}) -> {kind} {{\n  if (b == {zero}) {{ return {zero}; }}\n"
        )
        if kind[0] == "u":
            made[f"{word}_{kind}"] = f"{head}  return a {symbol} b;\n}}"
            continue
        by_minus_one = f"{zero} - a" if word == "div" else zero
        down, plain = ("q - " + one, "q") if word == "div" else ("r + b", "r")
        made[f"{word}_{kind}"] = f"""{head}  if (b == {kind}(-1)) {{ return {by_minus_one}; }}
  let q = a / b;
  let r = a - q * b;
  return select({plain}, {down}, (r != {zero}) & ((r ^ b) < {zero}));
}}"""
    return made


HELPERS = {
    **_seal("f32", "u32"),
    **_seal("f64", "u64"),
    **_seal("i64", "i64"),
    **_of_floats("f32", "u32"),
    **_of_floats("f64", "u64"),
    **_of_integers("i32"),
    **_of_integers("u32"),
    **_of_integers("i64"),
    **_of_integers("u64"),
}
