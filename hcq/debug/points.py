"""Points: what a program stops at: kernels, instructions, lines, accesses to memory, packets, findings.

In       what a person says; a moment before an instruction
Out      Point: whether to stop there, and why; `Points`, all of them
Changes  itself: counts of hits
Next     session.py (who asks), expression.py (conditions), commands.py (who makes them)
"""

from __future__ import annotations

import fnmatch
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np

from hcq.debug.expression import Expression
from hcq.debug.moment import Moment, Site, Work
from hcq.errors import UsageError

STORES = ("store", "atomic")
TOP = 1 << 64  # of addresses


@dataclass
class Point:
    """One of them.

    kind    kernel, line, pc, text, watch, packet, submission, barrier, finding, everywhere
    what    what a person said
    """

    number: int
    kind: str
    what: str
    kernel: str = ""  # a pattern of names, for those of instructions
    line: int = 0
    file: str = ""
    address: int = 0
    size_bytes: int = 0
    space: str = "global"
    block: int | None = None  # of shared memory that is watched
    reads: bool = False
    condition: Expression | None = None
    fields: tuple[Any, ...] = ()  # FieldTests, of a packet
    is_on: bool = True
    once: bool = False
    owner: str = ""  # who made it, where that is not a person at the prompt
    hits: int = 0
    _keys: WeakKeyDictionary[Work, tuple[int, frozenset[int]]] = field(default_factory=WeakKeyDictionary)

    def __str__(self) -> str:
        condition = f" if {self.condition}" if self.condition is not None else ""
        state = "" if self.is_on else ", off"
        kernel = f" in {self.kernel}" if self.kernel else ""
        what = "" if self.kind == "everywhere" else f" {self.kind} {self.what}".rstrip()
        return f"{self.number}:{what}{condition}{kernel} ({self.hits} hits{state})"

    def keys(self, work: Work, line_of: Callable[[Work, Site], str]) -> frozenset[int] | None:
        """The instructions of a launch at which it may stop; None: any of them."""
        if self.kind == "kernel" or not self.is_on:
            return frozenset()
        if self.kernel and not fnmatch.fnmatchcase(work.name, self.kernel):
            return frozenset()
        if self.kind == "everywhere":
            return None
        if self.kind == "pc":
            is_offset = not work.is_text and self.address < work.entry
            return frozenset([self.address + work.entry if is_offset else self.address])
        size, known = self._keys.get(work, (0, frozenset()))
        if size != work.size:  # code is found as it is reached
            chosen = [site.key for site in work.sites() if self._is_one(work, site, line_of)]
            if self.kind == "line":  # of each run of instructions of a line its first alone
                chosen = _firsts(work, chosen)
            known = frozenset(chosen)
            self._keys[work] = work.size, known
        return known

    def _is_one(self, work: Work, site: Site, line_of: Callable[[Work, Site], str]) -> bool:
        if self.kind == "line":
            if not self.file:
                return site.line.endswith(f" line {self.line}")
            where = line_of(work, site)
            name, _, number = where.rpartition(":")
            return number == str(self.line) and (name == self.file or name.endswith("/" + self.file))
        if self.kind == "text":
            return fnmatch.fnmatch(site.text, f"*{self.what.replace('[', '[[]')}*")  # a bracket is a bracket
        if self.kind == "barrier":
            return site.kind == "barrier"
        if self.kind == "watch":
            return site.kind in STORES or (self.reads and site.kind == "load")
        return False

    def test(self, moment: Moment) -> str | None:
        """Why to stop here; None: not for this."""
        if not self.is_on or (self.kernel and not fnmatch.fnmatchcase(moment.work.name, self.kernel)):
            return None
        try:
            if self.kind == "watch":
                return self._touched(moment)
            if self.condition is not None:
                return self._holds(moment)
        except (UsageError, ArithmeticError, ValueError, TypeError) as error:
            # the program is not to end for a condition that makes no sense here
            self.is_on = False
            return f"point {self.number} is off now, for its condition cannot be computed here: {error}"
        return f"point {self.number}: {self.kind} {self.what}".rstrip()

    def _holds(self, moment: Moment) -> str | None:
        assert self.condition is not None
        found = self.condition.first(moment)
        if found is None:
            return None
        return f"point {self.number}: {self.condition} holds in wave {found[0]}, lane {found[1]}"

    def _touched(self, moment: Moment) -> str | None:
        for one in moment.accesses():
            if one.space != self.space or (one.kind == "load" and not self.reads):
                continue
            hit = covers(one.address, one.size, self.address, self.size_bytes)
            if self.block is not None:
                hit &= one.wave // moment.work.waves_per_block == self.block
            if hit.any():
                at = int(np.argmax(hit))
                wave, lane, where = int(one.wave[at]), int(one.lane[at]), int(one.address[at])
                if self.condition is not None and self.condition.value(moment, wave, lane) in (False, 0):
                    continue
                return f"point {self.number}: {one.kind} of {one.size} bytes at {where:#x} by wave {wave}, lane {lane}"
        return None


def covers(addresses: Any, size: int, start: int, size_bytes: int) -> Any:
    """Which accesses of a size touch a range."""
    last = np.uint64(min(start + size_bytes, TOP) - 1)
    return (addresses <= last) & (addresses + np.uint64(size - 1) >= np.uint64(start))


def _firsts(work: Work, keys: list[int]) -> list[int]:
    chosen, found, was_in = set(keys), [], False
    for site in work.sites():
        if site.key in chosen and not was_in:
            found.append(site.key)
        was_in = site.key in chosen
    return found


class Points:
    """All of them, in the order in which they were made."""

    def __init__(self) -> None:
        self.all: list[Point] = []
        self.made = 0

    def add(self, kind: str, what: str, **more: Any) -> Point:
        """One more."""
        self.made += 1
        point = Point(self.made, kind, what, **more)
        self.all.append(point)
        return point

    def of(self, kinds: tuple[str, ...]) -> list[Point]:
        """Those of these kinds that are on."""
        return [one for one in self.all if one.kind in kinds and one.is_on]

    def instructions(self) -> list[Point]:
        """Those that stop before instructions."""
        return self.of(("line", "pc", "text", "watch", "barrier", "everywhere"))
