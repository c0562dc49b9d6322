"""Recorded: a collective written into the graphs of several devices, to be replayed with them.

In       a `Collective`, the tracks that it runs on, marks that it comes after; its buffers
Out      per device, the mark that its part ends with
Changes  the tracks
Next     perform.py (the same, submitted as it comes), staged.py (between devices that do not reach each other),
         hcq/work/device_track.py (tracks)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from hcq.frontend.core import device as devices
from hcq.frontend.devices.collectives import kernels
from hcq.frontend.devices.collectives.links import route
from hcq.frontend.devices.collectives.perform import Collective
from hcq.frontend.devices.collectives.staged import Staging, copy_staged
from hcq.work.device_track import Mark, Track

Alloc = Callable[[int, int, str], Any]  # device number, bytes, name


class Transport(NamedTuple):
    """What collectives of a recording go by.

    tracks   one per device
    alloc    memory of the recording, for what is received
    staging  memory of the host, for what goes through it
    relay    the track of the host's processor, made when it is asked for
    """

    tracks: Sequence[Track]
    alloc: Alloc
    staging: Staging
    relay: Callable[[], Track]


def record(
    what: Collective, by: Transport, sources: Sequence[Any], results: Sequence[Any], after: Sequence[Mark]
) -> list[Mark]:
    """Write a collective into tracks, one per device.

    after   per device, what fills its source
    Raises  UsageError where a device neither reaches another one's memory nor has a way to the host's
    """
    opened = [devices.get(name) for name in what.names]
    size = what.dtype.itemsize
    transit = [by.alloc(rank, what.transit * size, "blocks on their way") for rank in range(len(opened))]
    scratch = [by.alloc(rank, count * size, "received") for rank, count in enumerate(what.scratch)]
    spaces = {"source": sources, "result": results, "transit": transit}
    done = list(after)
    for made in what.rounds:
        before = list(done)
        ranks = dict.fromkeys(step.rank for step in made)
        for step in made:
            track = by.tracks[step.rank].after(before[step.rank])
            into = spaces[step.space][step.rank].view(step.at * size, step.length * size)
            theirs = spaces[step.peer_space][step.peer].view(step.peer_at * size, step.length * size)
            to = scratch[step.rank].view(0, step.length * size) if step.adds else into
            if step.peer == step.rank:
                track.graph.copy(to, theirs)
            elif route(opened[step.rank], opened[step.peer]).is_peer:
                track.after(before[step.peer]).graph.copy(to, theirs)
            else:
                sender = by.tracks[step.peer].after(before[step.peer])
                copy_staged(track, to, sender, theirs, by.staging, by.relay)
            if step.adds:
                assert what.op is not None
                kernels.add(track.graph, what.names[step.rank], what.op, what.dtype, step.length, into, to)
        for rank in ranks:
            done[rank] = by.tracks[rank].mark()
    return done
