"""Deferred accesses: accesses behind a wait whose signal is not submitted yet; checked once it is.

In       accesses with what was known of their order when they were submitted: a clock, and the waits still open
Out      unordered-access, for the submission that ends the last of these waits, before its doorbell
Changes  the touches of the buffers: what was judged is remembered as any access
Next     order.py (the rule, for accesses whose order is known at once), state.py (clocks, promises)

Devices that wait for each other in turn, as in a recording of several, are submitted to one after the other, so the
first of them waits for what only the others will signal. What an access comes after is what its queue knew then, and
what those who end its waits know, and so on.
"""

from __future__ import annotations

from collections.abc import Iterator

from hcq.rules.memory import Allocation, PastAccess
from hcq.rules.rule import Finding, Rule
from hcq.rules.state import Agent, Clock, Deferred, OpenWait, State
from hcq.rules.submission_check import SubmissionCheck


class Orders:
    """What accesses come after, as far as promises say, those of a submission that is looked at included."""

    def __init__(self, state: State, submission: SubmissionCheck) -> None:
        self.state, self.submission = state, submission
        self._followed: dict[tuple[OpenWait, ...], Clock | None] = {}

    def behind(self, waits: tuple[OpenWait, ...]) -> Clock | None:
        """What surely came before, once all of these waits have ended; None while one of them is open."""
        if waits not in self._followed:
            self._followed[waits] = self._follow(waits)
        return self._followed[waits]

    def _follow(self, waits: tuple[OpenWait, ...]) -> Clock | None:
        pending, seen = list(waits), set(waits)
        found: Clock = {}
        while pending:
            one = pending.pop()
            promise = self._promise(one)
            if promise is None:
                return None
            clock, still = promise
            for agent, at in clock.items():
                found[agent] = max(found.get(agent, 0), at)
            pending += [more for more in still if more not in seen]
            seen.update(still)
        return found

    def _promise(self, one: OpenWait) -> tuple[Clock, tuple[OpenWait, ...]] | None:
        cell = self.state.cells.get(one.cell)
        known = None if cell is None else cell.reaches(one.value)
        if known is not None:
            return known.clock, known.open
        for va, value, clock, still, _ in self.submission.signals:
            if va == one.cell and value >= one.value:
                return clock, still
        return None


def judge(submission: SubmissionCheck, rule: Rule) -> Iterator[Finding]:
    """Compare the accesses whose order is known now with all others to the same bytes, and remember them."""
    state = submission.state
    if not state.deferred and not submission.deferred:
        return
    own: dict[tuple[OpenWait, ...], list[Deferred]] = {}
    for one in submission.deferred:
        own.setdefault(one.open, []).append(one)
    orders = Orders(state, submission)
    settled: dict[Allocation, list[tuple[Deferred, Clock]]] = {}
    for waits in {**state.deferred, **own}:
        behind = None if waits in submission.settled else orders.behind(waits)
        if behind is None:
            continue
        submission.settled.add(waits)
        for one in (*state.deferred.get(waits, ()), *own.get(waits, ())):
            known = state.memory.live.get(one.block.va)
            if known is not None and known is one.block:
                settled.setdefault(known, []).append((one, behind))
    for block, found in settled.items():
        for number, (one, behind) in enumerate(found):
            for touch in block.touches:
                if _collide(one.access, touch) and not _knows(one, behind, touch):
                    yield _finding(rule, block, one, touch)
            for other, behind_other in found[:number]:
                if (
                    _collide(one.access, other.access)
                    and not _knows(one, behind, other.access)
                    and not _knows(other, behind_other, one.access)
                ):
                    yield _finding(rule, block, one, other.access)
        submission.remember(block, [one.access for one, _ in found])


def _collide(one: PastAccess, other: PastAccess) -> bool:
    is_apart = one.high <= other.low or other.high <= one.low or one.agent is other.agent
    return not is_apart and (one.is_write or other.is_write)


def _knows(one: Deferred, behind: Clock, other: PastAccess) -> bool:
    agent: Agent = other.agent  # type: ignore[assignment]
    return max(one.clock.get(agent, 0), behind.get(agent, 0)) >= other.at


def _finding(rule: Rule, block: Allocation, one: Deferred, other: PastAccess) -> Finding:
    done = "written" if one.access.is_write else "read"
    was = "written" if other.is_write else "read"
    text = f"{block} is {done} as {one.access.label}, and nothing says that this comes after or before it was {was} as"
    where = one.where
    return Finding(
        rule.id,
        rule.level,
        f"{text} {other.label}",
        rule.fix,
        where.device,
        where.queue,
        where.submission,
        where.word,
        where.packet,
        "",
        block.name,
        where.site,
    )
