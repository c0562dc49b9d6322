"""All that a view shows of a stop, as one object: what the page of a trace asks for in place of a dozen requests.

In       a session that is stopped; which registers, as what type
Out      `look`: a place, code, registers, lanes, waves, points, launches, as plain data
Next     dap.py (the request hcqLook), show.py (the same as text), tools/trace/debug_view.py (who asks)
"""

from __future__ import annotations

from typing import Any

import numpy as np

from hcq.debug import show
from hcq.debug.expression import TYPES, of_lane, typed
from hcq.debug.moment import Moment
from hcq.debug.session import Session
from hcq.errors import UsageError

BEFORE, BEHIND = 60, 120  # instructions around the one where it stopped
MOST_REGISTERS, MOST_ROWS, MOST_LAUNCHES, MOST_BUFFERS = 64, 256, 200, 500


def look(session: Session, names: list[str], kind: str) -> dict[str, Any]:
    """The stop. names: of registers to show besides those of the instruction; kind: a type of TYPES, or ""."""
    if kind and kind not in TYPES:
        raise UsageError(f"{kind!r} is no type. Types: {', '.join(TYPES)}.")
    stop, moment = session.stop, session.stop.moment
    found: dict[str, Any] = {
        "reason": stop.reason,
        "launch": stop.record.number if stop.record is not None else None,
        "step": stop.tick,
        "past": stop.is_past,
        "title": stop.record.title if stop.record is not None else "",
        "packet": session.packets.of_launch(stop.record.number) if stop.record is not None else "",
        "points": [
            {
                "number": one.number,
                "text": str(one).partition(": ")[2],
                "on": one.is_on,
                "key": str(one.address),
            }
            for one in session.points.all
        ],
        "launches": [
            {
                "number": one.number,
                "title": one.title,
                "steps": one.ticks,
                "fault": one.fault,
                "over": one.is_over,
            }
            for one in session.history.records[-MOST_LAUNCHES:]
        ],
        "buffers": [
            {"address": hex(start), "bytes": size, "name": name}
            for start, size, name in session.names.buffers()[:MOST_BUFFERS]
        ],
    }
    if moment is not None:
        found |= _of_moment(session, moment, names, kind)
    return found


def _of_moment(session: Session, moment: Moment, names: list[str], kind: str) -> dict[str, Any]:
    work, wave, lane = moment.work, session.wave, session.lane
    used = dict.fromkeys(map(moment.spelled, [*moment.site.reads, *moment.site.writes]))
    wanted = [one for one in dict.fromkeys([*used, *names]) if _has(moment, one, wave, kind)][:MOST_REGISTERS]
    line = session.line(work, moment.site)
    vectors = [name for name in wanted if len(moment.read(name, wave)) > 1][:6]
    return {
        "unit": work.unit, "wave": wave, "lane": lane, "lanes": work.lanes, "arch": work.arch,
        "thread": work.thread(wave, lane), "why": moment.why(wave), "line": line,
        "source": show.source(session, work, line), "text": moment.site.text,
        "place": show.place(session, work, moment.site), "code": _code(session, moment),
        "names": moment.names()[:2048], "columns": vectors,
        "registers": [_register(moment, name, kind, wave, lane, name in used) for name in wanted],
        "rows": [
            {"lanes": show.spans(lanes), "first": lanes[0], "chosen": lane in lanes, "on": on, "at": at, "cells": cells}
            for lanes, on, at, cells in show.lane_rows(moment, wave, vectors, kind)
        ],
        "waves": [
            {"waves": show.spans(waves), "first": waves[0], "chosen": wave in waves, "mask": mask, "at": at,
             "waits": waits}
            for waves, mask, at, waits in list(show.wave_rows(moment))[:MOST_ROWS]
        ],
    }  # fmt: skip


def _has(moment: Moment, name: str, wave: int, kind: str) -> bool:
    try:
        typed(moment, name, kind, wave) if kind else moment.read(name, wave)
    except UsageError:
        return False
    return True


def _register(moment: Moment, name: str, kind: str, wave: int, lane: int, is_used: bool) -> dict[str, Any]:
    values = typed(moment, name, kind, wave) if kind else moment.read(name, wave)
    on = moment.on(wave)
    is_same = len(values) == 1 or (bool(on.any()) and len(set(values[on].tolist())) == 1)
    value = of_lane(values, lane).item()
    return {
        "name": name, "value": show.number(value), "used": is_used, "shared": len(values) == 1, "same": is_same,
        "as_float": "" if kind or not isinstance(value, int) else show.bits(value).partition(" ")[2].strip("()"),
    }  # fmt: skip


def _code(session: Session, moment: Moment) -> list[dict[str, Any]]:
    work, sites = moment.work, moment.work.sites()
    at = next((n for n, site in enumerate(sites) if site.key == moment.site.key), 0)
    found, last = [], ""
    standing = {one.site.key: int(np.size(one.waves)) for one in moment.standing() if one.site is not None}
    for number in range(max(0, at - BEFORE), min(len(sites), at + BEHIND)):
        site = sites[number]
        line = session.line(work, site)
        is_new = bool(line) and line not in (last, site.line)
        last = line
        found.append(
            {
                "key": str(site.key), "text": site.text, "here": number == at, "waves": standing.get(site.key, 0),
                "name": site.line.rpartition(" ")[2] if site.line else f"{site.key - work.entry:+#x}",
                "line": line if is_new else "", "source": show.source(session, work, line).strip() if is_new else "",
            }
        )  # fmt: skip
    return found
