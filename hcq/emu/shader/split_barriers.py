"""Barriers at which warps arrive and go on: what they do from then on, the barrier does not order.

In       warps that arrive and go on, warps that meet where the barrier opens, warps that wait for it later
Out      nothing
Changes  the Order of the warps
Next     order.py (barriers at which all wait), ../amd/shader/residents.py (s_barrier_signal and s_barrier_wait),
         ../nv/shader/meetings.py (bar.arrive, barrier.cluster.arrive)

Who goes on leaves what it knows and did as it arrives. Where the barrier opens, this meets what the others have; and
what came together there is kept for the warp until it waits, if it does.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from hcq.emu.shader.order import Array, Order, union

TABLES = ("known", "clock", "met", "fenced", "has_far", "has_pending", "rows")
LISTS = ("far", "far_covered", "pending")


class _State(NamedTuple):
    """What an order has of one warp."""

    tables: dict[str, Any]
    covered: dict[int, Array]
    lists: dict[str, Any]


class SplitBarrier:
    """One barrier, of all blocks that run together."""

    def __init__(self, order: Order) -> None:
        self.order = order
        self._left: dict[int, _State] = {}
        self._owed: dict[int, _State] = {}

    def leave(self, warps: Array) -> None:
        """These warps arrive, and go on."""
        order = self.order
        for warp in warps.tolist():
            self._left[warp] = _state(order, warp)
        order.clock[warps] += 1
        order.rows[warps] = -1

    def open(self, warps: Array) -> None:
        """These warps have arrived, each in its block, and the barrier opens."""
        gone = [warp for warp in warps.tolist() if warp in self._left] if self._left else []
        now = [_state(self.order, warp) for warp in gone]
        for warp in gone:
            _put(self.order, warp, self._left.pop(warp))
        self.order.barrier(warps)
        for warp, state in zip(gone, now):
            self._owed[warp] = _state(self.order, warp)
            _put(self.order, warp, state)

    def forget(self) -> None:
        """Who went on never waits."""
        self._owed.clear()

    def come_back(self, warps: Array) -> None:
        """These warps wait no more: what met when the barrier opened is known to them."""
        if not self._owed:
            return
        order = self.order
        for warp in warps.tolist():
            state = self._owed.pop(warp, None)
            if state is None:
                continue
            np.maximum(order.known[warp], state.tables["known"], out=order.known[warp])
            for reach, row in state.covered.items():
                np.maximum(order.covered[reach][warp], row, out=order.covered[reach][warp])
            order.met[warp] = max(order.met[warp], state.tables["met"])
            for name in ("fenced", "has_far", "has_pending"):
                getattr(order, name)[warp] |= state.tables[name]
            order.far[warp] = union([order.far[warp], state.lists["far"]])
            order.far_covered[warp] = union([order.far_covered[warp], state.lists["far_covered"]])
            order.pending[warp] = {**order.pending[warp], **state.lists["pending"]}
            order.rows[warp] = -1
            order.note_far([warp])


def _state(order: Order, warp: int) -> _State:
    tables = {name: getattr(order, name)[warp].copy() for name in TABLES}
    covered = {reach: table[warp].copy() for reach, table in order.covered.items()}
    lists = {name: getattr(order, name)[warp] for name in LISTS}
    return _State(tables, covered, {**lists, "pending": dict(lists["pending"])})


def _put(order: Order, warp: int, state: _State) -> None:
    for name, value in state.tables.items():
        getattr(order, name)[warp] = value
    for reach, row in state.covered.items():
        order.covered[reach][warp] = row
    for name, value in state.lists.items():
        getattr(order, name)[warp] = value
    order.note_far([warp])
