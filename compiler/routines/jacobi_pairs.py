"""Jacobi pairs: rotates complex rows against each other until all are at right angles: jacobi.py of complex numbers.

In       W (batch, n, m), real parts and imaginary ones
Out      (batch, 2 * n * m + 2 * n * n + 2 * n): W rotated, and V, which was the unit matrix, rotated alike, both real
         parts and imaginary ones; the lengths of W's rows; their order, from the longest
Next     jacobi.py (the same of real rows), more/linalg/unitary.py (who asks), pairs.py (complex numbers)

Two rows' product has a phase: the second row is turned by it, and then both are rotated as real ones are.
"""

from __future__ import annotations

from hcq.compiler.routines.jacobi import sweep, turn
from hcq.compiler.routines.pairs import Pair, PairArray
from hcq.compiler.routines.writer import Columns, Number, Variable, Writer


def layout(batch: int, n: int, m: int) -> tuple[int, int]:
    """(groups, columns of the widest loop)."""
    return batch, max(m, n)


def write(w: Writer, batch: int, n: int, m: int) -> None:
    """The routine."""
    start = w.group * (2 * n * m + 2 * n * n + 2 * n)
    beside = start + 2 * n * m
    source = PairArray(w.array(1, w.group * (n * m), m), w.array(2, w.group * (n * m), m))
    a = PairArray(w.array(0, start, m), w.array(0, start + n * m, m))
    v = PairArray(w.array(0, beside, n), w.array(0, beside + n * n, n))
    lengths = w.array(0, beside + 2 * n * n)
    order = w.array(0, beside + (2 * n * n + n))
    zero = Pair(w.constant(0.0), w.constant(0.0))
    for i in w.range(0, n):
        for c in w.columns(0, m, m):
            a[i, c] = source[i, c]
        for c in w.columns(0, n, n):
            v[i, c] = zero
    w.barrier()
    for i in w.elements(0, n):
        v[i, i] = Pair(w.constant(1.0), zero.imag)
    w.barrier()

    def pair(p: Number, q: Number, epsilon: float, is_open: Variable) -> None:
        _pair(w, a, v, p, q, m, n, epsilon, is_open)

    sweep(w, n, m, pair, lambda i, c: a[i, c].square(), lengths, order)


def _pair(
    w: Writer,
    a: PairArray,
    v: PairArray,
    p: Number,
    q: Number,
    m: int,
    n: int,
    epsilon: float,
    is_open: Variable,
) -> None:
    """Rotate two rows so that they are at right angles, if they are not."""

    def products(c: Columns) -> list[Number]:
        one, other = a[p, c], a[q, c]
        return [one.square(), other.square(), *(one.conj() * other)]

    alpha, beta, real, imag = w.sums(0, m, m, products, 4)
    gamma = Pair(real, imag).size()
    for _ in w.when(alpha.sqrt() * beta.sqrt() * epsilon < gamma):
        back = Pair(real / gamma, -(imag / gamma))
        cosine, sine = turn(w, alpha, beta, gamma)
        for rows, count in ((a, m), (v, n)):
            for c in w.columns(0, count, count):
                one, other = rows[p, c], rows[q, c] * back
                rows[p, c] = one * cosine - other * sine
                rows[q, c] = one * sine + other * cosine
        is_open.set(1.0)
