"""Rules on order: two accesses to the same bytes, one of them a write, need something between them.

In       effects whose direction is known; a kernel whose loader did not say what it does with a buffer is not judged
Out      unordered-access, missing-barrier, missing-flush, missing-invalidate
Changes  the touches of the buffers
Next     state.py (clocks), effects.py (what a Model promises about order and caches), docs/rules/
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from hcq.rules.effects import Access, Barrier, Copy, Fill, Flush, Invalidate, Launch
from hcq.rules.memory import Allocation, PastAccess
from hcq.rules.rule import Violation, check, rule
from hcq.rules.state import Agent
from hcq.rules.submission_check import SubmissionCheck

UNORDERED_ACCESS = rule(
    "unordered-access",
    "If two queues use the same bytes, and at least one writes them, the second waits for the first.",
    "Let the second submission wait for the first one's completion value or for a signal after it.",
)
MISSING_BARRIER = rule(
    "missing-barrier",
    "On a queue that runs packets side by side, a barrier stands between a write and the next use of the same bytes.",
    "Put a barrier between the two commands.",
)
MISSING_FLUSH = rule(
    "missing-flush",
    "Data written through a write-back cache are flushed before they are used through another cache.",
    "Put a flush of that cache after the write, before the signal or barrier that the reader waits for.",
)
MISSING_INVALIDATE = rule(
    "missing-invalidate",
    "A cache that may hold old data is invalidated after a write that bypasses it and before a read through it.",
    "Put an invalidate of that cache after the wait, before the read.",
)


class Use(NamedTuple):
    """One range that an effect reads or writes."""

    va: int
    size_bytes: int  # 0: to the end of its buffer
    is_write: bool
    what: str


def uses(effect: Access | Copy | Fill | Launch) -> list[Use]:
    """What an effect surely reads and writes."""
    if isinstance(effect, Copy):
        return [
            Use(effect.src, effect.size_bytes, False, "the source of a copy"),
            Use(effect.dst, effect.size_bytes, True, "the destination of a copy"),
        ]
    if isinstance(effect, Fill):
        return [Use(effect.dst, effect.size_bytes, True, "the destination of a fill")]
    if isinstance(effect, Access):
        return [Use(effect.va, effect.size_bytes, effect.is_write, effect.what)]
    found = []
    if isinstance(effect, Launch):
        for arg in effect.arguments:
            if arg.kind == "buffer" and arg.access:
                if arg.access != "write":
                    found.append(
                        Use(arg.value, arg.size_bytes, False, f"argument {arg.position} of a launch")
                    )
                if arg.access != "read":
                    found.append(Use(arg.value, arg.size_bytes, True, f"argument {arg.position} of a launch"))
    return found


@check(Access, Copy, Fill, Launch)
def order(submission: SubmissionCheck, effect: Access | Copy | Fill | Launch) -> Iterator[Violation]:
    """Compare with what was there before, then remember."""
    agent = submission.agent
    if not submission.model.knows_order:
        return
    if isinstance(effect, Access) and effect.in_turn:
        block = submission.state.memory.find(effect.va)
        if effect.is_write and block is not None:
            submission.write_mark(block)
        return
    for use in uses(effect):
        block = submission.state.memory.find(use.va)
        if block is None:
            continue
        low = use.va
        high = low + use.size_bytes if use.size_bytes else block.end
        if not agent.open:
            for touch in block.touches:
                is_own = touch.agent is agent and touch.at == agent.at
                if touch.low < high and low < touch.high and not is_own:
                    yield from _pair(submission, block, touch, use, effect.domain)
        submission.touch(block, low, high, use.is_write, effect.domain, _label(submission, use))


def _label(submission: SubmissionCheck, use: Use) -> str:
    return f"{use.what} in submission #{submission.value} of {submission.device.name} {submission.queue}"


def _pair(
    submission: SubmissionCheck, block: Allocation, before: PastAccess, now: Use, domain: str
) -> Iterator[Violation]:
    agent, model = submission.agent, submission.model
    earlier = before.agent
    assert isinstance(earlier, Agent)
    if not (before.is_write or now.is_write):
        return
    done = "written" if now.is_write else "read"
    text = f"{block} is {done} as {now.what}"
    was = f"it was {'written' if before.is_write else 'read'} as {before.label}"
    if earlier is not agent and not agent.knows(earlier, before.at):
        yield Violation(UNORDERED_ACCESS, f"{text}, and nothing says that this comes after {was[3:]}", now.va)
        return
    if earlier is agent and not model.finishes_packets and agent.barrier_at <= before.at:
        yield Violation(MISSING_BARRIER, f"{text}, {was}, and no barrier stands between", now.va)
        return
    if not before.is_write or now.is_write or earlier is submission.state.host:
        return
    flushed = earlier.flushed.get(before.domain, 0)
    if before.domain != domain and before.domain in model.write_back and flushed <= before.at:
        yield Violation(MISSING_FLUSH, f"{text}, {was}, and {before.domain} was not flushed since", now.va)
        return
    since = before.at
    if earlier is not agent:
        since = agent.joined[earlier][1]
    if before.domain != domain and domain in model.stale and agent.invalidated.get(domain, 0) <= since:
        yield Violation(MISSING_INVALIDATE, f"{text}, {was}, and {domain} was not invalidated since", now.va)


@check(Barrier, Flush, Invalidate)
def synchronise(submission: SubmissionCheck, effect: Barrier | Flush | Invalidate) -> Iterator[Violation]:
    """Nothing to find: remember that it happened."""
    agent = submission.agent
    if isinstance(effect, Barrier):
        agent.barrier_at = agent.at
    elif isinstance(effect, Flush):
        agent.flushed[effect.domain] = agent.at
    elif isinstance(effect, Invalidate):
        agent.invalidated[effect.domain] = agent.at
    yield from ()
