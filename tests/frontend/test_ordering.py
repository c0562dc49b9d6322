"""Ordering: sort, argsort and topk by counting and by buckets, and writes to computed places, against NumPy."""

from __future__ import annotations

import numpy as np
import pytest

import hcq
from hcq import Device, Tensor
from hcq.frontend.core.structure import structure_of
from hcq.frontend.ops import ordering
from hcq.frontend.rewrites import sorts
from hcq.frontend.run.realize import schedule_of
from hcq.frontend.schedule.schedule import schedule
from hcq.ir.op import Op


@pytest.fixture(params=["counted", "buckets", "buckets of whole rows"])
def way(request, monkeypatch: pytest.MonkeyPatch) -> str:
    """All ways of sorting, for axes of any length."""
    if request.param == "buckets of whole rows" and Device.default != "CPU":
        pytest.skip("GPUs have one way of buckets")
    is_counted, is_whole = request.param == "counted", request.param == "buckets of whole rows"
    monkeypatch.setattr(ordering, "COUNTED", 1 << 40 if is_counted else 0)
    monkeypatch.setattr(ordering, "SHORT", 0 if is_counted else 8)
    monkeypatch.setattr(ordering, "LEAST_BLOCK", 2)  # so that topk takes short axes apart, too
    monkeypatch.setattr(sorts, "MIN_PER_KIND", 1e9 if is_whole else 0.1)  # and buckets are filled in pieces,
    monkeypatch.setattr(sorts, "PIECE", 40)  # on GPUs, too
    return str(request.param)


def some(dtype: str, *shape: int) -> np.ndarray:
    random = np.random.default_rng(len(dtype) + sum(shape))
    kind = np.dtype(dtype)
    if kind.kind == "f":
        return (random.integers(-40, 40, shape) / 4).astype(dtype)
    if kind.kind == "b":
        return random.integers(0, 2, shape).astype(dtype)
    edges = np.iinfo(kind)
    return random.choice(np.array([edges.min, edges.min + 1, 3, 7, edges.max - 1, edges.max], kind), shape)


def order_of(x: np.ndarray, axis: int, descending: bool) -> np.ndarray:
    """The stable order, NaN as the greatest: of the ranks of the distinct values."""
    ranks = np.unique(x, return_inverse=True, equal_nan=True)[1].reshape(x.shape)
    return np.argsort(-ranks if descending else ranks, axis, kind="stable")


ORDERS = (
    lambda x: x.argsort(1),
    lambda x: x.argsort(1, descending=True),
    lambda x: x.argsort(0),
    lambda x: x.topk(100, 1)[1],
    lambda x: x.argsort(1).argsort(1),
)
EXPECTED = (
    lambda x: order_of(x, 1, False),
    lambda x: order_of(x, 1, True),
    lambda x: order_of(x, 0, False),
    lambda x: order_of(x, 1, True)[:, :100],
    lambda x: order_of(order_of(x, 1, False), 1, False),
)


@pytest.mark.parametrize(
    "dtype", ["bool", "int8", "uint16", "int32", "uint32", "int64", "uint64", "float16", "float32", "float64"]
)
def test_every_format_is_sorted_stably(way: str, dtype: str):
    x = some(dtype, 3, 37)
    for axis, descending in ((1, False), (0, True)):
        values, indices = Tensor(x).sort(axis, descending)
        expected = order_of(x, axis, descending)
        assert np.array_equal(expected, indices.numpy())
        assert np.array_equal(np.take_along_axis(x, expected, axis), values.numpy())


@pytest.mark.parametrize("size", [1, 2, 3, 8, 9, 64, 65, 200])
def test_any_length_is_sorted(way: str, size: int):
    x = some("float32", size)
    assert np.array_equal(order_of(x, 0, False), Tensor(x).argsort().numpy())


@pytest.mark.parametrize("descending", [False, True])
def test_nan_is_greatest_and_zeros_are_equal(way: str, descending: bool):
    x = np.array([0.0, np.nan, -np.inf, -0.0, np.inf, -np.nan, 0.0, -1e-40, 1e-40, np.nan, -0.0], np.float32)
    indices = Tensor(x).argsort(0, descending)
    expected = [1, 5, 9, 4, 8, 0, 3, 6, 10, 7, 2] if descending else [2, 7, 0, 3, 6, 10, 8, 4, 1, 5, 9]
    assert indices.tolist() == expected
    doubles = Tensor(x.astype(np.float64)).argsort(0, descending)
    assert doubles.tolist() == expected


