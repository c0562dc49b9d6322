"""Races: what is looked for in the memory of the blocks that run together, and how they are ordered.

In       accesses, barriers, fences and atomic operations of warps
Out      faults in the Checks of the launch
Changes  itself
Next     order.py, shared_races.py, global_races.py; ../amd/shader/race_steps.py and ../nv/shader/race_steps.py (who
         tell)
"""

from __future__ import annotations

from hcq.emu.shader.global_races import GlobalRaces
from hcq.emu.shader.order import Order
from hcq.emu.shader.shared_races import SharedRaces


class Races:
    """Those of some blocks.

    shared      None where they have no memory of their own; everywhere: None where nobody asks
    by_value    stores of equal values are no race
    """

    def __init__(
        self,
        order: Order,
        shared: SharedRaces | None,
        everywhere: GlobalRaces | None,
        by_value: bool = False,
    ) -> None:
        self.by_value = by_value
        self.order, self.shared, self.everywhere = order, shared, everywhere
        self.warps = order.warps  # of a block
