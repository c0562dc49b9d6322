"""Peers: work on one device that uses the memory of another device, and waits for its work.

In       buffers of several devices of a machine; completions of other devices
Out      `PeerQueue`, a queue whose caller gives the order; `companion`, a second channel to the same hardware;
         `relay`, which uses the host's processor between devices that cannot access each other
Changes  maps another device's buffer for this one when it is first used here; opens companions and the relay
Next     hcq/queue.py (the verbs), hcq/device.py (can_reach, can_watch), gpu/queue.py (a queue that keeps the order
         itself)

Each device has its own timeline, and a buffer belongs to one device. `after` adds to this queue a wait for a value of
another device's timeline. If this device can read that timeline, it waits itself and the host continues. Otherwise the
host waits.

A companion has its own rings and timeline but no buffers. Its work runs beside that of the main device, on the same
memory.

The relay is a separate CPU device with one thread, used for nothing else. It waits for a signal of one device and sets
one of another, and copies between memory that each of them has pinned, while the program continues.
"""

from __future__ import annotations

from typing import Any
from weakref import WeakKeyDictionary

from hcq import backends, config
from hcq.command import Wait
from hcq.errors import HcqError
from hcq.lifetime import open_devices
from hcq.memory import Buffer
from hcq.queue import Queue
from hcq.signal import Completion


class PeerQueue(Queue):
    """Work for one device, on buffers that it can reach. Nothing is waited for but what `after` names.

    host_waits  how often the host had to wait, because the device cannot watch another's timeline
    """

    host_waits = 0
    reaches_peers = True

    def after(self, done: Completion) -> PeerQueue:
        """Record: go on once another device's submission is done. Of this device's own, all are before this anyway."""
        other = done.device
        if other is self.device:
            return self
        if done.is_done:
            other.timeline.found_done()
            return self
        if self.device.can_watch(other):
            other.show_signal(other.timeline)
            self._add(Wait(other.timeline.va, done.value))
        else:
            self.host_waits += 1
            other.drain(done.value)
        return self

    def submit(self) -> Completion:
        """As of any queue. Buffers of other devices know nothing of it: `Join` tells their devices."""
        peers = [(thing.parent or thing) for thing in self._held if self._is_peer(thing)]
        last = [buffer.last for buffer in peers]
        done = super().submit()
        for buffer, value in zip(peers, last):
            buffer.last = value  # on its own device's timeline
        return done

    def _is_peer(self, thing: object) -> bool:
        return isinstance(thing, Buffer) and thing.device is not self.device


def join(device: Any, others: dict[Any, int], buffers: list[Buffer]) -> Completion:
    """From here on all work of a device comes after what others were given, which may use these buffers of it.

    others   by device, the last value of its timeline to wait for
    Returns  the submission that waits; freed buffers are not used again before it
    """
    queue = PeerQueue(device)
    for other, value in others.items():
        queue.after(Completion(other, value))
    if not queue.commands:
        return Completion(device, device.timeline.submitted)
    done = queue.submit()
    for buffer in buffers:
        if buffer.device is device:
            (buffer.parent or buffer).last = done.value
    return done


_companions: WeakKeyDictionary[Any, Any] = WeakKeyDictionary()


def companion(device: Any) -> Any:
    """A second channel to the same hardware; the device itself where there can be none, which HCQ_DEBUG=push tells."""
    found = _companions.get(device)
    if found is None or found.dead:
        found = _companions[device] = _open_companion(device)
    return found


def _open_companion(device: Any) -> Any:
    backend = backends.find(device.name)
    if backend is None or not device.has_companions:
        return device
    try:
        return backends.load(backend.device)(device.name, device.port, device.config)
    except HcqError as error:
        if "push" in device.config.debug:
            device.say(f"no second channel, so copies wait for kernels: {error}")
        return device


_relay: Any = None


def relay() -> Any:
    """The host's processor as a device between others, opened when it is first asked for.

    Raises  UsageError where there is no CPU device, as on macOS
    """
    global _relay
    import dataclasses

    if _relay is None or _relay.dead:
        backend = backends.find("CPU")
        assert backend is not None
        settings = dataclasses.replace(config.current(), threads=1)
        _relay = backends.load(backend.device)("CPU:relay", None, settings)
    return _relay


def _close_companion(device: Any) -> None:
    found = _companions.pop(device, None)
    if found is not None and found is not device and not found.dead:
        found.close()


open_devices.listeners.append(_close_companion)
