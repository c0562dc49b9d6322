"""The fence between what the host writes for a GPU and the write that makes the GPU look.

In       nothing
Out      an order: all stores so far are visible before any later one, write-combined ones included
Changes  nothing
Next     hcq/amd/rings.py, hcq/nv/rings.py (where it stands)
"""

from __future__ import annotations

from threading import Lock


def full_fence() -> None:
    """Taking a lock is a locked instruction, which on x86-64 drains the store buffers; PCIe doorbells need no more.

    The lock is a new one: what a signal's handler interrupts must not leave a shared one taken.
    """
    Lock().acquire()
