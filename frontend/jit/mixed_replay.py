"""Mixed replay: a captured call that computes on several devices, one after the other or side by side, and moves values
between them.

In       a CallRecord whose plans are of single devices, and its moves
Out      as a `Recording`
Changes  as a `Recording`
Next     replay.py (everything that is not special to several devices), group_replay.py (devices that compute
         together), devices/collectives/staged.py (moves through memory of the host), hcq/work/multi_device_graph.py
         (graphs that wait)

Each device has a graph. A move is a command of who receives it, which comes after what makes the values there; the
device that they are from goes on meanwhile, until it writes again what is moved, or the call ends. Arguments and
results are in other memory in each replay, and a kernel copies between that and memory of the recording.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from hcq.frontend.core import device as devices
from hcq.frontend.core.storage import Storage
from hcq.frontend.devices.collectives import kernels
from hcq.frontend.devices.collectives.links import route
from hcq.frontend.devices.collectives.staged import Staging, copy_staged
from hcq.frontend.jit.record import Move, Role, Run
from hcq.frontend.jit.replay import Recording
from hcq.frontend.run import timed_out_work
from hcq.graph import Symbol
from hcq.work.device_track import Mark, Track, Tracks
from hcq.work.multi_device_graph import Ensemble


class MixedRecording(Recording):
    """A call on several devices, each of which computes for itself, that can be submitted again."""

    def new(self, like: Storage, name: str) -> Storage:
        """New memory for a storage like that one."""
        return like.like(devices.get(like.device).memory.alloc(like.size_bytes, name))

    def _drop_overdue(self, storages: Iterable[Storage]) -> None:
        held = [storage.buffer for storage in storages if storage.buffer is not None]
        for device in self.opened:
            timed_out_work.drop(device, [buffer for buffer in held if buffer.device is device])

    def _graphs(self, by_result: bool) -> list[Any]:
        """One for all: results are complete when the whole replay is."""
        return [_Graphs(self)]

    def place_of(self, role: Role, device: str) -> Any:
        """The buffer of a role on that device, or the symbol under which each replay names it."""
        kind, what = role
        if kind == "made" and role not in self.fresh and role not in self.own:
            self.own[role] = devices.get(device).alloc(self.seen.sizes[role], f"{self.name} (made {what})")
        return self._place(role)


class _Graphs:
    """The graphs of a recording. `commands`: what a replay does; `replay`: with the memory that each role is."""

    def __init__(self, recording: MixedRecording) -> None:
        self.recording = recording
        self.names = devices.members(recording.device)
        self._memory: list[Any] = []  # allocated for the first set, and used by the second, too
        self._next = 0
        # by device and number: its plans run one after the other
        self._temporary: dict[tuple[str, int], Any] = {}
        self.ensemble = Ensemble(recording.name, list(recording.opened), self._record, is_apart=True)
        self.commands = self.ensemble.commands

    def replay(self, places: Mapping[Role, Any]) -> None:
        """Submit all of it."""
        values = []
        for track in self.ensemble.sets[0]:
            known = track.graph.patch_points
            values.append({role: buffer for role, buffer in places.items() if role in known})
        self.ensemble.replay(values)

    # -- recording --

    def _record(self, tracks: Tracks) -> None:
        self._next = 0
        self._tracks = tracks
        self._by_name: dict[str, Track] = dict(zip(self.names, tracks))
        # per device what others take from it: from where, and until when
        self._taken: dict[str, list[tuple[Role, Mark]]] = {name: [] for name in self.names}
        # of this set alone: nobody waits for the other one's moves
        self._staging = Staging(self.recording.name)
        for run in self.recording.seen.runs:
            if isinstance(run.plan, Move):
                self._move(run.plan, run)
            else:
                self._run(run)
        for name, taken in self._taken.items():
            for _, mark in taken:
                self._by_name[name].after(mark)

    def _run(self, run: Run) -> None:
        plan, name = run.plan, run.plan.device
        track, roles = self._by_name[name], run.roles()
        for role, mark in self._taken[name]:
            if role in run.outputs:
                track.after(mark)
        slots = []
        for number, value in enumerate(plan.values):
            if number in roles:
                slots.append(self.recording.place_of(roles[number], name))
            else:
                slots.append(self._temporary_of(name, value.memory, plan.memory_sizes[value.memory]))
        for program, values, grid, block in plan.programs():
            track.graph.dispatch(program, [slots[value] for value in values], grid, block)

    def _move(self, move: Move, run: Run) -> None:
        if not move.size_bytes:
            return
        (source_role,), (role,) = run.inputs, run.outputs
        sender, track = self._by_name[move.source], self._by_name[move.device]
        count = move.size_bytes // move.dtype.itemsize
        source = self.recording.place_of(source_role, move.source)
        if isinstance(source, Symbol):
            given, source = source, self._alloc(move.source, move.size_bytes, "to be moved")
            kernels.copy(sender.graph, move.source, move.dtype, count, source, given)
        into = place = self.recording.place_of(role, move.device)
        if isinstance(place, Symbol):
            into = self._alloc(move.device, move.size_bytes, "moved")
        if route(track.device, sender.device).is_peer:
            track.after(sender.mark()).graph.copy(into, source, move.size_bytes)
        else:
            ends = into.view(0, move.size_bytes), source.view(0, move.size_bytes)
            copy_staged(track, ends[0], sender, ends[1], self._staging, lambda: self._tracks.relay)
        self._taken[move.source].append((source_role, track.mark()))
        if isinstance(place, Symbol):
            kernels.copy(track.graph, move.device, move.dtype, count, place, into)

    def _alloc(self, name: str, size_bytes: int, what: str) -> Any:
        if self._next == len(self._memory):
            self._memory.append(devices.get(name).alloc(size_bytes, f"{self.recording.name} ({what})"))
        found = self._memory[self._next]
        self._next += 1
        return found

    def _temporary_of(self, name: str, number: int, size_bytes: int) -> Any:
        known = self._temporary.get((name, number))
        if known is None or known.size_bytes < size_bytes:
            label = f"{self.recording.name} (temporary {number})"
            known = self._temporary[name, number] = devices.get(name).alloc(size_bytes, label)
        return known
