"""Copies under way: bulk copies have been issued, and are not done before somebody waits for them.

In       what a copy will do, and who issued it; who waits
Out      nothing
Changes  memory, when a copy is done
Next     bulk_ops.py, tensor_map_ops.py (who issue), mbarrier_ops.py and bulk_ops.py (who wait), machine.py (the end)
Source   PTX ISA, "Completion Mechanisms for Asynchronous Copy Operations"

A GPU may finish a copy at once, or only when it must. Here it is always the latter, so that a kernel that forgets to
wait sees old bytes in shared memory, and one that overwrites what is still to be read stores the new ones.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

Work = Callable[[], None]


class _OfGroup(NamedTuple):
    """A copy that a bulk group waits for. group: how many groups its thread had committed before."""

    lane: int
    group: int
    work: Work


class Copies:
    """The copies of a batch: those that an mbarrier counts, and those of the bulk groups of each thread."""

    def __init__(self) -> None:
        self._counted: list[Work] = []
        self._grouped: list[_OfGroup] = []
        self._committed: dict[int, int] = {}

    def count(self, work: Work) -> None:
        """Issue a copy that an mbarrier will be told of."""
        self._counted.append(work)

    def group(self, lane: int, work: Work) -> None:
        """Issue a copy that belongs to the next bulk group of its thread."""
        self._grouped.append(_OfGroup(lane, self._committed.get(lane, 0), work))

    def commit(self, lanes: Iterable[int]) -> None:
        """These threads end a group each."""
        for lane in lanes:
            self._committed[lane] = self._committed.get(lane, 0) + 1

    def arrive(self) -> None:
        """Somebody looks at an mbarrier: all copies that mbarriers count are done now."""
        works, self._counted = self._counted, []
        for work in works:
            work()

    def wait(self, lanes: Iterable[int], pending: int) -> None:
        """These threads wait until at most so many of their latest groups are not done."""
        done = {lane: self._committed.get(lane, 0) - pending for lane in lanes}
        rest: list[_OfGroup] = []
        works: list[Work] = []
        for one in self._grouped:
            if one.group < done.get(one.lane, 0):
                works.append(one.work)
            else:
                rest.append(one)
        self._grouped = rest
        for work in works:
            work()

    def finish(self) -> None:
        """The kernel has ended: all is done, in the order in which it was issued."""
        self.arrive()
        works, self._grouped = self._grouped, []
        for one in works:
            one.work()
