"""Plans: how far the program goes before it stops by itself: to the next instruction, line, barrier, or a block's end.

In       the wave that is looked at, the moment it is at
Out      Plan: a test of moments, forwards and backwards alike
Next     session.py (who follows one), commands.py (who makes them)
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from hcq.debug.moment import Moment, Site, Work


@dataclass
class Plan:
    """What to stop at besides points. test: None: at points alone. launch: only in this one, whose end stops, too."""

    text: str
    test: Callable[[Moment], str | None] | None = None
    launch: int = 0

    def keys(self, work: Work) -> frozenset[int] | None:
        """The instructions that it is asked at; None: all."""
        return frozenset() if self.test is None else None


CONTINUE = Plan("continue")


def step(wave: int, launch: int, count: int = 1) -> Plan:
    """To the next instruction of a wave; or the count-th."""
    left = count

    def test(moment: Moment) -> str | None:
        nonlocal left
        if wave not in moment.waves:
            return None
        left -= 1
        return "" if left <= 0 else None

    return Plan("step", test, launch)


def line(wave: int, launch: int, now: str, line_of: Callable[[Work, Site], str]) -> Plan:
    """To the next instruction of a wave that is of another line than now."""

    def test(moment: Moment) -> str | None:
        if wave not in moment.waves:
            return None
        here = line_of(moment.work, moment.site)
        return "" if here and here != now else None

    return Plan("line", test, launch)


def next_wave(wave: int, launch: int) -> Plan:
    """To the next instruction that another wave executes."""

    def test(moment: Moment) -> str | None:
        return "" if wave not in moment.waves else None

    return Plan("wave", test, launch)


def barrier(wave: int, launch: int) -> Plan:
    """To the next barrier of a wave's block."""

    def test(moment: Moment) -> str | None:
        if moment.site.kind != "barrier":
            return None
        block = wave // moment.work.waves_per_block
        return "a barrier" if (moment.waves // moment.work.waves_per_block == block).any() else None

    return Plan("barrier", test, launch)


def finish(wave: int, launch: int) -> Plan:
    """To the end of the last wave of a wave's block."""

    def test(moment: Moment) -> str | None:
        if moment.site.kind != "end":
            return None
        per_block = moment.work.waves_per_block
        block = wave // per_block
        ending = moment.waves[moment.waves // per_block == block]
        if not len(ending):
            return None
        alive = np.concatenate([one.waves for one in moment.standing()])
        rest = np.setdiff1d(alive[alive // per_block == block], ending)
        return f"block {block} is about to end" if not len(rest) else None

    return Plan("finish", test, launch)
