"""Perform: a collective on devices, as copies between peers and kernels that add.

In       the names of the devices, the kind of collective and its counts; buffers, and what comes before
Out      per device, the submission that ends its part
Changes  the buffers; submits to the devices' companions, so that it runs beside what the devices do themselves
Next     steps.py (what is done), links.py (which route), hcq/work/peers.py (how one device waits for another)

The host submits everything and goes on. Each device waits by itself for those it takes something from, where it can
watch their timelines; where it cannot, and where a route is staged, the host waits.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hcq.events import named_spans
from hcq.frontend.core import device as devices
from hcq.frontend.devices.collectives import cost, kernels
from hcq.frontend.devices.collectives.links import route, slowest
from hcq.frontend.devices.collectives.steps import Counts, Rounds, Step, steps
from hcq.ir.dtype import DType
from hcq.ir.op import Op
from hcq.signal import Completion
from hcq.work.peers import PeerQueue, companion


class Tally:
    """What collectives have done in this process: for reports.

    collectives   how many, by kind and way
    peer_bytes    copied from device to device
    staged_bytes  that went through memory of the host
    added_bytes   added to what was there
    host_waits    how often the host waited for a device, because another cannot
    """

    def __init__(self) -> None:
        self.collectives: dict[str, int] = {}
        self.peer_bytes = self.staged_bytes = self.added_bytes = self.host_waits = 0

    def __str__(self) -> str:
        kinds = ", ".join(f"{count} {kind}" for kind, count in sorted(self.collectives.items())) or "none"
        return (
            f"collectives: {kinds}; {self.peer_bytes:,} B by peer copies, {self.staged_bytes:,} B staged, "
            f"{self.added_bytes:,} B added; the host waited {self.host_waits} times"
        )


tally = Tally()


class Collective:
    """One collective on certain devices, which may be run again and again.

    way  "ring" or "tree"; None takes the cheaper one
    """

    def __init__(
        self,
        names: Sequence[str],
        kind: str,
        op: Op | None,
        dtype: DType,
        counts: Counts,
        way: str | None = None,
    ) -> None:
        self.names, self.kind, self.op, self.dtype = tuple(names), kind, op, dtype
        self.counts = tuple([tuple(row) for row in counts])
        opened = [devices.get(name) for name in names]
        link = slowest(opened)
        size = dtype.itemsize * (
            counts[0][0] if kind in ("all-reduce", "broadcast") else max(map(sum, [*counts, *zip(*counts)]))
        )
        self.size_bytes = size
        self.way = way or cost.way(kind, len(names), size, link)
        self.seconds = cost.seconds(kind, self.way, len(names), size, link)
        self.rounds: Rounds = steps(kind, self.way, counts, cost.pieces(len(names), size, link))
        every = [step for made in self.rounds for step in made]
        self.scratch = [
            max([step.length for step in every if step.adds and step.rank == rank], default=0)
            for rank in range(len(names))
        ]
        self.transit = sum(map(sum, counts)) if any(step.space == "transit" for step in every) else 0

    def run(
        self, sources: Sequence[Any], results: Sequence[Any], after: Sequence[Completion]
    ) -> tuple[list[Completion], list[Any]]:
        """Submit it.

        sources, results  a buffer per device; without results where a collective is done in the source
        after             per device, the submission that fills its source
        Returns           per device, the submission that ends its part; buffers to be kept until all of them are done
        """
        key = f"{self.kind} by {self.way}"
        tally.collectives[key] = tally.collectives.get(key, 0) + 1
        running = _Running(self, sources, results, after)
        before = [device.timeline.submitted for device in running.lanes]
        for made in self.rounds:
            running.round(made)
        for name, device, value in zip(self.names, running.lanes, before):
            if device.observers and device.timeline.submitted > value:
                last, lane = device.timeline.submitted, f"{name} collectives"
                named_spans.submitted(
                    device, named_spans.Work(self.kind, value + 1, last, self.size_bytes, self.names, lane)
                )
        return running.done, running.held

    def __str__(self) -> str:
        size = f"{self.size_bytes:,} B"
        return f"{self.kind} of {size} by {self.way}: {len(self.rounds)} rounds, about {1e6 * self.seconds:.0f} us"


class _Running:
    """A collective while it is submitted."""

    def __init__(
        self, what: Collective, sources: Sequence[Any], results: Sequence[Any], after: Sequence[Completion]
    ) -> None:
        self.what = what
        self.opened = [devices.get(name) for name in what.names]
        self.lanes = [companion(device) for device in self.opened]
        self.after = list(after)
        self.done = list(after)
        size = what.dtype.itemsize
        transit = [device.alloc(what.transit * size, "blocks on their way") if what.transit else None
                   for device in self.opened]  # fmt: skip
        self.spaces = {"source": list(sources), "result": list(results), "transit": transit}
        self.scratch: list[Any] = [
            device.alloc(count * size, "received") if count else None
            for device, count in zip(self.opened, what.scratch)
        ]
        self.held = [each for each in (*transit, *self.scratch) if each is not None]

    def _part(self, space: str, rank: int, at: int, length: int) -> Any:
        size = self.what.dtype.itemsize
        return self.spaces[space][rank].view(at * size, length * size)

    def round(self, made: Sequence[Step]) -> None:
        """One submission for each device that does something."""
        before = list(self.done)
        queues: dict[int, PeerQueue] = {}
        for step in made:
            queue = queues.get(step.rank)
            if queue is None:
                queue = queues[step.rank] = PeerQueue(self.lanes[step.rank])
                queue.after(before[step.rank])
            self._record(queue, step, before)
        for rank, queue in queues.items():
            if queue.commands:
                self.done[rank] = queue.submit()
            tally.host_waits += queue.host_waits

    def _record(self, queue: PeerQueue, step: Step, before: Sequence[Completion]) -> None:
        what = self.what
        size = step.length * what.dtype.itemsize
        into = self._part(step.space, step.rank, step.at, step.length)
        theirs = self._part(step.peer_space, step.peer, step.peer_at, step.length)
        to = self.scratch[step.rank].view(0, size) if step.adds else into
        if step.peer == step.rank:
            queue.copy(to, theirs)
        elif route(self.opened[step.rank], self.opened[step.peer]).is_peer:
            queue.after(before[step.peer]).copy(to, theirs)
            tally.peer_bytes += size
        else:
            if queue.commands:
                self.done[step.rank] = queue.submit()
            for done in (self.done[step.rank], before[step.peer]):
                done.device.drain(done.value)
            to.write(theirs.read())
            tally.staged_bytes += size
            tally.host_waits += 1
        if step.adds:
            assert what.op is not None
            name = what.names[step.rank]
            kernels.add(queue, name, what.op, what.dtype, step.length, into, to)
            tally.added_bytes += size
