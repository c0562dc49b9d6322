"""Cholesky: of a symmetric positive definite matrix A the upper triangle U with U.T @ U = A.

In       (batch, n, n), zero below the diagonal: of A only the upper half is looked at
Out      (batch, n + 1, n): U; in the last row first the info: 0, or the number of the first minor that is not positive
Next     writer.py (the words), frontend/more/linalg/factors.py (who asks for it)

Row by row: row j of A less what the rows above have to do with it, divided by the root of its first element. Columns
are independent within a row, so they run side by side, and sums stay in registers.
"""

from __future__ import annotations

from hcq.compiler.routines.writer import Writer


def layout(batch: int, n: int) -> tuple[int, int]:
    """(groups, columns of the widest loop)."""
    return batch, n


def write(w: Writer, batch: int, n: int) -> None:
    """The routine."""
    a = w.array(1, w.group * (n * n), n)
    u = w.array(0, w.group * (n * n + n), n)
    info = w.variable(0.0)
    for i in w.range(0, n):
        for c in w.columns(0, n, n):
            u[i, c] = a[i, c]
    w.barrier()
    for j in w.range(0, n):
        for c in w.columns(j, n, n):
            left = w.variable(u[j, c])
            for k in w.range(0, j):
                left.set(left.value + -u[k, j] * u[k, c])
            u[j, c] = left.value
        w.barrier()
        pivot = u[j, j]
        is_first = (pivot > 0.0).negated() & info.value.equals(0.0)
        info.set(w.where(is_first, w.as_float(j + 1), info.value))
        root = pivot.sqrt()
        w.barrier()  # all have read the pivot
        for c in w.columns(j, n, n):
            u[j, c] = u[j, c] / root
        w.barrier()
    for _ in w.one_thread():
        u[n, 0] = info.value
