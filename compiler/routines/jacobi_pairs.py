"""Jacobi pairs: rotates complex rows against each other until all are at right angles: jacobi.py of complex numbers.

In       W (batch, n, m), real parts and imaginary ones
Out      (batch, 2 * n * m + 2 * n * n + 2 * n): W rotated, and V, which was the unit matrix, rotated alike, both real
         parts and imaginary ones; the lengths of W's rows; their order, from the longest
Next     jacobi.py (the same of real rows), more/linalg/unitary.py (who asks), pairs.py (complex numbers)

Two rows' product has a phase: the second row is turned by it, and then both are rotated as real ones are.
"""

from __future__ import annotations

from hcq.compiler.routines.ordering import store_order
from hcq.compiler.routines.pairs import Pair, PairArray
from hcq.compiler.routines.writer import Columns, Number, Variable, Writer
from hcq.ir.dtype import dtypes

SWEEPS = 40  # at most: it takes five to ten


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
    epsilon = (2.0**-23 if w.dtype is dtypes.float32 else 2.0**-52) * max(m, 4) ** 0.5
    is_open = w.variable(1.0)
    for _ in w.range(0, SWEEPS, "sweep"):
        for _ in w.when(is_open.value > 0.0):
            is_open.set(0.0)
            for p in w.range(0, n - 1, "p"):
                for q in w.range(p + 1, n, "q"):
                    _pair(w, a, v, p, q, m, n, epsilon, is_open)
    for i in w.range(0, n):

        def squares(c: Columns, i: Number = i) -> list[Number]:
            return [a[i, c].square()]

        (length,) = w.sums(0, m, m, squares, 1)
        for _ in w.one_thread():
            lengths[i] = length.sqrt()
    w.barrier()
    store_order(w, lengths, order, n, True)


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
        zeta = (beta - alpha) / (gamma * 2.0)
        tangent = 1.0 / (zeta.size() + (zeta * zeta + 1.0).sqrt())
        tangent = w.where(zeta < 0.0, -tangent, tangent)
        cosine = 1.0 / (tangent * tangent + 1.0).sqrt()
        sine = cosine * tangent
        for rows, count in ((a, m), (v, n)):
            for c in w.columns(0, count, count):
                one, other = rows[p, c], rows[q, c] * back
                rows[p, c] = one * cosine - other * sine
                rows[q, c] = one * sine + other * cosine
        is_open.set(1.0)
