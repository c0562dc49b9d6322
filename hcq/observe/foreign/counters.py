"""HCQ_PROFILE=counters for a foreign program: what each of its kernels did on an emulated GPU.

In       launches of a ForeignDevice that emulated shader cores have counted
Out      a table, said when the process uses the GPU no more
Next     hcq/observe/counters.py (the sister), session.py (who hears of launches)
"""

from __future__ import annotations

from collections.abc import Callable

from hcq.events.foreign_devices import ForeignDevice, ForeignObserver
from hcq.observe.counters import table
from hcq.performance.counters import Counters


class ForeignCounting(ForeignObserver):
    """Sums of one device, by the kernel's name. say: takes the table."""

    def __init__(self, device: ForeignDevice, say: Callable[[str], None]) -> None:
        self.device, self.say = device, say
        self.totals: dict[str, Counters] = {}

    def counted(self, made: Counters) -> None:
        self.totals.setdefault(made.kernel, Counters(launches=0)).add(made)

    def closed(self) -> None:
        if self.totals:
            where = f"{self.device.name} of process {self.device.client.pid}"
            self.say(f"{where}: what kernels did\n{table(list(self.totals.values()))}")
