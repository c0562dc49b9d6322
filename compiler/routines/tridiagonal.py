"""Tridiagonal: A = Q T Q.T of a symmetric matrix A, with a T of three diagonals and a Q of reflections.

In       (batch, n, n), symmetric
Out      (batch, n * n + 5 * n): the vectors of the reflections as rows, ones and zeros included; T's diagonal; what is
         beside it, and a zero; the reflections' factors tau; room to work in
Next     ql.py (eigenvalues of T), householder.py (the reflection), frontend/more/linalg/spectra.py (who asks for it)

Step j takes row and column j to three elements. The other rows and columns get a reflection from both sides, which is
A - v @ w.T - w @ v.T.
"""

from __future__ import annotations

from hcq.compiler.routines.householder import reflection
from hcq.compiler.routines.writer import Columns, Number, Writer


def layout(batch: int, n: int) -> tuple[int, int]:
    """(groups, columns of the widest loop)."""
    return batch, n


def write(w: Writer, batch: int, n: int) -> None:
    """The routine."""
    start = w.group * (n * n + 5 * n)
    source = w.array(1, w.group * (n * n), n)
    a = w.array(0, start, n)
    d, e, taus, v, p = (w.array(0, start + (n * n + place * n)) for place in range(5))
    for i in w.range(0, n):
        for c in w.columns(0, n, n):
            a[i, c] = source[i, c]
    w.barrier()

    def squares(c: Columns) -> list[Number]:
        return [v[c] * v[c]]

    def overlap(c: Columns) -> list[Number]:
        return [p[c] * v[c]]

    for j in w.range(0, n - 1):
        for c in w.columns(j + 1, n, n):
            v[c] = a[j, c]
        w.barrier()
        (rest,) = w.sums(j + 2, n, n, squares, 1)
        tau, beta, scale = reflection(w, v[j + 1], rest)
        w.barrier()  # all have read v
        for c in w.columns(j + 1, n, n):
            v[c] = v[c] * scale
        w.barrier()
        for _ in w.one_thread():
            v[j + 1] = 1.0
            d[j] = a[j, j]
            e[j] = beta
            taus[j] = tau
        w.barrier()
        for c in w.columns(j + 1, n, n):
            total = w.variable(v[c] * 0.0)
            for i in w.range(j + 1, n):
                total.set(total.value + v[i] * a[i, c])
            p[c] = total.value * tau
        (both,) = w.sums(j + 1, n, n, overlap, 1)
        half = both * tau * -0.5
        for c in w.columns(j + 1, n, n):
            p[c] = p[c] + half * v[c]
            a[j, c] = v[c]
        for c in w.columns(0, j + 1, n):
            a[j, c] = 0.0
        w.barrier()
        for i in w.range(j + 1, n):
            left, right = -v[i], -p[i]
            for c in w.columns(j + 1, n, n):
                a[i, c] = a[i, c] + left * p[c] + right * v[c]
        w.barrier()
    for _ in w.one_thread():
        d[n - 1] = a[n - 1, n - 1]
        e[n - 1] = 0.0
        taus[n - 1] = 0.0
    w.barrier()
    for c in w.columns(0, n, n):
        a[n - 1, c] = 0.0
