"""Triangular: X with L @ X = B, of a triangular matrix L, by substitution.

In       L (batch, n, n), of which the other half is not looked at, and B (batch, n, k)
Out      X (batch, n, k)
Next     writer.py (the words), frontend/more/linalg/factors.py (who asks for it)

The columns of B have nothing to do with each other: each group solves for some of them, each vector or thread for
others of these, with sums in registers and no waiting.
"""

from __future__ import annotations

from hcq.compiler.routines.writer import Writer

CHUNK = 64  # columns of a group


def layout(batch: int, n: int, k: int, is_lower: int, is_unit: int) -> tuple[int, int]:
    """(groups, columns of the widest loop)."""
    return batch * -(-k // CHUNK), min(k, CHUNK)


def write(w: Writer, batch: int, n: int, k: int, is_lower: int, is_unit: int) -> None:
    """The routine."""
    chunks = -(-k // CHUNK)
    matrix = w.group // chunks
    low = (w.group % chunks) * CHUNK
    t = w.array(1, matrix * (n * n), n)
    b = w.array(2, matrix * (n * k), k)
    x = w.array(0, matrix * (n * k), k)
    for c in w.columns(low, w.at_most(low + CHUNK, k), min(k, CHUNK)):
        for turn in w.range(0, n):
            i = turn if is_lower else -turn + (n - 1)
            left = w.variable(b[i, c])
            for j in w.range(0 if is_lower else i + 1, i if is_lower else n, "j"):
                left.set(left.value + -t[i, j] * x[j, c])
            x[i, c] = left.value if is_unit else left.value / t[i, i]
