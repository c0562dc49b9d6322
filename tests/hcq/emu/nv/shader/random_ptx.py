"""Random PTX: instructions on random registers, masks and memory, and kernels with random branches and loops.

In       a seed
Out      a kernel's text; what it leaves in memory, interpreted or compiled
Changes  nothing outside of its own arrays
Next     test_native.py
"""

from __future__ import annotations

import dataclasses
from typing import Any, NamedTuple

import numpy as np

from hcq import config
from tests.hcq.emu.nv.shader.running import HEADER, Launch

THREADS, REGISTERS, OUTPUTS = 96, 4, 4
# letters of registers: their PTX type, their bytes
KINDS = {
    "r": ("b32", 4),
    "d": ("b64", 8),
    "h": ("b16", 2),
    "f": ("f32", 4),
    "e": ("f64", 8),
    "p": ("pred", 0),
}


class Form(NamedTuple):
    """An instruction: its text up to the operands, the letters of its result and of its sources."""

    name: str
    result: str
    sources: str
    tail: str = ""


def _forms() -> list[Form]:
    found: list[Form] = []

    def of(names: str, result: str, sources: str, tail: str = "") -> None:
        found.extend(Form(name, result, sources, tail) for name in names.split())

    for letter, bits in (("r", 32), ("d", 64), ("h", 16)):
        u, s = f"u{bits}", f"s{bits}"
        of(
            f"add.{u} sub.{u} mul.lo.{u} mul.hi.{u} mul.hi.{s} div.{u} div.{s} rem.{u} rem.{s}",
            letter,
            2 * letter,
        )
        of(f"min.{u} min.{s} max.{u} max.{s} and.b{bits} or.b{bits} xor.b{bits}", letter, 2 * letter)
        of(f"neg.{s} abs.{s} not.b{bits} cnot.b{bits}", letter, letter)
        of(f"shl.b{bits} shr.{u} shr.{s}", letter, letter + "r")
        of(f"mad.lo.{u} sad.{u} sad.{s}", letter, 3 * letter)
        of(f"selp.b{bits}", letter, 2 * letter + "p")
        of(f"slct.{u}.s32", letter, 2 * letter + "r")
        for test in ("eq", "ne", "lt", "le", "gt", "ge"):
            of(f"setp.{test}.{s}", "p", 2 * letter)
            of(f"setp.{test}.and.{s}", "p", 2 * letter + "p")
        for test in ("lo", "ls", "hi", "hs"):
            of(f"setp.{test}.{u}", "p", 2 * letter)
    for letter, bits in (("r", 32), ("d", 64)):
        of(f"popc.b{bits} clz.b{bits} bfind.u{bits} bfind.s{bits} bfind.shiftamt.u{bits}", "r", letter)
        of(f"brev.b{bits}", letter, letter)
        of(f"bfe.u{bits} bfe.s{bits}", letter, letter + "rr")
        of(f"bfi.b{bits}", letter, 2 * letter + "rr")
        of(f"add.cc.u{bits} sub.cc.u{bits} addc.u{bits} subc.u{bits} addc.cc.u{bits}", letter, 2 * letter)
        of(f"mad.hi.u{bits} mad.hi.s{bits}", letter, 3 * letter)
    of("mul.wide.u32 mul.wide.s32", "d", "rr")
    of("mul.wide.u16 mul.wide.s16", "r", "hh")
    of("mad.wide.u32 mad.wide.s32", "d", "rrd")
    of("mul24.lo.u32 mul24.hi.s32", "r", "rr")
    of("add.sat.s32 sub.sat.s32", "r", "rr")
    of("dp4a.u32.u32 dp4a.s32.u32 dp4a.s32.s32 dp2a.lo.s32.s32 dp2a.hi.u32.s32", "r", "rrr")
    of("shf.l.wrap.b32 shf.l.clamp.b32 shf.r.wrap.b32 shf.r.clamp.b32", "r", "rrr")
    of("lop3.b32", "r", "rrr", ", 0xCA")
    of("lop3.b32", "r", "rrr", ", 0x96")
    of("prmt.b32", "r", "rr", ", 0x5410")
    of("prmt.b32", "r", "rr", ", 0xB0F2")
    of("szext.wrap.s32 szext.clamp.u32 bmsk.clamp.b32 bmsk.wrap.b32", "r", "rr")
    of("and.pred or.pred xor.pred", "p", "pp")
    of("not.pred mov.pred", "p", "p")
    for letter, kind in (("f", "f32"), ("e", "f64")):
        of(
            f"add.{kind} sub.{kind} mul.{kind} min.{kind} max.{kind} div.rn.{kind} copysign.{kind}",
            letter,
            2 * letter,
        )
        of(f"fma.rn.{kind}", letter, 3 * letter)
        of(f"neg.{kind} abs.{kind} sqrt.rn.{kind} rcp.rn.{kind}", letter, letter)
        of(f"selp.{kind}", letter, 2 * letter + "p")
        for test in (
            "eq",
            "ne",
            "lt",
            "le",
            "gt",
            "ge",
            "equ",
            "neu",
            "ltu",
            "leu",
            "gtu",
            "geu",
            "num",
            "nan",
        ):
            of(f"setp.{test}.{kind}", "p", 2 * letter)
        for what in ("finite", "infinite", "number", "notanumber", "normal", "subnormal"):
            of(f"testp.{what}.{kind}", "p", letter)
        for mode in ("rni", "rzi", "rmi", "rpi"):
            of(f"cvt.{mode}.s32.{kind} cvt.{mode}.u32.{kind}", "r", letter)
            of(f"cvt.{mode}.s64.{kind} cvt.{mode}.u64.{kind}", "d", letter)
            of(f"cvt.{mode}.u16.{kind}", "h", letter)
            of(f"cvt.{mode}.{kind}.{kind}", letter, letter)
        of(f"cvt.rn.{kind}.s32 cvt.rn.{kind}.u32", letter, "r")
        of(f"cvt.rn.{kind}.s64 cvt.rn.{kind}.u64", letter, "d")
        of(f"cvt.rn.{kind}.u16 cvt.rn.{kind}.s16", letter, "h")
    of("add.ftz.f32 mul.ftz.f32 add.sat.f32 mul.ftz.sat.f32 min.NaN.f32 max.NaN.f32", "f", "ff")
    of("add.rz.f32 add.rp.f32 mul.rm.f32 mul.rz.f32 sub.rm.f32 div.full.f32 div.approx.f32", "f", "ff")
    of("fma.rn.ftz.f32 fma.rn.sat.f32 fma.rz.f32 fma.rp.f32", "f", "fff")
    of("rsqrt.approx.f32 sqrt.approx.f32 rcp.approx.ftz.f32 neg.ftz.f32", "f", "f")
    of(
        "ex2.approx.f32 ex2.approx.ftz.f32 lg2.approx.f32 sin.approx.f32 cos.approx.f32 tanh.approx.f32",
        "f",
        "f",
    )
    of("ex2.approx.f16 tanh.approx.f16", "h", "h")
    of("ex2.approx.f16x2 tanh.approx.bf16x2", "r", "r")
    of("cvt.f64.f32", "e", "f")
    of("cvt.rn.f32.f64 cvt.rz.f32.f64", "f", "e")
    of("cvt.rn.f16.f32 cvt.rz.f16.f32 cvt.rn.bf16.f32", "h", "f")
    of("cvt.f32.f16 cvt.f32.bf16", "f", "h")
    of("cvt.rn.f16x2.f32 cvt.rn.bf16x2.f32", "r", "ff")
    of("cvt.u16.u32 cvt.s16.s32 cvt.sat.s16.s32 cvt.u8.u32", "h", "r")
    of("cvt.u64.u32 cvt.s64.s32", "d", "r")
    of("cvt.u32.u64 cvt.sat.u32.s64 cvt.s8.s64", "r", "d")
    of("cvt.u32.u16 cvt.s32.s16 cvt.s32.s8", "r", "h")
    of("mov.b32", "r", "r")
    of("mov.b64", "d", "d")
    of("add.f16 mul.f16 sub.f16 min.f16 add.rn.bf16", "h", "hh")
    of("fma.rn.f16 fma.rn.bf16", "h", "hhh")
    of("add.f16x2 mul.f16x2 max.f16x2", "r", "rr")
    of("fma.rn.f16x2 fma.rn.bf16x2", "r", "rrr")
    of("setp.lt.f16", "p", "hh")
    of("vote.sync.ballot.b32", "r", "p", ", 0xFFFFFFFF")
    of("vote.sync.any.pred vote.sync.all.pred vote.sync.uni.pred", "p", "p", ", 0xFFFFFFFF")
    of(
        "redux.sync.add.u32 redux.sync.min.u32 redux.sync.max.s32 redux.sync.min.s32",
        "r",
        "r",
        ", 0xFFFFFFFF",
    )
    of("redux.sync.and.b32 redux.sync.or.b32 redux.sync.xor.b32", "r", "r", ", 0xFFFFFFFF")
    of("shfl.sync.idx.b32 shfl.sync.bfly.b32", "r", "rr", ", 0x1F, 0xFFFFFFFF")
    of("shfl.sync.up.b32", "r", "rr", ", 0, 0xFFFFFFFF")
    of("shfl.sync.down.b32", "r", "rr", ", 0x81F, 0xFFFFFFFF")
    return found


