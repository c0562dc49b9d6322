"""What is under way to LDS, by loads to LDS and by stores, and who uses it before it is there.

In       accesses to LDS, barriers; what each wave has waited for
Out      missing waits, in the Checks of the launch
Changes  itself
Next     lds_wait_steps.py (who tells it), arrivals.py (loads to LDS), register_waits.py (the same for registers)
Source   RDNA3, RDNA4, CDNA2 and CDNA3 ISA documents: a barrier waits for waves, not for what they have under way; a
         wave's own LDS instructions are done in order

A store is there for other waves when its wave has waited for it and then come to a barrier. Without a barrier between
the two it is a race, which another word of HCQ_SANITIZE looks for.
"""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

import numpy as np

from hcq.emu.amd.shader.arrays import Array
from hcq.emu.amd.shader.arrivals import Arrivals
from hcq.emu.amd.shader.register_waits import LDS, MEMORY, RULE, RegisterWaits, wait_of
from hcq.events.kernel_faults import KernelFault, Site


class Groups(NamedTuple):
    """The workgroups that are resident together.

    of_wave     the group of each wave
    phase       how often each has come to its barrier, now and later
    stride      bytes from the LDS of one to that of the next
    size_bytes  of the LDS of each
    arrivals    what loads to LDS have yet to fill
    """

    of_wave: Array
    phase: Array
    stride: int
    size_bytes: int
    arrivals: Arrivals


class LdsWaits:
    """Of the waves that are resident together. Stores are remembered by words of LDS, the last one of each."""

    def __init__(self, waits: RegisterWaits, groups: Groups) -> None:
        words = len(groups.phase) * groups.stride // 4
        self.waits, self.groups = waits, groups
        self.writer = np.full(words, -1, np.int32)
        self.number = np.zeros(words, np.int32)  # of the store, in its wave's queue
        self.phase = np.zeros(words, np.int64)  # of the barrier, when it was issued
        self.place = np.zeros(words, np.int64)
        self.settled = np.zeros(
            len(groups.of_wave), np.int32
        )  # what each wave had waited for, at its barrier

    def arrive(self, waves: Array) -> None:
        """These waves come to the barrier."""
        self.settled[waves] = self.waits.done[LDS, waves]

    def accessed(
        self, wave: Array, lane: Array, at: Array, size_bytes: int, place: int, stores: bool
    ) -> None:
        """An instruction at that address accesses LDS. wave, lane: of each access; at: its place in its block."""
        group = self.groups.of_wave[wave]
        places = at.astype(np.int64) + group * self.groups.stride
        inside = at.astype(np.int64) + size_bytes <= self.groups.size_bytes
        if not inside.all():
            wave, lane, at, group, places = (one[inside] for one in (wave, lane, at, group, places))
        if self.groups.arrivals.is_busy:
            self._loads(wave, lane, at, places, size_bytes, place)
        for offset in range(0, size_bytes, 4):
            words = (places + offset) >> 2
            writer = self.writer[words]
            late = (
                (writer >= 0)
                & (writer != wave)
                & (self.phase[words] < self.groups.phase[group])
                & (self.number[words] > self.settled[writer])
            )
            if late.any():
                self._stores(wave[late], lane[late], at[late] + np.uint64(offset), words[late], place)
            if stores:
                self.writer[words] = wave
                self.number[words] = self.waits.issued[LDS, wave]
                self.phase[words] = self.groups.phase[group]
                self.place[words] = place

    def _stores(self, wave: Array, lane: Array, at: Array, words: Array, place: int) -> None:
        text, thread, generation = self.waits.words
        for store in np.unique(self.place[words]).tolist():
            (which,) = np.nonzero(self.place[words] == store)
            one = int(which[0])
            writer = int(self.writer[words[one]])
            sites = (
                Site("writes it", text(store), store, thread(writer, 0)),
                Site("uses it", text(place), place, thread(int(wave[one]), int(lane[one]))),
            )
            wait = wait_of(LDS, 0, generation)
            fault = KernelFault(
                RULE,
                "a use before its store is done of",
                "shared",
                int(at[one]),
                sites,
                f"with no {wait} between the first and the barrier",
            )
            self.waits.checks.add((RULE, store, place), len(which), partial(_known, fault))

    def _loads(self, wave: Array, lane: Array, at: Array, places: Array, size_bytes: int, place: int) -> None:
        text, thread, generation = self.waits.words
        for load, loader, left, which in self.groups.arrivals.reached(places, size_bytes):
            sites = (
                Site("loads it", text(load), load, thread(loader, 0)),
                Site("uses it", text(place), place, thread(int(wave[which]), int(lane[which]))),
            )
            why = f"with no {wait_of(MEMORY, left, generation)} between"
            if wave[which] != loader:
                why += " in the wave that loads, and a barrier behind it"
            fault = KernelFault(
                RULE, "a use before its load is done of", "shared", int(at[which]), sites, why
            )
            self.waits.checks.add((RULE, load, place), 1, partial(_known, fault))


def _known(fault: KernelFault) -> KernelFault:
    return fault