@pytest.mark.sampled(10)
@pytest.mark.parametrize("largest", [True, False])
@pytest.mark.parametrize("k", [0, 1, 5, 150])
def test_topk_is_the_start_of_the_order(way: str, k: int, largest: bool):
    x = some("float32", 2, 150)
    values, indices = Tensor(x).topk(k, 1, largest)
    expected = order_of(x, 1, largest)[:, :k]
    assert np.array_equal(expected, indices.numpy())
    assert np.array_equal(np.take_along_axis(x, expected, 1), values.numpy())


def test_the_gradient_of_a_sorted_axis_goes_back_to_where_its_elements_were(way: str):
    x = some("float32", 40)
    leaf = Tensor(x, requires_grad=True)
    (leaf.sort(0)[0] * Tensor(np.arange(40, dtype=np.float32))).sum().backward()
    expected = np.empty(40, np.float32)
    expected[order_of(x, 0, False)] = np.arange(40)
    assert np.array_equal(expected, leaf.grad.numpy())


def test_sorting_takes_time_in_proportion():
    (plan,) = schedule_of([Tensor(np.zeros(1 << 17, np.float32)).sort()[1]])
    assert sum(launch.traffic_bytes for launch in plan.launches) < 250 * (1 << 17)


def test_the_greatest_few_are_found_by_reading_the_axis_once():
    (plan,) = schedule_of([Tensor(np.zeros(1 << 20, np.float32)).topk(4)[1]])
    assert sum(launch.traffic_bytes for launch in plan.launches) < 10 * (1 << 20)


@pytest.mark.parametrize(
    ("rows", "dtype", "passes", "counts"),
    [
        (1, "float32", 4, 1),
        (40, "int32", 4, 1),
        (1, "float64", 8, 2),  # the lower halves, then the upper ones
        (1, "int16", 2, 2),  # two passes are not worth it
    ],
)
def test_rows_in_one_piece_are_counted_once_for_all_passes(rows: int, dtype: str, passes: int, counts: int):
    roots = [Tensor(np.zeros((rows, 1024), dtype)).realize().sort(1)[1].node]
    kernels = schedule(roots, structure_of(roots).storages, threads=2).kernels
    ops = [{node.op for node in kernel.sink.toposort()} for kernel in kernels]
    assert (sum(Op.BUCKET in some for some in ops), sum(Op.SCATTER_ADD in some for some in ops)) == (
        passes,
        counts,
    )


def test_orders_of_one_tensor_do_not_disturb_each_other(way: str):
    x = some("float32", 3, 130)
    tensor = Tensor(x)
    made = [make(tensor) for make in ORDERS]
    Tensor.realize(*made)
    for one, expected in zip(made, EXPECTED, strict=True):
        assert np.array_equal(expected(x), one.numpy())


@pytest.mark.parametrize("dtype", ["float32", "int64", "bool"])
def test_the_last_of_several_writes_to_one_place_stays(dtype: str):
    random = np.random.default_rng(5)
    x, y = some(dtype, 50), some(dtype, 400)
    places = random.integers(-50, 50, 400)
    expected = x.copy()
    for place, value in zip(places, y):
        expected[place] = value
    written = Tensor(x)
    written[Tensor(places)] = Tensor(y)
    assert np.array_equal(expected, written.numpy())
    written = Tensor(x)
    written[Tensor(np.array([60, 3, -51]))] = Tensor(y[:3])
    expected = x.copy()
    expected[3] = y[1]
    assert np.array_equal(expected, written.numpy())


def test_rows_are_written_to_computed_places():
    random = np.random.default_rng(6)
    x, y = some("float32", 6, 4), some("float32", 9, 4)
    places = random.integers(0, 6, 9)
    expected = x.copy()
    for place, row in zip(places, y):
        expected[place] = row
    written = Tensor(x)
    written[Tensor(places)] = Tensor(y)
    assert np.array_equal(expected, written.numpy())


def test_what_a_later_write_overwrote_has_no_gradient():
    base = Tensor([1.0, 2.0, 3.0], requires_grad=True)
    new = Tensor([5.0, 6.0, 7.0], requires_grad=True)
    x = base * 1.0
    x[hcq.tensor([1, 2, 1])] = new
    (x * Tensor([10.0, 20.0, 30.0])).sum().backward()
    assert base.grad.tolist() == [10.0, 0.0, 0.0]
    assert new.grad.tolist() == [0.0, 30.0, 20.0]


def test_the_gradient_of_a_running_sum_takes_time_in_proportion():
    x = Tensor(np.ones(1 << 14, np.float32), requires_grad=True)
    x.cumsum(0).sum().backward()
    assert np.array_equal(np.arange(1 << 14, 0, -1), x.grad.numpy())
