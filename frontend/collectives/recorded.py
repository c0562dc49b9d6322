"""Recorded: a collective written into the graphs of several devices, to be replayed with them.

In       a `Collective`, the tracks that it runs on, marks that it comes after; its buffers
Out      per device, the mark that its part ends with
Changes  the tracks
Next     perform.py (the same, submitted as it comes), hcq/ensemble.py (tracks)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from hcq.ensemble import Mark, Track
from hcq.errors import UsageError
from hcq.frontend import device as devices
from hcq.frontend.collectives import kernels
from hcq.frontend.collectives.links import route
from hcq.frontend.collectives.perform import Collective

Alloc = Callable[[int, int, str], Any]  # device number, bytes, name


def record(
    what: Collective,
    tracks: Sequence[Track],
    sources: Sequence[Any],
    results: Sequence[Any],
    after: Sequence[Mark],
    alloc: Alloc,
) -> list[Mark]:
    """Write a collective into tracks, one per device.

    after   per device, what fills its source
    alloc   memory for what is received
    Raises  UsageError where a route is staged: the host has a part in it, which no recording does
    """
    opened = [devices.get(name) for name in what.names]
    size = what.dtype.itemsize
    transit = [alloc(rank, what.transit * size, "blocks on their way") for rank in range(len(opened))]
    scratch = [alloc(rank, count * size, "received") for rank, count in enumerate(what.scratch)]
    spaces = {"source": sources, "result": results, "transit": transit}
    done = list(after)
    for made in what.rounds:
        before = list(done)
        ranks = dict.fromkeys(step.rank for step in made)
        for step in made:
            track = tracks[step.rank].after(before[step.rank])
            into = spaces[step.space][step.rank].view(step.at * size, step.length * size)
            theirs = spaces[step.peer_space][step.peer].view(step.peer_at * size, step.length * size)
            to = scratch[step.rank].view(0, step.length * size) if step.adds else into
            if step.peer != step.rank:
                way = route(opened[step.rank], opened[step.peer])
                if not way.is_peer:
                    raise UsageError(
                        f"[jit] {what.kind} over {', '.join(what.names)} goes through the host, for {way.why}; a "
                        "recording cannot hold that. Call the function without jit."
                    )
                track.after(before[step.peer])
            track.graph.copy(to, theirs)
            if step.adds:
                assert what.op is not None
                kernels.add(track.graph, what.names[step.rank], what.op, what.dtype, step.length, into, to)
        for rank in ranks:
            done[rank] = tracks[rank].mark()
    return done
