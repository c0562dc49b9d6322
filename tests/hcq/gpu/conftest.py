"""GPUs to test with, AMD's and NVIDIA's alike: what both drivers must do is tested once for all of them.

In       nothing
Out      fixtures `vendor`, `open_gpu` (a function that opens one of that vendor), `gpu` (one of each architecture and
         queue), `small_rings`
Changes  nothing that outlives the test
Next     vendors.py (what differs), kernels.py (what runs); ../amd/conftest.py, ../nv/conftest.py (emulated systems)
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from hcq.gpu.device import GpuDevice
from tests.hcq.amd.conftest import QUEUES, by_turns
from tests.hcq.amd.conftest import open_amd as open_amd
from tests.hcq.amd.conftest import small_rings as amd_small_rings  # noqa: F401
from tests.hcq.gpu.vendors import AMD, NV, Vendor
from tests.hcq.nv.conftest import ARCHS
from tests.hcq.nv.conftest import open_nv as open_nv
from tests.hcq.nv.conftest import small_ring as nv_small_ring  # noqa: F401

Open = Callable[..., GpuDevice]
GPUS = [*QUEUES, *[(arch, "") for arch in ARCHS]]  # architecture and kind of queue
each_gpu = pytest.mark.parametrize(
    ("vendor", "arch", "queue"), [by_turns(arch, queue, AMD if queue else NV) for arch, queue in GPUS]
)


@pytest.fixture(params=[AMD, NV], ids=lambda vendor: vendor.name)
def vendor(request: pytest.FixtureRequest) -> Vendor:
    made: Vendor = request.param
    return made


@pytest.fixture
def open_gpu(vendor: Vendor, open_amd: Open, open_nv: Open) -> Open:
    """open_gpu(timeout_ms=500): a device of the vendor, by default of its first architecture, closed after the test."""
    return open_amd if vendor is AMD else open_nv


@pytest.fixture(
    params=[pytest.param(pair, marks=by_turns(*pair).marks) for pair in GPUS],
    ids=lambda pair: "-".join(filter(None, pair)),
)
def gpu(request: pytest.FixtureRequest, open_amd: Open, open_nv: Open) -> GpuDevice:
    """A device of each architecture with each kind of compute queue."""
    arch, queue = request.param
    return open_amd(arch, queue=queue) if queue else open_nv(arch)


@pytest.fixture
def small_rings(amd_small_rings: None, nv_small_ring: None) -> None:  # noqa: F811
    """Rings that wrap and fill up soon."""
