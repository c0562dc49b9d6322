"""Moves: what a search tries next is legal, comes in an order of its seed, and reaches every kind of transform."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest

from hcq.compiler.codegen import codegen
from hcq.compiler.linear.linearize import linearize
from hcq.compiler.loops.loop_nest import LoopNest
from hcq.compiler.loops.nest import ScheduleError
from hcq.compiler.pipeline import lower
from hcq.compiler.search.moves import Moves, _text_edits
from hcq.compiler.search.starts import starts
from hcq.compiler.target import Target, amd_target, cpu_target, nv_target
from hcq.ir.node import Node
from tests.compiler.building import check, kernel, out, param
from tests.compiler.loops.test_loop_nest import columns, norm_like, padded_convolution, pooling, product

if TYPE_CHECKING:
    from hcq.device import Device

GPU_TARGETS = {"sm_80": nv_target("sm_80"), "gfx942": amd_target("gfx942")}


@pytest.mark.parametrize("target", [cpu_target(), *GPU_TARGETS.values()], ids=lambda target: target.arch)
def test_every_neighbour_is_legal_and_written_in_one_way(target: Target) -> None:
    sink = lower(product(), target)
    moves = Moves(sink, target)
    text = moves.canonical(codegen(target).choose(LoopNest(sink), target).choice)
    assert text is not None
    found = list(moves.neighbours(text, random.Random(1)))
    assert len(found) > 20
    assert len(set(found)) == len(found) and text not in found
    assert [moves.canonical(one) for one in found] == found


def test_the_same_seed_gives_the_same_neighbours() -> None:
    moves = Moves(lower(product(), cpu_target()), cpu_target())
    first, again, other = (list(moves.neighbours("split r1 16", random.Random(seed))) for seed in (3, 3, 4))
    assert first == again
    assert sorted(first) == sorted(other) and first != other


def test_neighbours_reach_every_kind_of_transform() -> None:
    texts: set[str] = {"split r1 16; vectorize r1.1"}
    moves = Moves(lower(product(), cpu_target()), cpu_target())
    for _ in range(2):
        texts |= {one for text in sorted(texts)[:6] for one in moves.neighbours(text, random.Random(0))}
    verbs = {item.split()[0] for text in texts for item in text.split("; ") if item}
    assert {"split", "vectorize", "unroll", "parallel", "order", "stage"} <= verbs


def test_a_schedule_that_is_not_legal_has_no_neighbours() -> None:
    moves = Moves(lower(product(), cpu_target()), cpu_target())
    assert list(moves.neighbours("split r9 4", random.Random(0))) == []
    assert moves.canonical("unroll everything") is None


def test_a_kernel_without_ranges_has_hardly_any_neighbours() -> None:
    sink = lower(kernel((out(0, ()), param(1, ()) + 1.0)), cpu_target())
    assert list(Moves(sink, cpu_target()).neighbours("", random.Random(0))) == ["stage 0 -"]


def test_a_schedule_of_unknown_transforms_is_edited_as_text() -> None:
    assert list(_text_edits("swizzle r0 8; split r1 3")) == [
        "split r1 3",
        "swizzle r0 16; split r1 3",
        "swizzle r0 4; split r1 3",
        "swizzle r0 8",
        "swizzle r0 8; split r1 6",
        "swizzle r0 8; split r1 1",
    ]


@pytest.mark.parametrize("target", [cpu_target(), *GPU_TARGETS.values()], ids=lambda target: target.arch)
def test_a_search_begins_with_schedules_that_are_legal(target: Target) -> None:
    sink = lower(product(), target)
    found = starts(sink, target)
    assert len(set(found)) == len(found)
    for text in found:
        assert LoopNest(sink).apply(text).choice == text


@pytest.mark.parametrize(
    "make", [product, padded_convolution, pooling, columns, norm_like], ids=lambda make: make.__name__
)
def test_whatever_is_tried_computes_the_same(device: Device, make: Callable[[], Node]) -> None:
    target = cpu_target()
    lowered = lower(make(), target)
    moves = Moves(lowered, target)
    text = codegen(target).choose(LoopNest(lowered), target).choice
    for step in range(5):
        text = next(moves.neighbours(text, random.Random(step)), text)
    try:
        linearize(LoopNest(lowered).apply(text), "k")
    except ScheduleError:
        return  # a search passes it over
    assert check(device, make(), text).choice == text
