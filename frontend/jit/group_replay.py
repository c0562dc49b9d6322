"""Group replay: a captured call on several devices, submitted again with one doorbell for each of their channels.

In       a CallRecord whose plans are of one group of devices
Out      as a `Recording`
Changes  as a `Recording`
Next     replay.py (everything that is not special to groups), devices/sharding/plan.py (what is recorded here),
         hcq/work/multi_device_graph.py (graphs that wait for each other)

Kernels go into a graph for each device, collectives into a graph for its companion, and marks keep their order. What a
collective works on is the recording's own memory; what a call leaves of it is copied out of there by a kernel.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from hcq.errors import UsageError
from hcq.events import named_spans
from hcq.frontend.core.storage import Storage
from hcq.frontend.devices.collectives import kernels
from hcq.frontend.devices.collectives.recorded import Transport, record
from hcq.frontend.devices.collectives.staged import Staging
from hcq.frontend.devices.sharding.plan import Bucket, Compute, GroupPlan, Part
from hcq.frontend.devices.sharding.storage import GroupBuffer
from hcq.frontend.jit.record import Role, Run
from hcq.frontend.jit.replay import Recording
from hcq.frontend.run import timed_out_work
from hcq.graph import Symbol
from hcq.work.device_track import Track, Tracks
from hcq.work.multi_device_graph import Ensemble
from hcq.work.peers import companion


class GroupRecording(Recording):
    """A call on several devices that can be submitted again."""

    def new(self, like: Storage, name: str) -> Storage:
        """New memory for a storage like that one."""
        made = like.like()
        parts: list[Storage] = made.parts  # type: ignore[attr-defined]
        buffers = [device.memory.alloc(part.size_bytes, name) for device, part in zip(self.opened, parts)]
        return like.like(GroupBuffer(buffers))

    def _drop_overdue(self, storages: Iterable[Storage]) -> None:
        held: list[Any] = [storage.buffer for storage in storages]
        for rank, device in enumerate(self.opened):
            timed_out_work.drop(device, [each.parts[rank] for each in held if isinstance(each, GroupBuffer)])

    def _graphs(self, by_result: bool) -> list[Any]:
        """One for all: results are complete when the whole replay is."""
        return [_Graphs(self)]

    def place_of(self, role: Role, like: Storage) -> list[Any]:
        """Per device the buffer of a role, or the symbol under which each replay names one."""
        kind, what = role
        if kind == "made" and role not in self.fresh and role not in self.own:
            self.own[role] = self.new(like, f"{self.name} (made {what})").buffer
        found = self._place(role)
        if isinstance(found, Symbol):
            return [Symbol((role, rank)) for rank in range(len(self.opened))]
        return list(found.parts)


class _Graphs:
    """The graphs of a recording. `commands`: what a replay does; `replay`: with the memory that each role is."""

    def __init__(self, recording: GroupRecording) -> None:
        self.recording = recording
        self.opened = list(recording.opened)
        self.lanes = [companion(device) for device in self.opened]
        self._memory: list[Any] = []  # allocated for the first set, and used by the second, too
        self._next = 0
        runs: list[Run] = recording.seen.runs
        apart = [lane for device, lane in zip(self.opened, self.lanes) if lane is not device]
        self._staging = Staging(recording.name)
        self.ensemble = Ensemble(
            recording.name, [*self.opened, *apart], lambda tracks: self._record(tracks, runs), is_apart=True
        )
        self.commands = self.ensemble.commands

    def replay(self, places: Mapping[Role, GroupBuffer]) -> None:
        """Submit all of it."""
        values = []
        for track in self.ensemble.sets[0]:
            own: dict[Any, Any] = {}
            if track.device in self.opened:
                rank = self.opened.index(track.device)
                known = track.graph.patch_points
                own = {
                    (role, rank): buffer.parts[rank]
                    for role, buffer in places.items()
                    if (role, rank) in known
                }
            values.append(own)
        for done in self.ensemble.replay(values):
            if done.device.observers and done.device not in self.opened:
                names = tuple(device.name for device in self.opened)
                lane = f"{done.device.name} collectives"
                what = named_spans.Work(
                    self.recording.name, done.value, done.value, self.moved_bytes, names, lane
                )
                named_spans.submitted(done.device, what)

    # -- recording --

    def _record(self, tracks: Tracks, runs: list[Run]) -> None:
        self._next = 0
        self._relay = lambda: tracks.relay
        self.moved_bytes = 0  # what the collectives of one replay are about
        count = len(self.opened)
        apart = iter(tracks[count:])
        self.main: list[Track] = tracks[:count]
        self.side: list[Track] = [
            main if lane is device else next(apart)
            for main, device, lane in zip(self.main, self.opened, self.lanes)
        ]
        for run in runs:
            plan: Any = run.plan
            if not isinstance(plan, GroupPlan):
                raise UsageError(
                    f"[jit] {self.recording.name} computes on {plan.device} and on a group. Use one jit for each."
                )
            self._run(plan, run)

    def _alloc(self, rank: int, size_bytes: int, name: str) -> Any:
        """Memory of the recording: both sets use the same, for one runs after the other."""
        if self._next == len(self._memory):
            self._memory.append(self.opened[rank].alloc(size_bytes, f"{self.recording.name} ({name})"))
        found = self._memory[self._next]
        self._next += 1
        return found

    def _run(self, plan: GroupPlan, run: Run) -> None:
        slots: list[Any] = [None] * plan.count
        recording = self.recording
        for own, role, like in zip(plan.inputs, run.inputs, plan.input_storages):
            for slot, buffer in zip(own, recording.place_of(role, like)):
                slots[slot] = buffer
        exchanged = {
            slot
            for part in plan.parts
            for bucket in part.buckets
            for member in bucket.members
            for slot in (*member.slots, *member.results)
        }
        copies = []
        for result, role in zip(plan.results, run.outputs):
            if result.assigned >= 0:
                continue
            like = plan.storage_like(result)
            for rank, (slot, buffer) in enumerate(zip(result.slots, recording.place_of(role, like))):
                if slot in exchanged:
                    copies.append((rank, slot, buffer, result.dtype, like.parts[rank].size_bytes))
                else:
                    slots[slot] = buffer
        for part in plan.parts:
            self._part(part, slots)
        for rank, slot, buffer, dtype, size in copies:
            if size:
                graph, name = self.main[rank].graph, plan.names[rank]
                kernels.copy(graph, name, dtype, size // dtype.itemsize, buffer, slots[slot])

    def _part(self, part: Part, slots: list[Any]) -> None:
        # every device goes on to the next part once all have ended the exchanges of this one
        self._staging.begin()
        transport = Transport(self.side, self._alloc, self._staging, self._relay)
        given = [self._sources(bucket, slots) for bucket in part.buckets]
        work = [self._work(rank, compute, slots) for rank, compute in enumerate(part.computes)]
        sent = [0] * len(work)
        ends: list[Any] = []
        for bucket, sources in zip(part.buckets, given):
            for rank, until in enumerate(bucket.ready):
                self._dispatch(rank, work[rank][sent[rank] : until])
                sent[rank] = max(sent[rank], until)
            after = [main.mark() for main in self.main]
            results = self._results(bucket, slots)
            self.moved_bytes += bucket.collective.size_bytes
            ends += record(bucket.collective, transport, sources, results, after)
        for rank, steps in enumerate(work):
            self._dispatch(rank, steps[sent[rank] :])
        for main in self.main:
            for mark in ends:
                main.after(mark)

    def _dispatch(self, rank: int, steps: list[Any]) -> None:
        for program, args, grid, block in steps:
            self.main[rank].graph.dispatch(program, args, grid, block)

    def _sources(self, bucket: Bucket, slots: list[Any]) -> list[Any]:
        """Per device the source of a collective; what makes its members writes there."""
        if len(bucket.members) == 1 and slots[bucket.members[0].slots[0]] is not None:
            return [slots[slot] for slot in bucket.members[0].slots]
        given = []
        for rank, main in enumerate(self.main):
            whole = self._alloc(rank, bucket.source_bytes(rank), f"{bucket.collective.kind} source")
            given.append(whole)
            if bucket.gaps():  # what lies between members is added, too: zeros, which stay zeros
                whole.write(bytes(whole.size_bytes))
            for member in bucket.members:
                place = whole.view(member.at, bucket.member_bytes(member, rank))
                before = slots[member.slots[rank]]
                if before is not None:
                    main.graph.copy(place, before)
                slots[member.slots[rank]] = place
        return given

    def _results(self, bucket: Bucket, slots: list[Any]) -> list[Any]:
        found: list[Any] = []
        for rank in range(len(self.main)):
            if bucket.collective.kind == "all-reduce":
                for member in bucket.members:
                    slots[member.results[rank]] = slots[member.slots[rank]]
                found.append(None)
            else:
                made = self._alloc(rank, bucket.result_bytes[rank], f"{bucket.collective.kind} result")
                slots[bucket.members[0].results[rank]] = made
                found.append(made)
        return found

    def _work(self, rank: int, compute: Compute | None, slots: list[Any]) -> list[Any]:
        if compute is None:
            return []
        return compute.launches(slots, lambda size, name: self._alloc(rank, size, name))
