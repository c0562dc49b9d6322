"""Multi-device graph (`Ensemble`): one graph on each of several devices, which wait for each other as they replay.

In       tracks, one for each device or second channel: a graph, and marks that other tracks wait for
Out      replay(values by track) -> the completions of all of them
Changes  the signals of the marks, which are reset to 0 before they are used again
Next     device_track.py (one device's part), peers.py (devices that wait for each other as they go; the relay)

A mark is a value of a track's signal. The recorded commands of this track set it, those of another track wait for it.
If a device cannot read the signals of the other one, the other one also writes to a signal of this device. If it cannot
do that either, as between GPUs of two vendors, a relay stands between: a command queue of the host's processor.

There are two sets of graphs and signals, used in turn. Before a set is used again all of its graphs are done, so the
host can reset its signals. If an ensemble is dropped while its graphs run, it stays alive until all are done, because
one device may still have to read a signal of another that has already finished.

    >>> from hcq.work.multi_device_graph import Ensemble
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

import contextlib
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from hcq.errors import HcqError, WaitTimeout
from hcq.signal import Completion
from hcq.work.device_track import Tracks

SETS = 2
GIVE_UP_MS = 1000

_unfinished: list[tuple[list[Tracks], list[list[Completion]]]] = []  # of ensembles that nobody holds any more


def _drop_finished() -> None:
    for one in list(_unfinished):
        if _is_finished(one[1]):
            _unfinished.remove(one)


def _is_finished(replays: Sequence[Sequence[Completion]]) -> bool:
    """Whether all of it has ended, also with devices that were closed; for destructors, so nobody is notified."""
    return all(
        done.device.dead or done.device.timeline._cell[0] >= done.value for made in replays for done in made
    )


class Ensemble:
    """Tracks that are replayed together.

    devices  of the tracks, in their order: devices, or companions of them
    record   records into the tracks; called once for each set, and must do the same each time
    sets     of tracks: those of the devices, and behind them the relay's, where one was needed
    """

    def __init__(
        self, name: str, devices: Sequence[Any], record: Callable[[Tracks], object], is_apart: bool = False
    ) -> None:
        _drop_finished()
        self.name = name
        self.sets: list[Tracks] = []
        self._done: list[list[Completion]] = [[] for _ in range(SETS)]
        for _ in range(SETS):
            tracks = Tracks(name, devices, is_apart)
            record(tracks)
            self.sets.append(tracks)
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

    # is_finalizing is bound here, for at the interpreter's end the names of modules are gone
    def __del__(self, is_finalizing: Callable[[], bool] = sys.is_finalizing) -> None:
        if not is_finalizing() and not _is_finished(self._done):
            _unfinished.append((self.sets, self._done))


def _give_up(tracks: Tracks, sent: Sequence[Completion]) -> None:
    """A part was submitted, and the rest was not: what waits for the rest is dropped, and counts as failed.

    What was submitted before gets some time to end, for it has nothing to do with that.
    """
    values = {done.device: done.value for done in sent}
    missing = {track for track in tracks if track.device not in values}
    for track in tracks:
        device = track.device
        if device in values and track.is_behind(missing):
            missing.add(track)
            try:
                with contextlib.suppress(WaitTimeout):
                    device.drain(values[device] - 1, GIVE_UP_MS)
                device.reset()
            except HcqError as error:
                device.say(f"dropping a part of {track.graph.name!r}: {error}")
