"""Logic, shifts, bit fields, bit counts, byte permutation.

In       Code with a bit or integer type
Out      steps
Next     integer_ops.py
Source   PTX ISA, "Logic and Shift Instructions", and bfe, bfi, bfind, brev, popc, clz, prmt, fns, szext, bmsk
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from hcq.emu.nv.shader.decode import Code, Registers, Rules, Step
from hcq.emu.nv.shader.groups import Group
from hcq.emu.nv.shader.syntax import Immediate
from hcq.emu.nv.shader.types import TYPES, Lanes
from hcq.emu.shader.bits import contiguous, count_ones, highest_bit, reversed_bits

RULES = Rules()
Compute = Callable[..., Lanes]
U32 = TYPES["u32"]


@RULES.on("and", "or", "xor")
def logic(code: Code) -> Step:
    """`and`, `or`, `xor`, on predicates, too."""
    type_ = code.type("pred", "b16", "b32", "b64")
    table: dict[str, Compute] = {
        "and": lambda a, b: a & b,
        "or": lambda a, b: a | b,
        "xor": lambda a, b: a ^ b,
    }
    compute = table[code.instruction.opcode]
    if type_.kind != "pred":
        return code.step(compute, type_, type_, type_)
    code.expect(3)
    a, b = code.predicate(code.operands[1]), code.predicate(code.operands[2])
    write = code.result(type_)
    return lambda registers, group: write(registers, group, compute(a(registers), b(registers)))


@RULES.on("not")
def not_(code: Code) -> Step:
    """`not`: every bit inverted."""
    type_ = code.type("pred", "b16", "b32", "b64")
    return code.step(lambda a: ~a, type_, type_)


@RULES.on("cnot")
def cnot(code: Code) -> Step:
    """1 where the source is 0, else 0."""
    type_ = code.type("b16", "b32", "b64")
    return code.step(lambda a: (a == 0).astype(type_.bits), type_, type_)


@RULES.on("lop3")
def lop3(code: Code) -> Step:
    """Any function of three bits: bit (a b c) of the table is the result. With .or or .and also p = (d != 0) op q."""
    combine = code.take("or", "and")
    type_ = code.type("b32")
    code.expect(6 if combine else 5)
    table = code.operands[4]
    if not isinstance(table, Immediate):
        raise code.refuse("the table of lop3 must be a number")

    def compute(a: Lanes, b: Lanes, c: Lanes) -> Lanes:
        found = np.zeros(1, np.uint32)
        for i in range(8):
            if table.value >> i & 1:
                found = found | ((a if i & 4 else ~a) & (b if i & 2 else ~b) & (c if i & 1 else ~c))
        return found

    slots = [code.source(i, type_) for i in (1, 2, 3)]
    if not combine:
        return code.pure(compute, code.destination(code.operands[0], type_), *slots)
    first, second = code.pair(code.operands[0])
    if second is None:
        raise code.refuse("lop3 with a predicate gives d|p")
    write = code.writer(code.destination(first, type_))
    write_truth = code.writer(code.destination(second, TYPES["pred"]))
    other, is_or = code.predicate(code.operands[5]), combine == "or"

    def step(registers: Registers, group: Group) -> None:
        found = compute(*[registers[slot] for slot in slots])
        truth, extra = found != 0, other(registers)
        write(registers, group, found)
        write_truth(registers, group, truth | extra if is_or else truth & extra)

    return step


@RULES.on("shl")
def shl(code: Code) -> Step:
    """Shifts by the width or more give 0."""
    type_ = code.type("b16", "b32", "b64")
    width = np.uint32(type_.width)

    def compute(a: Lanes, by: Lanes) -> Lanes:
        over = by >= width
        value = a << by.astype(a.dtype)
        return np.where(over, a.dtype.type(0), value) if over.any() else value

    return code.step(compute, type_, type_, U32)


@RULES.on("shr")
def shr(code: Code) -> Step:
    """Shifts by the width or more give 0, or the sign everywhere."""
    type_ = code.type()
    limit, scalar, bits = np.uint32(type_.width - 1), type_.scalar, type_.bits
    if type_.kind == "s":
        return code.step(
            lambda a, by: (a.view(scalar) >> np.minimum(by, limit).astype(scalar)).view(bits),
            type_,
            type_,
            U32,
        )

    def compute(a: Lanes, by: Lanes) -> Lanes:
        over = by > limit
        value = a >> by.astype(bits)
        return np.where(over, bits(0), value) if over.any() else value

    return code.step(compute, type_, type_, U32)


@RULES.on("shf")
def funnel(code: Code) -> Step:
    """A 32-bit window of the 64 bits b:a, moved left or right."""
    left = code.take("l", "r") == "l"
    wraps = code.take("wrap", "clamp") == "wrap"
    type_ = code.type("b32")

    def compute(a: Lanes, b: Lanes, by: Lanes) -> Lanes:
        by = by & np.uint32(31) if wraps else np.minimum(by, np.uint32(32))
        both = (b.astype(np.uint64) << np.uint64(32)) | a
        wide = by.astype(np.uint64)
        moved = (both << wide) >> np.uint64(32) if left else both >> wide
        return moved.astype(np.uint32)

    return code.step(compute, type_, type_, type_, U32)


def _field(position: Lanes, length: Lanes, width: int) -> tuple[Lanes, Lanes]:
    """Position and length of a bit field, from the low bytes of two registers, cut to the width."""
    at = np.minimum(position & np.uint32(255), np.uint32(width)).astype(np.uint64)
    size = np.minimum(length & np.uint32(255), np.uint32(width)).astype(np.uint64)
    return at, size


def _ones(count: Lanes) -> Lanes:
    """uint64 with that many low bits set."""
    return np.where(
        count >= np.uint64(64),
        ~np.uint64(0),
        (np.uint64(1) << np.minimum(count, np.uint64(63))) - np.uint64(1),
    )


@RULES.on("bfe")
def bfe(code: Code) -> Step:
    """`bfe`: a bit field, with its sign for signed types."""
    type_ = code.type("u32", "s32", "u64", "s64")

    def unsigned(a: Lanes, position: Lanes, length: Lanes) -> Lanes:
        at, size = _field(position, length, 64)
        inside = np.where(at < 64, a.astype(np.uint64) >> np.minimum(at, np.uint64(63)), np.uint64(0))
        return (inside & _ones(size)).astype(type_.bits)

    def signed(a: Lanes, position: Lanes, length: Lanes) -> Lanes:
        at, size = _field(position, length, 64)
        inside = a.view(type_.scalar).astype(np.int64) >> np.minimum(at, np.uint64(63)).view(np.int64)
        above = (np.uint64(64) - np.maximum(size, np.uint64(1))).view(np.int64)
        return np.where(size == 0, 0, inside << above >> above).view(np.uint64).astype(type_.bits)

    return code.step(signed if type_.kind == "s" else unsigned, type_, type_, U32, U32)


@RULES.on("bfi")
def bfi(code: Code) -> Step:
    """The low bits of a put into b at a position."""
    type_ = code.type("b32", "b64")
    width = type_.width

    def compute(a: Lanes, b: Lanes, position: Lanes, length: Lanes) -> Lanes:
        at, size = _field(position, length, width)
        mask = np.where(at < np.uint64(64), _ones(size) << np.minimum(at, np.uint64(63)), np.uint64(0))
        moved = a.astype(np.uint64) << np.minimum(at, np.uint64(63))
        return ((moved & mask) | (b.astype(np.uint64) & ~mask)).astype(type_.bits)

    return code.step(compute, type_, type_, type_, U32, U32)


@RULES.on("clz")
def clz(code: Code) -> Step:
    """`clz`: how many zeros lead."""
    type_ = code.type("b32", "b64")
    top = type_.width - 1
    return code.step(lambda a: (top - highest_bit(a)).astype(np.uint32), U32, type_)


@RULES.on("bfind")
def bfind(code: Code) -> Step:
    """The highest bit that differs from the sign; all ones when there is none."""
    as_shift = code.flag("shiftamt")
    type_ = code.type("u32", "s32", "u64", "s64")

    def compute(a: Lanes) -> Lanes:
        if type_.kind == "s":
            a = np.where(a.view(type_.scalar) < 0, ~a, a)
        found = highest_bit(a)
        if as_shift:
            found = np.where(found < 0, -1, type_.width - 1 - found)
        return found.astype(np.uint32)

    return code.step(compute, U32, type_)


@RULES.on("popc")
def popc(code: Code) -> Step:
    """`popc`: how many bits are set."""
    return code.step(count_ones, U32, code.type("b32", "b64"))


@RULES.on("brev")
def brev(code: Code) -> Step:
    """`brev`: the bits in reverse order."""
    type_ = code.type("b32", "b64")
    return code.step(reversed_bits, type_, type_)


@RULES.on("prmt")
def prmt(code: Code) -> Step:
    """Four bytes picked from the eight of b:a."""
    type_ = code.type("b32")
    mode = code.take("f4e", "b4e", "rc8", "ecl", "ecr", "rc16")

    def compute(a: Lanes, b: Lanes, selector: Lanes) -> Lanes:
        a, b, selector = np.broadcast_arrays(a, b, selector)
        both = (b.astype(np.uint64) << np.uint64(32)) | a
        octets = contiguous(both).view(np.uint8).reshape(-1, 8)
        picks = _prmt_picks(mode, selector)
        found = np.take_along_axis(octets, picks & 7, axis=1)
        if not mode:
            found = np.where(picks & 8, np.where(found & 0x80, np.uint8(0xFF), np.uint8(0)), found)
        return contiguous(found).view(np.uint32).reshape(-1)

    return code.step(compute, type_, type_, type_, type_)


def _prmt_picks(mode: str, selector: Lanes) -> Lanes:
    """(n, 4) byte numbers for the four result bytes, low first; with 8 added where the sign is to be repeated."""
    s = selector.astype(np.int64)[:, None]
    place = np.arange(4)[None, :]
    if not mode:
        return (s >> (4 * place)) & 15
    c = s & 3
    if mode == "f4e":
        return c + place
    if mode == "b4e":
        return (c - place) & 7
    if mode == "rc8":
        return np.broadcast_to(c, (len(s), 4))
    if mode == "ecl":
        return np.maximum(c, place)
    if mode == "ecr":
        return np.minimum(c, place)
    return ((c & 1) * 2 + (place & 1)) & 7


@RULES.on("szext")
def szext(code: Code) -> Step:
    """Keep the low bits, and extend them with zeros or their sign."""
    mode = code.take("wrap", "clamp")
    type_ = code.type("u32", "s32")

    def compute(a: Lanes, count: Lanes) -> Lanes:
        keep = (count & np.uint32(31) if mode == "wrap" else np.minimum(count, np.uint32(32))).astype(
            np.uint64
        )
        mask = _ones(keep)
        value = a.astype(np.uint64) & mask
        if type_.kind == "s":
            top = np.where(keep == 0, np.uint64(0), value >> np.maximum(keep, np.uint64(1)) - np.uint64(1))
            value = np.where(top != 0, value | ~mask, value)
        return value.astype(np.uint32)

    return code.step(compute, type_, type_, U32)


@RULES.on("bmsk")
def bmsk(code: Code) -> Step:
    """Ones from a position, so many."""
    mode = code.take("wrap", "clamp")
    type_ = code.type("b32")

    def compute(position: Lanes, length: Lanes) -> Lanes:
        if mode == "wrap":
            position, length = position & np.uint32(31), length & np.uint32(31)
        at = np.minimum(position, np.uint32(32)).astype(np.uint64)
        size = np.minimum(length, np.uint32(32)).astype(np.uint64)
        return (_ones(size) << at).astype(np.uint32)

    return code.step(compute, type_, type_, type_)


@RULES.on("fns")
def fns(code: Code) -> Step:
    """The n-th set bit from a base, upwards or downwards; all ones when there is none."""
    type_ = code.type("b32")

    def compute(mask: Lanes, base: Lanes, offset: Lanes) -> Lanes:
        rows = np.broadcast_arrays(mask, base, offset.view(np.int32))
        return np.array([_nth_set(*map(int, row)) for row in zip(*rows)], np.uint32)

    return code.step(compute, U32, type_, type_, TYPES["s32"])


def _nth_set(mask: int, base: int, offset: int) -> int:
    if offset == 0:
        return base if mask >> base & 1 else 0xFFFFFFFF
    places = range(base, 32) if offset > 0 else range(base, -1, -1)
    found = [place for place in places if mask >> place & 1]
    return found[abs(offset) - 1] if len(found) >= abs(offset) else 0xFFFFFFFF
