"""Eigenvectors: those of a complex upper triangle T, as columns of an upper triangle X: T X = X diag(T).

In       what schur.py stores
Out      (batch, 2 * n * n + 2 * n): X, real parts and imaginary ones; T's diagonal, likewise
Next     frontend/more/linalg/eigen.py (who asks for it), pairs.py (complex numbers)

Row by row from the last; the columns are independent. On its diagonal X has a small number instead of one, so that
vectors of eigenvalues that nearly agree stay in range. Where two do agree, their difference is taken for a rounding
error.
"""

from __future__ import annotations

from hcq.compiler.routines.pairs import Pair, PairArray, line, planes, variable
from hcq.compiler.routines.writer import Writer
from hcq.ir.dtype import dtypes


def layout(batch: int, n: int) -> tuple[int, int]:
    """(groups, columns of the widest loop)."""
    return batch, n


def write(w: Writer, batch: int, n: int) -> None:
    """The routine."""
    begin = w.group * (4 * n * n + 3 * n + 5)
    t = PairArray(w.array(1, begin, n), w.array(1, begin + n * n, n))
    start = w.group * (2 * n * n + 2 * n)
    x, values = planes(w, 0, start, n), line(w, 0, start + 2 * n * n, n)
    epsilon, unit = (2.0**-23, 2.0**-50) if w.dtype is dtypes.float32 else (2.0**-52, 2.0**-400)
    zero = w.constant(0.0)
    for i in w.range(0, n):
        for c in w.columns(0, n, n):
            x[i, c] = Pair(zero, zero)
    w.barrier()
    for i in w.elements(0, n):
        x[i, i] = Pair(w.constant(unit), zero)
        values[i] = t[i, i]
    w.barrier()
    for turn in w.range(0, n - 1, "turn"):
        i = -turn + (n - 2)
        own = t[i, i]
        for c in w.columns(i + 1, n, n):
            sum_of = variable(w, t[i, i + 1] * x[i + 1, c])
            for j in w.range(i + 2, n, "j"):
                sum_of.set(sum_of.value + t[i, j] * x[j, c])
            apart = values[c] - own
            # of a matrix whose greatest element is 1
            is_one = apart.real.size() + apart.imag.size() < epsilon
            apart = Pair(w.where(is_one, epsilon, apart.real), w.where(is_one, 0.0, apart.imag))
            x[i, c] = sum_of.value.over(apart)
        w.barrier()
