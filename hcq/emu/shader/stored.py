"""Stored: what a store writes and what is there before, for races that equal values are no part of.

In       bytes of values, of each access of an instruction
Out      `Stored`; for each cell of shared or global memory its value, and whether it stays the same
Next     shared_races.py and global_races.py (who ask), ../amd/shader/stored_values.py and ../nv/shader/stored_values.py
         (who make them)
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

Array = np.ndarray[Any, Any]


class Stored(NamedTuple):
    """(n, size) bytes of n accesses. new: what they store; old: what was there."""

    new: Array
    old: Array

    def some(self, which: Array) -> Stored:
        """Of some of the accesses."""
        return Stored(self.new[which], self.old[which])

    def bytes(self, at: int, size: int) -> Stored:
        """Of some bytes of each."""
        return Stored(self.new[:, at : at + size], self.old[:, at : at + size])

    def cells(self, unit: int) -> tuple[Array, Array]:
        """(the value of each cell of so many bytes, access by access; whether it was there before)."""
        kind = np.dtype(f"u{unit}")
        new, old = (np.ascontiguousarray(rows).view(kind).reshape(-1) for rows in self)
        return new, new == old


def bytes_of(values: Array) -> Array:
    """(n, size) bytes of n numbers, or of n rows of numbers."""
    whole = np.ascontiguousarray(values)
    size = whole.itemsize * int(np.prod(whole.shape[1:]))
    return whole.view(np.uint8).reshape(len(whole), size)


Pairs = tuple[Array, Array]  # numbers of accesses


def at_once(cells: Array, warps: Array, values: Array | None) -> tuple[Pairs, Pairs]:
    """Stores to one cell by one instruction: some of the pairs of two warps, and of pairs of one warp.

    values  of each; pairs whose values are equal are left out, and of a warp that goes in lock step the last one stays
    """
    ranked = np.argsort(cells, kind="stable")
    one, other = ranked[:-1], ranked[1:]
    same = cells[one] == cells[other]
    near = same & (warps[one] == warps[other])
    if values is None:
        across = same & ~near
        return (one[across], other[across]), (one[near], other[near])
    within = near & (values[one] != values[other])
    last = ranked[np.append(~near, True)]
    first, second = last[:-1], last[1:]
    across = (cells[first] == cells[second]) & (values[first] != values[second])
    return (first[across], second[across]), (one[within], other[within])
