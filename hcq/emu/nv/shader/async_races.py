"""Races of asynchronous copies and products: what they touch, as accesses of the threads that issue them.

In       copies and products as they are issued: places in shared memory, addresses in global memory, the mbarrier that
         counts them
Out      nothing
Changes  the Races and the SharedWaits of the batch, if it has some; no register, no memory
Next     bulk_moves.py, async_stores.py, warpgroup_ops.py, tcgen05_products.py and tcgen05_moves.py (who tell),
         race_steps.py (all other accesses), shared_waits.py (waits that are missing)
Source   PTX ISA, "cp.async.bulk", "st.async", "red.async" (complete_tx has release semantics at the scope of the
         cluster)

A copy is made when it is issued. What it has brought is known to who finds the phase over in which its mbarrier counts
it, and so is all that its thread did before: more than PTX promises, which hides races and invents none.
"""

from __future__ import annotations

import numpy as np

from hcq.emu.nv.shader import spaces
from hcq.emu.nv.shader.batch import WARP, WARPGROUP, Batch
from hcq.emu.nv.shader.race_steps import MBARRIER_BYTES, What, order_of, tell
from hcq.emu.nv.shader.tensor_tiles import PIECE_BYTES
from hcq.emu.nv.shader.types import Lanes
from hcq.emu.shader.order import BLOCK, DEVICE, PLAIN

WARPS = WARPGROUP // WARP


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


def multiplied(batch: Batch, threads: Lanes, line: int, at: Lanes, is_first: bool) -> None:
    """A matrix of a wgmma of these threads, whole warpgroups, is read: of A each warp reads its quarter of the rows.

    at  (warpgroups, rows or eights of rows, pieces)
    """
    own, what = at.shape[1] // WARPS, What("load", PIECE_BYTES, line)
    for warp in range(WARPS if batch.races is not None else 0):
        some = at[:, warp * own : (warp + 1) * own] if is_first else at
        who = np.repeat(threads[warp * WARP :: WARPS * WARP], some[0].size)
        tell(batch, what, who, some.reshape(-1), "shared")
    if batch.waits is not None:
        who, at = np.repeat(threads[::WARPGROUP], at[0].size), at.reshape(-1)
        places = spaces.places_of(batch, who, at, PIECE_BYTES)
        batch.waits.read_async(batch.local_row[who], places, PIECE_BYTES, line)


def gathered(batch: Batch, lane: int, line: int, at: Lanes) -> None:
    """A matrix that tcgen05 multiplies or copies is read for the thread that issues it. Raises BadAccess outside."""
    at = at.reshape(-1)
    who = np.full(len(at), lane)
    places = spaces.places_of(batch, who, at, PIECE_BYTES)
    touched(batch, lane, What("load", PIECE_BYTES, line), at, "shared")
    if batch.waits is not None:
        batch.waits.gather(int(batch.local_row[lane]), places, PIECE_BYTES, line)
