"""Ranks: the rank of this process in a job of several processes, and the offset of its clock from rank 0's.

In       `set_here(Place(...))`, called by a launcher or a communication library
Out      `here()`; `clock_name()`, which is equal in two processes whose time.monotonic_ns reads the same clock
Changes  the rank that this process writes to traces, those already open and later ones
Next     named_spans.py (collective operations), observe/trace_writer.py (writes it), trace/join.py (joins the traces
         of several ranks)

Nothing here communicates with other processes. A Place may be set again when the offset was measured again. A trace
holds all of them with their times, and joining interpolates linearly between them.
"""

from __future__ import annotations

import os
import platform
from collections.abc import Callable, Mapping
from typing import NamedTuple

from hcq.errors import UsageError

# who sets them when it starts a process: Open MPI, MPICH and Hydra, PMIx, MVAPICH, Slurm
LAUNCHERS = ("OMPI_COMM_WORLD_RANK", "PMI_RANK", "PMIX_RANK", "MV2_COMM_WORLD_RANK", "SLURM_PROCID")


class Place(NamedTuple):
    """A process among those of its job.

    rank, ranks   its number, and how many there are
    host          a name for its machine, for people
    offset_ns     rank 0's time.monotonic_ns is this process's plus this
    error_ns      how far off that may be, to either side: half of the shortest round trip that it was measured by
    """

    rank: int
    ranks: int
    host: str
    offset_ns: int = 0
    error_ns: int = 0


def set_here(place: Place) -> None:
    """Say which rank this process is. Raises UsageError for numbers that cannot be."""
    if not 0 <= place.rank < place.ranks:
        raise UsageError(f"set_here: there is no rank {place.rank} among {place.ranks}; they count from 0.")
    if place.error_ns < 0:
        raise UsageError(f"set_here: an error of {place.error_ns} ns is no distance. Give it without a sign.")
    if place.rank == 0 and place.offset_ns:
        raise UsageError(
            f"set_here: rank 0 is {place.offset_ns} ns away from its own clock. Give it the offset 0."
        )
    global _here
    _here = place
    for call in list(_watchers):
        call(place)


def here() -> Place | None:
    """What was set last; None while nobody has said."""
    return _here


def on_set(call: Callable[[Place], None]) -> None:
    """Have a function called with every Place that is set from now on."""
    _watchers.append(call)


def number_here(environ: Mapping[str, str] = os.environ) -> int | None:
    """The number of this rank: as it was set, or else as the launcher's environment has it; None when neither says."""
    if _here is not None:
        return _here.rank
    for name in LAUNCHERS:
        text = environ.get(name, "")
        if text.isascii() and text.isdigit():
            return int(text)
    return None


def host_name() -> str:
    """What this machine calls itself."""
    return platform.node() or "unnamed host"


def clock_name() -> str | None:
    """The clock that time.monotonic_ns reads here. Processes with the same one need no offset between them.

    On Linux it begins when the system does, and a time namespace moves it: the number of the boot, and the namespace.
    None where the system does not say.
    """
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
            boot = file.read().strip()
        return f"{boot} {os.readlink('/proc/self/ns/time')}"
    except OSError:
        return None


_here: Place | None = None
_watchers: list[Callable[[Place], None]] = []
