"""Counters view: what a kernel of a trace did, and what follows for its time on a chip, as data for a page.

In       a Trace with counters (HCQ_PROFILE=counters on an emulated GPU), one of its programs, a chip's name
Out      a dictionary for JSON: bars, rows of figures, sentences; `missing` says why there are none
Next     page_data.py (hands it out), page/counters.js (draws it), hcq/performance/roofline.py (the model),
         roofline.py (as text)
"""

from __future__ import annotations

from typing import Any

from hcq.errors import UsageError
from hcq.performance import datasheets, roofline
from hcq.performance.counters import Counters
from hcq.tools.trace.roofline import A_MODEL
from hcq.trace.file import Code, Trace

MISSING = (
    "Nobody counted what this kernel does. Emulated GPUs can: HCQ_EMULATE=nv:sm_90 HCQ_DEVICE=NV HCQ_PROFILE=counters "
    "hcq-trace record -- CMD"
)
COMPUTE, MEMORY = ("matrix", "vector", "instruction"), ("DRAM", "L2", "Infinity")


def counted_of(trace: Trace, code: Code) -> Counters | None:
    """The sum of a program's launches. Of programs with one name on a device, those at its address, if any are."""
    named = [
        made for device, made in trace.counters if device.key == code.device.key and made.kernel == code.name
    ]
    here = [made for made in named if made.entry == code.va]
    total = Counters(launches=0)
    for made in here or named:
        total.add(made)
    return total if named else None


def chips_of(arch: str) -> list[datasheets.Datasheet]:
    """The chips that can be asked about: of the same vendor, the one that was emulated, or the nearest, first."""
    own = datasheets.for_arch(arch)
    return sorted(
        (chip for chip in datasheets.CHIPS.values() if chip.arch[:2] == arch[:2]),
        key=lambda chip: chip is not own,
    )


def view(trace: Trace, code: Code, chip_name: str = "") -> dict[str, Any]:
    """Everything the page says about a kernel's counters. Raises UsageError for a chip that there is not."""
    counted = counted_of(trace, code)
    if counted is None:
        return {"missing": MISSING}
    chips = chips_of(counted.arch)
    if not chips:
        return {"missing": f"There is no datasheet of a chip that runs what {counted.arch} runs."}
    if chip_name and chip_name not in [chip.name for chip in chips]:
        raise UsageError(
            f"chip={chip_name!r}: this kernel's chips are {', '.join(chip.name for chip in chips)}."
        )
    found = roofline.predict(counted, chip_name or chips[0].name)
    whole, chip = found.counted, found.chip
    return {
        "chips": [{"name": one.name, "title": one.title} for one in chips],
        "chip": chip.name,
        "bounds": [
            {"what": one.what, "sort": _sort(one.what), "ns": 1e9 * one.seconds, "text": one.text()}
            for one in found.bounds
        ],
        "summary": found.summary(),
        "room": found.room(),
        "change": list(found.notes),
        "figures": _figures(counted, whole),
        "classes": sorted(whole.instructions.items(), key=lambda pair: -pair[1]),
        "launches": counted.launches,
        "of": _of(counted),
        "notes": [A_MODEL, f"{chip.name}: {chip.source}."]
        + ([f"Inferred: {chip.inferred}."] if chip.inferred else []),
    }


def _sort(what: str) -> str:
    """What a bar is coloured as."""
    if what.startswith(COMPUTE):
        return "compute"
    return "memory" if what.startswith(MEMORY) else "chip"


def _of(counted: Counters) -> str:
    each = max(1, counted.launches)
    text = f"grid {counted.grid}, block {counted.block}, counted on {counted.arch}"
    if counted.blocks < counted.grid_blocks:
        text += f"; {counted.blocks / each:g} of {counted.grid_blocks / each:g} blocks ran"
    return text


def _figures(counted: Counters, whole: Counters) -> list[tuple[str, str, str]]:
    """(group, what, how much), of one launch."""
    each = max(1, whole.launches)

    def number(count: float) -> str:
        return f"{count / each:,.0f}"

    rows = [
        ("work", "instructions of warps", number(whole.warp_instructions)),
        *(
            ("work", f"operations of {name} by matrix units", number(n))
            for name, n in whole.matrix_flops.items()
        ),
        *(("work", f"operations of {name} by threads", number(n)) for name, n in whole.flops.items()),
        (
            "work",
            "branches, of which part a warp",
            f"{number(whole.branches)}, {number(whole.divergent_branches)}",
        ),
        ("work", "barriers", number(whole.barriers)),
        ("memory", f"sectors of {whole.sector_bytes} bytes loaded", number(whole.load_sectors)),
        ("memory", "sectors stored", number(whole.store_sectors)),
        ("memory", "sectors of atomics", number(whole.atomic_sectors)),
        ("memory", "sectors of local memory", number(whole.local_sectors)),
        ("memory", "bytes asked for each needed", f"{whole.sector_ratio:.2f}"),
        ("memory", "bytes of L2", number(whole.l2_bytes)),
        (
            "memory",
            "bytes read from DRAM, written",
            f"{number(whole.dram_read_bytes)}, {number(whole.dram_write_bytes)}",
        ),
        ("chip", "visits to shared memory", number(whole.shared_passes)),
        ("chip", "of which bank conflicts", number(whole.bank_conflicts)),
        ("chip", "registers of a thread", str(counted.registers)),
        ("chip", "shared memory of a block", f"{counted.shared_bytes:,} bytes"),
        ("chip", "local memory of a thread", f"{counted.local_bytes:,} bytes"),
        *(("left out", name, number(n)) for name, n in whole.uncounted.items()),
    ]
    return [row for row in rows if row[2] != "0"]
