"""Counting: what each program did on an emulated GPU, launch by launch (HCQ_PROFILE=counters).

In       launches that emulated shader cores have counted
Out      sums by program name; `table()`, which is printed when the device closes
Changes  tells the device's other observers of each launch
Next     hcq/performance/counters.py (the record, and who counts), profile.py (the sister, with times),
         tools/trace/roofline.py

A launch is told to everybody in the process; it is this device's when its code is a program that this device loaded.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Mapping, Sequence

from hcq.device import Device
from hcq.events.observer import Observer
from hcq.performance import counters
from hcq.performance.counters import Counters
from hcq.program import Program


class Counting(Observer):
    """Sums of one device: `totals` is name -> Counters of all launches."""

    is_awaited = True

    def __init__(self, device: Device) -> None:
        self.device = device
        self.totals: dict[str, Counters] = {}
        # where its code begins -> a program's name, and its entry
        self._names: dict[int, tuple[str, int]] = {}
        self._lock = threading.Lock()
        self._end = counters.listen(self._launched, device.config.counted_blocks)

    def load(self, program: Program, entry: str, image: bytes, sources: Mapping[str, str] | None) -> None:
        self._names[program.code_va] = program.name, program.entry

    def closing(self) -> bool:
        self._end()
        if not self.device.is_lost and not self.device.fault():
            self.device.say("what kernels did\n" + self.table())
        return False

    def _launched(self, pid: int, made: Counters) -> None:
        """From a thread of the emulated GPU. A name stays when its program is gone: work may be in flight."""
        known = self._names.get(made.entry)
        if known is None or pid != os.getpid():
            return
        name, entry = known
        made = Counters.from_fields({**made.as_fields(), "kernel": name, "entry": entry})
        with self._lock:
            total = self.totals.get(name)
            if total is None:
                total = self.totals[name] = Counters(launches=0)
            total.add(made)
        for observer in self.device.observers:
            observer.counted(made)

    def table(self) -> str:
        """Programs by what they asked of DRAM, as text. Sums of all launches."""
        with self._lock:
            return table(list(self.totals.values()))


HEAD = (
    f"{'launches':>8} {'warp instr':>11} {'matrix GF':>10} {'sectors':>10} {'/ ideal':>7} {'conflicts':>9} "
    f"{'diverge':>7} {'occ':>5} {'L2 KB':>10} {'DRAM KB':>10}  program"
)
NOTE = "L2 and DRAM are a model's figures; see docs/counters.md"


def table(found: Sequence[Counters]) -> str:
    """A row for each, those that asked DRAM for most first."""
    if not found:
        return "nothing was counted: only emulated GPUs (HCQ_EMULATE) count"
    return "\n".join((HEAD, *map(line, sorted(found, key=lambda one: -one.dram_bytes)), NOTE))


def line(one: Counters) -> str:
    """A row of a table."""
    return (
        f"{one.launches:8d} {one.warp_instructions:11d} {sum(one.matrix_flops.values()) / 1e9:10.4g} {one.sectors:10d} "
        f"{one.sector_ratio:7.2f} {one.bank_conflicts:9d} {one.divergent_branches:7d} {one.occupancy:5.0%} "
        f"{one.l2_bytes / 1024:10.0f} {one.dram_bytes / 1024:10.0f}  {one.kernel}"
    )
