"""Roofline: how long each kernel would take at least on a chip, what bounds it, and what to change.

In       a Trace with counters (HCQ_PROFILE=counters on an emulated GPU); the chip's datasheet
Out      a Prediction for each kernel, with its arithmetic; text
Changes  nothing
Next     hcq/roofline.py (the model), hcq/counters.py (what was counted, and how), stats.py (measured times)
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from hcq import datasheets
from hcq.counters import Counters
from hcq.datasheets import Datasheet
from hcq.errors import UsageError
from hcq.roofline import Bound, roof
from hcq.tools.trace.color import Color, clean
from hcq.tools.trace.stats import duration
from hcq.trace.file import Trace

FULL_SPREAD = 0.95
LOW_OCCUPANCY = 0.25
WASTED_SECTORS = 1.1
MANY_DIVERGE = 0.1
MUCH_LOCAL = 0.05
A_MODEL = "A model: peak rates, everything at once; no latency, no launch cost. docs/counters.md says what is counted."


@dataclass(frozen=True)
class Prediction:
    """What a launch of a kernel needs on a chip: its resources, that which takes longest first."""

    counted: Counters
    chip: Datasheet
    bounds: tuple[Bound, ...]
    spread: float  # how many of the units have work, on average
    arithmetic: tuple[str, float]  # of the type that it computes most with: share of that peak
    dram_share: float
    notes: tuple[str, ...]

    @property
    def seconds(self) -> float:
        """At least so long."""
        return self.bounds[0].seconds if self.bounds else 0.0

    def as_json(self) -> dict[str, Any]:
        """Plain data."""
        return {
            "kernel": self.counted.kernel,
            "chip": self.chip.name,
            "seconds": self.seconds,
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
            "share_of_dram": self.dram_share,
            "change": list(self.notes),
            "counters": self.counted.as_fields(),
        }


def kernels(trace: Trace) -> list[Counters]:
    """The sums of every kernel of a trace. Raises UsageError when nothing was counted."""
    found: dict[tuple[str, str], Counters] = {}
    for device, made in trace.counters:
        found.setdefault((device.key, made.kernel), Counters(launches=0)).add(made)
    if not found:
        raise UsageError(
            "the trace has no counters. Record it on an emulated GPU, as in: HCQ_EMULATE=nv:sm_90 HCQ_PROFILE=counters "
            "hcq-trace record -- CMD"
        )
    return list(found.values())


def predict(counted: Counters, chip: Datasheet) -> Prediction:
    """One launch of a kernel, on average. Raises UsageError for a chip of another vendor: it runs other code."""
    launches = max(1, counted.launches)
    found = roof(counted, chip)
    bounds, spread, seconds = found.bounds, found.spread, found.seconds
    busiest = max((one for one in bounds if one.unit == "FLOP"), key=lambda one: one.work, default=None)
    share = (busiest.what, busiest.work / busiest.rate / seconds) if busiest and seconds else ("", 0.0)
    dram = counted.dram_bytes / launches / chip.dram_bytes_s / seconds if seconds else 0.0
    notes = (*found.lacking, *changes(counted, bounds, spread))
    return Prediction(counted, chip, bounds, spread, share, dram, notes)


def changes(counted: Counters, bounds: Sequence[Bound], spread: float) -> Iterator[str]:
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
        )


def _wasted(counted: Counters) -> str:
    return (
        f"global memory is asked for {counted.sector_ratio:.2f} bytes for each one needed: neighbouring threads should "
        f"reach neighbouring elements, from addresses that are multiples of {counted.sector_bytes}"
    )


def _arithmetic(one: Bound) -> str:
    part = "" if one.share > FULL_SPREAD else f" x {one.share:.0%} of the units"
    return f"{_scaled(one.work)}{one.unit} / {_scaled(one.rate)}{one.unit}/s{part} = {duration(one.seconds)}"


def _scaled(number: float) -> str:
    """With a metric prefix."""
    for prefix, size in (("P", 1e15), ("T", 1e12), ("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if number >= size:
            return f"{number / size:.4g} {prefix}"
    return f"{number:.4g} "


def lines(found: list[Prediction], color: Color) -> Iterator[str]:
    """As text, the kernels that take longest in all first."""
    for one in sorted(found, key=lambda each: -each.seconds * each.counted.launches):
        counted = one.counted
        yield (
            f"{color(clean(counted.kernel), 'kernel')}  on {one.chip.title}, counted on {counted.arch}: grid "
            f"{counted.grid}, block {counted.block}, {counted.launches} launches; of one launch:"
        )
        width = max((len(each.what) for each in one.bounds), default=0)
        for number, each in enumerate(one.bounds):
            yield f"  {each.what:<{width}}  {_arithmetic(each)}" + ("   <- bound" if not number else "")
        yield (
            f"  occupancy {counted.occupancy:.0%}"
            + (f", limited by {counted.limited_by}" if counted.limited_by else "")
            + f"; {counted.registers} registers, {counted.shared_bytes} bytes of shared memory; "
            f"{counted.sector_ratio:.2f} bytes asked for each needed; {counted.bank_conflicts} bank conflicts"
        )
        peak, share = one.arithmetic
        text = f"{share:.0%} of the peak of {peak}, " if peak else ""
        yield color(
            f"  predicted {duration(one.seconds)}: {text}{one.dram_share:.0%} of DRAM's rate", "heading"
        )
        for note in one.notes:
            yield f"  change: {note}"
        if counted.uncounted:
            names = ", ".join(f"{name} ({count})" for name, count in counted.uncounted.items())
            yield color(f"  the traffic of these is not in it: {clean(names)}", "note")
    chip = found[0].chip
    yield color(A_MODEL, "note")
    yield color(
        f"{chip.name}: {chip.source}." + (f" Inferred: {chip.inferred}." if chip.inferred else ""), "note"
    )


def of_trace(trace: Trace, chip_name: str | None) -> list[Prediction]:
    """Every kernel of a trace. chip_name: None stands for the chip that each was counted for, or the nearest one."""
    found = []
    for counted in kernels(trace):
        chip = datasheets.chip(chip_name) if chip_name else datasheets.for_arch(counted.arch)
        if chip is None:
            raise UsageError(f"there is no datasheet for {counted.arch}. Name a chip with --chip.")
        found.append(predict(counted, chip))
    return found
