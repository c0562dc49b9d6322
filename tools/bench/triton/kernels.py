"""Kernels in Triton, after the descriptions of its tutorials, and simple ones of operations that no tutorial has.

In       nothing; importing it takes Triton
Out      kernels, not yet compiled
Next     launches.py (compiles and counts them), rows.py (with which sizes)
Source   triton-lang.org, tutorials 02, 03, 05, 06: what each computes, and how it is divided among programs
"""

from __future__ import annotations

import triton
import triton.language as tl

LOG2E = tl.constexpr(1.4426950408889634)
LN2 = tl.constexpr(0.6931471805599453)


@triton.jit
def matmul(
    out, a, b, m, n, k, a_stride, b_stride, out_stride,
    M: tl.constexpr, N: tl.constexpr, K: tl.constexpr, GROUP: tl.constexpr,
    PRECISION: tl.constexpr, SUMS: tl.constexpr,
):  # fmt: skip
    """Programs in bands of GROUP tiles, so that those that run together share operands."""
    number = tl.program_id(0)
    down, across = tl.cdiv(m, M), tl.cdiv(n, N)
    band = number // (GROUP * across)
    first = band * GROUP
    high = min(down - first, GROUP)
    row = first + (number % (GROUP * across)) % high
    column = (number % (GROUP * across)) // high
    rows = (row * M + tl.arange(0, M)) % m
    columns = (column * N + tl.arange(0, N)) % n
    inner = tl.arange(0, K)
    left_at = a + (rows[:, None] * a_stride + inner[None, :])
    right_at = b + (inner[:, None] * b_stride + columns[None, :])
    sums = tl.zeros((M, N), dtype=SUMS)
    for step in range(tl.cdiv(k, K)):
        left = tl.load(left_at, mask=inner[None, :] < k - step * K, other=0.0)
        right = tl.load(right_at, mask=inner[:, None] < k - step * K, other=0.0)
        sums = tl.dot(left, right, sums, input_precision=PRECISION, out_dtype=SUMS)
        left_at += K
        right_at += K * b_stride
    rows = row * M + tl.arange(0, M)
    columns = column * N + tl.arange(0, N)
    mask = (rows[:, None] < m) & (columns[None, :] < n)
    tl.store(out + rows[:, None] * out_stride + columns[None, :], sums.to(out.dtype.element_ty), mask=mask)


@triton.jit
def softmax(out, x, rows, columns, x_stride, out_stride, BLOCK: tl.constexpr, STAGES: tl.constexpr):
    """A program takes every so-manieth row."""
    at = tl.arange(0, BLOCK)
    mask = at < columns
    for row in tl.range(tl.program_id(0), rows, tl.num_programs(0), num_stages=STAGES):
        values = tl.load(x + row * x_stride + at, mask=mask, other=-float("inf")).to(tl.float32)
        powers = tl.exp(values - tl.max(values, axis=0))
        made = powers / tl.sum(powers, axis=0)
        tl.store(out + row * out_stride + at, made.to(out.dtype.element_ty), mask=mask)


@triton.jit
def layer_norm(out, x, weight, bias, mean_out, scale_out, stride, columns, epsilon, BLOCK: tl.constexpr):
    """A row for each program, in pieces of BLOCK, read three times."""
    row = tl.program_id(0)
    sums = tl.zeros([BLOCK], dtype=tl.float32)
    for start in range(0, columns, BLOCK):
        at = start + tl.arange(0, BLOCK)
        sums += tl.load(x + row * stride + at, mask=at < columns, other=0.0).to(tl.float32)
    mean = tl.sum(sums, axis=0) / columns
    squares = tl.zeros([BLOCK], dtype=tl.float32)
    for start in range(0, columns, BLOCK):
        at = start + tl.arange(0, BLOCK)
        values = tl.load(x + row * stride + at, mask=at < columns, other=0.0).to(tl.float32)
        values = tl.where(at < columns, values - mean, 0.0)
        squares += values * values
    scale = 1 / tl.sqrt(tl.sum(squares, axis=0) / columns + epsilon)
    tl.store(mean_out + row, mean)
    tl.store(scale_out + row, scale)
    for start in range(0, columns, BLOCK):
        at = start + tl.arange(0, BLOCK)
        mask = at < columns
        values = tl.load(x + row * stride + at, mask=mask, other=0.0).to(tl.float32)
        made = (values - mean) * scale * tl.load(weight + at, mask=mask) + tl.load(bias + at, mask=mask)
        tl.store(out + row * stride + at, made.to(out.dtype.element_ty), mask=mask)


