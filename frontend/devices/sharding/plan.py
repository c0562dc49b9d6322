"""Plans of groups: what each device computes and what they exchange, ready to run again and again.

In       a structure over sharded storages; then such storages
Out      the sharded storages of the results; the work is submitted, not waited for
Changes  device memory; plans are kept by structure
Next     partition.py (stages of a graph), run/plan.py (one device's part), ../collectives/perform.py (exchanges)

An exchange begins as soon as the kernels that make its sources are submitted, on second channels to the devices, while
the rest of the stage runs. All-reduces of a stage that are ready one after the other share a bucket, one flat piece of
memory that the kernels write straight into. Before the next stage, and at the end, every device waits for what the
others take from it and bring to it: from there on its own order is enough, as for any work.
"""

from __future__ import annotations

import sys
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from hcq import config
from hcq.errors import UsageError
from hcq.frontend.core import device as devices
from hcq.frontend.core.storage import Storage
from hcq.frontend.core.structure import Structure, structure_of
from hcq.frontend.devices.collectives import cost, kernels
from hcq.frontend.devices.collectives.links import slowest
from hcq.frontend.devices.collectives.perform import Collective
from hcq.frontend.devices.sharding.layouts import Exchange
from hcq.frontend.devices.sharding.partition import Stage, partition
from hcq.frontend.devices.sharding.placement import Split
from hcq.frontend.devices.sharding.storage import ShardedStorage
from hcq.frontend.run import timed_out_work
from hcq.frontend.run.plan import Launch, Plan, key_on, plan_for
from hcq.ir.dtype import DType
from hcq.ir.node import Node, Shape, substitute, toposort
from hcq.ir.op import Op
from hcq.signal import Completion
from hcq.work.peers import join

MAX_PLANS = 256
LINE_BYTES = 256  # where a member of a bucket begins


class Compute(NamedTuple):
    """One device's part of a stage.

    reads    slots of the plan's inputs
    results  slots of its results
    writers  per result, how many launches must be submitted before it is complete
    copies   results that have the value of another one, (number of that, own number): copied when all else is done
    """

    plan: Plan
    reads: tuple[int, ...]
    results: tuple[int, ...]
    writers: tuple[int, ...]
    copies: tuple[tuple[int, int], ...]

    def launches(self, buffers: list[Any], alloc: Callable[[int, str], Any]) -> list[Any]:
        """Its launches over these slots; memory is allocated for what has none."""
        plan = self.plan
        steps = plan.programs()
        own: list[Any] = [None] * len(plan.values)
        for number, slot in enumerate(self.reads):
            own[number] = buffers[slot]
        again = {result for _, result in self.copies}
        for place, (number, slot) in enumerate(zip(plan.results, self.results)):
            if place in again:
                buffers[slot] = buffers[slot] or alloc(plan.values[number].size_bytes, "result")
                continue
            if buffers[slot] is None:
                buffers[slot] = own[number] or alloc(plan.values[number].size_bytes, "result")
            own[number] = own[number] or buffers[slot]
        memories = [alloc(size, name) for size, name in plan._memories]
        for number, value in enumerate(plan.values):
            if own[number] is None:
                is_temporary = value.kind == "temporary"
                own[number] = memories[value.memory] if is_temporary else alloc(value.size_bytes, "result")
        found = [(program, [own[i] for i in args], grid, block) for program, args, grid, block in steps]
        for source, result in self.copies:
            value = plan.values[plan.results[source]]
            count = value.size_bytes // value.dtype.itemsize
            device, slots = devices.get(plan.device), (self.results[source], self.results[result])
            found += kernels.copies(
                device, plan.device, value.dtype, count, *[buffers[slot] for slot in slots]
            )
        return found


class Member(NamedTuple):
    """One source of a bucket: its slots and where it begins, per device the same."""

    slots: tuple[int, ...]
    results: tuple[int, ...]
    at: int
    size_bytes: int


