"""Heuristic for matrix units that read shared memory: which products are large enough for them, and their tiles.

In       a product that a matrix unit takes, the target
Out      the unit, the block's tile and how many steps' tiles there are; None where units of single warps do better
Next     heuristic_matrix.py (who asks, and writes the schedule), ../linear/warpgroups.py (what becomes of it)

Blocks come in waves, of one for each core. A wave takes as long as the unit multiplies or as L2 sends the tiles,
whichever is more: wide tiles are used more often, small ones leave fewer cores without work at the end. sm_90's unit
adds up in registers, sm_100's in a memory of its own.
"""

from __future__ import annotations

from typing import NamedTuple

from hcq.compiler.loops.loop import Axis
from hcq.compiler.loops.loop_nest import LoopNest
from hcq.compiler.loops.matrix_units import MatrixUnit, units_of
from hcq.compiler.target import Target
from hcq.ir.node import Node
from hcq.ir.op import Op


class Core(NamedTuple):
    """cores: how many there are. flops: what one multiplies of 16-bit floats in a clock. bytes: what its part of L2
    sends. tiles: rows, columns, warpgroups one above the other: the largest first, which is taken where two do as well.
    """

    cores: int
    flops: int
    bytes: int
    tiles: tuple[tuple[int, int, int], ...]


# an H100 and a B200 (SXM), inferred from peak rates at 1.83 GHz, as hcq/performance/datasheets.py has them; what L2
# sends a core of the latter is taken to be the same
CORES = {
    "sm_90": Core(132, 4096, 39, ((128, 256, 2), (128, 128, 2), (64, 128, 1), (64, 64, 1))),
    "sm_100": Core(148, 8192, 39, ((128, 128, 1), (128, 64, 1))),
}
FEW_BLOCKS = 64  # of the smallest tiles: fewer are for units of single warps, which have still smaller ones
DEPTH = 64  # values of k in shared memory at a time: a swizzled row
MOST_AHEAD = 4  # tiles: one that is read, one that the step before may still read, two under way
# the blocks that run at a time, some 132, read least where they cover a square: 16 x 128 rows, 8 x 256 columns
ROWS_TOGETHER, FEW_ACROSS = 16, 8


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
    a, b = (factor.dtype for factor in factors)
    units = {unit.size("n"): unit for unit in units_of(target.arch, a, b, reads_shared=True)}
    if not units or k.size < DEPTH:
        return None
    core = CORES[target.arch]
    if -(-m.size // core.tiles[-1][0]) * -(-n.size // core.tiles[-1][1]) * batch < FEW_BLOCKS:
        return None

    def clocks(tile: tuple[int, int, int]) -> float:
        """How long all blocks take for one step along k."""
        rows, columns, _ = tile
        blocks = -(-m.size // rows) * -(-n.size // columns) * batch
        multiplied = 2 * rows * columns * DEPTH / core.flops
        sent = (rows + columns) * DEPTH * factors[0].dtype.itemsize / core.bytes
        return -(-blocks // core.cores) * max(multiplied, sent)

    rows, columns, warpgroups = min(core.tiles, key=clocks)
    down, across = -(-m.size // rows), -(-n.size // columns)
    step = (rows + columns) * DEPTH * factors[0].dtype.itemsize
    tiles = min(MOST_AHEAD, target.shared_bytes // step, -(-k.size // DEPTH))
    together = ROWS_TOGETHER if down % ROWS_TOGETHER == 0 and across > FEW_ACROSS else 1
    return WarpgroupTile(units[columns], rows, columns, warpgroups, DEPTH, tiles, together)
