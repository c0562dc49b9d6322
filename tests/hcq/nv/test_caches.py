"""Behind caches that forget nothing by themselves the driver's results are the same: no invalidation is missing."""

from __future__ import annotations

import random
import struct
from collections.abc import Callable
from typing import Any

import pytest

from hcq.nv.abi.qmd import Qmd, QmdV4
from hcq.nv.device import NvDevice
from tests.hcq.nv.conftest import ARCHS
from tests.hcq.nv.kernels import image

Open = Callable[..., NvDevice]


def chain(nv: NvDevice, arch: str, seed: int) -> tuple[list[int], list[int]]:
    """Kernels, copies, fills and writes of the host in random order: what the buffers hold, and what they should."""
    draw = random.Random(seed)
    increment = nv.load(image(arch), "increment")
    buffers = [nv.alloc(256) for _ in range(3)]
    known = [0] * 3
    for buffer in buffers:
        buffer.write(bytes(256))
    for _ in range(24):
        i, j = draw.sample(range(3), 2)
        what = draw.choice(("kernel", "kernel", "copy", "fill", "host"))
        if what == "kernel":
            nv.run(increment, [buffers[i]], block=(64, 1, 1))
            known[i] += 1
        elif what == "copy":
            nv.queue().copy(buffers[j], buffers[i]).submit()
            known[j] = known[i]
        elif what == "fill":
            known[i] = draw.randrange(1000)
            nv.queue().fill(buffers[i], known[i], value_bytes=4).submit()
        else:
            known[i] = draw.randrange(1000)
            nv.synchronize()
            buffers[i].write(struct.pack("<64I", *[known[i]] * 64))
    nv.synchronize()
    return [struct.unpack("<64I", buffer.read())[5] for buffer in buffers], known


@pytest.mark.parametrize("options", [":caches", ":caches:seed=3", ":caches:private"])
@pytest.mark.parametrize("arch", ARCHS)
def test_chains_give_the_same_results_behind_caches(open_nv: Open, arch: str, options: str):
    found, known = chain(open_nv(arch, options=options), arch, 5)
    assert found == known


def without(monkeypatch: pytest.MonkeyPatch, **fields: int) -> None:
    """Hopper's launch descriptions are made with these fields, whatever the driver says."""
    launch = Qmd.launch.__func__  # type: ignore[attr-defined]

    def changed(cls: type[Qmd], **values: Any) -> Qmd:
        made: Qmd = launch(cls, **{**values, **fields})
        return made

    monkeypatch.setattr(QmdV4, "launch", classmethod(changed))


def test_a_launch_that_does_not_invalidate_the_data_cache_is_noticed(
    open_nv: Open, monkeypatch: pytest.MonkeyPatch
):
    nv = open_nv("sm_90", options=":caches")
    without(monkeypatch, invalidate_shader_data_cache=0)
    found, known = chain(nv, "sm_90", 5)
    assert found != known
