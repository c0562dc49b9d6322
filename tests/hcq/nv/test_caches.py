"""Behind caches that forget nothing by themselves results are wrong when a launch leaves out what invalidates them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from hcq.nv.abi.qmd import Qmd, QmdV4
from hcq.nv.device import NvDevice
from tests.hcq.gpu.workloads import chain

Open = Callable[..., NvDevice]


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
    found, known = chain(nv, 5)
    assert found != known
