"""Threads: what one thread computes or writes leaves alone what another one has."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

import hcq
from hcq import Tensor, jit
from hcq.frontend.core.base import live
from hcq.ir.dtype import dtypes
from hcq.ir.node import Node, const
from hcq.ir.op import Op


@pytest.fixture
def other() -> Iterator[Callable[..., Any]]:
    """Runs a function in another thread, which lives until the test ends. Returns what it returns."""
    with ThreadPoolExecutor(1) as pool:
        yield lambda function, *arguments: pool.submit(function, *arguments).result()


def at_once(work: Callable[[int], None], count: int = 8) -> None:
    errors: list[BaseException] = []
    start = threading.Barrier(count)

    def thread(number: int) -> None:
        try:
            start.wait()
            work(number)
        except BaseException as error:
            errors.append(error)

    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        threads = [threading.Thread(target=thread, args=(number,)) for number in range(count)]
        for each in threads:
            each.start()
        for each in threads:
            each.join()
    finally:
        sys.setswitchinterval(before)
    assert errors == []


def test_a_node_that_threads_make_at_once_is_one_node() -> None:
    made: list[list[Node]] = [[] for _ in range(8)]

    def work(number: int) -> None:
        for turn in range(300):
            base = const(turn, dtypes.int32)
            made[number].append(Node(Op.ADD, dtypes.int32, (base, Node(Op.NEG, dtypes.int32, (base,)))))

    at_once(work)
    assert all(len(set(nodes)) == 1 for nodes in zip(*made, strict=True))


def test_what_another_thread_computes_is_not_put_into_this_threads_equal_tensors(
    other: Callable[..., Any],
) -> None:
    own = Tensor.zeros(5)
    before = own.node
    theirs = other(lambda: Tensor.zeros(5).realize())
    assert own.node is before
    other(lambda: theirs.add_(1).realize())
    assert own.tolist() == [0.0] * 5
    assert theirs.tolist() == [1.0] * 5


def test_memory_that_another_thread_needs_as_it_was_is_not_overwritten(other: Callable[..., Any]) -> None:
    x = Tensor([1.0, 2.0])
    theirs = other(lambda: x + 10)
    before = theirs.node
    x.add_(1)
    assert x.tolist() == [2.0, 3.0]
    x[0] = 7.0
    assert x.tolist() == [7.0, 3.0]
    assert theirs.node is before
    assert other(theirs.tolist) == [11.0, 12.0]


def test_views_follow_a_tensor_whose_memory_another_thread_needs(other: Callable[..., Any]) -> None:
    x = Tensor(np.arange(6, dtype="f4").reshape(2, 3))
    row, column = x[0], x[:, 1]
    theirs = other(lambda: x * 2)
    row.add_(10)
    column.mul_(0)
    assert x.tolist() == [[10.0, 0.0, 12.0], [3.0, 0.0, 5.0]]
    assert row.tolist() == [10.0, 0.0, 12.0]
    assert other(theirs.tolist) == [[0.0, 2.0, 4.0], [6.0, 8.0, 10.0]]


def test_memory_that_numpy_shares_is_written_where_it_is(other: Callable[..., Any]) -> None:
    x = Tensor([1.0, 2.0], device="CPU")
    shared = np.asarray(x)
    theirs = other(lambda: x + 10)
    x.add_(1).realize()
    hcq.open("CPU").synchronize()
    assert shared.tolist() == [2.0, 3.0]
    assert other(theirs.tolist) == [11.0, 12.0]


def test_a_write_that_was_done_is_not_done_again_by_who_has_read_it_before(other: Callable[..., Any]) -> None:
    x = Tensor([1.0, 2.0])
    x.assign(x + 1)
    other(lambda: None)  # the other thread lives
    late = x.node  # as a thread reads it that is interrupted here
    x.realize()
    theirs = other(lambda: Tensor._of(Node(Op.MUL, late.dtype, (late, late)), x.device))
    assert other(theirs.tolist) == [4.0, 9.0]
    assert x.tolist() == [2.0, 3.0]


def test_a_pending_write_is_done_once_by_all_who_read_the_tensor() -> None:
    x = Tensor(np.zeros(100, "f4"))
    x.assign(x + 1)
    found: list[Any] = []
    at_once(lambda number: found.append((x * 1.0 + number).numpy() - number))
    assert all((each == 1.0).all() for each in found)
    assert x.tolist() == [1.0] * 100


def test_a_leaf_that_moves_keeps_its_gradient(other: Callable[..., Any]) -> None:
    w = Tensor([1.0, 2.0], requires_grad=True)
    optimizer = hcq.optim.SGD([w], lr=0.5)
    theirs = other(lambda: w * 100)
    for _ in range(2):
        optimizer.zero_grad()
        (w * w).sum().backward()
        optimizer.step()
    assert w.tolist() == [0.0, 0.0]
    assert w.requires_grad and (w + 1).requires_grad
    assert other(theirs.tolist) == [100.0, 200.0]


def test_a_recording_does_not_do_other_threads_pending_writes(other: Callable[..., Any]) -> None:
    x = Tensor([1.0]).realize()
    x.add_(1)
    pending = x.node
    double = jit(lambda y: y * 2)
    assert [other(lambda: double(Tensor([3.0])).tolist()) for _ in range(3)] == [[6.0]] * 3
    assert x.node is pending
    assert x.tolist() == [2.0]


def test_a_recording_of_what_another_thread_has_yet_to_write_does_not_write_it_again(
    other: Callable[..., Any],
) -> None:
    state = Tensor([1.0]).realize()
    add = jit(lambda y: y + state)
    state.assign(Tensor([5.0]))
    assert [other(lambda: add(Tensor([3.0]).realize()).tolist()) for _ in range(3)] == [[8.0]] * 3
    state.assign(Tensor([7.0])).realize()
    assert other(lambda: add(Tensor([3.0]).realize()).tolist()) == [10.0]
    assert state.tolist() == [7.0]


def test_no_two_threads_draw_the_same_numbers() -> None:
    draws: list[bytes] = []

    def work(number: int) -> None:
        for _ in range(8):
            draws.append(Tensor.rand(32).numpy().tobytes())

    at_once(work)
    assert len(set(draws)) == len(draws) == 64


def test_threads_draw_together_what_one_draws_alone() -> None:
    Tensor.manual_seed(5)
    alone = {Tensor.rand(4).numpy().tobytes() for _ in range(24)}
    Tensor.manual_seed(5)
    draws: list[bytes] = []
    at_once(lambda number: draws.extend(Tensor.rand(4).numpy().tobytes() for _ in range(3)))
    assert set(draws) == alone


def test_a_tensor_belongs_to_the_thread_that_wrote_it_last(other: Callable[..., Any]) -> None:
    x = Tensor([1.0]).realize()
    assert any(one is x for one in live.own())
    other(lambda: x.add_(1))
    assert not any(one is x for one in live.own())
    assert any(one is x for one in other(live.own))


def test_a_thread_begins_with_gradients_whatever_one_before_it_left_behind() -> None:
    found: list[bool] = []

    def leaves() -> None:
        found.append(hcq.is_grad_enabled())
        hcq.set_grad_enabled(False)
        hcq.autocast("cpu").__enter__()

    for _ in range(5):  # one after the other: they get the same number
        thread = threading.Thread(target=leaves)
        thread.start()
        thread.join()
    assert found == [True] * 5
    assert hcq.is_grad_enabled()
