"""Tensors made from a rule, against NumPy."""

from __future__ import annotations

import numpy as np
import pytest

from hcq import Variable, jit
from hcq.errors import UsageError
from hcq.frontend.tensor import Tensor
from hcq.ir.dtype import dtypes


def same(actual: Tensor, expected: np.ndarray) -> None:
    got = actual.numpy()
    assert (got.shape, got.dtype) == (expected.shape, expected.dtype)
    np.testing.assert_allclose(got, expected, rtol=1e-6, atol=1e-7)


def test_filled_tensors_are_float32_unless_told():
    same(Tensor.zeros(2, 3), np.zeros((2, 3), np.float32))
    same(Tensor.ones((2, 3), dtype=dtypes.int32), np.ones((2, 3), np.int32))
    same(Tensor.full((2,), 7), np.array([7, 7]))
    same(Tensor.full((2,), 0.5), np.float32([0.5, 0.5]))
    same(Tensor.full((1,), True), np.array([True]))
    same(Tensor.empty(2), np.zeros(2, np.float32))
    same(Tensor.zeros(()), np.zeros((), np.float32))
    same(Tensor.zeros(0, 3), np.zeros((0, 3), np.float32))


def test_like_another_takes_its_shape_and_dtype():
    x = Tensor([[1, 2]], dtype=dtypes.int16)
    same(x.zeros_like(), np.zeros((1, 2), np.int16))
    same(x.ones_like(dtype=dtypes.float32), np.ones((1, 2), np.float32))
    same(x.full_like(5), np.full((1, 2), 5, np.int16))


@pytest.mark.parametrize("dtype", [dtypes.uint8, dtypes.uint16, dtypes.uint32, dtypes.uint64], ids=str)
def test_unsigned_elements_count_negative_whole_numbers_from_their_end_and_refuse_what_lies_beyond(dtype):
    makers = (
        lambda number: Tensor([number], dtype=dtype),
        lambda number: Tensor(number, dtype=dtype).reshape(1),
        lambda number: Tensor.full((1,), number, dtype=dtype),
        lambda number: Tensor([0], dtype=dtype).full_like(number),
        lambda number: Tensor([0], dtype=dtype).fill(number),
        lambda number: Tensor([0], dtype=dtype).fill_(number),
    )
    for make in makers:
        assert (make(-1).tolist(), make(-dtype.max).tolist()) == ([dtype.max], [1])
        for beyond in (-dtype.max - 1, dtype.max + 1, -1.5):
            with pytest.raises(UsageError, match=f"{beyond} does not fit in {dtype.name}"):
                make(beyond)


@pytest.mark.parametrize(
    "args", [(5,), (2, 7), (0, 10, 3), (5, 0, -2), (3, 3), (0, 1, 0.25), (1.5, -1, -0.5)], ids=str
)
def test_ranges_are_numpys(args):
    expected = np.arange(*args)
    same(Tensor.arange(*args), expected if expected.dtype == np.int64 else expected.astype(np.float32))


def test_a_range_has_the_dtype_asked_for():
    same(Tensor.arange(3, dtype=dtypes.float64), np.arange(3.0))
    with pytest.raises(UsageError, match="by step 0 never ends"):
        Tensor.arange(0, 5, 0)


@pytest.mark.parametrize("args", [(0, 1, 5), (-2, 3, 11), (1, 1, 3), (0, 1, 1), (0, 1, 0)], ids=str)
def test_linspace_has_both_ends(args):
    same(Tensor.linspace(*args), np.linspace(*args, dtype=np.float32))


def test_eye_and_triangles_are_numpys():
    same(Tensor.eye(3), np.eye(3, dtype=np.float32))
    same(Tensor.eye(2, 4, dtype=dtypes.int32), np.eye(2, 4, dtype=np.int32))
    x = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
    for k in (-2, 0, 1):
        same(Tensor(x).tril(k), np.tril(x, k))
        same(Tensor(x).triu(k), np.triu(x, k))


def test_diagonals_are_numpys():
    x = np.arange(12, dtype=np.float32).reshape(3, 4)
    same(Tensor(x).diagonal(), np.diagonal(x))
    same(Tensor(x.T).diagonal(), np.diagonal(x.T))
    same(Tensor(x[0]).diag(), np.diag(x[0]))


