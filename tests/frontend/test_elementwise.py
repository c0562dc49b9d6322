"""Elementwise operations against NumPy, over dtypes and the numbers where conventions differ."""

from __future__ import annotations

import math
import operator

import numpy as np
import pytest

import hcq
from hcq.errors import UsageError
from hcq.frontend.tensor import Tensor
from hcq.ir.dtype import dtypes

FLOATS = np.float32([0.0, -0.0, 0.5, -0.5, 1.5, 2.5, -2.5, 3.0, -7.25, 100.0, math.inf, -math.inf, math.nan])
INTS = np.int32([0, 1, -1, 2, -2, 7, -7, 100, 2**31 - 1, -(2**31)])
SHAPES = [((), (3,)), ((4, 3), (3,)), ((4, 1), (1, 3)), ((2, 1, 3), (4, 1)), ((1,), (2, 2)), ((0, 3), (3,))]
ARITHMETIC = [operator.add, operator.sub, operator.mul]
COMPARISONS = [operator.lt, operator.le, operator.gt, operator.ge, operator.eq, operator.ne]
BITS = [operator.and_, operator.or_, operator.xor]


def pairs(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    a, b = np.meshgrid(values, values)
    return a.ravel(), b.ravel()


def same(actual: Tensor, expected: np.ndarray, tolerance: float = 0.0) -> None:
    got = actual.numpy()
    assert (got.shape, got.dtype) == (expected.shape, expected.dtype)
    np.testing.assert_allclose(got, expected, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("function", ARITHMETIC, ids=lambda f: f.__name__)
@pytest.mark.parametrize("values", [FLOATS, INTS], ids=["float32", "int32"])
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_arithmetic_is_numpys(function, values):
    a, b = pairs(values)
    same(function(Tensor(a), Tensor(b)), function(a, b))


@pytest.mark.parametrize("function", COMPARISONS, ids=lambda f: f.__name__)
@pytest.mark.parametrize("values", [FLOATS, INTS], ids=["float32", "int32"])
def test_comparisons_are_numpys(function, values):
    a, b = pairs(values)
    same(function(Tensor(a), Tensor(b)), function(a, b))


@pytest.mark.parametrize("function", BITS, ids=lambda f: f.__name__)
def test_bitwise_operators_are_numpys(function):
    a, b = pairs(INTS)
    same(function(Tensor(a), Tensor(b)), function(a, b))
    same(function(Tensor(a > 0), Tensor(b > 0)), function(a > 0, b > 0))
    same(~Tensor(a), ~a)


@pytest.mark.parametrize("function", [*ARITHMETIC, *COMPARISONS], ids=lambda f: f.__name__)
def test_python_numbers_stand_on_either_side(function):
    x = np.float32([-1.0, 0.0, 2.5])
    same(function(Tensor(x), 2.5), function(x, np.float32(2.5)))
    same(function(2.5, Tensor(x)), function(np.float32(2.5), x))


@pytest.mark.parametrize("left, right", SHAPES, ids=str)
def test_shapes_broadcast_as_in_numpy(left, right):
    a = np.arange(math.prod(left), dtype=np.float32).reshape(left)
    b = np.arange(math.prod(right), dtype=np.float32).reshape(right) + 1
    same(Tensor(a) + Tensor(b), np.asarray(a + b))
    same(Tensor(a > 1).where(Tensor(a), Tensor(b)), np.asarray(np.where(a > 1, a, b)))


def test_where_broadcasts_all_three_and_takes_numbers():
    condition, x = hcq.tensor([[True], [False]]), Tensor([1.0, 2.0, 3.0])
    same(condition.where(x, -1), np.float32([[1, 2, 3], [-1, -1, -1]]))
    same(condition.where(0.5, x), np.float32([[0.5, 0.5, 0.5], [1, 2, 3]]))
    same(Tensor(True).where(x, 0), np.float32([1, 2, 3]))
    same(condition.where(1, 0), np.int64([[1], [0]]))


@pytest.mark.parametrize(
    "a, b, expected",
    [
        ("bool", "bool", "bool"),
        ("bool", "uint8", "uint8"),
        ("uint8", "int8", "int16"),
        ("int32", "int64", "int64"),
        ("int64", "float16", "float16"),
        ("float16", "float32", "float32"),
        ("float32", "float64", "float64"),
    ],
)
def test_two_tensors_meet_in_the_dtype_pytorch_promotes_to(a, b, expected):
    x, y = Tensor(np.ones(2, a)), Tensor(np.ones(2, b))
    assert (x * y).dtype.name == (y * x).dtype.name == expected
    assert (x * y).tolist() == [1, 1]


@pytest.mark.parametrize(
    "dtype, number, expected",
    [
        ("uint8", 1, "uint8"),
        ("bool", True, "bool"),
        ("bool", 1, "int64"),
        ("int32", 0.5, "float32"),
        ("float16", 0.5, "float16"),
        ("float64", 1, "float64"),
    ],
)
def test_a_python_number_widens_a_tensor_only_to_another_kind(dtype, number, expected):
    assert (Tensor(np.ones(2, dtype)) * number).dtype.name == expected


@pytest.mark.parametrize("a, b", [(a, b) for a in (7, -7, 0) for b in (2, -2, 3, -3)])
def test_integer_division_rounds_down_and_the_rest_follows_the_divisor(a, b):
    x = Tensor([a], dtype=dtypes.int32)
    assert (x // b).item() == a // b
    assert (x % b).item() == a % b
    assert (a // Tensor([b])).item() == a // b
    assert x.fmod(b).item() == math.fmod(a, b)


def test_integers_divide_by_zero_to_zero_and_the_least_one_wraps():
    x = Tensor([5, -5, -(2**31)], dtype=dtypes.int32)
    zero, minus_one = Tensor([0, 0, 0], dtype=dtypes.int32), Tensor([-1, -1, -1], dtype=dtypes.int32)
    assert (x // zero).tolist() == [0, 0, 0]
    assert (x % zero).tolist() == [0, 0, 0]
    assert (x // minus_one).tolist() == [-5, 5, -(2**31)]


def test_true_division_of_integers_is_float32():
    same(hcq.tensor([1, 2]) / 4, np.float32([0.25, 0.5]))
    same(1 / hcq.tensor([4, 0]), np.float32([0.25, math.inf]))
    same(hcq.tensor([1, 2]) / hcq.tensor([4, 8]), np.float32([0.25, 0.25]))


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("y", [1.5, -1.5, 0.1, 3.0, math.inf])
def test_float_division_with_rest_is_numpys(y):
    x = np.float32([0.0, 0.3, -0.3, 1.0, 7.5, -7.5, 100.25])
    same(Tensor(x) % y, np.mod(x, np.float32(y)), 1e-6)
    if math.isfinite(y):
        same(Tensor(x) // y, np.floor_divide(x, np.float32(y)))


def test_sums_and_products_of_integers_wrap():
    x = Tensor([2**31 - 1], dtype=dtypes.int32)
    assert (x + 1).item() == -(2**31)
    assert (Tensor([200], dtype=dtypes.uint8) + Tensor([100], dtype=dtypes.uint8)).item() == 44
    assert (Tensor([0], dtype=dtypes.uint8) - 1).item() == 255


def test_shifts_by_the_width_or_more_leave_zero_or_the_sign():
    x = Tensor([-8, 8], dtype=dtypes.int32)
    assert (x << 1).tolist() == [-16, 16]
    assert (x >> 1).tolist() == [-4, 4]
    assert (x << 32).tolist() == [0, 0]
    assert (x >> 40).tolist() == [-1, 0]
    assert (x >> Tensor([33, 33], dtype=dtypes.int32)).tolist() == [-1, 0]


@pytest.mark.parametrize("name", ["floor", "ceil", "trunc", "abs"])
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_rounding_is_numpys(name):
    same(getattr(Tensor(FLOATS), name)(), getattr(np, name)(FLOATS))


def test_halves_round_to_the_even_number():
    x = np.float32([0.5, 1.5, 2.5, -0.5, -1.5, 0.4999, 2.5001, 8388609.0, math.inf, math.nan])
    same(Tensor(x).round(), np.round(x))
    same(Tensor(np.float32([1.234, -5.675])).round(decimals=1), np.float32([1.2, -5.7]), 1e-6)


FUNCTIONS = [
    "exp",
    "exp2",
    "log",
    "log2",
    "log10",
    "sin",
    "cos",
    "tan",
    "sqrt",
    "square",
    "sign",
    "reciprocal",
]


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_functions_are_numpys(name):
    x = np.float32([0.0, 0.1, 0.5, 1.0, 2.0, 10.0, 50.0, -0.5, -3.0, math.inf, math.nan])
    x = x[:-1] if name == "sign" else x  # the sign of NaN is 0, as in PyTorch
    same(getattr(Tensor(x), name)(), getattr(np, name)(x), 2e-6)


def test_functions_of_integers_are_float32():
    same(hcq.tensor([1, 4]).sqrt(), np.float32([1, 2]))


def test_numbers_that_are_not_finite_are_distinguished():
    same(Tensor(FLOATS).isnan(), np.isnan(FLOATS))
    same(Tensor(FLOATS).isinf(), np.isinf(FLOATS))
    same(Tensor(FLOATS).isfinite(), np.isfinite(FLOATS))
    assert hcq.tensor([1, 2]).isnan().tolist() == [False, False]


def test_extremes_of_two_keep_nan():
    a, b = pairs(FLOATS)
    same(Tensor(a).maximum(Tensor(b)), np.maximum(a, b))
    same(Tensor(a).minimum(Tensor(b)), np.minimum(a, b))


def test_clamp_holds_between_numbers_or_tensors():
    x = Tensor([-3.0, 0.5, 3.0])
    assert x.clamp(-1, 1).tolist() == [-1.0, 0.5, 1.0]
    assert x.clamp(min=Tensor([0.0, 1.0, 2.0])).tolist() == [0.0, 1.0, 3.0]
    assert x.clamp(max=0).tolist() == [-3.0, 0.0, 0.0]


@pytest.mark.parametrize("exponent", [0, 1, 2, 3, 7, -1, -2, 0.5, -0.5, 1.7, 2.5, -1.3, 33, math.inf])
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_powers_are_numpys(exponent):
    x = np.float32([0.0, 0.3, 1.0, 1.5, 4.0, -0.7, -1.0, math.nan])
    expected = np.power(x, np.float32(exponent))
    same(Tensor(x) ** exponent, expected, 1e-5)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_a_tensor_of_exponents_follows_c():
    x, y = pairs(np.float32([0.0, 0.5, 1.0, 2.0, 3.0, -1.0, -2.0, -3.0, 2.5]))
    same(Tensor(x) ** Tensor(y), np.power(x, y), 1e-5)
    same(2 ** Tensor(y), np.power(np.float32(2), y), 1e-5)


def test_integer_powers_wrap_and_negative_ones_round_to_zero():
    x = Tensor([3, 2, -1, 1, 2], dtype=dtypes.int64)
    y = Tensor([41, 64, -3, -2, -1], dtype=dtypes.int64)
    assert (x**y).tolist() == [(3**41 + 2**63) % 2**64 - 2**63, 0, -1, 1, 0]
    assert (hcq.tensor([2, -3]) ** 3).tolist() == [8, -27]


def test_comparison_with_a_number_beyond_the_format_compares_the_numbers():
    x = Tensor([0, 255], dtype=dtypes.uint8)
    assert (x < 256).tolist() == [True, True]
    assert (x > -1).tolist() == [True, True]
    assert (x == 256).tolist() == [False, False]
    assert (x >= 300).tolist() == [False, False]


@pytest.mark.parametrize("source", ["bool", "uint8", "int32", "int64", "float16", "float32", "float64"])
@pytest.mark.parametrize("target", ["bool", "uint8", "int32", "int64", "float16", "float32", "float64"])
def test_casts_of_numbers_both_formats_have_are_numpys(source, target):
    x = np.array([0, 1, 2, 100]).astype(source)
    same(Tensor(x).cast(dtypes.named(target)), x.astype(target))


def test_casts_of_floats_to_integers_saturate_and_nan_is_zero():
    x = Tensor([1e30, -1e30, math.nan, math.inf, -1.9])
    assert x.int().tolist() == [2**31 - 1, -(2**31), 0, 2**31 - 1, -1]
    assert x.cast(dtypes.uint8).tolist() == [255, 0, 0, 255, 0]


def test_bits_are_read_as_another_format():
    assert Tensor([1.0]).bitcast(dtypes.int32).item() == 0x3F800000
    assert Tensor([0x40000000], dtype=dtypes.int32).bitcast(dtypes.float32).item() == 2.0


def test_masks_fill_and_logic_reads_zero_as_false():
    x = Tensor([1.0, 0.0, 3.0])
    assert x.masked_fill(x > 2, -1).tolist() == [1.0, 0.0, -1.0]
    assert x.logical_not().tolist() == [False, True, False]
    assert x.logical_and([1, 1, 0]).tolist() == [True, False, False]
    assert x.logical_or([0, 0, 0]).tolist() == [True, False, True]
    assert x.logical_xor([1, 1, 0]).tolist() == [False, True, True]


def test_bool_tensors_are_not_subtracted():
    with pytest.raises(UsageError, match="bool tensors are not subtracted"):
        hcq.tensor([True]) - hcq.tensor([False])


@pytest.mark.parametrize("dtype", [dtypes.fp8e4m3, dtypes.fp8e5m2], ids=str)
def test_8_bit_floats_are_kept_moved_and_cast(dtype):
    x = Tensor([1.0, 2.0, 0.5], dtype=dtype)
    assert (x.float() + 1).tolist() == [2.0, 3.0, 1.5]
    assert x.flip(0)[[0, 2]].tolist() == [0.5, 1.0]
    assert Tensor.cat([x, x[1:]]).tolist() == [1.0, 2.0, 0.5, 2.0, 0.5]


def test_numpy_numbers_count_as_python_numbers_and_arrays_as_tensors():
    x = Tensor([1.0, 2.0], dtype=dtypes.float16)
    for two in (np.float32(2), np.float64(2), np.int64(2)):
        assert (x * two).dtype is (two * x).dtype is dtypes.float16
        assert (two * x).tolist() == [2.0, 4.0]
    assert isinstance(np.ones(2, np.float32) + x, Tensor)
    assert (np.ones(2, np.float32) - x).tolist() == [0.0, -1.0]
    assert (hcq.tensor([1, 2]) + np.array([1, 1])).tolist() == [2, 3]


def test_a_tensor_is_not_equal_to_what_is_no_number():
    x = hcq.tensor([1])
    assert (x == None) is False  # noqa: E711
    assert (x != "text") is True
    assert x in [None, x]


@pytest.mark.parametrize(
    "dtype, number, same",
    [
        (dtypes.int32, 0xFFFFFFFF, -1),
        (dtypes.int32, 0x80000000, -(1 << 31)),
        (dtypes.int8, 0xF0, -16),
        (dtypes.int64, (1 << 64) - 2, -2),
        (dtypes.uint8, -2, 254),
        (dtypes.uint32, -(1 << 31), 1 << 31),
        (dtypes.uint64, -1, (1 << 64) - 1),
    ],
    ids=str,
)
def test_a_number_beside_a_bitwise_operator_is_its_bits(dtype, number, same):
    values = np.array([0, 1, 5, 100], dtype=dtype.name)
    x, other = Tensor(values), np.array(same, dtype=dtype.name)
    assert (x & number).tolist() == (values & other).tolist() == (number & x).tolist()
    assert (x | number).tolist() == (values | other).tolist()
    assert (x ^ number).tolist() == (values ^ other).tolist()
    with pytest.raises(UsageError, match="does not fit"):
        x & (1 << 8 * dtype.itemsize)
    if not dtype.is_unsigned:  # elements of these are numbers: to the others -2 is 254 wherever it stands
        for beyond in (lambda: x + number, lambda: x & (dtype.min - 1)):
            with pytest.raises(UsageError, match="does not fit"):
                beyond()
