"""Why a kernel cannot go on, in words: it takes too long, nobody can end a wait, nobody can run.

In       the path that is stopped, or those that wait
Out      the fault to raise
Next     machine.py (who raises), standing.py (where all others are)
"""

from __future__ import annotations

import numpy as np

from hcq.emu.nv.shader.errors import Deadlock, StepLimit
from hcq.emu.nv.shader.paths import Path

WAITS = {
    "barrier": "a barrier of their block",
    "cluster barrier": "the barrier of their cluster",
    "warp barrier": "a barrier of their warp",
    "warp": "threads that the instruction's mask names, or the other warps of their warpgroup",
}


def too_long(path: Path, line: int) -> StepLimit:
    """The budget is spent."""
    launch = path.batch.launch
    block, thread = path.first()
    return StepLimit(
        f"kernel {launch.kernel_name}: {launch.step_limit} instructions were not enough; {path.count} threads,"
        f" the first thread {thread} of block {block}, are at PTX line {line}. Is the loop endless?",
        line,
        [(block, thread)],
    )


def endless_wait(path: Path, line: int, failed: str) -> Deadlock:
    """Threads only look at an mbarrier. failed: what they have found."""
    batch = path.batch
    block, thread = path.first()
    if batch.sync_faults is not None:
        batch.sync_faults.endless(int(np.argmax(path.full_mask)), line, failed)
    return Deadlock(
        f"kernel {batch.launch.kernel_name}, PTX line {line}: nobody can end the wait of thread {thread} of "
        f"block {block}: {failed} Wait for the phase that copies and arrivals complete.",
        line,
        [(block, thread)],
    )


def deadlock(waiting: list[Path]) -> Deadlock:
    """All threads wait."""
    path = waiting[0]
    batch = path.batch
    if batch.sync_faults is not None:
        batch.sync_faults.stuck([path.seen() for path in waiting])
    block, thread = path.first()
    waits = "; ".join(
        f"{path.count} threads at PTX line {path.line} wait for {WAITS[path.waits_for]}"
        for path in waiting[:4]
    )
    return Deadlock(
        f"kernel {batch.launch.kernel_name}: no thread can go on: {waits}; the first is thread {thread} of block "
        f"{block}. Every thread that a barrier counts must come to it.",
        path.line,
        [(block, thread)],
    )
