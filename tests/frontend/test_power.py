"""Powers and what else has a slope of its own, at the numbers where conventions differ: C's pow, PyTorch's slopes."""

from __future__ import annotations

import math

import numpy as np
import pytest

import hcq
from hcq import Tensor, dtypes, nn
from tests.frontend.number_cases import INF, NAN, c_pow

NUMBERS = [
    0.0,
    -0.0,
    0.5,
    -0.5,
    1.0,
    -1.0,
    2.0,
    -2.0,
    2.5,
    -2.5,
    3.0,
    -3.0,
    33.0,
    -33.0,
    40.0,
    INF,
    -INF,
    NAN,
]
SIZES = [*NUMBERS, 1e-42, -1e-42, 1.1754944e-38, 3.4028235e38, -3.4028235e38]


def same(got: Tensor, want: list[float], digits: float = 2e-5) -> None:
    with np.errstate(over="ignore"):
        expected = np.float64(want).astype(got.dtype.name).astype(np.float64)
    values = got.double().numpy()
    np.testing.assert_allclose(values, expected, rtol=digits, atol=1e-44)
    is_number = ~np.isnan(expected)
    np.testing.assert_array_equal(np.signbit(values[is_number]), np.signbit(expected[is_number]))


def slopes(function, *numbers: float) -> list[float]:
    """The gradient of each argument at one point."""
    arguments = [Tensor([number], requires_grad=True) for number in numbers]
    function(*arguments).sum().backward()
    return [argument.grad.item() for argument in arguments]


@pytest.mark.sampled(16)
@pytest.mark.parametrize("dtype", [dtypes.float32, dtypes.float64], ids=lambda d: d.name)
@pytest.mark.parametrize("exponent", [*NUMBERS, 1 / 3, -1.5, 7, -7, 32, -32], ids=str)
def test_a_number_is_raised_to_a_number_as_c_does_it(exponent, dtype):
    want = [c_pow(x, exponent) for x in np.float32(SIZES).astype(np.float64)]
    base = Tensor(SIZES, dtype=dtypes.float32).cast(dtype)
    same(base**exponent, want)
    with_tensor = base ** Tensor([exponent], dtype=dtype)
    if exponent == 1.0:  # the general method: an error of 128 units in the logarithm is an overflow here
        base, want = base[:-2], want[:-2]
        with_tensor = with_tensor[:-2]
    same(with_tensor, want)


@pytest.mark.parametrize("base", [*NUMBERS, 10.0, 0.1], ids=str)
def test_a_python_number_is_raised_as_c_does_it(base):
    exponents = np.float32(SIZES[:-5])
    same(base ** Tensor(exponents), [c_pow(float(np.float32(base)), y) for y in exponents.astype(np.float64)])


def test_powers_that_were_wrong_once():
    assert math.isnan((Tensor([0.0]) ** NAN).item())
    assert math.isnan((0.0 ** Tensor([NAN])).item())
    assert (Tensor([-0.0]) ** Tensor([-1.0])).item() == -INF
    assert (Tensor([-INF]) ** 2.5).item() == INF
    assert (Tensor([-INF]) ** Tensor([2.5])).item() == INF


def test_slopes_of_powers_at_zero_and_infinity():
    power = lambda x, y: x**y  # noqa: E731
    assert slopes(power, 0.0, 1.0)[0] == 1.0
    assert slopes(power, 0.0, 0.5)[0] == INF
    assert slopes(power, 0.0, 2.0) == [0.0, 0.0]
    assert math.isnan(slopes(power, -2.0, 2.0)[1])
    assert slopes(power, INF, 0.0) == [0.0, INF]
    assert slopes(lambda x: x**-2, 0.0) == [-INF]
    assert slopes(lambda x: x**-2, INF) == [0.0]
    assert slopes(lambda x: x**0.5, 0.0) == [INF]
    assert slopes(lambda y: 0.0**y, 2.0) == [0.0]


def test_a_power_can_be_differentiated_three_times():
    x = Tensor([2.0], requires_grad=True)
    first = nn_grad((x**3.5).sum(), x)
    second = nn_grad(first.sum(), x)
    third = nn_grad(second.sum(), x)
    want = [3.5 * 2**2.5, 3.5 * 2.5 * 2**1.5, 3.5 * 2.5 * 1.5 * 2**0.5]
    np.testing.assert_allclose([first.item(), second.item(), third.item()], want, rtol=1e-5)


