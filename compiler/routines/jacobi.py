"""Jacobi: rotates rows against each other until all are at right angles: singular values are then their lengths.

In       W (batch, n, m), and V (batch, n, k), whose rows are rotated alike
Out      (batch, n * m + n * k + 2 * n): W and V rotated; the lengths of W's rows; their order, from the longest
Next     frontend/more/linalg/spectra.py (who asks for it), writer.py (the words)
Source   Hestenes' one-sided Jacobi method: relative precision also of small singular values

All pairs in order, sweep after sweep, until a sweep rotates none. A column stays with its vector or thread, so
that threads meet in the sums alone.
"""

from __future__ import annotations

from collections.abc import Callable

from hcq.compiler.routines.ordering import store_order
from hcq.compiler.routines.writer import Array, Columns, Number, Variable, Writer
from hcq.ir.dtype import dtypes

SWEEPS = 40  # at most: it takes five to ten, fewer where rows come nearly at right angles


def layout(batch: int, n: int, m: int, k: int) -> tuple[int, int]:
    """(groups, columns of the widest loop)."""
    return batch, max(m, k)


def write(w: Writer, batch: int, n: int, m: int, k: int) -> None:
    """The routine."""
    start = w.group * (n * m + n * k + 2 * n)
    a = w.array(0, start, m)
    v = w.array(0, start + n * m, k)
    lengths = w.array(0, start + (n * m + n * k))
    order = w.array(0, start + (n * m + n * k + n))
    sources = [w.array(1, w.group * (n * m), m), w.array(2, w.group * (n * k), k)]
    for i in w.range(0, n):
        for c in w.columns(0, m, m):
            a[i, c] = sources[0][i, c]
        for c in w.columns(0, k, k):
            v[i, c] = sources[1][i, c]

    def pair(p: Number, q: Number, epsilon: float, is_open: Variable) -> None:
        _pair(w, a, v, p, q, m, k, epsilon, is_open)

    sweep(w, n, m, pair, lambda i, c: a[i, c] * a[i, c], lengths, order)


def sweep(
    w: Writer,
    n: int,
    m: int,
    pair: Callable[[Number, Number, float, Variable], None],
    square: Callable[[Number, Columns], Number],
    lengths: Array,
    order: Array,
) -> None:
    """Turn each pair of n rows of m elements until all are at right angles; then their lengths, and by these an order.

    square   of a row: the squares of the sizes of some of its elements
    """
    epsilon = (2.0**-23 if w.dtype is dtypes.float32 else 2.0**-52) * max(m, 4) ** 0.5
    is_open = w.variable(1.0)
    for _ in w.range(0, SWEEPS, "sweep"):
        for _ in w.when(is_open.value > 0.0):
            is_open.set(0.0)
            for p in w.range(0, n - 1, "p"):
                for q in w.range(p + 1, n, "q"):
                    pair(p, q, epsilon, is_open)
    for i in w.range(0, n):

        def squares(c: Columns, i: Number = i) -> list[Number]:
            return [square(i, c)]

        (length,) = w.sums(0, m, m, squares, 1)
        for _ in w.one_thread():
            lengths[i] = length.sqrt()
    w.barrier()
    store_order(w, lengths, order, n, True)


def turn(w: Writer, alpha: Number, beta: Number, gamma: Number) -> tuple[Number, Number]:
    """(cosine, sine) of the turn after which two rows are at right angles: of their squares and their product."""
    zeta = (beta - alpha) / (gamma * 2.0)
    size = zeta.size()
    tangent = 1.0 / (size + (zeta * zeta + 1.0).sqrt())
    tangent = w.where(zeta < 0.0, -tangent, tangent)
    cosine = 1.0 / (tangent * tangent + 1.0).sqrt()
    return cosine, cosine * tangent


def _pair(
    w: Writer, a: Array, v: Array, p: Number, q: Number, m: int, k: int, epsilon: float, is_open: Variable
) -> None:
    """Rotate two rows so that they are at right angles, if they are not."""

    def products(c: Columns) -> list[Number]:
        one, other = a[p, c], a[q, c]
        return [one * one, other * other, one * other]

    alpha, beta, gamma = w.sums(0, m, m, products, 3)
    for _ in w.when(alpha.sqrt() * beta.sqrt() * epsilon < gamma.size()):
        cosine, sine = turn(w, alpha, beta, gamma)
        for rows, count in ((a, m), (v, k)):
            for c in w.columns(0, count, count):
                one, other = rows[p, c], rows[q, c]
                rows[p, c] = cosine * one + -sine * other
                rows[q, c] = sine * one + cosine * other
        is_open.set(1.0)
