"""Numbers of blocks and threads: their coordinates, and blocks of a grid counted cluster after cluster.

In       numbers, sizes
Out      coordinates; numbers
Next     clusters.py (blocks that run as one), pending.py (which have not begun), batch.py (special registers)
Source   PTX ISA, "%ctaid", "%cluster_ctarank"
"""

from __future__ import annotations

from math import prod
from typing import Any

from hcq.emu.nv.shader.types import Lanes

Dim3 = tuple[int, int, int]


def coordinates(number: Any, sizes: Dim3) -> tuple[Any, Any, Any]:
    """(x, y, z) of the n-th of a box, x first."""
    x, y, _ = sizes
    return number % x, number // x % y, number // (x * y)


def numbers_of(positions: Lanes, grid: Dim3, cluster: Dim3) -> Lanes:
    """The numbers in the grid of blocks that are counted cluster after cluster, in each by their ranks."""
    size = prod(cluster)
    if size == 1:
        return positions
    held = grid[0] // cluster[0], grid[1] // cluster[1], grid[2] // cluster[2]
    clusters, ranks = coordinates(positions // size, held), coordinates(positions % size, cluster)
    x, y, z = (at * width + inner for at, width, inner in zip(clusters, cluster, ranks))
    found: Lanes = x + grid[0] * (y + grid[1] * z)
    return found
