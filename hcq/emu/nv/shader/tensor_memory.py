"""Tensor memory of sm_100: 128 lanes of 512 words for each block, of which kernels allocate columns.

In       a batch; addresses: the lane in bits 31:16, the column in bits 15:0
Out      words; columns that are free
Changes  itself
Next     tcgen05_ops.py (who loads, stores and allocates), tcgen05_products.py (who multiplies into it)
Source   PTX ISA, "Tensor Memory": "Tensor Memory Addressing", "Tensor Memory Allocation"
"""

from __future__ import annotations

import numpy as np

from hcq.emu.nv.shader.types import Lanes

LANES, COLUMNS = 128, 512
LEAST_COLUMNS = 32  # of an allocation
LANE_SHIFT, COLUMN_MASK = 16, 0xFFFF


class TensorMemory:
    """That of the blocks of a batch. words: (block, lane, column)."""

    def __init__(self, blocks: int) -> None:
        self.words = np.zeros((blocks, LANES, COLUMNS), np.uint32)
        self._owners = np.full((blocks, COLUMNS), -1, np.int32)  # where the allocation of a column begins

    def allocate(self, block: int, count: int) -> int | None:
        """The first of so many columns that are free and lie together; None: there are none."""
        free = self._owners[block] < 0
        for start in range(0, COLUMNS - count + 1, LEAST_COLUMNS):
            if free[start : start + count].all():
                self._owners[block, start : start + count] = start
                return start
        return None

    def give_back(self, block: int, start: int, count: int) -> bool:
        """Free an allocation; False where these columns are none, or another."""
        mine = self._owners[block] == start
        if start >= COLUMNS or not mine[start : start + count].all() or np.count_nonzero(mine) != count:
            return False
        self._owners[block, start : start + count] = -1
        return True

    def is_allocated(self, block: int, start: int, count: int) -> bool:
        """Whether these columns are somebody's."""
        return start + count <= COLUMNS and bool((self._owners[block, start : start + count] >= 0).all())


def lane_of(address: int) -> int:
    """The lane of an address."""
    return address >> LANE_SHIFT


def column_of(address: int) -> int:
    """The column of an address."""
    return address & COLUMN_MASK


def places(shape: str, repeats: int) -> tuple[Lanes, Lanes]:
    """(lanes, columns), each (registers, 32 threads), that a load or store of this shape moves.

    16x64b, 16x128b and 16x256b move 16 lanes; CUTLASS's copy traits write down which thread has what. 16x32bx2 moves
    16 lanes to each half of a warp, of columns that are apart as the instruction says.
    """
    thread = np.arange(32)
    if shape == "16x32bx2":
        lanes, columns, width = (thread % 16)[None], np.zeros((1, 32), int), 1
    elif shape == "32x32b":
        lanes, columns, width = thread[None], np.zeros((1, 32), int), 1
    elif shape == "16x64b":
        lanes, columns, width = (8 * (thread % 2) + thread // 4)[None], (thread // 2 % 2)[None], 2
    elif shape == "16x128b":
        lanes = np.stack([thread // 4 + 8 * r for r in range(2)])
        columns, width = np.stack([thread % 4] * 2), 4
    else:
        lanes = np.stack([thread // 4 + 8 * (r // 2) for r in range(4)])
        columns, width = np.stack([2 * (thread % 4) + r % 2 for r in range(4)]), 8
    return (
        np.concatenate([lanes] * repeats),
        np.concatenate([columns + width * repeat for repeat in range(repeats)]),
    )
