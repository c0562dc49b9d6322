"""What an emulated AMD GPU looks for while it runs a launch: for each word of HCQ_SANITIZE, steps and what they tell.

In       the Checks of a launch
Out      `additions_of`: the steps that look; `most_groups`: how many run together; `attach`: what these steps tell
Changes  the Residents that it attaches something to
Next     run.py (who asks), race_steps.py (the steps of a word), ../../shader/checks.py (what was found)
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hcq.emu.amd.shader.memory_order import acquires
from hcq.emu.amd.shader.race_steps import Looking, LookingAtLds
from hcq.emu.amd.shader.residents import Residents
from hcq.emu.amd.shader.wave_start import Launch
from hcq.emu.shader.checks import Checks
from hcq.emu.shader.global_races import GlobalRaces
from hcq.emu.shader.order import Order, Records
from hcq.emu.shader.races import Races
from hcq.emu.shader.shared_races import SharedRaces, blocks_at_once

if TYPE_CHECKING:
    from hcq.emu.amd.shader.program import Addition, Program


def additions_of(checks: Checks | None, launch: Launch) -> list[type[Addition]]:
    """What is put around the steps of a program that runs with these checks."""
    if checks is None:
        return []
    found: list[type[Addition]] = []
    if checks.races == "everywhere":
        found.append(Looking)
    elif checks.races and launch.lds_bytes:
        found.append(LookingAtLds)
    return found


def most_groups(checks: Checks | None, launch: Launch, waves_per_group: int, groups: int) -> int:
    """How many of so many workgroups may run together, so that what is remembered of them stays bounded."""
    if checks is not None and checks.races and launch.lds_bytes:
        groups = min(groups, blocks_at_once(launch.lds_bytes, waves_per_group))
    return groups


def attach(checks: Checks, program: Program, residents: Residents) -> None:
    """Give these workgroups what the steps of the checks tell."""
    if checks.races == "everywhere" or (checks.races and residents.launch.lds_bytes):
        residents.races = _races(checks, program, residents)


def _races(checks: Checks, program: Program, residents: Residents) -> Races:
    launch, items, waves = residents.launch, residents.items, residents.waves_per_group

    def name_of(wave: int, lane: int) -> str:
        return items.name_of(wave // waves, wave % waves * launch.wave_size + lane)

    everywhere, records = checks.over_launch.get(GlobalRaces), Records(0, waves)
    if everywhere is None and checks.races == "everywhere":
        everywhere = GlobalRaces(items.groups * waves, waves, name_of, program.text, checks)
        checks.over_launch[GlobalRaces] = everywhere
    if everywhere is not None:
        records = everywhere.records
    first, groups = int(residents.group_ids[0]), len(residents.alive)
    syncs = everywhere is not None and any(map(acquires, program.instructions.values()))
    order, shared = Order(records, first, groups, syncs), None
    if launch.lds_bytes:
        start = first * waves
        shared = SharedRaces(
            order, launch.lds_bytes, lambda wave, lane: name_of(start + wave, lane), program.text, checks
        )
    return Races(order, shared, everywhere)
