"""A device that validates: what it tells the rules while it works, and what it refuses (HCQ_VALIDATE=1).

In       calls from devices, memory, signals and programs, each behind one branch that is not taken without validation
Out      UsageError for a rule of level error, before the doorbell; a line on stderr for a warning, once for each buffer
Changes  one State for all devices of the process: addresses and signals of one device may be used by another
Next     validate.py (the engine), rules/ (what is checked)

Submissions are looked at in the order in which they get the device's lock. Nothing is kept of one that was refused.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, ClassVar

from hcq import native, open_devices, recorder
from hcq.command import Command, Indirect
from hcq.effects import ProgramFacts
from hcq.errors import UsageError
from hcq.memory import Buffer
from hcq.rules import blocks, waits
from hcq.rules.rule import Finding, Violation
from hcq.rules.state import DeviceState, State
from hcq.rules.submission_check import SubmissionCheck
from hcq.signal import CELL_BYTES
from hcq.validate import examine, examine_packets, model_of

if TYPE_CHECKING:
    from hcq.device import Device
    from hcq.program import Program

MAX_WARNINGS = 1000


class Validator:
    """What one device tells the rules. Tests read `warnings`, those of all devices, in order."""

    warnings: ClassVar[list[Finding]] = []

    def __init__(self, device: Device) -> None:
        self.device = device
        self.process = _state  # kept here, too: destructors run when a process ends and its modules are gone
        cell = device.timeline.va
        model = model_of(device.name, device.arch, device.facts(), device.decode)
        self.state = DeviceState(device.name, model, cell, self._is_finished)
        self.process.alloc(cell, model.signal_bytes, "timeline", device.name)
        if device.memory.regions:
            for buffer in device.memory.owners():  # what opening has allocated
                self.alloc(buffer)
                self.wrote(buffer)
        self.findings: list[Finding] = []  # of the last submission
        self._submission: SubmissionCheck | None = None

    # ------------------------------------------------------------ submissions

    def submit(self, words: Sequence[bytes], commands: Sequence[Command], value: int) -> None:
        """Look at a submission. The caller holds the device's lock, and calls `sent` or `dropped` next.

        Raises  UsageError naming the first rule of level error that is broken; nothing is remembered of it then
        """
        model = self.state.model
        labels = [what.label for what in commands if type(what) is Indirect]
        with _lock:
            submission = SubmissionCheck(
                self.process, self.state, self.device.queue_name, value, recorder.site()
            )
            try:
                if not model.declares_effects:
                    self.device.validate(words)
                self.findings = list(
                    examine(submission, words, native.read, labels[0] if labels else "a block")
                )
                for finding in self.findings:
                    self._tell(finding)
            except BaseException:
                submission.undo()
                raise
            self._submission = submission

    def sent(self) -> None:
        """It went to the device."""
        submission, self._submission = self._submission, None
        if submission is not None:
            with _lock:
                submission.commit()

    def dropped(self) -> None:
        """It did not reach the device."""
        submission, self._submission = self._submission, None
        if submission is not None:
            with _lock:
                submission.undo()

    def look(self, words: bytes) -> None:
        """Packets that will be patched before they run: only what they say by themselves. Raises UsageError."""
        with _lock:
            submission = SubmissionCheck(self.process, self.state, self.device.queue_name, 0, recorder.site())
            try:
                for finding in examine_packets(submission, words):
                    self._tell(finding)
            finally:
                submission.undo()

    def room(self, name: str, put: int, size: int, get: int, capacity: int) -> None:
        """Before the driver writes `size` units into a ring. Raises UsageError when they reach unread ones."""
        submission = self._between()
        self._refuse(submission, blocks.room(name, put, size, get, capacity))

    def reuse(self, name: str, va: int, size_bytes: int, used_until: int) -> None:
        """Before the driver writes arguments or packets where submission `used_until` had its own."""
        submission = self._between()
        done = self.device.timeline._cell[0]
        self._refuse(submission, blocks.reuse(name, va, size_bytes, used_until, done))

    def unended(self) -> list[Finding]:
        """Waits in flight, of any device, that nothing submitted so far will end."""
        with _lock:
            return waits.unended(self.process)

    def failed(self, first: int, last: int) -> None:
        """These submissions failed."""
        with _lock:
            self.process.drop(self.state, first, last)

    # ------------------------------------------------------------ signals

    def host_set(self, va: int, value: int) -> None:
        with _lock:
            self.process.host_set(va, value)

    def host_saw(self, va: int, value: int) -> None:
        with _lock:
            self.process.host_saw(va, value)

    # ------------------------------------------------------------ memory and programs

    def alloc(self, buffer: Buffer) -> None:
        self.process.alloc(buffer.address, buffer.size_bytes, buffer.name or "", self.device.name)

    def free(self, va: int) -> None:
        """Safe from destructors."""
        self.process.memory.free(va)

    def unmap(self, va: int, size_bytes: int) -> None:
        self.process.unmap(va, size_bytes)

    def wrote(self, buffer: Buffer) -> None:
        """The host wrote into a buffer, or has its memory in hand."""
        block = self.process.memory.find(buffer.address)
        if block is not None:
            block.is_written = True
            block.stand_in = ""  # whoever uses it knows it

    def stand_in(self, buffer: Buffer, graph: str) -> None:
        """The buffer only holds the place of a graph's arguments."""
        block = self.process.memory.find(buffer.address)
        if block is not None:
            block.stand_in = f"an argument of {graph}"

    def load(self, program: Program, image: bytes) -> None:
        told = ProgramFacts(
            program.name,
            program.entry,
            program.args,
            program.access,
            scratch_bytes=program.scratch_bytes,
        )
        self.state.load(self.state.model.program(told, image))

    def unload(self, entry: int) -> None:
        """Safe from destructors."""
        self.state.unload(entry)

    # ------------------------------------------------------------ telling

    def _between(self) -> SubmissionCheck:
        """What happens between two submissions: it has no packets."""
        value = self.device.timeline.submitted + 1
        return SubmissionCheck(self.process, self.state, self.device.queue_name, value, recorder.site())

    def _refuse(self, submission: SubmissionCheck, broken: Iterable[Violation]) -> None:
        try:
            for each in broken:
                self._tell(submission.finding(each))
        finally:
            submission.undo()

    def _is_finished(self, value: int) -> bool:
        return bool(self.device.timeline._cell[0] >= value)

    def _tell(self, finding: Finding) -> None:
        if finding.level == "error":
            raise UsageError(str(finding))
        key = (finding.rule, finding.buffer or finding.packet)
        if key in _told or len(self.warnings) >= MAX_WARNINGS:
            return
        _told.add(key)
        self.warnings.append(finding)
        self.device.say(f"warning {finding}")
        if len(self.warnings) == MAX_WARNINGS:
            self.device.say("further warnings are not shown")


_state = State()
_lock = threading.RLock()
_told: set[tuple[str, str]] = set()


def _elsewhere(va: int, size_bytes: int) -> bool:
    """Memory of open devices that do not validate."""
    for each in open_devices.devices():
        if each.validator is None:
            for start, size in [(each.timeline.va, CELL_BYTES), *each.memory.regions.items()]:
                if start <= va and va + size_bytes <= start + size:
                    return True
    return False


_state.memory.elsewhere = _elsewhere


def after_fork() -> None:
    """In the child: its devices are its own, and so is what is known of them."""
    global _state, _lock, _told
    _lock = threading.RLock()
    _state = State()
    _state.memory.elsewhere = _elsewhere
    _told = set()
