"""Random PTX of a warpgroup: its products in all forms, and copies that threads have under way, by any numbers.

In       a seed
Out      a kernel's text and its arrays; what it leaves in memory, interpreted or compiled
Changes  nothing outside of its own arrays
Next     test_native_copies.py, tests/campaigns/compiled_cores.py
"""

from __future__ import annotations

import dataclasses
import functools
import random
from typing import Any, NamedTuple

import numpy as np

from hcq import config
from tests.hcq.emu.nv.shader import test_warpgroup_ops as forms
from tests.hcq.emu.nv.shader.running import HEADER, Launch

THREADS = 128
SLOT_BYTES = 64  # of shared memory, of each thread
KINDS = [
    (("f16", "f16"), ("f32", "f16")), (("bf16", "bf16"), ("f32",)), (("tf32", "tf32"), ("f32",)),
    (("e4m3", "e5m2"), ("f32", "f16")), (("e5m2", "e5m2"), ("f32",)), (("s8", "u8"), ("s32",)),
    (("u8", "s8"), ("s32",)),
]  # fmt: skip


class Random(NamedTuple):
    """A kernel `k`, and its arrays, the last of which it writes. floats: the type of what it writes, if it is one."""

    text: str
    arrays: tuple[Any, ...]
    floats: Any


class Outcome(NamedTuple):
    """What a kernel has left; what the interpreter had to run of it, if it was compiled."""

    out: Any
    why_not: dict[str, str]


def run(one: Random, way: str) -> Outcome:
    """way: "0" interpreted, "always" compiled."""
    before = config.current()
    try:
        config.use(dataclasses.replace(before, emu_compiled=way))
        launch, arrays = Launch(), [array.copy() for array in one.arrays]
        loaded = launch.load(one.text, "k")
        launch.run(loaded, 1, THREADS, *arrays)
        found: dict[str, str] = {}
        for native in loaded.program.entry.native.values():
            assert native is not None
            found |= native.facts.why_not
        assert bool(loaded.program.entry.native) == (way == "always")
        return Outcome(arrays[-1], found)
    finally:
        config.use(before)


def differ(one: Random, a: Any, b: Any) -> int:
    """How many numbers are not the same, NaNs apart."""
    p, q = (np.ascontiguousarray(x).reshape(-1).view(one.floats or np.uint32) for x in (a, b))
    same = p == q
    if one.floats:
        same = (same & (np.signbit(p) == np.signbit(q))) | ((p != p) & (q != q))
    return int(np.count_nonzero(~same))


