"""LDL: A = P L D L.T P.T of a symmetric matrix, D having blocks of one or two rows.

In       (batch, n, n), symmetric
Out      (batch, n * n + n + 1): L below the diagonal blocks of D; LAPACK's pivots: from 1 the row that row k was
         exchanged with, both rows of a block of two minus that; the info: 0, or the number of a block of zeros
Next     ldl_solve.py (who uses it), frontend/more/linalg/indefinite.py (who asks for it)
Source   Bunch and Kaufman's partial pivoting, as LAPACK's sytf2 has it

Rows and columns are exchanged in what is left of the matrix, which is whole, both halves. Columns of L that were found
before stay as they are.
"""

from __future__ import annotations

from hcq.compiler.routines.writer import Array, Number, Writer
from hcq.ir.op import Op

ALPHA = (1 + 17**0.5) / 8


def layout(batch: int, n: int) -> tuple[int, int]:
    """(groups, columns of the widest loop)."""
    return batch, n


def write(w: Writer, batch: int, n: int) -> None:
    """The routine."""
    start = w.group * (n * n + n + 1)
    source = w.array(1, w.group * (n * n), n)
    a = w.array(0, start, n)
    pivots = w.array(0, start + n * n)
    info, skipped = w.variable(0.0), w.variable(0.0)
    for i in w.range(0, n):
        for c in w.columns(0, n, n):
            a[i, c] = source[i, c]
    w.barrier()
    for k in w.range(0, n, "k"):
        for _ in w.when(skipped.value > 0.0):
            skipped.set(2.0)  # the second row of a block: done
        for _ in w.when(skipped.value.equals(0.0)):
            kind, place = _pivot(w, a, k, n)
            is_two = kind.equals(2.0)
            moved = w.where(is_two, k + 1, k)
            for _ in w.one_thread():
                pivots[k] = w.where(is_two, -(w.as_float(place) + 1.0), w.as_float(place) + 1.0)
                for _ in w.when(is_two):
                    pivots[k + 1] = -(w.as_float(place) + 1.0)
            _exchange(w, a, moved, place, k, n)
            is_zero = kind.equals(0.0)
            info.set(w.where(is_zero & info.value.equals(0.0), w.as_float(k + 1), info.value))
            for _ in w.when(kind.equals(1.0)):
                _one(w, a, k, n)
            for _ in w.when(is_two):
                _two(w, a, k, n)
            skipped.set(w.where(is_two, w.constant(1.0), 0.0))
        skipped.set(w.where(skipped.value.equals(2.0), 0.0, skipped.value))
    for _ in w.one_thread():
        pivots[n] = info.value


def _largest(
    w: Writer, a: Array, row: Number, low: Number, high: Number | int, besides: Number | None
) -> Number:
    """The size of the largest element of a part of a row, but for one."""
    best = w.variable(0.0)
    for i in w.elements(low, high):
        size = a[row, i].size()
        if besides is not None:
            size = w.where(i.equals(besides), 0.0, size)
        best.set(w.where(size > best.value, size, best.value))
    return w.across(Op.MAX, best.value)[0]


def _pivot(w: Writer, a: Array, k: Number, n: int) -> tuple[Number, Number]:
    """(how many rows the next block has, 0 for one of zeros; the row that its last one is exchanged with)."""
    diagonal = a[k, k].size()
    most = _largest(w, a, k, k + 1, n, None)
    first = w.variable(float(n))
    for i in w.elements(k + 1, n):
        is_it = a[k, i].size().equals(most) & (w.as_float(i) < first.value)
        first.set(w.where(is_it, w.as_float(i), first.value))
    (found,) = w.across(Op.MIN, first.value)
    row = w.as_index(found, n - 1)
    beside = _largest(w, a, row, k, n, row)
    own = a[row, row].size()
    is_zero = (diagonal.equals(0.0)) & (most.equals(0.0))
    stays = (diagonal >= most * ALPHA) | (diagonal * beside >= most * most * ALPHA)
    stays = stays | k.equals(n - 1)  # of NaN, too: there is no row below to make a block with
    is_one = own >= beside * ALPHA
    kind = w.where(is_zero, 0.0, w.where(stays | is_one, w.constant(1.0), 2.0))
    return kind, w.where(is_zero | stays, k, row)


def _exchange(w: Writer, a: Array, one: Number, other: Number, k: Number, n: int) -> None:
    """Two rows and two columns of what is left, from k on."""
    w.barrier()
    for c in w.columns(k, n, n):
        upper, lower = a[one, c], a[other, c]
        a[one, c] = lower
        a[other, c] = upper
    w.barrier()
    for i in w.elements(k, n):
        left, right = a[i, one], a[i, other]
        a[i, one] = right
        a[i, other] = left
    w.barrier()


def _one(w: Writer, a: Array, k: Number, n: int) -> None:
    """A block of one row: its part of all rows below goes, and a column of L is there."""
    pivot = a[k, k]
    for i in w.range(k + 1, n):
        factor = -(a[k, i] / pivot)
        for c in w.columns(k + 1, n, n):
            a[i, c] = a[i, c] + factor * a[k, c]
    for i in w.elements(k + 1, n):
        a[i, k] = a[k, i] / pivot
    w.barrier()


def _two(w: Writer, a: Array, k: Number, n: int) -> None:
    """The same of a block of two rows."""
    beside = a[k, k + 1]
    upper, lower = a[k + 1, k + 1] / beside, a[k, k] / beside
    scale = 1.0 / ((upper * lower - 1.0) * beside)
    for i in w.range(k + 2, n):
        first = (a[k, i] * upper - a[k + 1, i]) * scale
        second = (a[k + 1, i] * lower - a[k, i]) * scale
        for c in w.columns(k + 2, n, n):
            a[i, c] = a[i, c] + -first * a[k, c] + -second * a[k + 1, c]
    for i in w.elements(k + 2, n):
        one, other = a[k, i], a[k + 1, i]
        a[i, k] = (one * upper - other) * scale
        a[i, k + 1] = (other * lower - one) * scale
    w.barrier()
