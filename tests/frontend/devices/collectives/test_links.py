"""A route between two devices is tried before it is trusted, and collectives work whatever the routes are."""

from __future__ import annotations

import random
import struct
from collections.abc import Iterator
from typing import Any
from weakref import WeakKeyDictionary

import pytest

from hcq.cpu.device import CpuDevice
from hcq.frontend.core import device as devices
from hcq.frontend.devices.collectives import cost, links
from hcq.frontend.devices.collectives.perform import Collective, tally
from hcq.ir.dtype import dtypes
from hcq.ir.op import Op
from hcq.signal import Completion
from hcq.work.peers import PeerQueue, join

pytestmark = pytest.mark.own_devices

NAMES = ["CPU", "CPU:1", "CPU:2"]


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Any]]:
    """Three CPU devices of which no route is known yet."""
    monkeypatch.setattr(links, "_routes", WeakKeyDictionary())
    yield [devices.get(devices.canonical(name)) for name in NAMES]


def summed(opened: list[Any], way: str) -> None:
    """An all-reduce gives every device the sum."""
    count = 500
    values = [[random.randrange(1000) for _ in range(count)] for _ in opened]
    buffers = [device.alloc(4 * count, "values") for device in opened]
    for buffer, own in zip(buffers, values):
        buffer.write(struct.pack(f"<{count}i", *own))
    made = Collective(NAMES, "all-reduce", Op.ADD, dtypes.int32, [[count] * 3] * 3, way)
    after = [Completion(device, device.timeline.submitted) for device in opened]
    done, held = made.run(buffers, [None] * 3, after)
    for device in opened:
        join(
            device, {each.device: each.value for each in done if each.device is not device}, [*held, *buffers]
        )
    want = struct.pack(f"<{count}i", *[sum(column) for column in zip(*values)])
    assert [buffer.read() for buffer in buffers] == [want] * 3


@pytest.mark.parametrize("way", cost.WAYS)
def test_collectives_go_by_peer_copies_where_these_work(opened: list[Any], way: str) -> None:
    before = tally.staged_bytes, tally.host_waits
    summed(opened, way)
    assert (tally.staged_bytes, tally.host_waits) == before
    assert set(links.facts(opened).values()) == {"peer copy"}
    assert links.facts([device.name for device in opened]) == links.facts(opened)


@pytest.mark.parametrize("way", cost.WAYS)
def test_where_a_copy_brings_other_bytes_the_route_is_staged_and_said_to_be(
    opened: list[Any], way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    copy = PeerQueue.copy

    def broken(queue: PeerQueue, dst: Any, src: Any, *rest: Any, **more: Any) -> PeerQueue:
        found = copy(queue, dst, src, *rest, **more)
        if src.device is opened[1] and queue.device is opened[2]:
            queue.fill(dst, 0xEE)  # what such a link would do
        return found

    monkeypatch.setattr(PeerQueue, "copy", broken)
    before = tally.staged_bytes
    summed(opened, way)
    facts = links.facts(opened)
    assert facts["CPU:1 -> CPU:2"] == "a copy from CPU:1 brought other bytes than are there"
    assert facts["CPU -> CPU:1"] == "peer copy"
    assert (tally.staged_bytes > before) == (way == "ring")  # in the tree the two never meet


def test_devices_that_cannot_reach_each_other_or_watch_each_other_are_served_by_the_host(
    opened: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(CpuDevice, "can_reach", lambda self, buffer: False)
    monkeypatch.setattr(CpuDevice, "can_watch", lambda self, other: other is self)
    before = tally.host_waits
    summed(opened, "ring")
    assert set(links.facts(opened).values()) == {
        f"{a} cannot reach memory of {b}" for a in NAMES for b in NAMES if a != b
    }
    assert tally.host_waits > before
