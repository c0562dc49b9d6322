"""The GPU behind all of Metal's objects: its figures, what is allocated, and who is notified of changes.

In       a Spec
Out      Gpu, which every object of a device has
Next     device.py (the same with its messages), resources.py, commands.py, processor.py (who need it)
"""

from __future__ import annotations

from collections.abc import Callable

from hcq.emu.condition import Condition
from hcq.emu.metal.runtime import Object, Runtime
from hcq.emu.metal.spec import Spec


class Gpu(Object):
    """One GPU. `changed` is notified when an event is set, and when a command buffer is committed or ends."""

    kind = "MTLDevice"

    def __init__(self, runtime: Runtime, spec: Spec) -> None:
        super().__init__(runtime)
        self.spec = spec
        self.allocated_bytes = 0
        self.watches: set[Callable[[], None]] = set()  # who looks, when the host has set an event
        self.changed = Condition()
