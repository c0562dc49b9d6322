"""hcq.torch.special: laws that hold between the functions, NumPy's polynomials, and values printed in tables."""

from __future__ import annotations

import math

import numpy as np
import pytest

import hcq
from hcq.errors import UsageError
from hcq.frontend.tensor import Tensor
from hcq.ir.dtype import dtypes
from hcq.torch import special

X = np.concatenate([10.0 ** np.linspace(-3, 2.5, 60), [2.0, 8.0, 8.001]])


def of(name, values, *rest):
    return getattr(special, name)(Tensor(values), *rest).numpy()


@pytest.mark.thorough
def test_bessel_functions_have_their_wronskians():
    j0, j1, y0, y1 = (of(f"bessel_{name}", X) for name in ("j0", "j1", "y0", "y1"))
    np.testing.assert_allclose(j1 * y0 - j0 * y1, 2 / (math.pi * X), rtol=1e-12)
    near = X[X < 300]
    i0, i1 = of("i0e", near), of("i1e", near)
    k0, k1 = of("scaled_modified_bessel_k0", near), of("scaled_modified_bessel_k1", near)
    np.testing.assert_allclose(i0 * k1 + i1 * k0, 1 / near, rtol=1e-13)
    np.testing.assert_allclose(of("modified_bessel_k0", near), k0 * np.exp(-near), rtol=1e-13)


def test_they_have_the_values_of_tables():
    # Abramowitz and Stegun, tables 9.1, 9.8, 10.11
    np.testing.assert_allclose(of("bessel_j0", [1.0, 10.0]), [0.7651976866, -0.2459357645], rtol=1e-6)
    np.testing.assert_allclose(of("bessel_y1", [1.0, 10.0]), [-0.7812128213, 0.2490154242], rtol=1e-6)
    np.testing.assert_allclose(
        of("airy_ai", [0.0, 1.0, -1.0]), [0.35502805, 0.13529242, 0.53556088], rtol=1e-6
    )
    np.testing.assert_allclose(of("airy_ai", [5.0, -5.0]), [1.083444e-4, 0.35076101], rtol=1e-6)
    np.testing.assert_allclose(of("zeta", [2.0, 4.0], 1.0), [math.pi**2 / 6, math.pi**4 / 90], rtol=1e-7)


def test_where_they_are_not_defined_they_are_infinite_or_nan():
    ends = [0.0, -1.0, math.inf, math.nan]
    assert of("bessel_j0", ends).tolist()[:1] == [1.0] and of("bessel_j0", ends)[2] == 0.0
    for name, at_zero in (
        ("bessel_y0", -math.inf),
        ("bessel_y1", -math.inf),
        ("modified_bessel_k1", math.inf),
    ):
        found = of(name, ends)
        assert found[0] == at_zero and found[2] == 0.0 and np.isnan(found[[1, 3]]).all()
    found = special.zeta(Tensor([1.0, 0.5, 2.0, 2.5, 3.0]), Tensor([2.0, 2.0, -3.0, -2.5, -2.5])).numpy()
    assert found[0] == found[2] == math.inf and np.isnan(found[[1, 3]]).all() and np.isfinite(found[4])


@pytest.mark.thorough
def test_zeta_loses_its_first_term_from_one_argument_to_the_next():
    s, q = (part.ravel() for part in np.meshgrid([2.0, 3.0, 5.0], [-7.25, -0.5, 0.25, 3.0, 40.0]))
    now, then = (special.zeta(Tensor(s), Tensor(q + k)).numpy() for k in (0.0, 1.0))
    np.testing.assert_allclose(now, then + q**-s, rtol=1e-12)


def test_bessel_functions_have_the_slopes_of_calculus():
    for name in ("bessel_j1", "scaled_modified_bessel_k1"):
        x = Tensor(np.array([0.5, 3.0, 12.0]), requires_grad=True)
        getattr(special, name)(x).sum().backward()
        step = 1e-5
        up, down = (of(name, x.numpy() + d) for d in (step, -step))
        np.testing.assert_allclose(x.grad.numpy(), (up - down) / (2 * step), rtol=1e-6, atol=1e-9)
    x = Tensor([0.5], requires_grad=True)
    with pytest.raises(UsageError, match=r"\[airy_ai\] has no derivative"):
        special.airy_ai(x).sum().backward()
        x.grad.realize()


