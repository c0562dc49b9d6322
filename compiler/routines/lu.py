"""LU: P @ A = L @ U with rows exchanged so that each pivot is the largest left in its column.

In       (batch, m, n); a switch: 0 leaves the rows where they are
Out      (batch, m * n + m + k + 1), k = min(m, n): L below the diagonal and U; which row of A each row is; LAPACK's
         pivots, from 1; the info: 0, or the number of the first pivot that is zero
Next     writer.py (the words), frontend/more/linalg/factors.py (who asks for it)

Panel by panel of a few columns. In a panel column by column: find the pivot, exchange two rows, divide the column by
the pivot, subtract multiples of the row from all rows below. Then the columns behind the panel, each on its own, get
what the panel has to do with them, a few rows at a time with sums in registers. Of pivots of one size the first is
taken, as LAPACK does.
"""

from __future__ import annotations

from hcq.compiler.routines.writer import Array, Columns, Number, Writer
from hcq.ir.op import Op

PANEL = 16  # columns
ROWS = 4  # that get a panel's part together


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
    for panel in w.range(0, -(-steps // PANEL), "panel"):
        begin = panel * PANEL
        end = w.at_most(begin + PANEL, steps)
        for j in w.range(begin, end, "j"):
            info.set(_column(w, lu, rows, pivots, j, end, m, n, is_pivoted, info.value))
        if n > min(PANEL, steps):
            for c in w.columns(end, n, n):
                _behind(w, lu, c, begin, end, m)
            w.barrier()
    for _ in w.one_thread():
        pivots[steps] = info.value


def _column(
    w: Writer,
    lu: Array,
    rows: Array,
    pivots: Array,
    j: Number,
    end: Number,
    m: int,
    n: int,
    is_pivoted: int,
    info: Number,
) -> Number:
    """Find a column's pivot and take the panel's other columns, up to `end`, a step on. Returns the info after it."""
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
    w.barrier()  # who looks for the pivot is another thread than who exchanges, and a shuffle orders no memory
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
    info = w.where(is_zero & info.equals(0.0), w.as_float(j + 1), info)
    divisor = w.where(is_zero, 1.0, pivot)
    for i in w.elements(j + 1, m):
        lu[i, j] = lu[i, j] / divisor
    w.barrier()
    if w.is_gpu:  # a panel has fewer columns than a group has threads
        for i in w.elements(j + 1, m):
            factor = -lu[i, j]
            for column in w.range(j + 1, end, "c"):
                lu[i, column] = lu[i, column] + factor * lu[j, column]
    else:
        for i in w.range(j + 1, m):
            factor = -lu[i, j]
            for c in w.columns(j + 1, end, min(n, PANEL)):
                lu[i, c] = lu[i, c] + factor * lu[j, c]
    w.barrier()
    return info


def _behind(w: Writer, lu: Array, c: Columns, begin: Number, end: Number, m: int) -> None:
    """Some columns behind a panel: rows of U beside the panel's, then what is left below them."""
    for i in w.range(begin + 1, end):
        left = w.variable(lu[i, c])
        for k in w.range(begin, i, "k"):
            left.set(left.value + -lu[i, k] * lu[k, c])
        lu[i, c] = left.value
    whole = w.at_least(-end + m, 0) // ROWS
    for turn in w.range(0, whole, "rows"):
        _below(w, lu, c, begin, end, [end + turn * ROWS + place for place in range(ROWS)])
    for i in w.range(end + whole * ROWS, m):
        _below(w, lu, c, begin, end, [i])


def _below(w: Writer, lu: Array, c: Columns, begin: Number, end: Number, rows: list[Number]) -> None:
    left = [w.variable(lu[i, c]) for i in rows]
    for k in w.range(begin, end, "k"):
        above = lu[k, c]
        for i, part in zip(rows, left, strict=True):
            part.set(part.value + -lu[i, k] * above)
    for i, part in zip(rows, left, strict=True):
        lu[i, c] = part.value
