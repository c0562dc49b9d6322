"""Steps that look for lanes that go on without having been at a barrier (HCQ_SANITIZE=sync).

In       instructions as a program compiles them; then the batches of waves that run them
Out      `Meeting`: steps around those of the program
Changes  the Skipped of the resident waves; the Checks of the launch
Next     checks.py (who attaches it), control.py (barriers), ../../nv/shader/sync_steps.py (the same for PTX)
Source   HIP's documentation, "Synchronization functions" (`__syncthreads()` is for all threads of a block); AMD's ISA
         documents (s_barrier is executed once for a wave, whatever EXEC is)

A wave that comes to a barrier inside a branch of some lanes waits there for all its lanes: those that are off have
skipped it. They may have ended; so it is a fault when one of them does something afterwards.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from hcq.emu.amd.shader.operands import Context, Step
from hcq.emu.amd.shader.waves import Batch
from hcq.emu.shader.checks import Checks
from hcq.events.kernel_faults import KernelFault, Site

if TYPE_CHECKING:
    from hcq.emu.amd.shader.residents import Residents

RULE = "barrier-divergent"
SHOWS = ("FLAT", "GLOBAL", "DS")  # compilers turn lanes on that have ended for other instructions
BARRIERS = ("s_barrier", "s_barrier_signal", "s_barrier_signal_isfirst")


class Skipped:
    """Lanes of resident waves that were off at a barrier, and the place of that."""

    def __init__(self, residents: Residents, checks: Checks, text_of: Callable[[int], str]) -> None:
        self.start, self.checks, self.text_of = residents.start_lanes, checks, text_of
        self.lanes = np.zeros_like(residents.start_lanes)
        self.place = np.zeros(len(residents.group_of), np.int64)
        self.is_any = False


class Meeting:
    """Makes the steps of one program tell. Their batches belong to Residents that have `skipped`."""

    def around(self, ctx: Context, step: Step) -> Step:
        """The step of an instruction that touches memory which others see."""
        if ctx.inst.format not in SHOWS:
            return step

        def told(b: Batch) -> None:
            skipped = b.residents.skipped
            if skipped is not None and skipped.is_any and b.answer is None:
                _look(ctx, b, skipped)
            step(b)

        return told

    def head(self, instructions: list[Context]) -> Step | None:
        """Nothing before a block."""
        return None

    def before_end(self, ctx: Context) -> Step | None:
        """What notes who is not at a barrier, which ends a block."""
        if ctx.inst.name not in BARRIERS:
            return None
        place = ctx.inst.pc

        def note(b: Batch) -> None:
            skipped = b.residents.skipped
            if skipped is None or b.answer is not None:
                return
            if skipped.is_any:
                _look(ctx, b, skipped)
            off = skipped.start[b.ids] & ~b.lanes
            new = off.any(axis=1) & ~skipped.lanes[b.ids].any(axis=1)
            if new.any():
                skipped.lanes[b.ids[new]], skipped.place[b.ids[new]] = off[new], place
                skipped.is_any = True

        return note


def _look(ctx: Context, b: Batch, skipped: Skipped) -> None:
    back = skipped.lanes[b.ids] & b.lanes
    if not back.any():
        return
    wave, lane = (int(one[0]) for one in np.nonzero(back))
    place, pc, checks = int(skipped.place[b.ids[wave]]), ctx.inst.pc, skipped.checks
    who, there = b.lane_names(wave, lane), b.lane_names(wave, int(np.argmax(~skipped.lanes[b.ids[wave]])))
    sites = (
        Site("waits", skipped.text_of(place), place, there),
        Site("goes on", skipped.text_of(pc), pc, who),
    )
    fault = KernelFault(RULE, "threads of one wave come apart from each other to a barrier", "", 0, sites)
    checks.add((RULE, place), int(np.count_nonzero(back)), lambda: fault)
    skipped.lanes[b.ids[back.any(axis=1)]] = False
