"""Waiting: how long one warp takes by itself, and how many warps there are to fill that time.

In       Counters of a whole launch; a chip's datasheet and rates
Out      Wait: clocks of a warp for arithmetic and shared memory, and for global memory; how often a unit is filled
Next     resources.py (the other half), time.py (who puts them together)
Source   J. Little, A Proof for the Queuing Formula L = lambda W (1961): what is under way at once is the rate times the
         time that it takes
"""

from __future__ import annotations

from dataclasses import dataclass

from hcq.performance.counters import Counters
from hcq.performance.datasheets import Datasheet
from hcq.performance.model.rates import Rates


@dataclass(frozen=True)
class Wait:
    """Of a warp, from its block's begin to its end, in clocks.

    inside   arithmetic, shared memory
    outside  global memory: loads that were waited for one after the other, each at the latency where it was answered
    begin    until a block that follows another runs
    latency  of a load of global memory, on average
    """

    inside: float
    outside: float
    begin: float
    latency: float

    @property
    def clocks(self) -> float:
        """All of it."""
        return self.inside + self.outside + self.begin


def latency_of(counted: Counters, chip: Datasheet, rates: Rates, is_warm: bool) -> float:
    """Clocks until loads of global memory are answered that are waited for together: the last of them counts."""
    asked, loads = counted.load_sectors * counted.sector_bytes, counted.load_requests
    if not asked or not loads:
        return rates.l2
    to_l2 = min(1.0, counted.l2_requests / loads)
    from_dram = 0.0 if is_warm else min(to_l2, counted.dram_read_bytes / asked)
    beyond = max(from_dram, min(to_l2, (counted.beyond_l2_bytes - counted.dram_write_bytes) / asked))
    at_once = max(1.0, loads / max(1.0, counted.waits.get("global", 0.0) + counted.waits.get("copy", 0.0)))

    def some(share: float) -> float:
        """The chance that one of those that are waited for together is such."""
        return float(1.0 - (1.0 - min(1.0, share)) ** at_once)

    behind = rates.last if chip.last_bytes and rates.last else rates.dram
    return (
        rates.l1
        + some(to_l2) * (rates.l2 - rates.l1)
        + some(beyond) * (behind - rates.l2)
        + some(from_dram) * (rates.dram - behind)
    )


def wait_of(counted: Counters, chip: Datasheet, rates: Rates, is_warm: bool) -> Wait:
    """Of an average warp."""
    warps, blocks = max(1, counted.warps), max(1, counted.blocks)
    waits = {name: often / warps for name, often in counted.waits.items()}
    latency = latency_of(counted, chip, rates, is_warm)
    # a load of many lines is answered when its last line is
    lines = counted.l1_clocks / max(1, counted.l1_requests)
    outside = (waits.get("global", 0.0) + waits.get("copy", 0.0)) * (latency + lines)
    outside += waits.get("atomic", 0.0) * rates.atomic + waits.get("scalar", 0.0) * rates.l1
    passes = counted.shared_passes / max(1, counted.shared_passes - counted.bank_conflicts)
    inside = waits.get("clocks", 0.0) + waits.get("shared", 0.0) * (rates.shared + passes - 1.0)
    begin = rates.block_clocks + rates.warp_clocks * warps / blocks
    return Wait(inside, outside, begin, latency)
