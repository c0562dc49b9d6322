"""The way into a tensor and out of it, and writing in place. Numbers come from NumPy and the standard library."""

from __future__ import annotations

import copy
import math
import struct
import subprocess
import sys

import numpy as np
import pytest

import hcq
from hcq.errors import UsageError
from hcq.frontend.tensor import Tensor
from hcq.ir.dtype import dtypes

WITH_NUMPY = [
    dtypes.bool,
    dtypes.uint8,
    dtypes.int16,
    dtypes.int64,
    dtypes.float16,
    dtypes.float32,
    dtypes.float64,
]


@pytest.mark.parametrize(
    "data, dtype, shape",
    [
        (3, dtypes.int64, ()),
        (3.0, dtypes.float32, ()),
        (True, dtypes.bool, ()),
        ([1, 2, 3], dtypes.int64, (3,)),
        ([1, 2.5], dtypes.float32, (2,)),
        ([True, False], dtypes.bool, (2,)),
        ([True, 2], dtypes.int64, (2,)),
        ([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]], dtypes.float32, (3, 2)),
        ([], dtypes.float32, (0,)),
        ([[], []], dtypes.float32, (2, 0)),
        ([(1, 2), [3, 4]], dtypes.int64, (2, 2)),
    ],
)
def test_python_data_takes_the_dtype_and_shape_that_pytorch_gives_it(data, dtype, shape):
    t = hcq.tensor(data)
    assert (t.dtype, t.shape) == (dtype, shape)
    assert t.tolist() == (data if not shape else np.array(data).tolist())


@pytest.mark.parametrize(
    "data", [[0, 1], (1, 2), [[True, False]], [True, 2], range(3), [[1], [2]], [np.int64(3), 4]]
)
def test_the_constructor_makes_float32_of_lists_of_ints_as_older_programs_expect(data):
    t = Tensor(data)
    assert t.dtype is dtypes.float32
    assert t.tolist() == np.array(data, np.float32).tolist()
    t[0] = 0.5
    assert t.flatten().tolist()[0] == 0.5


def test_the_constructor_takes_ints_as_sizes():
    assert [Tensor(*sizes).shape for sizes in ((4,), (2, 3), (0,), (2, 1, 3, 1))] == [
        (4,),
        (2, 3),
        (0,),
        (2, 1, 3, 1),
    ]
    assert Tensor(4).dtype is dtypes.float32 and Tensor().shape == (0,)
    assert hcq.nn.Parameter(Tensor(4)).shape == (4,)
    assert Tensor(4, device="CPU").shape == (4,) and Tensor(4, requires_grad=True).requires_grad
    with pytest.raises(hcq.UsageError, match="-1"):
        Tensor(-1)


def test_the_constructor_keeps_what_has_a_dtype():
    assert Tensor(np.array([1, 2])).dtype is dtypes.int64
    assert Tensor([1, 2], dtype=dtypes.int16).dtype is dtypes.int16
    assert Tensor(5, dtype=dtypes.int64).item() == 5
    assert Tensor([1, 2.5]).dtype is dtypes.float32 and Tensor([1, 2j]).dtype.is_complex
    assert Tensor(hcq.tensor([1, 2])).dtype is dtypes.int64


@pytest.mark.parametrize("dtype", WITH_NUMPY, ids=lambda d: d.name)
def test_an_array_goes_in_and_comes_out_the_same(dtype):
    array = (np.arange(24) % 7).reshape(2, 3, 4).astype(dtype.name)
    t = Tensor(array)
    assert t.dtype is dtype
    assert t.numpy().dtype == array.dtype
    np.testing.assert_array_equal(t.numpy(), array)


def test_an_array_that_is_not_contiguous_keeps_its_order():
    array = np.arange(12.0).reshape(3, 4).T[::-1]
    np.testing.assert_array_equal(Tensor(array).numpy(), array)