class Bucket(NamedTuple):
    """One collective of a stage, begun when so many launches of each device are submitted.

    members  what its source is made of; more than one, or in place, only in an all-reduce
    """

    collective: Collective
    ready: tuple[int, ...]
    members: tuple[Member, ...]
    size_bytes: int
    result_bytes: tuple[int, ...]

    def source_bytes(self, rank: int) -> int:
        """How large the source of one device is."""
        if len(self.members) > 1:
            return self.size_bytes
        counts, kind = self.collective.counts[rank], self.collective.kind
        return (
            counts[0] if kind in ("all-reduce", "all-gather") else sum(counts)
        ) * self.collective.dtype.itemsize

    def member_bytes(self, member: Member, rank: int) -> int:
        """How large a member is on one device."""
        return member.size_bytes if len(self.members) > 1 else self.source_bytes(rank)

    def gaps(self) -> list[tuple[int, int]]:
        """From where to where nothing lies between two members: that is added, too, so it is filled."""
        ends = [member.at + member.size_bytes for member in self.members]
        return [(end, member.at) for end, member in zip(ends, self.members[1:]) if member.at > end]


class Part(NamedTuple):
    """A stage: what each device computes, and what is exchanged meanwhile."""

    computes: tuple[Compute | None, ...]
    buckets: tuple[Bucket, ...]


class Result(NamedTuple):
    """A root: where its parts are; or which input it was assigned to."""

    slots: tuple[int, ...]
    dtype: DType
    shape: Shape
    shapes: tuple[Shape, ...]
    split: Split | None
    assigned: int


