"""Video instructions against their semantics in plain Python: every form, drawn at random, and what is no form."""

from __future__ import annotations

import random

import numpy as np
import pytest

from hcq.emu.nv.shader.errors import PtxError
from tests.campaigns._plain_ptx import CELL, KINDS, REGISTERS, numbers
from tests.campaigns.ptx import found_by, program


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_each_form_does_what_the_manual_says(kind) -> None:
    rng = random.Random(kind.__name__)
    for _ in range(120):
        drawn = kind(rng)
        registers = np.array(numbers(rng, 40 * REGISTERS), np.uint32).reshape(40, REGISTERS)
        cells = np.array(numbers(rng, 40 * CELL), np.uint32).reshape(40, CELL)
        found, stored = found_by(program([drawn.line]), registers, cells)
        for thread in range(40):
            mine, own = registers[thread].tolist(), cells[thread].tolist()
            drawn.meaning(mine, own)
            assert found[thread].tolist() == mine, (drawn.line, [hex(r) for r in registers[thread].tolist()])
            assert stored[thread].tolist() == own, drawn.line


# each as a person would work it out
KNOWN = [
    ("vadd.s32.u32.s32.sat %r0, %r1.b0, %r2.h1;", [0, 0x000000F0, 0xFFFE0000], 0xEE),
    ("vsub.u32.u32.u32.sat %r0, %r1, %r2;", [0, 1, 2], 0),
    ("vabsdiff.u32.u32.u32 %r0, %r1, %r2;", [0, 5, 9], 4),
    ("vabsdiff.s32.s32.s32.add %r0, %r1, %r2, %r0;", [100, 0xFFFFFFFB, 5], 110),
    ("vmax.s32.s32.s32.sat %r0.b2, %r1, %r2, %r3;", [0, 1000, 5, 0x11223344], 0x117F3344),
    ("vset.u32.s32.gt.add %r0, %r1.b3, %r2, %r3;", [0, 0xFF000000, 0xFFFFFFFF, 7], 8),
    ("vshl.u32.u32.u32.sat.clamp %r0, %r1, %r2;", [0, 1, 40], 0xFFFFFFFF),
    ("vshr.s32.s32.u32.wrap %r0, %r1.h1, %r2;", [0, 0x80000000, 33], 0xFFFFC000),
    ("vmad.u32.u32.u32.shr15 %r0, %r1.h0, %r2.h0, %r3;", [0, 0xFFFF, 0xFFFF, 0], 0xFFFE0001 >> 15),
    ("vmad.s32.s32.s32.sat %r0, %r1, -%r2, %r3;", [0, 0x7FFFFFFF, 2, 0], 0x80000000),
    ("vmad.s32.u32.u32 %r0, %r1, %r2, -%r3;", [0, 3, 4, 20], 0xFFFFFFF8),
    ("vadd2.s32.s32.s32.sat %r0, %r1, %r2, %r3;", [0, 0x7FFF8000, 0x00018000, 0], 0x7FFF8000),
    ("vadd4.u32.u32.u32.add %r0.b31, %r1, %r2, %r3;", [0, 0x01020304, 0x10203040, 1000], 1000 + 0x11 + 0x33),
    ("vmin2.u32.u32.u32 %r0.h1, %r1.h22, %r2.h01, %r3;", [0, 0x00050006, 0x00070008, 0xAAAABBBB], 0x0006BBBB),
    ("vavrg4.s32.s32.s32 %r0, %r1, %r2, %r3;", [0, 0xFEFF0102, 0xFFFE0202, 0], 0xFEFE0202),
    ("vset4.u32.u32.lt %r0.b0, %r1, %r2, %r3;", [0, 1, 2, 0xFFFFFF00], 0xFFFFFF01),
]  # fmt: skip


@pytest.mark.parametrize("line, registers, result", KNOWN)
def test_results_that_are_known(line: str, registers: list[int], result: int) -> None:
    start = np.array([registers + [0] * (REGISTERS - len(registers))], np.uint32)
    found, _ = found_by(program([line]), start, np.zeros((1, CELL), np.uint32))
    assert found[0, 0] == result


@pytest.mark.parametrize("line", [
    "vadd.u32.u32.u32.add %r0.b0, %r1, %r2, %r3;", "vadd.u32.u32.u32 %r0, -%r1, %r2;", "vset.u32.u32 %r0, %r1, %r2;",
    "vshl.u32.u32.u32 %r0, %r1, %r2;", "vadd.u32.u32.u32 %r0, %r1.b4, %r2;", "vadd.u32.u32.u32 %r0, %r1, %r2, %r3;",
    "vmad.u32.u32.u32 %r0, -%r1, %r2, -%r3;", "vmad.u32.u32.u32.po %r0, %r1, %r2, -%r3;",
    "vmad.u32.u32.u32 %r0, %r1, %r2;", "add.u32 %r0, %r1.b0, %r2;", "add.u32 %r0.b0, %r1, %r2;",
    "vadd2.u32.u32.u32.sat.add %r0, %r1, %r2, %r3;", "vadd2.u32.u32.u32 %r0.h01, %r1, %r2, %r3;",
    "vadd2.u32.u32.u32 %r0, %r1.h4, %r2, %r3;", "vadd4.u32.u32.u32 %r0, %r1.h10, %r2, %r3;",
    "add.u32 %r0, -%r1, %r2;", "add.u32 %r0, !%r1, %r2;", "vadd.u16.u32.u32 %r0, %r1, %r2;",
])  # fmt: skip
def test_what_is_no_form_is_refused_with_its_line(line: str) -> None:
    with pytest.raises(PtxError, match="PTX line"):
        found_by(program([line]), np.zeros((1, REGISTERS), np.uint32), np.zeros((1, CELL), np.uint32))
