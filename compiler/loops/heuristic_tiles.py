"""Heuristic for sums of products that fill a GPU badly: tiles of results in the registers of threads.

In       the two output ranges and the sum of a contraction, its loads, the target
Out      a RegisterTile: how many threads along each range, and how many results of each along either
Next     heuristic_gpu.py (who asks), heuristic_matrix.py (the same for matrix units), ../chips.py (the figures)

Every tile is priced: the instructions of the core that is busiest, what L2 sends to that core and to all. Where there
are few results, small tiles reach more cores, and threads of a wave share the terms of a sum.
"""

from __future__ import annotations

from itertools import product
from math import prod
from typing import NamedTuple

from hcq.compiler.chips import PORT_BYTES, chip_of
from hcq.compiler.loops.accesses import Accesses
from hcq.compiler.loops.loop import Axis
from hcq.compiler.target import Target
from hcq.ir.node import Node

BLOCK = 256  # threads at most
TILE = 4  # results of a thread along each side at most, and terms that it takes in one step
REST = 0.1  # of the time of what does not bound a tile: of two that are bound alike, the one that asks less
STEP = 4  # instructions of a step of a sum, beside a load for each row and the sums: columns, addresses, the loop
LONG = 64  # terms of a sum that a thread takes before the waves of a block share it: each waits for memory
POWERS = (32, 16, 8, 4, 2, 1)


class RegisterTile(NamedTuple):
    """across, down: threads along columns and rows. lanes, copies: results of each. parts: threads that share a sum."""

    across: int
    down: int
    lanes: int
    copies: int
    parts: int


def register_tile(
    facts: Accesses,
    target: Target,
    column: Axis,
    row: Axis,
    sums: list[Axis],
    loads: list[Node],
    divides: bool,
) -> RegisterTile:
    """The tile with which all blocks are done first.

    sums     ranges that are summed over, the one along which threads may share first
    loads    inside of the sums
    divides  whether threads may share a sum
    """
    chip, masks = chip_of(target.arch), facts.nest.masks
    wave = 64 if target.arch.startswith("gfx9") else 32
    outputs = [a for a in facts.nest.axes if not a.is_reduce and not a.is_ordered]
    others = prod(a.size for a in outputs if a is not column and a is not row)
    terms, k = sums[0].size, prod(a.size for a in sums)
    is_stored_along = facts.store_stride(column) == 1

    def operands(side: Axis) -> list[tuple[int, int]]:
        """Of each operand on a side: bytes of an element, and of what is read at once for a step of the sums."""
        mine = [load for load in loads if masks[load] & side.bit]
        along = all(facts.stride(load, sums[0]) == 1 for load in mine)
        return [(load.dtype.itemsize, 1 if along else chip.sector_bytes) for load in mine]

    of_columns, of_rows = operands(column), operands(row)

    def parts(threads: int) -> int:
        """Threads that share each sum of a block with so many threads' results: a wave, or more for long sums."""
        if not divides:
            return 1
        return max(
            1,
            min(wave // threads, _power_below(terms // TILE)),
            min(BLOCK // threads, _power_below(terms // LONG)),
        )

    def clocks(tile: RegisterTile) -> float:
        """What the busiest core takes for each step of the sums."""
        columns, rows, results = tile.across * tile.lanes, tile.down * tile.copies, tile.lanes * tile.copies
        blocks = -(-column.size // columns) * -(-row.size // rows) * others
        rounds = -(-blocks // target.cores)
        waves = -(-tile.across * tile.down * tile.parts // wave)
        computed = results * (facts.op_count + 1) / 2
        exchanged = 2 * results * (tile.parts.bit_length() - 1) / k
        sent = sum(_up(columns * size, least) for size, least in of_columns)
        sent += sum(_up(rows * size, least) for size, least in of_rows)
        taken = (
            rounds * waves * ((computed + tile.copies + STEP) / tile.parts + exchanged) / chip.issued,
            rounds * (sent + 4 * rows * columns / k) / PORT_BYTES,
            blocks * sent / chip.l2_bytes,
        )
        return max(taken) + REST * (sum(taken) - max(taken))

    tiles = (
        RegisterTile(across, down, lanes, copies, parts(across * down))
        for across, down, lanes, copies in product(POWERS, POWERS, (4, 2, 1), (4, 2, 1))
        if across * down <= BLOCK and column.size % lanes == 0 and (lanes == 1 or is_stored_along)
        if across * lanes < 2 * column.size and down * copies < 2 * row.size
    )
    return min(tiles, key=clocks)


def _up(value: int, multiple: int) -> int:
    return -(-value // multiple) * multiple


def _power_below(value: int) -> int:
    return 1 << max(0, value.bit_length() - 1)
