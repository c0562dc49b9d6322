"""Householder: A = Q R, of which R and the reflections that Q is made of are stored, as LAPACK's geqrf stores them.

In       (batch, m, n)
Out      (batch, m * n + k + m), k = min(m, n): R, and below it the vectors of the reflections, less their leading ones;
         their factors tau; room to work in
Next     frontend/more/linalg/orthogonal.py (who asks for it)

Column by column: the reflection I - tau * v @ v.T that takes what is below the diagonal to zero, then what it does to
the columns behind, each of which is on its own.
"""

from __future__ import annotations

from hcq.compiler.routines.writer import Columns, Number, Writer


def layout(batch: int, m: int, n: int) -> tuple[int, int]:
    """(groups, columns of the widest loop)."""
    return batch, max(m, n)


def write(w: Writer, batch: int, m: int, n: int) -> None:
    """The routine."""
    steps = min(m, n)
    size = m * n + steps + m
    a = w.array(1, w.group * (m * n), n)
    r = w.array(0, w.group * size, n)
    taus = w.array(0, w.group * size + m * n)
    v = w.array(0, w.group * size + (m * n + steps))
    for i in w.range(0, m):
        for c in w.columns(0, n, n):
            r[i, c] = a[i, c]
    w.barrier()
    for j in w.range(0, steps):
        for i in w.elements(j, m):
            v[i] = r[i, j]
        w.barrier()

        def square(c: Columns) -> list[Number]:
            return [v[c] * v[c]]

        (rest,) = w.sums(j + 1, m, m, square, 1)
        tau, beta, scale = reflection(w, v[j], rest)
        w.barrier()  # all have read v
        for c in w.columns(j, m, m):
            v[c] = v[c] * scale
        w.barrier()
        for _ in w.one_thread():
            v[j] = 1.0
            taus[j] = tau
            r[j, j] = beta
        for i in w.elements(j + 1, m):
            r[i, j] = v[i]
        w.barrier()
        for c in w.columns(j + 1, n, n):
            along = w.variable(r[j, c])
            for i in w.range(j + 1, m):
                along.set(along.value + v[i] * r[i, c])
            part = -(along.value * tau)
            for i in w.range(j, m):
                r[i, c] = r[i, c] + v[i] * part
        w.barrier()


def reflection(w: Writer, alpha: Number, rest: Number) -> tuple[Number, Number, Number]:
    """(tau, beta, scale) for a vector of first element alpha, the squares of whose other elements sum up to `rest`.

    The reflection takes the vector to beta times the first axis; its own vector is 1, and the others times `scale`.
    """
    is_done = rest.equals(0.0)
    norm = (alpha * alpha + rest).sqrt()
    beta = w.where(is_done, alpha, w.where(alpha < 0.0, norm, -norm))
    divisor = w.where(is_done, 1.0, beta)
    tau = w.where(is_done, 0.0, (beta - alpha) / divisor)
    scale = w.where(is_done, 0.0, 1.0 / w.where(is_done, 1.0, alpha - beta))
    return tau, beta, scale
