"""A device that validates: what the rules are given of its work, and what they refuse (HCQ_VALIDATE=1).

In       what a device notifies its observers of
Out      UsageError for a rule of level error, before the doorbell; a line on stderr for a warning, once for each buffer
Changes  one State for all devices of the process: addresses and signals of one device may be used by another
Next     rules/examine.py (the engine), rules/ (what is checked)

Submissions are looked at in the order in which they get the device's lock. Nothing is kept of one that was refused.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, ClassVar

from hcq.command import Command, Dispatch, Indirect, PatchPoint
from hcq.device import Device
from hcq.errors import UsageError
from hcq.events import kernel_touches, stray_accesses
from hcq.events.kernel_touches import Touches
from hcq.events.observer import Observer
from hcq.events.stray_accesses import Stray
from hcq.lifetime import open_devices
from hcq.observe.sanitizer import Sanitizer
from hcq.program import Program
from hcq.rules import addresses, blocks, launches, waits
from hcq.rules.effects import Argument, ProgramFacts
from hcq.rules.examine import examine, examine_packets, model_of
from hcq.rules.kernels import UNORDERED_LAUNCHES
from hcq.rules.rule import Finding, Violation
from hcq.rules.state import DeviceState, State
from hcq.rules.submission_check import KnownArguments, SubmissionCheck
from hcq.rules.touched import Touched
from hcq.signal import CELL_BYTES
from hcq.system import call_site, native
from hcq.system.call_site import Site

MAX_WARNINGS = 1000
MAX_PATCHED = 1024  # blocks


class Validator(Observer):
    """What one device gives the rules. Tests read `warnings`, those of all devices, in order."""

    warnings: ClassVar[list[Finding]] = []
    refuses = True

    def __init__(self, device: Device, judges: bool = True) -> None:
        self.device = device
        # whether it looks for broken rules; else it only keeps the order, for what launches really touch
        self.judges = self.refuses = judges
        # va -> what was submitted when it was handed out, and the memory behind it that is nobody's
        self._behind: dict[int, tuple[int, int, int]] = {}
        self.process = _state  # kept here, too: destructors run when a process ends and its modules are gone
        cell = device.timeline.va
        model = model_of(device.name, device.arch, {**device.facts(), "is_live": True}, device.decode)
        self.state = DeviceState(device.name, model, cell, self._is_finished)
        self.process.alloc(cell, model.signal_bytes, "timeline", device.name)
        self.cell(cell, "timeline")
        if device.memory.regions:
            for buffer in device.memory.owners():  # what opening has allocated
                self.alloc(buffer.address, buffer.size_bytes, buffer.capacity, buffer.name)
                self.wrote(buffer.address)
        self.findings: list[Finding] = []  # of the last submission
        self._check: SubmissionCheck | None = None
        # block -> (command, argument) -> the address that its last replay has put there
        self._patched: dict[int, dict[tuple[int, int], int]] = {}
        # where code begins -> a program's name; it stays when the program is gone
        self._names: dict[int, str] = {}
        self._entries: dict[int, int] = {}  # the same -> how submissions call it
        self._ends: list[Callable[[], object]] = []
        if judges and "memory" not in device.config.sanitize:  # which says more of the same
            self._ends.append(stray_accesses.listen(self._strayed, self._gaps))
        self._finds_races = "race" in device.config.sanitize
        if self._finds_races:
            self.process.touched = self.process.touched or Touched(self.process)
            self.process.touched.devices += 1
            self._ends.append(kernel_touches.listen(self._ended))

    # ------------------------------------------------------------ submissions

    def closing(self) -> bool:
        for end in self._ends:
            end()
        with _lock:
            touched = self.process.touched
            if self._finds_races and touched is not None:
                self._finds_races = False
                touched.devices -= 1
                if not touched.devices:
                    self.process.touched = None
            self.process.close(self.state)
        return True  # memory that it gives back is soon used again

    def submitting(
        self, value: int, words: list[bytes], commands: Sequence[Command], held: Sequence[Any], at: Site
    ) -> list[bytes]:
        """Raises  UsageError naming the first rule of level error that is broken; nothing is remembered of it then"""
        model = self.state.model
        labels = [what.label for what in commands if type(what) is Indirect]
        with _lock:
            check = SubmissionCheck(self.process, self.state, self.device.queue_name, value, call_site.site())
            if labels:
                check.arguments = self._arguments(commands)
            try:
                if not model.declares_effects and self.judges:
                    self.device.validate(words)
                self.findings = list(examine(check, words, native.read, labels[0] if labels else "a block"))
                for finding in self.findings:
                    self._tell(finding)
                if check.works and self.process.touched is not None:
                    for finding in self.process.touched.submitted(check.works):
                        Sanitizer.add(self.device, finding)
            except BaseException:
                check.undo()
                raise
            self._check = check
        return words

    def _arguments(self, commands: Sequence[Command]) -> KnownArguments:
        """The buffers of every launch in blocks: packets of a block need not have them."""
        found: KnownArguments = []
        for block in commands:
            if not isinstance(block, Indirect):
                continue
            patched = self._patched.get(block.address, {})
            for number, what in enumerate(block.commands):
                if not isinstance(what, Dispatch):
                    continue
                buffers = []
                for position, (access, value) in enumerate(zip(what.program.access or (), what.args)):
                    va = patched.get((number, position), value)
                    if access and isinstance(va, int):
                        buffers.append(Argument(position, "buffer", va, access))
                found.append((what.program.entry, tuple(buffers)))
        return found

    def patch(
        self, what: Indirect, written: Mapping[Any, int | float], points: Mapping[Any, Sequence[PatchPoint]]
    ) -> None:
        if len(self._patched) >= MAX_PATCHED:
            self._patched.clear()  # each replay says it again, right before it is submitted
        self._patched[what.address] = {
            (point.command_index, point.argument_index): int(number)
            for key, number in written.items()
            for point in points[key]
            if point.kind == "buffer"
        }

    def sent(self, value: int) -> None:
        check, self._check = self._check, None
        if check is not None:
            with _lock:
                check.commit()

    def dropped(self, value: int, why: str) -> None:
        check, self._check = self._check, None
        if check is not None:
            with _lock:
                check.undo()
                if self.process.touched is not None:
                    self.process.touched.dropped(check.works)

    def sealing(self, words: bytes) -> None:
        """Only what they say by themselves. Raises UsageError."""
        with _lock:
            submission = SubmissionCheck(
                self.process, self.state, self.device.queue_name, 0, call_site.site()
            )
            try:
                for finding in examine_packets(submission, words):
                    self._tell(finding)
            finally:
                submission.undo()

    def room(self, ring: str, put: int, size: int, get: int, capacity: int) -> None:
        """Raises UsageError when they reach unread ones."""
        submission = self._between()
        self._refuse(submission, blocks.room(ring, put, size, get, capacity))

    def reuse(self, name: str, va: int, size_bytes: int, used_until: int) -> None:
        """Raises UsageError when that submission is not done."""
        submission = self._between()
        done = self.device.timeline._cell[0]
        self._refuse(submission, blocks.reuse(name, va, size_bytes, used_until, done))

    def unsatisfied_waits(self) -> list[str]:
        with _lock:
            return [str(finding) for finding in waits.unsatisfied_waits(self.process)]

    def fault(self, first: int, last: int, why: str) -> None:
        with _lock:
            self.process.drop(self.state, first, last)

    # ------------------------------------------------------------ signals

    def cell(self, va: int, name: str) -> None:
        block = self.process.memory.find(va)
        if block is not None:
            block.is_cell = True

    def host_set(self, va: int, value: int, timestamp_ns: int) -> None:
        with _lock:
            self.process.host_set(va, value)

    def host_saw(self, va: int, value: int) -> None:
        with _lock:
            self.process.host_saw(va, value)

    def waited(self, va: int, name: str, value: int, timestamp_ns: int, waited_ns: int) -> None:
        self.host_saw(va, value)

    # ------------------------------------------------------------ memory and programs

    def alloc(self, va: int, size_bytes: int, capacity: int, name: str | None) -> None:
        if size_bytes < capacity:
            self._behind[va] = self.device.timeline.submitted, va + size_bytes, va + capacity
        if self.process.touched is not None:
            self.process.touched.alloc(va)
        self.process.alloc(va, size_bytes, name or "", self.device.name)

    def free(self, va: int, capacity: int) -> None:
        self._behind.pop(va, None)
        self.process.memory.free(va)

    def unmapped(self, va: int, size_bytes: int) -> None:
        self.process.unmap(va, size_bytes)

    def exposed(self, va: int) -> None:
        self.wrote(va)

    def wrote(self, va: int, data: Any = None) -> None:
        block = self.process.memory.find(va)
        if block is not None:
            block.is_written = True
            block.stand_in = ""  # whoever uses it knows it
        if data is not None:
            self._host(va, data, True, int(self.device.timeline._cell[0]))

    def saw(self, va: int, data: Any) -> None:
        self._host(va, data, False, self.device.timeline.submitted)

    def _host(self, va: int, data: Any, is_write: bool, waited: int) -> None:
        """The program has read or written these bytes, after it has waited for that value of the timeline."""
        size = memoryview(data).nbytes
        if not self._finds_races or not size:
            return
        rule = UNORDERED_LAUNCHES
        finding = Finding(rule.id, rule.level, "", rule.fix, self.device.name)
        with _lock:
            self.process.host_saw(self.device.timeline.va, waited)
            touched = self.process.touched
            for each in () if touched is None else touched.host(va, size, is_write, finding):
                Sanitizer.add(self.device, each)

    def stand_in(self, va: int, graph: str) -> None:
        block = self.process.memory.find(va)
        if block is not None:
            block.stand_in = f"an argument of {graph}"

    def load(self, program: Program, entry: str, image: bytes, sources: Mapping[str, str] | None) -> None:
        facts = ProgramFacts(
            program.name,
            program.entry,
            program.args,
            program.access,
            program.extents,
            scratch_bytes=program.scratch_bytes,
        )
        self.state.load(self.state.model.program(facts, image))
        self._names[program.code_va] = program.name
        self._entries[program.code_va] = program.entry

    def unload(self, entry: int) -> None:
        self.state.unload(entry)

    # ------------------------------------------------------------ findings

    def _gaps(self) -> list[tuple[int, int]]:
        """Memory behind buffers, but for those that were handed out while work was in flight that is not done yet.

        That work may have had the same memory before, and more of it.
        """
        done = self.device.timeline._cell[0]
        return [(start, end) for since, start, end in list(self._behind.values()) if since <= done]

    def _strayed(self, pid: int, stray: Stray) -> None:
        """From a thread of an emulated GPU, which all devices' validators hear."""
        kernel = self._names.get(stray.entry)
        if kernel is None or pid != os.getpid():
            return
        name = ""
        if stray.limit < 0:
            block = self.process.memory.neighbour(stray.address)
            if block is None:
                return
            name = block.name
            broken = addresses.behind_buffer(stray, name, block.va, block.size_bytes)
        else:
            broken = launches.beyond_shared(stray)
        rule = broken.rule
        where = f"{kernel} at {stray.pc - stray.entry:#x}" if stray.text else kernel
        finding = Finding(
            rule.id, rule.level, broken.what, rule.fix, self.device.name, kernel=where, buffer=name
        )
        with _lock:
            self._tell(finding)

    def _ended(self, pid: int, entry: int, touches: Touches) -> None:
        """From a thread of an emulated GPU, which all devices' validators hear: a launch has touched this."""
        known = self._entries.get(entry)
        if known is None or pid != os.getpid() or self.process.touched is None:
            return
        with _lock:
            for finding in self.process.touched.ended(known, touches):
                Sanitizer.add(self.device, finding)

    def _between(self) -> SubmissionCheck:
        """What happens between two submissions: it has no packets."""
        value = self.device.timeline.submitted + 1
        return SubmissionCheck(self.process, self.state, self.device.queue_name, value, call_site.site())

    def _refuse(self, submission: SubmissionCheck, broken: Iterable[Violation]) -> None:
        try:
            for each in broken:
                self._tell(submission.finding(each))
        finally:
            submission.undo()

    def _is_finished(self, value: int) -> bool:
        return bool(self.device.timeline._cell[0] >= value)

    def _tell(self, finding: Finding) -> None:
        if not self.judges:
            return
        if finding.level == "error":
            raise UsageError(str(finding))
        key = (finding.rule, finding.buffer or finding.packet or finding.kernel)
        if key in _warned or len(self.warnings) >= MAX_WARNINGS:
            return
        _warned.add(key)
        self.warnings.append(finding)
        self.device.say(f"warning {finding}")
        if len(self.warnings) == MAX_WARNINGS:
            self.device.say("further warnings are not shown")


_state = State(signals="told")
_lock = threading.RLock()
_warned: set[tuple[str, str]] = set()


def _elsewhere(va: int, size_bytes: int) -> bool:
    """Memory of open devices that do not validate."""
    for each in open_devices.devices():
        if not any(isinstance(observer, Validator) for observer in each.observers):
            for start, size in [(each.timeline.va, CELL_BYTES), *each.memory.regions.items()]:
                if start <= va and va + size_bytes <= start + size:
                    return True
    return False


_state.memory.elsewhere = _elsewhere


def after_fork() -> None:
    """In the child: its devices are its own, and so is what is known of them."""
    global _state, _lock, _warned
    _lock = threading.RLock()
    _state = State(signals="told")
    _state.memory.elsewhere = _elsewhere
    _warned = set()


open_devices.in_child.append(after_fork)
