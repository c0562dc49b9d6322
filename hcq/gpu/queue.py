"""Queues of GPUs: the verbs of any queue, and buffers of other GPUs where one reaches the other's memory.

In       programs, buffers, signals; verbs that chain
Out      submit() -> Completion
Changes  maps another device's buffer for this GPU when it is first used here
Next     hcq/queue.py (the verbs), device.py (can_reach)

Two devices have two timelines, and a buffer belongs to one of them. So the host keeps the order: before it submits work
with another device's buffer it waits for that device, and afterwards for the work.
"""

from __future__ import annotations

from hcq.errors import UsageError
from hcq.memory import Buffer
from hcq.queue import Queue
from hcq.signal import Completion


class GpuQueue(Queue):
    """Work for one GPU."""

    def submit(self) -> Completion:
        peers = [(thing.parent or thing) for thing in self._held if self._is_peer(thing)]
        for buffer in peers:
            buffer.wait()
        last = [buffer.last for buffer in peers]
        done = super().submit()
        if peers:
            done.wait()
        for buffer, value in zip(peers, last):
            buffer.last = value  # on its own device's timeline
        return done

    def _check_reach(self, verb: str, buffer: Buffer) -> None:
        if buffer.device is not self.device and not self.device.can_reach(buffer):
            if buffer.device.dead:
                buffer.device.check_alive()
            raise UsageError(
                f"{verb}: {buffer!r} is on {buffer.device.name}, and {self.device.name} cannot reach its memory. "
                "Copy it through the host."
            )

    def _is_peer(self, thing: object) -> bool:
        return isinstance(thing, Buffer) and thing.device is not self.device
