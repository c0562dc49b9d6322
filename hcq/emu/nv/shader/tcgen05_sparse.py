"""Of tcgen05.mma: where the metadata of a sparse A are in tensor memory, and which columns of B a mask leaves.

In       words of tensor memory; mask descriptors
Out      four bits for each chunk of each row; columns of B
Next     tcgen05_products.py (who multiplies), sparse_matrix_ops.py (what the bits mean)
Source   CUTLASS's layouts of E in tensor memory, which JAX's formatting of metadata confirms; PTX ISA, "Zero-Column
         Mask Descriptor", whose examples, not its table, say which span is which

Of 16 and 32 bits a column has all of an instruction's metadata, and the sparsity selector says which of four: rows r
and r + 8 have a half of a word each, of the first half of depth in lane r, of the second in lane r + 8. Of 8 and 4 bits
a row has two columns of its lane. Inferred: that 64 rows have theirs where such a product has its results.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from hcq.emu.nv.shader.types import Lanes

CHUNKS_OF_WORD = 8
HAS_MASK = 1 << 39
RESERVED = 0xC000007000000000
LARGEST_SHIFT, LARGEST_SHIFT_OF_32 = 32, 16


class Metadata(NamedTuple):
    """Where they are, from the first lane and column on: of (rows, chunks)."""

    lane: Lanes
    column: Lanes
    shift: Lanes
    columns: int


def metadata(lanes: Lanes, bits: int, selector: int) -> Metadata:
    """Of rows whose results are in these lanes, of numbers of so many bits."""
    rows = np.arange(len(lanes))[:, None]
    if bits >= 16:
        chunk = np.arange(CHUNKS_OF_WORD)[None, :]
        half, place = chunk // 4, 16 * (rows // 8 % 2) + 4 * (chunk % 4)
        lane = lanes[rows - rows % 16] + rows % 8 + 8 * half
        lane, shift = np.broadcast_arrays(lane, place)
        return Metadata(lane, np.full(lane.shape, selector), shift, selector + 1)
    chunk = np.arange(2 * CHUNKS_OF_WORD)[None, :]
    lane, column, shift = np.broadcast_arrays(
        lanes[rows], chunk // CHUNKS_OF_WORD, 4 * (chunk % CHUNKS_OF_WORD)
    )
    return Metadata(lane, column, shift, 2)


def codes(words: Lanes, where: Metadata, column: int) -> Lanes:
    """(rows, chunks) four bits each, of the words of a block."""
    found: Lanes = words[where.lane, column + where.column] >> where.shift.astype(np.uint32) & np.uint32(15)
    return found.astype(np.int64)


def why_no_mask(mask: int, rows: int, shift_limit: int) -> str:
    """Why a mask descriptor has no meaning; "" where it has one. shift_limit: of the instruction's descriptor."""
    shift = mask >> 56 & 63
    largest = LARGEST_SHIFT_OF_32 if rows == 32 else LARGEST_SHIFT
    if mask & RESERVED:
        return "its reserved bits are not 0"
    if shift > min(largest, shift_limit):
        return f"it shifts by {shift} columns, the instruction descriptor allows {min(largest, shift_limit)}"
    return ""


def columns_of(mask: int, rows: int, columns: int) -> tuple[Lanes, Lanes]:
    """(columns of B, which of them are used), for each of a product of weights that stay."""
    column = np.arange(columns)
    source = column + (mask >> 56 & 63)
    if not mask & HAS_MASK:
        return source, np.ones(columns, bool)
    banks = 128 // rows
    width = columns // banks
    used, zeros = (mask >> 48 & 0xFF) + 1, (mask >> 40 & 0xFF) + 1
    keeps = np.ones(columns, bool)
    for bank in range(banks):
        begins_with_zeros = bool(mask >> (32 + bank) & 1)
        start = min(mask >> 8 * bank & 0xFF, (zeros if begins_with_zeros else used) - 1)
        place = (np.arange(width) + start) % (used + zeros)
        keeps[bank * width : (bank + 1) * width] = place >= zeros if begins_with_zeros else place < used
    return source, keeps