FORMS = _forms()
# results that may be NaNs of which NumPy and LLVM each take one or the other: nothing else reads them
FLOATING = ("f16", "f16x2", "bf16", "bf16x2")


def makes_narrow_floats(form: Form) -> bool:
    """Whether a register of bits holds floats of 16 bits."""
    words = form.name.split(".")
    return (words[0] not in ("setp", "cvt") and bool(set(words) & set(FLOATING))) or form.name.startswith(
        ("cvt.rn.f16", "cvt.rz.f16", "cvt.rn.bf16")
    )


def declarations() -> str:
    """Registers: inputs and outputs of each kind, and what addresses need."""
    lines = [f".reg .{kind} %{letter}<16>;" for letter, (kind, _) in KINDS.items()]
    return "\n".join([*lines, ".reg .b32 %t<16>; .reg .b64 %a<16>; .reg .pred %q<16>;"])


def begin() -> str:
    """Each thread loads its inputs: REGISTERS of each kind."""
    lines = [
        "mov.u32 %t0, %tid.x; mov.u32 %t1, %ctaid.x; mov.u32 %t2, %ntid.x; mad.lo.u32 %t3, %t1, %t2, %t0;",
        "ld.param.u64 %a0, [in]; ld.param.u64 %a1, [out];",
    ]
    at = 0
    for letter, (kind, size) in KINDS.items():
        for number in range(REGISTERS):
            if not size:
                lines.append(
                    f"and.b32 %t4, %r{number}, {1 << number + 3}; setp.ne.u32 %{letter}{number}, %t4, 0;"
                )
                continue
            lines.append(
                f"mad.wide.u32 %a2, %t3, {size}, %a0; ld.global.{kind} %{letter}{number}, [%a2+{at}];"
            )
            at += size * THREADS
    return "\n".join(lines)


