"""Schur: A = W^H T W of a complex square matrix, with a T that is zero below its diagonal: eigenvalues are on it.

In       what hessenberg.py stores
Out      (batch, 4 * n * n + 3 * n + 5): T, real parts and imaginary ones; W, likewise; room to work in, and last the
         info: 0, or the number of eigenvalues that were not found
Next     eigenvectors.py (of T), frontend/more/linalg/eigen.py (who asks for it), pairs.py (complex numbers)
Source   The QR iteration with Wilkinson's shift, one at a time, as in EISPACK's comqr2

A sweep turns pairs of rows, one after the other, so that what is below the diagonal is zero, and writes the rotations
down. Then they are applied to pairs of columns, where each row is on its own, and to the rows of W, where each
column is.
"""

from __future__ import annotations

from hcq.compiler.routines.pairs import Pair, PairArray, hypot, line, planes, variable
from hcq.compiler.routines.writer import Array, Number, Writer
from hcq.ir.dtype import dtypes

SWEEPS = 60  # for one eigenvalue, at most: it takes two or three


def layout(batch: int, n: int) -> tuple[int, int]:
    """(groups, columns of the widest loop)."""
    return batch, n


def write(w: Writer, batch: int, n: int) -> None:
    """The routine."""
    start = w.group * (4 * n * n + 3 * n + 5)
    source = w.array(1, w.group * (4 * n * n + 2 * n), n)
    whole = w.array(0, start, n)
    t, turned = planes(w, 0, start, n), planes(w, 0, start + 2 * n * n, n)
    cosines = w.array(0, start + 4 * n * n)
    sines = line(w, 0, start + (4 * n * n + n), n)
    # where a block begins; the shift; whether it is a number; the info
    flags = w.array(0, start + (4 * n * n + 3 * n))
    missing = w.variable(0.0)
    for i in w.range(0, 4 * n):
        for c in w.columns(0, n, n):
            whole[i, c] = source[i, c]
    w.barrier()
    for turn in w.range(0, n, "turn"):
        high = -turn + (n - 1)
        is_open = w.variable(1.0)
        for sweep in w.range(0, SWEEPS, "sweep"):
            for _ in w.when(is_open.value > 0.0):
                for _ in w.one_thread():
                    _look(w, t, flags, high, sweep, n)
                w.barrier()
                low = w.as_index(flags[0], n - 1)
                shift = Pair(flags[1], flags[2])
                goes_on = (low < high) & (flags[3] > 0.0)
                is_open.set(w.where(goes_on, w.constant(1.0), 0.0))
                for _ in w.when(is_open.value > 0.0):
                    _sweep(w, t, turned, cosines, sines, low, high, shift, n)
                w.barrier()
        missing.set(missing.value + is_open.value)
    w.barrier()
    for _ in w.one_thread():
        flags[4] = missing.value


def _look(w: Writer, t: PairArray, flags: Array, high: Number, sweep: Number, n: int) -> None:
    """Find where the block that ends at `high` begins, and the shift, an eigenvalue of its last two rows."""
    epsilon, least = (2.0**-23, 2.0**-100) if w.dtype is dtypes.float32 else (2.0**-52, 2.0**-900)
    begin = w.variable(0.0)
    for i in w.range(1, high + 1):
        beside = _about(t[i, i]) + _about(t[i - 1, i - 1])
        is_small = _about(t[i, i - 1]) <= beside * epsilon + least
        begin.set(w.where(is_small, w.as_float(i), begin.value))
    flags[0] = begin.value
    before = w.at_least(high - 1, 0)
    a, b, c, d = t[before, before], t[before, high], t[high, before], t[high, high]
    half = (a - d) * 0.5
    product = b * c
    root = (half * half + product).root()
    is_against = half.real * root.real + half.imag * root.imag < 0.0
    away = half + Pair(w.where(is_against, -root.real, root.real), w.where(is_against, -root.imag, root.imag))
    is_zero = _about(away).equals(0.0)
    away = Pair(w.where(is_zero, 1.0, away.real), away.imag)
    shift = d - product.over(away)
    is_stuck = (sweep % 10).equals(9)  # a shift of another kind, where the same ones come again and again
    shift = Pair(
        w.where(is_stuck, _about(c) * 0.75 + d.real, shift.real), w.where(is_stuck, d.imag, shift.imag)
    )
    flags[1] = shift.real
    flags[2] = shift.imag
    total = _about(shift)
    flags[3] = w.where(total < float("inf"), w.constant(1.0), 0.0)  # no eigenvalue comes of NaN


def _about(z: Pair) -> Number:
    return z.real.size() + z.imag.size()


def _sweep(
    w: Writer,
    t: PairArray,
    turned: PairArray,
    cosines: Array,
    sines: PairArray,
    low: Number,
    high: Number,
    shift: Pair,
    n: int,
) -> None:
    """One step of QR of the block low .. high, and what it does to the rest of T and to W."""
    for i in w.elements(low, high + 1):
        t[i, i] = t[i, i] - shift
    w.barrier()
    for k in w.range(low, high, "k"):
        x, y = t[k, k], t[k + 1, k]
        size, below = x.size(), y.size()
        r = hypot(size, below)
        is_zero, is_none = size.equals(0.0), r.equals(0.0)
        unit, divisor = w.where(is_zero, 1.0, size), w.where(is_none, 1.0, r)
        phase = Pair(w.where(is_zero, 1.0, x.real / unit), w.where(is_zero, 0.0, x.imag / unit))
        cosine = w.where(is_none, 1.0, size / divisor)
        sine = (phase * y.conj()) * (1.0 / divisor)
        w.barrier()  # all have read the two
        for _ in w.one_thread():
            cosines[k] = cosine
            sines[k] = sine
        for c in w.columns(k, n, n):
            upper, lower = t[k, c], t[k + 1, c]
            t[k, c] = upper * cosine + sine * lower
            t[k + 1, c] = lower * cosine - sine.conj() * upper
        w.barrier()
    for i in w.elements(0, high + 1):
        first = w.at_least(w.at_least(low, i - 1), 0)
        moved = variable(w, t[i, w.at_most(first, high)])
        for k in w.range(first, high, "k"):
            cosine, sine = cosines[k], sines[k]
            left, right = moved.value, t[i, k + 1]
            t[i, k] = left * cosine + right * sine.conj()
            moved.set(right * cosine - left * sine)
        t[i, high] = moved.value
    for c in w.columns(0, n, n):
        above = variable(w, turned[low, c])
        for k in w.range(low, high, "k"):
            cosine, sine = cosines[k], sines[k]
            upper, lower = above.value, turned[k + 1, c]
            turned[k, c] = upper * cosine + sine * lower
            above.set(lower * cosine - sine.conj() * upper)
        turned[high, c] = above.value
    w.barrier()
    for i in w.elements(low, high + 1):
        t[i, i] = t[i, i] + shift
