"""Memory of a recording: temporaries of all its plans, and what a call makes and drops again, share memory.

In       the runs of a call, and what of that which they make is kept
Out      Planned: for each value the number of its memory, and how large each memory is
Next     run/memory_plan.py (who may share), replay.py and saving.py (who allocate it, or write it into a file)

What a call makes is left to whoever called it, or is the gradient of a parameter, or nobody sees it once the call is
over. That last kind lives from the launch that makes it to the last one that reads it, in whichever plan, and so do
temporaries.
"""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from typing import Any, NamedTuple

from hcq.frontend.jit.record import Role, Run
from hcq.frontend.run.memory_plan import share
from hcq.work.dependences import Dependences, Use


class Planned(NamedTuple):
    """Key -> number of the memory; a key is a role, or (number of the run, number of the value) of a temporary."""

    places: Mapping[Any, int]
    sizes: Sequence[int]
    given: Sequence[Role] = ()  # the donated arguments whose memory the first of these are


def plan_memory(
    runs: Sequence[Run],
    sizes: Mapping[Role, int],
    kept: Container[Role],
    runs_side_by_side: bool = False,
    donated: Mapping[Role, int] | None = None,
    left: Container[Role] = (),
) -> Planned:
    """Memory for everything that no call leaves behind.

    sizes  bytes of each role that the call made
    kept   roles whose memory is no part of this
    donated  bytes of arguments that nobody needs after the call
    left     roles that the call leaves, which may be in the memory of those
    runs_side_by_side  the device runs launches side by side that nothing orders: sharing memory does not order them
    """
    launches: list[list[Any]] = []
    uses: list[list[Use]] = []
    wanted: dict[Any, int] = {}
    read_first: set[Any] = set()  # nobody makes it before it is read: it is not for us to place
    for number, run in enumerate(runs):
        roles = run.roles()
        for launch in run.plan.launches:
            keys = [roles[v] if v in roles else (number, v) for v in launch.arguments]
            launches.append(keys)
            uses.append(
                [Use(0, 1, v in launch.writes, ("value", key)) for v, key in zip(launch.arguments, keys)]
            )
            written = {key for key, v in zip(keys, launch.arguments) if v in launch.writes}
            for key, value in zip(keys, launch.arguments):
                if key in wanted or key in read_first:
                    continue
                if value not in roles:
                    wanted[key] = run.plan.values[value].size_bytes
                elif key[0] == "made" and key not in kept:
                    if key in written:
                        wanted[key] = sizes[key]
                    else:
                        read_first.add(key)
    behind = Dependences(uses).behind if runs_side_by_side else None
    given = donated or {}
    results = {role: size for role, size in sizes.items() if role in left} if given else {}
    places, made = share(launches, wanted, behind, given, results)
    return Planned(places, made, tuple(given))
