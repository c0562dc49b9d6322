"""Meetings: who was at a barrier that opens, for the order of their accesses, where races are looked for.

In       masks over the lanes of a batch
Out      nothing
Changes  the order of the batch's warps (hcq/emu/shader/order.py), if it has Races
Next     machine.py and control.py (who tell), race_steps.py (accesses)
"""

from __future__ import annotations

import numpy as np

from hcq.emu.nv.shader.batch import WARP, Batch
from hcq.emu.nv.shader.types import Lanes
from hcq.emu.shader.split_barriers import SplitBarrier


def block_met(batch: Batch, lanes: Lanes, expected: int = 0, split: SplitBarrier | None = None) -> None:
    """The warps of these threads are at a barrier of their blocks, which counts so many threads; 0: all of them.

    split  of those that arrived there and went on (bar.arrive), if any did
    """
    if batch.races is None:
        return
    warps = _warps_of(batch, lanes)
    for some in batch.races.apart(warps):
        for met in _by_count(some, batch.races.order.warps, expected // WARP):
            if split is None:
                batch.races.order.barrier(met)
            else:
                split.open(met)
                split.forget()


def gone_on(batch: Batch, split: SplitBarrier | None, lanes: Lanes) -> SplitBarrier | None:
    """The warps of these threads arrive and go on. Returns what is known of them."""
    if batch.races is None:
        return None
    split = split or SplitBarrier(batch.races.order)
    split.leave(_warps_of(batch, lanes))
    return split


def _by_count(warps: Lanes, per_block: int, expected: int) -> list[Lanes]:
    """Who meets: where more warps come at once than a barrier counts, who of them meets whom is left open. Here it is
    those whose numbers follow each other."""
    block = warps // per_block
    _, first, sizes = np.unique(block, return_index=True, return_counts=True)
    if not expected or not len(warps) or sizes.max() <= expected:
        return [warps]
    turn = (np.arange(len(warps)) - np.repeat(first, sizes)) // expected
    return [warps[turn == number] for number in range(int(turn.max()) + 1)]


def cluster_met(batch: Batch, lanes: Lanes, split: SplitBarrier | None) -> None:
    """The warps of these threads are at a barrier of their clusters, at which all of them arrived and went on."""
    if split is not None:
        split.open(_warps_of(batch, lanes))
    if batch.waits is not None:
        batch.waits.meet(np.flatnonzero(lanes))


def cluster_waited(batch: Batch, lanes: Lanes, split: SplitBarrier | None) -> None:
    """The warps of these threads have waited for it."""
    if split is not None:
        split.come_back(_warps_of(batch, lanes))


def _warps_of(batch: Batch, lanes: Lanes) -> Lanes:
    assert batch.races is not None
    who = np.flatnonzero(lanes)
    who = who[batch.thread_of_lane[who] < batch.threads_per_block]
    return np.unique(batch.block_of_lane[who] * batch.races.warps + batch.thread_of_lane[who] // WARP)


def warps_met(batch: Batch, lanes: Lanes, members: Lanes, live: Lanes) -> None:
    """Threads have met those of their warps that each of them names. live: who has not ended."""
    if batch.races is None:
        return
    who = np.flatnonzero(lanes & (batch.thread_of_lane < batch.threads_per_block))
    if not len(who):
        return
    warps = batch.races.warps
    number = batch.block_of_lane * warps + np.minimum(batch.thread_of_lane // WARP, warps - 1)
    alive = np.bincount(number[live], minlength=warps * len(batch.blocks))
    named = np.broadcast_to(members, (batch.count,))[who]
    batch.races.order.meet(number[who], batch.thread_of_lane[who] % WARP, named, alive)
