"""Compiled PTX leaves the bits that the interpreter leaves, and stops where it stops.

In       random instructions, branches and loops; whole kernels
Out      memory, faults and counts that are alike
Changes  nothing outside of its own arrays
Next     random_ptx.py (the kernels), tests/hcq/emu/amd/shader/test_native.py (the same of AMD's machine code)
"""

from __future__ import annotations

import dataclasses
import random
import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from hcq import config
from hcq.emu.compiled import assemble, threads
from hcq.emu.nv.shader import native_text
from hcq.emu.nv.shader.errors import (
    Deadlock,
    Interrupted,
    KernelFault,
    MisalignedAccess,
    PageFault,
    StepLimit,
    Trap,
)
from hcq.emu.nv.shader.flow import blocks_of
from hcq.emu.nv.shader.native_order import ordered
from hcq.emu.nv.shader.parser import parse
from hcq.emu.nv.shader.run import Kernel, Report
from hcq.emu.shader.schedule import Schedule
from hcq.emu.shader.traffic import Tally
from tests.hcq.emu.nv.shader import random_ptx
from tests.hcq.emu.nv.shader.running import HEADER, Launch

pytestmark = pytest.mark.skipif(assemble.tools() is None, reason="needs LLVM: pip install 'hcq[tensor]'")

