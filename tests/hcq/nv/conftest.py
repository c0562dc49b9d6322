"""NVIDIA devices to test with: the driver as it is, on an emulated kernel driver of its own for each test.

In       an architecture, options of the emulator
Out      fixtures `open_nv` (a function that opens one) and `nv` (one of each generation of launch descriptions)
Changes  nothing that outlives the test
Next     kernels.py (what runs on them)
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from hcq import config
from hcq.config import Config
from hcq.emu.port import EmulatedPort
from hcq.nv import rings
from hcq.nv.device import NvDevice

ARCHS = ["sm_80", "sm_90", "sm_120"]  # QMD 3, 4 and 5


def fresh_port(*words: str) -> Any:
    """An emulated operating system that nobody else uses."""
    from hcq.emu.nv.rm import EmulatedRm
    from hcq.emu.nv.spec import parse_all

    return EmulatedPort([EmulatedRm(parse_all(list(words)))])


def settings_with(**fields: Any) -> Config:
    """The process's switches, with some of them changed."""
    return dataclasses.replace(config.current(), **fields)


@pytest.fixture
def small_ring(monkeypatch: pytest.MonkeyPatch) -> None:
    """A GPFIFO of 32 entries, which wraps and fills up soon."""
    monkeypatch.setattr(rings, "ENTRIES", 32)


@pytest.fixture
def open_nv() -> Iterator[Callable[..., NvDevice]]:
    """open_nv("sm_90", options=":seed=7", timeout_ms=500): a device, closed after the test."""
    opened: list[NvDevice] = []

    def open_one(
        arch: str = "sm_90", options: str = "", port: Any = None, name: str = "NV", **fields: Any
    ) -> NvDevice:
        device = NvDevice(name, port or fresh_port(f"nv:{arch}{options}"), settings_with(**fields))
        opened.append(device)
        return device

    yield open_one
    for device in opened:
        device.close(timeout_ms=1000)


@pytest.fixture(params=ARCHS)
def nv(request: pytest.FixtureRequest, open_nv: Callable[..., NvDevice]) -> NvDevice:
    """A device of each generation."""
    return open_nv(request.param)
