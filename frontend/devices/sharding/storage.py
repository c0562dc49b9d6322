"""Sharded storage: the memory of a tensor on several devices, as one leaf of a graph.

In       a group of devices, and a storage on each
Out      `ShardedStorage`, which stands in a BUFFER node as any storage does
Changes  device memory, where values of the host are put on every device
Next     placement.py (which part is where), plan.py (who makes these), core/storage.py (what it is on one device)
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hcq.errors import UsageError
from hcq.frontend.core import device as devices
from hcq.frontend.core.storage import Storage, kind_of
from hcq.frontend.devices.sharding.placement import Split
from hcq.ir.dtype import DType
from hcq.ir.node import Shape


class GroupBuffer:
    """The memory of a sharded storage: one buffer per device."""

    __slots__ = ("parts",)

    def __init__(self, parts: Sequence[Any]) -> None:
        self.parts = tuple(parts)

    @property
    def device(self) -> Any:
        """One of its devices that is gone, if there is one; else the first."""
        return next((part.device for part in self.parts if part.device.dead), self.parts[0].device)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        where = ", ".join(part.device.name for part in self.parts)
        raise UsageError(
            f"a tensor on several devices, {where}, has no one buffer ({name} was asked of it). "
            f'Move it first: x.to("{self.parts[0].device.name}").'
        )


class ShardedStorage(Storage):
    """`shape` elements on a group of devices.

    parts   one storage per device, of the shape that the device has
    split   how they are split; None where each device has all of them
    """

    __slots__ = ("parts", "split")

    def __init__(self, group: str, dtype: DType, shape: Shape, parts: list[Storage], split: Split | None):
        super().__init__(group, dtype, shape)
        self.parts = parts
        self.split = split
        own = [part.buffer for part in parts]
        if None not in own:
            self.buffer = GroupBuffer(own)  # type: ignore[assignment]  # what nobody but a jit looks into

    @property
    def place(self) -> tuple[str, Split | None]:
        """Where it is, for keys."""
        return self.device, self.split

    def like(self, buffer: Any = None) -> ShardedStorage:
        """Another storage of the same shape, split the same way: in that memory, or in none yet."""
        own = [None] * len(self.parts) if buffer is None else buffer.parts
        parts = [part.like(mine) for part, mine in zip(self.parts, own)]
        made = ShardedStorage(self.device, self.dtype, self.shape, parts, self.split)
        if buffer is not None:
            made.buffer = buffer
        return made

    def buffers(self) -> list[Any]:
        """The memory of every part that has some."""
        return [part.buffer for part in self.parts if part.buffer is not None]

    def contents(self) -> bytes:
        """The bytes of all parts, one after the other. Waits."""
        return b"".join(part.contents() for part in self.parts)

    def restore(self, contents: bytes) -> None:
        """Put back what `contents` gave."""
        for part in self.parts:
            part.restore(contents[: part.size_bytes])
            contents = contents[part.size_bytes :]

    def kind_of(self) -> object:
        """As of any storage; another split is another kind."""
        self.kind = kind_of(f"{self.device}/{self.split}", self.dtype, self.shape)
        return self.kind

    def __repr__(self) -> str:
        return f"ShardedStorage({self.device}, {self.dtype.name}, {self.shape}, {self.split})"


def stored(device: str, dtype: DType, shape: Shape, raw: Any, name: str) -> Storage:
    """New memory that holds these bytes: on that device, or on each device of that group."""
    if devices.is_group(device):
        parts = [stored(member, dtype, shape, raw, name) for member in devices.members(device)]
        return ShardedStorage(device, dtype, shape, parts, None)
    storage = Storage(device, dtype, shape)
    storage.buffer = devices.get(device).alloc(max(1, storage.size_bytes), name)
    if storage.size_bytes:
        storage.buffer.write(raw)
    return storage
