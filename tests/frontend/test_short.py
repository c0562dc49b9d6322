"""The short way of one operation on memory: it makes what the general way makes, and tells whom it must."""

from __future__ import annotations

import sys
from collections import OrderedDict

import pytest

from hcq import Tensor, dtypes, no_grad
from hcq.frontend.core.device import default, get
from hcq.frontend.core.structure import structure_of
from hcq.frontend.run import plan as plans
from hcq.frontend.run import realize as realizing
from hcq.frontend.run import short, varying_numbers
from hcq.ir.op import Op


def in_memory(*values: float, requires_grad: bool = False) -> Tensor:
    return Tensor(list(values), requires_grad=requires_grad).realize()


OPERATIONS = [
    lambda x, y: x + y,
    lambda x, y: y + x,
    lambda x, y: x / y,
    lambda x, y: x + x,
    lambda x, y: x * 3.0,
    lambda x, y: 3.0 / x,
    lambda x, y: -x,
    lambda x, y: x < y,
    lambda x, y: x < 2.0,
    lambda x, y: x.exp(),
    lambda x, y: x.cast(dtypes.int32),
    lambda x, y: x.cast(dtypes.float64),
]


@pytest.fixture(autouse=True)
def nothing_seen(monkeypatch):
    """Of numbers, whatever tests before this one computed."""
    monkeypatch.setattr(varying_numbers, "_families", OrderedDict())
    monkeypatch.setattr(plans, "_short", {})


@pytest.mark.parametrize("number", range(len(OPERATIONS)))
def test_what_the_short_way_computes_is_what_a_graph_computes(number):
    operation = OPERATIONS[number]
    first = operation(in_memory(1.0, 2.0, 3.0), in_memory(5.0, 1.0, 2.0)).realize()
    x, y = in_memory(4.0, -2.0, 0.5), in_memory(3.0, 3.0, -1.0)
    lazy = operation(x, y)
    found = short.key_of(lazy.node)
    assert found is not None and plans.short_plan(found[0]) is not None
    assert found[1] == structure_of([lazy.node]).storages
    expected = operation(x, y).contiguous().clone()
    assert lazy.realize().tolist() == expected.tolist()
    assert lazy.dtype is first.dtype and lazy.node.op is Op.BUFFER


def test_keys_are_equal_only_where_one_plan_serves_both():
    x, y, wide = in_memory(1.0, 2.0), in_memory(3.0, 4.0), in_memory(1.0, 2.0, 3.0)
    number = Tensor(2.0).contiguous().realize()
    graphs = [
        x + y, x + x, x * y, x + number, number + x, x + 1.0, 1.0 + x, x + 2.0, x < y, wide + wide, -x, x.exp(),
        x.cast(dtypes.float16), x.cast(dtypes.int32),
    ]  # fmt: skip
    keys = [found[0] for tensor in graphs if (found := short.key_of(tensor.node)) is not None]
    assert len(keys) == len(graphs)
    structures = [structure_of([tensor.node]).key for tensor in graphs]
    for a, structure in zip(keys, structures):
        for b, other in zip(keys, structures):
            assert (a == b) == (structure == other)
    swapped = short.key_of((y + x).node)
    assert swapped is not None and swapped[0] == keys[0]


def test_tensors_that_share_the_node_or_build_on_it_read_the_memory_afterwards():
    x, y = in_memory(1.0, 2.0), in_memory(3.0, 4.0)
    (x + y).realize()
    z = x + y
    twin, above = x + y, (x + y) * 2.0
    z.realize()
    assert twin.node is z.node
    assert z.node in above.node.toposort()
    assert above.tolist() == [8.0, 12.0]


def test_nobody_else_is_asked_when_only_the_tensor_holds_its_node():
    x, y = in_memory(1.0, 2.0), in_memory(3.0, 4.0)
    z = x + y
    assert short.is_alone(z)
    twin = x + y
    assert not short.is_alone(z)
    del twin
    assert short.is_alone(z)
    above = z * 2.0
    assert not short.is_alone(z)
    del above


def test_realizing_what_nobody_else_builds_on_walks_no_live_tensors(monkeypatch):
    x, y = in_memory(1.0, 2.0), in_memory(3.0, 4.0)
    shared = x * y
    above = shared + 1.0
    for way in (realizing, short):
        monkeypatch.setattr(way, "replace", lambda in_memory: pytest.fail("asked every live tensor"))
    for _ in range(2):
        assert (x + y).realize().tolist() == [4.0, 6.0]
        assert ((x + y) * 2.0).relu().realize().tolist() == [8.0, 12.0]
    monkeypatch.undo()
    shared.realize()
    assert shared.node in above.node.src


def test_gradients_flow_through_what_was_computed_the_short_way():
    for _ in range(2):  # the second time by the short way
        x, y = in_memory(1.0, 2.0, requires_grad=True), in_memory(3.0, 4.0)
        product = (x * y).realize()
        product.sum().backward()
        assert x.grad is not None and x.grad.tolist() == [3.0, 4.0]
        with no_grad():
            cut = (x * y).realize()
        assert not cut.node.arg.tracked


def test_a_write_in_place_comes_after_what_was_computed_before_it():
    x, y = in_memory(1.0, 2.0), in_memory(3.0, 4.0)
    (x + y).realize()
    before = x + y
    x.assign(y)
    assert before.realize().tolist() == [4.0, 6.0]
    assert x.tolist() == [3.0, 4.0]
    assert (x + y).realize().tolist() == [6.0, 8.0]


def test_an_eager_operation_is_a_few_calls(monkeypatch):
    if default() != "CPU":
        pytest.skip("launches are prepared on the CPU device alone")
    monkeypatch.setattr(get(default()), "observers", ())  # those of the tests
    get(default()).recent.clear()  # programs of other tests, which would go one by one
    x, y = in_memory(1.0, 2.0), in_memory(3.0, 4.0)
    for _ in range(3):
        (x + y).realize()
    runs = []
    calls: list[str] = []

    def count(frame, event, argument):
        if event == "call":
            calls.append(frame.f_code.co_name)

    for _ in range(5):
        calls.clear()
        before = sys.getprofile()
        sys.setprofile(count)
        try:
            (x + y).realize()
        finally:
            sys.setprofile(before)
        runs.append(list(calls))
    calls = min(runs, key=len)  # others had destructors of what is older in them
    # the operator 4, its nodes and memory 7, the launch 2, the way there 7, dropping the result 3
    assert len(calls) <= 26, " ".join(calls)
