"""Rules on signals: values rise, waits end, timelines are the device's own.

In       Wait and Signal effects
Out      signal-unaligned, signal-backwards, signal-reused, timeline-reused, wait-never-signalled, wait-cycle
Changes  what is promised
Next     state.py (promises), waits.py (waits that a whole trace does not end), docs/rules/
"""

from __future__ import annotations

from collections.abc import Iterator

from hcq.rules.effects import Signal, Wait
from hcq.rules.rule import Violation, check, rule
from hcq.rules.submission_check import SubmissionCheck

SIGNAL_UNALIGNED = rule(
    "signal-unaligned", "A signal's address is a multiple of its size.", "Take signals from Device.signal()."
)
SIGNAL_BACKWARDS = rule(
    "signal-backwards",
    "The value of a signal only rises, unless the host resets it.",
    "Count up, or reset it with Signal.set when nothing waits for it.",
)
SIGNAL_REUSED = rule(
    "signal-reused",
    "A signal gets each value once: a wait cannot tell the second time from the first.",
    "Count up, or reset it with Signal.set before the value is used again.",
    level="warning",
)
TIMELINE_REUSED = rule(
    "timeline-reused",
    "Only the end of a submission sets a device's timeline.",
    "Use a signal of your own from Device.signal().",
)
WAIT_NEVER_SIGNALLED = rule(
    "wait-never-signalled",
    "If a queue waits for a value of a signal, something sets the signal to that value.",
    "Submit the signal, set it from the host, or wait for a smaller value.",
)
WAIT_CYCLE = rule(
    "wait-cycle",
    "Queues do not wait for each other in a circle, nor for a signal that comes only after the wait.",
    "Signal before waiting, or remove one of the waits.",
)

COMPARED_BYTES = 4  # the least that packets compare in a buffer that is no signal


def plain_bytes(submission: SubmissionCheck, effect: Wait | Signal) -> int:
    """What a packet uses of an ordinary buffer, and is aligned to."""
    model = submission.model
    return COMPARED_BYTES if isinstance(effect, Wait) else model.stored_bytes or model.signal_alignment


@check(Wait, Signal)
def aligned(submission: SubmissionCheck, effect: Wait | Signal) -> Iterator[Violation]:
    """Check: a cell's address is a multiple of what signals need."""
    alignment = submission.model.signal_alignment
    if not submission.is_signal(effect.cell):
        alignment = plain_bytes(submission, effect)
    if effect.cell % alignment:
        text = f"signal {submission.state.name(effect.cell)} is not a multiple of {alignment}"
        yield Violation(SIGNAL_UNALIGNED, text, effect.cell)


@check(Signal)
def signal(submission: SubmissionCheck, effect: Signal) -> Iterator[Violation]:
    """Check: values of a signal rise, and a timeline is set by its own device alone."""
    device, state = submission.device, submission.state
    if effect.cell == device.timeline:
        if not (submission.is_last and effect.value == submission.value):
            yield Violation(
                TIMELINE_REUSED,
                f"it sets the timeline of {device.name} to {effect.value}; the end of this submission sets it to "
                f"{submission.value}",
                effect.cell,
            )
        submission.signal(effect.cell, effect.value)
        return
    if not submission.is_signal(effect.cell):
        block = submission.state.memory.find(effect.cell)
        if block is not None:
            submission.write_mark(block)
        submission.signal(effect.cell, effect.value)
        return
    before = submission.promised(effect.cell)
    cell = state.cells.get(effect.cell)
    if before is None and cell is not None:
        last = cell.promises[-1] if cell.promises else None
        if last is None:
            before = cell.level
        elif submission.agent.knows(last.agent, last.clock.get(last.agent, 0)) or last.agent is state.host:
            before = last.value
    if before is not None and effect.value < before:
        text = f"signal {submission.state.name(effect.cell)} is {before} by then, and it sets it to {effect.value}"
        yield Violation(SIGNAL_BACKWARDS, text, effect.cell)
    elif before is not None and effect.value == before and (before or (cell is not None and cell.promises)):
        text = f"signal {submission.state.name(effect.cell)} already is {before} by then, so nobody can wait for this"
        yield Violation(SIGNAL_REUSED, text, effect.cell)
    submission.signal(effect.cell, effect.value)


@check(Wait)
def wait(submission: SubmissionCheck, effect: Wait) -> Iterator[Violation]:
    """Check: what is waited for does not come after the wait."""
    device = submission.device
    if effect.cell == device.timeline and effect.value >= submission.value:
        yield Violation(
            WAIT_NEVER_SIGNALLED,
            f"it waits for {effect.value} on the timeline of its own device, which is {submission.value - 1} until "
            "this submission is done",
            effect.cell,
        )
        return
    submission.wait(effect.cell, effect.value)


@check(Signal)
def too_late(submission: SubmissionCheck, effect: Signal) -> Iterator[Violation]:
    """A wait of this submission that only this signal, behind it on the same queue, would end."""
    for still in submission.agent.open:
        where = still.where
        if (still.cell, still.value) == (effect.cell, effect.value) and where.submission == submission.value:
            if where.device == submission.device.name and where.queue == submission.queue:
                yield Violation(
                    WAIT_CYCLE,
                    f"word {where.word} of the same submission waits for it, and this comes after the wait",
                    effect.cell,
                )
