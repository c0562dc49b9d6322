"""Planes: the discrete Fourier transform of the last axis, by stages of small matrices.

In       planes, a real tensor (batch, 2, n) of real and imaginary parts, or (batch, 1, n) of real numbers
Out      planes of the transform, or real numbers, lazy
Changes  nothing; tables.py keeps what they are multiplied with
Next     tables.py, fft.py (who makes planes of complex tensors)
Source   Cooley and Tukey 1965 (stages); Bluestein 1970 (sizes with a large prime factor)

A size n = f * m is a transform of size f along one axis of (f, m), angles, and transforms of size m along the other. A
small transform is a matrix product, of a matrix twice as large for both planes together. Real numbers of an even size
are transformed as half as many pairs.
"""

from __future__ import annotations

import functools
import math

from hcq.frontend.more.fourier import tables
from hcq.frontend.tensor import Tensor

LARGEST = 32  # stage, if factors are small
DIRECT = 64  # a size of one stage, and the largest prime factor that is a stage


def times(planes: Tensor, table: Tensor) -> Tensor:
    """Each number by one of the table, (2, 2, ...): by its own plane, and by the other one."""
    return planes * table[0] + planes.flip(1) * table[1]


def transformed(planes: Tensor, sign: int, scale: float = 1.0) -> Tensor:
    """The transform of each line, times `scale`: (batch, 1 or 2, n) -> (batch, 2, n)."""
    batch, parts, size = planes.shape
    stages = stages_of(size)
    if not stages:
        return _by_chirp(planes, sign, scale)
    rest, rows = size, batch
    for place, stage in enumerate(stages):
        rest //= stage
        numbers = (stage, sign, scale if place == 0 else 1.0, parts == 1)
        matrix = tables.kept("matrix", planes.device, planes.dtype, *numbers, make=tables.matrix)
        if rest == 1:
            planes = planes.reshape(rows, parts * stage) @ matrix.mT
            break
        planes = matrix @ planes.reshape(rows, parts * stage, rest)
        angles = tables.kept("between", planes.device, planes.dtype, stage, rest, sign, make=tables.between)
        planes = times(planes.reshape(rows, 2, stage, rest), angles)
        rows, parts = rows * stage, 2
        planes = planes.permute(0, 2, 1, 3).reshape(rows, 2, rest)
    # the place in the spectrum, digit by digit, counts from the last stage to the first
    spread = planes.reshape(batch, *stages[:-1], 2, stages[-1])
    count = len(stages)
    order = (0, count, count + 1, *range(count - 1, 0, -1))
    return spread.permute(order).reshape(batch, 2, size)


@functools.cache
def stages_of(size: int) -> tuple[int, ...]:
    """The sizes of the stages of a transform, as few and as equal as can be; none where a prime factor is too large."""
    if size <= DIRECT:
        return (size,)
    primes, rest, prime = [], size, 2
    while prime * prime <= rest:
        while rest % prime == 0:
            primes.append(prime)
            rest //= prime
        prime += 1
    primes += [rest] if rest > 1 else []
    if primes[-1] > DIRECT:
        return ()
    for count in range(max(2, math.ceil(math.log(size) / math.log(LARGEST) - 1e-9)), len(primes) + 1):
        stages = [1] * count
        for prime in reversed(primes):
            stages[stages.index(min(stages))] *= prime
        if max(stages) <= max(LARGEST, primes[-1]):
            return tuple(sorted(stages))
    return tuple(primes)


def _by_chirp(planes: Tensor, sign: int, scale: float) -> Tensor:
    """The transform as a convolution with a chirp, which transforms of a size of small factors do."""
    size = planes.shape[2]
    room = min(step << max(0, math.ceil(math.log2((2 * size - 1) / step))) for step in (1, 3, 5, 9, 15))
    here = (planes.device, planes.dtype)
    if planes.shape[1] == 1:
        planes = planes.pad((0, 0, 0, 1))
    turned = times(planes, tables.kept("chirp", *here, size, sign, 1.0, make=tables.chirp))
    spectrum = transformed(turned.pad((0, room - size)), -1)
    product = times(spectrum, tables.kept("spectrum", *here, size, room, sign, make=tables.chirp_spectrum))
    folded = transformed(product, 1)[:, :, :size]
    return times(folded, tables.kept("chirp", *here, size, sign, scale, make=tables.chirp))


def of_real(line: Tensor, sign: int, scale: float = 1.0) -> Tensor:
    """Half the spectrum of real numbers: (batch, n) -> (batch, 2, n // 2 + 1)."""
    batch, size = line.shape
    half = size // 2 + 1
    if size % 2 or size <= DIRECT:
        return transformed(line.unsqueeze(1), sign, scale)[:, :, :half]
    pairs = transformed(line.reshape(batch, size // 2, 2).mT, sign, scale)
    whole: Tensor = pairs.cat(pairs[:, :, :1], dim=2)  # one period and the next number
    table = tables.kept("unpacking", line.device, line.dtype, size, sign, make=tables.unpacking)
    return times(whole, table[0]) + times(whole.flip(2), table[1])


def to_real(planes: Tensor, size: int, sign: int, scale: float = 1.0) -> Tensor:
    """The real numbers that have that half of a spectrum: (batch, 2, size // 2 + 1) -> (batch, size)."""
    batch, _, half = planes.shape
    here = (planes.device, planes.dtype)
    if size <= DIRECT:
        matrix = tables.kept("to real", *here, size, sign, scale, make=tables.to_real_matrix)
        return planes.reshape(batch, 2 * half) @ matrix.mT
    if size % 2 == 0:
        table = tables.kept("packing", *here, size, sign, make=tables.packing)
        pairs = times(planes[:, :, :-1], table[0]) + times(planes[:, :, 1:].flip(2), table[1])
        return transformed(pairs, sign, scale).mT.reshape(batch, size)
    first = planes[:, :, :1]
    others = planes[:, :, 1:]
    mirrored = others.flip(2)
    real: Tensor = first[:, :1].cat(others[:, :1], mirrored[:, :1], dim=2)
    imag: Tensor = first[:, :1].zeros_like().cat(others[:, 1:], -mirrored[:, 1:], dim=2)
    return transformed(real.cat(imag, dim=1), sign, scale)[:, 0]
