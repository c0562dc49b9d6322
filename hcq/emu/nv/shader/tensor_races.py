"""Races and missing waits in tensor memory: what loads, stores, products and copies of tcgen05 touch there, and when.

In       lanes and columns of tensor memory, as an instruction is issued; waits of warps
Out      findings, in the Checks of the launch
Changes  the Races of the batch, if it looks everywhere; its SharedWaits, if it has some
Next     tcgen05_ops.py, tcgen05_products.py and tcgen05_moves.py (who tell), tensor_memory.py,
         ../../shader/shared_races.py and tensor_waits.py (what comes of it)
Source   PTX ISA, "tcgen05 Memory Consistency Model"

What is remembered together is a column of 16 lanes, of which no two warps load any. What one thread issues counts as
its warp's, and threads of one warp as in order. That fences of tcgen05 stand around a barrier is not looked at.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from hcq.emu.nv.shader.batch import WARP, Batch
from hcq.emu.nv.shader.tensor_memory import COLUMNS
from hcq.emu.nv.shader.tensor_waits import CELLS, LANES_OF_CELL, TensorWaits
from hcq.emu.nv.shader.types import Lanes
from hcq.emu.shader.races import Races
from hcq.emu.shader.shared_races import MISSING, WORD_BYTES, SharedRaces


class TensorRaces(SharedRaces):
    """Those of the blocks that run together. A cell is a word here."""

    missing: ClassVar = {**MISSING, "shared-race": "with no barrier and no wait for a tcgen05.commit between"}

    def __init__(self, races: Races) -> None:
        of_shared, size_bytes = races.shared, races.blocks * CELLS * WORD_BYTES
        assert of_shared is not None
        super().__init__(races.order, size_bytes, of_shared.name_of, of_shared.text_of, of_shared.checks)

    def spot(self, cell: int) -> tuple[str, int]:
        """Tensor memory, and the column."""
        return "tensor", cell % self.stride % COLUMNS


def touched(
    batch: Batch,
    lane: int,
    kind: str,
    block: int,
    lanes: Lanes,
    columns: Lanes,
    line: int,
    is_engine: bool = True,
) -> None:
    """An instruction of this thread, or of its warp, reads ("load") or writes ("store") these columns of these lanes.

    is_engine  a product or a copy does, which a commit makes known; not a load or a store of the warp
    """
    races = batch.races
    is_raced = races is not None and races.everywhere is not None
    if not is_raced and batch.waits is None:
        return
    groups = np.unique(lanes // LANES_OF_CELL)
    cells = (groups[:, None] * COLUMNS + np.unique(columns)).reshape(-1)
    if races is not None and is_raced:
        if races.of_tensor is None:
            races.of_tensor = TensorRaces(races)
        warp = int(batch.block_of_lane[lane]) * races.warps + int(batch.thread_of_lane[lane]) // WARP
        at = (cells + block % races.blocks * CELLS) * WORD_BYTES
        who, first = np.full(len(cells), warp), np.zeros(len(cells), np.int64)
        races.of_tensor.access(kind, who, first, at.astype(np.uint64), WORD_BYTES, line)
    if (waits := _waits_of(batch)) is not None:
        leader = int(batch.local_row[lane if is_engine else lane - lane % WARP])
        waits.touch(leader, kind, cells + block * CELLS, line, is_engine)


def waited(batch: Batch, lanes: Lanes, kind: str) -> None:
    """The warps of these threads wait for their loads, or their stores."""
    if (waits := _waits_of(batch)) is not None:
        waits.waited[kind][batch.local_row[lanes - lanes % WARP]] += 1


def _waits_of(batch: Batch) -> TensorWaits | None:
    waits = batch.waits
    if waits is None:
        return None
    if waits.of_tensor is None:
        waits.of_tensor = TensorWaits(waits, len(batch.blocks))
    return waits.of_tensor