@pytest.mark.parametrize("dtype", [dtypes.bfloat16, dtypes.fp8e4m3, dtypes.fp8e5m2, dtypes.float16], ids=str)
def test_narrow_floats_are_read_back_as_python_numbers(dtype):
    assert Tensor([0.5, -2.0, 0.0, 1.0], dtype=dtype).tolist() == [0.5, -2.0, 0.0, 1.0]


def test_bytes_are_a_vector_of_the_given_dtype():
    raw = struct.pack("<3f", 1.0, 2.0, 3.0)
    assert Tensor(raw, dtype=dtypes.float32).tolist() == [1.0, 2.0, 3.0]
    assert Tensor(bytearray(b"\x01\xff")).tolist() == [1, 255]


def test_a_number_too_large_for_float32_is_infinite():
    assert Tensor([1e300, -1e300]).tolist() == [math.inf, -math.inf]


def test_a_tensor_of_a_tensor_has_its_values_in_the_dtype_asked_for():
    assert Tensor(hcq.tensor([1, 2]), dtype=dtypes.float32).tolist() == [1.0, 2.0]


def test_item_gives_a_python_number_of_the_dtypes_kind():
    assert [type(hcq.tensor(value).item()) for value in (True, 2, 2.0)] == [bool, int, float]
    assert hcq.tensor([[41]]).item() + 1 == 42


def test_data_is_a_memoryview_in_the_tensors_shape():
    view = (Tensor([[1, 2], [3, 4]], dtype=dtypes.int32) + 1).as_memoryview()
    assert (view.shape, view.format, view.tolist()) == ((2, 2), "i", [[2, 3], [4, 5]])


def test_data_of_a_number_has_no_axes_and_data_of_nothing_keeps_its_format():
    view = Tensor(3, dtype=dtypes.int32).as_memoryview()
    assert (view.shape, view.format, view.tolist()) == ((), "i", 3)
    for shape in ((0,), (0, 2), (2, 0, 3)):
        empty = Tensor.zeros(*shape, dtype=dtypes.int32).as_memoryview()
        assert (empty.shape, empty.format, empty.itemsize, empty.tolist()) == ((0,), "i", 4, [])


def test_numbers_come_out_by_the_python_conversions():
    assert float(Tensor([2.5])) == 2.5
    assert int(hcq.tensor(7)) == 7
    assert bool(hcq.tensor([True]))
    assert [1, 2, 3][hcq.tensor(1)] == 2
    assert len(hcq.tensor([[1, 2]])) == 1
    assert [row.tolist() for row in hcq.tensor([[1, 2], [3, 4]])] == [[1, 2], [3, 4]]
    assert 3 in hcq.tensor([1, 3])
    np.testing.assert_array_equal(np.asarray(Tensor([1.0, 2.0])), np.float32([1, 2]))


def test_printing_a_tensor_says_what_it_is_and_computes_nothing():
    x = Tensor([1.0, 2.0], device="CPU") + 1
    assert repr(x) == "Tensor(shape=(2,), dtype=float32, device=CPU, lazy)"
    x.realize()
    assert repr(x) == "Tensor(shape=(2,), dtype=float32, device=CPU, in memory)"
    assert repr(hcq.tensor(1, device="CPU")) == "Tensor(shape=(), dtype=int64, device=CPU, constant)"


def test_tensors_hash_by_identity_though_they_compare_by_element():
    a, b = hcq.tensor([1]), hcq.tensor([1])
    assert len({a, b, a}) == 2


def test_no_numpy_is_imported_for_lists():
    code = "import sys, hcq; t = hcq.tensor([1, 2], device='CPU') + 1; sys.exit('numpy' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], timeout=60).returncode == 0


# -- writing in place --------------------------------------------------------------------------------------------------


def test_assign_writes_into_the_memory_the_tensor_has():
    x = Tensor([1.0, 2.0])
    storage = x.node.arg
    x.assign(x + 1).realize()
    assert x.node.arg is storage
    assert x.tolist() == [2.0, 3.0]


