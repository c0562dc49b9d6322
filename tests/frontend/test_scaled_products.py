"""scaled_mm beside NumPy: on the CPU, and on emulated GPUs with matrix units that take scales, and without."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import hcq
from hcq import Tensor, nn
from hcq.errors import UsageError
from hcq.ir.dtype import dtypes
from hcq.performance import counters
from tests.compiler.emulated_gpus import machine_of

pytestmark = pytest.mark.own_devices

GPUS = {"AMD": "amd:gfx950:cu=4", "NV": "nv:sm_90"}
DEVICES = ["CPU", *GPUS]
E2M1 = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6])
F = nn.functional
RECIPES = F.ScalingType
BLOCKS, ROWS, WHOLE = RECIPES.BlockWise1x32, RECIPES.RowWise, RECIPES.TensorWise

machine = machine_of(*GPUS.values())


def side(
    rng: Any, device: str, rows: int, k: int, kind: str, recipe: Any, is_a: bool
) -> tuple[Tensor, Tensor, Any]:
    """A matrix, its scales, and what both mean. Sums of these numbers are exact."""
    if kind == "fp4":
        codes = rng.integers(0, 256, (rows, k // 2)).astype(np.uint8)
        both = np.stack([codes & 15, codes >> 4], -1).reshape(rows, k)
        x = np.where(both & 8, -1, 1) * E2M1[both & 7]
        matrix = Tensor(codes, device=device).realize()
    else:
        x = rng.integers(-8, 9, (rows, k)).astype(np.float32)
        matrix = Tensor(x, device=device).cast(getattr(dtypes, kind)).realize()
        x = matrix.cast(dtypes.float32).numpy()
    if recipe is BLOCKS:
        scale = rng.integers(124, 131, (rows, k // 32)).astype(np.uint8)
        wide = np.repeat(2.0 ** (scale.astype(np.int32) - 127), 32, 1)
    else:
        scale = (2.0 ** rng.integers(-3, 4, (rows, 1))).astype(np.float32)[: 1 if recipe is WHOLE else rows]
        wide = scale.astype(np.float64)
        scale = scale if is_a else scale.T
    return matrix, Tensor(scale, device=device).realize(), x * wide


@pytest.mark.parametrize(
    "shape,kinds,recipes",
    [
        ((70, 90, 288), ("fp8e4m3", "fp8e4m3"), (BLOCKS, BLOCKS)),
        ((64, 128, 512), ("fp8e5m2", "fp8e4m3"), (BLOCKS, ROWS)),
        ((40, 33, 160), ("fp8e4m3", "fp4"), (WHOLE, BLOCKS)),
        ((16, 96, 256), ("fp4", "fp4"), (BLOCKS, BLOCKS)),
        ((5, 70, 32), ("fp8e4m3", "fp8e5m2"), (BLOCKS, BLOCKS)),
        ((1, 50, 96), ("fp8e4m3", "fp4"), (ROWS, BLOCKS)),
        ((64, 48, 96), ("fp8e4m3", "fp8e4m3"), (ROWS, WHOLE)),
    ],
    ids=lambda value: "-".join(getattr(one, "name", str(one)) for one in value),
)
@pytest.mark.parametrize("device", DEVICES)
def test_a_scaled_product_is_numpys(machine: None, device: str, shape: Any, kinds: Any, recipes: Any) -> None:
    m, n, k = shape
    rng = np.random.default_rng(m)
    a, scale_a, x = side(rng, device, m, k, kinds[0], recipes[0], True)
    b, scale_b, y = side(rng, device, n, k, kinds[1], recipes[1], False)
    with counters.count() as launches:
        got = F.scaled_mm(a, b.T, scale_a, recipes[0], scale_b, recipes[1], output_dtype=hcq.float32).numpy()
    assert np.array_equal(x @ y.T, got)
    if device == "AMD" and min(m, n) > 1 and k >= 64:
        assert len([one for one in launches if one.matrix_flops]) == 1
        assert sum(one.matrix_flops.get("f8", 0) for one in launches) >= 2 * m * n * k


@pytest.mark.parametrize("device", DEVICES)
def test_scales_of_all_exponents_are_powers_of_two_and_the_last_is_no_number(
    machine: None, device: str
) -> None:
    """Each row of A has one exponent, and B is as large as makes the result no smaller and no larger than float32's."""
    exponents = np.repeat(np.arange(256, dtype=np.uint8)[:, None], 4, 1)
    scale_a = Tensor(exponents, device=device)
    scale_b = Tensor(np.full((32, 4), 127, np.uint8), device=device)
    a, b = (Tensor(np.eye(rows, 128, dtype=np.float32) + 1, device=device) for rows in (256, 32))
    a, b = (one.cast(dtypes.fp8e4m3).realize() for one in (a, b))
    got = F.scaled_mm(a, b.T, scale_a, BLOCKS, scale_b, BLOCKS, output_dtype=hcq.float32).numpy()
    with np.errstate(over="ignore"):
        powers = np.where(exponents == 255, np.nan, 2.0 ** (exponents[:, :1].astype(np.float64) - 127))[:, :1]
        wanted = ((np.eye(256, 128) + 1) @ (np.eye(32, 128) + 1).T * powers).astype(np.float32)
    assert np.array_equal(wanted, got, equal_nan=True)


