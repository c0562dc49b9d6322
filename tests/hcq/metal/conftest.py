"""Metal devices to test with: the driver as it is, on an emulated Objective-C runtime of its own for each test.

In       a chip's word
Out      fixture `open_metal`: a function that opens a device; `runtime_of`: the runtime behind one
Changes  nothing that outlives the test; a device that leaves an object behind fails it
Next     hcq/emu/metal/runtime.py (what counts objects)
"""

from __future__ import annotations

import dataclasses
import gc
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from hcq import config
from hcq.emu.metal.driver import emulate
from hcq.emu.metal.runtime import Runtime
from hcq.emu.port import EmulatedPort
from hcq.metal.device import MetalDevice
from hcq.system.port import root_of

Open = Callable[..., MetalDevice]


def runtime_of(device: MetalDevice) -> Runtime:
    """What answers its messages."""
    found: Runtime = root_of(device.port).kernels[0]
    return found


def fresh_metal(*words: str) -> EmulatedPort:
    """An emulated operating system that nobody else uses."""
    return EmulatedPort([emulate(words)])


@pytest.fixture
def open_metal() -> Iterator[Open]:
    """open_metal("m1", timeout_ms=500): a device, closed after the test; then none of its objects is left."""
    opened: list[Any] = []
    runtimes: list[Runtime] = []

    def open_one(chip: str = "m3", **fields: Any) -> MetalDevice:
        made = MetalDevice(
            "METAL", fresh_metal(f"metal:{chip}"), dataclasses.replace(config.current(), **fields)
        )
        opened.append(made)
        runtimes.append(runtime_of(made))
        return made

    yield open_one
    while opened:
        opened.pop().close()
    gc.collect()
    # who has failed may hold the device in its traceback: signals and memory that completions still read
    left = [kind for one in runtimes for kind in one.alive() if kind not in ("MTLSharedEvent", "MTLBuffer")]
    assert not left, f"objects were left: {left}"
