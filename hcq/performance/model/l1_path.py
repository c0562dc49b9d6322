"""L1 path: how many clocks a unit's first-level cache works for one load or store of a warp.

In       the addresses of its active threads, warp by warp
Out      clocks of the unit, by the law of the vendor
Next     hcq/emu/shader/traffic.py (who asks), resources.py (what it means for the time)
Source   gpu-benches (github.com/te42kyfo/gpu-benches@1c36d50), gpu-strides/a100.txt and mi210.txt: clocks of a unit
         for each load of 32 threads, by stride, measured on an A100 and on an MI210

NVIDIA has two limits. Data: 32 banks of 4 bytes, as in shared memory. Tags: a load that touches n lines of 128 bytes
takes 0.85 + 0.24 n clocks, which is within 8 % of all strides that were measured. A line for each thread costs 32
clocks only where the stride is a multiple of 32 words, and about 9 elsewhere.

AMD has another law. Neighbours go 64 bytes a clock. All other accesses go four threads at a time: one clock, more where
their addresses meet in a bank (of four for words; of eight, 8 bytes wide, for what is wider), and more where four
threads lie far apart: 1.75 beyond 12 words and 3 beyond 40; for what is wider, 2 beyond 27 elements.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]

LINE_BYTES = 128
LEAST_CLOCKS, CLOCKS_A_LINE = 0.85, 0.24
QUAD = 4
AMD_BYTES_A_CLOCK = 64
# of words, then of what is wider: (bytes of a bank, banks, ((four threads are so far apart, clocks), ...))
WORDS = 4, 4, ((160, 3.0), (48, 1.75))
WIDER = 8, 8, ((230, 2.0),)


def rank_in(groups: Array) -> Array:
    """The place of each element among those of its group, which stand together."""
    starts = np.flatnonzero(np.concatenate(([True], groups[1:] != groups[:-1])))
    return np.arange(len(groups)) - np.repeat(starts, np.diff(np.append(starts, len(groups))))


def nvidia(bank_clocks: Array, lines: Array) -> float:
    """Clocks of accesses by warps: of each, what its banks take, and how many lines it touches.

    >>> [round(nvidia(np.array([1]), np.array([lines])), 2) for lines in (1, 33)]
    [1.09, 8.77]
    """
    return float(np.maximum(bank_clocks, LEAST_CLOCKS + CLOCKS_A_LINE * lines).sum())


def amd(warps: Array, addresses: Array, size_bytes: int) -> float:
    """Clocks of accesses by waves.

    >>> lanes, wave = np.arange(32, dtype=np.uint64), np.zeros(32, np.int64)
    >>> [amd(wave, 4 * stride * lanes, 4) for stride in (1, 2, 3, 4, 33)]
    [2.0, 16.0, 8.0, 32.0, 24.0]
    """
    rank = rank_in(warps)
    quads = warps.astype(np.int64) * 16 + rank // QUAD
    starts = np.flatnonzero(np.concatenate(([True], quads[1:] != quads[:-1])))
    at = addresses.astype(np.int64)
    low, high = np.minimum.reduceat(at, starts), np.maximum.reduceat(at, starts)
    span = high - low
    is_close = span <= 3 * size_bytes  # neighbours, or all of them one element
    close = np.where(is_close, QUAD * max(size_bytes, 4) / AMD_BYTES_A_CLOCK, 0.0)
    bank_bytes, banks, distances = WORDS if size_bytes <= 4 else WIDER
    place = np.repeat(np.arange(len(starts)), np.diff(np.append(starts, len(at))))
    pairs = np.unique(np.stack((place, at // bank_bytes)), axis=1)
    busy = np.bincount(pairs[0] * banks + pairs[1] % banks, minlength=len(starts) * banks)
    clocks = busy.reshape(-1, banks).max(axis=1).astype(float)
    for distance, least in distances:
        clocks = np.where(span > distance, np.maximum(clocks, least), clocks)
    return float(np.where(is_close, np.maximum(close, 1.0 if size_bytes > 4 else 0.0), clocks).sum())
