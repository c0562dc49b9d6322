"""Roofline: how long a kernel would take on a chip, how long at least, what bounds it, and what to change.

In       Counters of a kernel's launches, all blocks of them or some; the chip's datasheet; perhaps another grid
Out      a Roof: a Bound for each resource; a Prediction: that with its arithmetic, and what to change
Next     model/ (the time beside the floor), counters.py (what was counted), datasheets.py (peak rates),
         tools/trace/roofline.py (of a trace), frontend/search/clock.py (a search that has no GPU)
Source   S. Williams, A. Waterman, D. Patterson: Roofline, an insightful visual performance model, CACM 52 (2009)

The floor is right without trust: each resource works at its peak and all at once, so no kernel is faster than the one
that it needs most. What a kernel takes is another figure, of model/: rates that are reached, latency, launches.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass
from math import prod
from typing import Any

from hcq.errors import UsageError
from hcq.performance import datasheets
from hcq.performance.counters import Counters, Dim3
from hcq.performance.datasheets import Datasheet
from hcq.performance.model.time import Estimate, estimate
from hcq.performance.model.words import explain

PORT_BYTES_PER_CLOCK = (
    64  # from L2 to a unit: NVIDIA A100 white paper (64 bytes a clock for an SM); AMD CDNA 3 white paper
)
FULL_SPREAD = 0.95
ALL_BUT = 0.9999
LOW_OCCUPANCY = 0.25
WASTED_SECTORS = 1.1
MANY_DIVERGE = 0.1
MUCH_LOCAL = 0.05
WITH_CLUSTERS = ("sm_90", "sm_100", "sm_120")


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

    def text(self) -> str:
        """The arithmetic."""
        part = "" if self.share > ALL_BUT else f" x {100 * self.share:.4g}% of the units"
        rate = f"{scaled(self.rate)}{self.unit}/s"
        return f"{scaled(self.work)}{self.unit} / {rate}{part} = {seconds_text(self.seconds)}"


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


@dataclass(frozen=True)
class Prediction:
    """What a launch of a kernel needs on a chip: its resources, that which takes longest first.

    counted      what the whole launch does
    spread       how many of the units have work, on average
    arithmetic   the unit and type that it computes most with, and the share of that peak
    resident     (blocks that a unit holds at once, share of its warps that is, what there is too little of or "")
    notes        what to change
    """

    counted: Counters
    chip: Datasheet
    bounds: tuple[Bound, ...]
    spread: float
    arithmetic: tuple[str, float]
    dram_share: float
    resident: tuple[int, float, str]
    notes: tuple[str, ...]
    estimate: Estimate

    @property
    def seconds(self) -> float:
        """What the model says that it takes: never less than the floor."""
        return max(self.estimate.seconds, self.floor_seconds)

    @property
    def floor_seconds(self) -> float:
        """At least so long: the resource that it needs most works all the time, the others meanwhile."""
        return self.bounds[0].seconds if self.bounds else 0.0

    @property
    def seconds_in_turn(self) -> float:
        """So long if no two resources work at the same time."""
        return sum(one.seconds for one in self.bounds)

    @property
    def share_in_turn(self) -> float:
        """The share of the peak that would be."""
        return self.arithmetic[1] * self.floor_seconds / self.seconds_in_turn if self.bounds else 0.0

    def summary(self) -> str:
        """The arithmetic of the shares: operations and bytes, over the time, over the peak."""
        floor = self.floor_seconds
        text = (
            f"predicted {seconds_text(self.seconds)}, most of it for {self.estimate.bound_by}; at least "
            f"{seconds_text(floor)}, {seconds_text(self.seconds_in_turn)} if nothing overlapped"
        )
        what, share = self.arithmetic
        found = next((one for one in self.bounds if one.what == what), None)
        if found is not None:
            reached = found.work / floor
            text += (
                f": {scaled(found.work)}FLOP / {seconds_text(floor)} = {scaled(reached)}FLOP/s of "
                f"{scaled(found.rate)}FLOP/s = {share:.0%} of the peak of {what}, {self.share_in_turn:.0%} without "
                "overlap"
            )
        dram = next((one for one in self.bounds if one.what == "DRAM"), None)
        if dram is not None:
            text += (
                f"; {scaled(dram.work)}B / {seconds_text(floor)} = {scaled(dram.work / floor)}B/s of "
                f"{scaled(dram.rate)}B/s = {self.dram_share:.0%} of DRAM's rate"
            )
        return text

    def room(self) -> str:
        """How many blocks and warps a unit holds, and how often the units are filled."""
        blocks, share, tight = self.resident
        one = self.counted
        warps = one.warps // max(1, one.blocks)
        of_grid = one.blocks / max(1, one.launches)
        return (
            f"{blocks} blocks of {warps} warps on each of {self.chip.units} units at once, {share:.0%} of its room"
            + (f", limited by {tight}" if tight else "")
            + f"; {of_grid:g} blocks in all, {of_grid / (blocks * self.chip.units):.3g} times what the chip holds"
        )

    def as_json(self) -> dict[str, Any]:
        """Plain data."""
        return {
            "kernel": self.counted.kernel,
            "chip": self.chip.name,
            "seconds": self.seconds,
            "floor_seconds": self.floor_seconds,
            "launch_seconds": self.estimate.launch,
            "spent_on": [{"what": what, "seconds": seconds} for what, seconds in self.estimate.parts],
            "seconds_in_turn": self.seconds_in_turn,
            "bound_by": self.bounds[0].what if self.bounds else None,
            "bounds": [
                {
                    "what": one.what,
                    "work": one.work,
                    "unit": one.unit,
                    "rate": one.rate,
                    "share": one.share,
                    "seconds": one.seconds,
                }
                for one in self.bounds
            ],
            "peak_of": self.arithmetic[0],
            "share_of_peak": self.arithmetic[1],
            "share_in_turn": self.share_in_turn,
            "share_of_dram": self.dram_share,
            "blocks_of_a_unit": self.resident[0],
            "occupancy": self.resident[1],
            "limited_by": self.resident[2],
            "change": list(self.notes),
            "counters": self.counted.as_fields(),
        }


def roof(counted: Counters, chip: Datasheet) -> Roof:
    """One launch of a kernel, on average; of a sample of its blocks, all of it. Raises UsageError for a chip of another
    vendor: it runs other code."""
    if counted.arch[:2] != chip.arch[:2]:
        raise UsageError(
            f"{counted.kernel}: counted on {counted.arch}, and {chip.name} is {chip.arch}. Choose a chip of that "
            "vendor, or record the program on an emulated one."
        )
    counted = counted.whole()
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


def predict(counted: Counters, chip: Datasheet | str, grid: Dim3 | None = None) -> Prediction:
    """One launch of a kernel, on average.

    counted   of launches of the kernel. Where only some blocks ran, the others do what these did on average
    chip      a datasheet or its name
    grid      of a launch that did not run: each of its blocks does what a counted one did
    Raises    UsageError for a chip of another vendor, which would run other code
    """
    chip = datasheets.chip(chip) if isinstance(chip, str) else chip
    sample, counted = counted, counted.whole(grid)
    found = roof(counted, chip)
    bounds, seconds = found.bounds, found.seconds
    busiest = max((one for one in bounds if one.unit == "FLOP"), key=lambda one: one.work, default=None)
    share = (busiest.what, busiest.work / busiest.rate / seconds) if busiest and seconds else ("", 0.0)
    dram = next((one.seconds / seconds for one in bounds if one.what == "DRAM"), 0.0)
    resident = _resident(counted, chip)
    counted = dataclasses.replace(counted, occupancy=resident[1], limited_by=resident[2])
    few = _too_few(sample, counted, chip, resident[0])
    time = estimate(counted, chip)
    notes = (*found.lacking, *few, *explain(time, counted), *changes(counted, bounds, found.spread))
    return Prediction(counted, chip, bounds, found.spread, share, dram, resident, notes, time)


def _resident(counted: Counters, chip: Datasheet) -> tuple[int, float, str]:
    """See Prediction. What the launch said on the GPU that counted; of another chip, by its datasheet."""
    threads = prod(counted.block)
    share, tight, blocks = datasheets.occupancy(
        chip, counted.registers, counted.shared_bytes, threads, counted.warp_size
    )
    if counted.arch == chip.arch:
        share, tight = counted.occupancy, counted.limited_by
    return blocks, share, tight


def _too_few(sample: Counters, counted: Counters, chip: Datasheet, resident: int) -> Iterator[str]:
    """What a sample of blocks does not say."""
    ran, launches = sample.blocks / max(1, sample.launches), max(1, counted.launches)
    at_once = min(resident * chip.units, counted.blocks / launches)
    if ran < at_once and counted.blocks > sample.blocks and not sample.held_l2_bytes:
        yield (
            f"{ran:g} of {counted.blocks / launches:g} blocks were counted, and the chip holds {at_once:g} at once: as "
            "more of them share what L2 has, DRAM gives less than is said here"
        )


def changes(counted: Counters, bounds: tuple[Bound, ...], spread: float) -> Iterator[str]:
    """What would make it faster, the most important first."""
    if not bounds:
        return
    first = bounds[0].what
    if first in ("DRAM", "L2", "L2 to units"):
        yield from _memory_changes(counted, first)
    elif first == "shared memory":
        if counted.bank_conflicts:
            part = counted.bank_conflicts / counted.shared_passes
            yield (
                f"{counted.bank_conflicts} of {counted.shared_passes} visits to shared memory ({part:.0%}) are bank "
                "conflicts: pad rows, or swizzle columns by the row"
            )
        else:
            yield "use what was read from shared memory more often: larger tiles of registers, wider loads, ldmatrix"
    elif first == "instruction issue":
        most = max(counted.instructions, key=lambda name: counted.instructions[name])
        yield (
            f"{counted.instructions[most] / counted.warp_instructions:.0%} of the instructions are {most}: load and "
            "store 16 bytes at once, unroll, use 32-bit indices"
            + ("" if counted.matrix_flops else ", let matrix units multiply")
        )
    elif first.startswith("vector") and not counted.matrix_flops:
        yield "where these are products of matrices, matrix units do them faster; else a narrower type"
    elif first.startswith("matrix"):
        yield "it is bound by what it computes: a narrower type, or fewer operations"
    if first not in ("DRAM", "L2", "L2 to units") and counted.sector_ratio > WASTED_SECTORS:
        yield _wasted(counted)
    if spread < FULL_SPREAD:
        yield f"only {spread:.0%} of the units have work on average: smaller tiles, or split the reduction among blocks"
    if counted.occupancy < LOW_OCCUPANCY and counted.limited_by:
        yield (
            f"an SM or CU holds {counted.occupancy:.0%} of its warps, for {counted.limited_by}: hide latency by "
            "loads that are asked for early, or use less of that"
        )
    if counted.local_sectors * counted.sector_bytes > MUCH_LOCAL * counted.l2_bytes:
        yield (
            f"{counted.local_sectors} sectors are of local memory: registers spill, or arrays have indices that are "
            "known only at run time; keep fewer values, unroll loops over small arrays"
        )
    if counted.divergent_branches > MANY_DIVERGE * max(1, counted.branches):
        yield f"{counted.divergent_branches} of {counted.branches} branches part a warp: let its threads go one way"


def _memory_changes(counted: Counters, first: str) -> Iterator[str]:
    if counted.sector_ratio > WASTED_SECTORS:
        yield _wasted(counted)
    if first == "DRAM":
        yield (
            "what passes through DRAM is what it costs: fuse it with its neighbours, keep values on chip, a narrower "
            "type"
        )
    else:
        yield (
            f"L2 is asked for {counted.l2_bytes / max(1, counted.dram_bytes):.1f} times what DRAM gives: stage tiles "
            "in shared memory, larger tiles, more elements for each thread"
            + (", blocks of a cluster that load for each other" if counted.arch in WITH_CLUSTERS else "")
        )


def _wasted(counted: Counters) -> str:
    return (
        f"global memory is asked for {counted.sector_ratio:.2f} bytes for each one needed: neighbouring threads should "
        f"reach neighbouring elements, from addresses that are multiples of {counted.sector_bytes}"
    )


def scaled(number: float) -> str:
    """With a metric prefix.

    >>> scaled(137.4e9) + "FLOP"
    '137.4 GFLOP'
    """
    for prefix, size in (("P", 1e15), ("T", 1e12), ("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if number >= size:
            return f"{number / size:.4g} {prefix}"
    return f"{number:.4g} "


def seconds_text(seconds: float) -> str:
    """A time with its unit.

    >>> seconds_text(1.5e-4)
    '150 us'
    """
    for unit, size in (("s", 1.0), ("ms", 1e-3), ("us", 1e-6)):
        if seconds >= size:
            return f"{seconds / size:.4g} {unit}"
    return f"{seconds * 1e9:.4g} ns"
