"""Findings: what HCQ_SANITIZE finds while launches run under the debugger, and where in time that was.

In       faults, as the steps of a launch find them, or when it has ended
Out      Findings: of each set of sites, once, a Finding: a sentence, a place, and whose it is
Changes  itself
Next     session.py (who stops there), hcq/emu/shader/checks.py (what tells of faults), timeline.py (places),
         hcq/observe/kernel_findings.py (the words)

A fault is found by an instruction that is under way. The program stops before the next one, and is looked at, in the
past, where the fault was found: so it can be stepped back from. What is found when a launch has ended is looked for in
it: the last time that the instruction ran in that wave.
"""

from __future__ import annotations

from typing import NamedTuple

from hcq import config
from hcq.debug.moment import Moment, Work
from hcq.debug.names import Names
from hcq.debug.timeline import History, Place, Record
from hcq.events.kernel_faults import KernelFault
from hcq.observe.ignored import Ignored
from hcq.observe.kernel_findings import KernelFindings


class Finding(NamedTuple):
    """One. place: the instruction that is about to do it; lanes: (wave, lane) of its sites, the first that is there."""

    text: str
    place: Place
    lanes: tuple[tuple[int, int], ...]


class Findings:
    """Those of a process. `repeats`: what to say so that the same orders are drawn again; "" without a seed."""

    def __init__(self, names: Names, history: History) -> None:
        self.names, self.history = names, history
        settings = config.current()
        self.repeats = ",".join(settings.emulate) if any(":seed=" in one for one in settings.emulate) else ""
        self._known = KernelFindings("", self._buffer_at, Ignored.read(settings.sanitize_ignore))
        self._loaded: dict[int, str] = {}
        self.pending: list[Finding] = []  # of launches that run, not yet stopped at

    def begin(self, work: Work) -> None:
        """A launch begins."""
        if self._loaded.get(work.entry) != work.name:
            self._loaded[work.entry] = work.name
            self._known.load(work.entry, work.name, lambda place: self.names.line_at(work.entry, place))

    def found(self, record: Record, tick: int, fault: KernelFault) -> Finding | None:
        """A step of a launch has found something; None where that was said, or is left out."""
        known = self._known.take(record.work.entry, fault)
        if known is None:
            return None
        lanes = tuple(
            lane for one in fault.sites[::-1] if (lane := record.work.lane_named(one.who)) is not None
        )
        repeats = f" {self.repeats} repeats it." if self.repeats else ""
        return Finding(f"finding: {known.finding}{repeats}", Place(record.number, tick), lanes)

    def at_end(self, entry: int, fault: KernelFault) -> Finding | None:
        """What is told when a launch has ended, unless it was while it ran."""
        record = next((one for one in reversed(self.history.records) if one.work.entry == entry), None)
        found = None if record is None else self.found(record, record.ticks + 1, fault)
        if record is None or found is None:
            return None
        site, lanes = fault.sites[-1], dict(found.lanes)

        def test(moment: Moment) -> str | None:
            return "" if not lanes or any(wave in moment.waves for wave in lanes) else None

        behind = Place(record.number, record.ticks + 1)
        last = self.history.last(behind, test, lambda work: frozenset([site.place]), record.number)
        return found if last is None else found._replace(place=last[0])

    def _buffer_at(self, address: int) -> tuple[str, str] | None:
        words = self.names.buffer(address)
        return (words.split(" (")[0], words) if words else None
