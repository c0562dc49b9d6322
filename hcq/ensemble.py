"""Ensembles: graphs of several devices that wait for each other, recorded once and replayed with one submission each.

In       tracks, one for each device or second channel: a graph, and marks that other tracks come after
Out      replay(values by track) -> the completions of all of them
Changes  the signals of its marks, which are set back to 0 before they are used again
Next     track.py (one device's part), peers.py (devices that wait for each other as they go; the relay)

A mark is a value of the track's own signal, which the recorded words set; another track's words wait for it. Where a
device cannot watch the other one's signals, the other one also sets a signal of its own; where that is out of reach,
too, as between GPUs of two vendors, a track of the relay stands between, a command queue of the host's processor.

There are two sets of graphs and signals, taken in turn: before a set is used again all of its graphs are done, so the
host may set its signals back.

    >>> from hcq.ensemble import Ensemble
    >>> one, other = hcq.open("CPU"), hcq.open("CPU:1")
    >>> a, b = one.alloc(4, "a"), other.alloc(4, "b")
    >>> def record(tracks):
    ...     first, second = tracks
    ...     first.graph.fill(a, 7)
    ...     second.after(first.mark())
    ...     second.graph.copy(b, a)
    >>> both = Ensemble("both", [one, other], record)
    >>> _ = [done.wait() for done in both.replay()]
    >>> b.read().hex()
    '07070707'
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from hcq.errors import HcqError
from hcq.signal import Completion
from hcq.track import Tracks

SETS = 2


class Ensemble:
    """Tracks that are replayed together.

    devices  of the tracks, in their order: devices, or companions of them
    record   records into the tracks; called once for each set, and must do the same each time
    sets     of tracks: those of the devices, and behind them the relay's, where one was needed
    """

    def __init__(
        self,
        name: str,
        devices: Sequence[Any],
        record: Callable[[Tracks], object],
        is_apart: bool = False,
    ) -> None:
        self.name = name
        self.sets: list[Tracks] = []
        for _ in range(SETS):
            tracks = Tracks(name, devices, is_apart)
            record(tracks)
            self.sets.append(tracks)
        self._done: list[list[Completion]] = [[] for _ in range(SETS)]
        self._turn = 0

    @property
    def commands(self) -> list[Any]:
        """What one replay does, of all tracks."""
        return [what for track in self.sets[0] for what in track.graph.commands]

    def replay(self, values: Sequence[Mapping[Any, Any]] = ()) -> list[Completion]:
        """Submit all tracks, one submission each.

        values   per track what its graph's symbols are; may be left out where there are none
        Returns  the completions of those that have something to do
        Raises   UsageError when one of the devices cannot be used any more; nothing is submitted then
        """
        turn = self._turn
        tracks, before = self.sets[turn], self._done[turn]
        for track in tracks:
            if track.device.dead:
                track.device.check_alive()
        self._turn = (turn + 1) % SETS
        for done in before:
            if done.is_done:
                done.device.timeline.found_done()
            else:
                done.device.wait_value(done.value)
        if before:
            tracks.set_back()
        self._done[turn] = found = []
        try:
            for place, track in enumerate(tracks):
                if track.graph.commands:
                    found.append(track.graph.replay(values[place] if place < len(values) else {}))
        except BaseException:
            _give_up(tracks, found)
            raise
        return list(found)


def _give_up(tracks: Tracks, sent: Sequence[Completion]) -> None:
    """A part was submitted, and the rest was not: what waits for the rest is dropped, and counts as failed."""
    devices = {done.device for done in sent}
    missing = {track for track in tracks if track.device not in devices}
    for track in tracks:
        if track.device in devices and track.is_behind(missing):
            missing.add(track)
            try:
                track.device.reset()
            except HcqError as error:
                track.device.say(f"dropping a part of {track.graph.name!r}: {error}")
