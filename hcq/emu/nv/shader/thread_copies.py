"""Copies by threads that are under way: cp.async has read its bytes, and shared memory has them when its thread waits.

In       what threads copy, the ends of their groups, their waits; where threads store meanwhile
Out      nothing
Changes  shared memory, when a copy is done
Next     memory_ops.py (cp.async), mbarrier_ops.py (an arrival that waits for copies), spaces.py (who stores), copies.py
         (bulk copies)
Source   PTX ISA, "cp.async", "cp.async.commit_group", "cp.async.wait_group"

As with bulk copies, a copy is done only when it must be: a kernel that forgets to wait, or waits for too few groups,
sees old bytes. Where a thread stores before that, the copy is done right after the store, which is lost: a kernel that
gives shared memory other contents too early sees what it copied.
"""

from __future__ import annotations

import functools
from typing import NamedTuple

import numpy as np

from hcq.emu.nv.shader.types import Lanes

WORD_BYTES = 4  # every copy is of whole words
ALL = -1  # of groups that may be pending: none, and none that has not ended


class Issued(NamedTuple):
    """Copies of one instruction. group: how many groups each thread had ended before."""

    lanes: Lanes
    group: Lanes
    memory: Lanes
    index: Lanes
    data: Lanes

    def done(self, which: Lanes) -> None:
        """Write what some of the threads copied."""
        self.memory[self.index[which]] = self.data[which]

    def words(self) -> tuple[Lanes, int]:
        """The first word that each thread's copy writes, and how many it writes."""
        count = self.data.shape[1] // WORD_BYTES
        return self.index * count, count

    def only(self, which: Lanes) -> Issued:
        """Those of some of the threads."""
        return Issued(self.lanes[which], self.group[which], self.memory, self.index[which], self.data[which])


class ThreadCopies:
    """The copies of the threads of a batch, in the order in which they were issued."""

    def __init__(self, threads: int) -> None:
        self._threads = threads
        self._issued: list[Issued] = []

    @property
    def are_under_way(self) -> bool:
        """Whether a copy is not done yet."""
        return bool(self._issued)

    def issue(self, lanes: Lanes, memory: Lanes, index: Lanes, data: Lanes) -> None:
        """These threads copy: `memory[index] = data`, before their wait for it ends."""
        self._issued.append(Issued(lanes, self.ended[lanes], memory, index, data))

    @functools.cached_property
    def ended(self) -> Lanes:
        """How many groups each thread has ended."""
        return np.zeros(self._threads, np.int64)

    def add(self, one: Issued) -> None:
        """What has been issued elsewhere."""
        self._issued.append(one)

    def take_all(self) -> list[Issued]:
        """All that is under way, which is somebody else's from now on."""
        found, self._issued = self._issued, []
        return found

    def commit(self, lanes: Lanes) -> None:
        """These threads end a group each."""
        self.ended[lanes] += 1

    def wait(self, lanes: Lanes, pending: int) -> None:
        """These threads wait until at most so many of their latest groups are not done; ALL: until all copies are."""
        if not self._issued:
            return
        done = np.full(len(self.ended), -1)
        done[lanes] = self.ended[lanes] + 1 if pending == ALL else self.ended[lanes] - pending
        self._finish([one.group < done[one.lanes] for one in self._issued])

    def stored(self, memory: Lanes, start: Lanes, size: int) -> None:
        """Threads have stored so many bytes from each of these bytes of shared memory on."""
        is_stored = np.zeros(-(-len(memory) // WORD_BYTES), np.bool_)
        for word in range(-(-size // WORD_BYTES)):
            is_stored[start // WORD_BYTES + word] = True
        found = []
        for one in self._issued:
            first, count = one.words()
            found.append(np.logical_or.reduce([is_stored[first + word] for word in range(count)]))
        self._finish(found)

    def _finish(self, which: list[Lanes]) -> None:
        """Of each instruction, some threads' copies are done."""
        rest = []
        for one, is_done in zip(self._issued, which, strict=True):
            if is_done.any():
                one.done(is_done)
            if not is_done.all():
                rest.append(one.only(~is_done) if is_done.any() else one)
        self._issued = rest
