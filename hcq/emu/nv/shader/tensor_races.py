"""Races and missing waits in tensor memory: what loads, stores, products and copies of tcgen05 touch there, and when.

In       lanes and columns of tensor memory, as an instruction is issued; waits of warps
Out      findings, in the Checks of the launch
Changes  the Races of the batch, if it looks everywhere; its SharedWaits, if it has some
Next     tcgen05_ops.py, tcgen05_products.py and tcgen05_moves.py (who tell), tensor_memory.py,
         ../../shader/shared_races.py (what comes of it), shared_waits.py (commits, and who has waited for them)
Source   PTX ISA, "tcgen05 Memory Consistency Model": asynchronous operations, waits, pipelined instructions

What is remembered together is a column of 16 lanes, of which no two warps load any. What one thread issues counts as
its warp's, and threads of one warp as in order. That fences of tcgen05 stand around a barrier is not looked at.
"""

from __future__ import annotations

from functools import partial
from typing import ClassVar

import numpy as np

from hcq.emu.nv.shader.batch import WARP, Batch
from hcq.emu.nv.shader.shared_waits import COPY_RULE, Marks, SharedWaits
from hcq.emu.nv.shader.tensor_memory import COLUMNS, LANES
from hcq.emu.nv.shader.types import Lanes
from hcq.emu.shader.races import Races
from hcq.emu.shader.shared_races import MISSING, VERBS, WORD_BYTES, SharedRaces
from hcq.events.kernel_faults import KernelFault, Site

LANES_OF_CELL = 16
CELLS = LANES // LANES_OF_CELL * COLUMNS  # of a block
UNCOMMITTED = "with no wait between that found the phase over to which a tcgen05.commit behind it arrives"


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


class TensorWaits:
    """What has been issued and not been waited for, by cells of all blocks."""

    def __init__(self, waits: SharedWaits, blocks: int) -> None:
        self.waits = waits
        # by products and copies, until a commit behind them was waited for
        self.gathered, self.filled = Marks(blocks * CELLS), Marks(blocks * CELLS)
        # by the warp, until it waits
        self.loaded, self.stored = Marks(blocks * CELLS), Marks(blocks * CELLS)
        self.waited = {kind: np.zeros(len(waits.finished), np.int64) for kind in ("load", "store")}

    def touch(self, lane: int, kind: str, cells: Lanes, line: int, is_engine: bool) -> None:
        """A load or a store of a warp; or, of an engine, what a product or a copy reads or writes."""
        finished, waited = self.waits.finished, self.waited
        if not is_engine:
            self._look(self.filled, finished, lane, kind, cells, line, ("writes it", UNCOMMITTED))
            if kind == "store":
                self._look(self.gathered, finished, lane, kind, cells, line, ("reads it", UNCOMMITTED))
        why = "with no tcgen05.wait::%s of the warp that %ss between"
        self._look(
            self.stored, waited["store"], lane, kind, cells, line, ("writes it", why % ("st", "store"))
        )
        if kind == "store":
            self._look(
                self.loaded, waited["load"], lane, kind, cells, line, ("reads it", why % ("ld", "load"))
            )
        if is_engine:
            marks, now = self.filled if kind == "store" else self.gathered, self.waits.committed
        else:
            marks, now = self.stored if kind == "store" else self.loaded, waited[kind]
        marks.put(cells, lane, now[lane], line)

    def _look(
        self,
        marks: Marks,
        until: Lanes,
        lane: int,
        kind: str,
        cells: Lanes,
        line: int,
        words: tuple[str, str],
    ) -> None:
        late = marks.late(cells, until)
        names = self.waits.names
        for before in np.unique(marks.line[cells[late]]).tolist():
            which = np.flatnonzero(late & (marks.line[cells] == before))
            cell = int(cells[which[0]])
            sites = (
                Site(words[0], names.text(before), before, names.thread(int(marks.who[cell]))),
                Site(VERBS[kind], names.text(line), line, names.thread(lane)),
            )
            what = "a use too early of"
            fault = KernelFault(COPY_RULE, what, "tensor", cell % COLUMNS, sites, words[1])
            self.waits.checks.add((COPY_RULE, before, line), len(which), partial(_known, fault))


def _known(fault: KernelFault) -> KernelFault:
    return fault


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
