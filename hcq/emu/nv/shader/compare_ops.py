"""Comparing and choosing: setp, set, selp, slct.

In       Code
Out      steps
Next     float_ops.py, integer_ops.py
Source   PTX ISA, "Comparison and Selection Instructions"
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from hcq.emu.nv.shader import floats
from hcq.emu.nv.shader.decode import Code, Registers, Rules, Step
from hcq.emu.nv.shader.groups import Group
from hcq.emu.nv.shader.types import TYPES, Lanes, Type
from hcq.emu.shader.bits import contiguous

RULES = Rules()
Compare = Callable[[Lanes, Lanes], Lanes]
PRED = TYPES["pred"]

ORDERED: dict[str, Compare] = {
    "eq": lambda a, b: a == b,
    "ne": lambda a, b: a != b,
    "lt": lambda a, b: a < b,
    "le": lambda a, b: a <= b,
    "gt": lambda a, b: a > b,
    "ge": lambda a, b: a >= b,
}
UNSIGNED = {"lo": "lt", "ls": "le", "hi": "gt", "hs": "ge"}
FLOAT: dict[str, Compare] = {
    **ORDERED,
    "ne": lambda a, b: (a < b) | (a > b),  # false when one is NaN
    "equ": lambda a, b: ~((a < b) | (a > b)),
    "neu": lambda a, b: a != b,
    "ltu": lambda a, b: ~(a >= b),
    "leu": lambda a, b: ~(a > b),
    "gtu": lambda a, b: ~(a <= b),
    "geu": lambda a, b: ~(a < b),
    "num": lambda a, b: ~(np.isnan(a) | np.isnan(b)),
    "nan": lambda a, b: np.isnan(a) | np.isnan(b),
}
COMBINE: dict[str, Compare] = {"and": lambda a, b: a & b, "or": lambda a, b: a | b, "xor": lambda a, b: a ^ b}
RESULT_TYPES = ("u32", "s32", "f32", "f16", "bf16", "f16x2", "bf16x2", "u16", "s16")


def _comparison(code: Code, type_: Type, name: str, ftz: bool) -> Compare:
    """Register bits of both operands to the truth of the comparison."""
    if type_.is_float:
        if name not in FLOAT:
            raise code.refuse(f"floats have no comparison .{name}")
        compare, read = FLOAT[name], floats.reader(type_)
        if ftz and type_.name == "f32":
            return lambda a, b: compare(floats.flush(read(a)), floats.flush(read(b)))
        return lambda a, b: compare(read(a), read(b))
    name = UNSIGNED.get(name, name)
    if name not in ORDERED:
        raise code.refuse(f"integers have no comparison .{name}")
    compare = ORDERED[name]
    if type_.kind != "s":
        return compare
    scalar = type_.scalar
    return lambda a, b: compare(a.view(scalar), b.view(scalar))


@RULES.on("setp")
def setp(code: Code) -> Step:
    """p|q = comparison and its opposite, each combined with a predicate if one is given."""
    name = code.take(*FLOAT, *UNSIGNED)
    combine = code.take(*COMBINE)
    ftz = code.flag("ftz")
    type_ = code.type()
    compare = _comparison(code, type_, name, ftz)
    code.expect(4 if combine else 3)
    first, second = code.pair(code.operands[0])
    a, b = code.source(1, type_), code.source(2, type_)
    destination = code.destination(first, PRED)
    if not combine and second is None and type_.packed == 1:
        return code.pure(compare, destination, a, b)
    write = code.writer(destination)
    write_second = None if second is None else code.writer(code.destination(second, PRED))
    mix = COMBINE[combine] if combine else None
    other = code.predicate(code.operands[3]) if combine else None

    def step(registers: Registers, group: Group) -> None:
        found = compare(registers[a], registers[b])
        if type_.packed == 2:  # one predicate per half
            found, opposite = found[:, 0], found[:, 1]
        else:
            opposite = ~found
        if mix is not None and other is not None:
            extra = other(registers)
            found, opposite = mix(found, extra), mix(opposite, extra)
        write(registers, group, found)
        if write_second is not None:
            write_second(registers, group, opposite)

    return step


@RULES.on("set")
def set_(code: Code) -> Step:
    """All ones or 1.0 where the comparison holds, else 0."""
    name = code.take(*FLOAT, *UNSIGNED)
    combine = code.take(*COMBINE)
    ftz = code.flag("ftz")
    result, type_ = code.type(*RESULT_TYPES), code.type()
    compare = _comparison(code, type_, name, ftz)
    code.expect(4 if combine else 3)
    ones = {"f32": 0x3F800000, "f16": 0x3C00, "bf16": 0x3F80, "f16x2": 0x3C00, "bf16x2": 0x3F80}
    half = result.packed == 2 or type_.packed == 2
    scalar = np.uint16 if half else result.bits
    true = scalar(ones.get(result.name, np.iinfo(scalar).max))
    a, b = code.source(1, type_), code.source(2, type_)
    write = code.result(result)
    mix = COMBINE[combine] if combine else None
    other = code.predicate(code.operands[3]) if combine else None

    def step(registers: Registers, group: Group) -> None:
        found = compare(registers[a], registers[b])
        if mix is not None and other is not None:
            extra = other(registers)
            found = mix(found, extra[:, None] if half else extra)
        value = np.where(found, true, scalar(0))
        write(registers, group, contiguous(value).view(result.bits).reshape(-1))

    return step


@RULES.on("selp")
def selp(code: Code) -> Step:
    """`selp`: one of two values, by a predicate."""
    type_ = code.type()
    code.expect(4)
    a, b = code.source(1, type_), code.source(2, type_)
    write = code.result(type_)
    choose = code.predicate(code.operands[3])
    return lambda registers, group: write(
        registers, group, np.where(choose(registers), registers[a], registers[b])
    )


@RULES.on("slct")
def slct(code: Code) -> Step:
    """a where c >= 0 (not NaN, and -0 counts), else b."""
    ftz = code.flag("ftz")
    type_, sign = code.type(), code.type("s32", "f32")

    def compute(x: Lanes, y: Lanes, z: Lanes) -> Lanes:
        value = z.view(sign.scalar)
        if ftz and sign.is_float:
            value = floats.flush(value)
        return np.where(value >= 0, x, y)

    return code.step(compute, type_, type_, type_, sign)
