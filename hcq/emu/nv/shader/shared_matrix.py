"""Matrices in shared memory as matrix descriptors name them: start, two strides and a swizzle in 64 bits.

In       descriptors, one for each warpgroup; rows, the type of elements, whether rows or the depth are contiguous
Out      (warpgroups, rows, depth) numbers
Next     warpgroup_ops.py (who multiplies them), tensor_tiles.py (the swizzle)
Source   PTX ISA, "Asynchronous Warpgroup Level Matrix Shared Memory Layout": "Canonical Layouts", "Matrix Descriptor
         Format"

An instruction takes 32 bytes of depth, of B 64 where A is sparse; those that are beyond the span of a swizzle are taken
to lie at the leading offset. A matrix is gathered in pieces of 16 bytes, which no swizzle takes apart.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from hcq.emu.nv.shader import spaces
from hcq.emu.nv.shader.batch import Batch
from hcq.emu.nv.shader.errors import BadAccess
from hcq.emu.nv.shader.tensor_tiles import PIECE_BYTES, SPAN_BYTES, swizzled
from hcq.emu.nv.shader.types import Lanes
from hcq.nv.abi.tensor_map import Swizzle

SWIZZLES = (Swizzle.NONE, Swizzle.B128, Swizzle.B64, Swizzle.B32)  # by the descriptor's number
DEPTH_BYTES = 32
ENCODED_BITS, ENCODED_UNIT = 14, 16
LEADING_SHIFT, STRIDE_SHIFT, BASE_SHIFT, SWIZZLE_SHIFT = 16, 32, 49, 62
EIGHT = 8  # rows, or columns of depth, that follow one another at the pitch of the swizzle's span


class Descriptor(NamedTuple):
    """Of some warpgroups: bytes, one each; the swizzle is the same."""

    start: Lanes
    leading: Lanes
    stride: Lanes
    swizzle: Swizzle


def read(bits: Lanes) -> tuple[Descriptor | None, str]:
    """Descriptors of warpgroups, or why they cannot be used."""

    def field(shift: int) -> Lanes:
        encoded = (bits >> np.uint64(shift)) & np.uint64((1 << ENCODED_BITS) - 1)
        return (encoded * np.uint64(ENCODED_UNIT)).astype(np.int64)

    numbers = bits >> np.uint64(SWIZZLE_SHIFT)
    bases = (bits >> np.uint64(BASE_SHIFT)) & np.uint64(7)
    if (numbers != numbers[0]).any():
        return None, "warpgroups that run together name different swizzles, which is not emulated"
    swizzle = SWIZZLES[int(numbers[0])]
    if bases.any() and swizzle != Swizzle.NONE:
        return (
            None,
            "its base offset is not 0, which is not emulated: let the swizzle's pattern begin at its boundary",
        )
    return Descriptor(field(0), field(LEADING_SHIFT), field(STRIDE_SHIFT), swizzle), ""


def _depth_first(matrix: Descriptor, rows: int, depth_bytes: int) -> Lanes:
    """K-major: (warpgroups, rows, pieces) addresses."""
    row, piece = np.arange(rows)[:, None], np.arange(depth_bytes // PIECE_BYTES)[None, :]
    stride, leading = matrix.stride[:, None, None], matrix.leading[:, None, None]
    if matrix.swizzle == Swizzle.NONE:
        inner = row % EIGHT * PIECE_BYTES + piece * leading
    else:
        span = SPAN_BYTES[matrix.swizzle]
        per_span = span // PIECE_BYTES
        inner = row % EIGHT * span + piece % per_span * PIECE_BYTES + piece // per_span * leading
    return matrix.start[:, None, None] + inner + row // EIGHT * stride


def rows_of(batch: Batch, lanes: Lanes, matrix: Descriptor, rows: int, row_bytes: int) -> Lanes:
    """(threads, rows, words) as they are, of rows of 16 or 32 bytes. Raises BadAccess outside of shared memory."""
    at = addresses(batch, lanes, matrix, rows, False, row_bytes)
    data = spaces.SHARED.load(batch, np.repeat(lanes, at[0].size), at.reshape(-1), np.uint64, 2)
    return data.view(np.uint32).reshape(len(lanes), rows, -1)


def _rows_first(matrix: Descriptor, rows: int, depth: int) -> Lanes:
    """M- or N-major: (warpgroups, rows / 8, depth) addresses, for elements of two bytes."""
    piece, k = np.arange(rows // EIGHT)[:, None], np.arange(depth)[None, :]
    stride, leading = matrix.stride[:, None, None], matrix.leading[:, None, None]
    if matrix.swizzle == Swizzle.NONE:
        places = piece * stride + k % EIGHT * PIECE_BYTES + k // EIGHT * leading
    else:
        span = SPAN_BYTES[matrix.swizzle]
        per_span = span // PIECE_BYTES
        places = piece % per_span * PIECE_BYTES + piece // per_span * leading
        places = places + k % EIGHT * span + k // EIGHT * stride
    return matrix.start[:, None, None] + places


def addresses(
    batch: Batch, lanes: Lanes, matrix: Descriptor, rows: int, is_transposed: bool, depth_bytes: int
) -> Lanes:
    """In shared memory: (warpgroups, rows or eights of them, pieces). lanes: a thread of each warpgroup."""
    if is_transposed:
        at = _rows_first(matrix, rows, depth_bytes // 2)
    else:
        at = _depth_first(matrix, rows, depth_bytes)
    places = swizzled(np.ascontiguousarray(at).reshape(-1).astype(np.uint64), matrix.swizzle)
    return spaces.own_places(batch, np.repeat(lanes, at[0].size), places).reshape(at.shape)


def load(
    batch: Batch,
    lanes: Lanes,
    matrix: Descriptor,
    rows: int,
    numbers: Callable[[Lanes], Lanes],
    is_transposed: bool,
    depth_bytes: int = DEPTH_BYTES,
    told: Callable[[Lanes], None] | None = None,
) -> Lanes:
    """(warpgroups, rows, depth) numbers. lanes: a thread of each warpgroup. Raises BadAccess outside of shared memory.

    numbers  what 32-bit words, the last axis, mean: see matrix_ops.to_numbers
    told     who is told of the addresses
    """
    at = addresses(batch, lanes, matrix, rows, is_transposed, depth_bytes)
    pieces = at[0].size
    if batch.launch.tally is not None:
        eights = at.reshape(len(lanes), -1, EIGHT, at.shape[2] if not is_transposed else 1)
        batch.launch.tally.eights(eights.transpose(0, 1, 3, 2).reshape(-1, EIGHT))
    try:
        data = spaces.SHARED.load(batch, np.repeat(lanes, pieces), at.reshape(-1), np.uint64, 2).view(
            np.uint32
        )
    except BadAccess as bad:
        raise BadAccess(bad.index // pieces, bad.address, bad.why, space=bad.space) from None
    if told is not None:
        told(at)
    found = numbers(np.ascontiguousarray(data))  # (pieces, elements of a piece)
    if not is_transposed:
        return found.reshape(len(lanes), rows, -1)
    tiles = found.reshape(len(lanes), rows // EIGHT, depth_bytes // 2, EIGHT)
    return tiles.transpose(0, 1, 3, 2).reshape(len(lanes), rows, -1)
