"""PTX instructions that are drawn at random, and what each does to the registers of one thread, in plain Python.

In       random numbers
Out      Drawn: the line, and what it means
Next     ptx.py (programs of many), tests/hcq/emu/nv/shader/test_video_ops.py (one at a time)
Source   PTX ISA, "Video Instructions", "mov", "atom": their semantics, line by line
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import NamedTuple

REGISTERS = 8
CELL = 4  # words of memory that a thread has for itself
Meaning = Callable[
    [list[int], list[int]], None
]  # changes registers and the thread's cell, both of 32-bit words


class Drawn(NamedTuple):
    """One line of PTX over %r0 to %r7 and the cell at [%cell]."""

    line: str
    meaning: Meaning


WORD = 0xFFFFFFFF
COMPARE: dict[str, Callable[[int, int], bool]] = {
    "eq": lambda a, b: a == b,
    "ne": lambda a, b: a != b,
    "lt": lambda a, b: a < b,
    "le": lambda a, b: a <= b,
    "gt": lambda a, b: a > b,
    "ge": lambda a, b: a >= b,
}
BINARY: dict[str, Callable[[int, int], int]] = {
    "vadd": lambda a, b: a + b,
    "vsub": lambda a, b: a - b,
    "vabsdiff": lambda a, b: abs(a - b),
    "vmin": min,
    "vmax": max,
    "vavrg": lambda a, b: (a + b + 1) >> 1 if a + b >= 0 else (a + b) >> 1,
}


def signed(value: int, bits: int) -> int:
    """The low bits as a two's complement number."""
    value &= (1 << bits) - 1
    return value - (1 << bits) if value >> (bits - 1) else value


def piece(value: int, selector: str, type_: str) -> int:
    """partSelectSignExtend: a byte, a halfword or all of a word."""
    bits = {"": 32, "b": 8, "h": 16}[selector[:1]]
    found = value >> (bits * int(selector[1:] or 0)) & ((1 << bits) - 1)
    return signed(found, bits) if type_ == "s32" else found


def clamped(value: int, is_signed: bool, bits: int) -> int:
    low, high = (-(1 << bits - 1), (1 << bits - 1) - 1) if is_signed else (0, (1 << bits) - 1)
    return min(max(value, low), high)


def _selector(rng: random.Random) -> str:
    return rng.choice(["", "", "b0", "b1", "b2", "b3", "h0", "h1"])


def _register(number: int, selector: str = "") -> str:
    return f"%r{number}.{selector}" if selector else f"%r{number}"


def scalar(rng: random.Random) -> Drawn:
    """vadd, vsub, vabsdiff, vmin, vmax, vshl, vshr, vset."""
    name = rng.choice(["vadd", "vsub", "vabsdiff", "vmin", "vmax", "vshl", "vshr", "vset"])
    d, a, b, c = (rng.randrange(REGISTERS) for _ in range(4))
    shifts, compares = name in ("vshl", "vshr"), name == "vset"
    d_type, a_type, b_type = (rng.choice(["u32", "s32"]) for _ in range(3))
    if shifts:
        b_type = "u32"
    mode, compare = rng.choice(["clamp", "wrap"]), rng.choice(sorted(COMPARE))
    saturates = not compares and rng.random() < 0.5
    form = rng.choice(["plain", "second", "merge"])
    second = rng.choice(["add", "min", "max"])
    target = rng.choice(["b0", "b1", "b2", "b3", "h0", "h1"]) if form == "merge" else ""
    left, right = _selector(rng), _selector(rng)
    words = [name] if compares else [name, d_type]
    words += [a_type, b_type]
    words += [compare] if compares else []
    words += ["sat"] if saturates else []
    words += [mode] if shifts else []
    words += [second] if form == "second" else []
    operands = [_register(d, target), _register(a, left), _register(b, right)]
    operands += [_register(c)] if form != "plain" else []

    def meaning(r: list[int], cell: list[int]) -> None:
        x, y = piece(r[a], left, a_type), piece(r[b], right, b_type)
        if shifts:
            y = min(y, 32) if mode == "clamp" else y & 31
            found = x << y if name == "vshl" else x >> y
        else:
            found = int(COMPARE[compare](x, y)) if compares else BINARY[name](x, y)
        is_signed = d_type == "s32" and not compares
        bits = {"": 32, "b": 8, "h": 16}[target[:1]]
        if saturates:
            found = clamped(found, is_signed, bits)
        if form == "second":
            other = signed(r[c], 32) if is_signed else r[c]
            found = {"add": found + other, "min": min(found, other), "max": max(found, other)}[second]
        if form == "merge":
            shift = bits * int(target[1:])
            mask = (1 << bits) - 1 << shift
            found = (found << shift & mask) | (r[c] & ~mask)
        r[d] = found & WORD

    return Drawn(f"{'.'.join(words)} {', '.join(operands)};", meaning)


