"""Device track: the part of a multi-device graph that runs on one device, and its waits for the other devices.

In       devices; commands, recorded into each track's graph; marks
Out      graphs that wait for each other's signals
Changes  signals of the devices; opens the relay where two devices can neither watch nor notify each other
Next     multi_device_graph.py (replays them), peers.py (the relay), hcq/base.py (can_watch, can_notify)
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import Any

from hcq.errors import UsageError
from hcq.signal import Signal
from hcq.work import peers

Mark = tuple["Track", int]


class Track:
    """One device's part. Record into `graph`; buffers of others may be named where the device reaches them."""

    def __init__(self, device: Any, name: str, is_apart: bool, tracks: Tracks) -> None:
        self.device = device
        self.graph = device.graph(name)
        self.graph.reaches_peers = True
        self.graph.is_apart = is_apart
        self.signal: Signal = device.signal(f"{name} marks")
        self.marks = 0
        self.posts: list[Signal] = []  # of others that cannot watch `signal`: they get its values, too
        self._tracks = tracks
        self._recorded = 0  # commands at the last mark
        self._behind: dict[Track, int] = {}  # marks of others that everything from here on comes after

    def mark(self) -> Mark:
        """What another track may come after: all that is recorded here so far."""
        if not self._is_marked_since():
            self.marks += 1
            for signal in (self.signal, *self.posts):
                self.graph.signal(signal, self.marks)
            self._recorded = len(self.graph.commands)
        return self, self.marks

    def _is_marked_since(self) -> bool:
        return self.marks > 0 and self._recorded == len(self.graph.commands)

    def after(self, mark: Mark) -> Track:
        """From here on it comes after that mark.

        Raises UsageError where this device does not learn of the other one's signals, by no way.
        """
        other, value = mark
        if other is self or self._behind.get(other, 0) >= value:
            return self
        signal = other.signal_for(self.device)
        if signal is not None:
            self.graph.wait(signal, value)
        else:
            relay = self._tracks.relay
            if relay in (self, other) or not relay.device.can_watch(other.device):
                raise UsageError(
                    f"a recording on {self.device.name} and {other.device.name}: {self.device.name} cannot wait for "
                    "the other by itself, nor can the host's processor for it. Submit the work as it comes, without "
                    "a recording."
                )
            self.after(relay.after(mark).mark())
        self._behind[other] = value
        return self

    def is_behind(self, others: Collection[Track]) -> bool:
        """Whether something in this track waits for one of those."""
        return any(other in others for other in self._behind)

    def signal_for(self, device: Any) -> Signal | None:
        """Where a device sees the marks of this track; None where it does not."""
        if device.can_watch(self.device):
            return self.signal
        return next((post for post in self.posts if device.can_watch(post.device)), None)

    def post_to(self, device: Any) -> None:
        """Have the marks stored where that device sees them, if it does not already and this one can do that."""
        if self.signal_for(device) is None and self.device.can_notify(device):
            self.posts.append(device.signal(f"{self.graph.name} marks of {self.device.name}"))


class Tracks(Sequence[Track]):
    """The tracks of one set: those of the devices, and the relay's once it was asked for."""

    def __init__(self, name: str, devices: Sequence[Any], is_apart: bool) -> None:
        self._name = name
        self._all = [Track(device, name, is_apart, self) for device in devices]
        self._relay: Track | None = None
        for track in self._all:
            for other in self._all:
                track.post_to(other.device)

    @property
    def relay(self) -> Track:
        """A track of the host's processor, which sees what the devices signal and reaches what they have pinned."""
        if self._relay is None:
            self._relay = Track(peers.relay(), self._name, True, self)
            for other in self._all:
                self._relay.post_to(other.device)
            self._all.append(self._relay)
        return self._relay

    def set_back(self) -> None:
        """Set all signals to 0. None of the tracks is in flight."""
        for track in self._all:
            if track.marks:
                for signal in (track.signal, *track.posts):
                    signal.set(0)

    def __getitem__(self, index: Any) -> Any:
        return self._all[index]

    def __len__(self) -> int:
        return len(self._all)

    def __iter__(self) -> Iterator[Track]:
        return iter(self._all)
