"""Integer arithmetic: add to mad, carries, division, minima, dot products.

In       Code with an integer type
Out      steps
Next     bit_ops.py (logic, shifts, fields), float_ops.py
Source   PTX ISA, "Integer Arithmetic Instructions", "Extended-Precision Integer Arithmetic Instructions"

What PTX leaves open is fixed: division by zero gives all ones, its remainder the dividend.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from hcq.emu.nv.shader import flow
from hcq.emu.nv.shader.decode import Code, Registers, Rules, Step
from hcq.emu.nv.shader.groups import Group
from hcq.emu.nv.shader.types import TYPES, Lanes, Type
from hcq.emu.shader.bits import contiguous

RULES = Rules()
Compute = Callable[..., Lanes]
WIDER = {"u16": "u32", "s16": "s32", "u32": "u64", "s32": "s64"}


def integer_step(code: Code, type_: Type, compute: Compute, count: int, result: Type | None = None) -> Step:
    """A step from a function of integers of this type; its values are seen signed or unsigned as the type says."""
    out = result or type_
    sources = [type_] * count
    if type_.packed > 1:
        return code.step(lambda *x: _parts(compute, type_, *x), out, *sources)
    if type_.kind != "s":
        return code.step(compute, out, *sources)
    signed, bits = type_.scalar, out.bits

    def seen_signed(*x: Lanes) -> Lanes:
        return compute(*[a.view(signed) for a in x]).view(bits)

    return code.step(seen_signed, out, *sources)


def _parts(compute: Compute, type_: Type, *x: Lanes) -> Lanes:
    """Halves, or bytes, of words."""
    found = compute(*[a.view(type_.scalar).reshape(-1, type_.packed) for a in x])
    return contiguous(found).view(np.uint32).reshape(-1)


def _limits(type_: Type) -> tuple[int, int]:
    info = np.iinfo(type_.scalar)
    return int(info.min), int(info.max)


@RULES.on("add", "sub")
def add_sub(code: Code) -> Step:
    """`add` and `sub` of integers, saturated or with the carry written, as asked."""
    subtracts = code.instruction.opcode == "sub"
    sat, carries = code.flag("sat"), code.flag("cc")
    type_ = code.type()
    if carries:
        return _with_carry(code, type_, subtracts, uses_carry=False, sets_carry=True)
    if sat:
        return integer_step(code, type_, lambda a, b: _saturated(a, b, subtracts), 2)
    compute: Compute = (lambda a, b: a - b) if subtracts else (lambda a, b: a + b)
    return integer_step(code, _wrapping(type_), compute, 2)


def _wrapping(type_: Type) -> Type:
    """The type without its sign: sums and low halves of products wrap alike."""
    return type_._replace(kind="b", scalar=type_.bits) if type_.packed == 1 else type_


def _saturated(a: Lanes, b: Lanes, subtracts: bool) -> Lanes:
    low, high = np.iinfo(a.dtype).min, np.iinfo(a.dtype).max
    wide = a.astype(np.int64) - b if subtracts else a.astype(np.int64) + b
    return np.clip(wide, low, high).astype(a.dtype)


@RULES.on("addc", "subc")
def addc_subc(code: Code) -> Step:
    """`addc` and `subc`: the carry is read."""
    sets = code.flag("cc")
    return _with_carry(
        code, code.type("u32", "s32", "u64", "s64"), code.instruction.opcode == "subc", True, sets
    )


def _carry_slot(code: Code) -> int:
    slot = code.lowering.register(flow.CARRY)
    assert slot is not None
    return slot


def _with_carry(code: Code, type_: Type, subtracts: bool, uses_carry: bool, sets_carry: bool) -> Step:
    """CC holds the carry of additions and, as the hardware does, the borrow of subtractions."""
    code.expect(3)
    a, b = code.source(1, type_), code.source(2, type_)
    write = code.result(type_)
    carry = _carry_slot(code)
    write_carry = code.writer(carry)
    bits = type_.bits

    def step(registers: Registers, group: Group) -> None:
        x, y = registers[a], registers[b]
        extra = registers[carry].astype(bits) if uses_carry else bits(0)
        if subtracts:
            value = x - y - extra
            out = (x < y) | ((x == y) & (extra != 0))
        else:
            first = x + y
            value = first + extra
            out = (first < x) | (value < first)
        write(registers, group, value)
        if sets_carry:
            write_carry(registers, group, out)

    return step


def high_half(a: Lanes, b: Lanes) -> Lanes:
    """The upper half of a product, for any integer array type."""
    if a.itemsize < 8:
        wide = np.int64 if a.dtype.kind == "i" else np.uint64
        return ((a.astype(wide) * b.astype(wide)) >> wide(8 * a.itemsize)).astype(a.dtype)
    x, y = a.view(np.uint64), b.view(np.uint64)
    mask, half = np.uint64(0xFFFFFFFF), np.uint64(32)
    xl, xh, yl, yh = x & mask, x >> half, y & mask, y >> half
    middle = xh * yl + ((xl * yl) >> half)
    cross = xl * yh + (middle & mask)
    found = xh * yh + (middle >> half) + (cross >> half)
    if a.dtype.kind == "i":
        found = found - np.where(a < 0, y, np.uint64(0)) - np.where(b < 0, x, np.uint64(0))
    return found.view(a.dtype)


def _widened(type_: Type, code: Code) -> Type:
    if type_.name not in WIDER:
        raise code.refuse(f".wide does not go with .{type_.name}")
    return TYPES[WIDER[type_.name]]


@RULES.on("mul")
def mul(code: Code) -> Step:
    """`mul` of integers: the low half, the high half, or all."""
    which = code.take("lo", "hi", "wide")
    type_ = code.type()
    if which == "wide":
        wide = _widened(type_, code)
        scalar = wide.scalar
        return integer_step(code, type_, lambda a, b: np.multiply(a, b, dtype=scalar), 2, wide)
    if which == "hi":
        return integer_step(code, type_, high_half, 2)
    return integer_step(code, _wrapping(type_), lambda a, b: a * b, 2)


@RULES.on("mad")
def mad(code: Code) -> Step:
    """`mad` of integers: such a product, and a sum."""
    which = code.take("lo", "hi", "wide")
    sat, carries = code.flag("sat"), code.flag("cc")
    type_ = code.type()
    if which == "wide":
        wide = _widened(type_, code)
        scalar, bits = type_.scalar, wide.bits

        def compute(x: Lanes, y: Lanes, z: Lanes) -> Lanes:
            return np.multiply(x.view(scalar), y.view(scalar), dtype=wide.scalar).view(bits) + z

        return code.step(compute, wide, type_, type_, wide)
    if carries:
        return _mad_with_carry(code, type_, which, False, True)
    if which == "hi" and sat:
        low, high = _limits(type_)

        def saturated(a: Lanes, b: Lanes, c: Lanes) -> Lanes:
            return np.clip(high_half(a, b).astype(np.int64) + c, low, high).astype(a.dtype)

        return integer_step(code, type_, saturated, 3)
    if which == "hi":
        return integer_step(code, type_, lambda a, b, c: high_half(a, b) + c, 3)
    return integer_step(code, _wrapping(type_), lambda a, b, c: a * b + c, 3)


@RULES.on("madc")
def madc(code: Code) -> Step:
    """`madc`: such a product, a sum, and the carry."""
    which = code.take("lo", "hi")
    sets = code.flag("cc")
    return _mad_with_carry(code, code.type(), which, True, sets)


def _mad_with_carry(code: Code, type_: Type, which: str, uses_carry: bool, sets_carry: bool) -> Step:
    code.expect(4)
    a, b, c = (code.source(i, type_) for i in (1, 2, 3))
    write = code.result(type_)
    carry = _carry_slot(code)
    write_carry = code.writer(carry)
    scalar, bits = type_.scalar, type_.bits

    def step(registers: Registers, group: Group) -> None:
        x, y, z = registers[a].view(scalar), registers[b].view(scalar), registers[c]
        product = (high_half(x, y) if which == "hi" else x * y).view(bits)
        extra = registers[carry].astype(bits) if uses_carry else bits(0)
        first = product + z
        value = first + extra
        write(registers, group, value)
        if sets_carry:
            write_carry(registers, group, (first < product) | (value < first))

    return step


@RULES.on("mul24", "mad24")
def mul24(code: Code) -> Step:
    """`mul24` and `mad24`: products of the low 24 bits."""
    which = code.take("lo", "hi")
    sat = which == "hi" and code.flag("sat")
    type_ = code.type("s32") if sat else code.type("u32", "s32")
    wide = np.int64 if type_.kind == "s" else np.uint64
    adds = code.instruction.opcode == "mad24"
    if sat and not adds:
        raise code.refuse("only mad24.hi.s32 saturates")

    def compute(*x: Lanes) -> Lanes:
        a, b = (((v.astype(wide) << wide(40)) >> wide(40)) for v in x[:2])
        product = ((a * b) >> wide(16 if which == "hi" else 0)).astype(type_.scalar)
        if sat:
            return np.clip(product.astype(np.int64) + x[2], *_limits(type_)).astype(type_.scalar)
        return product + x[2] if adds else product

    return integer_step(code, type_, compute, 3 if adds else 2)


def quotient(a: Lanes, b: Lanes) -> Lanes:
    """Rounded toward zero; all ones where b is 0."""
    zero = b == 0
    safe = np.where(zero, b.dtype.type(1), b) if zero.any() else b
    if a.dtype.kind == "i":
        down = a // safe
        value = down + ((down * safe != a) & ((a < 0) != (safe < 0))).astype(a.dtype)
        return np.where(zero, a.dtype.type(-1), value)
    return np.where(zero, ~a.dtype.type(0), a // safe)


def remainder(a: Lanes, b: Lanes) -> Lanes:
    """With the sign of the dividend; the dividend where b is 0."""
    zero = b == 0
    safe = np.where(zero, b.dtype.type(1), b) if zero.any() else b
    if a.dtype.kind == "i":
        return np.where(zero, a, np.fmod(a, safe))
    return np.where(zero, a, a % safe)


SIMPLE: dict[str, tuple[Compute, int]] = {  # functions of so many operands
    "div": (quotient, 2),
    "rem": (remainder, 2),
    "neg": (lambda a: a.dtype.type(0) - a, 1),
    "abs": (np.abs, 1),
    "sad": (lambda a, b, c: np.where(a < b, b - a, a - b) + c, 3),
}


@RULES.on(*SIMPLE)
def simple(code: Code) -> Step:
    """The instructions of SIMPLE: a function of NumPy's or ours, element by element."""
    return integer_step(code, code.type(), *SIMPLE[code.instruction.opcode])


