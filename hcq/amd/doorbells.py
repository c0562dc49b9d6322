"""Doorbells: the pages where a store makes the GPU look at a ring.

In       where the kernel driver says that a queue's doorbell is
Out      8 bytes of mapped memory for each queue
Changes  one mapping of /dev/kfd, made for the first queue
Next     rings.py (who rings), device.py (who unmaps)
Source   kfd_chardev.c, kfd_ioctl_create_queue: what doorbell_offset is; kfd_doorbell.c, kfd_doorbell_mmap: the length
"""

from __future__ import annotations

from hcq.amd.abi import kfd
from hcq.system import native
from hcq.system.port import MAP_SHARED, PROT_READ, PROT_WRITE, Port

SLICE = kfd.DOORBELL_SLICE_BYTES


class Doorbells:
    """The slice of doorbells that a process has on one GPU. The queues of the process share it."""

    def __init__(self, port: Port, kfd_fd: int) -> None:
        self.port, self.kfd_fd = port, kfd_fd
        self._mapped: dict[int, int] = {}  # offset -> address: there is one slice

    def at(self, offset: int) -> memoryview:
        """The doorbell at the offset that CREATE_QUEUE gave, as one 64-bit word."""
        page, at = offset & -SLICE, offset & SLICE - 1
        if page not in self._mapped:
            # kfd_doorbell_mmap refuses any other length than the slice's
            self._mapped[page] = self.port.mmap(
                0, SLICE, PROT_READ | PROT_WRITE, MAP_SHARED, self.kfd_fd, kfd.signed_offset(page)
            )
        return native.view(self._mapped[page] + at, 8).cast("Q")

    def unmap(self) -> None:
        """No queue is left that rings."""
        while self._mapped:
            self.port.munmap(self._mapped.popitem()[1], SLICE)
