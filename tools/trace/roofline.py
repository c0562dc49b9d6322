"""Roofline: how long each kernel of a trace would take on a chip, and at least, what bounds it, and what to change.

In       a Trace with counters (HCQ_PROFILE=counters on an emulated GPU); a chip's name, perhaps another grid
Out      a Prediction for each kernel; text
Next     hcq/performance/roofline.py (the model), hcq/performance/datasheets.py (peak rates), stats.py (measured times)
"""

from __future__ import annotations

from collections.abc import Iterator

from hcq.errors import UsageError
from hcq.performance import datasheets, roofline
from hcq.performance.counters import Counters, Dim3
from hcq.performance.roofline import Prediction
from hcq.tools.trace.color import Color, clean
from hcq.trace.file import Trace

SHOWN = 4  # parts of the time, those that take longest
A_MODEL = (
    "A model, and no measurement: docs/model.md compares it with kernels that others measured; the bounds are at peak "
    "rates. docs/counters.md says what is counted."
)


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


def grid_of(text: str) -> Dim3:
    """A grid as people write it: 32, 32x32, 32x32x8. Raises UsageError for anything else."""
    parts = text.lower().split("x")
    sizes = [int(part) for part in parts if part.isascii() and part.isdecimal() and len(part) < 10]
    if len(sizes) != len(parts) or len(parts) > 3 or min(sizes) < 1:
        raise UsageError(f"--grid {text!r}: takes up to three sizes, such as 32x32.")
    x, y, z = (*sizes, 1, 1)[:3]
    return x, y, z


def of_trace(
    trace: Trace, chip_name: str | None, kernel: str = "", grid: Dim3 | None = None
) -> list[Prediction]:
    """Every kernel of a trace with this text in its name, for a grid of that size where one is given.

    chip_name   None stands for the chip that each was counted for, or the nearest one
    """
    found = []
    for counted in kernels(trace):
        if kernel not in counted.kernel:
            continue
        chip = datasheets.chip(chip_name) if chip_name else datasheets.for_arch(counted.arch)
        if chip is None:
            raise UsageError(f"there is no datasheet for {counted.arch}. Name a chip with --chip.")
        found.append(roofline.predict(counted, chip, grid))
    return found


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
            yield f"  {each.what:<{width}}  {each.text()}" + ("   <- bound" if not number else "")
        spent = ", ".join(
            f"{what} {roofline.seconds_text(seconds)}" for what, seconds in one.estimate.parts[:SHOWN]
        )
        yield f"  by rates that are reached: {spent}; the launch {roofline.seconds_text(one.estimate.launch)}"
        yield f"  {one.room()}"
        yield (
            f"  {counted.registers} registers, {counted.shared_bytes} bytes of shared memory; "
            f"{counted.sector_ratio:.2f} bytes asked for each needed; {counted.bank_conflicts} bank conflicts"
            + (f"; {counted.local_sectors} sectors of local memory" if counted.local_sectors else "")
        )
        yield color(f"  {one.summary()}", "heading")
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
