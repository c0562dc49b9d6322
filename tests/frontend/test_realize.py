"""Realizing keeps meanings: what was made before a write in place keeps the old values, whenever it is computed."""

from __future__ import annotations

import gc
from collections import OrderedDict

import numpy as np
import pytest

import hcq
from hcq import Tensor
from hcq.frontend.core.structure import structure_of
from hcq.frontend.run import plan as plans
from hcq.frontend.run.realize import realize, storage_of
from hcq.ir.op import Op


def test_a_value_made_before_an_assignment_keeps_the_old_contents():
    w = Tensor([1.0, 2.0, 3.0])
    loss = (w * w).sum()
    w.assign(w * 10)
    w.realize()
    assert loss.item() == 14.0
    assert w.tolist() == [10.0, 20.0, 30.0]


def test_a_view_made_before_an_assignment_keeps_the_old_contents():
    w = Tensor([[1.0, 2.0], [3.0, 4.0]])
    turned = w.T
    w.assign(w + 100)
    w.realize()
    assert turned.tolist() == [[1.0, 3.0], [2.0, 4.0]]


def test_two_tensors_computed_as_one_value_do_not_change_each_other():
    x = Tensor([1.0, 2.0])
    a, b = x + 1, x + 1
    realize((a, b))
    a.assign(a * 0)
    a.realize()
    assert b.tolist() == [2.0, 3.0]
    assert a.tolist() == [0.0, 0.0]


def test_assignments_follow_each_other():
    w = Tensor([1.0])
    for _ in range(5):
        w.assign(w * 2)
    assert w.item() == 32.0


def test_an_assignment_from_its_own_reverse_reads_the_old_values():
    w = Tensor(list(range(100)))
    w.assign(w.flip(0))
    assert w.tolist() == list(range(99, -1, -1))


def test_a_swap_through_lazy_values_is_a_swap():
    a, b = Tensor([1.0, 2.0]), Tensor([3.0, 4.0])
    old_a = a + 0
    a.assign(b + 0)
    b.assign(old_a)
    realize((a, b))
    assert (a.tolist(), b.tolist()) == ([3.0, 4.0], [1.0, 2.0])


def test_what_was_computed_is_not_computed_again():
    x = Tensor([1.0, 2.0])
    y = x + 1
    z = y * 2
    y.realize()
    assert z.node.src[0] is y.node
    assert z.node.src[0].op is Op.BUFFER


def test_equal_graphs_on_other_memory_share_a_plan(monkeypatch):
    monkeypatch.setattr(plans, "_plans", OrderedDict())  # where there is room for one more
    monkeypatch.setattr(plans, "_plan_bytes", 0)

    def made() -> int:
        return len(plans._plans)

    a, b = Tensor([1.0, 2.0, 3.0]), Tensor([4.0, 5.0, 6.0])
    (a * b + 3.25).realize()
    before = made()
    (b * a + 3.25).realize()
    assert made() == before
    (a * a + 3.25).realize()  # the same memory twice is another structure
    assert made() == before + 1


def test_a_structure_has_the_same_name_in_every_process():
    import subprocess
    import sys

    text = (
        "from hcq import Tensor; from hcq.frontend.core.structure import structure_of;"
        "x = Tensor([1., 2.]); print(structure_of([(x.exp() / 3).sum().node]).digest())"
    )
    found = {
        subprocess.run([sys.executable, "-c", text], capture_output=True, text=True).stdout for _ in range(2)
    }
    assert len(found) == 1
    assert len(found.pop().strip()) == 64


def test_negative_zero_and_zero_are_different_structures():
    x = Tensor([1.0])
    assert structure_of([(x * 0.0).node]).key != structure_of([(x * -0.0).node]).key


def test_storage_of_a_transposed_view_is_in_row_major_order():
    x = hcq.tensor([[1, 2], [3, 4]])
    storage = storage_of(x.T)
    assert np.frombuffer(storage.buffer.read(), np.int64)[:4].tolist() == [1, 3, 2, 4]


@pytest.mark.parametrize("value", [lambda x: x + 2, lambda x: Tensor([5.0, 5.0]), lambda x: 5.0])
def test_two_tensors_that_share_their_memory_part_when_both_are_assigned_to(value):
    x = Tensor([1.0, 2.0])
    a, b = x + 1, x + 1
    realize((a, b))
    assert a.node is b.node
    wanted = value(np.array([2.0, 3.0]))
    a.assign(a + 1)
    b.assign(value(b))
    later = b * 2
    realize((a, b))
    assert a.tolist() == [3.0, 4.0]
    wanted = wanted.tolist() if isinstance(wanted, Tensor) else np.broadcast_to(wanted, 2).tolist()
    assert b.tolist() == wanted
    assert later.tolist() == [2 * number for number in wanted]
    assert a.node is not b.node


