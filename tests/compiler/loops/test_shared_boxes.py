"""Shared boxes: whatever the machine, panels read one copy of their windows, and results stay the same."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from hcq.compiler.loops.heuristic import choose
from hcq.compiler.loops.loop import Axis
from hcq.compiler.loops.loop_nest import LoopNest
from hcq.compiler.loops.nest import Stage
from hcq.compiler.pipeline import lower
from hcq.compiler.target import Target, cpu_target
from hcq.ir.node import Node
from tests.compiler.building import check, conv, kernel, out, param, permute

if TYPE_CHECKING:
    from hcq.device import Device

# images, channels, height, width; results, window; padding, stride
SHAPES = {
    "images": ((8, 16, 20, 20), (96, 3), 1, 1),
    "rows of one image": ((1, 16, 36, 28), (96, 3), 1, 1),
    "rows that nothing divides": ((3, 8, 37, 23), (80, 3), 1, 1),
    "every second place": ((4, 8, 40, 40), (96, 3), 1, 2),
    "a wide window": ((2, 3, 45, 45), (96, 7), 3, 2),
}
MACHINES = [(1, 1 << 20), (2, 2 << 20), (2, 96 << 10), (16, 1 << 20), (3, 192 << 10)]


def convolution(shape: str) -> Node:
    (n, c, h, w), (o, p), padding, stride = SHAPES[shape]
    value = conv(param(1, (n, c, h, w)), param(2, (o, c, p, p)), padding, stride)
    value = permute(value, 0, 3, 1, 2, 4, 5, 6)  # places lie together, as frontend has it
    return kernel((out(0, value.shape), value))


def machine(threads: int, l2_bytes: int) -> Target:
    """One with vectors of eight, whatever this one has."""
    return replace(cpu_target(), threads=threads, l2_bytes=l2_bytes, vector_bits=256, vector_registers=16)


def chosen(shape: str, target: Target) -> LoopNest:
    return choose(LoopNest(lower(convolution(shape), target)), target)


def box_of(nest: LoopNest) -> Stage:
    (box,) = [stage for stage in nest.stages if stage.is_box]
    return box


def around(nest: LoopNest, stage: Stage) -> list[Axis]:
    """The ranges whose loops a copy is inside of."""
    at = -1 if stage.at is None else nest.order.index(stage.at)
    return [loop.axis for loop in nest.order[: at + 1]]


def panels_of(nest: LoopNest) -> Axis:
    return next(axis for axis in nest.axes if axis.loops[-1].kind == "vector")


@pytest.mark.sampled(7)
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize(("threads", "l2_bytes"), MACHINES)
def test_a_convolution_that_is_divided_for_any_machine_computes_the_same(
    device: Device, shape: str, threads: int, l2_bytes: int
) -> None:
    check(device, convolution(shape), chosen(shape, machine(threads, l2_bytes)).choice)


@pytest.mark.parametrize(
    ("shape", "threads"), [*((shape, 1) for shape in SHAPES), ("images", 2), ("every second place", 2)]
)
def test_windows_are_copied_once_for_all_panels(shape: str, threads: int) -> None:
    nest = chosen(shape, machine(threads, 2 << 20))
    panels = panels_of(nest)
    assert panels.counted, "weights of one panel share nothing"
    assert panels not in around(nest, box_of(nest))


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize(("threads", "l2_bytes"), MACHINES)
def test_the_second_cache_holds_a_box_and_boxes_of_windows_are_whole(
    shape: str, threads: int, l2_bytes: int
) -> None:
    nest = chosen(shape, machine(threads, l2_bytes))
    box = box_of(nest)
    at = -1 if box.at is None else nest.order.index(box.at)
    opened = nest.order[: at + 1]
    assert nest.box_bytes(box.load, opened) <= l2_bytes
    slides = {axis for axis, _, _ in nest.overlaps(box.load)}
    assert all(axis.size % loop.stride == 0 for loop in opened for axis in slides if loop.axis is axis)


def test_a_thread_of_many_has_a_part_of_each_image() -> None:
    nest = chosen("rows of one image", machine(16, 1 << 20))
    assert nest.group_count >= 16
