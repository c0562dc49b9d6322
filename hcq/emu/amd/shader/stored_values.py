"""What a store of an AMD kernel is about to write, beside what is there, for races that equal values are no part of.

In       what saves registers; addresses of the lanes that are on
Out      `stored_in`: a Stored
Next     race_steps.py (who asks), hcq/emu/shader/stored.py
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from hcq.emu.amd.shader.arrays import Array
from hcq.emu.amd.shader.errors import PageFault
from hcq.emu.amd.shader.waves import Batch
from hcq.emu.shader.stored import Stored, bytes_of

Save = Callable[[Batch, Any, Array], None]


class _Taken:
    """In the place of memory: takes what is stored."""

    def __init__(self) -> None:
        self.new: Array | None = None

    def scatter(self, addresses: Array, data: Array) -> None:
        """As Memory.scatter."""
        self.new = bytes_of(data.T)

    def scatter_bytes(self, addresses: Array, data: Array, size_bytes: int) -> None:
        """As Memory.scatter_bytes."""
        self.new = bytes_of(data.astype(np.uint32))[:, :size_bytes]


def stored_in(b: Batch, save: Save, addresses: Array, memory: Any) -> Stored | None:
    """What these lanes store. memory: where to; None where it cannot be read."""
    taken = _Taken()
    save(b, taken, addresses)
    if taken.new is None:
        return None
    while hasattr(memory, "memory"):  # who looks at it is not asked
        memory = memory.memory
    size = taken.new.shape[1]
    try:
        if size >= 4:
            before = bytes_of(memory.gather(addresses, size // 4).T)
        else:
            before = bytes_of(memory.gather_bytes(addresses, size).astype(np.uint32))[:, :size]
    except PageFault:  # the instruction itself says so
        return None
    return Stored(taken.new, before)