def end(results: list[tuple[str, str]]) -> str:
    """Each thread stores registers: (letter, name)."""
    lines, at = [], 0
    for letter, name in results:
        kind, size = KINDS[letter]
        if not size:
            lines.append(f"selp.b32 %t5, 1, 0, {name};")
            kind, size, name = "b32", 4, "%t5"
        lines.append(f"mad.wide.u32 %a3, %t3, {size}, %a1; st.global.{kind} [%a3+{at}], {name};")
        at += 8 * THREADS
    return "\n".join([*lines, "ret;"])


def inputs(seed: int) -> np.ndarray[Any, Any]:
    """Memory that threads load from: integers of all sizes, floats of all kinds."""
    rng = np.random.default_rng(seed)
    parts = []
    for letter, (_, size) in KINDS.items():
        for _ in range(REGISTERS if size else 0):
            bits = (
                rng.integers(0, 1 << 8 * size, THREADS, f"u{size}", endpoint=False)
                if size < 8
                else rng.integers(0, 1 << 64, THREADS, np.uint64)
            )
            small = rng.integers(0, 70, THREADS).astype(f"u{size}")
            mixed = np.where(rng.random(THREADS) < 0.3, small, bits).astype(f"u{size}")
            if letter in "fe":
                usual = (rng.standard_normal(THREADS) * 2.0 ** rng.integers(-20, 40, THREADS)).astype(
                    f"f{size}"
                )
                special = np.array(
                    [0, -0.0, np.inf, -np.inf, np.nan, 1, 1e-40, 3e9, -2147483648.5], f"f{size}"
                )
                pick = special[rng.integers(0, len(special), THREADS)]
                floats = np.where(rng.random(THREADS) < 0.2, pick, usual)
                mixed = np.where(rng.random(THREADS) < 0.15, mixed, floats.view(f"u{size}"))
            parts.append(mixed.view(np.uint8))
    return np.concatenate(parts)


