"""Square brackets, gather and scatter against NumPy; where PyTorch differs, its rule is spelled out."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import hcq
from hcq.errors import UsageError
from hcq.frontend.grad.gradient import no_grad
from hcq.frontend.run.plan import Plan
from hcq.frontend.tensor import Tensor
from hcq.ir.dtype import dtypes
from hcq.ir.op import Op


def numbers(*shape: int) -> np.ndarray:
    return np.arange(math.prod(shape), dtype=np.float32).reshape(shape)


def same(actual: Tensor, expected: np.ndarray) -> None:
    assert actual.shape == expected.shape
    np.testing.assert_array_equal(actual.numpy(), expected)


VIEWS = [
    0,
    -1,
    np.int64(1),
    (1, 2),
    (1, -1, 3),
    slice(1, 2),
    (slice(None), slice(-2, None)),
    (slice(None), slice(None, None, -1)),
    (Ellipsis, 1),
    (0, Ellipsis, slice(1, 4, 2)),
    (slice(None), slice(10, 0, -2), slice(3, None, -3)),
    None,
    (slice(None), None, 1),
    (None, Ellipsis, None),
    (slice(2, 2), 1),
    Ellipsis,
    (),
]


@pytest.mark.parametrize("key", VIEWS, ids=str)
def test_views_are_numpys(key):
    x = numbers(3, 4, 5)
    same(Tensor(x)[key], x[key])


PICKS = [
    [2, 0],
    [-1, 0, 0],
    ([0, 2], [1, 3]),
    ([[0], [2]], [1, 3]),
    (slice(None), [3, 0, 1]),
    (slice(None), [3, 0], [1, 4]),
    ([0, 2], slice(None), [1, 4]),
    (slice(1, None), [3, 0]),
    (Ellipsis, [4, 0]),
    ([1, 1], None),
    (slice(None), [0, 1], None, [2, 3]),
    (slice(None, None, -1), [[0, 1], [2, 3]]),
    [],
    np.array([2, 1]),
    ([0, 1], 2),
    (2, [0, 1]),
]


@pytest.mark.parametrize("key", PICKS, ids=str)
def test_picks_are_numpys(key):
    x = numbers(3, 4, 5)
    expected = x[key] if not (isinstance(key, list) and not key) else x[:0]
    same(Tensor(x)[key], expected)


@pytest.mark.parametrize("key", PICKS, ids=str)
def test_picks_by_computed_tensors_are_the_same(key):
    x = numbers(3, 4, 5)
    entries = key if isinstance(key, tuple) else (key,)
    is_pick = [isinstance(entry, (list, np.ndarray)) for entry in entries]
    computed = [Tensor(np.array(e, np.int64)) + 0 if p else e for e, p in zip(entries, is_pick)]
    same(Tensor(x)[tuple(computed)], Tensor(x)[key].numpy())


def test_an_int_beside_a_list_is_taken_first_as_in_pytorch():
    x = numbers(2, 3, 4)
    same(Tensor(x)[0, :, [0, 1]], x[0][:, [0, 1]])  # NumPy would put the list's axis first
    same(Tensor(x)[hcq.tensor(0), :, [0, 1]], x[0][:, [0, 1]])


def test_masks_choose_elements_or_slices():
    x = numbers(3, 4)
    same(Tensor(x)[Tensor(x > 5)], x[x > 5])
    same(Tensor(x)[Tensor(x) > 100], x[x > 100])
    same(Tensor(x)[[True, False, True]], x[[True, False, True]])
    same(Tensor(x)[:, [False, True, True, False]], x[:, [False, True, True, False]])
    same(Tensor(x).masked_select(Tensor(x) < 3), x[x < 3])
    assert Tensor(x > 9).nonzero().tolist() == [[2, 2], [2, 3]]


def test_a_computed_index_out_of_range_reads_zero():
    x, far = Tensor([1.0, 2.0, 3.0]), hcq.tensor([5, 1, -7]) + 0
    assert x[far].tolist() == [0.0, 2.0, 0.0]
    grid = Tensor(numbers(2, 3) + 1)
    assert grid[hcq.tensor([0, 2]) + 0, hcq.tensor([3, 0]) + 0].tolist() == [0.0, 0.0]
    assert x.gather(0, far).tolist() == [0.0, 2.0, 0.0]


def test_gather_takes_along_an_axis():
    x, index = numbers(3, 4), np.array([[0, 2, 1], [3, 0, 0]])
    same(Tensor(x).gather(1, Tensor(index)), np.take_along_axis(x[:2], index, 1))
    same(
        Tensor(x).take_along_dim(hcq.tensor([[2], [0], [1]]), 1),
        np.take_along_axis(x, np.array([[2], [0], [1]]), 1),
    )
    same(Tensor(x).index_select(1, hcq.tensor([3, 0])), x[:, [3, 0]])
    same(Tensor(x).select(1, -1), x[:, -1])


def test_scatter_add_sums_what_meets():
    index = np.array([[0, 1, 0, 2], [2, 2, 2, 2]])
    src = numbers(2, 4) + 1
    expected = np.zeros((3, 4), np.float32)
    for i in range(2):
        for j in range(4):
            expected[index[i, j], j] += src[i, j]
    same(Tensor.zeros(3, 4).scatter_add(0, Tensor(index), Tensor(src)), expected)
    same(Tensor.ones(3, 5).scatter_add(0, Tensor(index), Tensor(src)), 1 + np.pad(expected, ((0, 0), (0, 1))))
    line = Tensor.zeros(3).scatter_add(0, hcq.tensor([0, 9, 0, -1]), Tensor([1.0, 2.0, 3.0, 4.0]))
    assert line.tolist() == [4.0, 0.0, 0.0]


def test_one_hot_and_embedding_read_by_index():
    assert hcq.tensor([2, 0]).one_hot(3).tolist() == [[0, 0, 1], [1, 0, 0]]
    assert hcq.tensor([[1]]).one_hot().tolist() == [[[0, 1]]]
    table = numbers(5, 2)
    same(hcq.tensor([[0, 4], [1, 1]]).embedding(Tensor(table)), table[[[0, 4], [1, 1]]])


def test_indices_of_any_integer_dtype_work():
    x = hcq.tensor([10, 20, 30])
    for dtype in (dtypes.uint8, dtypes.int8, dtypes.int32, dtypes.int64):
        assert x[Tensor([2, 0], dtype=dtype)].tolist() == [30, 10]


@pytest.mark.parametrize(
    "key, sentence",
    [
        (3, r"\[index\] 3 on axis 0 of shape \(3, 4\): out of range; use -3 to 2\."),
        ((0, -5), r"\[index\] -5 on axis 1 of shape \(3, 4\): out of range; use -4 to 3\."),
        ([0, 7], r"\[index\] 7 on axis 0 of shape \(3, 4\)"),
        ((slice(None), [4]), r"\[index\] 4 on axis 1 of shape \(3, 4\)"),
        ((0, 0, 0), r"3 indices for a tensor of shape \(3, 4\), which has 2 axes"),
        ([True, False], r"a mask of shape \(2,\) on axes 0\.\. of a tensor of shape \(3, 4\)"),
    ],
    ids=str,
)
def test_an_index_the_tensor_lacks_is_an_index_error(key, sentence):
    with pytest.raises(UsageError, match=sentence) as caught:
        Tensor(numbers(3, 4))[key]
    assert isinstance(caught.value, IndexError)


@pytest.mark.parametrize(
    "key", [1.5, "a", (slice(None, None, 0),), (Ellipsis, Ellipsis), True, slice(0.5, 2), [0.5]]
)
def test_what_is_no_index_is_refused(key):
    with pytest.raises(UsageError, match=r"^\[index\]"):
        Tensor(numbers(3, 4))[key]


@st.composite
def keys(draw: st.DrawFn):
    """A shape and an index of ints, slices, None, one Ellipsis, and lists side by side (where PyTorch is NumPy)."""
    shape = tuple(draw(st.lists(st.integers(1, 4), min_size=1, max_size=4)))
    used = draw(st.integers(0, len(shape)))
    dots = draw(st.integers(0, used)) if used < len(shape) or draw(st.booleans()) else None
    lists = draw(st.sampled_from([(), (0,), (0, 1), (1,), (1, 2)]))
    width = draw(st.integers(1, 3))
    entries = []
    for place in range(used):
        axis = place if dots is None or place < dots else len(shape) - used + place
        size = shape[axis]
        if place in lists:
            entries.append(draw(st.lists(st.integers(-size, size - 1), min_size=width, max_size=width)))
        elif lists:
            entries.append(
                slice(draw(st.none() | st.integers(-3, 3)), None, draw(st.sampled_from([1, 2, -1])))
            )
        else:
            bound = st.none() | st.integers(-5, 5)
            part = st.builds(slice, bound, bound, st.sampled_from([None, 1, 2, 3, -1, -2]))
            entries.append(draw(part | st.integers(-size, size - 1)))
    if dots is not None and not (lists and any(p < dots for p in lists) and any(p >= dots for p in lists)):
        entries.insert(dots, Ellipsis)
    elif dots is not None:
        return shape, tuple(entries[:dots])
    if draw(st.booleans()):
        entries.insert(0, None)
    return shape, tuple(entries)


@settings(max_examples=80, deadline=None, suppress_health_check=list(HealthCheck))
@given(keys())
def test_any_index_reads_what_numpy_reads(case):
    shape, key = case
    x = numbers(*shape)
    same(Tensor(x)[key], np.asarray(x[key]))


@settings(max_examples=50, deadline=None, suppress_health_check=list(HealthCheck))
@given(keys(), st.booleans())
def test_any_index_writes_what_numpy_writes(case, is_lazy):
    shape, key = case
    expected = numbers(*shape)
    t = Tensor(expected) + 0 if is_lazy else Tensor(expected)
    value = -1 - numbers(*np.shape(expected[key]))
    expected[key] = value
    t[key] = Tensor(value)
    same(t, expected)


@pytest.mark.parametrize(
    ("write", "gradient"),
    [
        (lambda z, w: z.__setitem__(0, w), [1.0, 10.0]),
        (lambda z, w: z.__setitem__([1, 0], w), [101.0, 1010.0]),
        (lambda z, w: z.__setitem__((slice(None), 1), w * 2), [20.0, 2000.0]),
        (lambda z, w: z.__setitem__(hcq.tensor([[True, False], [False, True]]), w.sum()), [1001.0, 1001.0]),
    ],
)
@pytest.mark.parametrize(
    "make", [Tensor, lambda data: Tensor(data) * 1, lambda data: Tensor(data).assign(Tensor(data))]
)
def test_a_gradient_flows_through_what_is_written_into_a_tensor(write, gradient, make):
    w = Tensor([5.0, 6.0], requires_grad=True)
    z = make([[1.0, 2.0], [3.0, 4.0]])
    write(z, w)
    z.realize()
    (z * Tensor([[1.0, 10.0], [100.0, 1000.0]])).sum().backward()
    assert w.grad.tolist() == gradient


@pytest.mark.parametrize(
    "key",
    [slice(1, None), (slice(None), 2), (..., slice(None, None, 2)), 1, (slice(None), slice(None, None, -1))],
)
def test_writing_into_a_part_is_one_kernel_that_reads_nothing_of_what_was_there(key, monkeypatch):
    ran = []
    before = Plan.run
    monkeypatch.setattr(Plan, "run", lambda plan, storages: ran.append(plan) or before(plan, storages))
    x = Tensor([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]).realize()
    expected = x.numpy().copy()
    for value in (7.0, 8.0):
        ran.clear()
        x[key] = value
        expected[key] = value
        np.testing.assert_array_equal(x.numpy(), expected)
        assert [len(plan.launches) for plan in ran] == [1]


def test_a_gradient_flows_through_what_is_left_of_a_tensor_that_is_written_to():
    w = Tensor([5.0, 6.0], requires_grad=True)
    z = (w * 3).realize()
    z[0] = 5.0
    z.sum().backward()
    assert (z.tolist(), w.grad.tolist()) == ([5.0, 18.0], [0.0, 3.0])


def test_a_leaf_takes_values_with_a_gradient_only_as_numbers():
    w = Tensor([5.0, 6.0], requires_grad=True)
    with pytest.raises(UsageError, match="no_grad"):
        w[0] = w[1] * 2
    with no_grad():
        w[0] = w[1] * 2
    w[1] = 1.0
    assert (w.tolist(), w.requires_grad) == ([12.0, 1.0], True)


@pytest.mark.parametrize(
    "make", [lambda x: x[0], lambda x: x.T, lambda x: x.reshape(4), lambda x: x.detach()]
)
@pytest.mark.parametrize("base", [Tensor, lambda data: Tensor(data) * 1, lambda data: Tensor.zeros(2, 2)])
def test_writing_to_a_view_writes_to_the_tensor_that_it_is_a_view_of(make, base):
    x = base([[1.0, 2.0], [3.0, 4.0]])
    make(x)[0] = 9.0
    view = make(x)
    assert np.all(view[0].numpy() == 9.0) and (x.numpy() == 9.0).sum() == view[0].numel()
    view.assign(view * 0 + 1)
    assert np.all(make(x).numpy() == 1.0)
    del x
    view[0] = 9.0
    assert 9.0 in view.numpy()


def test_every_turn_of_a_sum_of_one_number_in_one_place_counts():
    # index and source are constants: nothing in the kernel depended on the turn, and one of them was made
    place = Tensor.arange(1).repeat_interleave(3)
    assert Tensor.zeros(1).scatter_add(0, place, Tensor.ones(3)).tolist() == [3.0]
    wide = place.reshape(3, 1).expand(3, 2)
    assert Tensor.zeros(1, 2).scatter_add(0, wide, Tensor.full((3, 2), 2.0)).tolist() == [[6.0, 6.0]]


@pytest.mark.parametrize(
    "index, kind",
    [
        (1.5, IndexError),
        ((0, 0.0), IndexError),
        ("a", IndexError),
        (slice("0", "1"), TypeError),
        (slice(0.0, None), TypeError),
        (([0, 1], [0, 1, 2]), IndexError),
    ],
    ids=str,
)
def test_what_is_no_index_is_an_error_of_pythons_kind(index, kind):
    with pytest.raises(UsageError) as caught:
        Tensor.zeros(3, 4)[index]
    assert isinstance(caught.value, kind)
    with pytest.raises(kind):
        np.zeros((3, 4))[index]


MASKS = {
    "of its shape": ((2, 3), (2, 3)),
    "of its first axis": ((3, 2), (3,)),
    "of its first two axes": ((4, 3, 2), (4, 3)),
}


@pytest.mark.parametrize("share", [0.0, 0.5, 1.0])
@pytest.mark.parametrize("shapes", MASKS.values(), ids=MASKS)
@pytest.mark.parametrize("is_view", [False, True])
def test_masked_elements_take_values_in_their_order(shapes, share, is_view):
    shape, of_mask = shapes
    rng = np.random.default_rng(3)
    mask = rng.random(of_mask) < share
    rest, count = shape[len(of_mask) :], int(mask.sum())
    for values in (7.5, rng.random((count, *rest)), rng.random(rest), rng.random((1, *rest))):
        want = np.arange(np.prod(shape), dtype=np.float32).reshape(shape)
        whole = Tensor(want)
        x = whole[:] if is_view else whole
        given = values if isinstance(values, float) else Tensor(values.astype(np.float32))
        x[Tensor(mask)] = given
        want[mask] = values
        np.testing.assert_allclose(whole.numpy(), want, rtol=1e-6)
        x[Tensor(mask)] *= 2
        x[Tensor(mask)] += given
        want[mask] = want[mask] * 2 + values
        np.testing.assert_allclose(whole.numpy(), want, rtol=1e-6)


def test_values_that_are_not_as_many_as_a_mask_has_are_refused():
    x = Tensor([1.0, 2.0, 3.0])
    with pytest.raises(UsageError, match="shape"):
        x[x > 1] = Tensor([1.0, 2.0, 3.0])
    assert x.tolist() == [1.0, 2.0, 3.0]


def test_an_element_of_a_long_range_is_computed_without_the_rest():
    x = hcq.arange(10**9)  # 8 GB, if it were in memory
    part = x[5:8]
    assert x[5].item() == 5 and part.tolist() == [5, 6, 7] and x[-1].item() == 10**9 - 1
    assert x.node.op is not Op.BUFFER


def test_a_part_that_was_read_still_shows_what_is_written_to_the_whole():
    x = hcq.arange(10)
    part = x[2:4]
    assert part.tolist() == [2, 3]
    x[2] = 50
    part += 1
    assert part.tolist() == [51, 4] and x.tolist()[:5] == [0, 1, 51, 4, 4]
