"""The plan: everything that hw_check asks, in the order in which it asks.

In       which vendor
Out      Items: name, what it asks, the function that asks it, its deadline, what it needs
Changes  nothing; a function's module is imported in the process that runs it
Next     runner.py (a process for each item), child.py (what happens in it), checks.py and its sisters (the functions)

The order: what needs no driver of ours, the vendor's runtime before we touch the GPU, opening, what is right, what is
fast, variants, and last what stops a channel or may leave the GPU hanging. An item whose foundation failed is skipped;
variants are not, for one of them may work where the driver as it is does not.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

VENDORS = ("NV", "AMD")
DEADLINE_S, TRY_S = 40.0, 20.0
LIMIT_S = 570.0  # of all items together
HOST, WATCH, DOCTOR, OPENING, CAPTURE, FIGURES = "host", "watch", "doctor", "opening", "capture", "vendor"
HERE = "hcq.tools.hw"
UNCHECKED = {"HCQ_VALIDATE": "0"}  # what the driver's own rules forbid, or know nothing of
NUMBERED = {"CUDA_DEVICE_ORDER": "PCI_BUS_ID"}  # GPUs as the kernel driver counts them, not the fastest first


@dataclass(frozen=True)
class Item:
    """One question.

    place        "module:function" of it; the function takes a Bench
    needs        the item that must not have failed, or ""
    argument     what the function is told besides, such as a variant's name
    trace        the file of a trace that is recorded while it runs, or ""
    vendors      who is asked
    disturbs     it stops a channel or hangs the GPU on purpose
    environment  set in its process
    """

    name: str
    about: str
    place: str
    needs: str = OPENING
    deadline_s: float = DEADLINE_S
    argument: str = ""
    trace: str = ""
    vendors: tuple[str, ...] = VENDORS
    disturbs: bool = False
    environment: Mapping[str, str] = field(default_factory=dict)


def of_vendor(kind: str, name: str) -> Any:
    """What one vendor's GPUs alone have, from its folder here: the sisters' files have the same names."""
    return importlib.import_module(f"{HERE}.{kind.lower()}.{name}")


def function_at(place: str) -> Any:
    """The function that "module:function" names; imported here, for it may need what not every machine has."""
    module, _, name = place.partition(":")
    return getattr(importlib.import_module(module), name)


def _check(name: str, about: str, **how: object) -> Item:
    return Item(name, about, f"{HERE}.checks:{name}", **how)  # type: ignore[arg-type]


FIRST = (
    Item(HOST, "the machine: kernel, driver, device files, PCI, what the vendor's tools say", f"{HERE}.host:host", ""),
    Item("facts", "what the kernel driver says of the GPU when it is asked without a channel", f"{HERE}.host:facts",
         ""),
    Item(WATCH, "the vendor's runtime, watched: its calls, rings and packets beside ours", f"{HERE}.watch:watch", "",
         60.0, environment=NUMBERED),
    _check(DOCTOR, "the doctor's checks: can the device be reached and opened, is its memory sound", needs=""),
    _check(OPENING, "which device, driver and interface; every call of the bring-up is recorded", needs="",
           trace="opening.hcqtrace"),
    Item("ladder", "rung by rung from an empty submission to local memory: the first that fails",
         f"{HERE}.ladder:ladder", "", trace="ladder.hcqtrace"),
    Item("bare-kernel", "a kernel that does nothing but end, and no constant bank: does the GPU take a launch at all?",
         f"{HERE}.nv.experiments:bare_kernel", "", TRY_S, vendors=("NV",), environment=UNCHECKED),
    _check("launches", "thousands of launches in order, each needing the one before it"),
    _check("latency", "from a launch to knowing that it is done"),
    _check("arguments", "every size of argument, by value, and a structure"),
    _check("features", "shared memory, barriers, lanes, atomics, divergence, local and constant memory, float64"),
    _check("copies", "bytes in, across and out, of many sizes and alignments, with checksums"),
    _check("timestamps", "the device's stamps rise and fit the host's clock"),
    _check("graphs", "recorded launches replay in order, with one doorbell"),
    _check(CAPTURE, "a short run is recorded; every word has a name, no rule is broken", trace="capture.hcqtrace"),
    Item("compare", "the vendor's calls and packets beside ours: what one side alone does, and what both do otherwise",
         f"{HERE}.compare:compare", ""),
    _check("bandwidth", "how fast bytes go in, across, out, and through a kernel"),
    Item(FIGURES, "the vendor's figures for the same work, where its runtime is installed", f"{HERE}.vendor:vendor",
         environment=NUMBERED),
)  # fmt: skip
EXPERIMENTS = (
    Item("ring-wrap", "rings that are written around several times never look full for ever",
         f"{HERE}.experiments:ring_wrap"),
    Item("scratch", "every lane of the whole GPU has scratch memory of its own", f"{HERE}.experiments:scratch"),
    Item("code-reuse", "code loaded where other code lay runs, a thousand times: are instruction caches dropped?",
         f"{HERE}.experiments:code_reuse"),
    Item("long-kernel", "a kernel that fills the GPU is right while other processes make queues and work",
         f"{HERE}.experiments:long_kernel"),
    Item("wait64", "the device waits for a value above 32 bits, and goes on neither before nor never",
         f"{HERE}.experiments:wait64"),
    Item("fresh-reads", "what the GPU wrote is what the host reads over PCIe, also of a line that it has read before",
         f"{HERE}.experiments:fresh_reads", environment=UNCHECKED),
    Item("gp-get", "does GP_GET move, and how late: idle, beside a kernel, after thousands of entries",
         f"{HERE}.nv.experiments:gp_get", vendors=("NV",)),
    Item("doorbell", "the doorbell's page is mapped without a cache: what a load and a store there take",
         f"{HERE}.nv.experiments:doorbell", vendors=("NV",)),
    Item("copy-engines", "which copy engines RM takes for a copy object on the graphics runlist",
         f"{HERE}.nv.experiments:copy_engines", vendors=("NV",)),
    Item("odd-fills", "fills of bytes and words at odd places, on the copy engine", f"{HERE}.experiments:odd_fills"),
)  # fmt: skip
LAST = (
    Item("copy-fault", "a copy from where nothing is is reported with the engine that did it",
         f"{HERE}.nv.experiments:copy_fault", vendors=("NV",), disturbs=True, environment=UNCHECKED),
    _check("fault", "a store far outside of memory is reported with the kernel's name", disturbs=True),
    _check("trap", "a trap instruction is reported with the kernel's name", disturbs=True),
    _check("hang", "a kernel that never ends is given up at the deadline", disturbs=True),
    _check("after", "after all that another process opens the GPU, and a kernel is right"),
)  # fmt: skip


def items(kind: str) -> list[Item]:
    """All for one vendor, in order; without a vendor what can be asked of any machine."""
    if not kind:
        return [item for item in FIRST if item.name == HOST]
    tried = [
        Item(
            f"try-{one.name}",
            one.about,
            f"{HERE}.variants:attempt",
            "",
            TRY_S,
            one.name,
            disturbs=one.disturbs,
            environment=one.environment,
        )
        for one in of_vendor(kind, "variants").VARIANTS
    ]
    before, after = (
        [item for item in part if kind in item.vendors] for part in ((*FIRST, *EXPERIMENTS), LAST)
    )
    return [*before, *tried, *after]