@pytest.mark.parametrize("shape", [(5,), (1, 5), (3, 1), (1,)], ids=str)
def test_an_assigned_value_is_repeated_along_the_axes_that_it_lacks(shape):
    value = np.arange(np.prod(shape), dtype=np.float32).reshape(shape)
    x = Tensor.zeros(3, 5).contiguous().realize()
    x.assign(Tensor(value))
    assert np.array_equal(x.numpy(), np.broadcast_to(value, (3, 5)))
    for wrong in ((3,), (2, 5), (1, 3, 5)):
        with pytest.raises(UsageError, match="the shapes must be equal"):
            x.assign(Tensor.zeros(*wrong))


def test_assignments_happen_in_the_order_they_were_written():
    x = Tensor([1.0, 2.0])
    x.assign(x + 1)
    x.assign(x * 10)
    assert x.tolist() == [20.0, 30.0]


def test_a_tensor_made_before_an_assignment_keeps_what_it_meant():
    x = Tensor([1.0, 2.0])
    y = x * 2
    part = x[1:]
    x.assign(x + 100).realize()
    assert y.tolist() == [2.0, 4.0]
    assert part.tolist() == [2.0]


OVERLAPPING = {
    "transposed": lambda x: x.T,
    "backwards": lambda x: x.flip(0),
    "moved": lambda x: x.roll(1, 0) + x,
    "multiplied": lambda x: x @ x,
}


@pytest.mark.parametrize("name", OVERLAPPING)
@pytest.mark.parametrize("is_sliced", [False, True], ids=["assign", "slice"])
def test_a_write_does_not_overtake_what_it_reads(name, is_sliced):
    array = np.arange(2500, dtype=np.float32).reshape(50, 50) % 7
    expected = OVERLAPPING[name](Tensor(array)).numpy()
    x = Tensor(array)
    if is_sliced:
        x[:] = OVERLAPPING[name](x)
    else:
        x.assign(OVERLAPPING[name](x))
    np.testing.assert_array_equal(x.numpy(), expected)


def test_tensors_that_share_memory_do_not_see_each_others_writes():
    a = Tensor([1.0, 2.0])
    b, c = Tensor(a), a.reshape(2, 1)
    b.assign(b * 10).realize()
    assert a.tolist() == [1.0, 2.0]
    a[0] = 5
    assert (b.tolist(), c.tolist()) == ([10.0, 20.0], [[1.0], [2.0]])


def test_a_number_is_assigned_to_every_element():
    x = hcq.tensor([1, 2])
    assert x.assign(7).tolist() == [7, 7]


def test_a_lazy_tensor_just_becomes_what_it_is_assigned():
    x = Tensor.zeros(2, 2)
    x.assign(Tensor([[1.0, 2.0], [3.0, 4.0]]))
    assert x.tolist() == [[1.0, 2.0], [3.0, 4.0]]


def test_plus_equals_changes_the_tensor_that_is_there():
    x = y = Tensor([1.0])
    x += 1
    assert x is y and y.tolist() == [2.0]


SLICES = [
    0,
    -1,
    (1, 2),
    slice(1, 3),
    (slice(None), 1),
    (Ellipsis, 0),
    (slice(None, None, 2), slice(None, None, -2)),
    (slice(None, None, -1), slice(3, 0, -1)),
    (None, 2),
    (slice(1, 1), 0),
    Ellipsis,
]


@pytest.mark.parametrize("key", SLICES, ids=str)
@pytest.mark.parametrize("is_lazy", [False, True], ids=["memory", "lazy"])
def test_setting_a_slice_changes_what_numpy_would_change(key, is_lazy):
    array = np.arange(20.0, dtype=np.float32).reshape(4, 5)
    t = Tensor(array) + 1 if is_lazy else Tensor(array + 1)
    expected = array + 1
    value = -np.arange(expected[key].size, dtype=np.float32).reshape(expected[key].shape)
    expected[key] = value
    t[key] = Tensor(value)
    np.testing.assert_array_equal(t.numpy(), expected)


