"""Tiles: which bytes of a tensor a tensor map and a place name, and where these lie in shared memory.

In       a TensorMap, coordinates
Out      Tile: global addresses piece by piece, which of them are inside the tensor, their places in shared memory
Next     tensor_map_ops.py (who copies tiles), shared_matrix.py (reads what is swizzled here)
Source   PTX ISA, "Tensors": "Tiled Mode" (bounding box, traversal stride, out of boundary access), "Swizzling Modes"

A piece is 16 bytes where tensor and place allow it, else an element. Inferred: that rows of the box that are shorter
than the swizzle's span follow one another without gaps. A NaN that fills is the one that fma.oob knows.
"""

from __future__ import annotations

import functools
from typing import NamedTuple

import numpy as np

from hcq.emu.nv.shader.floats import OUTSIDE
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


def why_wrong(tensor: TensorMap, rank: int) -> str:
    """Why a tensor map cannot be used by an instruction of this rank; "" if it can."""
    if tensor.rank > MAX_RANK or tensor.rank != rank:
        return f"it has {tensor.rank} dimensions, the instruction {rank}"
    if not tensor.element_bytes:
        return f"its element type is {tensor.element_type}, which has no meaning"
    if tensor.interleave != Interleave.NONE:
        return "interleaved layouts are not emulated"
    if tensor.swizzle_atomicity and tensor.swizzle != Swizzle.NONE:
        return "swizzles of more than 16 bytes at a time are not emulated"
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


class Tiling:
    """All tiles of one tensor map: what they have in common is computed once."""

    def __init__(self, tensor: TensorMap) -> None:
        self.tensor = tensor
        # dimension 0 is never stepped through, whatever its step
        steps = (1, *tensor.steps[1:])
        self._positions = [step * np.arange(-(-box // step)) for box, step in zip(tensor.box, steps)]
        self._by_elements = self._pieces(1)
        self._per_piece = PIECE_BYTES // tensor.element_bytes
        self._by_pieces = self._pieces(self._per_piece)

    def _pieces(self, per_piece: int) -> tuple[Lanes, Lanes, Lanes]:
        """(global addresses from the tile's first element, places in shared memory from its start, all True)."""
        tensor = self.tensor
        at = np.array(0, np.int64)
        for number in reversed(range(tensor.rank)):  # the last dimension is the slowest
            positions = self._positions[number][:: 1 if number else per_piece]
            at = at[..., None] + positions * tensor.strides[number]
        at = at.reshape(-1)
        return at, np.arange(len(at)) * (per_piece * tensor.element_bytes), np.ones(len(at), bool)

    def tile(self, place: tuple[int, ...]) -> Tile:
        """The tile at a place, dimension 0 first."""
        tensor = self.tensor
        size = tensor.element_bytes
        in_pieces = place[0] * size % PIECE_BYTES == 0 and tensor.dims[0] * size % PIECE_BYTES == 0
        per_piece = self._per_piece if in_pieces else 1
        at, offsets, inside = self._by_pieces if in_pieces else self._by_elements
        start = tensor.global_address + sum(x * stride for x, stride in zip(place, tensor.strides))
        ends = (x + int(positions[-1]) for x, positions in zip(place, self._positions))
        if min(place) < 0 or any(end >= dim for end, dim in zip(ends, tensor.dims)):
            inside = self._inside(place, per_piece)
        return Tile(at.view(np.uint64) + np.uint64(start % 2**64), inside, offsets, per_piece * size)

    def _inside(self, place: tuple[int, ...], per_piece: int) -> Lanes:
        """Which pieces are inside of the tensor, where some may not be."""
        inside = np.array(True)
        for number in reversed(range(self.tensor.rank)):
            positions = place[number] + self._positions[number][:: 1 if number else per_piece]
            inside = inside[..., None] & (positions >= 0) & (positions < self.tensor.dims[number])
        return inside.reshape(-1)


@functools.lru_cache(256)
def tiling_of(data: bytes) -> Tiling | TensorMap:
    """The tiles of the map in 128 bytes; the map alone where it makes no sense, see why_wrong."""
    tensor = TensorMap.decode(np.frombuffer(data, np.uint32).tolist())
    return tensor if why_wrong(tensor, tensor.rank) else Tiling(tensor)


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
    return np.full(piece_bytes // 2, OUTSIDE).view(np.uint8)
