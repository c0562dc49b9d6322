"""Races: what is looked for in the memory of the blocks that run together, and how they are ordered.

In       accesses, barriers, fences and atomic operations of warps
Out      faults in the Checks of the launch
Changes  itself
Next     order.py, shared_races.py, global_races.py; ../amd/shader/race_steps.py and ../nv/shader/race_steps.py (who
         tell)
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from hcq.emu.shader.global_races import GlobalRaces
from hcq.emu.shader.order import Array, Order
from hcq.emu.shader.shared_races import SharedRaces
from hcq.emu.shader.volatile_races import VolatileRaces


class Numbers(NamedTuple):
    """Those of the threads of some blocks, thread by thread.

    threads  in their blocks: the array that the rest was made of
    warps, lanes   who a thread is among those that run together
    live     whether it is one, and no padding; None: all are
    """

    threads: Array
    warps: Array
    lanes: Array
    live: Array | None


class Races:
    """Those of some blocks.

    shared      None where they have no memory of their own; everywhere: None where nobody asks
    by_value    stores of equal values are no race
    blocks      how many run as one, a cluster: their order and their memory are those of one block
    """

    def __init__(
        self,
        order: Order,
        shared: SharedRaces | None,
        everywhere: GlobalRaces | None,
        by_value: bool = False,
        blocks: int = 1,
    ) -> None:
        self.by_value = by_value
        self.numbers: Numbers | None = None  # of whoever asked last
        self.order, self.shared, self.everywhere = order, shared, everywhere
        self.of_volatile: VolatileRaces | None = None  # once there are some
        self.of_tensor: SharedRaces | None = None  # those of NVIDIA's tensor memory, once there are some
        self.polls: frozenset[int] = frozenset()  # places of loads of shared memory that wait for a store
        self.blocks, self.warps = blocks, order.warps // blocks  # of each block

    def apart(self, warps: Array) -> list[Array]:
        """Warps that meet in their blocks, so that the order takes no two blocks of a cluster for one."""
        if self.blocks == 1:
            return [warps]
        rank = warps // self.warps % self.blocks
        return [warps[rank == one] for one in np.unique(rank)]
