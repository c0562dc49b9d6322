"""Convolutions of narrow numbers on GPUs: matrix units multiply, and no sector is read for nothing."""

from __future__ import annotations

import numpy as np
import pytest

import hcq
from hcq import Tensor
from hcq.compiler.codegen import codegen
from hcq.compiler.loops.loop_nest import LoopNest
from hcq.compiler.pipeline import lower
from hcq.compiler.target import Target, amd_target, nv_target
from hcq.frontend.core.structure import structure_of
from hcq.frontend.grad.gradient import grad
from hcq.frontend.rewrites.channels import in_channels
from hcq.frontend.schedule.schedule import schedule
from hcq.ir.dtype import dtypes
from hcq.ir.node import Node, toposort
from hcq.ir.op import Op
from hcq.performance import counters
from hcq.performance.counters import Counters
from tests.compiler.building import check
from tests.compiler.emulated_gpus import machine_of, name_of

pytestmark = pytest.mark.own_devices

GPUS = {"AMD": "amd:gfx942", "AMD:1": "amd:gfx1100", "NV": "nv:sm_80", "NV:1": "nv:sm_90"}
TARGETS = {
    "AMD": amd_target("gfx942"),
    "AMD:1": amd_target("gfx1100"),
    "NV": nv_target("sm_80"),
    "NV:1": nv_target("sm_90"),
}

machine = machine_of(*GPUS.values())
gpu = name_of(GPUS, thorough=("amd:gfx1100", "nv:sm_90"))


def numbers(*shape: int) -> np.ndarray:
    """Small whole numbers: sums of their products are exact in any order."""
    return np.random.default_rng(shape).integers(-2, 3, shape).astype(np.float16)


def results(device: str, x: np.ndarray, w: np.ndarray, stride: int, padding: int) -> list[Tensor]:
    """Forward and both gradients, not yet computed."""
    a, b = Tensor(x, device=device).realize(), Tensor(w, device=device).realize()
    y = a.conv2d(b, stride=stride, padding=padding)
    return [y, *grad([y], [a, b], [Tensor(numbers(*y.shape), device=device).realize()])]


def counted(
    gpu: str, x: np.ndarray, w: np.ndarray, stride: int = 1, padding: int = 1
) -> list[list[Counters]]:
    """What the kernels of forward, of the input's and of the weight's gradient did; all are the CPU's."""
    made = []
    expected = results("CPU", x, w, stride, padding)
    for mine, its in zip(results(gpu, x, w, stride, padding), expected, strict=True):
        seen: list[Counters] = []
        end = counters.listen(lambda _, one, seen=seen: seen.append(one))
        try:
            got = mine.numpy()
        finally:
            end()
        np.testing.assert_array_equal(got, its.numpy())
        made.append(seen)
    return made


def products(target: Target, batch: int, size: int) -> list[Node]:
    """The kernels that multiply, of a convolution of 64 channels and of its input's gradient."""
    x, w, g = zeros(batch, 64, size, size), zeros(64, 64, 3, 3), zeros(batch, 64, size, size)
    y = x.conv2d(w, padding=1)
    found = []
    for root in (y.node, grad([y], [x], [g])[0].node):
        made = schedule([root], structure_of([root]).storages, target.threads, [dtypes.float16])
        found += [kernel.sink for kernel in made.kernels][-1:]
    return found


def test_a_large_convolution_and_its_inputs_gradient_waste_nothing(gpu: str) -> None:
    """As the heuristic tiles 32 images of 56 x 56 places, here of 2 images of 16 x 16."""
    target = TARGETS[gpu]
    for large, small in zip(products(target, 32, 56), products(target, 2, 16), strict=True):
        nest = LoopNest(lower(large, target))
        seen: list[Counters] = []
        end = counters.listen(lambda _, one, seen=seen: seen.append(one))
        try:
            check(hcq.open(gpu), small, codegen(target).choose(nest, target).choice, target=target)
        finally:
            end()
        (product,) = seen
        assert product.matrix_flops == {"f16": 2 * 512 * 64 * 64 * 9}
        assert product.flops == {}
        assert product.bank_conflicts == product.local_sectors == 0
        assert product.sector_ratio <= 1.05


