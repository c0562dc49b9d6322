"""LDL solve: X with A @ X = B, of the A that ldl.py took apart.

In       LD (batch, n, n), of which the lower half is looked at; LAPACK's pivots (batch, n); B (batch, n, k)
Out      (batch, n, k)
Next     ldl.py (who makes LD)

The columns of B have nothing to do with each other: each goes through all steps by itself, down with L and the blocks
of D, then up with L.T.
"""

from __future__ import annotations

from hcq.compiler.routines.writer import Array, Columns, Number, Writer

CHUNK = 64  # columns of a group


def layout(batch: int, n: int, k: int) -> tuple[int, int]:
    """(groups, columns of the widest loop)."""
    return batch * -(-k // CHUNK), min(k, CHUNK)


def write(w: Writer, batch: int, n: int, k: int) -> None:
    """The routine."""
    chunks = -(-k // CHUNK)
    matrix = w.group // chunks
    low = (w.group % chunks) * CHUNK
    a = w.array(1, matrix * (n * n), n)
    pivots = w.array(2, matrix * n)
    b = w.array(3, matrix * (n * k), k)
    x = w.array(0, matrix * (n * k), k)
    for c in w.columns(low, w.at_most(low + CHUNK, k), min(k, CHUNK)):
        for i in w.range(0, n):
            x[i, c] = b[i, c]
        second = w.variable(0.0)  # whether this is the second row of a block
        for i in w.range(0, n):
            is_two = pivots[i] < 0.0
            is_second = second.value > 0.0
            for _ in w.when(is_two.negated()):
                _exchange(w, x, c, i, w.as_index(pivots[i] - 1.0, n - 1))
                _down(w, a, x, c, i, i + 1, n)
                x[i, c] = x[i, c] / a[i, i]
            for _ in w.when(is_two & is_second.negated()):
                after = w.at_most(i + 1, n - 1)
                _exchange(w, x, c, after, w.as_index(-pivots[i] - 1.0, n - 1))
                _down(w, a, x, c, i, i + 2, n)
                _down(w, a, x, c, after, i + 2, n)
                beside = a[after, i]
                upper, lower = a[i, i] / beside, a[after, after] / beside
                scale = upper * lower - 1.0
                one, other = x[i, c] / beside, x[after, c] / beside
                x[i, c] = (one * lower - other) / scale
                x[after, c] = (other * upper - one) / scale
            second.set(w.where(is_two & is_second.negated(), w.constant(1.0), 0.0))
        second.set(0.0)
        for turn in w.range(0, n):
            i = -turn + (n - 1)
            is_two = pivots[i] < 0.0
            is_second = second.value > 0.0
            for _ in w.when(is_two.negated()):
                _up(w, a, x, c, i, i + 1, n)
                _exchange(w, x, c, i, w.as_index(pivots[i] - 1.0, n - 1))
            for _ in w.when(is_two & is_second.negated()):
                before = w.at_least(i - 1, 0)
                _up(w, a, x, c, i, i + 1, n)
                _up(w, a, x, c, before, i + 1, n)
                _exchange(w, x, c, i, w.as_index(-pivots[i] - 1.0, n - 1))
            second.set(w.where(is_two & is_second.negated(), w.constant(1.0), 0.0))


def _exchange(w: Writer, x: Array, c: Columns, one: Number, other: Number) -> None:
    upper, lower = x[one, c], x[other, c]
    x[one, c] = lower
    x[other, c] = upper


def _down(w: Writer, a: Array, x: Array, c: Columns, j: Number, low: Number, n: int) -> None:
    """What row j has to do with the rows from `low` on."""
    here = x[j, c]
    for i in w.range(low, n):
        x[i, c] = x[i, c] + -a[i, j] * here


def _up(w: Writer, a: Array, x: Array, c: Columns, j: Number, low: Number, n: int) -> None:
    """What the rows from `low` on have to do with row j."""
    left = w.variable(x[j, c])
    for i in w.range(low, n):
        left.set(left.value + -a[i, j] * x[i, c])
    x[j, c] = left.value
