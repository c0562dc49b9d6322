"""Random quantised weights, with the numbers that they mean: blocks of Q8_0 and Q4_K written here, bit by bit.

In       a shape, whose last axis is a whole number of blocks, and a seed
Out      bytes (rows, bytes of a row) as a GGUF file has them, and their numbers in float64
Next     quantised.py (models of them); frontend/io/blocks.py (the formats)
Source   ggml-common.h and ggml-quants.c (layout of block_q8_0 and block_q4_K)
"""

from __future__ import annotations

from typing import Any

import numpy as np


def q8_0(shape: tuple[int, int], scale: float, seed: int) -> tuple[Any, Any]:
    """Blocks of 32: a float16 scale, and signed bytes. Their numbers deviate from 0 by about `scale`."""
    draw = np.random.default_rng(seed)
    blocks = shape[0] * shape[1] // 32
    d = (draw.uniform(0.5, 1.5, (blocks, 1)) * scale / 73).astype("<f2")
    q = draw.integers(-127, 128, (blocks, 32), dtype=np.int8)
    raw = np.concatenate([d.view(np.uint8), q.view(np.uint8)], 1)
    return raw.reshape(shape[0], -1), (d.astype(np.float64) * q).reshape(shape)


def q4_k(shape: tuple[int, int], scale: float, seed: int) -> tuple[Any, Any]:
    """Blocks of 256: d and dmin in float16, eight scales and minima of six bits, and numbers q of four bits.

    A number is d * scale * q - dmin * minimum. With dmin = 7.5 d, their mean is 0, and their deviation about 256 d.
    """
    draw = np.random.default_rng(seed)
    blocks = shape[0] * shape[1] // 256
    d = (draw.uniform(0.5, 1.5, (blocks, 1)) * scale / 256).astype("<f2")
    dmin = (d.astype(np.float32) * 7.5).astype("<f2")
    scales, minima = draw.integers(0, 64, (2, blocks, 8), dtype=np.uint8)
    q = draw.integers(0, 16, (blocks, 8, 32), dtype=np.uint8)
    # four bytes of scales, four of minima, each with two upper bits of what four bytes of lower bits go on with
    upper = [side[:, :4] | (side[:, 4:] >> 4) << 6 for side in (scales, minima)]
    lower = (scales[:, 4:] & 15) | (minima[:, 4:] & 15) << 4
    pairs = (q[:, ::2] | q[:, 1::2] << 4).reshape(blocks, 128)
    raw = np.concatenate([d.view(np.uint8), dmin.view(np.uint8), *upper, lower, pairs], 1)
    numbers = d[..., None].astype(np.float64) * scales[..., None] * q
    numbers -= dmin[..., None].astype(np.float64) * minima[..., None]
    return raw.reshape(shape[0], -1), numbers.reshape(shape)


FORMS = {"Q8_0": q8_0, "Q4_K": q4_k}


def rounded(x: Any, size: int, step_type: type) -> Any:
    """Numbers of the last axis rounded to 8 bits in pieces of that size; the step is kept in a type of its own."""
    pieces = x.reshape(*x.shape[:-1], -1, size)
    step = np.abs(pieces).max(-1, keepdims=True) / 127
    whole = np.round(pieces / np.where(step, step, 1))
    return (whole * step.astype(step_type)).reshape(x.shape)
