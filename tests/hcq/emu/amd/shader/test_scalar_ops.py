"""Scalar instructions against plain Python integers, SCC included; every one that LLVM emits for both chips."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from hcq.emu.amd.shader.errors import IllegalOperation
from tests.hcq.emu.amd.shader.bench import GFX9, ISAS, OLD_NAMES, run, run_words

M32, M64 = 0xFFFFFFFF, 0xFFFFFFFFFFFFFFFF
EDGES = [
    0,
    1,
    2,
    31,
    32,
    63,
    64,
    0x7FFFFFFF,
    0x80000000,
    0xFFFFFFFF,
    0x12345678,
    0xDEADBEEF,
    0x0010_0004,
    0x0020_0000,
]


def s(x: int, bits: int = 32) -> int:
    x &= (1 << bits) - 1
    return x - (1 << bits) if x >> (bits - 1) else x


def field(x: int, control: int, bits: int, signed: bool) -> int:
    width = min(control >> 16 & 127, bits)
    value = (x >> (control & (bits - 1))) & ((1 << width) - 1)
    return s(value, width) if signed and width else value


Result = tuple[int, "bool | None"]  # value, SCC or None when it is left alone


def nonzero(x: int, bits: int = 32) -> Result:
    x &= (1 << bits) - 1
    return x, x != 0


TWO: dict[str, tuple[int, Callable[[int, int], Result]]] = {
    "s_add_u32": (32, lambda a, b: (a + b, a + b > M32)),
    "s_sub_u32": (32, lambda a, b: (a - b, b > a)),
    "s_add_i32": (32, lambda a, b: (a + b, s(a) + s(b) != s(a + b))),
    "s_sub_i32": (32, lambda a, b: (a - b, s(a) - s(b) != s(a - b))),
    "s_addc_u32": (32, lambda a, b: (a + b + 1, a + b + 1 > M32)),
    "s_subb_u32": (32, lambda a, b: (a - b - 1, b + 1 > a)),
    "s_absdiff_i32": (32, lambda a, b: nonzero(abs(s(a) - s(b)))),
    "s_lshl_b32": (32, lambda a, b: nonzero(a << (b & 31))),
    "s_lshr_b32": (32, lambda a, b: nonzero(a >> (b & 31))),
    "s_ashr_i32": (32, lambda a, b: nonzero(s(a) >> (b & 31))),
    "s_min_i32": (32, lambda a, b: (min(s(a), s(b)), s(a) < s(b))),
    "s_min_u32": (32, lambda a, b: (min(a, b), a < b)),
    "s_max_i32": (32, lambda a, b: (max(s(a), s(b)), s(a) >= s(b))),
    "s_max_u32": (32, lambda a, b: (max(a, b), a >= b)),
    "s_bfe_u32": (32, lambda a, b: nonzero(field(a, b, 32, False))),
    "s_bfe_i32": (32, lambda a, b: nonzero(field(a, b, 32, True))),
    "s_bfm_b32": (32, lambda a, b: (((1 << (a & 31)) - 1) << (b & 31), None)),
    "s_mul_i32": (32, lambda a, b: (a * b, None)),
    "s_mul_hi_u32": (32, lambda a, b: (a * b >> 32, None)),
    "s_mul_hi_i32": (32, lambda a, b: (s(a) * s(b) >> 32, None)),
    "s_cselect_b32": (32, lambda a, b: (a, None)),
    "s_pack_ll_b32_b16": (32, lambda a, b: (a & 65535 | (b & 65535) << 16, None)),
    "s_pack_lh_b32_b16": (32, lambda a, b: (a & 65535 | b >> 16 << 16, None)),
    "s_pack_hh_b32_b16": (32, lambda a, b: (a >> 16 | b >> 16 << 16, None)),
    "s_pack_hl_b32_b16": (32, lambda a, b: (a >> 16 | (b & 65535) << 16, None)),
}
for shift in (1, 2, 3, 4):
    TWO[f"s_lshl{shift}_add_u32"] = (32, lambda a, b, n=shift: ((a << n) + b, (a << n) + b > M32))
LOGIC: dict[str, Callable[[int, int], int]] = {
    "and": lambda a, b: a & b,
    "or": lambda a, b: a | b,
    "xor": lambda a, b: a ^ b,
    "nand": lambda a, b: ~(a & b),
    "nor": lambda a, b: ~(a | b),
    "xnor": lambda a, b: ~(a ^ b),
    "and_not1": lambda a, b: a & ~b,
    "andn2": lambda a, b: a & ~b,
    "or_not1": lambda a, b: a | ~b,
    "orn2": lambda a, b: a | ~b,
}
for name, compute in LOGIC.items():
    for bits in (32, 64):
        TWO[f"s_{name}_b{bits}"] = (bits, lambda a, b, f=compute, n=bits: nonzero(f(a, b), n))

WIDE_BY_NARROW: dict[str, Callable[[int, int], Result]] = {
    "s_lshl_b64": lambda a, b: nonzero(a << (b & 63), 64),
    "s_lshr_b64": lambda a, b: nonzero(a >> (b & 63), 64),
    "s_ashr_i64": lambda a, b: nonzero(s(a, 64) >> (b & 63), 64),
    "s_bfe_u64": lambda a, b: nonzero(field(a, b, 64, False), 64),
    "s_bfe_i64": lambda a, b: nonzero(field(a, b, 64, True), 64),
}


def lz(x: int, bits: int) -> int:
    return bits - x.bit_length() if x else -1


def cls(x: int, bits: int) -> int:
    y = x if not x >> (bits - 1) else ~x & (1 << bits) - 1
    return bits - y.bit_length() if y else -1


def quads(x: int, bits: int, fill: bool) -> int:
    return sum((15 << 4 * i if fill else 1 << i) for i in range(bits // 4) if x >> 4 * i & 15)


def tz(x: int) -> int:
    return (x & -x).bit_length() - 1 if x else -1


ONE: dict[str, tuple[int, int, Callable[[int], Result]]] = {  # source bits, result bits
    "s_not_b32": (32, 32, lambda a: nonzero(~a)),
    "s_not_b64": (64, 64, lambda a: nonzero(~a, 64)),
    "s_abs_i32": (32, 32, lambda a: nonzero(abs(s(a)))),
    "s_brev_b32": (32, 32, lambda a: (int(f"{a:032b}"[::-1], 2), None)),
    "s_brev_b64": (64, 64, lambda a: (int(f"{a:064b}"[::-1], 2), None)),
    "s_bcnt0_i32_b32": (32, 32, lambda a: nonzero(32 - bin(a).count("1"))),
    "s_bcnt1_i32_b32": (32, 32, lambda a: nonzero(bin(a).count("1"))),
    "s_bcnt1_i32_b64": (64, 32, lambda a: nonzero(bin(a).count("1"))),
    "s_quadmask_b32": (32, 32, lambda a: nonzero(quads(a, 32, False))),
    "s_wqm_b32": (32, 32, lambda a: nonzero(quads(a, 32, True))),
    "s_wqm_b64": (64, 64, lambda a: nonzero(quads(a, 64, True), 64)),
    "s_sext_i32_i8": (32, 32, lambda a: (s(a, 8), None)),
    "s_sext_i32_i16": (32, 32, lambda a: (s(a, 16), None)),
    "s_bitreplicate_b64_b32": (32, 64, lambda a: (sum(3 << 2 * i for i in range(32) if a >> i & 1), None)),
}
for names, bits, compute_one in (
    (("s_ctz_i32_b32", "s_ff1_i32_b32"), 32, tz),
    (("s_ctz_i32_b64", "s_ff1_i32_b64"), 64, tz),
    (("s_clz_i32_u32", "s_flbit_i32_b32"), 32, lambda a: lz(a, 32)),
    (("s_clz_i32_u64", "s_flbit_i32_b64"), 64, lambda a: lz(a, 64)),
    (("s_cls_i32", "s_flbit_i32"), 32, lambda a: cls(a, 32)),
    (("s_cls_i32_i64", "s_flbit_i32_i64"), 64, lambda a: cls(a, 64)),
):
    for spelled in names:
        ONE[spelled] = (bits, 32, lambda a, f=compute_one: (f(a), None))


def both(arch: str, names: dict[str, object]) -> list[str]:
    return [name for name in names if name in ISAS[arch].by_name]


def pair(register: int, bits: int) -> str:
    return f"s[{register}:{register + 1}]" if bits == 64 else f"s{register}"


def values(bits: int) -> list[int]:
    return EDGES if bits == 32 else [a | b << 32 for a, b in zip(EDGES, reversed(EDGES))]


@pytest.mark.sampled(60)
@pytest.mark.parametrize(("arch", "name"), [(arch, name) for arch in ISAS for name in both(arch, dict(TWO))])
def test_scalar_instructions_of_two_sources(arch: str, name: str) -> None:
    bits, meaning = TWO[name]
    for a in values(bits):
        for c in values(bits):
            check(arch, name, bits, bits, bits, a, c, meaning(a, c))


@pytest.mark.parametrize(
    ("arch", "name"), [(arch, name) for arch in ISAS for name in both(arch, dict(WIDE_BY_NARROW))]
)
def test_wide_shifts_and_fields(arch: str, name: str) -> None:
    for a in values(64):
        for c in EDGES:
            check(arch, name, 64, 32, 64, a, c, WIDE_BY_NARROW[name](a, c))


def check(arch: str, name: str, bits_a: int, bits_b: int, out: int, a: int, c: int, expected: Result) -> None:
    state = {4: a, 5: a >> 32, 6: c, 7: c >> 32}
    b = run(arch, name, pair(8, out), pair(4, bits_a), pair(6, bits_b), s=state, scc=True)
    actual = int(b.s[0, 8]) | (int(b.s[0, 9]) << 32 if out == 64 else 0)
    value, scc = expected
    assert actual == value & (1 << out) - 1, f"{name}({a:#x}, {c:#x})"
    assert bool(b.scc[0]) == (True if scc is None else scc), f"SCC of {name}({a:#x}, {c:#x})"


@pytest.mark.parametrize(("arch", "name"), [(arch, name) for arch in ISAS for name in both(arch, dict(ONE))])
def test_scalar_instructions_of_one_source(arch: str, name: str) -> None:
    bits, out, meaning = ONE[name]
    for a in values(bits):
        b = run(arch, name, pair(8, out), pair(4, bits), s={4: a, 5: a >> 32}, scc=True)
        actual = int(b.s[0, 8]) | (int(b.s[0, 9]) << 32 if out == 64 else 0)
        value, scc = meaning(a)
        assert actual == value & (1 << out) - 1, f"{name}({a:#x})"
        assert bool(b.scc[0]) == (True if scc is None else scc)


@pytest.mark.parametrize("arch", ISAS)
@pytest.mark.parametrize("kind", ["i32", "u32", "u64"])
def test_scalar_compares(arch: str, kind: str) -> None:
    bits = int(kind[1:])
    tests = {"eq": "==", "lg": "!=", "gt": ">", "ge": ">=", "lt": "<", "le": "<="}
    for test, sign in tests.items():
        if bits == 64 and test not in ("eq", "lg"):
            continue
        for a in values(bits):
            for c in (a, values(bits)[5], M32 if bits == 32 else M64):
                b = run(
                    arch,
                    f"s_cmp_{test}_{kind}",
                    pair(4, bits),
                    pair(6, bits),
                    s={4: a, 5: a >> 32, 6: c, 7: c >> 32},
                )
                x, y = (s(a), s(c)) if kind[0] == "i" else (a, c)
                assert bool(b.scc[0]) == eval(f"{x} {sign} {y}")


@pytest.mark.parametrize("arch", ISAS)
def test_immediates_extend_as_their_instruction_says(arch: str) -> None:
    b = run(arch, "s_movk_i32", "s4", -5)
    assert s(int(b.s[0, 4])) == -5
    b = run(arch, "s_addk_i32", "s4", -5, s={4: 0x80000001})
    assert int(b.s[0, 4]) == 0x7FFFFFFC and bool(b.scc[0])
    b = run(arch, "s_mulk_i32", "s4", -5, s={4: 7})
    assert s(int(b.s[0, 4])) == -35
    if arch == "gfx1201":
        return  # it has no s_cmpk
    assert bool(run(arch, "s_cmpk_lt_i32", "s4", -5, s={4: M32 - 9}).scc[0])
    assert not bool(run(arch, "s_cmpk_lt_u32", "s4", 0xFFFB, s={4: M32 - 9}).scc[0])


SAVED = {"and": lambda a, e: a & e, "or": lambda a, e: a | e, "xor": lambda a, e: a ^ e}
SAVED |= {"and_not1": lambda a, e: a & ~e, "and_not0": lambda a, e: ~a & e}
OLDER = {"and_not1": "andn2", "and_not0": "andn1"}


@pytest.mark.parametrize("arch", ISAS)
@pytest.mark.parametrize("name", SAVED)
def test_saveexec_keeps_the_old_mask_and_changes_the_lanes(arch: str, name: str) -> None:
    bits = 64 if arch in GFX9 else 32
    lanes = np.arange(bits) % 3 != 0
    before = sum(1 << i for i in range(bits) if lanes[i])
    a = 0x00FF00FF_F0F0AAAA & (1 << bits) - 1
    spelled = OLDER.get(name, name) if arch in OLD_NAMES else name
    b = run(
        arch, f"s_{spelled}_saveexec_b{bits}", pair(8, bits), pair(4, bits), s={4: a, 5: a >> 32}, lanes=lanes
    )
    after = SAVED[name](a, before) & (1 << bits) - 1
    assert (int(b.s[0, 8]) | int(b.s[0, 9]) << 32) == before
    assert [bool(x) for x in b.lanes[0]] == [bool(after >> i & 1) for i in range(bits)]
    assert bool(b.scc[0]) == (after != 0)


@pytest.mark.parametrize("arch", sorted(set(ISAS) - GFX9))
def test_null_reads_zero_and_drops_what_is_written(arch: str) -> None:
    b = run(arch, "s_mov_b32", "null", 7)
    assert int(b.s[0, ISAS[arch].null]) == 0
    b = run(arch, "s_add_u32", "s4", "null", 5)
    assert int(b.s[0, 4]) == 5


@pytest.mark.parametrize("arch", ISAS)
def test_sixty_four_bit_literals_are_zero_extended_and_small_constants_sign_extended(arch: str) -> None:
    b = run(arch, "s_mov_b64", "s[4:5]", 0x80000000)
    assert (int(b.s[0, 4]), int(b.s[0, 5])) == (0x80000000, 0)
    b = run(arch, "s_mov_b64", "s[4:5]", -1)
    assert (int(b.s[0, 4]), int(b.s[0, 5])) == (M32, M32)
    b = (
        run(arch, "v_add_f64", "v[0:1]", 1.5, 2.0, form="VOP3")
        if arch not in GFX9
        else run(arch, "v_add_f64", "v[0:1]", 0.5, 2.0)
    )
    assert float((b.u32[0, 0] | b.u32[1, 0].astype(np.uint64) << np.uint64(32)).view(np.float64)[0]) in (
        3.5,
        2.5,
    )


def test_the_mode_register_reads_back() -> None:
    words = ISAS["gfx1100"].encode("s_getreg_b32", sdst=4, simm16=1 | 9 << 11)
    assert int(run_words("gfx1100", words).s[0, 4]) == 0x3F0
    words = ISAS["gfx1100"].encode("s_getreg_b32", sdst=4, simm16=40 | 31 << 11)
    with pytest.raises(IllegalOperation, match="hardware register 40 is not emulated"):
        run_words("gfx1100", words)


@pytest.mark.parametrize("arch", [arch for arch in ISAS if not arch.startswith("gfx12")])
@pytest.mark.parametrize(("base", "offset"), [("src_shared_base", 16), ("src_private_base", 0)])
def test_the_hardware_register_of_an_aperture_is_the_upper_half_of_its_base(
    arch: str, base: str, offset: int
) -> None:
    """What LLVM up to 15 makes of a generic pointer: SH_MEM_BASES, moved left by 16."""
    words = ISAS[arch].encode("s_getreg_b32", sdst=4, simm16=15 | offset << 6 | 15 << 11)
    upper = int(run_words(arch, words).s[0, 4])
    code = {"src_shared_base": 235, "src_private_base": 237}[base]
    words = ISAS[arch].encode("s_mov_b64", sdst=4, ssrc0=code)
    assert upper << 16 == int(run_words(arch, words).s[0, 5]) > 0
