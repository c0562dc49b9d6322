"""A copy channel: copies by an engine that does not share the graphics engine's runlist, beside kernels.

In       memory for a ring, an error notifier and the words that set it up; the chip's classes
Out      CopyChannel, and which engine it can have
Changes  RM objects below the device: a channel group for a copy engine, a channel in it, a copy object
Next     channel.py (the channel that everything else goes to), device.py (who makes one when a graph first needs it)
Source   ctrl2080ce.h: two bytes of capabilities for each engine, of which bit 0 is GRCE; class/cl2080.h: engine types

A copy engine that is no GRCE has a runlist of its own. Its channel needs neither compute object nor context share: the
address space is the group's (kchangrpapiConstruct), and UVM maps no context buffers for it (uvm_user_channel_create).
"""

from __future__ import annotations

from hcq.nv.abi.classes import ClassId
from hcq.nv.abi.controls import ControlId
from hcq.nv.channel import WINDOW_UNIT, Channel
from hcq.nv.memory import Allocation
from hcq.nv.rm import Rm

# NV2080_ENGINE_TYPE_COPY0 to 9, and those from the eleventh on
ENGINE_COPY0, ENGINE_COPY10 = 9, 52
COPY_BY_TYPE = 1  # version of a copy object's parameters in which engineType is just that
CAPS_BYTES, GRCE = 2, 1


class CopyChannel(Channel):
    """A channel with a copy object and nothing else, in a group for one copy engine."""

    def __init__(self, engine: int, *what: object) -> None:
        self.engine = engine
        super().__init__(*what)  # type: ignore[arg-type]

    def _create(self, vaspace: int, ring: Allocation, notifier: Allocation) -> None:
        rm = self.rm
        self.group = rm.alloc(
            self.memory.device, ClassId.KEPLER_CHANNEL_GROUP_A, enginetype=self.engine, hvaspace=vaspace
        )
        self.handle = self._channel(ring, notifier, enginetype=self.engine)
        rm.alloc(self.handle, self.chip.engines.copy, version=COPY_BY_TYPE, enginetype=self.engine)
        self._start()

    def _window_bytes(self) -> int:
        return WINDOW_UNIT


def own_engine(rm: Rm, subdevice: int) -> int:
    """The type of the first copy engine with a runlist of its own; 0 where there is none. Raises DriverError."""
    said = rm.control(subdevice, ControlId.NV2080_CTRL_CMD_CE_GET_ALL_CAPS).values
    for number in range(int(said["present"]).bit_length()):
        caps = said["capstbl"] >> 8 * CAPS_BYTES * number
        if said["present"] >> number & 1 and not caps & GRCE:
            return ENGINE_COPY0 + number if number < 10 else ENGINE_COPY10 + number - 10
    return 0
