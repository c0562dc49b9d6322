"""Arrivals: what loads bring to LDS by themselves, and when it is there.

In       vector memory instructions of waves, their waits
Out      nothing
Changes  LDS, when a load is done
Next     loads_to_lds.py (the instructions), residents.py (whose LDS it is),
         hcq/emu/nv/shader/thread_copies.py (the sister)
Source   CDNA3 ISA, 4.4: vmcnt counts vector memory instructions of a wave, which are done in the order of their issue

A load is done only when it must be: LDS has its bytes when its wave waits until so few instructions are under way that
the load is none of them. A kernel that forgets to wait, or waits for too few, sees old bytes.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from hcq.emu.amd.shader.arrays import Array
from hcq.emu.amd.shader.memory import Bytes


class _Load(NamedTuple):
    """What one instruction loads: by lane its wave, the number of the instruction in it, a place in LDS, a word."""

    wave: Array
    number: Array
    at: Array
    words: Array
    pc: int

    def only(self, which: Array) -> _Load:
        """That of some of the lanes."""
        return _Load(self.wave[which], self.number[which], self.at[which], self.words[which], self.pc)


class Arrivals:
    """Loads under way into the LDS of resident waves, in the order in which they were issued."""

    def __init__(self, lds: Bytes, waves: int) -> None:
        self._lds = lds
        self._issued = np.zeros(waves, np.int64)  # vector memory instructions of each wave
        self._loads: list[_Load] = []

    def begin(self, wave: Array, at: Array, words: Array, pc: int) -> None:
        """Lanes of these waves load words to places in LDS, by the instruction at `pc`, which is counted next."""
        self._loads.append(_Load(wave, self._issued[wave] + 1, at, words, pc))

    @property
    def is_busy(self) -> bool:
        """Whether anything is under way."""
        return bool(self._loads)

    def reached(self, at: Array, size_bytes: int) -> Iterator[tuple[int, int, int, int]]:
        """Of places in LDS that are accessed now, those that a load under way has yet to fill, one for each load.

        (its address, its wave, how many that wave has issued since; which of the places)
        """
        for one in self._loads:
            order = np.argsort(one.at)
            index = np.searchsorted(one.at[order], at - 3).clip(
                max=len(order) - 1
            )  # the first word that may overlap
            hit = order[index]
            which = np.flatnonzero((one.at[hit] < at + size_bytes) & (one.at[hit] + 4 > at))
            if len(which):
                lane = int(hit[which[0]])
                wave = int(one.wave[lane])
                yield one.pc, wave, int(self._issued[wave] - one.number[lane]), int(which[0])

    def count(self, waves: Array) -> None:
        """These waves have issued one more instruction."""
        self._issued[waves] += 1

    def wait(self, waves: Array, left: int) -> None:
        """These waves wait until at most so many of their latest instructions are under way."""
        if not self._loads:
            return
        done = np.zeros(len(self._issued), np.int64)
        done[waves] = self._issued[waves] - left
        rest = []
        for one in self._loads:
            is_done = one.number <= done[one.wave]
            if is_done.any():
                arrived = one.only(is_done)
                self._lds.scatter(arrived.at, arrived.words[None])
            if not is_done.all():
                rest.append(one.only(~is_done) if is_done.any() else one)
        self._loads = rest
