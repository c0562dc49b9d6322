"""Rows on GPUs: softmax, norms, extremes and sums read memory once and write it once, by what emulated ones count."""

from __future__ import annotations

from collections.abc import Callable
from math import prod

import numpy as np
import pytest

from hcq import Tensor
from hcq.performance import counters
from hcq.performance.counters import Counters
from tests.compiler.emulated_gpus import machine_of, name_of

pytestmark = pytest.mark.own_devices

GPUS = {"AMD": "amd:gfx1100", "AMD:1": "amd:gfx942", "NV": "nv:sm_80", "NV:1": "nv:sm_90"}
Op = Callable[[Tensor], Tensor]

machine = machine_of(*GPUS.values())
gpu = name_of(GPUS, thorough=("amd:gfx1100", "nv:sm_90"))


def root_mean_square(x: Tensor) -> Tensor:
    return x * ((x * x).mean(-1, keepdim=True) + 1e-5).rsqrt()


ROWS: dict[str, Op] = {
    "softmax": lambda x: x.softmax(-1),
    "log_softmax": lambda x: x.log_softmax(-1),
    "layer_norm": lambda x: x.layer_norm(x.shape[-1:]),
    "rms_norm": root_mean_square,
    "argmax": lambda x: x.argmax(-1),
    "logsumexp": lambda x: x.logsumexp(-1),
    "var": lambda x: x.var(-1),
    "sum": lambda x: x.sum(-1),
    "max": lambda x: x.amax(-1),
    "mean": lambda x: x.mean(-1),
}
COLUMNS: dict[str, Op] = {"sum": lambda x: x.sum(0), "max": lambda x: x.amax(0), "mean": lambda x: x.mean(0)}
ALL: dict[str, Op] = {"sum": lambda x: x.sum(), "max": lambda x: x.max(), "mean": lambda x: x.mean()}


def run(gpu: str, op: Op, *shape: int) -> tuple[list[Counters], int]:
    """What the launches did, and the bytes of the operand and of the result. The CPU gives the same numbers."""
    data = np.random.default_rng(prod(shape)).standard_normal(shape).astype(np.float32)
    x = Tensor(data, device=gpu).realize()
    x.numpy()
    seen: list[Counters] = []
    end = counters.listen(lambda _, made: seen.append(made))
    try:
        made = op(x).numpy()
    finally:
        end()
    np.testing.assert_allclose(made, op(Tensor(data, device="CPU")).numpy(), rtol=2e-4, atol=2e-4)
    return seen, data.nbytes + made.nbytes


def in_memory(seen: list[Counters]) -> int:
    return sum(one.dram_read_bytes + one.dram_write_bytes for one in seen)


def left_over(kernel: Counters, stored: int) -> int:
    """Bytes of lines of the result that a block fills in part: those of all where each has less than a line."""
    return kernel.sector_bytes * (kernel.blocks if stored < kernel.blocks * kernel.sector_bytes else 1)


def asked(seen: list[Counters]) -> int:
    """Whole sectors, each time that a warp asks for one."""
    return sum(one.load_sectors * one.sector_bytes for one in seen)


@pytest.mark.sampled(16)
@pytest.mark.parametrize("shape", [(128, 64), (24, 1000), (4, 8192)], ids=str)
@pytest.mark.parametrize("name", ROWS)
def test_a_row_is_read_once_and_written_once(gpu: str, name: str, shape: tuple[int, int]) -> None:
    seen, ideal = run(gpu, ROWS[name], *shape)
    assert len(seen) == 1
    assert sum(one.bytes_needed for one in seen) <= 1.05 * ideal
    assert in_memory(seen) <= 1.05 * ideal + left_over(seen[0], ideal - 4 * prod(shape))
    line = seen[0].sector_bytes
    if 4 * shape[1] % line == 0:
        assert asked(seen) <= 1.01 * 4 * prod(
            shape
        )  # threads beyond the end of a row read its tensor's first line


@pytest.mark.sampled(8)
@pytest.mark.parametrize("shape", [(1024, 64), (96, 512), (48, 16384), (4096, 4)], ids=str)
@pytest.mark.parametrize("name", COLUMNS)
def test_columns_are_read_once_and_in_whole_lines_where_they_fill_the_cores(
    gpu: str, name: str, shape: tuple[int, int]
) -> None:
    """Of few columns, each core takes fewer than a line has: they come from memory once, and to several cores."""
    seen, ideal = run(gpu, COLUMNS[name], *shape)
    assert len(seen) == 1
    assert in_memory(seen) <= 1.05 * ideal + left_over(seen[0], ideal - 4 * prod(shape))
    if shape[1] in (4, 16384):
        assert asked(seen) <= 1.1 * 4 * prod(shape)  # threads beyond the last row read the first line again


@pytest.mark.sampled(4)
@pytest.mark.parametrize("shape", [(1 << 20,), (1_000_003,)], ids=["2**20", "a-prime"])
@pytest.mark.parametrize("name", ALL)
def test_all_of_a_large_tensor_is_read_once_by_many_blocks(
    gpu: str, name: str, shape: tuple[int, ...]
) -> None:
    """The second pass reads what each of at most 1024 parts left, however long the tensor is."""
    (first, second), ideal = run(gpu, ALL[name], *shape)
    assert first.blocks >= 96
    assert second.bytes_needed <= 4 * 1024 + 4
    assert in_memory([first, second]) <= 1.05 * ideal
    assert asked([first]) <= 1.05 * ideal


def test_few_long_columns_are_shared_by_many_blocks(gpu: str) -> None:
    (first, _), ideal = run(gpu, lambda x: x.sum(0), 16384, 64)
    assert first.blocks >= 16
    assert in_memory([first]) <= 1.05 * ideal
