"""The coefficients in the compiler are those that the fit gives, and no polynomial of that length does much better."""

from __future__ import annotations

import pytest

from hcq.compiler.passes import transcendental, trigonometry
from hcq.ir.dtype import dtypes
from tests.compiler.passes.fit_polynomials import Fit, fits, rounded

F32, F64 = dtypes.float32, dtypes.float64
IN_USE = {
    "exp float32": transcendental._FORMATS[F32].exp,
    "exp float64": transcendental._FORMATS[F64].exp,
    "exp2 float32": transcendental._FORMATS[F32].exp2,
    "exp2 float64": transcendental._FORMATS[F64].exp2,
    "log float32": transcendental._LOG_FLOAT32,
    "log2 float32": transcendental._LOG2_FLOAT32,
    "log float64": transcendental._LOG_FLOAT64,
    "sin float32": trigonometry._SIN[F32],
    "sin float64": trigonometry._SIN[F64],
    "cos float32": trigonometry._COS[F32],
    "cos float64": trigonometry._COS[F64],
}


@pytest.mark.parametrize("fit", fits(), ids=lambda fit: fit.name)
def test_the_coefficients_in_use_are_the_fitted_ones(fit: Fit):
    coefficients, error = rounded(fit)
    assert coefficients == list(IN_USE[fit.name])
    assert error < 2.0 ** (-25 if fit.single else -54)


def test_every_fit_is_in_use():
    assert {fit.name for fit in fits()} == IN_USE.keys()
