"""Devcoredumps of emulated GPUs: when one is made, where it is, and that it is of the GPU that hangs."""

from __future__ import annotations

import dataclasses

import pytest

import hcq
from hcq import config
from hcq.emu.port import EmulatedPort
from hcq.errors import HcqError, UsageError, WaitTimeout
from hcq.tools.trace import devcoredump
from tests.tools.trace.hanging import WAIT, hang

DATA = "/sys/class/drm/card0/device/devcoredump/data"


@pytest.fixture
def device(monkeypatch, tmp_path):
    monkeypatch.setenv("HCQ_EMULATE", "amd:gfx1100:cu=2")
    monkeypatch.setenv("HCQ_DUMP_DIR", str(tmp_path / "dumps"))
    monkeypatch.setenv("HCQ_REPORT", "off")
    config.reload() if hasattr(config, "reload") else None
    opened = hcq.open("AMD")
    yield opened
    opened.close()