def multiply(rng: random.Random) -> Drawn:
    """vmad."""
    d, a, b, c = (rng.randrange(REGISTERS) for _ in range(4))
    d_type, a_type, b_type = (rng.choice(["u32", "s32"]) for _ in range(3))
    left, right = _selector(rng), _selector(rng)
    negated = rng.choice(["", "", "a", "b", "ab", "c"])
    one = not negated and rng.random() < 0.3
    saturates, shift = rng.random() < 0.5, rng.choice([0, 7, 15])
    words = ["vmad", d_type, a_type, b_type]
    words += ["po"] if one else []
    words += ["sat"] if saturates else []
    words += [f"shr{shift}"] if shift else []
    operands = [_register(d)]
    for name, number, selector in (("a", a, left), ("b", b, right), ("c", c, "")):
        operands.append(("-" if name in negated else "") + _register(number, selector))

    def meaning(r: list[int], cell: list[int]) -> None:
        minus = ("a" in negated) != ("b" in negated)
        is_signed = "s32" in (a_type, b_type) or minus or negated == "c"
        found, addend = piece(r[a], left, a_type) * piece(r[b], right, b_type), r[c]
        last = 0
        if one:
            last = 1
        elif minus:
            found, last = ~found, 1
        elif negated == "c":
            addend, last = ~addend & WORD, 1
        found = (found + (signed(addend, 32) if is_signed else addend) + last) >> shift
        r[d] = (clamped(found, is_signed, 32) if saturates else found) & WORD

    return Drawn(f"{'.'.join(words)} {', '.join(operands)};", meaning)


def simd(rng: random.Random) -> Drawn:
    """vadd2 and vadd4 and their sisters."""
    count = rng.choice([2, 4])
    bits, letter = 32 // count, "h" if count == 2 else "b"
    name = rng.choice([*sorted(BINARY), "vset"])
    d, a, b, c = (rng.randrange(REGISTERS) for _ in range(4))
    compares = name == "vset"
    d_type, a_type, b_type = (rng.choice(["u32", "s32"]) for _ in range(3))
    compare = rng.choice(sorted(COMPARE))
    how = rng.choice(["", "sat", "add"]) if not compares else rng.choice(["", "add"])
    mask = [i for i in range(count) if rng.random() < 0.7] or [0]
    masked = (
        letter + "".join(str(i) for i in reversed(mask)) if len(mask) < count or rng.random() < 0.5 else ""
    )
    picks = [
        [rng.randrange(2 * count) for _ in range(count)] if rng.random() < 0.5 else None for _ in range(2)
    ]
    words = [f"{name}{count}"] + ([] if compares else [d_type]) + [a_type, b_type]
    words += [compare] if compares else []
    words += [how] if how else []
    selectors = [letter + "".join(str(i) for i in reversed(pick)) if pick else "" for pick in picks]
    operands = [_register(d, masked), _register(a, selectors[0]), _register(b, selectors[1]), _register(c)]

    def meaning(r: list[int], cell: list[int]) -> None:
        both = r[a] | r[b] << 32

        def lanes(pick: list[int] | None, first: int, type_: str) -> list[int]:
            chosen = pick or list(range(first, first + count))
            found = [both >> (bits * i) & ((1 << bits) - 1) for i in chosen]
            return [signed(value, bits) for value in found] if type_ == "s32" else found

        x, y = lanes(picks[0], 0, a_type), lanes(picks[1], count, b_type)
        found = [int(COMPARE[compare](*pair)) if compares else BINARY[name](*pair) for pair in zip(x, y)]
        if how == "sat":
            found = [clamped(value, d_type == "s32", bits) for value in found]
        if how == "add":
            r[d] = (r[c] + sum(found[i] for i in mask)) & WORD
            return
        result = 0
        for i in range(count):
            part = found[i] if i in mask else r[c] >> (bits * i)
            result |= (part & ((1 << bits) - 1)) << (bits * i)
        r[d] = result

    return Drawn(f"{'.'.join(words)} {', '.join(operands)};", meaning)


