"""Which registers loads of each wave have yet to fill, and who uses one before its wave has waited.

In       loads as they are issued, waits, the registers that instructions use
Out      missing waits, in the Checks of the launch
Changes  itself
Next     wait_steps.py (who tells it), registers.py (numbers of registers), half_registers.py (halves of them),
         lds_waits.py (the same for LDS), residents.py (the waves)
Source   RDNA3, RDNA4, CDNA2 and CDNA3 ISA documents: s_waitcnt and its counters; LLVM 22, SIInsertWaitcnts.cpp: which
         instruction counts where

Loads are in queues. Those of an ordered queue are done in the order of their issue; so one is done when its counter is
down to as many as this queue has had since. Of a queue without an order something is known when its counter is zero.
The emulator fills registers at once: nothing here depends on time, and a wait that is missing is found in every run.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

import numpy as np

from hcq.emu.amd.shader.arrays import Array
from hcq.emu.amd.shader.half_registers import are_apart
from hcq.emu.amd.shader.registers import VECTOR, Uses, name_of
from hcq.emu.shader.checks import Checks
from hcq.events.kernel_faults import KernelFault, Site

MEMORY, LDS, SCALAR, FLAT = range(4)  # FLAT: of an instruction that went both to memory and to LDS
ORDERED = (MEMORY, LDS)
RULE, HAZARD_RULE = "missing-wait", "hazard"


class Waited(NamedTuple):
    """What a wait waits for: how many may be left of what counts there; None: it does not look at that."""

    memory: int | None = None
    lds: int | None = None
    scalar: int | None = None


class Hazard(NamedTuple):
    """Two instructions, by their addresses, of which the second comes too soon.

    states, needed  wait states between
    wait            the instruction that must stand between, where wait states are not what helps
    """

    first: int
    second: int
    what: str
    states: int = 0
    needed: int = 0
    wait: str = ""


class Words(NamedTuple):
    """How findings of a launch speak.

    text        an instruction by its address
    thread      a lane of a wave
    generation  of the instruction set
    """

    text: Callable[[int], str]
    thread: Callable[[int, int], str]
    generation: int


class RegisterWaits:
    """Of the waves that are resident together. registers: how many vector registers each has."""

    def __init__(self, waves: int, registers: int, words: Words, checks: Checks) -> None:
        shape = VECTOR + registers, waves
        self.words, self.checks = words, checks
        self.number = np.zeros(shape, np.int32)  # of what fills it, in its queue; 0: nothing does
        self.queue = np.zeros(shape, np.uint8)
        self.place = np.zeros(shape, np.int64)  # the address of that instruction
        self.lanes = np.zeros(shape, np.uint64)  # that it fills
        self.issued = np.zeros((4, waves), np.int32)
        self.done = np.zeros((4, waves), np.int32)
        self.flat_done = np.zeros((2, waves), np.int32)  # by the counter of memory, by that of LDS
        self.everybody = np.arange(waves)
        self.ran_last = np.zeros(waves, np.int32)  # the number of a row of instructions: hazards.py

    def issue(self, waves: Array, queue: int, registers: Array, place: int, lanes: Array) -> None:
        """An instruction of these waves begins. registers: that it fills; lanes: of each wave, as bits."""
        self.issued[queue, waves] += 1
        if not len(registers):
            return
        at = registers[:, None], waves
        self.number[at] = self.issued[queue, waves]
        self.queue[at] = queue
        self.place[at] = place
        self.lanes[at] = lanes

    def wait(self, waves: Array, waited: Waited) -> None:
        """These waves have waited."""
        for queue, left in ((MEMORY, waited.memory), (LDS, waited.lds)):
            if left is not None:
                self.done[queue, waves] = np.maximum(
                    self.done[queue, waves], self.issued[queue, waves] - left
                )
                if not left:
                    self.flat_done[queue, waves] = self.issued[FLAT, waves]
        if waited.scalar == 0:
            self.done[SCALAR, waves] = self.issued[SCALAR, waves]
        if 0 in waited:
            self.done[FLAT, waves] = self.flat_done[:, waves].min(axis=0)

    def pending(self, registers: Array, waves: Array) -> Array:
        """(register, wave) booleans: a load has yet to fill it."""
        if len(waves) == len(self.everybody):  # in order of their numbers, as always
            number, queue = self.number[registers], self.queue[registers]
            found: Array = number > self.done[queue, self.everybody]
        else:
            at = registers[:, None], waves
            found = self.number[at] > self.done[self.queue[at], waves]
        return found

    def used(self, waves: Array, on: Array, uses: Uses, place: int, queue: int | None = None) -> None:
        """An instruction at that address uses registers.

        on     the lanes of each wave that are on, as bits
        queue  that it will fill what it writes by
        """
        registers = np.array([one for one in uses.all if one < len(self.number)], np.int64)
        if not len(registers):
            return
        found = self.pending(registers, waves)
        if not found.any():
            return
        at = registers[:, None], waves
        if queue in ORDERED:  # what it writes comes behind what fills that now
            only_written = ~np.isin(registers, uses.reads)
            found &= ~(only_written[:, None] & (self.queue[at] == queue))
        if not uses.across:
            found &= (registers < VECTOR)[:, None] | (self.lanes[at] & on != 0)
        newest = np.where(found, self.number[at], 0).max(axis=1)
        for row in np.argsort(-newest, kind="stable").tolist():  # what waits for it waits for those before
            register = int(registers[row])
            which = found[row] & self.pending(registers[row : row + 1], waves)[0]
            if which.any():
                self._tell(waves[which], on[which], register, register in uses.reads, place)

    def follow_too_soon(self, waves: Array, hazards: Sequence[Hazard]) -> None:
        """These waves run a block whose instructions follow each other too soon."""
        text, thread, _ = self.words
        for one in hazards:
            sites = (
                Site("has it before", text(one.first), one.first, thread(int(waves[0]), 0)),
                Site("uses it", text(one.second), one.second),
            )
            why = f"with {one.states} of the {one.needed} wait states between that it needs"
            if one.wait:
                why = f"with no {one.wait} between"
            fault = KernelFault(HAZARD_RULE, f"{one.what} too soon", "", 0, sites, why)
            self.checks.add((HAZARD_RULE, one.first, one.second), len(waves), partial(_known, fault))

    def _tell(self, waves: Array, on: Array, register: int, is_read: bool, use: int) -> None:
        """These waves use a register too early; what fills it counts as waited for from now on."""
        loads = self.place[register, waves]
        is_done = np.ones(len(waves), np.bool_)
        for load in np.unique(loads).tolist():
            some = np.flatnonzero(loads == load)
            text = self.words.text
            if self.words.generation >= 11 and are_apart(text(load), text(use), name_of(register)):
                is_done[some] = False
                continue
            wave, lanes = int(waves[some[0]]), int(on[some[0]])
            make = partial(self._fault, wave, lanes, register, is_read, use)
            self.checks.add((RULE, load, use), len(some), make)
        waves = waves[is_done]
        queues, numbers = self.queue[register, waves], self.number[register, waves]
        upto = np.where(np.isin(queues, ORDERED), numbers, self.issued[queues, waves])
        self.done[queues, waves] = np.maximum(self.done[queues, waves], upto)

    def _fault(self, wave: int, on: int, register: int, is_read: bool, use: int) -> KernelFault:
        load, queue = int(self.place[register, wave]), int(self.queue[register, wave])
        lanes = int(self.lanes[register, wave])
        shared = lanes & on or lanes
        text, thread, generation = self.words
        left = int(self.issued[queue, wave] - self.number[register, wave]) if queue in ORDERED else 0
        sites = (
            Site("loads it", text(load), load, thread(wave, (shared & -shared).bit_length() - 1)),
            Site("reads it" if is_read else "overwrites it", text(use), use),
        )
        what = f"{name_of(register)} is used before its load is done"
        return KernelFault(
            RULE, what, "", register, sites, f"with no {wait_of(queue, left, generation)} between"
        )


def _known(fault: KernelFault) -> KernelFault:
    return fault


def wait_of(queue: int, left: int, generation: int) -> str:
    """The wait that would do, as it is written."""
    if generation == 12:
        names = {MEMORY: "loadcnt", LDS: "dscnt", SCALAR: "kmcnt", FLAT: "loadcnt_dscnt"}
        return f"s_wait_{names[queue]} {left:#x}"
    if queue == FLAT:
        return "s_waitcnt vmcnt(0) lgkmcnt(0)"
    return f"s_waitcnt {'vmcnt' if queue == MEMORY else 'lgkmcnt'}({left})"
