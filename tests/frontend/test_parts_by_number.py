"""Parts that a bound variable cuts are views: a write into one is the write into the same plain slice."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from hcq import Tensor, Variable, jit
from hcq.errors import UsageError

ROWS, WIDTH = 6, 3
PARTS: dict[str, Callable[[Any, Any], Any]] = {
    "first": lambda x, n: x[:n],
    "one": lambda x, n: x[n],
    "row": lambda x, n: x[n - 1 : n],
    "last": lambda x, n: x[n:],
    "column": lambda x, n: x[:, n - 1],
    "part of a view": lambda x, n: x[1:].T[:, :n],
    "view of a part": lambda x, n: x[:n].T,
}
WRITES: dict[str, Callable[[Any], Any]] = {
    "add_": lambda part: part.add_(1.5),
    "zero_": lambda part: part.zero_(),
    "copy_": lambda part: part.copy_(Tensor([2.0])),
    "mul_ by itself": lambda part: part.mul_(part + 1.0),
    "assign": lambda part: part.assign(part * 2.0),
}


def table() -> Tensor:
    return (Tensor.arange(ROWS * WIDTH).float() + 1.0).reshape(ROWS, WIDTH).clone().realize()


@pytest.mark.sampled(12)
@pytest.mark.parametrize("write", WRITES)
@pytest.mark.parametrize("part", PARTS)
def test_a_write_into_a_part_by_number_is_the_write_into_the_same_plain_slice(part: str, write: str) -> None:
    by_number, plain = table(), table()
    cut = PARTS[part](by_number, Variable("n", 1, 3).bind(2))
    WRITES[write](cut)
    cut_plainly = PARTS[part](plain, 2)
    WRITES[write](cut_plainly)
    np.testing.assert_array_equal(by_number.numpy(), plain.numpy())
    np.testing.assert_array_equal(cut.numpy(), cut_plainly.numpy())


def test_a_part_that_is_held_shows_what_is_written_into_the_whole_and_into_other_parts() -> None:
    n = Variable("n", 1, 3).bind(2)
    x = Tensor.zeros(4, 2).realize()
    part, slice_, one = x[:n], x[:3], x[n]
    x.add_(1.0)
    x[n - 1] = 5.0
    x[:n] = x[:n] * 2.0
    one.add_(3.0)
    expected = np.array([[2, 2], [10, 10], [4, 4], [1, 1]], np.float32)
    for shown, rows in ((x, expected), (part, expected[:2]), (slice_, expected[:3]), (one, expected[2])):
        np.testing.assert_array_equal(shown.numpy(), rows)


def test_a_part_that_was_read_still_writes_into_the_whole() -> None:
    x = Tensor.zeros(4, 2).realize()
    one = x[Variable("n", 1, 3).bind(2)]
    assert one.tolist() == [0.0, 0.0]
    one.add_(2.0)
    assert x.tolist() == [[0.0, 0.0], [0.0, 0.0], [2.0, 2.0], [0.0, 0.0]]


def test_a_recording_writes_into_the_part_that_each_call_names() -> None:
    kept = Tensor.zeros(4, 2).realize()
    n = Variable("n", 1, 4)

    @jit
    def step(row: Tensor, n: Any) -> Tensor:
        kept[n - 1 : n].copy_(row)
        kept[:n].add_(1.0)
        return kept[:n].sum()

    expected = np.zeros((4, 2), np.float32)
    for count in (1, 2, 3, 4):
        expected[count - 1] = 10.0 * count
        expected[:count] += 1.0
        total = step(Tensor([[10.0 * count] * 2]), n.bind(count))
        assert total.item() == expected[:count].sum()
    np.testing.assert_array_equal(kept.numpy(), expected)


def test_gradients_flow_through_a_write_into_a_part() -> None:
    x = Tensor([1.0, 2.0, 3.0], requires_grad=True)
    y = x * 2.0
    y[: Variable("n", 1, 3).bind(2)].mul_(Tensor([5.0]))
    y.sum().backward()
    assert x.grad is not None
    assert (y.tolist(), x.grad.tolist()) == ([10.0, 20.0, 6.0], [10.0, 10.0, 2.0])


def test_a_part_takes_values_of_its_own_size_alone() -> None:
    x, other = Tensor.zeros(4, 2).realize(), Tensor.ones(4, 2)
    n, m = Variable("n", 1, 4).bind(2), Variable("m", 1, 4).bind(3)
    part = x[:n]
    with pytest.raises(UsageError, match=r"copy_.*another size"):
        part.copy_(other[:m])
