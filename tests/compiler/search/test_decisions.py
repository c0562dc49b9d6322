"""Decisions: every schedule can be read as data, and written again as text that makes the same nest."""

from __future__ import annotations

import random

import pytest

from hcq.compiler.codegen import codegen
from hcq.compiler.loops.loop_nest import LoopNest
from hcq.compiler.pipeline import lower
from hcq.compiler.search.decisions import WORDS, Level, read, write
from hcq.compiler.target import Target, amd_target, cpu_target, nv_target
from hcq.ir.dtype import dtypes
from hcq.ir.node import Node
from tests.compiler.loops.test_loop_nest import KERNELS, product, random_schedule
from tests.compiler.loops.test_threads import GPU_KERNELS, narrow_product
from tests.compiler.loops.test_threads import random_schedule as random_schedule_with_threads

GPU_TARGETS = {"sm_80": nv_target("sm_80"), "gfx942": amd_target("gfx942")}


def again(sink: Node, text: str) -> tuple[object, object]:
    """A schedule as data, and the data of what is written for it."""
    found = read(LoopNest(sink).apply(text))
    if found is None:  # then it is edited as text
        assert any(item.split()[0] not in WORDS for item in text.split("; ")), text
        return None, None
    return found, read(LoopNest(sink).apply(write(found)))


@pytest.mark.parametrize("make", KERNELS, ids=lambda make: make.__name__)
def test_any_schedule_is_written_as_it_was_read(make: object) -> None:
    sink = lower(make(), cpu_target())  # type: ignore[operator]
    for seed in range(5):
        found, written = again(sink, random_schedule(LoopNest(sink), random.Random(seed)))
        assert written == found


@pytest.mark.parametrize("arch", GPU_TARGETS)
@pytest.mark.parametrize("make", GPU_KERNELS, ids=lambda make: make.__name__)
def test_any_schedule_with_threads_is_written_as_it_was_read(make: object, arch: str) -> None:
    target = GPU_TARGETS[arch]
    sink = lower(make(), target)  # type: ignore[operator]
    for seed in range(3):
        found, written = again(sink, random_schedule_with_threads(LoopNest(sink), random.Random(seed)))
        assert written == found


@pytest.mark.parametrize("target", [cpu_target(), *GPU_TARGETS.values()], ids=lambda target: target.arch)
def test_the_heuristics_choice_is_written_as_it_was_read(target: Target) -> None:
    for make in GPU_KERNELS:
        sink = lower(make(), target)
        found, written = again(sink, codegen(target).choose(LoopNest(sink), target).choice)
        assert written == found


@pytest.mark.parametrize("size", [256, 4096])
@pytest.mark.parametrize("arch", ["sm_80", "sm_90", "gfx942"])
def test_a_product_on_a_matrix_unit_is_written_as_it_was_read(arch: str, size: int) -> None:
    target = amd_target(arch) if arch.startswith("gfx") else nv_target(arch)
    sink = lower(narrow_product(size, size, size, dtypes.float16), target)
    text = codegen(target).choose(LoopNest(sink), target).choice
    assert "matrix" in text
    found, written = again(sink, text)
    assert written == found
    assert found is None or write(found).endswith(text.split("; ")[-1])  # a pipeline, or what comes after it


def test_loops_are_named_by_their_place() -> None:
    sink = lower(product(), cpu_target())
    found = read(LoopNest(sink).apply("split r0 2; split r0 4; unroll r0.1; parallel r0"))
    assert found is not None
    assert found.levels("r0") == (Level(0, "group"), Level(4), Level(2, "unroll"))
    assert write(found) == "split r0 8; split r0.1 2; unroll r0.2; parallel r0"


def test_what_names_a_loop_that_is_gone_goes_with_it() -> None:
    sink = lower(product(), cpu_target())
    staged = read(LoopNest(sink).apply("split r1 16; stage 1 r1.1"))
    assert staged is not None and staged.stages
    assert staged.with_levels("r1", (Level(0),)).stages == ()
