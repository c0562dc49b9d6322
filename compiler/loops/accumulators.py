"""Accumulators: how many results an outer product keeps in registers, and what a step of its sum then costs.

In       sizes of the axes that are tiled, lanes and registers of a CPU
Out      `Tile`: vectors across, rows down, cycles for a step of the sum over all tiles
Next     contraction.py (who asks, for every pair of axes)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from hcq.compiler.loops.loop import Axis
from hcq.compiler.target import Target

WIDEST = 3  # vectors across
LATENCY = 8  # accumulators that keep the multipliers busy


@dataclass(frozen=True)
class Tile:
    """The part of a result that is added up in registers."""

    width: int  # vectors across
    rows: int
    per_step: float  # cycles for one step of the sum, of all tiles
    beside: Axis | None = None  # another axis, all of which is rows, too; `rows` are those of the first one


def tile(
    across: int, most: int, down: int, lanes: int, target: Target, widest: int = WIDEST, least: int = 1
) -> Tile:
    """What wastes least of the work and of the registers, with `least` to `most` rows where any fit."""
    best = Tile(1, 1, float("inf"))
    for width in range(widest, 0, -1):
        if width > 1 and across < lanes * width:
            continue
        whole, left = divmod(across, lanes * width)
        parts = left // lanes + bin(left % lanes).count("1")
        for rows in range(min(down, most), least - 1, -1):
            if rows * width + width + 1 > target.vector_registers - 1 and rows > 1:
                continue
            full, rest = divmod(down, rows)
            cost = whole * (full * _step(rows, width) + (_step(rest, width) if rest else 0.0))
            if parts:
                cost += full * _step(rows, parts) + (_step(rest, parts) if rest else 0.0)
            if cost < best.per_step * 0.995:
                best = Tile(width, rows, cost)
    return best


def tile_two(
    across: int,
    most: int,
    row: Axis,
    others: Sequence[Axis],
    lanes: int,
    target: Target,
    widest: int = WIDEST,
) -> Tile:
    """`tile`, or one that has all of the row's axis and all of another one: both are short, as a window's places are.

    Its cycles are for one step of the other axis, as those of the first one.
    """
    best = tile(across, most, row.size, lanes, target, widest)
    for other in others:
        both = row.size * other.size
        if both > most:
            continue
        found = tile(across, most, both, lanes, target, widest, both)
        if found.per_step / other.size < best.per_step * 0.995:
            best = Tile(found.width, row.size, found.per_step / other.size, other)
    return best


def _step(rows: int, width: int) -> float:
    """Cycles for one step: two multiplications or two loads at a time, or what latency leaves idle."""
    return max(rows * width, LATENCY, (rows + width) * 0.95) / 2 + 0.3
