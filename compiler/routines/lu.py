"""LU: P @ A = L @ U with rows exchanged so that each pivot is the largest left in its column.

In       (batch, m, n); a switch: 0 leaves the rows where they are
Out      (batch, m * n + m + k + 1), k = min(m, n): L below the diagonal and U; which row of A each row is; LAPACK's
         pivots, from 1; the info: 0, or the number of the first pivot that is zero
Next     writer.py (the words), frontend/linalg/factors.py (who asks for it)

Column by column: find the pivot, exchange two rows, divide the column by the pivot, subtract multiples of the row from
all rows below. Of pivots of one size the first is taken, as LAPACK does.
"""

from __future__ import annotations

from hcq.compiler.routines.writer import Writer
from hcq.ir.op import Op


def layout(batch: int, m: int, n: int, is_pivoted: int) -> tuple[int, int]:
    """(groups, columns of the widest loop)."""
    return batch, max(m, n)


def write(w: Writer, batch: int, m: int, n: int, is_pivoted: int) -> None:
    """The routine."""
    steps = min(m, n)
    size = m * n + m + steps + 1
    a = w.array(1, w.group * (m * n), n)
    lu = w.array(0, w.group * size, n)
    rows = w.array(0, w.group * size + m * n)
    pivots = w.array(0, w.group * size + (m * n + m))
    info = w.variable(0.0)
    for i in w.range(0, m):
        for c in w.columns(0, n, n):
            lu[i, c] = a[i, c]
    for i in w.elements(0, m):
        rows[i] = w.as_float(i)
    w.barrier()
    for j in w.range(0, steps):
        best, place = w.variable(-1.0), w.variable(w.as_float(m))
        for i in w.elements(j, m if is_pivoted else j + 1):
            size_here = lu[i, j].size()
            is_better = size_here > best.value
            best.set(w.where(is_better, size_here, best.value))
            place.set(w.where(is_better, w.as_float(i), place.value))
        (top,) = w.across(Op.MAX, best.value)
        (found,) = w.across(Op.MIN, w.where(best.value.equals(top), place.value, float(m)))
        found = w.where(found.equals(float(m)), w.as_float(j), found)  # all are NaN
        p = w.as_index(found, m - 1)
        for c in w.columns(0, n, n):
            upper, lower = lu[j, c], lu[p, c]
            lu[j, c] = lower
            lu[p, c] = upper
        for _ in w.one_thread():
            pivots[j] = found + 1.0
            one, other = rows[j], rows[p]
            rows[j] = other
            rows[p] = one
        w.barrier()
        pivot = lu[j, j]
        is_zero = pivot.equals(0.0)
        info.set(w.where(is_zero & info.value.equals(0.0), w.as_float(j + 1), info.value))
        divisor = w.where(is_zero, 1.0, pivot)
        for i in w.elements(j + 1, m):
            lu[i, j] = lu[i, j] / divisor
        w.barrier()
        for i in w.range(j + 1, m):
            factor = -lu[i, j]
            for c in w.columns(j + 1, n, n):
                lu[i, c] = lu[i, c] + factor * lu[j, c]
        w.barrier()
    for _ in w.one_thread():
        pivots[steps] = info.value
