"""What bulk copies have yet to write to global memory, and who touches it before their thread has waited.

In       copies as they are issued, waits of their threads for bulk groups, accesses to global memory
Out      findings, in the Checks of the launch
Changes  itself
Next     shared_waits.py (the same for shared memory; it has one of these), bulk_moves.py (the copies themselves)
Source   PTX ISA, "cp.async.bulk.wait_group" (with .read it waits for the reads of the copy alone), "cp.async.bulk"
         (the writes of a copy are known to its thread once the group is complete)
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import numpy as np

from hcq.emu.nv.shader.types import Lanes
from hcq.emu.shader.checks import Checks
from hcq.events.kernel_faults import KernelFault, Site

RULE, WHAT = "async-copy-not-waited", "a use before a bulk copy has written to it of"
WHY = "with no cp.async.bulk.wait_group (without .read) of the thread that copies, for that group, between"


class _Copy(NamedTuple):
    """One that goes on. starts, ends: of its pieces, which touch nothing between them; group: of its thread."""

    lane: int
    group: int
    line: int
    starts: Lanes
    ends: Lanes
    adds: bool


class GlobalWaits:
    """Of the blocks of a batch. text: an instruction by its line; thread: a lane of the batch."""

    def __init__(self, text: Callable[[int], str], thread: Callable[[int], str], checks: Checks) -> None:
        self.text, self.thread, self.checks = text, thread, checks
        self.under_way: list[_Copy] = []
        self.low, self.high = 0, 0  # of all that is under way

    def take(self, lane: int, group: int, at: Lanes, piece_bytes: int, line: int, adds: bool) -> None:
        """A bulk copy of a thread writes, or adds to, these pieces."""
        if not len(at):
            return
        self.access(np.array([lane]), at, piece_bytes, line, "writes it", adds)
        starts = np.sort(at.astype(np.uint64))
        firsts = np.append(True, starts[1:] != starts[:-1] + np.uint64(piece_bytes))
        lasts = np.append(firsts[1:], True)
        ends = starts[lasts] + np.uint64(piece_bytes)
        self._keep([*self.under_way, _Copy(lane, group, line, starts[firsts], ends, adds)])

    def wait(self, done: Lanes) -> None:
        """Threads have waited. done: of each lane, how many of its groups are complete."""
        if self.under_way:
            self._keep([one for one in self.under_way if one.group >= done[one.lane]])

    def access(
        self, lanes: Lanes, at: Lanes, size_bytes: int, line: int, verb: str, adds: bool = False
    ) -> None:
        """Threads, or one with many pieces, touch so many bytes at each of these addresses."""
        if not self.under_way or not len(at):
            return
        at = at.astype(np.uint64, copy=False)
        if int(at.min()) >= self.high or int(at.max()) + size_bytes <= self.low:
            return
        for one in self.under_way:
            if adds and one.adds:  # each is done as a whole
                continue
            piece: Lanes = np.searchsorted(one.ends, at, "right")
            which = np.flatnonzero(piece < len(one.starts))
            which = which[one.starts[piece[which]] < at[which] + np.uint64(size_bytes)]
            if len(which):
                lane = int(lanes[which[0]] if len(lanes) == len(at) else lanes[0])
                sites = (
                    Site("copies to it", self.text(one.line), one.line, self.thread(one.lane)),
                    Site(verb, self.text(line), line, self.thread(lane)),
                )
                fault = KernelFault(RULE, WHAT, "global", int(at[which[0]]), sites, WHY)
                self.checks.add((RULE, one.line, line), len(which), partial(_known, fault))

    def _keep(self, copies: list[_Copy]) -> None:
        self.under_way = copies
        self.low = min((int(one.starts[0]) for one in copies), default=0)
        self.high = max((int(one.ends[-1]) for one in copies), default=0)


def _known(fault: KernelFault) -> KernelFault:
    return fault
