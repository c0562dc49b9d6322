"""Functions of one or two numbers: near their float64 values, and at the numbers where they could break.

The operators' own samples are `make conformance`; here are the bounds that the modules promise.
"""

from __future__ import annotations

import math

import numpy as np
import pytest

import hcq
from hcq.errors import UsageError
from hcq.frontend.tensor import Tensor

ULP = float(np.finfo(np.float32).eps)
R = np.random.default_rng(5)
UNIT = np.concatenate([R.uniform(-1, 1, 400), [0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 1e-20, 0.9999999]]).astype(
    np.float32
)
LINE = np.concatenate([R.normal(0, 3, 300), 10.0 ** R.uniform(-30, 30, 100), [0.0, -0.0, 3e38]]).astype(
    np.float32
)

# name, float64 meaning, numbers, units in the last place
BOUNDS = [
    ("asin", np.arcsin, UNIT, 4),
    ("acos", np.arccos, UNIT, 4),
    ("atanh", np.arctanh, UNIT[np.abs(UNIT) < 1], 4),
    ("atan", np.arctan, LINE, 4),
    ("asinh", np.arcsinh, LINE, 4),
    ("acosh", np.arccosh, np.abs(LINE[np.abs(LINE) > 1]), 8),
    ("sinc", np.sinc, UNIT[np.abs(UNIT) < 1], 8),
]


@pytest.mark.parametrize(("name", "meaning", "numbers", "bound"), BOUNDS, ids=[row[0] for row in BOUNDS])
def test_it_is_within_its_bound_of_the_float64_value(name, meaning, numbers, bound):
    expected = meaning(numbers.astype(np.float64))
    found = getattr(Tensor(numbers), name)().numpy().astype(np.float64)
    assert np.all(np.abs(found - expected) <= bound * ULP * np.abs(expected) + 1e-45)
    assert np.array_equal(np.signbit(found), np.signbit(expected))


def test_a_point_has_the_angle_and_the_length_that_c_gives_it():
    corners = np.array([0.0, -0.0, 1.0, -2.5, math.inf, -math.inf, math.nan, 3e38, 1e-40], np.float32)
    y, x = (side.ravel() for side in np.meshgrid(corners, corners))
    angle, length = Tensor(y).atan2(Tensor(x)), Tensor(y).hypot(Tensor(x))
    angle.realize(length)
    wide = y.astype(np.float64), x.astype(np.float64)
    with np.errstate(all="ignore"):
        np.testing.assert_allclose(
            angle.numpy(), np.arctan2(*wide).astype(np.float32), rtol=4 * ULP, atol=1e-45
        )
        np.testing.assert_allclose(
            length.numpy(), np.hypot(*wide).astype(np.float32), rtol=4 * ULP, atol=1e-45
        )
    known = ~np.isnan(angle.numpy())
    assert np.array_equal(np.signbit(angle.numpy()[known]), np.signbit(np.arctan2(y, x)[known]))


def test_two_numbers_of_which_one_is_nan_have_a_greater_one():
    a, b = Tensor([1.0, math.nan, 2.0, math.nan]), Tensor([math.nan, 3.0, -1.0, math.nan])
    assert str(a.fmax(b).tolist()) == "[1.0, 3.0, 2.0, nan]"
    assert str(a.fmin(b).tolist()) == "[1.0, 3.0, -1.0, nan]"


def test_divisors_and_multiples_are_those_of_the_standard_library():
    a = [0, 1, -12, 18, 4181, 2**40, 701408733]
    b = [0, 5, 18, -18, 6765, 2**20 * 3, 433494437]
    x, y = hcq.tensor(a), hcq.tensor(b)
    divisor, multiple = x.gcd(y), x.lcm(y)
    assert divisor.realize(multiple).tolist() == [math.gcd(x, y) for x, y in zip(a, b)]
    assert multiple.tolist() == [math.lcm(x, y) for x, y in zip(a, b)]


def test_a_gradient_at_the_edge_of_a_function_is_its_limit():
    x = Tensor([0.0, 1.0], requires_grad=True)
    x.sinc().sum().backward()
    assert x.grad is not None
    np.testing.assert_allclose(x.grad.numpy(), [0.0, -1.0], atol=1e-6)
    p = Tensor([0.0, 0.25], requires_grad=True)
    p.xlogy(Tensor([0.0, 2.0])).sum().backward()
    assert p.grad is not None and p.grad.tolist() == [0.0, pytest.approx(math.log(2.0))]


def test_a_method_is_a_function_of_hcq_too():
    x = hcq.tensor([[1.0, 2.0], [3.0, 4.0]])
    assert hcq.einsum("ij->j", x).tolist() == [4.0, 6.0]
    assert hcq.cat([x, x], dim=1).shape == (2, 4)
    assert hcq.pow(2, hcq.tensor([1.0, 3.0])).tolist() == [2.0, 8.0]
    assert hcq.relu(input=hcq.tensor([-1.0])).tolist() == [0.0]
    assert hcq.zeros(2, dtype=hcq.int32).dtype is hcq.dtypes.int32
    with pytest.raises(UsageError, match=r"\[relu\] 3: takes a tensor first"):
        hcq.relu(3)
    with pytest.raises(AttributeError, match=r"no attribute or function of this name\. Named alike: relu,"):
        hcq.reluu  # noqa: B018