def test_weights_beside_numbers_that_are_quantised_on_the_way_are_one_product(machine: None) -> None:
    """Exponents and numbers that are computed are values in memory; what they are multiplied out to is not."""
    rng = np.random.default_rng(3)
    b, scale_b, y = side(rng, "AMD", 64, 256, "fp4", BLOCKS, False)
    x = Tensor(
        (rng.integers(-4, 5, (48, 256)) * 2.0 ** rng.integers(-9, 9, (48, 1))).astype(np.float32),
        device="AMD",
    )
    largest = x.reshape(48, 8, 32).abs().amax(-1).maximum(2.0**-20)
    exponents = ((largest.bitcast(dtypes.int32) >> 23) - 6).cast(dtypes.uint8)  # to 64 and more, below 448
    scale = ((254 - exponents.cast(dtypes.int32)) << 23).bitcast(dtypes.float32)
    narrow = (x.reshape(48, 8, 32) * scale.unsqueeze(-1)).reshape(48, 256).cast(dtypes.fp8e4m3)
    with counters.count() as launches:
        got = F.scaled_mm(narrow, b.T, exponents, BLOCKS, scale_b, BLOCKS, output_dtype=hcq.float32).numpy()
    assert np.array_equal((x.numpy().astype(np.float64) @ y.T).astype(np.float32), got)
    assert sum(one.matrix_flops.get("f8", 0) for one in launches) >= 2 * 48 * 64 * 256


def test_what_does_not_fit_is_refused_with_what_would() -> None:
    a = Tensor.ones(4, 64).cast(dtypes.fp8e4m3)
    scale, blocks = Tensor([[127, 127]] * 4, dtype=dtypes.uint8), Tensor.ones(4, 1)
    for arguments, said in [
        ((a, a.T, scale, BLOCKS, blocks, BLOCKS), r"scale_b of float32 \(4, 1\) .* give uint8, \(4, 2\)"),
        (
            (a, a.T, scale, RECIPES.BlockWise1x16, scale, BLOCKS),
            "give one of TensorWise, RowWise, BlockWise1x32",
        ),
        ((a, a, scale, BLOCKS, scale, BLOCKS), "inner sizes 64 and 4 differ"),
        ((a, a.T, [scale, scale], [BLOCKS], scale, BLOCKS), "2 of scale: give one"),
        (
            (a.cast(dtypes.float32), a.T, scale, BLOCKS, scale, BLOCKS),
            "mat_a of float32: give floats of 8 bits",
        ),
        ((a, a.T, scale, BLOCKS, scale, BLOCKS, F.SwizzleType.SWIZZLE_32_4_4), "NO_SWIZZLE"),
    ]:
        with pytest.raises(UsageError, match=said):
            F.scaled_mm(*arguments)


def test_a_bias_is_added_in_float32_and_the_result_is_bfloat16_unless_asked() -> None:
    a, one = Tensor.ones(2, 32).cast(dtypes.fp8e4m3), Tensor.ones(())
    got = F.scaled_mm(a, a.T, one, WHOLE, one * 2, WHOLE, bias=Tensor([1.0, 2.0]))
    assert got.dtype is dtypes.bfloat16 and got.cast(dtypes.float32).tolist() == [[65.0, 66.0]] * 2