def test_dropped_tensors_give_their_memory_back():
    x = Tensor([0.0] * 4096)
    x.realize()
    pool = __import__("hcq").open("CPU").memory
    (x + 1).realize()
    gc.collect()
    before = pool.mapped_bytes
    for _ in range(50):
        (x + 1).realize()
    assert pool.mapped_bytes == before


def test_a_value_from_another_device_is_moved():
    x = Tensor([1.0, 2.0, 3.0])
    y = (x * 2).to("CPU:1") + 1
    assert y.device == "CPU:1"
    assert y.tolist() == [3.0, 5.0, 7.0]
    assert y.node.op is Op.BUFFER  # computed once
    assert (y.to(x.device) + x).tolist() == [4.0, 7.0, 10.0]


def test_empty_tensors_are_computed_without_a_kernel():
    x = Tensor.zeros(0, 3)
    assert (x + 1).numpy().shape == (0, 3)
    assert x.sum().item() == 0.0
    assert x.sum(0).tolist() == [0.0, 0.0, 0.0]


def test_a_deep_lazy_chain_is_scheduled():
    x = Tensor([0.0, 1.0])
    for _ in range(3000):
        x = x + 1.0
    assert x.tolist() == [3000.0, 3001.0]


def test_threads_compute_side_by_side():
    import threading

    shared = Tensor([1.0, 2.0, 3.0])
    wrong = []

    def work(number: int) -> None:
        total = Tensor([0.0, 0.0, 0.0])
        for i in range(40):
            total.assign(total + shared * number)
            if i % 8 == 7:
                total.realize()
        if total.tolist() != [40.0 * number, 80.0 * number, 120.0 * number]:
            wrong.append(number)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(1, 7)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_a_schedule_can_be_looked_at_before_it_runs():
    x = Tensor([[1.0, 2.0], [3.0, 4.0]])
    y = (x @ x).relu()
    (plan,) = y.schedule()
    text = str(plan)
    assert len(plan.launches) == 1
    assert plan.launches[0].name in text
    assert "float32[2, 2]" in text
    assert y.node.op is not Op.BUFFER
    assert x.schedule() == []


@pytest.mark.parametrize("first", [lambda c: c + 1, lambda c: Tensor([2.0]), lambda c: Tensor([1.0]) * 2])
@pytest.mark.parametrize("name", [Tensor, lambda c: c.detach(), lambda c: c[0:1], lambda c: c * 1])
@pytest.mark.parametrize("order", ["tensor first", "name first", "both"])
def test_what_was_made_between_two_pending_writes_means_the_first(first, name, order):
    c = Tensor([1.0]).realize()
    c.assign(first(c))
    between = name(c)
    c.assign(c * 10)
    if order == "both":
        c.realize(between)
    elif order == "tensor first":
        c.realize()
    assert (between.tolist(), c.tolist()) == ([2.0], [20.0])
    assert (between.tolist(), c.tolist()) == ([2.0], [20.0])


@pytest.mark.parametrize("size", [1, 7, 64, 1000])
def test_what_is_computed_together_with_a_write_means_the_values_before_it(size):
    a = np.arange(size, dtype=np.float32)
    b = 10 * a + 5
    for later in (lambda c, d: c.realize(), lambda c, d: c.realize(d)):
        c, d = Tensor(a), Tensor(b)
        before, doubled = d - c * 2, c * 2
        c.assign(d * 3)
        later(c, before)
        assert np.array_equal(before.numpy(), b - a * 2)
        assert np.array_equal(doubled.numpy(), a * 2)
        assert np.array_equal(c.numpy(), b * 3)


@pytest.mark.parametrize("size", [1, 7, 64, 1000])
def test_tensors_that_take_each_others_values_at_a_time_change_places(size):
    values = [np.arange(size, dtype=np.float32) + 10 * n for n in range(3)]
    tensors = [Tensor(value) for value in values]
    wanted = [tensor * 2 for tensor in (*tensors[1:], tensors[0])]
    for tensor, value in zip(tensors, wanted):
        tensor.assign(value)
    del wanted, value
    tensors[0].realize(*tensors[1:])
    for place, tensor in enumerate(tensors):
        assert np.array_equal(tensor.numpy(), values[(place + 1) % 3] * 2)
