"""Streams: where random numbers come from and how far they have been drawn, a seed and a counter for each device.

In       seeds
Out      `Stream`; DEFAULT, which draws take that name no Generator
Changes  device memory: the seed and the counter of each device that is drawn from
Next     random.py (the cipher of both), functions/random.py (Generator: a stream as users see it)
"""

from __future__ import annotations

import struct
from typing import Any
from weakref import WeakSet

from hcq.frontend.core import device as devices
from hcq.frontend.core.errors import UsageError
from hcq.frontend.ops.base import Methods

DEFAULT_SEED = 0


class State:
    """A device's seed and counter, one uint64 each, in its memory."""

    __slots__ = ("counter", "opened", "seed")

    def __init__(self, kind: type[Methods], device: str, seed: int, counter: int = 0) -> None:
        self.opened = [devices.get(name) for name in devices.members(device)]
        self.seed = _scalar(kind, device, seed)
        self.counter = _scalar(kind, device, counter)


def _scalar(kind: type[Methods], device: str, value: int) -> Methods:
    """A uint64 in the device's memory."""
    from hcq.frontend.devices.sharding.storage import stored
    from hcq.ir.dtype import dtypes

    storage = stored(device, dtypes.uint64, (), struct.pack("<Q", value), "random state")
    return kind._of(storage.node(), device)


class Stream:
    """Random numbers in their order, on every device from the first.

    seed     where a device starts that has not been drawn from
    states   by device; where one was closed, the next draw starts over from the seed
    """

    __slots__ = ("__weakref__", "seed", "states")

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.states: dict[str, State] = {}
        _streams.add(self)

    def state(self, kind: type[Methods], device: str) -> State:
        """Where it stands on a device."""
        state = self.states.get(device)
        if state is None:
            state = self.states[device] = State(kind, device, self.seed)
            if [devices.get(name) for name in devices.members(device)] != state.opened:
                self.forget(device)  # another thread has closed it meanwhile
        return state

    def forget(self, device: str) -> None:
        """A device was closed, and the memory of its state with it."""
        for name in [name for name in self.states if device in devices.members(name)]:
            self.states.pop(name, None)

    def restart(self, call: str, seed: int) -> None:
        """Start over on every device, from this seed."""
        if not isinstance(seed, int) or not 0 <= seed < 1 << 64:
            raise UsageError(f"[{call}] {seed!r}: a seed is an int from 0 to 2**64 - 1.")
        self.seed = seed
        for device, state in self.states.items():
            self.go_to(type(state.seed), device, seed, 0)

    def go_to(self, kind: type[Methods], device: str, seed: int, counter: int) -> None:
        """Go on from there on one device; recordings that draw from it do, too."""
        state, fresh = self.state(kind, device), State(kind, device, seed, counter)
        held: list[Any] = [(state.seed, fresh.seed), (state.counter, fresh.counter)]
        for have, want in held:
            have.assign(want).realize()


_streams: WeakSet[Stream] = WeakSet()
DEFAULT = Stream(DEFAULT_SEED)


def _forget(device: str) -> None:
    for stream in list(_streams):
        stream.forget(device)


devices.on_close.append(_forget)
