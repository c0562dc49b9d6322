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
    epsilon = (2.0**-23 if w.dtype is dtypes.float32 else 2.0**-52) * max(m, 4) ** 0.5
    is_open = w.variable(1.0)
    for _ in w.range(0, SWEEPS, "sweep"):
        for _ in w.when(is_open.value > 0.0):
            is_open.set(0.0)
            for p in w.range(0, n - 1, "p"):
                for q in w.range(p + 1, n, "q"):
                    _pair(w, a, v, p, q, m, k, epsilon, is_open)
    for i in w.range(0, n):
        (length,) = w.sums(0, m, m, _square_of(a, i), 1)
        for _ in w.one_thread():
            lengths[i] = length.sqrt()
    w.barrier()
    store_order(w, lengths, order, n, True)


def _square_of(rows: Array, i: Number) -> Callable[[Columns], list[Number]]:
    return lambda c: [rows[i, c] * rows[i, c]]


def _pair(
    w: Writer,
    a: Array,
    v: Array,
    p: Number,
    q: Number,
    m: int,
    k: int,
    epsilon: float,
    is_open: Variable,
) -> None:
    """Rotate two rows so that they are at right angles, if they are not."""

    def products(c: Columns) -> list[Number]:
        one, other = a[p, c], a[q, c]
        return [one * one, other * other, one * other]

    alpha, beta, gamma = w.sums(0, m, m, products, 3)
    for _ in w.when(alpha.sqrt() * beta.sqrt() * epsilon < gamma.size()):
        zeta = (beta - alpha) / (gamma * 2.0)
        size = zeta.size()
        tangent = 1.0 / (size + (zeta * zeta + 1.0).sqrt())
        tangent = w.where(zeta < 0.0, -tangent, tangent)
        cosine = 1.0 / (tangent * tangent + 1.0).sqrt()
        sine = cosine * tangent
        for rows, count in ((a, m), (v, k)):
            for c in w.columns(0, count, count):
                one, other = rows[p, c], rows[q, c]
                rows[p, c] = cosine * one + -sine * other
                rows[q, c] = sine * one + cosine * other
        is_open.set(1.0)
