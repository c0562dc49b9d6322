"""Pivots: exchanges of rows, one after the other, as the order that they leave the rows in.

In       (batch, k): LAPACK's pivots: step j exchanged row j and row pivots[j] - 1
Out      (batch, m): which row each row was
Next     lu.py (who makes pivots)
"""

from __future__ import annotations

from hcq.compiler.routines.writer import Writer


def layout(batch: int, m: int, k: int) -> tuple[int, int]:
    """(groups, columns of the widest loop)."""
    return batch, 1


def write(w: Writer, batch: int, m: int, k: int) -> None:
    """The routine."""
    pivots = w.array(1, w.group * k)
    rows = w.array(0, w.group * m)
    for _ in w.one_thread():
        for i in w.range(0, m):
            rows[i] = w.as_float(i)
        for j in w.range(0, k):
            p = w.as_index(pivots[j] - 1.0, m - 1)
            one, other = rows[j], rows[p]
            rows[j] = other
            rows[p] = one
