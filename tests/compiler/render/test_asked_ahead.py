"""Loads for the next step stay before the products of this one, what becomes of them behind; nothing else changes."""

from __future__ import annotations

import pytest

from hcq.compiler.linear.program import Instruction, Program
from hcq.compiler.render.amdgpu import DIALECT
from hcq.compiler.render.asked_ahead import AskedAhead, Mark, parted
from hcq.compiler.render.gpu import render
from hcq.compiler.target import amd_target
from hcq.ir.dtype import DType, dtypes
from hcq.ir.op import Op
from tests.compiler.linear.test_shared_memory import tiled

FENCE = "call void @llvm.amdgcn.sched.barrier"
cases = pytest.mark.parametrize(
    ("arch", "dtype", "turned"),
    [
        ("gfx942", dtypes.float16, ""),
        ("gfx942", dtypes.bfloat16, "b"),
        ("gfx90a", dtypes.float16, "a"),
        ("gfx1100", dtypes.float16, ""),
        ("gfx1201", dtypes.int8, ""),
    ],
)


def ordered(program: Program) -> list[Instruction | Mark]:
    return list(AskedAhead().all(program.instructions))


@cases
def test_each_instruction_stands_once_and_behind_what_it_needs(arch: str, dtype: DType, turned: str) -> None:
    program = tiled(amd_target(arch), dtype, turned, steps=3)
    made = [it for it in ordered(program) if isinstance(it, Instruction)]
    assert sorted(map(id, made)) == sorted(map(id, program.instructions))
    seen: set[int] = set()
    for it in made:
        assert all(id(source) in seen for source in it.src if source is not None)
        seen.add(id(it))


@cases
def test_what_reaches_memory_or_other_threads_keeps_its_order(arch: str, dtype: DType, turned: str) -> None:
    program = tiled(amd_target(arch), dtype, turned, steps=3)
    fixed = (Op.LOAD, Op.STORE, Op.BARRIER, Op.LOOP, Op.ENDLOOP, Op.MATRIX)
    before = [it for it in program.instructions if it.op in fixed]
    after = [it for it in ordered(program) if isinstance(it, Instruction) and it.op in fixed]
    assert before == after


@cases
def test_no_product_of_a_step_stands_behind_what_uses_loads_for_the_next_one(
    arch: str, dtype: DType, turned: str
) -> None:
    program = tiled(amd_target(arch), dtype, turned, steps=3)
    asked: set[Instruction] = set()
    used = is_open = False
    products = 0
    for it in ordered(program):
        if isinstance(it, Mark):
            continue
        if it.op is Op.LOOP:
            is_open, used = True, False
            asked.clear()
        elif it.op is Op.ENDLOOP:
            is_open = False
        elif is_open and it.op is Op.LOAD and it.source(0).op is Op.PARAM:
            asked.add(it)
        elif is_open and any(source in asked for source in it.src):
            asked.add(it)
            used = True
        elif is_open and asked and it.op is Op.MATRIX:
            products += 1
            assert not used
    assert products


def test_llvm_is_told_where_nothing_moves_across_for_amds_gpus() -> None:
    text = render(tiled(amd_target("gfx942"), dtypes.float16, steps=3), "gfx942", DIALECT)
    loop = text.partition("\nloop")[2]
    loads, products = loop.index("load <8 x half>, ptr addrspace(1)"), loop.index("@llvm.amdgcn.mfma")
    fences = [place for place in range(len(loop)) if loop.startswith(FENCE, place)]
    assert any(loads < place < products for place in fences)
    assert any(place > loop.rindex("@llvm.amdgcn.mfma", 0, loop.index("\n  br ")) for place in fences)


def test_a_select_of_what_is_loaded_is_put_off_and_its_condition_is_not() -> None:
    lines = [
        "  %v1 = icmp ult i32 %v0, 8",
        "  %v2 = select i1 %v1, ptr addrspace(1) %p, ptr addrspace(1) %q",
        "  %v3 = load half, ptr addrspace(1) %v2, align 2",
        "  %v4 = select i1 %v1, half %v3, half zeroinitializer",
        "  %v5 = getelementptr half, ptr addrspace(1) %p, i32 1",
        "  %v6 = load half, ptr addrspace(1) %v5, align 2",
        "  %v7 = insertelement <2 x half> poison, half %v4, i64 0",
    ]
    first, rest = parted(lines)
    assert first == [lines[0], lines[1], lines[2], lines[4], lines[5]]
    assert rest == [lines[3], lines[6]]


def test_loads_with_branches_stay_as_they_are() -> None:
    lines = ["  br i1 %c, label %on, label %off", "on:", "  %v1 = load half, ptr %p", "  %v2 = fneg half %v1"]
    assert parted(lines) == (lines, [])
