"""Heuristic for the matrix unit of a warpgroup (sm_90): which products are large enough for it, and their tiles.

In       a product that a matrix unit takes, the target
Out      the unit, the block's tile and how many steps' tiles there are; None where units of single warps do better
Next     heuristic_matrix.py (who asks, and writes the schedule), ../linear/warpgroups.py (what becomes of it)

A block has two warpgroups, one above the other, each of which has 64 rows and all columns: what the unit reads of
shared memory for one product is less the wider it is. Small products leave cores idle, and waste what their edges do
not fill.
"""

from __future__ import annotations

from typing import NamedTuple

from hcq.compiler.loops.loop import Axis
from hcq.compiler.loops.loop_nest import LoopNest
from hcq.compiler.loops.matrix_units import MatrixUnit, units_of
from hcq.compiler.target import Target
from hcq.ir.node import Node
from hcq.ir.op import Op

WIDE_BLOCKS = 128  # fewer than this leave cores idle: narrower tiles then
DEPTH = 64  # values of k in shared memory at a time: a swizzled row
MOST_AHEAD = 4  # tiles: one that is read, one that the step before may still read, two under way
MOST_WASTE = 1.3  # of what is multiplied beyond the edges
# the blocks that run at a time, some 132, read least where they cover a square: 16 x 128 rows, 8 x 256 columns
ROWS_TOGETHER, FEW_ACROSS = 16, 8
# rows, columns, warpgroups one above the other: the largest first
TILES = ((128, 256, 2), (128, 128, 2), (64, 128, 1), (64, 64, 1))


class WarpgroupTile(NamedTuple):
    """How a block multiplies."""

    unit: MatrixUnit
    rows: int
    columns: int
    warpgroups: int
    depth: int
    tiles_ahead: int
    together: int  # blocks one above the other that are begun together


def warpgroup_tile(
    nest: LoopNest, factors: list[Node], m: Axis, n: Axis, k: Axis, batch: int, target: Target
) -> WarpgroupTile | None:
    """The tile of a product, if its factors can lie in shared memory as they are and it fills the machine."""
    if any(factor.op is not Op.LOAD or nest.never_staged(factor) for factor in factors):
        return None
    if any(axis.is_ordered for axis in nest.axes):
        return None
    units = {unit.size("n"): unit for unit in units_of(target.arch, factors[0].dtype, reads_shared=True)}
    if not units or k.size < DEPTH:
        return None
    for rows, columns, warpgroups in TILES:
        down, across = -(-m.size // rows), -(-n.size // columns)
        waste = down * rows * across * columns / (m.size * n.size)
        if down * across * batch < WIDE_BLOCKS or waste > MOST_WASTE or columns not in units:
            continue
        step = (rows + columns) * DEPTH * factors[0].dtype.itemsize
        tiles = min(MOST_AHEAD, target.shared_bytes // step, -(-k.size // DEPTH))
        together = ROWS_TOGETHER if down % ROWS_TOGETHER == 0 and across > FEW_ACROSS else 1
        return WarpgroupTile(units[columns], rows, columns, warpgroups, DEPTH, tiles, together)
    return None
