"""Tiles: which bytes of a tensor a tensor map and a place name, and where these lie in shared memory.

In       a TensorMap, coordinates
Out      Tile: global addresses piece by piece, which of them are inside the tensor, their places in shared memory
Changes  nothing
Next     tensor_map_ops.py (who copies tiles), shared_matrix.py (reads what is swizzled here)
Source   PTX ISA, "Tensors": "Tiled Mode" (bounding box, traversal stride, out of boundary access), "Swizzling Modes"

A piece is 16 bytes where tensor and place allow it, else an element. Inferred: that the pieces of a row of the box that is
shorter than the swizzle's span follow one another without gaps, and that a NaN that fills is the canonical one.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from hcq.emu.nv.shader.floats import CANONICAL_NAN
from hcq.emu.nv.shader.types import Lanes
from hcq.nv.abi.tensor_map import FLOATS, MAX_RANK, ElementType, Fill, Interleave, Swizzle, TensorMap

PIECE_BYTES = 16
SPAN_BYTES = {Swizzle.B32: 32, Swizzle.B64: 64, Swizzle.B128: 128}
# of the number of a 128-byte line: what is added to the number of a piece in its span, without carries
SWIZZLE_MASKS = {Swizzle.NONE: 0, Swizzle.B32: 1, Swizzle.B64: 3, Swizzle.B128: 7}
LINE_SHIFT, PIECE_SHIFT = 7, 4


class Tile(NamedTuple):
    """The pieces of a box in the order in which they follow one another in shared memory.

    at       global addresses
    inside   which pieces are inside the tensor: only they are loaded or stored
    offsets  from the start of the box in shared memory, before the swizzle
    """

    at: Lanes
    inside: Lanes
    offsets: Lanes
    piece_bytes: int

    @property
    def size_bytes(self) -> int:
        """Of the whole box: what a copy of it counts, whatever is outside."""
        return len(self.at) * self.piece_bytes


def why_wrong(tensor: TensorMap, rank: int) -> str:
    """Why a tensor map cannot be used by an instruction of this rank; "" if it can."""
    if tensor.rank > MAX_RANK or tensor.rank != rank:
        return f"it has {tensor.rank} dimensions, the instruction {rank}"
    if not tensor.element_bytes:
        return f"its element type is {tensor.element_type}, which has no meaning"
    if tensor.interleave != Interleave.NONE:
        return "interleaved layouts are not emulated"
    if tensor.global_address % PIECE_BYTES:
        return f"its address, {tensor.global_address:#x}, is no multiple of {PIECE_BYTES}"
    if any(not stride for stride in tensor.strides):
        return f"a stride is 0: {tensor.strides}"
    row = tensor.box[0] * tensor.element_bytes
    if row % PIECE_BYTES:
        return f"a row of its box has {row} bytes, no multiple of {PIECE_BYTES}"
    span = SPAN_BYTES.get(Swizzle(tensor.swizzle), row)
    if row > span:
        return f"a row of its box has {row} bytes, more than the swizzle's span of {span}"
    if tensor.fill == Fill.NAN and tensor.element_type not in FLOATS:
        return f"{ElementType(tensor.element_type).name} has no NaN to fill with"
    return ""


def tile_of(tensor: TensorMap, place: tuple[int, ...]) -> Tile:
    """The tile at a place, dimension 0 first. Elements of dimension 0 are never left out, whatever its step."""
    size = tensor.element_bytes
    dims, strides = list(tensor.dims), list(tensor.strides)
    first, count = place[0], tensor.box[0]
    if first * size % PIECE_BYTES == 0 and dims[0] * size % PIECE_BYTES == 0:
        per_piece = PIECE_BYTES // size
        first, count, dims[0], strides[0] = (
            first // per_piece,
            count // per_piece,
            dims[0] // per_piece,
            PIECE_BYTES,
        )
        size = PIECE_BYTES
    at = np.array(0, np.int64)
    inside = np.array(True)
    for number in reversed(range(tensor.rank)):  # the last dimension is the slowest
        if number:
            step = tensor.steps[number]
            positions = place[number] + step * np.arange(-(-tensor.box[number] // step))
        else:
            positions = first + np.arange(count)
        at = at[..., None] + positions * strides[number]
        inside = inside[..., None] & (positions >= 0) & (positions < dims[number])
    start = np.uint64(tensor.global_address)
    flat = at.reshape(-1)
    return Tile(flat.astype(np.uint64) + start, inside.reshape(-1), np.arange(len(flat)) * size, size)


def swizzled(at: Lanes, mode: Swizzle) -> Lanes:
    """Where bytes of these addresses in shared memory really lie: the lines of 128 bytes count from address 0."""
    mask = at.dtype.type(SWIZZLE_MASKS[mode])
    if not mask:
        return at
    return at ^ (((at >> at.dtype.type(LINE_SHIFT)) & mask) << at.dtype.type(PIECE_SHIFT))


def filling(tensor: TensorMap, piece_bytes: int) -> Lanes:
    """What a piece outside of the tensor reads as: (piece_bytes,) bytes."""
    if tensor.fill != Fill.NAN:
        return np.zeros(piece_bytes, np.uint8)
    size = tensor.element_bytes
    return np.frombuffer(CANONICAL_NAN[size].to_bytes(size, "little") * (piece_bytes // size), np.uint8)
