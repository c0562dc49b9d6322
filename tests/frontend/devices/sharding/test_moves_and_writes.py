"""Moves and writes: what was moved lazily has the values from before a write, what is moved after it the new."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest

from hcq import Tensor

pytestmark = pytest.mark.own_devices

OLD, NEW = [1.0, 2.0, 3.0, 4.0], [10.0, 20.0, 30.0, 40.0]
SOURCES: dict[str, Callable[[], Tensor]] = {
    "one device": lambda: Tensor(OLD, device="CPU:1").realize(),
    "split": lambda: Tensor(OLD).shard(["CPU:0", "CPU:1"], 0).realize(),
    "a copy on each": lambda: Tensor(OLD).shard(["CPU:0", "CPU:1"]).realize(),
}
ORDERS: dict[str, Callable[[Tensor, Tensor], object]] = {
    "the write": lambda written, moved: written.realize(),
    "the move": lambda written, moved: moved.realize(),
    "the write first": lambda written, moved: written.realize(moved),
    "the move first": lambda written, moved: moved.realize(written),
    "what is computed from the move": lambda written, moved: (moved + 1.0).realize(),
}


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("source", SOURCES)
def test_what_was_moved_before_a_write_keeps_its_values_whatever_comes_first(source: str, order: str) -> None:
    written = SOURCES[source]()
    before = written.to("CPU:2")
    written.assign(written * 10.0)
    after = written.to("CPU:2")
    ORDERS[order](written, before)
    assert before.tolist() == OLD
    assert after.tolist() == NEW
    assert written.to("CPU").tolist() == NEW


@pytest.mark.parametrize("source", SOURCES)
def test_sums_of_what_was_moved_before_and_after_a_write(source: str) -> None:
    written = SOURCES[source]()
    before = written.to("CPU:2")
    written.assign(written * 10.0)
    assert (before + written.to("CPU:2")).tolist() == [11.0, 22.0, 33.0, 44.0]
    assert written.to("CPU").tolist() == NEW


@pytest.mark.parametrize("source", SOURCES)
def test_what_is_computed_from_a_write_can_be_moved_before_the_write_has_run(source: str) -> None:
    written = SOURCES[source]()
    written.assign(written * 10.0)
    doubled = written * 2.0
    moved = doubled.to("CPU:2")
    assert moved.realize().tolist() == [20.0, 40.0, 60.0, 80.0]
    assert [buffer.device.name for buffer in moved.node.arg.buffers()] == ["CPU:2"]
    assert doubled.tolist() == moved.tolist()
    assert written.tolist() == NEW


@pytest.mark.parametrize("axis", [0, 1, None])
@pytest.mark.parametrize("shape", [(2, 2), (4, 1, 1), (1, 4), ()], ids=str)
def test_a_reshaped_value_is_moved_in_its_own_shape(shape: tuple[int, ...], axis: int | None) -> None:
    x = Tensor(OLD[: math.prod(shape)]).realize().reshape(shape)
    assert x.to("CPU:1").realize().shape == shape
    assert x.to("CPU:1").sum(tuple(range(len(shape)))).item() == sum(OLD[: math.prod(shape)])
    if axis is None or (axis < len(shape) and shape[axis] > 1):
        split = x.shard(["CPU:0", "CPU:1"], axis)
        assert split.tolist() == x.tolist()
        assert (split * 2.0).sum().item() == 2.0 * sum(OLD[: math.prod(shape)])


@pytest.mark.parametrize("device", ["CPU", "CPU:1", "CPU:1,CPU:2", "CPU:2,CPU:1"])
def test_what_reads_no_memory_is_computed_on_the_device_that_is_named(device: str) -> None:
    x = Tensor.ones(37, device=device).contiguous().realize()
    assert [buffer.device.name for buffer in x.node.arg.buffers()] == device.split(",")
    assert x.sum().item() == 37.0


def test_the_same_constants_on_two_devices_are_two_values() -> None:
    here, there = (Tensor.ones(5, device=device).contiguous() for device in ("CPU", "CPU:1"))
    both = Tensor.full((5,), 3.0).shard(["CPU:1", "CPU:2"])
    here.realize()
    assert both.sum().item() == 15.0
    assert (there + 1.0).sum().item() == 10.0
    assert (both * both).to("CPU").tolist() == [9.0] * 5
    assert [x.node.arg.device for x in (here, there.realize())] == ["CPU", "CPU:1"]
