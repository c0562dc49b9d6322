"""Queues of GPUs: the verbs of any queue, and buffers of other GPUs where one reaches the other's memory.

In       programs, buffers, signals; verbs that chain
Out      submit() -> Completion
Changes  maps another device's buffer for this GPU when it is first used here
Next     hcq/queue.py (the verbs), hcq/work/peers.py (queues whose caller keeps the order), device.py (can_reach)

Two devices have two timelines, and a buffer belongs to one of them. So the host keeps the order here: before it submits
work with another device's buffer it waits for that device, and afterwards for the work.
"""

from __future__ import annotations

from hcq.signal import Completion
from hcq.work.peers import PeerQueue


class GpuQueue(PeerQueue):
    """Work for one GPU."""

    def submit(self) -> Completion:
        peers = [(thing.parent or thing) for thing in self._held if self._is_peer(thing)]
        for buffer in peers:
            buffer.wait()
        done = super().submit()
        if peers:
            done.wait()
        return done
