"""The blocks of a launch that have not begun: the next batch takes some, and running blocks may cancel them.

In       how many blocks there are, their grid and clusters
Out      positions of blocks: see grids.numbers_of; the place of a cluster that was cancelled
Changes  itself
Next     run.py (who takes batches), launch_control.py (who cancels)
"""

from __future__ import annotations

from math import prod

import numpy as np

from hcq.emu.nv.shader.grids import Dim3, coordinates, numbers_of
from hcq.emu.nv.shader.types import Lanes


class Pending:
    """Of one launch. Blocks are counted cluster after cluster."""

    def __init__(self, blocks: int, grid: Dim3, cluster: Dim3) -> None:
        self.blocks, self.grid, self.cluster = blocks, grid, cluster
        self.next = 0

    def take(self, count: int) -> Lanes:
        """The numbers of the next so many blocks, which begin; empty when none are left."""
        first, self.next = self.next, min(self.next + count, self.blocks)
        return numbers_of(np.arange(first, self.next), self.grid, self.cluster)

    def cancel(self) -> Dim3 | None:
        """Where the first block of the next cluster is, which never begins; None when all have begun."""
        if self.next >= self.blocks:
            return None
        first = int(self.take(prod(self.cluster))[0])
        x, y, z = (int(at) for at in coordinates(np.int64(first), self.grid))
        return x, y, z
