"""Transfer: values that are in memory, brought to other devices.

In       a storage and where it should be: a device, or a group with a placement
Out      a new storage there
Changes  device memory; routes that are staged are waited for by the host
Next     placement.py (what goes where), ../collectives/ (how many devices get the same), run/realize.py (who asks)
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hcq.frontend.core import device as devices
from hcq.frontend.core.nodes import joined
from hcq.frontend.core.storage import Storage
from hcq.frontend.devices.collectives.links import route
from hcq.frontend.devices.collectives.perform import Collective, tally
from hcq.frontend.devices.sharding.layouts import part_of
from hcq.frontend.devices.sharding.placement import Placement, split_evenly
from hcq.frontend.devices.sharding.storage import ShardedStorage
from hcq.ir.node import Node
from hcq.signal import Completion
from hcq.work.peers import PeerQueue, join

Realized = Callable[[Node, str], Storage]  # a node of that device, in memory


def brought(source: Storage, target: Any, realized: Realized) -> Node:
    """The values of a storage as a node of another device, or of a group.

    target    a device's name, a group's name, or a Placement
    realized  computes a node of one device
    """
    place = target if isinstance(target, Placement) else None
    name = str(target)
    if isinstance(source, ShardedStorage):
        whole = _gathered(source, devices.members(name)[0])
        if not devices.is_group(name):
            return whole
        source = realized(whole, devices.members(name)[0])
    if not devices.is_group(name):
        return copied(source, name).node()
    if place is None or place.axis is None or not source.shape:
        return _everywhere(source, name).node()
    members = devices.members(name)
    split = split_evenly("shard", source.shape, place.axis, members)
    parts = [
        copied(realized(part_of(source.node(), split, rank), source.device), member)
        for rank, member in enumerate(members)
    ]
    return ShardedStorage(name, source.dtype, source.shape, parts, split).node()


def copied(source: Storage, name: str) -> Storage:
    """A copy on a device, which may be the one it is on."""
    device = devices.get(name)
    assert source.buffer is not None
    there = source.buffer.device
    here = Storage(name, source.dtype, source.shape, device.alloc(source.size_bytes, "moved"))
    assert here.buffer is not None
    if not source.size_bytes:
        return here
    way = None if there is device else route(device, there)
    if way is not None and not way.is_peer:
        here.buffer.write(source.buffer.read(0, source.size_bytes))
        tally.staged_bytes += source.size_bytes
        return here
    queue = PeerQueue(device).after(Completion(there, there.timeline.submitted))
    done = queue.copy(here.buffer, source.buffer, source.size_bytes).submit()
    if there is not device:
        join(there, {device: done.value}, [source.buffer])
        tally.peer_bytes += source.size_bytes
    return here


def _everywhere(source: Storage, group: str) -> ShardedStorage:
    """A copy on each device of a group, which pass it on to each other."""
    members = list(devices.members(group))
    root = source.device if source.device in members else members[0]
    members.remove(root)
    order = [root, *members]
    parts = {root: copied(source, root)}
    for name in members:
        buffer = devices.get(name).alloc(source.size_bytes, "moved")
        parts[name] = Storage(name, source.dtype, source.shape, buffer)
    count = source.size_bytes // source.dtype.itemsize
    if count:
        made = Collective(order, "broadcast", None, source.dtype, [[count] * len(order)] * len(order))
        opened = [devices.get(name) for name in order]
        buffers = [parts[name].buffer for name in order]
        after = [Completion(device, device.timeline.submitted) for device in opened]
        done, held = made.run(buffers, [None] * len(order), after)
        for device in opened:
            others = {each.device: each.value for each in done if each.device is not device}
            join(device, others, [*held, *[each for each in buffers if each is not None]])
    own = [parts[name] for name in devices.members(group)]
    return ShardedStorage(group, source.dtype, source.shape, own, None)


def _gathered(source: ShardedStorage, name: str) -> Node:
    """All of it on one device."""
    if source.split is None:
        near = next((part for part in source.parts if part.device == name), source.parts[0])
        return copied(near, name).node()
    return joined([copied(part, name).node() for part in source.parts], source.split.axis)
