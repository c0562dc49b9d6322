"""Quantised layers beside NumPy on emulated GPUs: exact, and their multiplying is the matrix units'."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from hcq.frontend.tensor import Tensor
from hcq.ir.dtype import dtypes
from hcq.performance import counters
from hcq.performance.counters import Counters
from tests.compiler.emulated_gpus import machine_of

pytestmark = pytest.mark.own_devices

GPUS = {
    "NV": "nv:sm_80",
    "AMD": "amd:gfx1100",
    "AMD:1": "amd:gfx942",
    "AMD:2": "amd:gfx1201",
    "AMD:3": "amd:gfx90a",
}
S8, U8, S32 = dtypes.int8, dtypes.uint8, dtypes.int32

machine = machine_of(*GPUS.values())


def numbers(seed: int, dtype: str, *shape: int) -> Any:
    kind = np.iinfo(dtype)
    return np.random.default_rng(seed).integers(kind.min, kind.max + 1, shape, dtype)


def on(device: str, array: Any) -> Tensor:
    """In memory there, and widened when it is read."""
    return Tensor(array, device=device).realize().cast(S32)


def counted(made: Tensor) -> tuple[Any, Counters]:
    """A tensor's numbers, and what the kernel with most operations did for them."""
    found: list[Counters] = []
    end = counters.listen(lambda _, one: found.append(one))
    try:
        numbers = made.numpy()
    finally:
        end()
    return numbers, max(found, key=lambda one: sum(one.matrix_flops.values()))


@pytest.mark.parametrize("device", GPUS)
def test_a_quantised_layer_is_exact_and_one_product_of_the_unit(machine: None, device: str) -> None:
    """Weights lie as PyTorch keeps them, (outputs, inputs); the sum becomes bytes again in the same kernel."""
    x, w, bias = numbers(0, "int8", 75, 130), numbers(1, "int8", 50, 130), numbers(2, "int16", 50)
    layer = (on(device, x) @ on(device, w).T + on(device, bias)).relu()
    got, did = counted((layer // 256).clip(0, 127).cast(S8))
    sums = x.astype(np.int32) @ w.astype(np.int32).T + bias
    assert np.array_equal(np.clip(np.maximum(sums, 0) // 256, 0, 127), got)
    assert did.matrix_flops.get("i8", 0) >= 2 * 75 * 130 * 50
    assert did.bank_conflicts == 0


@pytest.mark.parametrize("device", GPUS)
def test_batches_of_products_and_a_convolution_are_exact(machine: None, device: str) -> None:
    x, y = numbers(3, "int8", 3, 20, 65), numbers(4, "int8", 3, 65, 33)
    got, did = counted(on(device, x) @ on(device, y))
    assert np.array_equal(x.astype(np.int32) @ y.astype(np.int32), got)
    assert did.matrix_flops.get("i8", 0) >= 2 * 3 * 20 * 65 * 33
    image, w = numbers(5, "int8", 2, 64, 9, 9), numbers(6, "int8", 16, 64, 3, 3)
    got, did = counted(on(device, image).conv2d(on(device, w), padding=1))
    padded = np.pad(image.astype(np.int32), ((0, 0), (0, 0), (1, 1), (1, 1)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), (2, 3))
    assert np.array_equal(np.einsum("nchwpq,ocpq->nohw", windows, w.astype(np.int32)), got)
    assert did.matrix_flops.get("i8", 0) > 0


@pytest.mark.parametrize("device", ["NV", "AMD", "AMD:2"])
def test_unsigned_inputs_meet_signed_weights_in_one_instruction(machine: None, device: str) -> None:
    x, w = numbers(7, "uint8", 40, 130), numbers(8, "int8", 130, 36)
    got, did = counted(on(device, x) @ on(device, w))
    assert np.array_equal(x.astype(np.int32) @ w.astype(np.int32), got)
    assert did.matrix_flops.get("i8", 0) >= 2 * 40 * 130 * 36
