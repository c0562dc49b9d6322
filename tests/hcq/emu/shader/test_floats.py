"""Float arithmetic of all shader cores, against fractions."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from hcq.emu.shader.floats import DOWN, NEAREST, UP, ZERO, fused_sum, narrow_bf16, widen_bf16


def rounded(exact: Fraction, kind: Any, rounding: int) -> Any:
    """What a format of 24 or 11 bits has for a number, found among its neighbours."""
    near = kind(float(exact))
    some = [near, np.nextafter(near, kind(-np.inf)), np.nextafter(near, kind(np.inf))]
    some = [one for one in some if np.isfinite(one)]
    if rounding == NEAREST:
        bits = np.uint32 if kind is np.float32 else np.uint16
        return min(some, key=lambda one: (abs(Fraction(float(one)) - exact), int(one.view(bits)) & 1))
    is_down = rounding == DOWN or (rounding == ZERO and exact > 0)
    if is_down:
        return max(one for one in some if Fraction(float(one)) <= exact)
    return min(one for one in some if Fraction(float(one)) >= exact)


@pytest.mark.parametrize("rounding", [NEAREST, UP, DOWN, ZERO])
@pytest.mark.parametrize("kind", [np.float32, np.float16])
def test_a_product_and_a_sum_are_rounded_once_also_half_way_and_below_the_normal_numbers(
    kind: Any, rounding: int
) -> None:
    rng = np.random.default_rng(7)
    a, b = (rng.standard_normal(600).astype(kind) for _ in range(2))
    scale = np.exp2(rng.integers(-30 if kind is np.float32 else -12, 2, 600)).astype(kind)
    c = (rng.standard_normal(600).astype(kind) * scale).astype(kind)
    c[:200] = np.spacing(a[:200] * b[:200]) / 2  # near ties
    small = kind(2.0**-70 if kind is np.float32 else 2.0**-9)
    a[400:], b[400:], c[400:] = a[400:] * small, b[400:] * small, 0  # results below the normal numbers
    product = a.astype(np.float64) * b.astype(np.float64)
    found = fused_sum(product, c.astype(np.float64), kind, rounding)
    for index in range(600):
        exact = Fraction(float(a[index])) * Fraction(float(b[index])) + Fraction(float(c[index]))
        assert found[index] == rounded(exact, kind, rounding), (a[index], b[index], c[index])


def test_one_doubtful_sum_among_shapes_that_are_spread_is_mended_alone() -> None:
    product = np.array([[1.0], [1.0 + 2.0**-24]])
    addend = np.array([0.0, 2.0**-60, -(2.0**-60)])
    found = fused_sum(product, addend, np.float32)
    assert found.tolist() == [[1.0, 1.0, 1.0], [1.0, 1.0 + 2.0**-23, 1.0]]


def test_bfloat16_is_rounded_to_nearest_even_and_a_nan_stays_one() -> None:
    every = np.arange(1 << 16, dtype=np.uint16)
    wide = widen_bf16(every)
    is_nan = np.isnan(wide)
    assert np.array_equal(narrow_bf16(wide)[~is_nan], every[~is_nan])
    assert np.array_equal(narrow_bf16(wide)[is_nan], every[is_nan] | 0x40)
    assert (narrow_bf16(wide, 0x7FFF)[is_nan] == 0x7FFF).all()
    ties = np.array([0x3F808000, 0x3F818000, 0x3F808001], np.uint32).view(np.float32)
    assert narrow_bf16(ties).tolist() == [0x3F80, 0x3F82, 0x3F81]
