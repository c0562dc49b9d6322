"""Waits that never end, found at the end of a trace or at a deadline.

In       the state after the last submission, and its log of signals and waits in order
Out      findings of wait-never-signalled and wait-cycle
Next     signals.py (the waits that are wrong at once), examine.py (asks at the end of a trace and at a deadline)

The log is played: every agent runs until a wait that is not satisfied yet. Those that are blocked in the end wait for
ever; an agent that only waits for one of them is a consequence, and is not reported.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from hcq.rules.rule import Finding, Rule
from hcq.rules.signals import WAIT_CYCLE, WAIT_NEVER_SIGNALLED
from hcq.rules.state import Agent, State
from hcq.rules.submission_check import Where

Event = tuple[Agent, int, int, bool, Any]


def unsatisfied_waits(state: State) -> list[Finding]:
    """Waits that were submitted and that nobody else has promised to end. More may still be submitted."""
    found = {}
    for agent in list(state.waiting):
        for still in agent.open:
            cell = state.cells.get(still.cell)
            level = 0 if cell is None else cell.level
            name = state.name(still.cell)
            what = f"nobody has submitted or set signal {name} to {still.value}; its last value is {level}"
            found[still.cell, still.value] = _finding(WAIT_NEVER_SIGNALLED, what, still.where)
    for still in state.circles:
        what = (
            f"signal {state.name(still.cell)} is only set to {still.value} by work that comes after this wait"
        )
        found[still.cell, still.value] = _finding(WAIT_CYCLE, what, still.where)
    return list(found.values())


def stuck(state: State) -> Iterator[Finding]:
    """The waits that are blocked at the end of a whole log."""
    queues: dict[Agent, list[Event]] = {}
    values: dict[int, int] = {}
    for event in state.log or ():
        agent, cell, value, _, _ = event
        if agent is state.host:
            values[cell] = max(values.get(cell, 0), value)
        else:
            queues.setdefault(agent, []).append(event)
    at = _play(queues, values)
    blocked = {agent: events[at[agent]] for agent, events in queues.items() if at[agent] < len(events)}
    helpers = {agent: _helpers(event, queues, at) for agent, event in blocked.items()}
    for agent, (_, cell, value, _, where) in blocked.items():
        if not helpers[agent]:
            level = values.get(cell, 0)
            what = f"nobody ever sets signal {state.name(cell)} to {value}; it gets no further than {level}"
            yield _finding(WAIT_NEVER_SIGNALLED, what, where)
        elif circle := _circle(agent, helpers):
            names = " -> ".join(each.name for each in circle)
            what = f"it waits for signal {state.name(cell)} to be {value}, and whoever sets it waits in turn: {names}"
            yield _finding(WAIT_CYCLE, what, where)


def _play(queues: dict[Agent, list[Event]], values: dict[int, int]) -> dict[Agent, int]:
    at = dict.fromkeys(queues, 0)
    moves = True
    while moves:
        moves = False
        for agent, events in queues.items():
            while at[agent] < len(events):
                _, cell, value, is_wait, _ = events[at[agent]]
                if is_wait and values.get(cell, 0) < value:
                    break
                if not is_wait:
                    values[cell] = value
                at[agent] += 1
                moves = True
    return at


def _helpers(event: Event, queues: dict[Agent, list[Event]], at: dict[Agent, int]) -> list[Agent]:
    """Who would end this wait, if they ever got there."""
    _, cell, value, _, _ = event
    return [
        agent
        for agent, events in queues.items()
        if any(not is_wait and c == cell and v >= value for _, c, v, is_wait, _ in events[at[agent] :])
    ]


def _circle(start: Agent, helpers: dict[Agent, list[Agent]]) -> list[Agent]:
    """A way from an agent back to itself by way of those it waits for, or []."""
    ways = [[start]]
    seen = set()
    while ways:
        way = ways.pop()
        for agent in helpers.get(way[-1], ()):
            if agent is start:
                return [*way, start]
            if agent not in seen:
                seen.add(agent)
                ways.append([*way, agent])
    return []


def _finding(broken: Rule, what: str, where: Where) -> Finding:
    return Finding(
        broken.id,
        broken.level,
        what,
        broken.fix,
        where.device,
        where.queue,
        where.submission,
        where.word,
        where.packet,
        site=where.site,
    )
