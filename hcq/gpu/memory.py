"""GPU memory: allocations made by a GPU's kernel driver, the part that all vendors share.

In       a size and a place, which are the vendor's
Out      allocations: at one address for host and GPU
Changes  the process's mappings and the GPU's page tables
Next     amd/memory.py and nv/memory.py (how it is had), device.py (who asks), hcq/memory.py (the pool of small buffers)
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, Generic, Protocol, TypeVar

from hcq.errors import HcqError

MADV_DONTFORK = 10
HUGE_BYTES = 2 << 20
GUARD_BYTES = 4096  # after each allocation, mapped for nobody: what runs over its end faults


class Owned(Protocol):
    """An allocation."""

    @property
    def va(self) -> int:
        """Where it is, for host and GPU."""
        ...

    @property
    def size_bytes(self) -> int:
        """How much was asked for."""
        ...


A = TypeVar("A", bound=Owned)


class GpuMemory(ABC, Generic[A]):
    """The allocations of one device. `live`: by address."""

    live: dict[int, A]

    @abstractmethod
    def alloc(self, size_bytes: int, place: Any) -> A:
        """New memory. Raises DriverError naming the call that failed; nothing of the allocation is left then."""

    @abstractmethod
    def free(self, what: A) -> None:
        """Give it back. No GPU may be using it."""

    @abstractmethod
    def map_for(self, what: A, peer: Any) -> A:
        """Let another GPU see it. Raises DriverError when the two cannot reach each other."""

    def find(self, va: int) -> A | None:
        """The allocation that holds an address."""
        return next((what for what in self.live.values() if what.va <= va < what.va + what.size_bytes), None)

    def close(self) -> None:
        """Free what is left, as far as the kernel lets us."""
        for what in list(self.live.values()):
            try:
                self.free(what)
            except HcqError:
                self.live.pop(what.va, None)  # it goes with the process
