"""Sizes known only when the work runs, of tensors on several devices: what one device gives for each number."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from hcq import Tensor, Variable, jit
from hcq.errors import UsageError

ROOM, WIDTH = 6, 4
GROUP = "CPU,CPU:1"
SIZES = (3, 6, 1, 4)


def numbers(*shape: int, seed: int = 0) -> Any:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def close(actual: Any, expected: Any) -> None:
    found = actual.numpy()
    assert found.shape == expected.shape
    np.testing.assert_allclose(found, expected, rtol=2e-4, atol=2e-5)


def computed(x: Tensor, y: Tensor, n: Any) -> list[Tensor]:
    cut = x[:n]
    return [
        cut + 1,
        cut.sum(0),
        cut.softmax(0),
        cut @ y,
        cut.T @ cut,
        cut.cat(y),
        cut[-1],
        y.pad((0, 0, n, 0)),
    ]


@pytest.mark.parametrize("axis", [0, *[pytest.param(axis, marks=pytest.mark.thorough) for axis in (None, 1)]])
def test_a_recording_of_a_group_serves_every_number(axis: int | None) -> None:
    n, calls = Variable("n", 1, ROOM), []

    @jit
    def step(x: Tensor, y: Tensor, n: Any) -> list[Tensor]:
        calls.append(1)
        return computed(x, y, n)

    y = numbers(WIDTH, WIDTH, seed=1)
    shared = Tensor(y).shard(GROUP.split(","), axis).realize()
    for size in SIZES if axis == 0 else SIZES[:3]:
        array = numbers(ROOM, WIDTH, seed=size)
        array[size:] = np.nan
        x = Tensor(array).shard(GROUP.split(","), axis).realize()
        found = step(x, shared, n.bind(size))
        for actual, wanted in zip(found, computed(Tensor(array[:size]), Tensor(y), size), strict=True):
            close(actual, wanted.numpy())
    assert len(calls) == 2
    with pytest.raises(UsageError, match=r"axis 0.* n = 9"):
        Tensor(y).shard(GROUP.split(","), axis)[: Variable("n", 0, 9).bind(9)]


@pytest.mark.parametrize("axis", [None, 0])
def test_a_part_of_a_group_is_written_by_number_and_nothing_else_is(axis: int | None) -> None:
    n = Variable("n", 0, WIDTH - 1)
    array = numbers(ROOM, WIDTH)
    x = Tensor(array).shard(GROUP.split(","), axis).realize()
    ones = Tensor.ones(ROOM, 1).shard(GROUP.split(","), axis).realize()
    for place in (2, 0):
        x[:, n.bind(place) : n.bind(place) + 1] = ones
        array[:, place] = 1
        close(x, array)


def test_a_cut_tensor_goes_to_a_group_and_to_another_device_and_its_gradient_comes_back() -> None:
    n, array = Variable("n", 1, ROOM), numbers(ROOM, WIDTH)
    for target, size in ((GROUP, 3), ("CPU:1", 5), (GROUP, 6)):
        x = Tensor(array, requires_grad=True)
        moved = x[: n.bind(size)].to(target)
        assert moved.shape == (n.bind(size), WIDTH)
        close(moved * 2, array[:size] * 2)
        moved.square().sum().backward()
        assert x.grad is not None
        close(x.grad, np.concatenate([2 * array[:size], 0 * array[size:]]))
