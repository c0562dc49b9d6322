"""Hessenberg: A = W^H H W of a complex square matrix, with an H that is zero below its second diagonal.

In       real parts (batch, n, n), imaginary parts (batch, n, n)
Out      (batch, 4 * n * n + 2 * n): H, real parts and imaginary ones; W, which is unitary, likewise; room to work in
Next     schur.py (which goes on from here), frontend/more/linalg/eigen.py (who asks for it), pairs.py (complex numbers)

Step j has a reflection, I - tau * v @ v^H, take column j to a real number on the second diagonal and to zero below;
it is applied to H from both sides, and to W from the left. Of a Hermitian matrix H is real, with three diagonals.
"""

from __future__ import annotations

from hcq.compiler.routines.householder_pairs import reflect
from hcq.compiler.routines.pairs import Pair, PairArray, complex_reflection, line, planes, variable
from hcq.compiler.routines.writer import Columns, Number, Writer


def layout(batch: int, n: int) -> tuple[int, int]:
    """(groups, columns of the widest loop)."""
    return batch, n


def write(w: Writer, batch: int, n: int) -> None:
    """The routine."""
    start = w.group * (4 * n * n + 2 * n)
    source = PairArray(w.array(1, w.group * (n * n), n), w.array(2, w.group * (n * n), n))
    h, turned = planes(w, 0, start, n), planes(w, 0, start + 2 * n * n, n)
    v = line(w, 0, start + 4 * n * n, n)
    zero = Pair(w.constant(0.0), w.constant(0.0))
    for i in w.range(0, n):
        for c in w.columns(0, n, n):
            h[i, c] = source[i, c]
            turned[i, c] = zero
    w.barrier()
    for i in w.elements(0, n):
        turned[i, i] = Pair(w.constant(1.0), w.constant(0.0))

    def squares(c: Columns) -> list[Number]:
        return [v[c].square()]

    for j in w.range(0, n - 1):
        w.barrier()
        for i in w.elements(j + 1, n):
            v[i] = h[i, j]
        w.barrier()
        (rest,) = w.sums(j + 2, n, n, squares, 1)
        tau, first, beta = complex_reflection(w, v[j + 1], rest)
        w.barrier()  # all have read v
        for _ in w.one_thread():
            v[j + 1] = first
        w.barrier()
        reflect(w, h, v, tau, j + 1, n, n)
        reflect(w, turned, v, tau, j + 1, n, n)
        w.barrier()
        _from_right(w, h, v, tau.conj(), j, n)
        w.barrier()
        for i in w.elements(j + 2, n):
            h[i, j] = zero
        for _ in w.one_thread():
            h[j + 1, j] = Pair(beta, zero.imag)
    w.barrier()


def _from_right(w: Writer, a: PairArray, v: PairArray, tau: Pair, j: Number, n: int) -> None:
    if w.is_gpu:  # each thread has rows
        for i in w.elements(0, n):
            along = variable(w, a[i, j + 1] * v[j + 1])
            for k in w.range(j + 2, n, "k"):
                along.set(along.value + a[i, k] * v[k])
            part = -along.value * tau
            for k in w.range(j + 1, n, "k"):
                a[i, k] = a[i, k] + part * v[k].conj()
        return
    for i in w.range(0, n):

        def products(c: Columns, i: Number = i) -> list[Number]:
            return list(a[i, c] * v[c])

        part = -Pair(*w.sums(j + 1, n, n, products, 2)) * tau
        for c in w.columns(j + 1, n, n):
            a[i, c] = a[i, c] + part * v[c].conj()