IN_A_KERNEL = 12  # instructions
KERNELS = -(-len(random_ptx.FORMS) // IN_A_KERNEL)

HEAD = """
 .reg .b32 %r<16>; .reg .b64 %d<8>; .reg .f32 %f<8>; .reg .f64 %e<4>; .reg .pred %p<8>;
 ld.param.u64 %d0, [in]; ld.param.u64 %d1, [out]; ld.param.u32 %r1, [count];
 mov.u32 %r0, %tid.x; mov.u32 %r2, %ctaid.x; mov.u32 %r3, %ntid.x; mad.lo.u32 %r4, %r2, %r3, %r0;
 mul.wide.u32 %d2, %r4, 4; add.u64 %d3, %d0, %d2; add.u64 %d4, %d1, %d2;
"""
LOOP = """
 ld.global.f32 %f0, [%d3]; mov.f32 %f1, %f0; mov.u32 %r5, 0;
L: fma.rn.f32 %f1, %f1, %f0, 0f3F000000; add.u32 %r5, %r5, 1; setp.ne.u32 %p0, %r5, %r1; @%p0 bra L;
 st.global.f32 [%d4], %f1; ret;
"""


def kernel(body: str) -> str:
    """A kernel with addresses of each thread's input and output in %d3 and %d4."""
    return f"{HEADER}.visible .entry k(.param .u64 in, .param .u64 out, .param .u32 count) {{\n{HEAD}{body}\n}}\n"


@pytest.fixture
def way(request: pytest.FixtureRequest) -> Iterator[str]:
    """HCQ_EMU_COMPILED as the test's parameter says."""
    before = config.current()
    config.use(dataclasses.replace(before, emu_compiled=request.param))
    yield request.param
    config.use(before)


compiled = pytest.mark.parametrize("way", ["always"], indirect=True)
both = pytest.mark.parametrize("way", ["0", "always"], indirect=True)


class Ran:
    """A kernel that has run over 64 threads in each of two blocks."""

    def __init__(self, body: str, count: int = 5, outputs: int = 128, **options: Any) -> None:
        launch = Launch()
        self.kernel: Kernel = launch.load(kernel(body), "k", counts=options.get("tally") is not None)
        self.out = np.zeros(outputs, np.uint32)
        self.inputs = np.linspace(-1, 1, 128, dtype=np.float32)
        args = self.inputs, self.out, np.uint32(count).tobytes()
        self.report: Report = launch.run(self.kernel, 2, 64, *args, **options)

    @property
    def is_compiled(self) -> bool:
        """Whether it ran as machine code."""
        return any(self.kernel.program.entry.native.values())

    @property
    def left(self) -> set[str]:
        """Names of the instructions that the interpreter ran."""
        return {
            name for one in self.kernel.program.entry.native.values() if one for name in one.facts.why_not
        }


def by_both(body: str, **options: Any) -> tuple[Ran, Ran]:
    """A kernel interpreted, and compiled."""
    before, found = config.current(), []
    try:
        for one in ("0", "always"):
            config.use(dataclasses.replace(before, emu_compiled=one))
            found.append(Ran(body, **options))
    finally:
        config.use(before)
    assert found[1].is_compiled and not found[0].is_compiled
    return found[0], found[1]


# -- the same bits


@pytest.mark.parametrize("number", range(KERNELS))
def test_random_instructions_leave_the_same_bits(number: int) -> None:
    order = np.random.default_rng(7).permutation(len(random_ptx.FORMS))
    forms = [random_ptx.FORMS[one] for one in order[number * IN_A_KERNEL :][:IN_A_KERNEL]]
    text, results = random_ptx.instructions(number, forms)
    interpreted, by_machine = (random_ptx.run(text, number, way, len(forms)) for way in ("0", "always"))
    narrow = {place for place, form in enumerate(forms) if random_ptx.makes_narrow_floats(form)}
    wrong = random_ptx.differences(interpreted, by_machine, results, narrow)
    assert not wrong, [forms[place] for place in wrong]
    assert not by_machine.why_not


@pytest.mark.parametrize("seed", range(24))
def test_threads_that_part_and_meet_leave_the_same_bits(seed: int) -> None:
    text, results = random_ptx.branches(seed)
    interpreted, by_machine = (random_ptx.run(text, seed, way, len(results)) for way in ("0", "always"))
    assert not random_ptx.differences(interpreted, by_machine, results, set())


@pytest.mark.parametrize(
    "kind", ["u8", "s8", "u16", "u32", "u64", "v2.u32", "v4.u32", "v2.u64", "v4.u8", "v2.u16"]
)
@pytest.mark.parametrize(
    "pattern", ["beside", "one", "halves", "anywhere", "two beside", "two alike", "backwards"]
)
def test_memory_is_read_and_written_alike(kind: str, pattern: str) -> None:
    count, one = (int(kind[1]), kind[3:]) if kind[0] == "v" else (1, kind)
    size, letter = int(one[1:]) // 8 * count, "d" if one.endswith("64") else "r"
    registers = ", ".join(f"%{letter}{number + (8 if letter == 'r' else 5)}" for number in range(count))
    if count > 1:
        registers = f"{{{registers}}}"
    vector = f"{kind[:2]}." if count > 1 else ""
    place = {
        "beside": "mov.u32 %r6, %r0;",
        "one": "mov.u32 %r6, 3;",
        "halves": "and.b32 %r6, %r0, 15;",
        "anywhere": "mul.lo.u32 %r6, %r0, 29; and.b32 %r6, %r6, 31;",
        "two beside": "shr.u32 %r7, %r0, 1; mul.lo.u32 %r6, %r7, 5; and.b32 %r7, %r0, 1; add.u32 %r6, %r6, %r7;",
        "two alike": "shr.u32 %r6, %r0, 1;",
        "backwards": "and.b32 %r6, %r0, 31; sub.u32 %r6, 31, %r6;",
    }[pattern]
    body = f"""
     .shared .align 16 .b8 tile[4096];
     {place} and.b32 %r7, %r0, 4; setp.ne.u32 %p1, %r7, 0;
     mul.wide.u32 %d2, %r6, {size}; and.b64 %d2, %d2, 0x1ff; add.u64 %d3, %d0, %d2;
     mov.u32 %r13, tile; mad.lo.u32 %r13, %r0, {size}, %r13;
     ld.global.{vector}{one} {registers}, [%d3]; st.shared.{vector}{one} [%r13], {registers};
     @%p1 ld.shared.{vector}{one} {registers}, [%r13];
     mad.wide.u32 %d4, %r4, {size}, %d1; @!%p1 st.global.{vector}{one} [%d4], {registers};
     and.b64 %d2, %d2, 0xff; add.u64 %d4, %d1, %d2; st.global.{vector}{one} [%d4+{128 * size}], {registers}; ret;"""
    interpreted, by_machine = by_both(body, outputs=2048)
    assert interpreted.out.any() and (interpreted.out == by_machine.out).all() and not by_machine.left


@both
def test_threads_exchange_values_through_shared_memory_at_barriers(way: str) -> None:
    body = """
     .shared .align 4 .b8 tile[256]; mov.u32 %r8, tile; shl.b32 %r9, %r0, 2; add.u32 %r9, %r8, %r9;
     xor.b32 %r10, %r0, 63; shl.b32 %r10, %r10, 2; add.u32 %r10, %r8, %r10; mov.u32 %r5, 0; mov.u32 %r6, %r4;
    L: st.shared.u32 [%r9], %r6; bar.sync 0; ld.shared.u32 %r7, [%r10]; bar.sync 0;
     mad.lo.u32 %r6, %r7, 3, %r6; add.u32 %r5, %r5, 1; setp.lt.u32 %p0, %r5, %r1; @%p0 bra L;
     st.global.u32 [%d4], %r6; ret;"""
    expected = np.arange(128, dtype=np.uint32).reshape(2, 64)
    for _ in range(5):
        expected = expected + 3 * expected[:, ::-1]
    ran = Ran(body)
    assert (ran.out == expected.reshape(-1)).all() and ran.is_compiled == (way == "always")


@both
def test_functions_have_registers_and_parameters_of_their_own(way: str) -> None:
    function = """.func (.param .b32 back) twice(.param .b32 x) { .reg .b32 %a<3>; ld.param.u32 %a0, [x];
     add.u32 %a1, %a0, %a0; st.param.b32 [back], %a1; ret; }\n"""
    body = """
     { .param .b32 x; .param .b32 back; st.param.b32 [x], %r4; call.uni (back), twice, (x);
       ld.param.b32 %r5, [back]; } add.u32 %r5, %r5, 1; st.global.u32 [%d4], %r5; ret;"""
    launch, out = Launch(), np.zeros(128, np.uint32)
    loaded = launch.load(kernel(body).replace(".visible", function + ".visible"), "k")
    launch.run(loaded, 2, 64, np.zeros(4, np.float32), out, 0)
    assert (out == 2 * np.arange(128) + 1).all()


@both
def test_what_is_not_compiled_is_run_between_what_is(way: str) -> None:
    body = """
     ld.global.f32 %f0, [%d3]; mov.f32 %f1, 0f00000000; mov.u32 %r5, 0;
    L: add.f32 %f2, %f0, %f1; mul.f32 %f2, %f2, 0f3F000000; add.f32 %f2, %f2, %f0; mul.f32 %f2, %f2, %f2;
     add.rm.f64 %e1, %e0, 0d3FD5555555555555; add.f32 %f1, %f1, %f2; mul.f32 %f1, %f1, 0f3F000000;
     add.f32 %f1, %f1, %f2;
     atom.global.add.f32 %f3, [%d1+512], 0f3F800000; sub.f32 %f1, %f1, %f0; add.u32 %r5, %r5, 1;
     setp.ne.u32 %p0, %r5, 5; @%p0 bra L; st.global.f32 [%d4], %f1; ret;"""
    ran = Ran(body, outputs=129)
    x, y = ran.inputs, np.zeros(128, np.float32)
    half = np.float32(0.5)
    with np.errstate(over="ignore"):
        for _ in range(5):
            z = ((x + y) * half + x) ** 2
            y = (y + z) * half + z - x
    assert (ran.out[:128].view(np.float32) == y).all() and ran.out[128:].view(np.float32)[0] == 640
    assert ran.left == ({"add.rm.f64"} if way == "always" else set())


@pytest.mark.parametrize("space", ["global", "shared", ""])
@pytest.mark.parametrize("kind", ["u32", "s32", "u64"])
def test_atomics_of_integers_leave_the_same_bits(space: str, kind: str) -> None:
    letter, size = ("d", 8) if kind == "u64" else ("r", 4)
    words, dot = ["add", "min", "max", "exch", "inc", "dec", "and", "or", "xor"], f".{space}" if space else ""
    base = "mov.u64 %d5, tile;" if space == "shared" else "mov.u64 %d5, tile; cvta.shared.u64 %d5, %d5;"
    if space == "global":
        base = "add.u64 %d5, %d1, 2048;"
    value = "mad.lo.u32 %r8, %r4, 0x9E3779B1, 12345; cvt.u64.u32 %d6, %r8; mul.lo.u64 %d6, %d6, 0x9E3779B97F4A7C15;"
    body = f"""
     .shared .align 16 .b8 tile[1024]; {base} {value} and.b32 %r9, %r0, 3; setp.ne.u32 %p1, %r9, 1;
     mul.wide.u32 %d7, %r9, {size}; add.u64 %d5, %d5, %d7; mov.{kind} %{letter}3, 0;"""
    for number, word in enumerate(words):
        if word in ("inc", "dec") and kind != "u32":
            continue
        type_ = f"b{kind[1:]}" if word in ("and", "or", "xor", "exch") else kind
        source = "%d6" if letter == "d" else "%r8"
        body += f"\n @%p1 atom{dot}.{word}.{type_} %{letter}2, [%d5+{32 * number}], {source};"
        body += f" red{dot}.add.{'u64' if letter == 'd' else 'u32'} [%d5+{32 * number}], {source};"
        body += f" xor.b{kind[1:]} %{letter}3, %{letter}3, %{letter}2;"
    cas = f"atom{dot}.cas.b{kind[1:]} %{letter}2, [%d5+480], 0, {source};"
    body += f"\n {cas} bar.sync 0; ld{dot}.u32 %r10, [%d5+480]; add.u32 %r10, %r10, %r8; st.global.u32 [%d4], %r10;"
    if space == "global":
        body = body.replace("bar.sync 0;", "")
    body += " ret;"
    # of two warps that meet at one word each may be first: each warp has words for itself
    warp = f"shr.u32 %r10, {'%r4' if space == 'global' else '%r0'}, 5; mad.lo.u32 %r9, %r10, 200, %r9;"
    body = body.replace("and.b32 %r9, %r0, 3;", f"and.b32 %r9, %r0, 3; {warp}")
    body = body.replace("setp.ne.u32 %p1, %r9, 1;", "and.b32 %r10, %r0, 3; setp.ne.u32 %p1, %r10, 1;")
    body = body.replace("tile[1024]", "tile[4096]")
    interpreted, by_machine = by_both(body, outputs=2048)
    assert interpreted.out.any() and (interpreted.out == by_machine.out).all() and not by_machine.left


@pytest.mark.parametrize("space", ["global", "shared", ""])
@pytest.mark.parametrize("kind", ["f32", "f64"])
@pytest.mark.parametrize("shape", ["together", "apart", "rounds"])
def test_sums_of_floats_are_made_in_the_same_order(space: str, kind: str, shape: str) -> None:
    letter, size, dot = ("e", 8, f".{space}") if kind == "f64" else ("f", 4, f".{space}")
    dot = dot if space else ""
    base = "mov.u64 %d5, tile;" if space == "shared" else "mov.u64 %d5, tile; cvta.shared.u64 %d5, %d5;"
    if space == "global":
        base = "add.u64 %d5, %d1, 4096;"
    widen = "cvt.f64.f32 %e0, %f0;" if kind == "f64" else ""
    one = f"""atom{dot}.add.{kind} %{letter}1, [%d6], %{letter}0; add.{kind} %{letter}2, %{letter}2, %{letter}1;
     @%p1 red{dot}.add.{kind} [%d5], %{letter}0; mul.{kind} %{letter}0, %{letter}0, %{letter}0;"""
    # some threads come later, or again
    body = {
        "together": one,
        "apart": f"@%p2 bra ELSE; {one} bra.uni BOTH; ELSE: add.u32 %r9, %r9, 1; {one} BOTH: {one}",
        "rounds": f"and.b32 %r10, %r4, 5; L: {one} sub.u32 %r10, %r10, 1; setp.ge.s32 %p3, %r10, 0; @%p3 bra L; {one}",
    }[shape]
    zero = "0d0000000000000000" if kind == "f64" else "0f00000000"
    text = f"""
     .shared .align 16 .b8 tile[1024]; {base} ld.global.f32 %f0, [%d3]; fma.rn.f32 %f0, %f0, 0f461C4000, 0f3DCCCCCD;
     mov.{kind} %{letter}2, {zero}; {widen} and.b32 %r9, %r0, 3; mul.wide.u32 %d6, %r9, {size}; add.u64 %d6, %d5, %d6;
     and.b32 %r8, %r0, 2; setp.ne.u32 %p1, %r8, 0; and.b32 %r8, %r0, 5; setp.eq.u32 %p2, %r8, 1;
     {body} mad.wide.u32 %d7, %r4, {size}, %d1; st.global.{kind} [%d7], %{letter}2;
     bar.sync 0; ld{dot}.u32 %r7, [%d5]; mad.wide.u32 %d7, %r4, 4, %d1; st.global.u32 [%d7+2048], %r7; ret;"""
    if space == "global":
        text = text.replace("bar.sync 0; ld.global.u32 %r7, [%d5];", "mov.u32 %r7, 0;")
    interpreted, by_machine = by_both(text, outputs=2048)
    assert interpreted.out.any() and (interpreted.out == by_machine.out).all() and not by_machine.left


@both
def test_a_warp_votes_where_all_of_its_threads_have_come(way: str) -> None:
    body = """
     and.b32 %r5, %r0, 1; setp.eq.u32 %p0, %r5, 0; @%p0 bra EVEN;
     mul.lo.u32 %r6, %r0, 5; bra.uni MEET;
    EVEN: mul.lo.u32 %r6, %r0, 3;
    MEET: setp.gt.u32 %p1, %r6, 60; vote.sync.ballot.b32 %r7, %p1, 0xFFFFFFFF; st.global.u32 [%d4], %r7; ret;"""
    ran = Ran(body)
    truth = [t * (5 if t & 1 else 3) > 60 for t in range(64)]
    warps = [sum(truth[32 * warp + lane] << lane for lane in range(32)) for warp in range(2)]
    assert ran.out.tolist() == [warps[t // 32] for t in range(64)] * 2


PRODUCTS = {
    "m16n8k16.row.col.f32.f16.f16.f32": (4, 2, "0xB7FFB7FF"),
    "m16n8k8.row.col.f32.f16.f16.f32": (2, 1, "0xFFFFFFFF"),  # NaNs and infinities among them
    "m16n8k16.row.col.f32.bf16.bf16.f32": (4, 2, "0xBFFFBFFF"),
    "m16n8k8.row.col.f32.tf32.tf32.f32": (4, 2, "0xBFFFFFFF"),
    "m16n8k32.row.col.s32.s8.u8.s32": (4, 2, "0xFFFFFFFF"),
}


@pytest.mark.parametrize("form", PRODUCTS)
def test_matrix_products_leave_the_same_bits(form: str) -> None:
    a, b, mask = PRODUCTS[form]
    names, lines = [f"%m{number}" for number in range(a + b + 4)], []
    for number, name in enumerate(names):
        one = mask if number < a + b else "0xFFFFFFFF" if ".s32" in form else "0x43FFFFFF"
        lines.append(
            f"mad.lo.u32 %r8, %r4, 0x9E3779B1, {number * 0x85EBCA6B & 0x7FFFFFFF}; shr.u32 %r9, %r8, 15;"
        )
        lines.append(f"xor.b32 %r8, %r8, %r9; mul.lo.u32 %r8, %r8, 0x2C1B3C6D; and.b32 {name}, %r8, {one};")
    x, y, z = ("{" + ", ".join(part) + "}" for part in (names[:a], names[a : a + b], names[a + b :]))
    stores = [f"mad.wide.u32 %d5, %r4, 16, %d1; st.global.v4.u32 [%d5], {z};"]
    product = f"mma.sync.aligned.{form} {z}, {x}, {y}, {z};"
    body = " ".join([".reg .b32 %m<16>;", *lines, product, product, *stores, "ret;"])
    interpreted, by_machine = by_both(body, outputs=512)
    p, q = (one.out if ".s32" in form else one.out.view(np.float32) for one in (interpreted, by_machine))
    assert ((p == q) | ((p != p) & (q != q))).all() and len(set(p.tolist())) > 100 and not by_machine.left


@pytest.mark.parametrize("words", ["x1", "x2", "x4", "x1.trans", "x4.trans"])
@pytest.mark.parametrize("dot", ["", ".shared"])
def test_matrices_are_loaded_alike(words: str, dot: str) -> None:
    count = int(words[1])
    registers = ", ".join(f"%r{8 + number}" for number in range(count))
    window = "" if dot else "cvta.shared.u64 %d5, %d5;"
    stores = " ".join(f"st.global.u32 [%d4+{512 * number}], %r{8 + number};" for number in range(count))
    body = f"""
     .shared .align 16 .b8 tile[4096]; mov.u64 %d5, tile; mul.wide.u32 %d6, %r0, 4; add.u64 %d6, %d5, %d6;
     mad.lo.u32 %r8, %r4, 0x9E3779B1, 77; st.shared.u32 [%d6], %r8; st.shared.u32 [%d6+256], %r8; bar.sync 0; {window}
     mul.lo.u32 %r9, %r0, 5; and.b32 %r9, %r9, 31; mul.wide.u32 %d6, %r9, 16; add.u64 %d5, %d5, %d6;
     ldmatrix.sync.aligned.m8n8.{words}{dot}.b16 {{{registers}}}, [%d5]; {stores} ret;"""
    interpreted, by_machine = by_both(body, outputs=512)
    assert interpreted.out.any() and (interpreted.out == by_machine.out).all() and not by_machine.left


# -- what stops a kernel


@pytest.mark.parametrize(
    "body, kind, options",
    [
        (LOOP, PageFault, {"outputs": 100}),
        ("add.u64 %d4, %d4, 2;" + LOOP, MisalignedAccess, {}),
        (".shared .align 4 .b8 tile[64]; st.shared.u32 [tile+64], %r0; ret;", PageFault, {}),
        ("setp.eq.u32 %p0, %r4, 70; @%p0 trap;" + LOOP, Trap, {}),
        (LOOP, StepLimit, {"count": 0, "step_limit": 5000}),
        ("setp.lt.u32 %p0, %r0, 32; @%p0 bra W; bar.sync 0; W: bar.sync 1; ret;", Deadlock, {}),
    ],
)
def test_faults_are_those_of_the_interpreter(
    body: str, kind: type[KernelFault], options: dict[str, Any]
) -> None:
    before, texts = config.current(), []
    try:
        for one in ("0", "always"):
            config.use(dataclasses.replace(before, emu_compiled=one))
            with pytest.raises(kind) as info:
                Ran(body, **options)
            assert info.value.waves
            texts.append((str(info.value), info.value.line, info.value.waves[0].instruction))
    finally:
        config.use(before)
    assert texts[0] == texts[1]


@both
def test_an_endless_kernel_is_interrupted(way: str) -> None:
    asked: list[int] = []

    def interrupted() -> bool:
        asked.append(1)
        return len(asked) > 3

    with pytest.raises(Interrupted):
        Ran(LOOP, count=0, interrupted=interrupted)


@both
def test_a_warp_may_wait_for_another_one_and_a_thread_for_one_of_its_warp(way: str) -> None:
    wait = "W: ld.volatile.global.u32 %r6, [%d1]; setp.eq.u32 %p2, %r6, 0; @%p2 bra W;"
    for first in (63, 5):  # of another warp; of the same one
        body = f"""
         setp.ne.u32 %p1, %r2, 0; @%p1 bra END; setp.eq.u32 %p0, %r0, {first}; @%p0 bra SET; {wait} bra.uni END;
        SET: mov.u32 %r6, 7; st.volatile.global.u32 [%d1], %r6;
        END: ret;"""
        assert Ran(body).out[0] == 7


# -- several cores, other processes


def test_blocks_on_several_cores_leave_the_same_bits(monkeypatch: pytest.MonkeyPatch) -> None:
    body = """
     .shared .align 4 .b8 tile[256]; mov.u32 %r8, tile; shl.b32 %r9, %r0, 2; add.u32 %r9, %r8, %r9; mov.u32 %r5, 0;
     xor.b32 %r10, %r0, 63; shl.b32 %r10, %r10, 2; add.u32 %r10, %r8, %r10; mov.u32 %r6, %r4;
    L: st.shared.u32 [%r9], %r6; bar.sync 0; ld.shared.u32 %r7, [%r10]; bar.sync 0;
     mad.lo.u32 %r6, %r7, 3, %r6; add.u32 %r5, %r5, 1; setp.lt.u32 %p0, %r5, %r1; @%p0 bra L;
     st.global.u32 [%d4], %r6; ret;"""
    monkeypatch.setattr(threads, "ALONE", 0)
    before, begun = config.current(), []
    start = threading.Thread.start
    monkeypatch.setattr(threading.Thread, "start", lambda self: (begun.append(self.name), start(self)))
    try:
        config.use(dataclasses.replace(before, emu_compiled="0"))
        expected = Ran(body).out
        config.use(dataclasses.replace(before, emu_compiled="always", emu_threads=2))
        assert (Ran(body).out == expected).all() and begun
        begun.clear()
        atomic = body.replace("st.global.u32 [%d4]", "red.global.add.u32 [%d4]")
        assert (Ran(atomic).out == expected).all() and not begun
    finally:
        config.use(before)


def test_code_that_is_on_disk_is_taken_without_a_translation(monkeypatch: pytest.MonkeyPatch) -> None:
    before = config.current()
    try:
        config.use(dataclasses.replace(before, emu_compiled="always"))
        expected = Ran(LOOP)
        monkeypatch.setattr(native_text.Translator, "translate", lambda self: pytest.fail("translated again"))
        again = Ran(LOOP)
        assert again.is_compiled and (again.out == expected.out).all()
    finally:
        config.use(before)


def test_a_launch_that_will_take_long_is_compiled_before_its_first_block() -> None:
    before = config.current()
    try:
        config.use(dataclasses.replace(before, emu_compiled="1"))
        for blocks, is_compiled in ((2, False), (16384, True)):
            launch, out = Launch(), np.zeros(128, np.uint32)
            one: Kernel = launch.load(kernel("bra.uni L0; L0:" + LOOP.replace("[%d4]", "[%d1]")), "k")
            numbers = np.zeros(64 * blocks, np.float32)
            launch.run(one, blocks, 64, numbers, out, np.uint32(2).tobytes())
            assert any(one.program.entry.native.values()) == is_compiled
    finally:
        config.use(before)


# -- what is always interpreted


@compiled
def test_counters_and_schedules_see_every_instruction(way: str) -> None:
    assert not Ran(LOOP, tally=Tally("sm_90", 0, "k", (2, 1, 1), (64, 1, 1), 32, 32, 0, 0, 0)).is_compiled
    assert not Ran(LOOP, schedule=Schedule(random.Random(1))).is_compiled


def test_a_loop_stands_before_what_follows_it() -> None:
    # the way out is the first that the branch names
    text = kernel(
        "L: setp.eq.u32 %p0, %r1, 0; @%p0 bra OUT; sub.u32 %r1, %r1, 1; bra.uni L; OUT: add.u32 %r0, 1, 2; ret;"
    )
    blocks = blocks_of(parse(text).functions["k"])
    order = ordered(blocks)
    after = {block.number for block in blocks for one in block.body if str(one).startswith("add.u32 %r0")}
    inside = {block.number for block in blocks for one in block.body if one.opcode == "sub"}
    assert max(map(order.index, inside)) < min(map(order.index, after))