def nn_grad(y: Tensor, x: Tensor) -> Tensor:
    from hcq.frontend.grad.gradient import grad

    (found,) = grad(y, x, create_graph=True)
    return found


def test_a_negative_whole_power_is_a_number_wherever_the_result_is_one():
    x = np.float32([1.6e19, 5.5e-20, 1e-13, 1e13])
    for exponent in (-2, -3):
        want = x.astype(np.float64) ** exponent
        same(Tensor(x) ** exponent, want.tolist(), digits=1e-6 if want.min() > 1e-37 else 1e-4)


def test_what_slopes_nowhere_has_a_gradient_of_zeros():
    x = Tensor([1.0, -2.0, 3.0], requires_grad=True)
    for y in (nn.functional.dropout(x, 1.0).sum(), x.norm(0), (x**0).sum(), (x // 2).sum(), x.sign().sum()):
        x.grad = None
        y.backward()
        assert x.grad.tolist() == [0.0, 0.0, 0.0]


def test_a_leaf_without_elements_has_a_gradient_without_elements():
    for use in (
        lambda e: e.sum(),
        lambda e: Tensor.cat([e, Tensor.ones(2, 3)]).sum(),
        lambda e: (e * 2).realize().sum(),
    ):
        empty = Tensor.zeros(0, 3, requires_grad=True)
        use(empty).backward()
        assert empty.grad is not None
        assert empty.grad.shape == (0, 3)


def test_division_with_rest_by_infinity():
    x = Tensor([1.0, -1.0, 0.0, -0.0, INF])
    same(x.fmod(INF), [1.0, -1.0, 0.0, -0.0, NAN])
    same(x % INF, [1.0, INF, 0.0, -0.0, NAN])
    same(x // INF, [0.0, -1.0, 0.0, -0.0, NAN])
    same(x // 0.0, [INF, -INF, NAN, NAN, INF])


@pytest.mark.parametrize("name", ["float16", "float32"])
def test_division_with_rest_is_exact_however_large_the_quotient(name):
    rng = np.random.default_rng(0)
    bits = np.dtype(name).itemsize * 8
    x, y = (
        rng.integers(0, 1 << bits, 4000, dtype=np.uint64).astype(f"uint{bits}").view(name) for _ in range(2)
    )
    with np.errstate(all="ignore"):
        rest = np.fmod(x.astype(np.float64), y.astype(np.float64))
        modulo = np.remainder(x.astype(np.float64), y.astype(np.float64)).astype(name)
    np.testing.assert_array_equal(Tensor(x).fmod(Tensor(y)).numpy(), rest.astype(name))
    np.testing.assert_array_equal((Tensor(x) % Tensor(y)).numpy(), modulo)


def test_a_rest_of_float64_is_less_than_its_divisor_however_large_the_quotient():
    x, y = (
        Tensor([1e300, 1e300, -1e17], dtype=dtypes.float64),
        Tensor([3.0, 1e-300, 3.0], dtype=dtypes.float64),
    )
    assert (x.fmod(y).abs() < y).all().item()


def test_the_least_norm_is_of_order_minus_infinity():
    x = Tensor([[3.0, -2.0], [-1.0, 5.0]])
    assert x.norm(-INF).item() == 1.0
    assert x.norm(-INF, dim=1).tolist() == [2.0, 1.0]


def test_bool_stays_bool_where_values_only_move_and_not_where_they_are_multiplied():
    mask = hcq.tensor([[True, False], [True, True]])
    for moved in (mask.tril(), mask.triu(), mask.diag(), mask[1].diag()):
        assert moved.dtype is dtypes.bool
    assert mask[1].diag().tolist() == [[True, False], [False, True]]
    assert mask.square().dtype is dtypes.int64


def test_take_along_dim_counts_negative_indices_from_the_end():
    x = Tensor([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]])
    assert x.take_along_dim(hcq.tensor([[-1], [-3]]), 1).tolist() == [[3.0], [4.0]]