POLYNOMIALS = {
    "chebyshev_polynomial_t": lambda x, c: np.polynomial.chebyshev.chebval(x, c),
    "hermite_polynomial_h": lambda x, c: np.polynomial.hermite.hermval(x, c),
    "hermite_polynomial_he": lambda x, c: np.polynomial.hermite_e.hermeval(x, c),
    "laguerre_polynomial_l": lambda x, c: np.polynomial.laguerre.lagval(x, c),
    "legendre_polynomial_p": lambda x, c: np.polynomial.legendre.legval(x, c),
}


@pytest.mark.parametrize("name", POLYNOMIALS)
def test_polynomials_are_those_of_numpy(name):
    x, n = np.meshgrid(np.linspace(-1.5, 2.0, 15), np.arange(7.0))
    expected = np.stack([POLYNOMIALS[name](x[k], [0.0] * k + [1.0]) for k in range(7)])
    np.testing.assert_allclose(of(name, x, Tensor(n)), expected, rtol=1e-12, atol=1e-12)
    assert of(name, [0.3], -1).tolist() == [0.0]


@pytest.mark.thorough
def test_the_four_of_chebyshev_share_one_recurrence():
    x = np.linspace(-1.3, 1.3, 14)
    for kind in "uvw":
        name = f"chebyshev_polynomial_{kind}"
        first, second, third = of(name, np.stack([x, x, x]), hcq.tensor([[3], [4], [5]]))
        np.testing.assert_allclose(third, 2 * x * second - first, atol=1e-12)
    np.testing.assert_allclose(of(f"shifted_{name}", (x + 1) / 2, 5), third, atol=1e-11)
    assert of("chebyshev_polynomial_u", [1.0, -1.0], 3).tolist() == [4.0, -4.0]
    assert of("chebyshev_polynomial_w", [1.0, -1.0], 3).tolist() == [7.0, -1.0]


def test_incomplete_gamma_functions_are_known_for_one_and_a_half_and_step_by_a_term():
    x = np.concatenate([10.0 ** np.linspace(-6, 2, 40), [1.5]])
    one, half = (Tensor(np.full_like(x, a)) for a in (1.0, 0.5))
    np.testing.assert_allclose(one.igamma(Tensor(x)).numpy(), -np.expm1(-x), rtol=1e-12)
    np.testing.assert_allclose(half.igammac(Tensor(x)).numpy(), [math.erfc(v**0.5) for v in x], rtol=1e-11)
    for a in (0.3, 9.5, 120.0, 40000.0):
        y = a + math.sqrt(a) * np.linspace(-0.5, 4, 10)
        parts = [Tensor(np.full_like(y, a + k)).igamma(Tensor(y)).numpy() for k in (0, 1)]
        term = [math.exp(a * math.log(v) - v - math.lgamma(a + 1)) for v in y]
        np.testing.assert_allclose(parts[0] - parts[1], term, rtol=1e-7, atol=1e-13)


def test_incomplete_gamma_functions_end_at_nothing_and_at_all():
    a, x = (
        Tensor([0.0, 0.0, 2.0, 2.0, -1.0, math.inf, math.inf]),
        Tensor([0.0, 1.0, 0.0, math.inf, 1.0, 1.0, math.inf]),
    )
    nan = math.nan
    np.testing.assert_array_equal(a.igamma(x).numpy(), [nan, 1.0, 0.0, 1.0, nan, 0.0, nan])
    np.testing.assert_array_equal(a.igammac(x).numpy(), [nan, 0.0, 1.0, 0.0, nan, 1.0, nan])
    limit = Tensor([2.0], requires_grad=True)
    Tensor([3.0]).igamma(limit).sum().backward()
    assert limit.grad.item() == pytest.approx(2.0 * math.exp(-2.0), rel=1e-6)


def test_integers_become_float32():
    assert special.bessel_j0(hcq.tensor([1, 2])).dtype is dtypes.float32
    assert special.hermite_polynomial_h(hcq.tensor([1, 2]), 3).tolist() == [-4.0, 40.0]
    assert special.legendre_polynomial_p(2.0, hcq.tensor([2])).tolist() == [5.5]
