"""Registers that matrix products of a warpgroup have yet to read or write, and who touches them before.

In       products, their groups, fences and waits, instructions that name their registers; lanes of the batch
Out      findings, in the Checks of the launch
Changes  itself
Next     product_wait_steps.py (who tells it), warpgroup_ops.py (the products), shared_waits.py (the same for shared
         memory)
Source   PTX ISA, "wgmma.mma_async", "wgmma.fence", "wgmma.commit_group", "wgmma.wait_group": accesses to accumulators,
         and to registers of matrix A, before a wait for their group; a fence before the first product, and where such a
         register was changed otherwise. Products that add to the same accumulators need neither between them

A product is computed at once here, and ptxas makes a kernel right that breaks these rules, by waiting: it is slower.
"""

from __future__ import annotations

from functools import partial

import numpy as np

from hcq.emu.nv.shader.shared_waits import Names
from hcq.emu.nv.shader.types import Lanes
from hcq.emu.shader.checks import Checks
from hcq.events.kernel_faults import KernelFault, Site

RULE = "wgmma-not-waited"


class _Register:
    """What is known of one, by lane."""

    def __init__(self, lanes: int) -> None:
        self.group = np.full(lanes, -1, np.int64)  # of the last product that names it
        self.product = np.zeros(lanes, np.int32)  # its line
        self.changed = np.zeros(lanes, np.int64)  # when another instruction did
        self.by = np.zeros(lanes, np.int32)  # in which line


class ProductWaits:
    """Of the lanes of a batch."""

    def __init__(self, lanes: int, names: Names, checks: Checks) -> None:
        self.names, self.checks = names, checks
        self.now = 0
        self.count = lanes
        self.ended, self.waited = np.zeros(lanes, np.int64), np.zeros(lanes, np.int64)
        self.fenced = np.full(lanes, -1, np.int64)
        self.registers: dict[tuple[str, str], _Register] = {}  # by function and name

    def fence(self, lanes: Lanes) -> None:
        """wgmma.fence of these lanes."""
        self.now += 1
        self.fenced[lanes] = self.now

    def commit(self, lanes: Lanes) -> None:
        """These lanes end a group of products."""
        self.ended[lanes] += 1

    def wait(self, lanes: Lanes, pending: int) -> None:
        """These lanes wait until so many groups are pending."""
        self.waited[lanes] = np.maximum(self.waited[lanes], self.ended[lanes] - pending)

    def touch(self, lanes: Lanes, name: tuple[str, str], line: int, changes: bool) -> None:
        """An instruction that is no product reads or changes a register."""
        register = self._of(name)
        late = register.group[lanes] >= self.waited[lanes]
        if late.any():
            lane = int(lanes[np.argmax(late)])
            sites = (
                self._site("computes with it", int(register.product[lane]), lane),
                self._site("changes it" if changes else "reads it", line, lane),
            )
            what = f"{name[1]} is used before the product is done"
            why = "with no wgmma.wait_group for its group between"
            self._add(what, sites, why, int(np.count_nonzero(late)))
            register.group[lanes] = -1
        if changes:
            self.now += 1
            register.changed[lanes], register.by[lanes] = self.now, line

    def product(
        self, lanes: Lanes, results: list[tuple[str, str]], factors: list[tuple[str, str]], line: int
    ) -> None:
        """A product begins. results: its accumulators; factors: registers of matrix A."""
        for name in factors:
            self.touch(lanes, name, line, changes=False)
        for name in (*results, *factors):
            register = self._of(name)
            late = register.changed[lanes] > self.fenced[lanes]
            if late.any():
                lane = int(lanes[np.argmax(late)])
                sites: tuple[Site, ...] = (self._site("computes with it", line, lane),)
                if by := int(register.by[lane]):
                    sites = (self._site("changes it", by, lane), *sites)
                what = f"{name[1]} is given to a product without a fence"
                self._add(what, sites, "with no wgmma.fence before it", int(np.count_nonzero(late)))
                self.fenced[lanes] = self.now
            register.group[lanes], register.product[lanes] = self.ended[lanes], line

    def _of(self, name: tuple[str, str]) -> _Register:
        found = self.registers.get(name)
        if found is None:
            found = self.registers[name] = _Register(self.count)
        return found

    def _site(self, verb: str, line: int, lane: int) -> Site:
        return Site(verb, self.names.text(line), line, self.names.thread(lane))

    def _add(self, what: str, sites: tuple[Site, ...], why: str, times: int) -> None:
        fault = KernelFault(RULE, what, "", 0, sites, why)
        self.checks.add((RULE, *(site.place for site in sites)), times, partial(_known, fault))


def _known(fault: KernelFault) -> KernelFault:
    return fault
