"""Fence: the memory barrier between the host's writes for a GPU and the doorbell.

In       nothing
Out      an order: all stores so far are visible before any later one, write-combined ones included
Changes  nothing; on aarch64 the first fence maps a page of code
Next     hcq/amd/rings.py, hcq/nv/rings.py (where it stands)
Source   Intel SDM 3A 9.2.2 and 12.3.1 (a locked instruction drains the store buffers and the write-combining buffers);
         Arm Architecture Reference Manual, B2.3.12 "Data Synchronization Barrier"

Python has no word for it. On x86-64 any locked instruction is a full fence, and taking a lock is one. On aarch64 taking
a lock is an atomic with acquire order: it keeps later accesses from passing it, but stores before it may still be on
their way, above all those to device memory. There the fence is a DSB, which is reached as machine code of our own.
"""

from __future__ import annotations

import functools
import platform
from collections.abc import Callable
from threading import Lock
from typing import Any

from hcq.system.machine_code import as_function
from hcq.system.port import LinuxPort

# dsb sy: waits until all accesses before it are complete, for every observer, devices too; ret
AARCH64_CODE = bytes.fromhex("9f3f03d5 c0035fd6")


def locked_instruction() -> None:
    """Taking a lock is a locked instruction, which on x86-64 drains the store buffers; PCIe doorbells need no more.

    The lock is a new one: what a signal's handler interrupts must not leave a shared one taken.
    """
    Lock().acquire()


def barrier_instruction() -> None:
    """A DSB over the whole system, on aarch64."""
    _aarch64_barrier()()


def fence_of(machine: str) -> Callable[[], None]:
    """The full fence of a machine, by the name that `platform` gives it.

    Machines that are neither get the lock: for an emulated GPU, which is a thread of this process, it is enough there
    too, and no GPU driver here runs on them.
    """
    return barrier_instruction if machine == "aarch64" else locked_instruction


@functools.cache
def _aarch64_barrier() -> Any:
    return as_function(AARCH64_CODE, LinuxPort())


# all stores so far are visible before any later one, write-combined ones included
full_fence = fence_of(platform.machine())