def instructions(seed: int, forms: list[Form]) -> tuple[str, list[tuple[str, str]]]:
    """A kernel of these instructions in a row, and the registers that they write."""
    rng = np.random.default_rng(seed)
    pools = {letter: [f"%{letter}{number}" for number in range(REGISTERS)] for letter in KINDS}
    lines, results = [], []
    used = dict.fromkeys(KINDS, REGISTERS)
    for form in forms:
        sources = [str(rng.choice(pools[letter])) for letter in form.sources]
        if form.sources[1:2] == "r" and rng.random() < 0.2 and "setp" not in form.name:
            sources[1] = str(rng.integers(0, 40))
        target = f"%{form.result}{used[form.result]}"
        used[form.result] += 1
        is_of_warp = ".sync" in form.name
        guard = (
            f"@{rng.choice(['', '!'])}%p{rng.integers(REGISTERS)} "
            if rng.random() < 0.3 and not is_of_warp
            else ""
        )
        lines.append(f"{guard}{form.name} {target}, {', '.join(sources)}{form.tail};")
        results.append((form.result, target))
        if form.result in "rdhp" and not makes_narrow_floats(form) and not is_of_warp:
            pools[form.result].append(target)
    return kernel("\n".join(lines), results), results


def kernel(body: str, results: list[tuple[str, str]]) -> str:
    """The text around some lines."""
    return (
        HEADER.replace("sm_90", "sm_100").replace("8.3", "8.6")
        + f".visible .entry k(.param .u64 in, .param .u64 out) {{\n{declarations()}\n.shared .b8 mine[4096];\n"
        + f"{begin()}\n{body}\n{end(results)}\n}}\n"
    )


