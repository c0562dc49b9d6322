"""QL: eigenvalues and eigenvectors of a symmetric matrix of three diagonals, by the implicit QL iteration.

In       (batch, 2 * n): the diagonal, and what is beside it, of which the last element counts for nothing
Out      (batch, n * n + 5 * n + 2): eigenvectors as rows; eigenvalues; the order from the least to the greatest; room
         to work in. Without vectors the first n * n elements are missing
Next     tridiagonal.py (where such matrices come from), frontend/more/linalg/spectra.py (who asks for it)
Source   EISPACK, imtql2: Wilkinson's shift, and plane rotations that chase what it brings in from bottom to top

Rotations of a sweep are found one after the other, by one thread, and written down. Then they are applied to the
vectors' columns, which are independent: a column goes through all of them in registers.
"""

from __future__ import annotations

from hcq.compiler.routines.ordering import store_order
from hcq.compiler.routines.writer import Array, Number, Writer
from hcq.ir.dtype import dtypes

SWEEPS = 50  # for one eigenvalue, at most: it takes two


def layout(batch: int, n: int, has_vectors: int) -> tuple[int, int]:
    """(groups, columns of the widest loop)."""
    return batch, n


def write(w: Writer, batch: int, n: int, has_vectors: int) -> None:
    """The routine."""
    vectors = n * n if has_vectors else 0
    start = w.group * (vectors + 5 * n + 2)
    source = w.array(1, w.group * (2 * n))
    z = w.array(0, start, n)
    d, order, e, cosines, sines, flags = (w.array(0, start + (vectors + place * n)) for place in range(6))
    epsilon = 2.0**-23 if w.dtype is dtypes.float32 else 2.0**-52
    for i in w.elements(0, n):
        d[i] = source[i]
        e[i] = source[i + n]
    if has_vectors:
        for i in w.range(0, n):
            for c in w.columns(0, n, n):
                z[i, c] = 0.0
        w.barrier()
        for i in w.elements(0, n):
            z[i, i] = 1.0
    w.barrier()
    for low in w.range(0, n):
        is_open = w.variable(1.0)
        for _ in w.range(0, SWEEPS, "sweep"):
            for _ in w.when(is_open.value > 0.0):
                for _ in w.one_thread():
                    _sweep(w, d, e, cosines, sines, flags, low, n, epsilon)
                w.barrier()
                end = w.as_index(flags[0], n - 1)
                is_open.set(w.where(low < end, w.constant(1.0), 0.0))
                if has_vectors:
                    for c in w.columns(0, n, n):
                        moved = w.variable(z[end, c])
                        for turn in w.range(0, end - low):
                            i = end - turn - 1
                            here, cosine, sine = z[i, c], cosines[i], sines[i]
                            z[i + 1, c] = here * sine + moved.value * cosine
                            moved.set(here * cosine + moved.value * -sine)
                        z[low, c] = moved.value
                w.barrier()
    store_order(w, d, order, n, False)


def _sweep(
    w: Writer,
    d: Array,
    e: Array,
    cosines: Array,
    sines: Array,
    flags: Array,
    low: Number,
    n: int,
    epsilon: float,
) -> None:
    """Find where the block that begins at `low` ends, and the rotations that bring its first eigenvalue out."""
    end = w.variable(w.as_float(n - 1))
    for i in w.range(low, n - 1):
        is_small = e[i].size() <= (d[i].size() + d[i + 1].size()) * epsilon
        is_first = is_small & (w.as_float(i) < end.value)
        end.set(w.where(is_first, w.as_float(i), end.value))
    flags[0] = end.value
    last = w.as_index(end.value, n - 1)
    for _ in w.when(low < last):
        beside = e[low]
        g = (d[low + 1] - d[low]) / (beside * 2.0)
        r = (g * g + 1.0).sqrt()
        shifted = d[last] - d[low] + beside / (g + w.where(g < 0.0, -r, r))
        g_now, sine, cosine, p = w.variable(shifted), w.variable(1.0), w.variable(1.0), w.variable(0.0)
        for turn in w.range(0, last - low):
            i = last - turn - 1
            beside = e[i]
            f, b = sine.value * beside, cosine.value * beside
            g = g_now.value * 1.0
            # the longer side is taken out of the root, so that squares neither overflow nor vanish
            long = w.where(f.size() < g.size(), g.size(), f.size())
            is_zero = long.equals(0.0)
            unit = w.where(is_zero, 1.0, long)
            r = ((f / unit) * (f / unit) + (g / unit) * (g / unit)).sqrt() * long
            e[i + 1] = r
            divisor = w.where(is_zero, 1.0, r)
            s = w.where(is_zero, 0.0, f / divisor)
            c = w.where(is_zero, 1.0, g / divisor)
            g = d[i + 1] - p.value
            r = (d[i] - g) * s + c * b * 2.0
            p.set(s * r)
            d[i + 1] = g + s * r
            g_now.set(c * r - b)
            sine.set(s)
            cosine.set(c)
            cosines[i] = c
            sines[i] = s
        d[low] = d[low] - p.value
        e[low] = g_now.value
        e[last] = 0.0
