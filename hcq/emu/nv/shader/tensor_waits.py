"""What products, copies, loads and stores of tcgen05 have yet to do in tensor memory, and who touches it before.

In       cells: columns of 16 lanes, as an instruction is issued
Out      findings, in the Checks of the launch
Changes  itself
Next     tensor_races.py (who tells it), shared_waits.py (commits, and who has waited for them)
Source   PTX ISA, "tcgen05 Memory Consistency Model": asynchronous operations, waits, pipelined instructions
"""

from __future__ import annotations

from functools import partial

import numpy as np

from hcq.emu.nv.shader.shared_waits import COPY_RULE, Marks, SharedWaits
from hcq.emu.nv.shader.tensor_memory import COLUMNS, LANES
from hcq.emu.nv.shader.types import Lanes
from hcq.emu.shader.shared_races import VERBS
from hcq.events.kernel_faults import KernelFault, Site

LANES_OF_CELL = 16
CELLS = LANES // LANES_OF_CELL * COLUMNS  # of a block
UNCOMMITTED = "with no wait between that found the phase over to which a tcgen05.commit behind it arrives"


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
