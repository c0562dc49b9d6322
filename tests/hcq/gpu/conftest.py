"""GPUs to test with, AMD's and NVIDIA's alike: what both drivers must do is tested once for all of them.

In       nothing
Out      fixtures `gpu` (one of each architecture and queue) and `open_gpu` (a function that opens one of either kind)
Changes  nothing that outlives the test
Next     ../amd/conftest.py and ../nv/conftest.py (the emulated systems), kernels.py (what runs on them)
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from hcq.gpu.device import GpuDevice
from tests.hcq.amd.conftest import QUEUES
from tests.hcq.amd.conftest import open_amd as open_amd
from tests.hcq.nv.conftest import ARCHS
from tests.hcq.nv.conftest import open_nv as open_nv

Open = Callable[..., GpuDevice]


@pytest.fixture(params=["AMD", "NV"])
def open_gpu(request: pytest.FixtureRequest, open_amd: Open, open_nv: Open) -> Open:
    """open_gpu(timeout_ms=500): a device of the kind's first architecture, closed after the test."""
    return open_amd if request.param == "AMD" else open_nv


@pytest.fixture(
    params=[*QUEUES, *[(arch, "") for arch in ARCHS]], ids=lambda pair: "-".join(filter(None, pair))
)
def gpu(request: pytest.FixtureRequest, open_amd: Open, open_nv: Open) -> GpuDevice:
    """A device of each architecture with each kind of compute queue."""
    arch, queue = request.param
    return open_amd(arch, queue=queue) if queue else open_nv(arch)