def wide(rng: random.Random) -> Drawn:
    """Sixteen bytes: packed, exchanged or compared and swapped with the thread's cell, loaded and stored as vectors."""
    what = rng.choice(["exch", "cas", "load", "store", "vector load", "vector store", "turn"])
    chosen = rng.sample(range(REGISTERS), 4)
    others = rng.choice([chosen, rng.sample(range(REGISTERS), 4)])
    pack = (
        "mov.b64 %d{0}, {{%r{2}, %r{3}}}; mov.b64 %d{1}, {{%r{4}, %r{5}}}; mov.b128 %q{6}, {{%d{0}, %d{1}}};"
    )
    unpack = "mov.b128 {{%d0, %d1}}, %q1; mov.b64 {{%r{}, %r{}}}, %d0; mov.b64 {{%r{}, %r{}}}, %d1;".format(
        *chosen
    )
    packed = pack.format(0, 1, *chosen, 0)
    vector = "{" + ", ".join(f"%r{i}" for i in chosen) + "}"
    lines = {
        "exch": f"{packed} atom.global.exch.b128 %q1, [%cell], %q0; {unpack}",
        # where it compares with what is there, it swaps
        "cas": f"{packed} ld.global.b128 %q2, [%cell]; {pack.format(2, 3, *others, 3)} "
        f"atom.global.cas.b128 %q1, [%cell], %q{2 if chosen == others else 3}, %q0; {unpack}",
        "load": f"ld.global.b128 %q1, [%cell]; {unpack}",
        "store": f"{packed} st.global.b128 [%cell], %q0;",
        "vector load": f"ld.global.v4.b32 {vector}, [%cell];",
        "vector store": f"st.global.v4.u32 [%cell], {vector};",
        "turn": f"{packed} mov.b128 {{%d1, %d0}}, %q0; mov.b128 %q1, {{%d0, %d1}}; {unpack}",
    }

    def meaning(r: list[int], cell: list[int]) -> None:
        mine, old = [r[i] for i in chosen], list(cell)
        if what in ("exch", "store", "vector store"):
            cell[:] = mine
        if what == "cas" and (chosen == others or old == [r[i] for i in others]):
            cell[:] = mine
        if what in ("exch", "cas", "load", "vector load"):
            for i, value in zip(chosen, old):
                r[i] = value
        if what == "turn":
            for i, value in zip(chosen, mine[2:] + mine[:2]):
                r[i] = value

    return Drawn(lines[what], meaning)


KINDS = (scalar, multiply, simd, wide)


def numbers(rng: random.Random, count: int) -> list[int]:
    """Words: limits of bytes, halfwords and words, and anything else."""
    edges = [
        0,
        1,
        0x7F,
        0x80,
        0xFF,
        0x7FFF,
        0x8000,
        0xFFFF,
        0x7FFFFFFF,
        0x80000000,
        WORD,
        0x80808080,
        0x7F7F7F7F,
        33,
    ]
    return [rng.choice(edges) if rng.random() < 0.4 else rng.getrandbits(32) for _ in range(count)]
