"""Behind caches that forget nothing by themselves results are the same: no invalidation or write-back is missing."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from hcq.gpu.device import GpuDevice
from tests.hcq.gpu.conftest import Open, each_gpu
from tests.hcq.gpu.vendors import Vendor
from tests.hcq.gpu.workloads import WORKLOADS, chain


def opened(open_gpu: Open, arch: str, queue: str, options: str) -> GpuDevice:
    return open_gpu(arch, options=options, **({"queue": queue} if queue else {}))


@pytest.mark.sampled(20)
@each_gpu
@pytest.mark.parametrize("workload", WORKLOADS, ids=lambda workload: workload.__name__)
def test_results_are_right_behind_caches(
    vendor: Vendor, open_gpu: Open, arch: str, queue: str, workload: Callable[[GpuDevice], None]
) -> None:
    workload(opened(open_gpu, arch, queue, ":caches"))


@pytest.mark.sampled(8)
@each_gpu
@pytest.mark.parametrize("options", [":caches", ":caches:seed=3", ":caches:private"])
def test_chains_give_the_same_results_behind_caches(
    vendor: Vendor, open_gpu: Open, arch: str, queue: str, options: str
) -> None:
    found, known = chain(opened(open_gpu, arch, queue, options), 5)
    assert found == known


@pytest.mark.sampled(4)
@pytest.mark.parametrize("seed", range(4))
def test_results_are_right_behind_caches_in_any_order(vendor: Vendor, open_gpu: Open, seed: int) -> None:
    for workload in WORKLOADS:
        workload(open_gpu(options=f":caches:seed={seed}"))
