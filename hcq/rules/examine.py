"""Examine: run the rules on one submission.

In       a submission as words, with the model of its device and the state before it
Out      Findings
Changes  the state, when a submission passes
Next     rule.py and its sisters (what is checked), effects.py (models), observe/validator.py (before the doorbell),
         observe/lint.py (over a trace)

The queue's verbs check their arguments anyway. The rules look at the words themselves, as the device will, so they also
catch a wrong encoder, a patched graph gone wrong, and words that someone wrote by hand.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from hcq import backends
from hcq.layout import Packet
from hcq.rules import addresses, blocks, deferred, kernels, launches, order, packets, signals, touched, waits
from hcq.rules.effects import Effect, Launch, Model, Run, Step
from hcq.rules.rule import CHECKS, RULES, Finding, Rule, Violation
from hcq.rules.submission_check import SubmissionCheck

MODULES = (
    packets,
    addresses,
    signals,
    order,
    launches,
    kernels,
    touched,
    blocks,
    waits,
)  # importing them fills the tables
MAX_KNOWN = 8192

ReadBlock = Callable[[int, int], bytes]
Decode = Callable[[Sequence[int]], list[Packet]]


def all_rules() -> dict[str, Rule]:
    """Every rule by id, those of single kinds of devices included."""
    for backend in backends.every():
        if backend.rules:
            backends.load(backend.rules)
    return dict(sorted(RULES.items()))


def model_of(name: str, arch: str, facts: Mapping[str, Any], decode: Decode) -> Model:
    """The model of a device. A kind that declares none is checked for what can be said of any packet.

    decode  words to packets
    """
    backend = backends.find(name)
    if backend is None or not backend.rules:
        return _Undeclared(arch, facts, decode)
    made: Model = backends.load(backend.rules)(arch, facts)
    return made


class _Undeclared(Model):
    """A kind that has packets and declares no effects."""

    declares_effects = False

    def __init__(self, arch: str, facts: Mapping[str, Any], decode: Decode) -> None:
        super().__init__(arch, facts)
        self._decode = decode

    def decode(self, words: Sequence[int], queue: str) -> list[Packet]:
        return self._decode(words)


def examine(
    submission: SubmissionCheck,
    words: Sequence[bytes],
    read_block: ReadBlock,
    label: str = "a block",
    ends: bool = False,
) -> Iterator[Finding]:
    """Look at every packet of a submission, in order. The caller commits or undoes the submission afterwards.

    words       whole packets
    read_block  (address, size in bytes) -> the words of a block that packets run
    label       how to call that block
    ends        the last packet is the one that ends the submission
    """
    # what a wait has ended since the last one, by the host's hand say, comes before all that is in this one
    yield from deferred.judge(submission, order.UNORDERED_ACCESS)
    lanes = [
        (queue, _lane(submission, placed, read_block, label, ends and not queue))
        for queue, placed in submission.model.lanes(words)
    ]
    if len(lanes) > 1:
        yield from _side_by_side(submission, lanes)
    else:
        for _, lane in lanes:
            yield from (finding for finding in lane if finding is not None)
    yield from deferred.judge(submission, order.UNORDERED_ACCESS)


def _side_by_side(
    submission: SubmissionCheck, lanes: Sequence[tuple[str, Iterator[Finding | None]]]
) -> Iterator[Finding]:
    """Packets of several queues in an order that is possible: none goes past a wait before the signal is seen."""
    left = dict(lanes)
    while left:
        has_moved = False
        for queue, lane in list(left.items()):
            submission.enter(queue)
            before = submission.agent.at
            for finding in lane:
                if finding is None:
                    break
                yield finding
            else:
                del left[queue]
                has_moved = True
            has_moved |= submission.agent.at != before
        submission.goes_past_waits = not has_moved
    submission.enter("")


def _lane(
    submission: SubmissionCheck,
    placed: Sequence[tuple[int, bytes]],
    read_block: ReadBlock,
    label: str,
    ends: bool,
) -> Iterator[Finding | None]:
    """Look at the packets of one queue. None, each time that another queue's packets come first."""
    for number, (at, blob) in enumerate(placed):
        yield from _run(submission, blob, at, read_block, label, ends and number == len(placed) - 1)


def examine_packets(submission: SubmissionCheck, words: bytes) -> Iterator[Finding]:
    """Only what the words say by themselves: for a block that will be patched before it runs."""
    for _, steps in _pieces(submission, words):
        for step, problems in steps:
            submission.step = step
            for broken in problems:
                yield submission.finding(broken)


def _run(
    submission: SubmissionCheck, blob: bytes, at: int, read_block: ReadBlock, label: str, ends: bool
) -> Iterator[Finding | None]:
    pieces = _pieces(submission, blob)
    for number, (offset, steps) in enumerate(pieces):
        for index, (step, problems) in enumerate(steps):
            submission.step = step if not at + offset else step._replace(at=at + offset + step.at)
            submission.is_last = ends and number == len(pieces) - 1 and index == len(steps) - 1
            for broken in problems:
                yield submission.finding(broken)
            for own in CHECKS.get(type(step.packet), ()):
                for broken in own(submission, step.packet):
                    yield submission.finding(broken)
            is_readable = not any(broken.rule.id in packets.MALFORMED for broken in problems)
            for effect in step.effects if is_readable else ():
                yield from _effect(submission, effect, read_block, label)


def _effect(
    submission: SubmissionCheck, effect: Effect, read_block: ReadBlock, label: str
) -> Iterator[Finding | None]:
    kind = type(effect)
    while submission.must_wait(effect):
        yield None
    submission.agent.at += 1
    if kind is Launch:
        assert isinstance(effect, Launch)
        effect = submission.with_arguments(effect)
        submission.kernel = submission.device.programs.get(effect.entry)
    is_broken = False
    for check in CHECKS.get(kind, ()):
        for broken in check(submission, effect):
            is_broken = True
            yield submission.finding(broken)
    for check in submission.model.checks.get(kind, ()):
        for broken in check(submission, effect):
            yield submission.finding(broken)
    if isinstance(effect, Launch):
        for arg in effect.arguments:
            if arg.kind == "buffer" and arg.access != "read":
                block = submission.state.memory.find(arg.value)
                if block is not None:
                    submission.write_mark(block)
    if kind is Run and not is_broken:
        assert isinstance(effect, Run)
        words = read_block(effect.address, 4 * effect.size_words)
        for broken in blocks.still(submission, effect, label, words):
            yield submission.finding(broken)
        submission.depth += 1
        submission.label = label
        yield from _run(submission, words, 0, read_block, label, False)
        submission.depth -= 1
    submission.kernel = None


Known = list[tuple[Step, tuple[Violation, ...]]]


def _pieces(submission: SubmissionCheck, blob: bytes) -> list[tuple[int, Known]]:
    """The steps of some words, in pieces that stand for themselves, each with its offset in words."""
    device, model, queue = submission.device, submission.model, submission.queue
    if device.known_generation != device.generation or len(device.known) > MAX_KNOWN:
        device.known_generation = device.generation
        device.known = {}
    known = device.known
    found = []
    at = 0
    for piece in model.split(blob, queue):
        key = (queue, piece)
        # a kind's own class of bytes carries more than the words, and equal words need not mean the same
        is_plain = type(piece) is bytes
        steps = known.get(key) if is_plain else None
        if steps is None:
            steps = [
                (step, tuple(packets.packet(submission, step)))
                for step in model.steps(piece, queue, device.programs)
            ]
            if is_plain:
                known[key] = steps
        found.append((at, steps))
        at += len(piece) // 4
    return found
