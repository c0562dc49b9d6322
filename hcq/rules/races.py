"""Rules on what kernels do to memory that their threads share, checked while an emulated GPU runs them.

In       what an emulated GPU has found
Out      shared-race
Changes  nothing
Next     hcq/observe/sanitizer.py (who asks), hcq/emu/shader/shared_races.py (how it is found), docs/rules/
"""

from __future__ import annotations

from hcq.events.kernel_races import Access, Race
from hcq.rules.rule import Rule, Violation, rule

SHARED_RACE: Rule = rule(
    "shared-race",
    "Something orders two accesses of different warps to one place in shared memory, if one of them is a write"
    " (checked on emulated GPUs with HCQ_SANITIZE=race).",
    "Put a barrier of the block between them, or make both atomic.",
    level="warning",
)


def shared_race(race: Race, entry: int) -> Violation:
    """What an emulated GPU has found; it is told when the launch has run."""
    more = f", and {race.times - 1} times more" if race.times > 1 else ""
    return Violation(
        SHARED_RACE,
        f"a race on byte {race.offset} of shared memory: {_side(race.first, entry)}, and "
        f"{_side(race.second, entry)}, with no barrier between{more}",
    )


def _side(access: Access, entry: int) -> str:
    where = f"at {access.place - entry:#x}" if access.place >= entry else f"in line {access.place}"
    verb = {"load": "reads", "store": "writes", "atomic": "changes"}[access.kind]
    return f"{access.who} {verb} it by {access.text!r} {where}"
