"""What an emulated NVIDIA GPU looks for while it runs a grid: for each word of HCQ_SANITIZE, steps and what they tell.

In       the Checks of a launch
Out      `additions_of`: the steps that look; `most_blocks`: how many run together; `attach`: what these steps tell
Changes  the Batch that it attaches something to
Next     run.py and ../launch.py (who ask), race_steps.py (the steps of a word), ../../shader/checks.py (what was found)
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hcq.emu.nv.shader.batch import WARP, Batch, thread_name
from hcq.emu.nv.shader.race_steps import looked, looked_at_shared
from hcq.emu.shader.checks import Checks
from hcq.emu.shader.global_races import GlobalRaces
from hcq.emu.shader.order import Order, Records
from hcq.emu.shader.races import Races
from hcq.emu.shader.shared_races import SharedRaces, blocks_at_once

if TYPE_CHECKING:
    from hcq.emu.nv.shader.opcodes import Addition
    from hcq.emu.nv.shader.program import Program


def additions_of(checks: Checks | None) -> tuple[Addition, ...]:
    """What is put around the steps of a kernel that runs with these checks."""
    if checks is None:
        return ()
    return {"everywhere": (looked,), "shared": (looked_at_shared,), "": ()}[checks.races]


def most_blocks(checks: Checks | None, shared_bytes: int, warps_per_block: int, blocks: int) -> int:
    """How many of so many blocks may run together, so that what is remembered of them stays bounded."""
    if checks is not None and checks.races:
        blocks = min(blocks, blocks_at_once(shared_bytes, warps_per_block))
    return blocks


def attach(checks: Checks, program: Program, batch: Batch) -> None:
    """Give these blocks what the steps of the checks tell."""
    launch = batch.launch
    if checks.races == "everywhere" or (checks.races and launch.shared_bytes):
        warps = -(-batch.threads_per_block // WARP)

        def name_of(warp: int, lane: int) -> str:
            return thread_name(launch, warp // warps, warp % warps * WARP + lane)

        everywhere, records = checks.over_launch.get(GlobalRaces), Records(0, warps)
        if everywhere is None and checks.races == "everywhere":
            x, y, z = launch.grid
            everywhere = GlobalRaces(x * y * z * warps, warps, name_of, program.text_of_line, checks)
            checks.over_launch[GlobalRaces] = everywhere
        is_exact = everywhere is not None
        if everywhere is not None:
            records = everywhere.records
        first, count = int(batch.blocks[0]), len(batch.blocks)
        order = Order(records, first, count, needs_fences=is_exact, lanes_are_apart=is_exact, lanes=WARP)
        shared = SharedRaces(order, launch.shared_bytes, batch.name_of, program.text_of_line, checks)
        batch.races = Races(order, shared, everywhere)
