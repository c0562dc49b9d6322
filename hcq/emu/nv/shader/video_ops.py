"""Video instructions: on one byte, halfword or word of each operand, or on all of a register at once.

In       Code such as vadd.s32.u32.u32.sat.min d, a.b1, b.h0, c, or vabsdiff4.u32.u32.u32.add d, a, b, c
Out      steps
Next     integer_ops.py (dp4a)
Source   PTX ISA, "Video Instructions": "Scalar Video Instructions", "SIMD Video Instructions"
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from hcq.emu.nv.shader.compare_ops import ORDERED
from hcq.emu.nv.shader.decode import Code, Rules, Step
from hcq.emu.nv.shader.syntax import Register
from hcq.emu.nv.shader.types import TYPES, Lanes

RULES = Rules()
OPERATIONS: dict[str, Callable[[Lanes, Lanes], Lanes]] = {
    "vadd": lambda a, b: a + b,
    "vsub": lambda a, b: a - b,
    "vabsdiff": lambda a, b: np.abs(a - b),
    "vmin": np.minimum,
    "vmax": np.maximum,
}
SIMD_OPERATIONS = {**OPERATIONS, "vavrg": lambda a, b: (a + b + (a + b >= 0)) >> 1}  # rounded away from zero
SHIFTS: dict[str, Callable[[Any, Any], Any]] = {"vshl": lambda a, b: a << b, "vshr": lambda a, b: a >> b}
SECOND: dict[str, Callable[[Lanes, Lanes], Lanes]] = {
    "add": lambda a, b: a + b,
    "min": np.minimum,
    "max": np.maximum,
}
# what a selector picks: (first bit, bits)
PIECES = {"": (0, 32), **{f"b{i}": (8 * i, 8) for i in range(4)}, **{f"h{i}": (16 * i, 16) for i in range(2)}}
PARTS = {"2": (np.uint16, np.int16), "4": (np.uint8, np.int8)}
LETTERS = {"2": "h", "4": "b"}
B32 = TYPES["b32"]


# -- one piece of each operand


def _bare(code: Code, index: int) -> tuple[str, bool]:
    """The selector of an operand, and whether a minus stands before it; what is left is the register."""
    operand = code.operands[index] if index < len(code.operands) else None
    if not isinstance(operand, Register):
        return "", False
    code.operands[index] = Register(operand.name, operand.negated)
    return operand.part, operand.minus


def _piece_of(code: Code, index: int) -> tuple[tuple[int, int], bool]:
    part, minus = _bare(code, index)
    if part not in PIECES:
        raise code.refuse(f"the selector .{part} is none of .b0 to .b3, .h0, .h1")
    return PIECES[part], minus


def _read(values: Lanes, piece: tuple[int, int], is_signed: bool) -> Lanes:
    """A piece of every register as int64, with its sign if it has one."""
    first, bits = piece
    found = (values.astype(np.int64) >> first) & ((1 << bits) - 1)
    return found - ((found >> (bits - 1)) << bits) if is_signed else found


def _limits(is_signed: bool, bits: int) -> tuple[int, int]:
    return (-(1 << bits - 1), (1 << bits - 1) - 1) if is_signed else (0, (1 << bits) - 1)


@RULES.on(*OPERATIONS, *SHIFTS, "vset")
def scalar(code: Code) -> Step:
    """A piece of a with a piece of b; then a second operation with c, or the result becomes a piece of c."""
    name = code.instruction.opcode
    shifts, compares = name in SHIFTS, name == "vset"
    d_type = TYPES["u32"] if compares else code.type("u32", "s32")
    a_type = code.type("u32", "s32")
    b_type = code.type("u32") if shifts else code.type("u32", "s32")
    mode = code.take("clamp", "wrap") if shifts else ""
    compare = code.take(*ORDERED) if compares else ""
    if (shifts and not mode) or (compares and not compare):
        raise code.refuse("vset needs a comparison" if compares else f"{name} needs .clamp or .wrap")
    saturates, second = not compares and code.flag("sat"), code.take(*SECOND)
    (target, _), (left, minus), (right, other) = (_piece_of(code, index) for index in range(3))
    merges = target != PIECES[""]
    if minus or other or (merges and second):
        raise code.refuse(
            "a second operation and a selector of the result exclude each other, and nothing is negated"
        )
    code.expect(4 if merges or second else 3)
    low, high = _limits(d_type.kind == "s", target[1])
    operation = SHIFTS.get(name) or (ORDERED[compare] if compares else OPERATIONS[name])

    def whole(a: Lanes, b: Lanes, c: Lanes | None = None) -> Lanes:
        x, y = _read(a, left, a_type.kind == "s"), _read(b, right, b_type.kind == "s")
        if shifts:  # what is shifted out on the left counts when the result is saturated
            by = np.minimum(y, 32) if mode == "clamp" else y & 31
            found = operation(x.astype(object), by.astype(object))
        else:
            found = operation(x, y).astype(np.int64)
        if saturates:
            found = np.clip(found, low, high)
        if c is not None and second:
            found = SECOND[second](found, _read(c, PIECES[""], d_type.kind == "s"))
        bits = (found & 0xFFFFFFFF).astype(np.uint32)
        if c is None or second:
            return bits
        first, count = target
        mask = np.uint32((1 << count) - 1 << first)
        return ((bits << np.uint32(first)) & mask) | (c & ~mask)

    return code.step(whole, B32, *[B32] * (len(code.operands) - 1))


@RULES.on("vmad")
def vmad(code: Code) -> Step:
    """A product, a sum, one added, shifted: exact until the end."""
    code.type("u32", "s32")
    a_type, b_type = code.type("u32", "s32"), code.type("u32", "s32")
    adds_one, saturates = code.flag("po"), code.flag("sat")
    shift = int(code.take("shr7", "shr15")[3:] or 0)
    code.expect(4)
    (left, minus_a), (right, minus_b), (last, minus_c) = (_piece_of(code, index) for index in (1, 2, 3))
    negates = minus_a != minus_b
    if last != PIECES[""] or (negates and minus_c) or (adds_one and (minus_a or minus_b or minus_c)):
        raise code.refuse("c has no selector, and of a * b and c one may be negated, with .po none")
    is_signed = "s" in (a_type.kind, b_type.kind) or negates or minus_c
    low, high = _limits(is_signed, 32)

    def whole(a: Lanes, b: Lanes, c: Lanes) -> Lanes:
        x, y = _read(a, left, a_type.kind == "s"), _read(b, right, b_type.kind == "s")
        found = x.astype(object) * y.astype(object)
        if negates:
            found = -found
        # -c is ~c + 1, with the sign that ~c has in 32 bits
        found = found + _read(~c if minus_c else c, PIECES[""], is_signed).astype(object)
        found = (found + int(adds_one or minus_c)) >> shift
        if saturates:
            found = np.clip(found, low, high)
        return (found & 0xFFFFFFFF).astype(np.uint32)

    return code.step(whole, B32, B32, B32, B32)


# -- all pieces at once


@RULES.on(*(f"{name}{count}" for name in (*SIMD_OPERATIONS, "vset") for count in PARTS))
def simd(code: Code) -> Step:
    """Each part of a with the same part of b; .add sums the parts onto c instead."""
    name, which = code.instruction.opcode[:-1], code.instruction.opcode[-1]
    compares, count = name == "vset", int(which)
    d_type = TYPES["u32"] if compares else code.type("u32", "s32")
    a_type, b_type = code.type("u32", "s32"), code.type("u32", "s32")
    compare = code.take(*ORDERED) if compares else ""
    saturates, adds = not compares and code.flag("sat"), code.flag("add")
    if (compares and not compare) or (saturates and adds):
        raise code.refuse("vset needs a comparison" if compares else ".sat and .add exclude each other")
    operation = ORDERED[compare] if compares else SIMD_OPERATIONS[name]
    mask = _mask(code, count, LETTERS[which])
    first, second = (_picks(code, index, count, LETTERS[which]) for index in (1, 2))
    low, high = _limits(d_type.kind == "s", 32 // count)
    a_part, b_part = (PARTS[which][type_.kind == "s"] for type_ in (a_type, b_type))
    unsigned = PARTS[which][0]
    is_whole = mask.all()

    def whole(a: Lanes, b: Lanes, c: Lanes) -> Lanes:
        x, y = _chosen(a, (a, b), first, a_part), _chosen(b, (a, b), second, b_part)
        found = operation(x, y).astype(np.int64)
        if adds:
            return ((found * mask).sum(axis=1) + c.astype(np.int64)).astype(np.uint32)
        if saturates:
            found = np.clip(found, low, high)
        bits = found.astype(unsigned)
        if not is_whole:
            bits = np.where(mask, bits, c.view(unsigned).reshape(-1, count))
        return np.ascontiguousarray(bits).view(np.uint32).reshape(-1)

    return code.step(whole, B32, B32, B32, B32)


def _mask(code: Code, count: int, letter: str) -> Lanes:
    """Which parts of the result are written; their numbers stand from the highest to the lowest."""
    part, _ = _bare(code, 0)
    if not part:
        return np.ones(count, bool)
    numbers = _numbers(part, letter, count)
    if not numbers or numbers != sorted(set(numbers), reverse=True):
        raise code.refuse(f"the mask .{part} does not name parts from the highest to the lowest")
    return np.isin(np.arange(count), numbers)


def _picks(code: Code, index: int, count: int, letter: str) -> list[int] | None:
    """Which parts of b:a an operand stands for, lowest first; None: those of its own register."""
    part, minus = _bare(code, index)
    if minus:
        raise code.refuse("nothing is negated here")
    if not part:
        return None
    numbers = _numbers(part, letter, 2 * count)
    if len(numbers) != count:
        raise code.refuse(f"the selector .{part} does not name {count} of {2 * count} parts")
    own = range((index - 1) * count, index * count)
    return None if numbers[::-1] == list(own) else numbers[::-1]


def _numbers(part: str, letter: str, limit: int) -> list[int]:
    digits = part[1:]
    if part[0] != letter or not digits.isdigit() or any(int(digit) >= limit for digit in digits):
        return []
    return [int(digit) for digit in digits]


def _chosen(own: Lanes, both: tuple[Lanes, Lanes], picks: list[int] | None, part: Any) -> Lanes:
    """(n, parts) of a source operand as int64: of its own register, or picked from those of a, then those of b."""
    if picks is None:
        return own.view(part).reshape(-1, 4 // np.dtype(part).itemsize).astype(np.int64)
    pair = np.stack(np.broadcast_arrays(*both), axis=1)
    return pair.view(part).reshape(len(pair), -1)[:, picks].astype(np.int64)