def branches(seed: int) -> tuple[str, list[tuple[str, str]]]:
    """A kernel of nested branches and loops, whose conditions and counts differ from thread to thread."""
    rng = np.random.default_rng(seed)
    state = {"labels": 0, "loops": 0}

    def simple() -> str:
        a, b, c = rng.integers(0, 6, 3)
        name = rng.choice(
            ["add.u32", "sub.u32", "xor.b32", "mul.lo.u32", "max.u32", "shfl", "shared", "vote"]
        )
        if name == "shfl":
            return f"activemask.b32 %t9; xor.b32 %r{a}, %r{a}, %r{b};"
        if name == "shared":
            return (
                f"and.b32 %t6, %t0, 127; shl.b32 %t6, %t6, 2; mov.u32 %t7, mine; add.u32 %t6, %t6, %t7;"
                f" st.shared.u32 [%t6], %r{a}; ld.shared.u32 %r{b}, [%t6]; add.u32 %r{b}, %r{b}, {int(c)};"
            )
        if name == "vote":
            return f"setp.lt.u32 %p{a}, %r{b}, %r{c};"
        return f"{name} %r{a}, %r{b}, %r{c};"

    def part(depth: int) -> str:
        lines = []
        for _ in range(rng.integers(1, 4)):
            which = rng.random()
            state["labels"] += 1
            label = f"L{state['labels']}"
            if depth == 0 or which < 0.4:
                lines.append(simple())
            elif which < 0.7:
                guard = f"@{rng.choice(['', '!'])}%p{rng.integers(0, 6)}"
                lines += [f"{guard} bra {label};", part(depth - 1), f"bra.uni {label}E;", f"{label}:"]
                lines += [part(depth - 1), f"{label}E:", simple()]
            elif which < 0.8:
                lines += [f"@%p{rng.integers(0, 6)} bra {label};", part(depth - 1), f"{label}:", simple()]
            else:
                counter = 6 + state["loops"] % 8
                state["loops"] += 1
                lines += [
                    f"and.b32 %r{counter}, %r{rng.integers(0, 6)}, 7; add.u32 %r{counter}, %r{counter}, 1;",
                    f"{label}:",
                    part(depth - 1),
                    f"sub.u32 %r{counter}, %r{counter}, 1; setp.ne.u32 %q{counter}, %r{counter}, 0;",
                    f"@%q{counter} bra {label};",
                    "shfl.sync.bfly.b32 %t8, %r0, 1, 31, 0xFFFFFFFF; add.u32 %r1, %r1, %t8;"
                    if depth == 3
                    else "",
                ]
        return "\n".join(lines)

    body = "mov.u32 %r4, %t0; mov.u32 %r5, %t3; setp.gt.u32 %p4, %t0, 13; setp.lt.u32 %p5, %r5, 50;\n" + part(
        3
    )
    results = [*(("r", f"%r{number}") for number in range(6)), *(("p", f"%p{number}") for number in range(6))]
    return kernel(body, results), results


class Outcome(NamedTuple):
    """What a kernel has left."""

    out: np.ndarray[Any, Any]
    why_not: dict[str, str]


def run(text: str, seed: int, way: str, results: int) -> Outcome:
    """Run a kernel. way: "0" interpreted, "always" compiled."""
    before = config.current()
    try:
        config.use(dataclasses.replace(before, emu_compiled=way))
        launch = Launch()
        loaded = launch.load(text, "k")
        out = np.zeros(8 * THREADS * results + 64, np.uint8)
        launch.run(loaded, 1, THREADS, inputs(seed), out)
        found: dict[str, str] = {}
        for one in loaded.program.entry.native.values():
            found |= {} if one is None else one.facts.why_not
        return Outcome(out, found)
    finally:
        config.use(before)


def differences(a: Outcome, b: Outcome, results: list[tuple[str, str]], narrow: set[int]) -> list[int]:
    """Which results are not the same, NaNs apart. narrow: those that are floats of 16 bits."""
    found = []
    for number, (letter, _) in enumerate(results):
        x, y = (one.out[8 * THREADS * number : 8 * THREADS * (number + 1)] for one in (a, b))
        if letter in "fe" or number in narrow:
            size = KINDS[letter][1]
            p, q = (one[: size * THREADS].view(f"f{size}" if letter in "fe" else np.uint16) for one in (x, y))
            same = (p == q) | ((p != p) & (q != q))
            if letter in "fe":
                same &= (np.signbit(p) == np.signbit(q)) | (p != p)
            if not same.all():
                found.append(number)
        elif not np.array_equal(x, y):
            found.append(number)
    return found
