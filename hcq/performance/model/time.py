"""Time: what a launch of a kernel would take on a chip, and which of its parts it is spent on.

In       Counters of a kernel's launches, all blocks of them; the chip; how it is launched
Out      Estimate: seconds, and the parts of them, that which takes longest first
Next     resources.py and waiting.py (the parts), ../roofline.py (the floor, and who tells users), docs/model.md
Source   BOUND_TOGETHER: gpu-benches, gpu-roofline on an A100: what memory and arithmetic reach where both take as long;
         MEMORY_TOGETHER: gpu-benches, gpu-stream/a100_80.txt: DRAM by how many loads are under way

A unit runs as many blocks at once as it has room for. Each warp takes its time, as if it were alone; the unit's
parts take theirs, as if nobody waited; what is longer counts, and where both are alike, somewhat more than either.
Warps of a block that meet at barriers go through their work together: then the block's own work in the unit's parts
is a part of its time.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from hcq.performance import datasheets
from hcq.performance.counters import Counters
from hcq.performance.datasheets import Datasheet
from hcq.performance.model.chips import rates_of
from hcq.performance.model.resources import Load, load_of
from hcq.performance.model.waiting import Wait, wait_of

BOUND_TOGETHER = 6.0
MEMORY_TOGETHER = 2.25


@dataclass(frozen=True)
class Estimate:
    """One launch.

    seconds   from its begin to its end, with what launching costs
    parts     (what, seconds that it would take by itself), that which takes longest first
    launch    seconds that launching costs, which are in `seconds`
    latency   clocks of a load of global memory, on average
    warps     that a unit has at once, on average over those that have any
    """

    seconds: float
    parts: tuple[tuple[str, float], ...]
    launch: float
    latency: float
    warps: float

    @property
    def bound_by(self) -> str:
        """What takes longest."""
        return self.parts[0][0] if self.parts else "the launch"


def together(times: Iterable[float], sharpness: float) -> float:
    """What things take that go on side by side: the longest of them, and more where others are as long.

    >>> round(together([3.0, 1.0], 6.0), 3), round(together([1.0, 1.0], 6.0), 2)
    (3.001, 1.12)
    """
    found = [one for one in times if one > 0]
    most = max(found, default=0.0)
    return most * sum((one / most) ** sharpness for one in found) ** (1 / sharpness) if most else 0.0


def estimate(
    counted: Counters, chip: Datasheet, *, is_warm: bool = False, launched_by: str = "queue"
) -> Estimate:
    """One launch of a kernel, on average. Raises UsageError for a chip that has no rates.

    counted      of whole launches
    is_warm      whether a launch before left in L2 what this one reads, as far as it fits
    launched_by  "queue": behind another launch; "graph": as a node of one; "": nothing but the kernel's own time
    """
    rates = rates_of(chip)
    load, wait = load_of(counted, chip, rates, is_warm), wait_of(counted, chip, rates, is_warm)
    blocks = max(1.0, counted.blocks / max(1, counted.launches))
    warps = counted.warps / max(1, counted.blocks)
    threads = counted.block[0] * counted.block[1] * counted.block[2]
    resident = datasheets.occupancy(
        chip, counted.registers, counted.shared_bytes, threads, counted.warp_size
    )[2]
    most = -(-blocks // chip.units)
    rounds = max(-(-most // resident), most / resident)
    unit = {name: most * clocks / chip.clock_hz for name, clocks in load.unit.items()}
    alone = _alone(load, wait, bool(counted.barriers))
    first = (
        min(blocks, resident * chip.units) * rates.begin_clocks
    )  # until the last of those that run at once begins
    waiting = (rounds * alone + first) / chip.clock_hz
    own = rounds * together(load.unit.values(), BOUND_TOGETHER) / chip.clock_hz if counted.barriers else 0.0
    seconds = _all(unit, load.chip, waiting, own, wait.outside / alone if alone else 0.0)
    launch = {"queue": rates.launch_s + rates.graph_s, "graph": rates.graph_s}.get(launched_by, 0.0)
    parts = [*unit.items(), *load.chip.items(), ("waiting", waiting)]
    parts.sort(key=lambda part: -part[1])
    return Estimate(seconds + launch, tuple(parts), launch, wait.latency, min(resident, most) * warps)


def _alone(load: Load, wait: Wait, meets: bool) -> float:
    """Clocks of one block that has a unit for itself, from its begin to its end."""
    work = together(load.unit.values(), BOUND_TOGETHER)
    inside = together((work, wait.inside), BOUND_TOGETHER) if meets else wait.inside
    return wait.begin + wait.outside + inside


def _all(unit: dict[str, float], chip: dict[str, float], waiting: float, own: float, outside: float) -> float:
    """Seconds of a launch. own: those of one place in a unit in which its blocks' own work is a part of their time,
    after which only others' work can fill the rest of it. outside: the share of memory in what is waited for."""
    work = together((*unit.values(), *chip.values()), BOUND_TOGETHER)
    # latency of memory is not as regular as that of arithmetic
    sharpness = outside * MEMORY_TOGETHER + (1 - outside) * BOUND_TOGETHER
    own = min(own, work, waiting)
    return own + together((work - own, waiting - own), sharpness)