@triton.jit
def _attend(
    sums, total, most, queries, k, v, rows, first, last, scale,
    MASKED: tl.constexpr, N: tl.constexpr, D: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    """Keys from `first` up to `last`: the sums, the weights' total and the greatest score, brought up to date."""
    width = tl.arange(0, D)
    for start in tl.range(first, last, N, num_stages=STAGES):
        keys = start + tl.arange(0, N)
        left = tl.load(k + keys[None, :] * D + width[:, None])
        scores = tl.dot(queries, left)
        if MASKED:
            scores = scores * scale + tl.where(rows[:, None] >= keys[None, :], 0, -1.0e6)
            higher = tl.maximum(most, tl.max(scores, 1))
            scores -= higher[:, None]
        else:
            higher = tl.maximum(most, tl.max(scores, 1) * scale)
            scores = scores * scale - higher[:, None]
        powers = tl.math.exp2(scores)
        fading = tl.math.exp2(most - higher)
        right = tl.load(v + keys[:, None] * D + width[None, :])
        sums = tl.dot(powers.to(right.dtype), right, sums * fading[:, None])
        total = total * fading + tl.sum(powers, 1)
        most = higher
    return sums, total, most


@triton.jit
def attention(
    out, logs, q, k, v, length, scale,
    M: tl.constexpr, N: tl.constexpr, D: tl.constexpr, CAUSAL: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    """A head for each program of the second axis. Of a causal one, keys without a mask come first."""
    base = tl.program_id(1).to(tl.int64) * length * D
    begin = tl.program_id(0) * M
    rows, width = begin + tl.arange(0, M), tl.arange(0, D)
    queries = tl.load(q + base + rows[:, None] * D + width[None, :])
    most = tl.full((M,), -float("inf"), tl.float32)
    total = tl.full((M,), 1.0, tl.float32)
    sums = tl.zeros((M, D), tl.float32)
    k += base
    v += base
    scale *= LOG2E
    plain = begin if CAUSAL else length
    sums, total, most = _attend(sums, total, most, queries, k, v, rows, 0, plain, scale, False, N, D, STAGES)
    if CAUSAL:
        sums, total, most = _attend(
            sums, total, most, queries, k, v, rows, begin, begin + M, scale, True, N, D, STAGES
        )
    tl.store(logs + tl.program_id(1) * length + rows, most + tl.math.log2(total))
    made = sums / total[:, None]
    tl.store(out + base + rows[:, None] * D + width[None, :], made.to(out.dtype.element_ty))


@triton.jit
def attention_deltas(deltas, out, out_grad, length, M: tl.constexpr, D: tl.constexpr):
    """What the weights' sum contributes to every score's gradient."""
    rows, width = tl.program_id(0) * M + tl.arange(0, M), tl.arange(0, D)
    base = tl.program_id(1).to(tl.int64) * length * D
    at = base + rows[:, None] * D + width[None, :]
    mine = tl.load(out + at).to(tl.float32) * tl.load(out_grad + at).to(tl.float32)
    tl.store(deltas + tl.program_id(1) * length + rows, tl.sum(mine, axis=1))


@triton.jit
def _keys_step(
    dk, dv, keys_in, values_in, q, out_grad, logs, deltas, keys, first, count,
    MASKED: tl.constexpr, M: tl.constexpr, D: tl.constexpr,
):  # fmt: skip
    width = tl.arange(0, D)
    for step in range(count):
        rows = first + step * M + tl.arange(0, M)
        turned = tl.load(q + rows[None, :] * D + width[:, None])
        scores = tl.dot(keys_in, turned)
        powers = tl.math.exp2(scores - tl.load(logs + rows)[None, :])
        if MASKED:
            powers = tl.where(rows[None, :] >= keys[:, None], powers, 0.0)
        grads = tl.load(out_grad + rows[:, None] * D + width[None, :])
        dv += tl.dot(powers.to(grads.dtype), grads)
        of_powers = tl.dot(values_in, tl.trans(grads)).to(tl.float32)
        of_scores = powers * (of_powers - tl.load(deltas + rows)[None, :])
        dk += tl.dot(of_scores.to(turned.dtype), tl.trans(turned))
    return dk, dv


@triton.jit
def _queries_step(
    dq, queries, grads, logs_in, deltas_in, k, v, rows, first, count,
    MASKED: tl.constexpr, N: tl.constexpr, D: tl.constexpr,
):  # fmt: skip
    width = tl.arange(0, D)
    for step in range(count):
        keys = first + step * N + tl.arange(0, N)
        turned = tl.load(k + keys[None, :] * D + width[:, None])
        values = tl.load(v + keys[None, :] * D + width[:, None])
        scores = tl.dot(queries, turned)
        powers = tl.math.exp2(scores - logs_in[:, None])
        if MASKED:
            powers = tl.where(rows[:, None] >= keys[None, :], powers, 0.0)
        of_powers = tl.dot(grads, values).to(tl.float32)
        of_scores = powers * (of_powers - deltas_in[:, None])
        dq += tl.dot(of_scores.to(turned.dtype), tl.trans(turned))
    return dq


@triton.jit
def attention_back(
    dq, dk, dv, q, k, v, out_grad, logs, deltas, length, scale,
    WIDE: tl.constexpr, NARROW: tl.constexpr, D: tl.constexpr, CAUSAL: tl.constexpr,
):  # fmt: skip
    """First the gradients of WIDE keys and values, then of as many queries. `k` is multiplied by scale / ln 2."""
    base = tl.program_id(1).to(tl.int64) * length * D
    q += base
    k += base
    v += base
    out_grad += base
    logs += tl.program_id(1) * length
    deltas += tl.program_id(1) * length
    width = tl.arange(0, D)
    begin = tl.program_id(0) * WIDE
    mine = begin + tl.arange(0, WIDE)
    at = mine[:, None] * D + width[None, :]
    keys_in = tl.load(k + at)
    values_in = tl.load(v + at)
    of_keys = tl.zeros([WIDE, D], dtype=tl.float32)
    of_values = tl.zeros([WIDE, D], dtype=tl.float32)
    first = 0
    HALF: tl.constexpr = NARROW // 2
    if CAUSAL:
        of_keys, of_values = _keys_step(
            of_keys, of_values, keys_in, values_in, q, out_grad, logs, deltas, mine, begin, WIDE // HALF,
            True, HALF, D,
        )  # fmt: skip
        first = begin + WIDE
    of_keys, of_values = _keys_step(
        of_keys, of_values, keys_in, values_in, q, out_grad, logs, deltas, mine, first,
        (length - first) // NARROW, False, NARROW, D,
    )  # fmt: skip
    tl.store(dv + base + at, of_values.to(dv.dtype.element_ty))
    tl.store(dk + base + at, (of_keys * scale).to(dk.dtype.element_ty))
    queries = tl.load(q + at)
    grads = tl.load(out_grad + at)
    logs_in = tl.load(logs + mine)
    deltas_in = tl.load(deltas + mine)
    of_queries = tl.zeros([WIDE, D], dtype=tl.float32)
    last = length
    if CAUSAL:
        of_queries = _queries_step(
            of_queries, queries, grads, logs_in, deltas_in, k, v, mine, begin, WIDE // HALF, True, HALF, D
        )
        last = begin
    of_queries = _queries_step(
        of_queries, queries, grads, logs_in, deltas_in, k, v, mine, 0, last // NARROW, False, NARROW, D
    )
    tl.store(dq + base + at, (of_queries * LN2).to(dq.dtype.element_ty))


@triton.jit
def scaled(out, x, factor, BLOCK: tl.constexpr):
    """x times a number: of attention's gradients, keys in the unit of exponents of two."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + at, (tl.load(x + at).to(tl.float32) * factor).to(out.dtype.element_ty))


@triton.jit
def total(out, x, size, BLOCK: tl.constexpr):
    """Sums of pieces, by every so-manieth program; a second launch of one program adds those."""
    sums = tl.zeros([BLOCK], dtype=tl.float32)
    for start in range(tl.program_id(0) * BLOCK, size, tl.num_programs(0) * BLOCK):
        at = start + tl.arange(0, BLOCK)
        sums += tl.load(x + at, mask=at < size, other=0.0)
    tl.store(out + tl.program_id(0), tl.sum(sums, axis=0))


@triton.jit
def total_by_atomics(out, x, size, BLOCK: tl.constexpr):
    sums = tl.zeros([BLOCK], dtype=tl.float32)
    for start in range(tl.program_id(0) * BLOCK, size, tl.num_programs(0) * BLOCK):
        at = start + tl.arange(0, BLOCK)
        sums += tl.load(x + at, mask=at < size, other=0.0)
    tl.atomic_add(out, tl.sum(sums, axis=0))


@triton.jit
def transpose(out, x, rows, columns, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    down = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    along = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    mask = (down[:, None] < rows) & (along[None, :] < columns)
    values = tl.load(x + down[:, None] * columns + along[None, :], mask=mask)
    turned = (along[:, None] < columns) & (down[None, :] < rows)
    tl.store(out + along[:, None] * rows + down[None, :], tl.trans(values), mask=turned)


@triton.jit
def running(out, x, columns, BLOCK: tl.constexpr):
    """Running sums of a row."""
    at = tl.arange(0, BLOCK)
    values = tl.load(x + tl.program_id(0) * columns + at, mask=at < columns, other=0.0)
    tl.store(out + tl.program_id(0) * columns + at, tl.cumsum(values, axis=0), mask=at < columns)


@triton.jit
def gather(out, table, places, columns, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    """Rows of a table."""
    rows = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    wanted = tl.load(places + rows)
    at = tl.arange(0, BLOCK)
    mask = at[None, :] < columns
    values = tl.load(table + wanted[:, None] * columns + at[None, :], mask=mask)
    tl.store(out + rows[:, None] * columns + at[None, :], values, mask=mask)


@triton.jit
def ordered(out, x, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    """Rows in order, without the places."""
    rows, columns = tl.program_id(0) * ROWS + tl.arange(0, ROWS), tl.arange(0, COLUMNS)
    at = rows[:, None] * COLUMNS + columns[None, :]
    tl.store(out + at, tl.sort(tl.load(x + at), dim=1))
