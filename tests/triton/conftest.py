"""Triton compiles for GPUs that are only named; these tests are left out, in words, where it is not installed.

In       an architecture
Out      fixture `gpu`: an emulated GPU of each architecture
Changes  Triton's cache: a folder that goes with the tests
Next     compiled.py, kernels.py; the extra `triton` and `make test-triton`
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from hcq.device import Device
from tests.hcq.amd.conftest import open_amd as open_amd
from tests.hcq.nv.conftest import open_nv as open_nv

ARCHS = ("gfx90a", "gfx942", "gfx950", "gfx1100", "gfx1201", "sm_80", "sm_89", "sm_90", "sm_100", "sm_120")


@pytest.fixture(scope="session", autouse=True)
def triton_cache() -> Iterator[None]:
    """The user's own cache is neither read nor filled."""
    folder = tempfile.mkdtemp(prefix="hcq-test-triton-")
    os.environ["TRITON_CACHE_DIR"] = folder
    os.environ["TRITON_DEFAULT_FP_FUSION"] = "1"  # else it warns that it will be another
    yield
    del os.environ["TRITON_CACHE_DIR"], os.environ["TRITON_DEFAULT_FP_FUSION"]
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(params=ARCHS)
def gpu(request: pytest.FixtureRequest, open_amd: Callable[..., Any], open_nv: Callable[..., Any]) -> Device:
    """One of each architecture, as hcq.open gives it."""
    arch = request.param
    device: Device = open_nv(arch) if arch.startswith("sm_") else open_amd(arch)
    return device
