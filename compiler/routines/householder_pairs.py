"""Householder pairs: A = W^H R of a complex matrix, with a unitary W and an upper triangle R whose diagonal is real.

In       real parts (batch, m, n), imaginary parts (batch, m, n)
Out      (batch, 2 * m * n + 2 * m * m + 2 * m): R, real parts and imaginary ones; W, likewise; room to work in
Next     householder.py (the same of real matrices), hessenberg.py (where W is made alike), pairs.py (complex numbers)
"""

from __future__ import annotations

from hcq.compiler.routines.pairs import Pair, PairArray, complex_reflection, line, variable
from hcq.compiler.routines.writer import Columns, Number, Writer


def layout(batch: int, m: int, n: int) -> tuple[int, int]:
    """(groups, columns of the widest loop)."""
    return batch, max(m, n)


def write(w: Writer, batch: int, m: int, n: int) -> None:
    """The routine."""
    start = w.group * (2 * m * n + 2 * m * m + 2 * m)
    beside = start + 2 * m * n
    source = PairArray(w.array(1, w.group * (m * n), n), w.array(2, w.group * (m * n), n))
    r = PairArray(w.array(0, start, n), w.array(0, start + m * n, n))
    turned = PairArray(w.array(0, beside, m), w.array(0, beside + m * m, m))
    v = line(w, 0, beside + 2 * m * m, m)
    zero = Pair(w.constant(0.0), w.constant(0.0))
    for i in w.range(0, m):
        for c in w.columns(0, n, n):
            r[i, c] = source[i, c]
        for c in w.columns(0, m, m):
            turned[i, c] = zero
    w.barrier()
    for i in w.elements(0, m):
        turned[i, i] = Pair(w.constant(1.0), zero.imag)

    def squares(c: Columns) -> list[Number]:
        return [v[c].square()]

    for j in w.range(0, min(m, n)):
        w.barrier()
        for i in w.elements(j, m):
            v[i] = r[i, j]
        w.barrier()
        (rest,) = w.sums(j + 1, m, m, squares, 1)
        tau, first, beta = complex_reflection(w, v[j], rest)
        w.barrier()  # all have read v
        for _ in w.one_thread():
            v[j] = first
        w.barrier()
        reflect(w, r, v, tau, j, m, n)
        reflect(w, turned, v, tau, j, m, m)
        w.barrier()
        for i in w.elements(j + 1, m):
            r[i, j] = zero
        for _ in w.one_thread():
            r[j, j] = Pair(beta, zero.imag)
    w.barrier()


def reflect(w: Writer, a: PairArray, v: PairArray, tau: Pair, first: Number, rows: int, columns: int) -> None:
    """A becomes (I - tau * v @ v^H) A, of a v that is zero before `first`."""
    for c in w.columns(0, columns, columns):
        along = variable(w, v[first].conj() * a[first, c])
        for i in w.range(first + 1, rows):
            along.set(along.value + v[i].conj() * a[i, c])
        part = -along.value * tau
        for i in w.range(first, rows):
            a[i, c] = a[i, c] + v[i] * part