def product(seed: int) -> Random:
    """A `wgmma.mma_async` of any form, of any bits: NaNs and infinities are among them in some kernels."""
    rng = random.Random(seed)
    kinds, results = rng.choice(KINDS)
    result = rng.choice(results)
    size = forms.BYTES[kinds[0]]
    depth, columns = 32 // size, 8 * rng.choice([1, 2, 3, 8, 12, 32] if result != "s32" else [1, 2, 3, 8, 32])
    swizzles = [rng.choice(list(forms.SPANS)) for _ in range(2)]
    majors = [rng.choice(word) if size == 2 else "k" for word in ("km", "kn")]
    in_registers = rng.random() < 0.3
    rows = (64, columns)
    layouts = [forms.Layout(*four) for four in zip(rows, kinds, majors, swizzles)]
    draw = np.random.default_rng(seed)
    mask = {2: 0xB7FF if kinds[0] == "f16" else 0xBFFF, 4: 0xBFFFFFFF, 1: 0xFF}[size]
    unsigned = {1: np.uint8, 2: np.uint16, 4: np.uint32}[size]
    images = []
    for layout in layouts:
        bits = draw.integers(0, 1 << 8 * size, layout.size_bytes // size, np.uint64).astype(unsigned)
        calm = bits & unsigned(mask)
        images.append(np.where(draw.random(len(bits)) < 0.99, calm, bits) if seed % 2 else calm)
    if in_registers:
        images[0] = (
            images[0][: THREADS * 16 // size]
            if images[0].nbytes >= THREADS * 16
            else np.resize(images[0], THREADS * 16 // size)
        )
    words = columns // (4 if result == "f16" else 2)
    d = draw.integers(0, 1 << 32, (THREADS, words), np.uint64).astype(np.uint32)
    d &= np.uint32(0xB7FFB7FF if result == "f16" else 0xFFFFFFFF if result == "s32" else 0xC3FFFFFF)
    flags = [rng.choice(["%one", "%zero", "!%one", "%one"])]
    if result != "s32":
        flags += [str(rng.choice([1, -1])) for _ in range(2)]
    if size == 2:
        flags += [str(int(major != "k")) for major in majors[1 if in_registers else 0 :]]
    saturates = ".satfinite" if result == "s32" and rng.random() < 0.5 else ""
    octets = [np.ascontiguousarray(image).view(np.uint8) for image in images]
    text = forms.kernel(
        f"m64n{columns}k{depth}{saturates}", f"{result}.{kinds[0]}.{kinds[1]}", 0 if in_registers else len(octets[0]),
        len(octets[1]), layouts[0].descriptor, layouts[1].descriptor, words, ", ".join(flags), in_registers,
    )  # fmt: skip
    line = next(line for line in text.splitlines() if line.startswith("wgmma.mma_async"))
    text = text.replace(line, f"{line}\n{line.replace(flags[0], '%one', 1)}", 1)
    return Random(text, (*octets, d), {"f32": np.float32, "f16": np.float16, "s32": None}[result])


def copies(seed: int) -> Random:
    """`cp.async` of any size by some threads, its groups and waits, between stores, loads, and what is interpreted."""
    rng = random.Random(seed)
    lines: list[str] = []
    # places in the memory of a thread and of one of its warp: what other warps do at what time is not said
    place = functools.partial(rng.choice, ["%mine", "%theirs"])

    def guard() -> str:
        return f"@{rng.choice(['', '!'])}%p{rng.randrange(4)} " if rng.random() < 0.4 else ""

    def one() -> str:
        size = rng.choice([4, 8, 16])
        at = size * rng.randrange(SLOT_BYTES // size)
        which = rng.random()
        if which < 0.4:
            start = size * rng.randrange(256 // size)
            bits = "ca" if size < 16 else rng.choice(["ca", "cg"])
            read = rng.choice(["", "", f", {size}", ", 0", ", %keep", f", {size // 2}"])
            return f"{guard()}cp.async.{bits}.shared.global [{place()}+{at}], [%from+{start}], {size}{read};"
        if which < 0.55:
            return f"{guard()}cp.async.commit_group;"
        if which < 0.7:
            return f"{guard()}cp.async.wait_group {rng.randrange(4)};"
        if which < 0.73:
            return f"{guard()}cp.async.wait_all;"
        if which < 0.8:
            return f"{guard()}st.shared.u32 [{place()}+{at}], %sum;"
        if which < 0.84:
            return "add.rm.f64 %e0, %e0, 0d3FD5555555555555;"
        word = 4 * rng.randrange(SLOT_BYTES // 4)
        return f"ld.shared.u32 %word, [{place()}+{word}]; mad.lo.u32 %sum, %sum, 31, %word;"

    for _ in range(rng.choice([10, 40, 120])):
        lines.append(one())
    loop = "\n".join(lines)
    text = f"""{HEADER}.visible .entry k(.param .u64 in, .param .u64 out) {{
     .shared .align 16 .b8 tile[{THREADS * SLOT_BYTES}];
     .reg .b32 %i, %mine, %theirs, %sum, %word, %keep, %turn, %t; .reg .b64 %from, %to, %wide; .reg .f64 %e0;
     .reg .pred %p<4>, %again;
     mov.u32 %i, %tid.x; mov.u32 %t, tile; mad.lo.u32 %mine, %i, {SLOT_BYTES}, %t; xor.b32 %word, %i, 1;
     mad.lo.u32 %theirs, %word, {SLOT_BYTES}, %t; ld.param.u64 %from, [in]; ld.param.u64 %to, [out];
     mul.wide.u32 %wide, %i, 256; add.u64 %from, %from, %wide; mul.wide.u32 %wide, %i, 4; add.u64 %to, %to, %wide;
     mov.f64 %e0, 0d0000000000000000; mov.u32 %sum, %i; mov.u32 %turn, 0; and.b32 %keep, %i, 4;
     setp.lt.u32 %p0, %i, 70; and.b32 %word, %i, 1; setp.eq.u32 %p1, %word, 0; and.b32 %word, %i, 12;
     setp.ne.u32 %p2, %word, 4; setp.ne.u32 %p3, %i, 33;
    L: {loop}
     add.u32 %turn, %turn, 1; setp.lt.u32 %again, %turn, {rng.choice([1, 3])}; @%again bra L;
     st.global.u32 [%to], %sum; ret; }}"""
    data = np.random.default_rng(seed).integers(0, 256, 512 + THREADS * 256, np.uint64).astype(np.uint8)
    return Random(text, (data, np.zeros(THREADS, np.uint32)), None)
