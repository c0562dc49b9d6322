"""What launches have really touched, against the order of submissions: between queues, devices, copies and the host.

In       launches, copies and fills as they are submitted; then which bytes each launch has read and written; what the
         host reads and writes by calls
Out      a Violation for two that use one byte, one of them to write it, and that nothing orders
Changes  itself
Next     order.py (the same for what submissions declare), state.py (the order), hcq/events/kernel_touches.py (who
         tells), docs/rules/unordered-launches.md

A launch is judged when it has ended. By then all that it waited for was submitted, so its place in the order is known.
Which launch it was is found by its kernel's entry and the buffers it was given, the one submitted first before others.
"""

from __future__ import annotations

import bisect
from collections import deque
from collections.abc import Iterator
from typing import NamedTuple

from hcq.events.kernel_touches import Touches
from hcq.rules.effects import Access, Copy, Fill, Launch
from hcq.rules.kernels import UNORDERED_LAUNCHES
from hcq.rules.memory import Allocation, Memory
from hcq.rules.rule import Finding, Violation, check
from hcq.rules.state import Agent, Clock, OpenWait, State
from hcq.rules.submission_check import SubmissionCheck

MOST_PENDING = 4096  # launches that have not been told of; those of real GPUs never are
MOST_PAST = 256  # launches and copies that later ones are compared with


class Work(NamedTuple):
    """A launch, a copy or a fill that was submitted.

    clock, open, barrier_at   what its agent knew, waited for, and its last barrier
    buffers   addresses that a launch was given; None where nobody knows
    touches   what it touches: of a launch once it has ended
    number    of works, in the order of submission
    """

    agent: Agent
    at: int
    clock: Clock
    open: tuple[OpenWait, ...]
    barrier_at: int
    finishes_packets: bool
    what: str
    finding: Finding
    entry: int
    buffers: tuple[int, ...] | None
    touches: Touches | None
    number: int


class Touched:
    """Of all devices of a process. devices: how many are open that look for races."""

    def __init__(self, state: State) -> None:
        self.state = state
        self.count = self.devices = 0
        self._pending: dict[int, list[Work]] = {}
        self._past: deque[Work] = deque(maxlen=MOST_PAST)
        self._allocated: dict[int, int] = {}  # where a buffer begins -> how many works there were by then

    def submitted(self, works: list[Work]) -> Iterator[Finding]:
        """They are about to reach the device."""
        for one in works:
            if one.touches is None:
                waiting = self._pending.setdefault(one.entry, [])
                if len(waiting) < MOST_PENDING:
                    waiting.append(one)
                continue
            if not one.open:
                yield from self._compare(one, one.touches)
            self._past.append(one)

    def host(self, va: int, size_bytes: int, is_write: bool, finding: Finding) -> Iterator[Finding]:
        """The program has read or written these bytes. What was submitted and not waited for does not come before."""
        host = self.state.host
        host.at += 1
        self.count += 1
        touches = _of_packet([(va, size_bytes, is_write)])
        work = Work(
            host, host.at, host.snapshot(), (), 0, True, "the host", finding, 0, None, touches, self.count
        )
        yield from self._compare(work, touches)
        self._forget_waited_for(work.clock)
        if self._pending:
            self._past.append(work)

    def _forget_waited_for(self, clock: Clock) -> None:
        """A launch that the host has waited for, and that nobody has told of, is one that nobody will tell of."""
        for entry, waiting in list(self._pending.items()):
            waiting[:] = [one for one in waiting if clock.get(one.agent, 0) < one.at]
            if not waiting:
                del self._pending[entry]

    def dropped(self, works: list[Work]) -> None:
        """They did not reach it."""
        gone = {one.number for one in works}
        for waiting in self._pending.values():
            waiting[:] = [one for one in waiting if one.number not in gone]

    def alloc(self, va: int) -> None:
        """A new buffer: whoever used its memory before used another one."""
        if len(self._allocated) > MOST_PENDING:
            self._allocated.clear()
            self._past.clear()
        self._allocated[va] = self.count

    def ended(self, entry: int, touches: Touches) -> list[Finding]:
        """A launch has."""
        waiting = self._pending.get(entry, [])
        which = next((n for n, one in enumerate(waiting) if _fits(one, touches, self.state.memory)), None)
        if which is None:
            return []
        work = waiting.pop(which)._replace(touches=touches)
        found = list(self._compare(work, touches))
        self._past.append(work)
        return found

    def _compare(self, work: Work, touches: Touches) -> Iterator[Finding]:
        if not len(touches.low):
            return
        low, high = touches.low[0], touches.high[-1]
        for before in self._past:
            its = before.touches
            if its is None or not len(its.low) or its.low[0] >= high or its.high[-1] <= low:
                continue
            if self._ordered(before, work) or self._ordered(work, before):
                continue
            yield from self._collision(before, its, work, touches)

    def _collision(self, before: Work, its: Touches, work: Work, mine: Touches) -> Iterator[Finding]:
        told: set[int] = set()
        for n, other in overlaps(mine, its):
            if not (its.is_write[other] or mine.is_write[n]):
                continue
            at = max(its.low[other], mine.low[n])
            block = self.state.memory.find(at)
            if block is None or id(block) in told or self._is_newer(block, before):
                continue
            told.add(id(block))
            yield _finding(block, at, before, its, other, work, mine, n)

    def _is_newer(self, block: Allocation, work: Work) -> bool:
        return self._allocated.get(block.va, 0) > work.number

    def _ordered(self, one: Work, other: Work) -> bool:
        """Whether one surely ends before the other begins, or it is not known."""
        if one.agent is other.agent:
            return one.at < other.at and (other.finishes_packets or other.barrier_at > one.at)
        clock = self._clock(other)
        return clock is None or clock.get(one.agent, 0) >= one.at

    def _clock(self, work: Work) -> Clock | None:
        """What it comes after, by now; None: it waits for what nobody has submitted."""
        clock, pending, seen = dict(work.clock), list(work.open), set()
        while pending:
            wait = pending.pop()
            cell = self.state.cells.get(wait.cell)
            promise = None if cell is None else cell.reaches(wait.value)
            if promise is None:
                return None
            if id(promise) not in seen:
                seen.add(id(promise))
                for agent, at in promise.clock.items():
                    clock[agent] = max(clock.get(agent, 0), at)
                pending += promise.open
        return clock


