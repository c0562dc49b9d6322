"""Clocks: how far this rank's time.monotonic_ns stands from rank 0's.

In       the group of all ranks, just met
Out      hcq.events.ranks knows this process's place: its number, its machine, the offset of its clock and how sure
         that is
Changes  hcq.events.ranks; a few messages between rank 0 and every other
Next     hcq/events/ranks.py (who reads it: traces of several ranks), job.py (who calls)

Rank 0 asks each rank in turn for its clock, several times. The fastest answer counts: the rank's clock was read
somewhere between the question and the answer, so the middle of the two is off by half of that at most. Where the
clocks are one (ranks of one machine, one time namespace) the offset is exactly 0.
"""

from __future__ import annotations

import time

import numpy as np

from hcq.events.ranks import Place, clock_name, set_here
from hcq.frontend.more.distributed.group import Group, Operation

ROUNDS = 12


def measure(group: Group) -> None:
    """Measure the offsets to rank 0, and tell hcq.events.ranks. All ranks must call it together."""
    names = group.comm.allgather(clock_name())
    found = np.zeros(2, np.int64)
    with group.operation("clocks") as op:
        for other in range(1, group.size):
            if names[other] is not None and names[other] == names[0]:
                continue
            if group.rank == 0:
                message = np.array(_ask(op, other), np.int64)
                op.wait([op.send(message, other)])
            elif group.rank == other:
                _answer(op)
                op.wait([op.receive(found, 0)])
    host = group.job.hosts[group.rank]
    set_here(Place(group.rank, group.size, host, int(found[0]), int(found[1])))


def _ask(op: Operation, other: int) -> tuple[int, int]:
    """What to add to the other's clock to have ours, and how far off that may be, in nanoseconds."""
    best = None
    for _ in range(ROUNDS):
        theirs = np.zeros(1, np.int64)
        asked = time.monotonic_ns()
        op.wait([op.send(np.zeros(1, np.int64), other), op.receive(theirs, other)])
        answered = time.monotonic_ns()
        if best is None or answered - asked < best[0]:
            best = answered - asked, (asked + answered) // 2 - int(theirs[0])
    assert best is not None
    return best[1], best[0] // 2 + 1


def _answer(op: Operation) -> None:
    for _ in range(ROUNDS):
        question = np.zeros(1, np.int64)
        op.wait([op.receive(question, 0)])
        op.wait([op.send(np.array([time.monotonic_ns()], np.int64), 0)])
