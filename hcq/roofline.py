"""Roofline: how long each resource of a chip works for what a launch was counted to do, so what it takes at least.

In       Counters of launches of one kernel, a Datasheet
Out      `Roof`: a Bound for each resource, that which takes longest first
Changes  nothing
Next     counters.py (what was counted), datasheets.py (peak rates), tools/trace/roofline.py (the report),
         frontend/search/clock.py (a search that has no GPU)
Source   S. Williams, A. Waterman, D. Patterson: Roofline, an insightful visual performance model, CACM 52 (2009)

A model, not a measurement: each resource works at its peak and all at once, so a kernel takes as long as the one that
it needs most. Nothing is said of latency, of clocks under load, nor of what a launch costs, some microseconds.
"""

from __future__ import annotations

from dataclasses import dataclass

from hcq.counters import Counters
from hcq.datasheets import Datasheet
from hcq.errors import UsageError

PORT_BYTES_PER_CLOCK = (
    64  # from L2 to a unit: NVIDIA A100 white paper (64 bytes a clock for an SM); AMD CDNA 3 white paper
)


@dataclass(frozen=True)
class Bound:
    """A resource and how long it works: `work` in `unit`, at `rate` of them a second, of which a share is reached."""

    what: str
    work: float
    unit: str
    rate: float
    share: float = 1.0

    @property
    def seconds(self) -> float:
        """How long."""
        return self.work / (self.rate * self.share)


@dataclass(frozen=True)
class Roof:
    """What one launch needs of a chip.

    bounds   its resources, that which takes longest first
    spread   how many of the units have work, on average
    lacking  what the chip does not have
    """

    bounds: tuple[Bound, ...]
    spread: float
    lacking: tuple[str, ...]

    @property
    def seconds(self) -> float:
        """At least so long."""
        return self.bounds[0].seconds if self.bounds else 0.0


def roof(counted: Counters, chip: Datasheet) -> Roof:
    """One launch of a kernel, on average. Raises UsageError for a chip of another vendor: it runs other code."""
    if counted.arch[:2] != chip.arch[:2]:
        raise UsageError(
            f"{counted.kernel}: counted on {counted.arch}, and {chip.name} is {chip.arch}. Choose a chip of that "
            "vendor, or record the program on an emulated one."
        )
    launches = max(1, counted.launches)
    blocks = max(1.0, counted.blocks / launches)
    rounds = -(-blocks // chip.units)  # of blocks, on the unit that has most
    spread = min(1.0, blocks / (chip.units * rounds))
    lacking: list[str] = []
    bounds: list[Bound] = []

    def bound(what: str, work: float, unit: str, rate: float, by_units: bool) -> None:
        if work:
            bounds.append(Bound(what, work / launches, unit, rate, spread if by_units else 1.0))

    for kinds, rates, unit in (
        (counted.matrix_flops, chip.matrix_flops, "matrix"),
        (counted.flops, chip.vector_flops, "vector"),
    ):
        for name, work in kinds.items():
            if name in rates:
                bound(f"{unit} {name}", work, "FLOP", rates[name], True)
            elif unit == "matrix":
                lacking.append(f"{chip.name} has no matrix unit for {name}: those instructions are left out")
    bound("instruction issue", counted.warp_instructions, " instructions", chip.issue_s, True)
    bound("shared memory", counted.shared_passes, " passes", chip.shared_passes_s, True)
    port = chip.units * chip.clock_hz * PORT_BYTES_PER_CLOCK
    bound("L2 to units", counted.l2_bytes, "B", port, True)
    bound("L2", counted.l2_bytes, "B", chip.l2_bytes_s, False)
    if chip.last_bytes_s:
        bound("Infinity Cache", counted.beyond_l2_bytes, "B", chip.last_bytes_s, False)
    bound("DRAM", counted.dram_bytes, "B", chip.dram_bytes_s, False)
    bounds.sort(key=lambda one: -one.seconds)
    return Roof(tuple(bounds), spread, tuple(lacking))