@RULES.on("min", "max")
def min_max(code: Code) -> Step:
    """`min` and `max` of integers; with `.relu` at least 0."""
    choose = np.minimum if code.instruction.opcode == "min" else np.maximum
    relu = code.flag("relu")
    compute: Compute = (lambda a, b: np.maximum(choose(a, b), a.dtype.type(0))) if relu else choose
    return integer_step(code, code.type(), compute, 2)


@RULES.on("dp4a", "dp2a")
def dot(code: Code) -> Step:
    """Dot product of four bytes with four bytes, or of two halfwords with two of four bytes, added to c."""
    is_dp4a = code.instruction.opcode == "dp4a"
    upper = code.take("lo", "hi") == "hi"
    a_type, b_type = code.type("u32", "s32"), code.type("u32", "s32")
    result = TYPES["s32" if "s" in (a_type.kind, b_type.kind) else "u32"]
    byte = {"u": np.uint8, "s": np.int8}
    word = {"u": np.uint16, "s": np.int16}

    def compute(a: Lanes, b: Lanes, c: Lanes) -> Lanes:
        y = b.view(byte[b_type.kind]).reshape(-1, 4).astype(np.int64)
        if is_dp4a:
            x = a.view(byte[a_type.kind]).reshape(-1, 4).astype(np.int64)
        else:
            x = a.view(word[a_type.kind]).reshape(-1, 2).astype(np.int64)
            y = y[:, 2:] if upper else y[:, :2]
        return ((x * y).sum(axis=1) + c.astype(np.int64)).astype(np.uint32)

    return code.step(compute, result, a_type, b_type, result)
