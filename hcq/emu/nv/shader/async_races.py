"""Races of asynchronous copies: what they touch, as accesses of the threads that issue them.

In       copies as they are issued: places in shared memory, addresses in global memory, the mbarrier that counts them
Out      nothing
Changes  the Races of the batch, if it has some; no register, no memory
Next     bulk_moves.py and async_stores.py (who tell), race_steps.py (all other accesses), shared_waits.py (waits that
         are missing)
Source   PTX ISA, "cp.async.bulk", "st.async", "red.async" (complete_tx has release semantics at the scope of the
         cluster)

A copy is made when it is issued. What it has brought is known to who finds the phase over in which its mbarrier counts
it, and so is all that its thread did before: more than PTX promises, which hides races and invents none.
"""

from __future__ import annotations

import numpy as np

from hcq.emu.nv.shader.batch import Batch
from hcq.emu.nv.shader.race_steps import MBARRIER_BYTES, What, order_of, tell
from hcq.emu.nv.shader.types import Lanes
from hcq.emu.shader.order import BLOCK, DEVICE, PLAIN


def touched(batch: Batch, lane: int, what: What, at: Lanes, space: str) -> None:
    """A copy of this thread is issued that reads ("load"), writes ("store") or changes ("atomic") these pieces."""
    if batch.races is not None and len(at):
        level = PLAIN if what.kind != "atomic" else BLOCK if space == "shared" else DEVICE
        tell(batch, what, np.full(len(at), lane), at, space, level)


def stored(batch: Batch, lanes: Lanes, what: What, at: Lanes, told: Lanes) -> None:
    """st.async and red.async of these threads, each with an mbarrier."""
    if batch.races is not None:
        tell(batch, what, lanes, at, "shared", PLAIN if what.kind == "store" else BLOCK)
        counted(batch, lanes, told, what.line)


def counted(batch: Batch, lanes: Lanes, told: Lanes, line: int) -> None:
    """These mbarriers count what these threads have issued before: who finds the phase over knows it."""
    if batch.races is not None:
        order_of(batch, lanes, BLOCK, False)
        tell(batch, What("atomic", MBARRIER_BYTES, line), lanes, told, "shared", BLOCK)
