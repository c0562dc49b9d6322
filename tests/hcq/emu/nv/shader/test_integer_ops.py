"""Integer and bit instructions against meanings written with Python's unbounded integers."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from tests.hcq.emu.nv.shader.running import BITS, instructions

EDGES = [0, 1, 2, 3, 5, 7, 0x55, 0x7F, 0x80, 0xFF]


def values(bits: int, seed: int, count: int = 300) -> np.ndarray:
    rng = np.random.default_rng(seed)
    top = (1 << bits) - 1
    edges = [
        v & top
        for v in [*EDGES, top, top - 1, 1 << (bits - 1), (1 << (bits - 1)) - 1, 0xAAAAAAAAAAAAAAAA & top]
    ]
    wide = rng.integers(0, 2**63, count, dtype=np.uint64) * np.uint64(2) + rng.integers(
        0, 2, count, dtype=np.uint64
    )
    narrow = wide >> rng.integers(0, 64, count).astype(np.uint64)
    both = np.concatenate([np.array(edges, np.uint64), np.where(rng.random(count) < 0.5, wide, narrow)])
    rng.shuffle(both)
    return (both & np.uint64(top)).astype(BITS[bits // 8])


def crossed(bits: int, seed: int) -> list[np.ndarray]:
    """All pairs of edges, and random pairs."""
    a, b = values(bits, seed), values(bits, seed + 1)
    edges = np.array(
        [v & ((1 << bits) - 1) for v in [0, 1, 2, -1, -2, 1 << (bits - 1), (1 << (bits - 1)) - 1]], np.uint64
    )
    x, y = np.meshgrid(edges, edges)
    kind = BITS[bits // 8]
    return [np.concatenate([a, x.ravel().astype(kind)]), np.concatenate([b, y.ravel().astype(kind)])]


def signed(value: int, bits: int) -> int:
    value &= (1 << bits) - 1
    return value - (1 << bits) if value >> (bits - 1) else value


def check(
    lines: str, inputs: list[np.ndarray], size: str, meaning: Callable[..., int | tuple[int, ...]]
) -> None:
    results = instructions(lines, inputs, size)
    sizes = [int(word) for word in size.split()]
    for i, row in enumerate(zip(*[array.tolist() for array in inputs])):
        expected = meaning(*row)
        expected = expected if isinstance(expected, tuple) else (expected,)
        for result, value, bits in zip(results, expected, sizes):
            assert hex(value & ((1 << bits) - 1)) == hex(int(result[i])), (
                f"{lines} of {[hex(v) for v in row]}"
            )


def trunc_div(a: int, b: int) -> int:
    return abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1) if b else -1


TWO: list[tuple[str, int, Callable[[int, int], int]]] = []
for bits in (16, 32, 64):
    for kind in "us":
        type_ = f"{kind}{bits}"
        see = (lambda v, bits=bits: signed(v, bits)) if kind == "s" else (lambda v: v)
        TWO += [
            (f"add.{type_}", bits, lambda a, b: a + b),
            (f"sub.{type_}", bits, lambda a, b: a - b),
            (f"mul.lo.{type_}", bits, lambda a, b: a * b),
            (f"mul.hi.{type_}", bits, lambda a, b, see=see, bits=bits: see(a) * see(b) >> bits),
            (f"div.{type_}", bits, lambda a, b, see=see: trunc_div(see(a), see(b))),
            (
                f"rem.{type_}",
                bits,
                lambda a, b, see=see: see(a) - trunc_div(see(a), see(b)) * see(b) if b else a,
            ),
            (f"min.{type_}", bits, lambda a, b, see=see: min(see(a), see(b))),
            (f"max.{type_}", bits, lambda a, b, see=see: max(see(a), see(b))),
        ]
    TWO += [
        (f"and.b{bits}", bits, lambda a, b: a & b),
        (f"or.b{bits}", bits, lambda a, b: a | b),
        (f"xor.b{bits}", bits, lambda a, b: a ^ b),
    ]
TWO += [
    ("add.sat.s32", 32, lambda a, b: max(min(signed(a, 32) + signed(b, 32), 2**31 - 1), -(2**31))),
    ("sub.sat.s32", 32, lambda a, b: max(min(signed(a, 32) - signed(b, 32), 2**31 - 1), -(2**31))),
    ("mul24.lo.u32", 32, lambda a, b: (a & 0xFFFFFF) * (b & 0xFFFFFF)),
    ("mul24.lo.s32", 32, lambda a, b: signed(a, 24) * signed(b, 24)),
    ("mul24.hi.s32", 32, lambda a, b: signed(a, 24) * signed(b, 24) >> 16),
]


@pytest.mark.parametrize("name, bits, meaning", TWO, ids=[row[0] for row in TWO])
def test_an_operation_on_two_integers_is_what_the_manual_says(name, bits, meaning):
    check(f"{name} %x, %a, %b;", crossed(bits, 1), str(bits), meaning)


@pytest.mark.parametrize("name, bits", [("u16", 16), ("s16", 16), ("u32", 32), ("s32", 32)])
def test_wide_products_have_all_their_bits(name, bits):
    see = (lambda v: signed(v, bits)) if name[0] == "s" else (lambda v: v)
    check(f"mul.wide.{name} %x, %a, %b;", crossed(bits, 2), str(2 * bits), lambda a, b: see(a) * see(b))
    third = values(2 * bits, 9, len(crossed(bits, 2)[0]) - 15)
    lines = f"mad.wide.{name} %x, %a, %b, %c;"
    check(lines, [*crossed(bits, 2), third], str(2 * bits), lambda a, b, c: see(a) * see(b) + c)


@pytest.mark.parametrize("bits", [32, 64])
def test_mad_keeps_the_low_or_high_half(bits):
    inputs = [*crossed(bits, 3), values(bits, 5, len(crossed(bits, 3)[0]) - 15)]
    check(f"mad.lo.s{bits} %x, %a, %b, %c;", inputs, str(bits), lambda a, b, c: a * b + c)
    check(f"mad.hi.u{bits} %x, %a, %b, %c;", inputs, str(bits), lambda a, b, c: (a * b >> bits) + c)


def test_carries_make_128_bit_sums_differences_and_products():
    a, b = crossed(64, 6)
    c, e = np.roll(a, 7), np.roll(b, 3)

    def whole(op):
        def meaning(a, b, c, e):
            both = op(c << 64 | a, e << 64 | b)
            return both & (2**64 - 1), both >> 64 & (2**64 - 1)

        return meaning

    check("add.cc.u64 %x, %a, %b; addc.u64 %y, %c, %e;", [a, b, c, e], "64 64", whole(lambda p, q: p + q))
    check("sub.cc.u64 %x, %a, %b; subc.u64 %y, %c, %e;", [a, b, c, e], "64 64", whole(lambda p, q: p - q))
    lines = "mad.lo.cc.u64 %x, %a, %b, %c; madc.hi.u64 %y, %a, %b, %e;"

    def product(a, b, c, e):
        found = a * b + (e << 64 | c)
        return found & (2**64 - 1), found >> 64 & (2**64 - 1)

    check(lines, [a, b, c, e], "64 64", product)


@pytest.mark.parametrize("bits", [16, 32, 64])
def test_shifts_of_the_width_or_more_leave_nothing_or_the_sign(bits):
    a = values(bits, 7)
    by = np.random.default_rng(1).choice(
        np.array([0, 1, 7, 15, 16, 31, 32, 33, 63, 64, 65, 2**32 - 1], np.uint32), len(a)
    )
    check(f"shl.b{bits} %x, %a, %b;", [a, by], str(bits), lambda a, b: a << b if b < bits else 0)
    check(f"shr.u{bits} %x, %a, %b;", [a, by], str(bits), lambda a, b: a >> min(b, 100))
    check(f"shr.s{bits} %x, %a, %b;", [a, by], str(bits), lambda a, b: signed(a, bits) >> min(b, 100))


@pytest.mark.parametrize("side", ["l", "r"])
@pytest.mark.parametrize("mode", ["wrap", "clamp"])
def test_funnel_shifts_take_a_window_of_64_bits(side, mode):
    a, b = crossed(32, 8)
    by = np.random.default_rng(2).integers(0, 70, len(a)).astype(np.uint32)

    def meaning(a, b, n):
        n = n & 31 if mode == "wrap" else min(n, 32)
        both = b << 32 | a
        return both << n >> 32 if side == "l" else both >> n

    check(f"shf.{side}.{mode}.b32 %x, %a, %b, %c;", [a, b, by], "32", meaning)


@pytest.mark.parametrize("kind, bits", [("u", 32), ("s", 32), ("u", 64), ("s", 64)])
def test_bit_fields_are_taken_out_bit_by_bit(kind, bits):
    a = values(bits, 9, 600)
    rng = np.random.default_rng(3)
    at, size = (rng.choice(np.array([*range(70), 255, 256 + 3], np.uint32), len(a)) for _ in range(2))

    def meaning(a, at, size):
        at, size = at & 255, size & 255
        bit = [a >> i & 1 for i in range(bits)]
        if kind == "u" or size == 0:
            sign = 0
        else:
            sign = bit[min(at + size - 1, bits - 1)]
        found = 0
        for i in range(bits):
            found |= (bit[at + i] if i < size and at + i < bits else sign) << i
        return found

    check(f"bfe.{kind}{bits} %x, %a, %b, %c;", [a, at, size], str(bits), meaning)


@pytest.mark.parametrize("bits", [32, 64])
def test_bit_fields_are_put_in_bit_by_bit(bits):
    a, b = crossed(bits, 10)
    rng = np.random.default_rng(4)
    at, size = (rng.choice(np.array([*range(70), 255], np.uint32), len(a)) for _ in range(2))

    def meaning(a, b, at, size):
        for i in range(size):
            if at + i < bits:
                b = b & ~(1 << at + i) | (a >> i & 1) << at + i
        return b

    check(f"bfi.b{bits} %x, %a, %b, %c, %e;", [a, b, at, size], str(bits), meaning)


@pytest.mark.parametrize("bits", [32, 64])
def test_bits_are_counted_reversed_and_found(bits):
    a = values(bits, 11)
    check(f"popc.b{bits} %x, %a;", [a], "32", lambda a: bin(a).count("1"))
    check(f"clz.b{bits} %x, %a;", [a], "32", lambda a: bits - a.bit_length())
    check(f"brev.b{bits} %x, %a;", [a], str(bits), lambda a: int(f"{a:0{bits}b}"[::-1], 2))
    check(f"bfind.u{bits} %x, %a;", [a], "32", lambda a: a.bit_length() - 1)
    check(f"bfind.shiftamt.u{bits} %x, %a;", [a], "32", lambda a: bits - a.bit_length() if a else -1)

    def from_sign(a):
        a = signed(a, bits)
        return (a if a >= 0 else ~a).bit_length() - 1

    check(f"bfind.s{bits} %x, %a;", [a], "32", from_sign)


@pytest.mark.parametrize("mode", ["", "f4e", "b4e", "rc8", "ecl", "ecr", "rc16"])
def test_bytes_are_permuted(mode):
    a, b = crossed(32, 12)
    selector = values(32, 13, len(a) - 15)
    tables = {
        "f4e": [[0, 1, 2, 3], [1, 2, 3, 4], [2, 3, 4, 5], [3, 4, 5, 6]],
        "b4e": [[0, 7, 6, 5], [1, 0, 7, 6], [2, 1, 0, 7], [3, 2, 1, 0]],
        "rc8": [[0, 0, 0, 0], [1, 1, 1, 1], [2, 2, 2, 2], [3, 3, 3, 3]],
        "ecl": [[0, 1, 2, 3], [1, 1, 2, 3], [2, 2, 2, 3], [3, 3, 3, 3]],
        "ecr": [[0, 0, 0, 0], [0, 1, 1, 1], [0, 1, 2, 2], [0, 1, 2, 3]],
        "rc16": [[0, 1, 0, 1], [2, 3, 2, 3], [0, 1, 0, 1], [2, 3, 2, 3]],
    }

    def meaning(a, b, c):
        octets = (b << 32 | a).to_bytes(8, "little")
        found = []
        for i in range(4):
            if mode:
                found.append(octets[tables[mode][c & 3][i]])
            else:
                pick = c >> 4 * i & 15
                octet = octets[pick & 7]
                found.append((255 if octet >> 7 else 0) if pick & 8 else octet)
        return int.from_bytes(bytes(found), "little")

    check(f"prmt.b32{'.' + mode if mode else ''} %x, %a, %b, %c;", [a, b, selector], "32", meaning)


@pytest.mark.parametrize("table", [0x00, 0x96, 0xE8, 0xCA, 0x1B, 0xFF])
def test_three_input_logic_looks_bits_up_in_its_table(table):
    a, b = crossed(32, 14)
    c = np.roll(a, 5)

    def meaning(a, b, c):
        return sum(
            (table >> ((a >> i & 1) << 2 | (b >> i & 1) << 1 | c >> i & 1) & 1) << i for i in range(32)
        )

    check(f"lop3.b32 %x, %a, %b, %c, {table};", [a, b, c], "32", meaning)


@pytest.mark.parametrize("x, y", ["uu", "us", "su", "ss"])
def test_dot_products_of_bytes(x, y):
    a, b = crossed(32, 15)
    c = np.roll(a, 3)
    part = {"u": lambda v, n: v & ((1 << n) - 1), "s": signed}

    def dp4a(a, b, c):
        return c + sum(part[x](a >> 8 * i, 8) * part[y](b >> 8 * i, 8) for i in range(4))

    def dp2a(a, b, c):
        return c + sum(part[x](a >> 16 * i, 16) * part[y](b >> 16 + 8 * i, 8) for i in range(2))

    check(f"dp4a.{x}32.{y}32 %x, %a, %b, %c;", [a, b, c], "32", dp4a)
    check(f"dp2a.hi.{x}32.{y}32 %x, %a, %b, %c;", [a, b, c], "32", dp2a)


def test_small_things():
    a, b = crossed(32, 16)
    c = np.roll(a, 3)
    check("sad.s32 %x, %a, %b, %c;", [a, b, c], "32", lambda a, b, c: abs(signed(a, 32) - signed(b, 32)) + c)
    check("sad.u32 %x, %a, %b, %c;", [a, b, c], "32", lambda a, b, c: abs(a - b) + c)
    check("abs.s32 %x, %a; neg.s32 %y, %a;", [a], "32 32", lambda a: (abs(signed(a, 32)), -a))
    check("not.b32 %x, %a; cnot.b32 %y, %a;", [a], "32 32", lambda a: (~a, int(a == 0)))
    check("slct.u32.s32 %x, %a, %b, %c;", [a, b, c], "32", lambda a, b, c: a if signed(c, 32) >= 0 else b)
    lines = "setp.lt.s32 %p, %a, %b; selp.b32 %x, %a, %b, %p; selp.u32 %y, 1, 0, !%p;"
    check(lines, [a, b], "32 32", lambda a, b: (a, 0) if signed(a, 32) < signed(b, 32) else (b, 1))
    size = np.random.default_rng(5).integers(0, 40, len(a)).astype(np.uint32)
    check("szext.clamp.u32 %x, %a, %b;", [a, size], "32", lambda a, n: a & ((1 << min(n, 32)) - 1))
    check("szext.clamp.s32 %x, %a, %b;", [a, size], "32", lambda a, n: signed(a, min(n, 32)) if n else 0)
    check(
        "bmsk.clamp.b32 %x, %a, %b;",
        [size, np.roll(size, 1)],
        "32",
        lambda a, b: ((1 << min(b, 32)) - 1) << min(a, 32),
    )
    check(
        "fns.b32 %x, %a, %b, 2;",
        [a, size & 31],
        "32",
        lambda a, b: ([i for i in range(b, 32) if a >> i & 1] + [-1] * 2)[1],
    )


COMPARISONS = {"eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}


@pytest.mark.parametrize("name", COMPARISONS)
@pytest.mark.parametrize("type_", ["u16", "s16", "u32", "s32", "u64", "s64"])
def test_integers_compare_by_their_type(name, type_):
    bits = int(type_[1:])
    see = (lambda v: signed(v, bits)) if type_[0] == "s" else (lambda v: v)
    compare = eval(f"lambda a, b: a {COMPARISONS[name]} b")

    def meaning(a, b):
        truth = int(compare(see(a), see(b)))
        return truth, 1 - truth

    lines = f"setp.{name}.{type_} %p|%q, %a, %b; selp.u32 %x, 1, 0, %p; selp.u32 %y, 1, 0, %q;"
    check(lines, crossed(bits, 17), "32 32", meaning)


def test_comparisons_combine_with_predicates_and_set_makes_masks():
    a, b = crossed(32, 18)
    lines = "setp.ne.u32 %r, %b, 0; setp.lo.and.u32 %p|%q, %a, %b, !%r; selp.u32 %x, 1, 0, %p; selp.u32 %y, 1, 0, %q;"
    check(lines, [a, b], "32 32", lambda a, b: (int(a < b and b == 0), int(not a < b and b == 0)))
    check("set.hs.u32.u32 %x, %a, %b;", [a, b], "32", lambda a, b: -1 if a >= b else 0)
    check("set.eq.f32.s32 %x, %a, %b;", [a, b], "32", lambda a, b: 0x3F800000 if a == b else 0)


def test_predicates_have_logic():
    a, b = crossed(32, 19)
    lines = """setp.lt.u32 %p, %a, %b; setp.lt.s32 %q, %a, %b;
    and.pred %r, %p, %q; or.pred %s, %p, !%q; xor.pred %p, %r, %s; not.pred %q, %p; mov.pred %r, !%q;
    selp.u32 %x, 1, 0, %p; selp.u32 %y, 1, 0, %r;"""

    def meaning(a, b):
        p, q = a < b, signed(a, 32) < signed(b, 32)
        found = (p and q) != (p or not q)
        return int(found), int(found)

    check(lines, [a, b], "32 32", meaning)


def test_moves_pack_and_unpack():
    a, b = crossed(32, 20)
    check("mov.b64 %x, {%a, %b};", [a, b], "64", lambda a, b: b << 32 | a)
    check("mov.b32 {%h0, %h1}, %a; mov.b32 %x, {%h1, %h0};", [a], "32", lambda a: a << 16 | a >> 16)
    check("mov.b64 {%x, _}, %a;", [values(64, 3)], "32", lambda a: a)
    check("mov.b32 %x, 0x12345678; mov.b32 %y, -5;", [a], "32 32", lambda a: (0x12345678, -5))


def test_a_guarded_instruction_leaves_the_other_threads_alone():
    a, b = crossed(32, 21)
    lines = "mov.u32 %x, 7; setp.gt.u32 %p, %a, %b; @%p add.u32 %x, %a, %b; @!%p sub.u32 %x, %x, 1;"
    check(lines, [a, b], "32", lambda a, b: a + b if a > b else 6)


@pytest.mark.parametrize("word", ["add", "add.sat", "sub.sat", "min", "max"])
@pytest.mark.parametrize("kind, type_", [("u8x4", np.uint8), ("s8x4", np.int8)])
def test_four_bytes_of_a_word_are_computed_side_by_side(word, kind, type_):
    rng = np.random.default_rng(4)
    a, b = rng.integers(0, 1 << 32, (2, 500), np.uint32)
    found = instructions(f"{word}.{kind} %x, %a, %b;", [a, b], "32")[0].view(type_)
    x, y = (one.view(type_).astype(np.int64) for one in (a, b))
    limits = np.iinfo(type_)
    wanted = {
        "add": x + y, "add.sat": np.clip(x + y, limits.min, limits.max),
        "sub.sat": np.clip(x - y, limits.min, limits.max), "min": np.minimum(x, y), "max": np.maximum(x, y),
    }[word]  # fmt: skip
    assert np.array_equal(found, wanted.astype(type_))
