"""HCQ_VALIDATE for a foreign program: checks the rules on its packets and prints warnings.

In       what a ForeignDevice notifies its observers of
Out      a line for each finding, once for each rule and buffer; nothing is refused: it is not ours to hold back
Changes  one State for each process
Next     hcq/observe/validator.py (the sister), hcq/rules/ (what is checked), hcq/observe/lint.py (over a trace)
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from hcq import backends
from hcq.command import Command, Dispatch, flat
from hcq.events.foreign_devices import (
    ForeignBuffer,
    ForeignDevice,
    ForeignObserver,
    ForeignProgram,
    ForeignSubmission,
)
from hcq.rules.effects import Argument, ProgramFacts
from hcq.rules.examine import examine, model_of
from hcq.rules.rule import Finding
from hcq.rules.state import DeviceState, State
from hcq.rules.submission_check import KnownArguments, SubmissionCheck

MAX_WARNINGS = 1000


class Judge(ForeignObserver):
    """What one device gives the rules. `findings` are those that were told, in order."""

    def __init__(self, device: ForeignDevice, say: Callable[[str], None]) -> None:
        self.device, self.say = device, say
        backend = backends.of(device.kind)
        decode = lambda words: backend.decode(words, device.arch)  # noqa: E731
        model = model_of(device.kind, device.arch, device.facts(), decode)
        self.process = State(knows_host_writes=False)
        self.state = DeviceState(device.name, model, 0)
        self.findings: list[Finding] = []
        self._told: set[tuple[str, str]] = set()

    def alloc(self, buffer: ForeignBuffer) -> None:
        self.process.alloc(buffer.va, buffer.size_bytes, buffer.name, self.device.name)

    def renamed(self, buffer: ForeignBuffer) -> None:
        block = self.process.memory.live.get(buffer.va)
        if block is not None:
            block.name = buffer.name

    def free(self, buffer: ForeignBuffer) -> None:
        self.process.memory.free(buffer.va)

    def load(self, program: ForeignProgram) -> None:
        facts = ProgramFacts(program.name, program.entry, program.args, scratch_bytes=program.scratch_bytes)
        self.state.load(self.state.model.program(facts, program.image))

    def unload(self, program: ForeignProgram) -> None:
        self.state.unload(program.entry)

    def submitting(self, made: ForeignSubmission) -> None:
        check = SubmissionCheck(self.process, self.state, made.queue, made.value, "")
        check.arguments = known_arguments(made.commands)
        blocks = {block.va: block for block in made.blocks}

        def read_block(va: int, size_bytes: int) -> bytes:
            block = blocks.get(va)
            return b"" if block is None else block.words[:size_bytes]

        label = made.blocks[0].label if len(made.blocks) == 1 else "a block"
        for finding in examine(check, [made.words], read_block, label):
            self._tell(finding)
        check.commit()

    def _tell(self, finding: Finding) -> None:
        key = finding.rule, finding.kernel or finding.buffer or finding.packet
        if key in self._told or len(self._told) >= MAX_WARNINGS:
            return
        self._told.add(key)
        self.findings.append(finding)
        self.say(f"hcq: {self.device.name} of process {self.device.client.pid}: {finding.level} {finding}")


def known_arguments(commands: Sequence[Command]) -> KnownArguments:
    """The buffers that launches are given, in the order in which they run."""
    return [
        (what.program.entry, tuple(_buffers(what))) for what in flat(commands) if isinstance(what, Dispatch)
    ]


def _buffers(what: Dispatch) -> Iterator[Argument]:
    letters = what.program.letters if isinstance(what.program, ForeignProgram) else ""
    for number, (letter, value) in enumerate(zip(letters, what.args)):
        if letter == "b" and isinstance(value, int) and value:
            yield Argument(number, "buffer", value)
