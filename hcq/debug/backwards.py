"""Backwards: places before the one where a program stands, at which a test or a point would have stopped it.

In       a session that has stopped
Out      Gotos, or None where nothing is recorded that would
Changes  nothing; launches are run again
Next     session.py (who goes there), commands.py (who asks), timeline.py (how a place is found)
"""

from __future__ import annotations

from collections.abc import Callable

from hcq.debug.moment import Moment, Test, Work
from hcq.debug.session import Goto, Session
from hcq.debug.timeline import Place


def back(
    session: Session, test: Test, keys: Callable[[Work], frozenset[int] | None], within: int | None = None
) -> Goto | None:
    """To the last place before this one where a test says why to stop; None: there is none."""
    here = session.stop.place if session.stop.record is not None else Place(session.history.count + 1, 0)
    found = session.history.last(here, test, keys, within)
    return None if found is None else Goto(found[0], found[1])


def reverse_continue(session: Session) -> Goto | None:
    """To the last place before this one at which a point would have stopped."""
    kernels = session.points.of(("kernel",))
    points = session.points.instructions()

    def test(moment: Moment) -> str | None:
        return next(
            (
                reason
                for point in points
                if ((keys := point.keys(moment.work, session.names.line)) is None or moment.site.key in keys)
                and (reason := point.test(moment)) is not None
            ),
            None,
        )

    def keys(work: Work) -> frozenset[int] | None:
        found: set[int] = set()
        for point in points:
            one = point.keys(work, session.names.line)
            if one is None:
                return None
            found |= one
        return frozenset(found)

    best = back(session, test, keys) if points else None
    here = session.stop.place if session.stop.record is not None else Place(session.history.count + 1, 0)
    for record in reversed(session.history.records):
        place = Place(record.number, 1)
        if place >= here or (best is not None and place <= best.place):
            continue
        for point in kernels:
            if session.names.matches(record.work, point.what):
                return Goto(place, f"point {point.number}: kernel {record.work.name} begins")
    return best


def beginning(session: Session) -> Goto | None:
    """To the first instruction that is recorded; None when nothing is."""
    if not session.history.records:
        return None
    return Goto(Place(session.history.records[0].number, 1), "the beginning of what is recorded")
