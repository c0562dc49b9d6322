"""Ordering: the order of a few numbers, at the end of a routine that finds them."""

from __future__ import annotations

from hcq.compiler.routines.writer import Array, Writer


def store_order(w: Writer, values: Array, order: Array, n: int, is_descending: bool) -> None:
    """Store which number comes first, second, ..: each counts those before it. Equal ones stay in their order."""
    for i in w.elements(0, n):
        order[i] = w.as_float(i)  # where there is a NaN: every place has some number's
    w.barrier()
    for i in w.elements(0, n):
        here = values[i]
        rank = w.variable(0.0)
        for j in w.range(0, n):
            there = values[j]
            is_before = there > here if is_descending else there < here
            is_before = is_before | (there.equals(here) & (j < i))
            rank.set(rank.value + w.where(is_before, w.constant(1.0), 0.0))
        order[w.as_index(rank.value, n - 1)] = w.as_float(i)
