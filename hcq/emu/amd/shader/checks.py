"""What an emulated AMD GPU looks for while it runs a launch: for each word of HCQ_SANITIZE, steps and what they tell.

In       the Checks of a launch
Out      `additions_of`: the steps that look; `most_groups`: how many run together; `attach`: what these steps tell
Changes  the Residents that it attaches something to
Next     run.py (who asks), race_steps.py and wait_steps.py (the steps of a word), ../../shader/checks.py (what was
         found)
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hcq.emu.amd.shader.lds_waits import Groups, LdsWaits
from hcq.emu.amd.shader.race_steps import Looking
from hcq.emu.amd.shader.register_waits import RegisterWaits, Words
from hcq.emu.amd.shader.residents import Residents
from hcq.emu.amd.shader.wait_steps import Waiting
from hcq.emu.amd.shader.wave_start import Launch
from hcq.emu.shader.checks import Checks
from hcq.emu.shader.shared_races import SharedRaces, blocks_at_once

if TYPE_CHECKING:
    from hcq.emu.amd.shader.program import Addition, Program


def additions_of(checks: Checks | None, launch: Launch) -> list[type[Addition]]:
    """What is put around the steps of a program that runs with these checks."""
    if checks is None:
        return []
    found: list[type[Addition]] = []
    if "race" in checks.words and launch.lds_bytes:
        found.append(Looking)
    if "wait" in checks.words:
        found.append(Waiting)
    return found


def most_groups(checks: Checks | None, launch: Launch, waves_per_group: int, groups: int) -> int:
    """How many of so many workgroups may run together, so that what is remembered of them stays bounded."""
    if checks is not None and "race" in checks.words and launch.lds_bytes:
        groups = min(groups, blocks_at_once(launch.lds_bytes, waves_per_group))
    return groups


def attach(checks: Checks, program: Program, residents: Residents) -> None:
    """Give these workgroups what the steps of the checks tell."""
    launch = residents.launch
    if "race" in checks.words and launch.lds_bytes:
        residents.races = SharedRaces(
            len(residents.alive),
            launch.lds_bytes,
            residents.waves_per_group,
            residents.name_of,
            program.text,
            checks,
        )
    if "wait" in checks.words:
        words = Words(program.text, residents.name_of, program.isa.generation)
        residents.waits = RegisterWaits(len(residents.group_of), launch.vgprs, words, checks)
        groups = Groups(
            residents.group_of,
            residents.phase,
            residents.lds_stride,
            residents.lds_size,
            residents.arrivals,
        )
        residents.lds_waits = LdsWaits(residents.waits, groups)
    if "sync" in checks.words:
        residents.barrier_checks = checks
