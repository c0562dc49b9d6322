"""Kernels in Triton, of the kinds that people write: most of them move data between threads through shared memory.

In       nothing; importing it takes Triton
Out      kernels, not yet compiled
Next     compiled.py (compiles one for a GPU), test_kernels.py (runs them and compares with NumPy)
"""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def softmax(out, x, columns, stride, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    at = tl.arange(0, BLOCK)
    values = tl.load(x + row * stride + at, mask=at < columns, other=-float("inf")).to(tl.float32)
    powers = tl.exp(values - tl.max(values, axis=0))
    tl.store(out + row * stride + at, powers / tl.sum(powers, axis=0), mask=at < columns)


@triton.jit
def layer_norm(out, x, weight, bias, columns, epsilon, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    at = tl.arange(0, BLOCK)
    mask = at < columns
    values = tl.load(x + row * columns + at, mask=mask, other=0.0).to(tl.float32)
    mean = tl.sum(values, axis=0) / columns
    centred = tl.where(mask, values - mean, 0.0)
    scale = 1 / tl.sqrt(tl.sum(centred * centred, axis=0) / columns + epsilon)
    made = centred * scale * tl.load(weight + at, mask=mask) + tl.load(bias + at, mask=mask)
    tl.store(out + row * columns + at, made, mask=mask)


@triton.jit
def matmul(
    out, a, b, m, n, k, a_stride, b_stride, out_stride,
    M: tl.constexpr, N: tl.constexpr, K: tl.constexpr, PRECISION: tl.constexpr, SUMS: tl.constexpr,
):  # fmt: skip
    rows = tl.program_id(0) * M + tl.arange(0, M)
    columns = tl.program_id(1) * N + tl.arange(0, N)
    inner = tl.arange(0, K)
    sums = tl.zeros((M, N), dtype=SUMS)
    for start in range(0, k, K):
        left = tl.load(
            a + rows[:, None] * a_stride + (start + inner)[None, :],
            mask=(rows[:, None] < m) & ((start + inner)[None, :] < k),
            other=0.0,
        )
        right = tl.load(
            b + (start + inner)[:, None] * b_stride + columns[None, :],
            mask=((start + inner)[:, None] < k) & (columns[None, :] < n),
            other=0.0,
        )
        sums = tl.dot(left, right, sums, input_precision=PRECISION, out_dtype=SUMS)
    mask = (rows[:, None] < m) & (columns[None, :] < n)
    tl.store(out + rows[:, None] * out_stride + columns[None, :], sums, mask=mask)


@triton.jit
def attention(out, q, k, v, length, scale, M: tl.constexpr, N: tl.constexpr, D: tl.constexpr):
    """Causal, by online softmax: one head for each program of the second axis."""
    base = tl.program_id(1) * length * D
    rows = tl.program_id(0) * M + tl.arange(0, M)
    width = tl.arange(0, D)
    queries = tl.load(q + base + rows[:, None] * D + width[None, :], mask=rows[:, None] < length, other=0.0)
    most = tl.full((M,), -float("inf"), tl.float32)
    total = tl.zeros((M,), tl.float32)
    sums = tl.zeros((M, D), tl.float32)
    for start in range(0, (tl.program_id(0) + 1) * M, N):
        keys = start + tl.arange(0, N)
        left = tl.load(k + base + keys[None, :] * D + width[:, None], mask=keys[None, :] < length, other=0.0)
        scores = tl.dot(queries, left) * scale
        seen = (rows[:, None] >= keys[None, :]) & (keys[None, :] < length)
        scores = tl.where(seen, scores, -float("inf"))
        higher = tl.maximum(most, tl.max(scores, axis=1))
        powers = tl.exp(scores - higher[:, None])
        fading = tl.exp(most - higher)
        right = tl.load(v + base + keys[:, None] * D + width[None, :], mask=keys[:, None] < length, other=0.0)
        sums = sums * fading[:, None] + tl.dot(powers.to(right.dtype), right)
        total = total * fading + tl.sum(powers, axis=1)
        most = higher
    tl.store(
        out + base + rows[:, None] * D + width[None, :], sums / total[:, None], mask=rows[:, None] < length
    )


@triton.jit
def reductions(sums, most, places, x, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    """Along both axes: sums of columns, the largest of each row and where it is."""
    rows, columns = tl.arange(0, ROWS), tl.arange(0, COLUMNS)
    values = tl.load(x + rows[:, None] * COLUMNS + columns[None, :])
    tl.store(sums + columns, tl.sum(values, axis=0))
    tl.store(most + rows, tl.max(values, axis=1))
    tl.store(places + rows, tl.argmax(values, axis=1))


@triton.jit
def transpose(out, x, rows, columns, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    down = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    along = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    mask = (down[:, None] < rows) & (along[None, :] < columns)
    values = tl.load(x + down[:, None] * columns + along[None, :], mask=mask)
    turned = (along[:, None] < columns) & (down[None, :] < rows)
    tl.store(out + along[:, None] * rows + down[None, :], tl.trans(values), mask=turned)


@triton.jit
def histogram(counts, x, size, BINS: tl.constexpr, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    values = tl.load(x + at, mask=at < size, other=0)
    found = tl.histogram(values, BINS, mask=at < size)
    tl.atomic_add(counts + tl.arange(0, BINS), found)


@triton.jit
def _last_wins(left_value, left_flag, right_value, right_flag):
    return tl.where(right_flag != 0, right_value, left_value + right_value), left_flag | right_flag


@triton.jit
def scans(totals, running, segments, x, flags, BLOCK: tl.constexpr):
    """A sum, a product from behind, and sums that begin anew where a flag is set."""
    at = tl.arange(0, BLOCK)
    values = tl.load(x + at)
    tl.store(totals + at, tl.cumsum(values, axis=0))
    tl.store(running + at, tl.cumprod(values, axis=0, reverse=True))
    sums, _ = tl.associative_scan((values, tl.load(flags + at)), 0, _last_wins)
    tl.store(segments + at, sums)


@triton.jit
def atomics(total, largest, tickets, once, x, size, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = at < size
    values = tl.load(x + at, mask=mask, other=0)
    tl.atomic_add(total + at % 4, values, mask=mask)
    tl.atomic_max(largest, tl.max(tl.where(mask, values, -2147483648), axis=0))
    ticket = tl.atomic_add(tickets, 1)
    tl.atomic_cas(once, 0, 1 + tl.program_id(0))
    tl.store(tickets + 1 + ticket, tl.program_id(0))


@triton.jit
def ordered(out, flipped, x, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    rows, columns = tl.arange(0, ROWS), tl.arange(0, COLUMNS)
    values = tl.load(x + rows[:, None] * COLUMNS + columns[None, :])
    places = rows[:, None] * COLUMNS + columns[None, :]
    tl.store(out + places, tl.sort(values, dim=1))
    tl.store(flipped + places, tl.flip(values, dim=1))


@triton.jit
def picked(out, x, places, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    """Elements of a block by places that are known only when it runs, along its columns."""
    rows, columns = tl.arange(0, ROWS), tl.arange(0, COLUMNS)
    at = rows[:, None] * COLUMNS + columns[None, :]
    tl.store(out + at, tl.gather(tl.load(x + at), tl.load(places + at), axis=0))


@triton.jit
def batched(out, a, b, M: tl.constexpr, K: tl.constexpr, N: tl.constexpr, B: tl.constexpr):
    """A product of stacks of matrices in one block."""
    stack, m, k, n = tl.arange(0, B), tl.arange(0, M), tl.arange(0, K), tl.arange(0, N)
    left = tl.load(a + stack[:, None, None] * M * K + m[None, :, None] * K + k[None, None, :])
    right = tl.load(b + stack[:, None, None] * K * N + k[None, :, None] * N + n[None, None, :])
    sums = tl.dot(left, right)
    tl.store(out + stack[:, None, None] * M * N + m[None, :, None] * N + n[None, None, :], sums)


@triton.jit
def convolution(out, x, weight, channels, height, width, BLOCK: tl.constexpr, SIDE: tl.constexpr):
    """Depthwise, without padding; each program has a row of a channel."""
    channel, row = tl.program_id(0), tl.program_id(1)
    at = tl.arange(0, BLOCK)
    mask = at < width - SIDE + 1
    sums = tl.zeros((BLOCK,), tl.float32)
    for i in tl.static_range(SIDE):
        for j in tl.static_range(SIDE):
            values = tl.load(x + (channel * height + row + i) * width + at + j, mask=mask, other=0.0)
            sums += values * tl.load(weight + (channel * SIDE + i) * SIDE + j)
    tl.store(out + (channel * (height - SIDE + 1) + row) * (width - SIDE + 1) + at, sums, mask=mask)


@triton.jit
def collatz(out, x, BLOCK: tl.constexpr):
    """A loop whose rounds are only known when it runs; the block goes round until its last element is 1."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    values = tl.load(x + at)
    steps = tl.zeros((BLOCK,), tl.int32)
    while tl.max(values, axis=0) > 1:
        goes = values > 1
        values = tl.where(goes, tl.where(values % 2 == 0, values // 2, 3 * values + 1), values)
        steps += goes.to(tl.int32)
    tl.store(out + at, steps)


@triton.jit
def scaled_product(
    out,
    a,
    b,
    scale_a,
    scale_b,
    M: tl.constexpr,
    N: tl.constexpr,
    K: tl.constexpr,
    A: tl.constexpr,
    B: tl.constexpr,
):
    """One tile; A, B: "e4m3", "e5m2", or "e2m1", two numbers of which are in a byte; a scale for 32 numbers."""
    m, n = tl.arange(0, M), tl.arange(0, N)
    a_bytes: tl.constexpr = K // 2 if A == "e2m1" else K
    b_bytes: tl.constexpr = K // 2 if B == "e2m1" else K
    left = tl.load(a + m[:, None] * a_bytes + tl.arange(0, a_bytes)[None, :])
    right = tl.load(b + n[None, :] * b_bytes + tl.arange(0, b_bytes)[:, None])
    blocks = tl.arange(0, K // 32)
    of_a = tl.load(scale_a + m[:, None] * (K // 32) + blocks[None, :])
    of_b = tl.load(scale_b + n[:, None] * (K // 32) + blocks[None, :])
    made = tl.dot_scaled(left, of_a, A, right, of_b, B)
    tl.store(out + m[:, None] * N + n[None, :], made)
