"""A store behind the end of a buffer is told of by every emulated GPU, once; work that stays inside says nothing."""

from __future__ import annotations

import pytest

from hcq.gpu.device import GpuDevice
from hcq.observe.validator import Validator
from tests.hcq.gpu.kernels import image

pytestmark = pytest.mark.fires_rules


def test_a_store_behind_a_buffer_names_it_and_the_kernel(gpu: GpuDevice) -> None:
    name = f"short of {gpu.arch} {id(gpu)}"
    increment = gpu.load(image(gpu), "increment")
    whole, short = gpu.alloc(256, "whole"), gpu.alloc(36, name)
    whole.write(bytes(256))
    before = len(Validator.warnings)
    gpu.run(increment, [whole], block=(64, 1, 1))
    gpu.run(increment, [whole.view(64, 64)], block=(16, 1, 1))
    assert len(Validator.warnings) == before
    for _ in range(2):
        gpu.run(increment, [short], block=(10, 1, 1))
    (found,) = Validator.warnings[before:]
    assert found.rule == "store-beyond-buffer"
    assert found.buffer == name
    assert found.kernel.startswith("increment")
    assert f"stores 4 bytes at {name}+36, which has 36 bytes" in found.what
