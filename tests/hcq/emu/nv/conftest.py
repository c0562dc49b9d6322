"""Emulated processes end with their test: a GPU's thread runs as long as there are channels."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.hcq.emu.nv.raw import OPENED


@pytest.fixture(autouse=True)
def processes_end() -> Iterator[None]:
    yield
    while OPENED:
        OPENED.pop().end()