def test_like_another_may_be_on_another_device_and_require_a_gradient():
    x = Tensor([[1.0, 2.0]])
    for made in (x.zeros_like, x.ones_like, x.empty_like, x.rand_like, x.randn_like):
        y = made(device="CPU:1", requires_grad=True)
        assert (y.shape, y.dtype, y.device, y.requires_grad) == (x.shape, x.dtype, "CPU:1", True)
        assert y.numpy().shape == (1, 2)
    z = Tensor([1 + 2j])
    assert z.full_like(1j, device="CPU:1").tolist() == [1j]
    assert z.rand_like(dtype=dtypes.float64, device="CPU:1").device == "CPU:1"


def test_sizes_and_the_number_may_be_bound_variables():
    n, m = Variable("n", 1, 9), Variable("m", 0, 5)
    for rows, more in ((3, 1), (9, 0), (1, 5)):
        size = n.bind(rows)
        assert np.array_equal(Tensor.ones(size, 2).numpy(), np.ones((rows, 2), np.float32))
        assert np.array_equal(Tensor.zeros((2, size)).numpy(), np.zeros((2, rows), np.float32))
        assert Tensor.full((size,), m.bind(more)).tolist() == [more] * rows
        mask = Tensor.full((size, size + m.bind(more)), 1.0).triu(m.bind(more) + 1)
        assert np.array_equal(mask.numpy(), np.triu(np.ones((rows, rows + more), np.float32), more + 1))
    assert Tensor.full((2,), n.bind(4), dtype=dtypes.float32).tolist() == [4.0, 4.0]
    assert Tensor.empty(n.bind(2), 3).shape == (n.bind(2), 3)


def test_one_recording_makes_tensors_of_every_size():
    n = Variable("n", 1, 6)
    x = Tensor.arange(12.0).reshape(6, 2).realize()

    @jit
    def step(x, n):
        return (x[:n] + Tensor.ones(n, 2)).sum(0) + Tensor.full((2,), n)

    for size in (2, 5, 6, 1):
        expected = (x.numpy()[:size] + 1).sum(0) + size
        assert np.allclose(step(x, n.bind(size)).numpy(), expected)
    assert step.kernels > 0


def test_evenly_apart_numbers_are_refused_as_truths():
    with pytest.raises(UsageError, match="bool has no numbers between two"):
        Tensor.linspace(0, 1, 3, dtype=dtypes.bool)


def test_a_negative_size_is_refused():
    with pytest.raises(UsageError, match=r"\[full\] shape \(2, -1\)"):
        Tensor.zeros(2, -1)


@pytest.mark.parametrize("end", [float("inf"), float("-inf"), float("nan"), 2**63, 2**64, 10**400, 1e300])
def test_a_range_that_no_64_bits_count_is_refused(end):
    with pytest.raises(UsageError, match=r"\[arange\] 0 to .* by 1: their number does not fit 64 bits"):
        Tensor.arange(end)


@pytest.mark.parametrize("args", [(2**33,), (2**31 - 1, 2**31 + 3), (-(2**31), -(2**31) - 3, -1)], ids=str)
def test_a_range_of_numbers_that_do_not_fit_the_dtype_is_refused(args):
    with pytest.raises(UsageError, match=r"\[arange\] .* does not fit in int32"):
        Tensor.arange(*args, dtype=dtypes.int32)
    assert Tensor.arange(*args).shape == (len(range(*args)),)
    assert Tensor.arange(0, 256, dtype=dtypes.uint8)[-1].item() == 255


def test_an_identity_of_a_negative_size_is_refused():
    with pytest.raises(UsageError, match=r"\[eye\] of -1 x -1: sizes are 0 or more"):
        Tensor.eye(-1)


def test_the_bounds_of_a_clamp_may_be_arrays_and_lists():
    x = Tensor([1.0, 5.0])
    assert x.clamp([2.0, 2.0], np.array([3.0, 3.0], np.float32)).tolist() == [2.0, 3.0]
