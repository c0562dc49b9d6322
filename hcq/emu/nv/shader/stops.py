"""Why a kernel cannot go on, in words: it takes too long, nobody can end a wait, nobody can run.

In       a Machine, the path that is stopped
Out      the fault to raise
Changes  nothing
Next     machine.py (who raises), standing.py (where all others are)
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from hcq.emu.nv.shader.errors import Deadlock, StepLimit
from hcq.emu.nv.shader.paths import Path

if TYPE_CHECKING:
    from hcq.emu.nv.shader.machine import Machine

WAITS = {
    "barrier": "a barrier of their block",
    "warp barrier": "a barrier of their warp",
    "warp": "threads that the instruction's mask names, or the other warps of their warpgroup",
}


def too_long(machine: Machine, path: Path, line: int) -> StepLimit:
    """The budget is spent."""
    block, thread = path.first()
    return StepLimit(
        f"kernel {machine.kernel_name}: {machine.step_limit} instructions were not enough; {path.count} threads,"
        f" the first thread {thread} of block {block}, are at PTX line {line}. Is the loop endless?",
        line,
        [(block, thread)],
    )


def endless_wait(machine: Machine, path: Path, line: int, failed: str) -> Deadlock:
    """Threads only look at an mbarrier. failed: what they have found."""
    block, thread = path.first()
    if machine.batch.sync_faults is not None:
        machine.batch.sync_faults.endless(int(np.argmax(path.full_mask)), line, failed)
    return Deadlock(
        f"kernel {machine.kernel_name}, PTX line {line}: nobody can end the wait of thread {thread} of "
        f"block {block}: {failed} Wait for the phase that copies and arrivals complete.",
        line,
        [(block, thread)],
    )


def deadlock(machine: Machine) -> Deadlock:
    """All threads wait."""
    path = machine.waiting[0]
    if machine.batch.sync_faults is not None:
        machine.batch.sync_faults.stuck([path.seen() for path in machine.waiting])
    block, thread = path.first()
    waits = "; ".join(
        f"{path.count} threads at PTX line {path.line} wait for {WAITS[path.waits_for]}"
        for path in machine.waiting[:4]
    )
    return Deadlock(
        f"kernel {machine.kernel_name}: no thread can go on: {waits}; the first is thread {thread} of block {block}."
        " Every thread that a barrier counts must come to it.",
        path.line,
        [(block, thread)],
    )