def test_matrix_units_do_a_small_convolution_and_its_gradients(gpu: str) -> None:
    for seen in counted(gpu, numbers(1, 64, 8, 16), numbers(64, 64, 3, 3)):
        (product,) = [one for one in seen if one.matrix_flops]
        assert product.matrix_flops == {"f16": 2 * 128 * 64 * 64 * 9}
        assert product.flops == {} and product.local_sectors == 0
        copied = [one for one in seen if one is not product]
        assert sum(one.sectors for one in copied) < product.sectors


@pytest.mark.parametrize(
    "shape, window, stride, padding",
    [
        ((2, 16, 9, 11), (24, 16, 3, 3), 2, 1),
        ((1, 40, 7, 7), (16, 40, 3, 3), 1, 1),
        ((1, 16, 8, 8), (16, 16, 2, 3), 1, 0),
    ],
    ids=["strided", "7x7", "2x3"],
)
def test_windows_of_every_kind_give_the_cpus_numbers(
    gpu: str, shape: tuple[int, ...], window: tuple[int, ...], stride: int, padding: int
) -> None:
    for seen in counted(gpu, numbers(*shape), numbers(*window), stride, padding):
        assert any(one.matrix_flops for one in seen)


def test_bytes_are_convolved_by_matrix_units_and_waste_no_sector(gpu: str) -> None:
    """128 channels, a line of AMD's memory; window 3 x 3, summed in int32."""
    rng = np.random.default_rng(0)
    x, w = rng.integers(-128, 128, (1, 128, 8, 16), "int8"), rng.integers(-128, 128, (64, 128, 3, 3), "int8")
    made, seen = [], list[Counters]()
    for device in ("CPU", gpu):
        a, b = (Tensor(array, device=device).realize().cast(dtypes.int32) for array in (x, w))
        end = counters.listen(lambda _, one: seen.append(one))
        try:
            made.append(a.conv2d(b, padding=1).numpy())
        finally:
            end()
    np.testing.assert_array_equal(made[0], made[1])
    (product,) = [one for one in seen if one.matrix_flops]
    assert product.matrix_flops == {"i8": 2 * 128 * 64 * 128 * 9} and product.flops == {}
    assert product.bank_conflicts == product.local_sectors == 0
    assert product.sector_ratio <= 1.1


def test_what_a_cast_on_the_way_loses_is_lost(gpu: str) -> None:
    """An image of halves that goes by way of whole numbers is no image of halves."""
    x, w = numbers(1, 16, 8, 8) / np.float16(2), numbers(16, 16, 3, 3)
    made = []
    for device in ("CPU", gpu):
        a, b = (Tensor(array, device=device).realize() for array in (x, w))
        made.append(
            a.cast(dtypes.int32).cast(dtypes.float32).conv2d(b.cast(dtypes.float32), padding=1).numpy()
        )
    np.testing.assert_array_equal(made[0], made[1])


def copies(x: Tensor, w: Tensor, groups: int = 1) -> int:
    root = x.conv2d(w, padding=1, groups=groups).node
    made = in_channels([root], [dtypes.float16])
    return sum(node.op is Op.CONTIGUOUS for node in toposort(made))


def zeros(*shape: int, dtype: object = dtypes.float16) -> Tensor:
    return Tensor.zeros(*shape, dtype=dtype).contiguous().realize()


def test_image_and_weight_are_copied_once_each() -> None:
    assert copies(zeros(2, 64, 8, 8), zeros(32, 64, 3, 3)) == 2


@pytest.mark.parametrize(
    "x, w, groups",
    [
        (zeros(2, 3, 8, 8), zeros(32, 3, 3, 3), 1),
        (zeros(2, 64, 8, 8), zeros(8, 64, 3, 3), 1),
        (zeros(2, 64, 8, 8), zeros(64, 1, 3, 3), 64),
        (zeros(2, 64, 8, 8, dtype=dtypes.float32), zeros(64, 64, 3, 3, dtype=dtypes.float32), 1),
        (zeros(2, 64, 8, 8), zeros(64, 64, 1, 1), 1),
    ],
    ids=["few channels", "few results", "a channel each", "float32", "no window"],
)
def test_nothing_is_copied_where_a_matrix_unit_gains_nothing(x: Tensor, w: Tensor, groups: int) -> None:
    assert copies(x, w, groups) == 0
