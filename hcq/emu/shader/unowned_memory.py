"""Unowned memory: the gaps between buffers, where a store of a kernel is reported.

In       where gaps begin and end; addresses of a store
Out      which of them reach into one
Next     hcq/events/stray_accesses.py (who knows of gaps), emu/amd/shader/strays.py and emu/nv/launch.py (who ask)
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray


class Gaps:
    """Sorted ones, none of which overlap."""

    def __init__(self, gaps: Sequence[tuple[int, int]]) -> None:
        self._starts = np.array([start for start, _ in gaps], np.uint64)
        self._ends = np.array([end for _, end in gaps], np.uint64)

    def reached(self, addresses: NDArray[Any], size_bytes: int) -> NDArray[np.bool_]:
        """Of (n,) addresses those from which so many bytes reach into a gap."""
        behind = np.searchsorted(self._starts, addresses + np.uint64(size_bytes - 1), side="right")
        found: NDArray[np.bool_] = (behind > 0) & (addresses < self._ends[np.maximum(behind, 1) - 1])
        return found

    def first_in(self, address: int, size_bytes: int) -> int:
        """The first of so many bytes that is in a gap; the address itself where none is."""
        at = int(np.searchsorted(self._starts, np.uint64(address + size_bytes - 1), side="right")) - 1
        while at > 0 and int(self._ends[at - 1]) > address:
            at -= 1
        return max(address, int(self._starts[at])) if at >= 0 and address < int(self._ends[at]) else address
