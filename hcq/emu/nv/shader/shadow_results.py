"""Shadows of results: what is unwritten of what an instruction computes, from the shadows of its sources.

In       the Code of an instruction that computes a register from others
Out      `compute`: what it makes of shadows; None: what it writes is written
Next     shadows.py (where shadows are), init_steps.py (who asks), hcq/emu/shader/shadow_bits.py (which bits)
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from hcq.emu.nv.shader.decode import Code, Lowering, Registers
from hcq.emu.nv.shader.groups import Group
from hcq.emu.nv.shader.shadows import Follow, Unwritten
from hcq.emu.nv.shader.syntax import Immediate, Operand, Register
from hcq.emu.nv.shader.types import TYPES, Lanes, Type
from hcq.emu.shader import shadow_bits
from hcq.emu.shader.unwritten import Read

COPIES = ("mov", "cvta", "not")
SUMS = ("add", "sub", "mul", "mad", "neg")  # of integers, of which the low half is kept
WHOLE = (
    "add", "sub", "mul", "mad", "fma", "div", "rem", "min", "max", "neg", "abs", "sqrt", "rcp", "rsqrt", "ex2", "lg2",
    "sin", "cos", "tanh", "popc", "clz", "bfind", "cvt", "copysign",
)  # fmt: skip
OTHERS = ("shfl", "prmt", "brev")  # shadow_moves.py has them


def compute(code: Code, lowering: Lowering) -> Follow | None:
    """An instruction that computes one register from others."""
    one = code.instruction
    operands, opcode, modifiers = one.operands, one.opcode, set(one.modifiers)
    if not operands or not isinstance(operands[0], Register) or "cc" in modifiers:
        return None
    target = lowering.register(operands[0].name)
    types = [TYPES[name] for name in one.modifiers if name in TYPES]
    if target is None or not types or any(type_.packed > 1 or type_.kind == "x" for type_ in types):
        return None
    if not all(isinstance(x, (Register, Immediate)) for x in operands[1:]) or opcode in OTHERS:
        return None
    values = [_value(code, lowering, x, types[-1], index) for index, x in enumerate(operands[1:])]
    if any(value is None for value in values):
        return None
    slots = [slot for slot in values if slot is not None]
    compute = _formula(opcode, modifiers, types, lowering.decoded.first[target].dtype)
    count = 3 if modifiers & BOTH else 2
    if compute is None or (opcode == "setp" and len(slots) != count):
        return None
    computes = opcode in WHOLE and not (opcode == "cvt" and all(type_.is_integer for type_ in types))

    def follow(
        unwritten: Unwritten, registers: Registers, group: Group
    ) -> list[tuple[int, Any, Read | None]]:
        known = [unwritten.of(slot) for slot in slots]
        origin = next((each[1] for each in known if each is not None), None)
        if origin is None:
            return []
        read = [registers[slot] for slot in slots]
        shadows = [np.zeros(1, v.dtype) if each is None else each[0] for each, v in zip(known, read)]
        return [(target, compute(read, shadows), origin.computed() if computes else origin)]

    return follow


def _value(code: Code, lowering: Lowering, operand: Operand, type_: Type, index: int) -> int | None:
    """The slot of a source."""
    if isinstance(operand, Register):
        return None if operand.negated or operand.part or operand.minus else lowering.register(operand.name)
    is_count = code.instruction.opcode in ("shl", "shr") and index == 1
    return code.slot(operand, TYPES["u32"] if is_count else type_)


BOTH = {"and", "or", "xor"}  # what setp makes of its compare and another predicate
Formula = Callable[[list[Lanes], list[Lanes]], Lanes]


def _formula(opcode: str, modifiers: set[str], types: list[Type], dtype: Any) -> Formula | None:
    """The shadow of a result, from values and shadows of sources."""
    first, is_integer = types[0], all(type_.is_integer for type_ in types)
    if opcode in COPIES:
        return lambda values, shadows: shadows[0].astype(dtype)
    if opcode == "cvt" and is_integer and "sat" not in modifiers:
        return _converted(types, dtype)
    if opcode == "and":
        return lambda v, s: shadow_bits.of_and(v[0], v[1], s[0], s[1])
    if opcode == "or":
        return lambda v, s: shadow_bits.of_or(v[0], v[1], s[0], s[1])
    if opcode == "xor":
        return lambda v, s: s[0] | s[1]
    if opcode == "lop3":
        return _table
    if opcode == "selp":
        return lambda v, s: shadow_bits.of_choice(v[2], v[0], v[1], s[2], s[0], s[1]) if len(v) == 3 else s[0]
    if opcode in ("shl", "shr"):
        return _shifted(opcode == "shl", first, dtype)
    if opcode == "setp":
        return _compared(modifiers, first)
    if opcode in SUMS and is_integer and "hi" not in modifiers and "sat" not in modifiers:
        return lambda v, s: shadow_bits.upwards(_either([each.astype(dtype) for each in s]))
    if opcode in WHOLE:
        return lambda v, s: shadow_bits.whole(_either([each != 0 for each in s]), dtype)
    return None


def _either(shadows: list[Lanes]) -> Lanes:
    found = shadows[0]
    for each in shadows[1:]:
        found = found | each
    return found


def _converted(types: list[Type], dtype: Any) -> Formula:
    """cvt.to.from of integers: the bits of the source, extended."""
    source, kind = types[-1], np.dtype(types[-1].scalar)

    def compute(values: list[Lanes], shadows: list[Lanes]) -> Lanes:
        low = shadows[0].astype(source.bits)
        wide = low.view(kind).astype(np.dtype(f"i{np.dtype(dtype).itemsize}")) if source.kind == "s" else low
        return wide.astype(dtype)

    return compute


def _shifted(is_left: bool, type_: Type, dtype: Any) -> Formula:
    """Shifts by what was written; by anything else, the whole."""
    top = type_.width - 1

    def compute(values: list[Lanes], shadows: list[Lanes]) -> Lanes:
        count = np.minimum(values[1], top).astype(dtype)
        moved = (
            shadows[0] << count
            if is_left
            else (shadows[0].view(type_.scalar) >> count.view(type_.scalar)).view(dtype)
        )
        if type_.kind != "s" or is_left:
            moved = np.where(values[1] > top, np.zeros(1, dtype)[0], moved)
        return moved | shadow_bits.whole(shadows[1], dtype)

    return compute


def _compared(modifiers: set[str], type_: Type) -> Formula | None:
    """setp, of which the other result is the opposite."""
    if combine := modifiers & BOTH:
        alone = _compared(modifiers - BOTH, type_)
        return None if alone is None else _combined(combine.pop(), alone)
    if not type_.is_integer:
        return lambda v, s: (s[0] != 0) | (s[1] != 0)
    is_equality, is_signed = bool(modifiers & {"eq", "ne"}), type_.kind == "s"

    def compute(values: list[Lanes], shadows: list[Lanes]) -> Lanes:
        a, b = values
        return shadow_bits.of_comparison(a, b, shadows[0], shadows[1], is_equality, is_signed)

    return compute


def _combined(how: str, alone: Formula) -> Formula:
    """setp with one more predicate: unwritten where the compare is, and the predicate does not decide alone."""
    if how == "xor":
        return lambda v, s: alone(v[:2], s[:2]) | s[2]
    is_and = how == "and"
    return lambda v, s: alone(v[:2], s[:2]) & (s[2] | (v[2] if is_and else ~v[2]))


def _table(values: list[Lanes], shadows: list[Lanes]) -> Lanes:
    """lop3: a function of three bits."""
    rows = int(values[3][0])

    def function(*bits: Lanes) -> Lanes:
        found = np.zeros(1, np.uint32)
        for row in range(8):
            if rows >> row & 1:
                a, b, c = (bit if row & place else ~bit for bit, place in zip(bits, (4, 2, 1)))
                found = found | (a & b & c)
        return found

    return shadow_bits.of_function(function, values[:3], shadows[:3])