class GroupPlan:
    """A structure's plan on several devices."""

    def __init__(self, group: str, structure: Structure, roots: Sequence[Node]) -> None:
        self.device = group
        self.names = devices.members(group)
        found = partition(group, self.names, roots)
        self.notes = found.notes
        self._numbers: dict[Storage, int] = {}
        self.inputs = [[self._slot(part) for part in _parts(storage)] for storage in structure.storages]
        self.input_storages = [storage.like() for storage in structure.storages]
        self._made: list[dict[Node, Storage]] = [{} for _ in self.names]
        self.parts = [self._part(stage) for stage in found.stages]
        self.results = []
        for root, value in zip(roots, found.values):
            made = [self._storage_of(rank, node) for rank, node in enumerate(value.nodes)]
            slots = tuple([self._slot(storage) for storage in made])
            assigned = self.inputs.index(list(slots)) if root.op is Op.ASSIGN else -1
            split = value.layout if isinstance(value.layout, Split) else None
            shapes = tuple(
                [root.shape if split is None else split.shape(root.shape, r) for r in range(len(made))]
            )
            self.results.append(Result(slots, root.dtype, root.shape, shapes, split, assigned))
        self.count = len(self._numbers)
        self._made = []
        self.launches: list[Launch] = [
            launch
            for part in self.parts
            for each in part.computes
            if each is not None
            for launch in each.plan.launches
        ]
        self.last_use = self._last_uses()

    # -- making it --

    def _slot(self, storage: Storage) -> int:
        return self._numbers.setdefault(storage, len(self._numbers))

    def _storage_of(self, rank: int, node: Node) -> Storage:
        if node.op is Op.BUFFER:
            storage: Storage = node.arg
            return storage
        return self._made[rank][node]

    def _part(self, stage: Stage) -> Part:
        computes: list[Compute | None] = []
        like: tuple[Any, Plan] | None = None
        for rank, nodes in enumerate(stage.roots):
            made = self._made[rank]
            wanted = [
                node
                for node in nodes
                if node not in made and node.op is not Op.BUFFER and 0 not in node.shape
            ]
            for node in nodes:
                if 0 in node.shape:
                    made[node] = Storage(self.names[rank], node.dtype, node.shape)
            if not wanted:
                computes.append(None)
                continue
            wanted = _soonest_first(wanted)
            known = {node: storage.node() for node, storage in made.items()}
            graph = substitute(wanted, known)
            structure = structure_of(graph)
            plan, like = self._plan(structure, graph, rank, like)
            for node, root in zip(wanted, graph):
                made[node] = (
                    _assigned(root)
                    if root.op is Op.ASSIGN
                    else Storage(self.names[rank], node.dtype, node.shape)
                )
            reads = tuple([self._slot(storage) for storage in structure.storages])
            results = tuple([self._slot(made[node]) for node in wanted])
            computes.append(_compute(plan, reads, results))
        return Part(tuple(computes), self._buckets(stage.exchanges, computes))

    def _plan(
        self, structure: Structure, graph: list[Node], rank: int, like: tuple[Any, Plan] | None
    ) -> tuple[Plan, tuple[Any, Plan] | None]:
        """This device's plan: that of a device before it that computes the same on the same kind of memory."""
        name = self.names[rank]
        target = devices.target(name)
        key = target, tuple([(*w[:3], "") if w[0] is Op.BUFFER else w for w in structure.key])
        if like is not None and like[0] == key:
            one = like[1]
            return Plan(name, one.values, one.launches, one.results), like
        plan = plan_for(structure, graph, name)
        return plan, (key, plan)

    def _buckets(
        self, exchanges: Sequence[Exchange], computes: Sequence[Compute | None]
    ) -> tuple[Bucket, ...]:
        ready_at = []
        for exchange in exchanges:
            ready = []
            for rank, source in enumerate(exchange.sources):
                compute, slot = computes[rank], self._slot(self._made[rank][source])
                is_here = compute is not None and slot in compute.results
                ready.append(compute.writers[compute.results.index(slot)] if compute and is_here else 0)
            ready_at.append(tuple(ready))
        link = slowest([devices.get(name) for name in self.names])
        limit = cost.bucket_bytes(len(self.names), link)
        found: list[Bucket] = []
        kinds: dict[Any, list[int]] = {}
        for place in sorted(range(len(exchanges)), key=lambda at: max(ready_at[at])):
            exchange = exchanges[place]
            alone = exchange.kind != "all-reduce"
            kinds.setdefault((exchange.op, exchange.dtype, place if alone else -1), []).append(place)
        for places in kinds.values():
            sizes = [exchanges[place].size_bytes for place in places]
            for bucket in cost.buckets(sizes, limit):
                own = [places[at] for at in bucket]
                begins = tuple([max(ready_at[at][rank] for at in own) for rank in range(len(self.names))])
                found.append(self._bucket([exchanges[at] for at in own], begins))
        return tuple(sorted(found, key=lambda bucket: max(bucket.ready)))

    def _bucket(self, exchanges: Sequence[Exchange], ready: tuple[int, ...]) -> Bucket:
        members, at = [], 0
        first = exchanges[0]
        for exchange in exchanges:
            at = -(-at // LINE_BYTES) * LINE_BYTES
            slots = tuple([self._slot(self._made[rank][node]) for rank, node in enumerate(exchange.sources)])
            members.append(Member(slots, tuple(map(self._slot, exchange.results)), at, exchange.size_bytes))
            at += exchange.size_bytes
        counts = [[at // first.dtype.itemsize] * len(self.names)] * len(self.names)
        collective = Collective(
            self.names, first.kind, first.op, first.dtype, first.counts if len(exchanges) == 1 else counts
        )
        result_bytes = tuple([storage.size_bytes for storage in first.results])
        return Bucket(collective, ready, tuple(members), at, result_bytes)

    def _last_uses(self) -> list[list[int]]:
        """Per part, the slots that nothing needs afterwards."""
        last: dict[int, int] = {}
        for at, part in enumerate(self.parts):
            for compute in part.computes:
                if compute is not None:
                    last.update(dict.fromkeys((*compute.reads, *compute.results), at))
            for bucket in part.buckets:
                for member in bucket.members:
                    last.update(dict.fromkeys((*member.slots, *member.results), at))
        kept = {slot for result in self.results for slot in result.slots}
        return [
            [slot for slot, use in last.items() if use == at and slot not in kept]
            for at in range(len(self.parts))
        ]

    # -- running it --

    def run(self, storages: Sequence[Storage]) -> list[Storage]:
        """Submit everything. Returns one storage per root: a new one, or the input that was assigned to."""
        buffers: list[Any] = [None] * self.count
        for slots, storage in zip(self.inputs, storages):
            assert isinstance(storage, ShardedStorage)
            for slot, own in zip(slots, storage.parts):
                devices.check_values("realize", own)
                buffers[slot] = own.buffer if own.buffer is not None else self._allocated(own)
        if timed_out_work.late:
            for name in self.names:
                timed_out_work.drop(devices.get(name), [each for each in buffers if each is not None])
        run = Run(self, buffers)
        for at, part in enumerate(self.parts):
            run.stage(part)
            for slot in self.last_use[at]:
                buffers[slot] = None
        return [self._result(result, buffers, storages) for result in self.results]

    def run_single(self, storages: Sequence[Storage]) -> Storage:
        """`run` of a plan with one result."""
        return self.run(storages)[0]

    def _allocated(self, part: Storage) -> Any:
        part.buffer = devices.get(part.device).alloc(part.size_bytes)
        return part.buffer

    def _result(self, result: Result, buffers: list[Any], storages: Sequence[Storage]) -> Storage:
        if result.assigned >= 0:
            return storages[result.assigned]
        return self.storage_like(result, [buffers[slot] for slot in result.slots])

    def storage_like(self, result: Result, buffers: Sequence[Any] | None = None) -> ShardedStorage:
        """A storage for a result: in that memory, or in none yet."""
        own = [None] * len(self.names) if buffers is None else buffers
        parts = [
            Storage(name, result.dtype, shape, buffer)
            for name, shape, buffer in zip(self.names, result.shapes, own)
        ]
        return ShardedStorage(self.device, result.dtype, result.shape, parts, result.split)

    def __str__(self) -> str:
        """Stages: each device's kernels, then what is exchanged."""
        rows = [f"-- {note}" for note in self.notes]
        for at, part in enumerate(self.parts):
            for name, compute in zip(self.names, part.computes):
                if compute is not None:
                    rows.append(f"stage {at} on {name}\n{compute.plan}")
            for bucket in part.buckets:
                after = ", ".join(map(str, bucket.ready))
                rows.append(f"stage {at}, after kernels {after}: {bucket.collective}")
        return "\n".join(rows)


class Run:
    """One run of a plan, while it is submitted."""

    def __init__(self, plan: GroupPlan, buffers: list[Any]) -> None:
        self.plan = plan
        self.buffers = buffers
        self.opened = [devices.get(name) for name in plan.names]

    def stage(self, part: Part) -> None:
        """Submit a stage; afterwards every device waits for what it is part of."""
        lasts: dict[Any, int] = {}
        held: list[Any] = []
        sources = [self._place(bucket) for bucket in part.buckets]
        devices_work = [self._work(rank, compute) for rank, compute in enumerate(part.computes)]
        try:
            for bucket, given in zip(part.buckets, sources):
                after = [work.submit(until) for work, until in zip(devices_work, bucket.ready)]
                results = self._exchanged(bucket, given)
                done, more = bucket.collective.run(given, results, after)
                held += [*more, *given, *results]
                for each in done:
                    lasts[each.device] = max(lasts.get(each.device, 0), each.value)
            for work in devices_work:
                work.submit(len(work.steps))
        finally:
            if lasts:
                own = [each for each in held if each is not None]
                for device in self.opened:
                    join(device, {other: value for other, value in lasts.items() if other is not device}, own)

    def _place(self, bucket: Bucket) -> list[Any]:
        """Per device the source of a collective; what makes its members writes there."""
        if len(bucket.members) == 1 and self.buffers[bucket.members[0].slots[0]] is not None:
            return [self.buffers[slot] for slot in bucket.members[0].slots]  # of an earlier stage
        given = []
        for rank, device in enumerate(self.opened):
            whole = device.alloc(bucket.source_bytes(rank), f"{bucket.collective.kind} source")
            given.append(whole)
            queue = device.queue()
            for low, high in bucket.gaps():
                queue.fill(whole, 0, high - low, offset=low)
            for member in bucket.members:
                place = whole.view(member.at, bucket.member_bytes(member, rank))
                before = self.buffers[member.slots[rank]]
                if before is not None:  # of an earlier stage
                    queue.copy(place, before)
                self.buffers[member.slots[rank]] = place
            if queue.commands:
                queue.submit()
        return given

    def _exchanged(self, bucket: Bucket, given: list[Any]) -> list[Any]:
        """Per device the memory of what a collective gives; an all-reduce gives it where its source is."""
        if bucket.collective.kind == "all-reduce":
            for member in bucket.members:
                for rank, slot in enumerate(member.results):
                    self.buffers[slot] = self.buffers[member.slots[rank]]
            return [None] * len(given)
        found = []
        for rank, device in enumerate(self.opened):
            made = device.alloc(bucket.result_bytes[rank], f"{bucket.collective.kind} result")
            self.buffers[bucket.members[0].results[rank]] = made
            found.append(made)
        return found

    def _work(self, rank: int, compute: Compute | None) -> _Work:
        device = self.opened[rank]
        if compute is None:
            return _Work(device, [])
        return _Work(device, compute.launches(self.buffers, device.alloc))


class _Work:
    """The launches of one device in a stage; some are submitted before others."""

    def __init__(self, device: Any, steps: list[Any]) -> None:
        self.device, self.steps = device, steps
        self.sent = 0

    def submit(self, until: int) -> Completion:
        """Hand the device its launches up to that one. Returns the last submission."""
        if until > self.sent:
            queue = self.device.queue()
            for program, args, grid, block in self.steps[self.sent : until]:
                queue.dispatch(program, args, grid, block)
            self.sent = until
            done: Completion = queue.submit()
            return done
        return Completion(self.device, self.device.timeline.submitted)


def _compute(plan: Plan, reads: tuple[int, ...], results: tuple[int, ...]) -> Compute:
    """A plan's part of a stage: two results that are one value for the plan have memory of their own here."""
    writers: list[int] = []
    copies: list[tuple[int, int]] = []
    for number, value in enumerate(plan.results):
        first = plan.results.index(value)
        if results[first] == results[number]:
            writers.append(_writer(plan, value))
        else:
            copies.append((first, number))
            writers.append(len(plan.launches) + len(copies))
    return Compute(plan, reads, results, tuple(writers), tuple(copies))


def _parts(storage: Storage) -> list[Storage]:
    """A storage of a group is made of these."""
    if not isinstance(storage, ShardedStorage):
        raise UsageError(
            f"a tensor of shape {storage.shape} on {storage.device} meets tensors of several devices. Shard it: "
            "x.shard(devices) for a copy on each."
        )
    return storage.parts


def _soonest_first(roots: list[Node]) -> list[Node]:
    """Roots in the order of how much must be computed before, one after the other: exchanges can begin with these."""
    depth: dict[Node, int] = {}
    for node in toposort(roots):
        depth[node] = max([depth[source] for source in node.src], default=0) + (node.op is Op.REDUCE_AXIS)
    return sorted(roots, key=depth.__getitem__)


def _assigned(root: Node) -> Storage:
    base = root
    while base.op is not Op.BUFFER:
        base = base.src[0]
    storage: Storage = base.arg
    return storage


def _writer(plan: Plan, value: int) -> int:
    """How many launches must be done until a value is complete."""
    writers = [at for at, launch in enumerate(plan.launches) if value in launch.writes]
    return max(writers) + 1 if writers else 0


_plans: OrderedDict[tuple[Any, ...], GroupPlan] = OrderedDict()


def _forget(device: str) -> None:
    """A device is gone, and with it the programs of its groups."""
    for key, plan in list(_plans.items()):
        if device in plan.names:
            _plans.pop(key, None)


devices.on_close.append(_forget)


def group_plan(structure: Structure, roots: Sequence[Node], group: str) -> GroupPlan:
    """The plan of a structure on a group: kept, or made now."""
    key = (key_on(structure, group), config.current().search)
    plan = _plans.get(key)
    if plan is None:
        plan = _plans[key] = GroupPlan(group, structure, roots)
        if "schedule" in config.current().debug:
            print(f"-- schedule on {group}: {len(plan.launches)} kernels\n{plan}", file=sys.stderr)
        while len(_plans) > MAX_PLANS:
            _plans.popitem(last=False)
    else:
        _plans.move_to_end(key)
    return plan
