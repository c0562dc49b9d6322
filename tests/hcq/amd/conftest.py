"""AMD devices to test with: the driver as it is, on an emulated kernel driver of its own for each test.

In       an architecture, the kind of queue, options of the emulator
Out      fixtures `open_amd` (a function that opens one) and `amd` (one of each architecture and queue)
Changes  nothing that outlives the test
Next     kernels.py (what runs on them)
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from hcq import config
from hcq.amd import rings
from hcq.amd.device import AmdDevice
from hcq.config import Config
from hcq.emu.machine import kernels_for
from hcq.emu.port import EmulatedPort

ARCHITECTURES = ("gfx1030", "gfx1100", "gfx1201", "gfx90a", "gfx942")
QUEUES = [(arch, queue) for arch in ARCHITECTURES for queue in ("pm4", "aql")]
# of which every run has each architecture but gfx1030 once, and each kind of queue with old and with new packets
OFTEN = (("gfx1100", "pm4"), ("gfx1201", "aql"), ("gfx90a", "pm4"), ("gfx942", "aql"))


def by_turns(architecture: str, queue: str, *before: Any) -> Any:
    """Parameters (before, architecture, queue): thorough ones, where other pairs have the same law in every run."""
    marks = [pytest.mark.thorough] * (queue != "" and (architecture, queue) not in OFTEN)
    return pytest.param(*before, architecture, queue, marks=marks, id=f"{architecture}-{queue}".strip("-"))


each_queue = pytest.mark.parametrize(("arch", "queue"), [by_turns(*pair) for pair in QUEUES])


def fresh_port(*words: str) -> Any:
    """An emulated operating system that nobody else uses."""
    return EmulatedPort(kernels_for(words))


def the_process(kernel: Any) -> Any:
    """What the emulated KFD keeps for the one process that uses it."""
    (process,) = kernel.processes.values()
    return process


def settings_with(**fields: Any) -> Config:
    """The process's switches, with some of them changed."""
    return dataclasses.replace(config.current(), **fields)


@pytest.fixture
def small_rings(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rings of 8 KiB, which wrap and fill up soon."""
    monkeypatch.setattr(rings, "RING_BYTES", 8192)
    for ring, size, spare in ((rings.Pm4Ring, 2048, 1), (rings.SdmaRing, 8192, 4), (rings.AqlRing, 128, 0)):
        monkeypatch.setattr(ring, "size", size)
        monkeypatch.setattr(ring, "capacity", size - spare)


@pytest.fixture
def open_amd() -> Iterator[Callable[..., AmdDevice]]:
    """open_amd("gfx1100", queue="aql", options=":seed=7", timeout_ms=500): a device, closed after the test."""
    opened: list[AmdDevice] = []

    def open_one(
        arch: str = "gfx1100",
        queue: str = "",
        options: str = "",
        port: Any = None,
        name: str = "AMD",
        **fields: Any,
    ) -> AmdDevice:
        settings = settings_with(amd_queue=queue, **fields)
        device = AmdDevice(name, port or fresh_port(f"amd:{arch}{options}"), settings)
        opened.append(device)
        return device

    yield open_one
    for device in opened:
        device.close(timeout_ms=1000)


@pytest.fixture(params=[pytest.param(pair, marks=by_turns(*pair).marks) for pair in QUEUES], ids="-".join)
def amd(request: pytest.FixtureRequest, open_amd: Callable[..., AmdDevice]) -> AmdDevice:
    """A device of each architecture with each kind of compute queue."""
    arch, queue = request.param
    return open_amd(arch, queue=queue)
