"""Validation: run the rules on submissions, before the doorbell (HCQ_VALIDATE=1) or over a whole trace.

In       submissions as words, with the model of their device and the state before them; or a Trace
Out      Findings
Changes  the state, when a submission passes
Next     rule.py and its sisters (what is checked), observe/validator.py (before the doorbell), effects.py (models)

The queue's verbs check their arguments anyway. The rules look at the words themselves, as the device will, so they also
catch a wrong encoder, a patched graph gone wrong, and words that someone wrote by hand.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from hcq import backends
from hcq.layout import Packet
from hcq.rules import addresses, blocks, launches, order, packets, signals, waits
from hcq.rules.effects import Effect, Launch, Model, ProgramFacts, Run, Step
from hcq.rules.rule import CHECKS, RULES, Finding, Rule, Violation
from hcq.rules.state import DeviceState, State
from hcq.rules.submission_check import SubmissionCheck

if TYPE_CHECKING:
    from hcq.trace.file import Record, Submission, Trace

__all__ = ["RULES", "Finding", "Rule", "all_rules", "examine", "lint", "model_of"]

MODULES = (packets, addresses, signals, order, launches, blocks, waits)  # importing them fills the tables
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
    at = 0
    for number, blob in enumerate(words):
        is_last_blob = ends and number == len(words) - 1
        yield from _run(submission, blob, at, read_block, label, is_last_blob)
        at += len(blob) // 4


def examine_packets(submission: SubmissionCheck, words: bytes) -> Iterator[Finding]:
    """Only what the words say by themselves: for a block that will be patched before it runs."""
    for _, steps in _pieces(submission, words):
        for step, problems in steps:
            submission.step = step
            for broken in problems:
                yield submission.finding(broken)


def _run(
    submission: SubmissionCheck, blob: bytes, at: int, read_block: ReadBlock, label: str, ends: bool
) -> Iterator[Finding]:
    pieces = _pieces(submission, blob)
    for number, (offset, steps) in enumerate(pieces):
        for index, (step, problems) in enumerate(steps):
            submission.step = step if not at + offset else step._replace(at=at + offset + step.at)
            submission.is_last = ends and number == len(pieces) - 1 and index == len(steps) - 1
            for broken in problems:
                yield submission.finding(broken)
            is_readable = not any(broken.rule.id in packets.MALFORMED for broken in problems)
            for effect in step.effects if is_readable else ():
                yield from _effect(submission, effect, read_block, label)


def _effect(
    submission: SubmissionCheck, effect: Effect, read_block: ReadBlock, label: str
) -> Iterator[Finding]:
    kind = type(effect)
    submission.agent.at += 1
    if kind is Launch:
        assert isinstance(effect, Launch)
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


# ---------------------------------------------------------------- a whole trace


def lint(trace: Trace) -> list[Finding]:
    """Every finding in a trace, in order. Each process is looked at by itself."""
    found: list[Finding] = []
    for process in sorted({device.process for device in trace.devices}):
        found += _Replayed(trace, process).findings()
    return found


class _Replayed:
    """The records of one process, fed to a state of their own."""

    def __init__(self, trace: Trace, process: int) -> None:
        self.trace = trace
        self.process = process
        # a trace does not hold what the host writes, unless it holds data
        self.state = State(knows_host_writes=False, keeps_log=True)
        self.devices: dict[int, DeviceState] = {}
        self.submissions = {made.record: made for made in trace.submissions if made.device.process == process}
        self.code = {code.loaded: code for code in trace.code if code.device.process == process}
        self.sent = {
            (made.device.number, made.value): made for made in self.submissions.values() if not made.dropped
        }
        self.now_ns = 0

    def findings(self) -> Iterator[Finding]:
        for record in self.trace.records:
            if record.process == self.process:
                self.now_ns = record.time_ns
                yield from self._take(record)
        yield from waits.stuck(self.state)

    def _take(self, record: Record) -> Iterator[Finding]:
        fields, state = record.fields, self.state
        if record.name == "DEVICE":
            self._open(record)
        elif record.name == "ALLOC":
            name = self.trace.string(self.process, fields["name"])
            state.alloc(fields["va"], fields["size_bytes"], name, self.devices[fields["device"]].name)
        elif record.name == "FREE":
            state.memory.free(fields["va"])
        elif record.name == "UNMAP":
            state.unmap(fields["va"], fields["size_bytes"])
        elif record.name == "CODE":
            code = self.code[record.index]
            device = self.devices[fields["device"]]
            access = code.facts.get("access")
            told = ProgramFacts(
                code.name,
                code.va,
                code.args,
                None if access is None else tuple(access),
                scratch_bytes=code.scratch_bytes,
            )
            device.load(device.model.program(told, code.image))
        elif record.name == "UNLOAD":
            self.devices[fields["device"]].unload(fields["va"])
        elif record.name == "SIGNAL" and fields["is_set"]:
            state.host_set(fields["va"], fields["value"])
        elif record.name == "SIGNAL":
            state.host_saw(fields["va"], fields["value"])
        elif record.name == "FAULT" and "first" in fields:
            device = self.devices[fields["device"]]
            for finding in waits.stuck(state):  # what stood still then is why it was dropped
                if finding.device == device.name and fields["first"] <= finding.submission <= fields["last"]:
                    yield finding
            state.drop(device, fields["first"], fields["last"])
        elif record.index in self.submissions:
            yield from self._submit(self.submissions[record.index])

    def _open(self, record: Record) -> None:
        number = int(record.fields["device"])
        device = next(d for d in self.trace.devices if d.process == self.process and d.number == number)
        model = model_of(device.name, device.arch, device.facts, device.decode)

        def finished(value: int) -> bool:
            made = self.sent.get((number, value))
            return made is None or made.finished_ns is None or made.finished_ns < self.now_ns

        timeline = int(device.facts.get("timeline", 0))
        self.devices[number] = DeviceState(device.name, model, timeline, finished)

    def _submit(self, made: Submission) -> Iterator[Finding]:
        if made.dropped:
            return
        device = self.devices[made.device.number]
        submission = SubmissionCheck(self.state, device, made.queue, made.value, made.site)
        images = {image.va: image for image in made.blocks}

        def read_block(va: int, size_bytes: int) -> bytes:
            image = images.get(va)
            words = () if image is None else image.words
            return b"".join(word.to_bytes(4, "little") for word in words)[:size_bytes]

        labels = [image.label for image in images.values()]
        words = b"".join(word.to_bytes(4, "little") for word in made.words)
        yield from examine(
            submission, [words], read_block, labels[0] if len(labels) == 1 else "a block", ends=True
        )
        submission.commit()
