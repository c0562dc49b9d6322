"""What the rules know of a GPU's own cells, from a device's facts or from those in a trace."""

from __future__ import annotations

from typing import Any

import pytest

from hcq.amd.validate import AmdModel
from hcq.nv.validate import NvModel


@pytest.mark.parametrize("name", ["ring_fence", "relay"])
def test_an_inter_ring_fence_is_the_drivers_own_cell_in_older_traces_too(name: str) -> None:
    assert AmdModel("gfx1100", {name: 0x1000})._own_cells == {0x1000, 0x1040}  # and the one between copies


@pytest.mark.parametrize("name", ["copy_fence", "order"])
def test_a_copys_semaphore_is_the_drivers_own_cell_in_older_traces_too(name: str) -> None:
    facts: dict[str, Any] = {name: 0x2000}
    assert NvModel("sm_90", facts).copy_fence_va == 0x2000
