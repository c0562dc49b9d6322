"""Gpu: a made-up device that takes effects in the place of packets, to try rules on. It computes nothing.

In       effects: gpu.submit(Copy(dst=a, src=b, size_bytes=64), queue="copy")
Out      UsageError for the first rule that is broken; `findings` has all of the last submission
Changes  its own state only
Next     docs/rules/ (its examples run as tests), effects.py (what a real device declares)

It has two queues that run packets side by side: "compute", whose launches go through the cache "L2", which keeps writes
and may hold old data, and "copy", which goes straight to memory.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from hcq.errors import UsageError
from hcq.layout import Packet, bits
from hcq.rules import blocks, waits
from hcq.rules.effects import (
    Access,
    Argument,
    Barrier,
    Copy,
    Effect,
    Fill,
    Flush,
    Invalidate,
    Launch,
    Limits,
    Model,
    ProgramFacts,
    Programs,
    Run,
    Signal,
    Wait,
)
from hcq.rules.examine import examine
from hcq.rules.rule import Finding, Violation
from hcq.rules.state import DeviceState, State
from hcq.rules.submission_check import SubmissionCheck

__all__ = [
    "Access",
    "Argument",
    "Barrier",
    "Copy",
    "Do",
    "Fill",
    "Flush",
    "Gpu",
    "Invalidate",
    "Launch",
    "ProgramFacts",
    "Run",
    "Signal",
    "Wait",
    "read",
    "write",
]


class Do(Packet, words=1):
    """The only packet: do the effects that were noted under this number."""

    number = bits(15, 0)
    magic = bits(31, 16, default=0xD0D0)


class ExampleModel(Model):
    """What the made-up device promises: an L2 to be flushed and invalidated, and two queues of different abilities."""

    finishes_packets = False
    write_back = frozenset({"L2"})
    stale = frozenset({"L2"})
    abilities: Mapping[str, frozenset[str]] = {
        "compute": frozenset({"dispatch", "fill", "wait", "signal", "run"}),
        "copy": frozenset({"copy", "fill", "wait", "signal"}),
    }
    limits = Limits(
        grid=(65535, 65535, 65535),
        block=(1024, 1024, 64),
        threads=1024,
        shared_bytes=65536,
        scratch_bytes=1 << 20,
        registers=255,
    )

    def __init__(self) -> None:
        super().__init__("example")
        self.noted: list[Sequence[Effect]] = []

    def decode(self, words: Sequence[int], queue: str) -> list[Packet]:
        return [Do.decode(words[at : at + 1]) for at in range(len(words))]

    def malformed(self, packet: Packet) -> tuple[str, str] | None:
        if packet.values["magic"] != Do.magic.default or packet.values["number"] >= len(self.noted):
            return "packet-unknown", "it is not the one packet that this device has"
        return None

    def effects(self, packet: Packet, programs: Programs) -> Sequence[Effect]:
        return self.noted[packet.values["number"]] if self.malformed(packet) is None else ()

    def note(self, effect: Effect) -> bytes:
        """The packet that does an effect."""
        self.noted.append((effect,))
        return Do(number=len(self.noted) - 1).to_bytes()


class Gpu:
    """Several of them on one state see each other's buffers and signals: Gpu(beside=other)."""

    def __init__(self, name: str = "GPU", beside: Gpu | None = None) -> None:
        self.model = ExampleModel()
        self.state: State = State(keeps_log=True) if beside is None else beside.state
        self._next = 0x1000_0000 if beside is None else 0x2000_0000
        self.device = DeviceState(name, self.model, self._alloc(16, "timeline"), self.finished)
        self.done = 0
        self.blocks: dict[int, bytes] = {}
        self.findings: list[Finding] = []

    def finished(self, value: int) -> bool:
        """Whether a submission is done."""
        return value <= self.done

    def buffer(self, name: str, size_bytes: int = 4096, access: str = "both", is_written: bool = True) -> int:
        """A new buffer's address."""
        va = self._alloc(size_bytes, name, access)
        block = self.state.memory.find(va)
        assert block is not None
        block.is_written = is_written
        return va

    def signal(self) -> int:
        """A new signal's address."""
        return self._alloc(16, "signal")

    def free(self, va: int) -> None:
        """A buffer is freed."""
        self.state.memory.free(va)

    def program(self, name: str = "kernel", **facts: object) -> int:
        """Load a program; returns its entry."""
        entry = 0x4000_0000 + 0x1000 * len(self.device.programs)
        self.device.load(ProgramFacts(name, entry, **facts))  # type: ignore[arg-type]
        return entry

    def unload(self, entry: int) -> None:
        """A program is unloaded."""
        self.device.unload(entry)

    def block(self, *effects: Effect, at: int | None = None) -> Run:
        """Packets in memory, to be run by a submission: all their words there, or over the block at an address."""
        words = b"".join(self.model.note(effect) for effect in effects)
        va = self.buffer("block", len(words)) if at is None else at
        self.blocks[va] = words
        return Run(va, len(words) // 4)

    def submit(self, *effects: Effect, queue: str = "compute") -> int:
        """Returns the timeline's value after it. Raises UsageError when a rule of level error is broken."""
        return self.submit_words(b"".join(self.model.note(effect) for effect in effects), queue)

    def submit_words(self, words: bytes, queue: str = "compute") -> int:
        """Check a submission and take it; its timeline value.

        `findings` has what was found; an error raises UsageError.
        """
        value = self.device.submitted + 1
        submission = SubmissionCheck(self.state, self.device, queue, value, "")
        self.findings = list(examine(submission, [words], self._read))
        for finding in self.findings:
            if finding.level == "error":
                submission.undo()
                raise UsageError(str(finding))
        submission.commit()
        return value

    def wait(self, value: int) -> None:
        """The host waits for a submission."""
        self.done = max(self.done, value)
        self.state.host_saw(self.device.timeline, value)

    def set(self, signal: int, value: int) -> None:
        """The host sets a signal."""
        self.state.host_set(signal, value)

    def write_ring(self, put: int, size: int, get: int, capacity: int) -> None:
        """The driver writes words into its ring."""
        self._refuse(*blocks.room("the ring", put, size, get, capacity))

    def write_arena(self, va: int, size_bytes: int, used_until: int) -> None:
        """The driver writes arguments where an earlier submission had its own."""
        self._refuse(*blocks.reuse("the kernel arguments", va, size_bytes, used_until, self.done))

    def end(self) -> None:
        """Nothing more will be submitted: raises UsageError for a wait that is never satisfied."""
        self.findings = list(waits.stuck(self.state))
        for finding in self.findings:
            raise UsageError(str(finding))

    def _refuse(self, *broken: Violation) -> None:
        submission = SubmissionCheck(self.state, self.device, "compute", self.device.submitted + 1, "")
        submission.undo()
        self.findings = [submission.finding(each) for each in broken]
        for finding in self.findings:
            raise UsageError(str(finding))

    def _read(self, va: int, size_bytes: int) -> bytes:
        return self.blocks.get(va, b"")[:size_bytes]

    def _alloc(self, size_bytes: int, name: str, access: str = "both") -> int:
        va = self._next
        self._next += -(-size_bytes // 4096) * 4096 + 4096
        self.state.alloc(va, size_bytes, name, "GPU", access)
        return va


def read(position: int, va: int, size_bytes: int = 0, alignment: int = 1) -> Argument:
    """A buffer argument that the kernel reads."""
    return Argument(position, "buffer", va, "read", size_bytes, alignment)


def write(position: int, va: int, size_bytes: int = 0, alignment: int = 1) -> Argument:
    """A buffer argument that the kernel writes."""
    return Argument(position, "buffer", va, "write", size_bytes, alignment)