def test_setting_a_slice_broadcasts_the_value():
    t, array = Tensor(np.zeros((3, 4), np.float32)), np.zeros((3, 4), np.float32)
    t[1:], array[1:] = Tensor([1.0, 2.0, 3.0, 4.0]), [1, 2, 3, 4]
    t[:, 2], array[:, 2] = 9, 9
    np.testing.assert_array_equal(t.numpy(), array)


def test_a_slice_set_from_another_part_of_the_same_tensor_reads_old_values():
    t = hcq.tensor([1, 2, 3, 4])
    t[1:] = t[:-1]
    assert t.tolist() == [1, 1, 2, 3]


PICKS = [[0, 2], ([0, 2], [1, 1]), (slice(None), [4, 0]), ([2, -1],), (1, [0, 3]), ([[0], [3]], [1, 2])]


@pytest.mark.parametrize("key", PICKS, ids=str)
def test_setting_picked_elements_changes_what_numpy_would_change(key):
    expected = np.arange(20.0, dtype=np.float32).reshape(4, 5)
    t = Tensor(expected)
    value = -1 - np.arange(expected[key].size, dtype=np.float32).reshape(expected[key].shape)
    expected[key] = value
    t[key] = Tensor(value)
    np.testing.assert_array_equal(t.numpy(), expected)


def test_the_last_of_several_writes_to_one_place_wins():
    t = hcq.tensor([0, 0, 0])
    t[hcq.tensor([1, 1, 2, 1])] = hcq.tensor([5, 6, 7, 8])
    assert t.tolist() == [0, 8, 7]


def test_a_write_at_a_computed_index_out_of_range_is_dropped():
    t = hcq.tensor([1, 2, 3])
    t[hcq.tensor([5, 0]) + 0] = 9
    assert t.tolist() == [9, 2, 3]


def test_setting_by_a_mask_fills_where_it_is_true():
    t = Tensor([1.0, -2.0, 3.0])
    t[t < 0] = 0
    assert t.tolist() == [1.0, 0.0, 3.0]


# -- leaves ------------------------------------------------------------------------------------------------------------


def test_leaves_made_alike_have_memory_of_their_own():
    a, b = Tensor.zeros(3, requires_grad=True), Tensor.zeros(3, requires_grad=True)
    assert a.node is not b.node
    a.assign(a + 1).realize()
    assert (a.tolist(), b.tolist()) == ([1.0] * 3, [0.0] * 3)


def test_integers_cannot_require_a_gradient():
    with pytest.raises(UsageError, match=r"\[requires_grad\] int64 has no gradient"):
        hcq.tensor([1], requires_grad=True)


# -- copies and comparison ---------------------------------------------------------------------------------------------


def test_a_deep_copy_has_memory_of_its_own_and_is_a_leaf_if_the_original_is():
    x = Tensor([1.0, 2.0], requires_grad=True)
    shallow, deep = copy.copy(x + 1), copy.deepcopy({"w": x, "again": [x]})
    assert shallow.tolist() == [2.0, 3.0]
    assert deep["w"] is deep["again"][0]
    assert deep["w"].requires_grad and deep["w"].node is not x.node
    x.assign(x * 0).realize()
    assert deep["w"].tolist() == [1.0, 2.0]


def test_closeness_is_numpys():
    a = Tensor([1.0, 1.0, math.inf, math.inf, math.nan, 0.0])
    b = Tensor([1.0 + 1e-6, 1.1, math.inf, -math.inf, math.nan, 1e-9])
    assert a.isclose(b).tolist() == [True, False, True, False, False, True]
    assert a.isclose(b, equal_nan=True).tolist() == [True, False, True, False, True, True]
    assert Tensor([1.0]).allclose(1.0) and not a.allclose(b)
    assert [part.tolist() for part in divmod(hcq.tensor([7, -7]), 2)] == [[3, -4], [1, 1]]
