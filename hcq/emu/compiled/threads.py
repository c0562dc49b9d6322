"""Jobs of one launch on several cores: each thread takes the next workgroup, none of them under Python's lock.

In       Jobs that share a counter, how many instructions each may use
Out      how many were used, when all have come back
Changes  what the kernel changes
Next     launches.py and hcq/emu/nv/shader/native_jobs.py (jobs),
         docs/decisions/0016-workgroups-on-all-cores.md (which kernels may be spread)

Workgroups of a kernel without races write other addresses than those that others read or write, so that their order is
not seen. Atomic operations without a result commute where all of them are of one kind, and of integers. All other
kernels run in order, on one thread.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Protocol

from hcq import config

ALONE = (
    300_000  # instructions that one thread runs before others are asked: starting them takes as long as some
)


class Job(Protocol):
    """A part of a launch."""

    def run(self, instructions: int) -> int:
        """Run it until it is over, stops, or has used so many. Returns how many it has used."""


def count() -> int:
    """How many threads a launch may have: HCQ_EMU_THREADS."""
    return config.current().emu_threads


def run(jobs: Sequence[Job], instructions: int) -> int:
    """Run all of them, the first one on this thread. instructions: that each may use. Returns how many all did."""
    if len(jobs) == 1:
        return jobs[0].run(instructions)
    used = [0] * len(jobs)

    def work(number: int) -> None:
        used[number] = jobs[number].run(instructions)

    others = [
        threading.Thread(target=work, args=(number,), name=f"emulation {number}", daemon=True)
        for number in range(1, len(jobs))
    ]
    for one in others:
        one.start()
    work(0)
    for one in others:
        one.join()
    return sum(used)
