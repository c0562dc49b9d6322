"""Engines: what packets do, and when. A processor hangs handlers on declared packets.

In       packets; work that nothing orders against other work
Out      Handlers by packet; Unordered, which does work at once, or with a seed as late and mixed as hardware may
Changes  nothing of its own
Next     pm4_processor.py, sdma_processor.py (who use it), ../nv/engine.py (the sister)
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from random import Random
from typing import Any

from hcq.layout import Packet

Handler = Callable[[Any, Any], bool]


class Handlers(dict[type[Packet], Handler]):
    """Packet -> the method that does it. It returns whether the packet is done; if not, it is tried again."""

    def on(self, *layouts: type[Packet]) -> Callable[[Handler], Handler]:
        """Make a method what these packets do."""

        def note(handler: Handler) -> Handler:
            self.update(dict.fromkeys(layouts, handler))
            return handler

        return note


class Unordered:
    """Work that nothing orders: with a `random` it waits until something asks for it, and is then done in any order."""

    def __init__(self, random: Random | None) -> None:
        self.random = random
        self.pending: list[Callable[[], None]] = []

    def add(self, work: Callable[[], None]) -> None:
        """Do it now, or, where the GPU works asynchronously, some time before the next drain."""
        if self.random is None:
            work()
        else:
            self.pending.append(work)

    def drain(self) -> bool:
        """Do what was kept back; False when there was nothing."""
        pending, self.pending = self.pending, []
        if self.random is not None:
            self.random.shuffle(pending)
        for work in pending:
            work()
        return bool(pending)


_COMPARISONS = (operator.lt, operator.le, operator.eq, operator.ne, operator.ge, operator.gt)


def holds(function: int, value: int, reference: int) -> bool:
    """Whether a wait is over; PM4 and SDMA count the comparisons alike. 0 and 7 always hold."""
    return function in (0, 7) or bool(_COMPARISONS[function - 1](value, reference))
