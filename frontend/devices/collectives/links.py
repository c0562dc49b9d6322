"""Links: how bytes get from one device to another, tried before it is trusted.

In       two open devices, or the names of devices
Out      a `Route`: by peer copy, or staged through memory of the host, with the reason; what it costs
Changes  a few KiB on both devices, once for each pair; HCQ_DEBUG=push tells of a route that is staged
Next     hcq/work/peers.py (queues that use it), cost.py (what a route costs), perform.py (who moves what)

Kernel drivers map memory of a peer and say that it works, and on some machines it does not (an IOMMU, a switch that
drops writes). So a copy, and a store by a kernel, are read back first.
"""

from __future__ import annotations

import sys
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

from hcq import config
from hcq.errors import HcqError
from hcq.frontend.core import device as opened
from hcq.frontend.devices.collectives import cost
from hcq.frontend.devices.collectives.kernels import stores_numbers
from hcq.work.peers import PeerQueue

TRIED_BYTES = 4096


class Route(NamedTuple):
    """The way from one device to another.

    is_peer  the receiver copies out of the sender's memory itself
    why      what is wrong with that otherwise
    cost     for cost.py
    """

    is_peer: bool
    why: str
    cost: cost.Link


_routes: WeakKeyDictionary[Any, WeakKeyDictionary[Any, Route]] = WeakKeyDictionary()


def route(receiver: Any, sender: Any) -> Route:
    """How `receiver` gets what is in memory of `sender`."""
    known = _routes.setdefault(receiver, WeakKeyDictionary())
    found = known.get(sender)
    if found is None:
        why = _tried(receiver, sender)
        shared = cost.SHARED if receiver.name.startswith("CPU") else cost.PEER
        found = known[sender] = Route(not why, why, cost.STAGED if why else shared)
        if why and "push" in config.current().debug:
            print(f"hcq {receiver.name}: staged copies from {sender.name}: {why}", file=sys.stderr)
    return found


def slowest(devices: list[Any]) -> cost.Link:
    """What the worst link between neighbours costs, for all must wait for it."""
    links = [route(device, devices[place - 1]).cost for place, device in enumerate(devices)]
    return max(links, key=lambda link: (link.latency_s, link.seconds_per_byte))


def facts(devices: list[Any]) -> dict[str, str]:
    """By pair, how bytes get there: "peer copy", or why they are staged.

    devices  open ones, or their names
    """
    devices = [
        opened.get(opened.canonical(device)) if isinstance(device, str) else device for device in devices
    ]
    return {
        f"{sender.name} -> {receiver.name}": "peer copy"
        if (way := route(receiver, sender)).is_peer
        else way.why
        for receiver in devices
        for sender in devices
        if sender is not receiver
    }


def _tried(receiver: Any, sender: Any) -> str:
    """Why the receiver cannot use the sender's memory; empty when it can."""
    words = b"".join(number.to_bytes(4, "little") for number in range(TRIED_BYTES // 4))
    try:
        theirs = sender.alloc(TRIED_BYTES, "peer test")
        ours = receiver.alloc(TRIED_BYTES, "peer test")
        if not receiver.can_reach(theirs):
            return f"{receiver.name} cannot reach memory of {sender.name}"
        theirs.write(words)
        ours.write(bytes(TRIED_BYTES))
        PeerQueue(receiver).copy(ours, theirs).submit().wait()
        if ours.read() != words:
            return f"a copy from {sender.name} brought other bytes than are there"
        PeerQueue(receiver).fill(theirs, 0).submit().wait()
        if receiver.shares_memory:  # kernels take buffers of peers there
            stores_numbers(receiver, theirs)
            if theirs.read() != words:
                return f"a kernel's stores to {sender.name} did not arrive"
    except HcqError as error:
        return f"trying it failed: {error}"
    return ""
