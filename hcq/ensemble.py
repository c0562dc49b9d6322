"""Ensembles: graphs of several devices that wait for each other, recorded once and replayed with one submission each.

In       tracks, one for each device or second channel: a graph, and marks that other tracks come after
Out      replay(values by track) -> the completions of all of them
Changes  the signals of its marks, which are set back to 0 before they are used again
Next     graph.py (one device's part), peers.py (devices that wait for each other as they go)

A mark is a value of the track's own signal, which the recorded words set; another track's words wait for it. There are
two sets of graphs and signals, taken in turn: before a set is used again all of its graphs are done, so the host may
set its signals back.

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

from hcq.errors import UsageError
from hcq.signal import Completion

SETS = 2

Mark = tuple["Track", int]


class Track:
    """One device's part. Record into `graph`; buffers of others may be named where the device reaches them."""

    def __init__(self, device: Any, name: str, is_apart: bool) -> None:
        self.device = device
        self.graph = device.graph(name)
        self.graph.reaches_peers = True
        self.graph.is_apart = is_apart
        self.signal = device.signal(f"{name} marks")
        self.marks = 0
        self._recorded = 0  # commands at the last mark
        self._behind: dict[Track, int] = {}  # marks of others that everything from here on comes after

    def mark(self) -> Mark:
        """What another track may come after: all that is recorded here so far."""
        if not self._is_marked_since():
            self.marks += 1
            self.graph.signal(self.signal, self.marks)
            self._recorded = len(self.graph.commands)
        return self, self.marks

    def _is_marked_since(self) -> bool:
        return self.marks > 0 and self._recorded == len(self.graph.commands)

    def after(self, mark: Mark) -> Track:
        """From here on it comes after that mark. Raises UsageError where this device cannot watch the other one."""
        other, value = mark
        if other is self or self._behind.get(other, 0) >= value:
            return self
        if not self.device.can_watch(other.device):
            raise UsageError(
                f"a recording on {self.device.name} and {other.device.name}: {self.device.name} cannot wait for the "
                "other by itself. Submit the work as it comes, without a recording."
            )
        self.graph.wait(other.signal, value)
        self._behind[other] = value
        return self


class Ensemble:
    """Tracks that are replayed together.

    devices  of the tracks, in their order: devices, or companions of them
    record   records into the tracks; called once for each set, and must do the same each time
    """

    def __init__(
        self,
        name: str,
        devices: Sequence[Any],
        record: Callable[[list[Track]], object],
        is_apart: bool = False,
    ) -> None:
        self.name = name
        self.sets: list[list[Track]] = []
        for _ in range(SETS):
            tracks = [Track(device, name, is_apart) for device in devices]
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
        """
        turn, self._turn = self._turn, (self._turn + 1) % SETS
        tracks, before = self.sets[turn], self._done[turn]
        for done in before:
            if done.is_done:
                done.device.timeline.found_done()
            else:
                done.device.wait_value(done.value)
        if before:
            for track in tracks:
                if track.marks:
                    track.signal.set(0)
        self._done[turn] = found = []
        for place, track in enumerate(tracks):
            if track.graph.commands:
                found.append(track.graph.replay(values[place] if values else {}))
        return list(found)