def overlaps(one: Touches, other: Touches) -> Iterator[tuple[int, int]]:
    """The numbers of ranges that have bytes in common."""
    if len(one.low) > len(other.low):
        yield from ((n, m) for m, n in overlaps(other, one))
        return
    for n, (low, high) in enumerate(zip(one.low, one.high)):
        for m in range(bisect.bisect_right(other.high, low), bisect.bisect_left(other.low, high)):
            yield n, m


def _fits(work: Work, touches: Touches, memory: Memory) -> bool:
    """Whether a launch with these buffers can have touched this."""
    if work.buffers is None:
        return True
    given = {id(memory.find(va)) for va in work.buffers}
    ends = (touches.low[:1], touches.low[-1:])
    return all(id(memory.find(va)) in given or memory.find(va) is None for part in ends for va in part)


def _finding(
    block: Allocation, at: int, before: Work, its: Touches, other: int, work: Work, mine: Touches, n: int
) -> Finding:
    def side(one: Work, touches: Touches, number: int) -> str:
        text = touches.text_of(touches.place[number])
        verb = "written" if touches.is_write[number] else "read"
        return f"{verb} by {one.what}" + (f" ({text!r})" if text else "")

    what = (
        f"byte {at - block.va} of {block.name or 'a buffer'} is {side(work, mine, n)}, and nothing says that this comes"
        f" before or after it is {side(before, its, other)}"
    )
    kernel = work.finding.kernel or before.finding.kernel
    return work.finding._replace(what=what, buffer=block.name, kernel=kernel)


@check(Access, Copy, Fill, Launch)
def note(submission: SubmissionCheck, effect: Access | Copy | Fill | Launch) -> Iterator[Violation]:
    """Nothing to find yet: remember where in the order it is."""
    touched, agent = submission.state.touched, submission.agent
    if touched is None or not submission.model.knows_order or isinstance(effect, Access):
        return
    where = f"submission #{submission.value} of {submission.device.name} {submission.queue}"
    entry, buffers, touches, what = 0, None, None, ""
    if isinstance(effect, Launch):
        entry = effect.entry
        buffers = tuple(one.value for one in effect.arguments if one.kind == "buffer") or None
        name = "a kernel" if submission.kernel is None else f"kernel {submission.kernel.name}"
        what = f"{name} in {where}"
    elif isinstance(effect, Copy):
        ranges = [(effect.src, effect.size_bytes, False), (effect.dst, effect.size_bytes, True)]
        touches, what = _of_packet(ranges), f"a copy in {where}"
    else:
        touches, what = _of_packet([(effect.dst, effect.size_bytes, True)]), f"a fill in {where}"
    finding = submission.finding(Violation(UNORDERED_LAUNCHES, ""))
    touched.count += 1
    submission.works.append(
        Work(
            agent,
            agent.at,
            agent.snapshot(),
            agent.open,
            agent.barrier_at,
            submission.model.finishes_packets,
            what,
            finding,
            entry,
            buffers,
            touches,
            touched.count,
        )
    )
    yield from ()


def _of_packet(ranges: list[tuple[int, int, bool]]) -> Touches:
    ranges = sorted(one for one in ranges if one[1])
    low, high = [va for va, _, _ in ranges], [va + size for va, size, _ in ranges]
    return Touches(low, high, [is_write for _, _, is_write in ranges], [0] * len(low), lambda place: "")
