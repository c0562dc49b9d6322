"""Replay: run a recorded program's work again, and compare what every submission left in its buffers with what it left.

In       a Trace with contents (recorded with HCQ_TRACE=FILE,data)
Out      Outcome: what was run, what was compared, and each Mismatch with its first differing byte
Changes  opens the devices that the trace names, loads the recorded code on them, and submits
Next     minimise.py (the smallest part of a trace that still goes wrong), hcq/observe/trace.py (writes contents)

The commands run, with the recorded code, arguments and host writes, at new addresses: each allocation of the trace gets
a buffer of its own here. A pointer that a kernel finds in memory is not translated; the blocks of graphs are, because
the trace knows their commands. Bytes that a Timestamp wrote are not compared.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import hcq
from hcq import checks
from hcq import command as commands
from hcq.errors import HcqError, UsageError
from hcq.tools.trace.color import Color, counted
from hcq.tools.trace.views import all_packets, argument_text, code_hash, code_of, name_of, submission_view
from hcq.trace.file import (
    Code,
    Contents,
    MemoryMap,
    Record,
    ResultSeen,
    SignalSeen,
    Submission,
    Trace,
    TraceDevice,
)
from hcq.trace.records import Why, digest

if TYPE_CHECKING:
    from hcq.device import Device
    from hcq.memory import Buffer
    from hcq.program import Program

COMPARED = (Why.HOST_READ, Why.AT_CLOSE)
Place = tuple[str, int]  # device, record of the allocation
STAMP_BYTES = 8
CELL_BYTES = 16


@dataclass(frozen=True)
class Mismatch:
    """Memory that came out otherwise. `after` is the last submission that was given the buffer.

    offset  of the first byte that differs; None when the trace has only a digest of what was there
    count   of the bytes that differ, or whose digest does
    """

    time_ns: int
    device: str
    buffer: str
    offset: int | None
    recorded: bytes
    found: bytes
    count: int
    after: int | None
    hash: str  # of all that was found there

    def as_json(self) -> dict[str, Any]:
        """What `hcq-trace replay --json` prints of it; bytes are hex."""
        found = {name: value for name, value in vars(self).items() if not isinstance(value, bytes)}
        return {**found, "recorded": self.recorded.hex(), "found": self.found.hex()}

    def __str__(self) -> str:
        after = "" if self.after is None else f", last given to #{self.after}"
        if self.offset is None:
            return (
                f"{self.device} {self.buffer}: its {self.count} bytes are not those that were recorded "
                f"(digest {self.found.hex()}, was {self.recorded.hex()}){after}"
            )
        return (
            f"{self.device} {self.buffer}: byte {self.offset} is {self.found.hex()}, and was {self.recorded.hex()} "
            f"when it was recorded; {self.count} bytes differ{after}"
        )


@dataclass
class Outcome:
    """What a replay did and found. `failure` is what stopped it, or "".

    given      buffers that submissions were handed and may have changed; `given_bytes` of them
    unchecked  those that nothing was compared with after the last submission that had them; `unchecked_bytes`
    """

    submissions: int = 0
    commands: int = 0
    compared_bytes: int = 0
    compared: int = 0
    given: int = 0
    given_bytes: int = 0
    unchecked: int = 0
    unchecked_bytes: int = 0
    mismatches: list[Mismatch] = field(default_factory=list)
    failure: str = ""
    # submissions whose words do not say what their commands do
    differing: list[int] = field(default_factory=list)

    @property
    def is_same(self) -> bool:
        """Whether everything compared was equal, and nothing failed."""
        return not self.mismatches and not self.failure

    def as_json(self) -> dict[str, Any]:
        """What `hcq-trace replay --json` prints."""
        return {
            "same": self.is_same,
            "submissions": self.submissions,
            "commands": self.commands,
            "compared": self.compared,
            "compared_bytes": self.compared_bytes,
            "given": self.given,
            "given_bytes": self.given_bytes,
            "unchecked": self.unchecked,
            "unchecked_bytes": self.unchecked_bytes,
            "failure": self.failure,
            "differing": self.differing,
            "mismatches": [one.as_json() for one in self.mismatches],
        }


def replay(trace: Trace, device_name: str = "", timeout_ms: float | None = None) -> Outcome:
    """Run a trace again.

    device_name  a device to use for all work, instead of those of the same names
    timeout_ms   how long a comparison may wait for the device; default HCQ_TIMEOUT_MS
    Raises       UsageError when the trace holds no contents, or nothing to compare with
    """
    if not trace.results and not any(one.why in COMPARED for one in trace.contents):
        raise UsageError(
            f"replay {trace.path or 'trace'}: it has no memory contents to start from and compare with. Record it with "
            "HCQ_TRACE=FILE,data (hcq-trace record --data)."
        )
    run = _Run(trace, device_name, timeout_ms)
    try:
        run.run()
    except HcqError as error:
        run.outcome.failure = str(error)
        run.drop()
    return run.outcome


def lines(outcome: Outcome, color: Color, limit: int) -> Iterator[str]:
    """The outcome as text."""
    ran = f"{counted(outcome.submissions, 'submission')}, {counted(outcome.commands, 'command')}"
    if outcome.differing:
        places = ", ".join(f"#{value}" for value in outcome.differing[:limit])
        yield color(
            f"the commands were run; the words of {places} say something else: hcq-trace show", "wrong"
        )
    checked = f"{counted(outcome.compared, 'result')}, {counted(outcome.compared_bytes, 'byte')}"
    if 2 * outcome.unchecked_bytes > outcome.given_bytes:
        yield color(
            f"MOST RESULTS WERE NOT COMPARED: of {outcome.given} buffers ({outcome.given_bytes} bytes) that work was "
            f"handed, {outcome.unchecked} ({outcome.unchecked_bytes} bytes) hold times, are open to the host, or were "
            "not done when the trace ended.",
            "wrong",
        )
    if outcome.is_same:
        yield f"{color('same results', 'more')}, bit for bit: {ran}; compared {checked}"
        return
    for one in outcome.mismatches[:limit]:
        yield color(str(one), "wrong")
    if len(outcome.mismatches) > limit:
        yield f"... and {len(outcome.mismatches) - limit} more; --limit shows them"
    if outcome.failure:
        yield color(f"stopped: {outcome.failure}", "wrong")
    yield f"{color('other results', 'wrong')}: {len(outcome.mismatches)} of {checked} differ, after {ran}"


class _Run:
    """One replay. Walks the records in order."""

    def __init__(self, trace: Trace, device_name: str, timeout_ms: float | None) -> None:
        self.trace = trace
        self.device_name = device_name
        self.timeout_ms = timeout_ms
        self.outcome = Outcome()
        self.devices: dict[str, Device] = {}
        self.buffers: dict[Place, Buffer] = {}
        self.programs: dict[int, Program] = {}
        self.last: dict[Place, int] = {}
        self.stamped: dict[Place, set[int]] = {}
        self.checked: dict[Place, int] = {}  # up to which submission's results

    def run(self) -> None:
        moments: dict[int, Submission | Contents | ResultSeen | SignalSeen] = {}
        moments.update((one.record, one) for one in self.trace.submissions if not one.dropped)
        moments.update((one.record, one) for one in self.trace.contents)
        moments.update((one.record, one) for one in self.trace.results)
        moments.update((one.record, one) for one in self.trace.signals if one.is_set)
        for record in self.trace.records:
            moment = moments.get(record.index)
            if isinstance(moment, Submission):
                self.submit(moment)
            elif isinstance(moment, Contents):
                self.contents(moment, record)
            elif isinstance(moment, ResultSeen):
                self.result(moment, record)
            elif isinstance(moment, SignalSeen):
                device = self.device(moment.device)
                cell = self.translate(moment.device, self.trace.memory_at(record.index), moment.va)
                device.signal_set(cell, moment.value)
                for observer in device.observers:
                    observer.host_set(cell, moment.value, time.monotonic_ns())
        for device in self.devices.values():
            device.synchronize(self.timeout_ms)
        self.count()

    def count(self) -> None:
        """How much of what the work may have changed was compared."""
        for place, last in self.last.items():
            size = self.buffers[place].size_bytes
            self.outcome.given += 1
            self.outcome.given_bytes += size
            if self.checked.get(place, 0) < last:
                self.outcome.unchecked += 1
                self.outcome.unchecked_bytes += size

    def drop(self) -> None:
        """After a failure: leave the devices usable."""
        for device in self.devices.values():
            device.reset()

    def device(self, recorded: TraceDevice) -> Device:
        """The device that stands for a recorded one."""
        if recorded.key not in self.devices:
            device = hcq.open(self.device_name or recorded.name)
            if device.arch != recorded.arch:
                raise UsageError(
                    f"replay: {recorded.key} was {recorded.arch}, and {device.name} is {device.arch}; code of one does "
                    "not run on the other. Replay on such a machine, or name an emulated device with --on."
                )
            self.devices[recorded.key] = device
        return self.devices[recorded.key]

    def place(self, recorded: TraceDevice, memory: MemoryMap, va: int) -> tuple[Place, int]:
        """The allocation that an address is in, and the offset there."""
        found = memory.find(va)
        span = memory.live.get(found.start)
        if span is None or found.state != "live":
            raise UsageError(
                f"replay: {name_of(self.trace, memory, va)} on {recorded.key} is no live buffer of the trace. "
                "hcq-trace lint says which submission uses it."
            )
        place = (span.device, span.since)
        if place not in self.buffers:
            owner = next(one for one in self.trace.devices if one.key == span.device)
            self.buffers[place] = self.device(owner).alloc(max(span.size_bytes, 1), span.name)
            self.buffers[place].write(bytes(max(span.size_bytes, 1)))
        return place, found.offset

    def translate(self, recorded: TraceDevice, memory: MemoryMap, va: int) -> int:
        """A recorded address as one of here."""
        for other in self.trace.devices:
            if other.facts.get("timeline") == va:
                return self.device(other).timeline.va
        place, offset = self.place(recorded, memory, va)
        return self.buffers[place].address + offset

    # ------------------------------------------------------------ work

    def submit(self, submission: Submission) -> None:
        recorded = submission.device
        device = self.device(recorded)
        memory = submission.memory()
        made: list[commands.Command] = []
        words: list[bytes] = []
        held: list[Buffer] = []
        for one in submission.all_commands():
            what, packets = self.encode(device, submission, memory, one)
            made.append(what)
            words.append(packets)
            for va in _addresses(memory, one):
                if any(other.facts.get("timeline") == va for other in self.trace.devices):
                    continue
                place, offset = self.place(recorded, memory, va)
                held.append(self.buffers[place])
                self.last[place] = submission.value
                if one["verb"] == "timestamp":
                    self.stamped.setdefault(place, set()).update(range(offset, offset + STAMP_BYTES))
                elif one["verb"] == "signal":  # the cell takes the time, too
                    self.stamped.setdefault(place, set()).update(
                        range(offset + STAMP_BYTES, offset + CELL_BYTES)
                    )
        done = device.submit(words, made, held)
        for buffer in held:
            buffer.last = done.value
        if any("differs" in packet for packet in all_packets(submission_view(submission))):
            self.outcome.differing.append(submission.value)
        self.outcome.submissions += 1
        self.outcome.commands += len(made)

    def encode(
        self, device: Device, submission: Submission, memory: MemoryMap, one: dict[str, Any]
    ) -> tuple[commands.Command, bytes]:
        """A recorded command with addresses and code of here, and its packets."""
        if one["verb"] != "dispatch":
            what = self.command(submission, memory, one)
            return what, device.encode(what)
        program: Any = self.program(submission, one)
        shared = one["dynamic_shared_bytes"] or _shared_beside(code_of(self.trace, submission, one))
        if shared or program._dynamic_shared:
            _ask(program, "dynamic_shared_bytes")
            program.dynamic_shared_bytes = shared
        given = [self.argument(submission, memory, argument) for argument in one["args"]]
        grid, block, claim = tuple(one["grid"]), tuple(one["block"]), one["groups_per_claim"]
        words, values = device.encode_dispatch(program, given, grid, block, claim)
        return commands.Dispatch(program, values, grid, block, claim, shared), words

    def command(self, submission: Submission, memory: MemoryMap, one: dict[str, Any]) -> commands.Command:
        """A recorded command that is no dispatch, with addresses of here."""

        def at(key: str) -> int:
            return self.translate(submission.device, memory, one[key])

        verb = one["verb"]
        if verb == "copy":
            return commands.Copy(at("dst"), at("src"), one["size_bytes"])
        if verb == "fill":
            return commands.Fill(at("dst"), one["pattern"], one["size_bytes"])
        if verb == "wait":
            return commands.Wait(at("signal"), one["value"])
        if verb == "signal":
            return commands.Signal(at("signal"), one["value"])
        if verb == "timestamp":
            return commands.Timestamp(at("address"))
        if verb == "barrier":
            return commands.Barrier()
        raise UsageError(
            f"replay: #{submission.value} holds {verb!r}, whose contents the trace does not have."
        )

    def argument(self, submission: Submission, memory: MemoryMap, argument: dict[str, Any]) -> Any:
        """A number, or the part of a buffer from the recorded address on."""
        if _is_pointer(memory, argument):
            place, offset = self.place(submission.device, memory, argument["value"])
            whole = self.buffers[place]
            return whole.view(offset, whole.size_bytes - offset) if offset else whole
        value: int | float = argument["value"]
        if argument["kind"] == "unknown" and isinstance(value, int) and memory.find(value).state != "unknown":
            self.place(submission.device, memory, value)  # says that it is no live buffer
        return value

    def program(self, submission: Submission, one: dict[str, Any]) -> Program:
        code = code_of(self.trace, submission, one)
        if code is None:
            arguments = ", ".join(
                argument_text(self.trace, submission.memory(), argument) for argument in one["args"]
            )
            raise UsageError(
                f"replay: #{submission.value} starts {one['kernel']}({arguments}), whose code is not in the trace."
            )
        if id(code) not in self.programs:
            device = self.device(submission.device)
            program: Any = device.load(code.image, code.entry, code.args, code.scratch_bytes, code.name)
            if maps := code.facts.get("tensor_maps", ""):
                _ask(program, "set_tensor_maps")
                program.set_tensor_maps(checks.text("replay", "tensor_maps", maps).split("\n"))
            self.programs[id(code)] = program
        return self.programs[id(code)]

    # ------------------------------------------------------------ contents

    def contents(self, one: Contents, record: Record) -> None:
        memory = self.trace.memory_at(record.index)
        place, offset = self.place(one.device, memory, one.va)
        buffer = self.buffers[place]
        if one.why not in COMPARED:
            buffer.write(one.data, offset)
            return
        buffer.wait(self.timeout_ms)
        if offset == 0 and len(one.data) >= buffer.size_bytes:
            self.checked[place] = self.last.get(place, 0)
        found = buffer.read(offset, len(one.data))
        self.outcome.compared += 1
        self.outcome.compared_bytes += len(found)
        if found == one.data:
            return
        skip = self.stamped.get(place, set())
        different = [
            index
            for index, (a, b) in enumerate(zip(found, one.data))
            if a != b and index + offset not in skip
        ]
        if different:
            at = different[0]
            name = memory.find(one.va).name
            first = slice(at, at + 8)
            self.outcome.mismatches.append(
                Mismatch(
                    record.time_ns, one.device.key, name, at + offset, one.data[first], found[first], len(different),
                    self.last.get(place), code_hash(found),
                )
            )  # fmt: skip

    def result(self, one: ResultSeen, record: Record) -> None:
        """Compare the digest of a whole buffer."""
        memory = self.trace.memory_at(record.index)
        place, _ = self.place(one.device, memory, one.va)
        buffer = self.buffers[place]
        buffer.wait(self.timeout_ms)
        data = buffer.read(0, one.size_bytes)
        self.outcome.compared += 1
        self.outcome.compared_bytes += one.size_bytes
        self.checked[place] = one.value
        found = digest(data)
        if found != one.digest:
            name = memory.find(one.va).name
            self.outcome.mismatches.append(
                Mismatch(
                    record.time_ns, one.device.key, name, None, one.digest, found, one.size_bytes, one.value,
                    code_hash(data),
                )
            )  # fmt: skip


def _is_pointer(memory: MemoryMap, argument: dict[str, Any]) -> bool:
    value = argument["value"]
    if argument["kind"] == "buffer":
        return bool(value)  # not null
    return (
        argument["kind"] == "unknown"
        and isinstance(value, int)
        and value > 0xFFFF
        and memory.find(value).state == "live"
    )


def _addresses(memory: MemoryMap, one: dict[str, Any]) -> Iterator[int]:
    for argument in one.get("args", ()):
        if _is_pointer(memory, argument):
            yield argument["value"]
    for key in ("dst", "src", "signal", "address"):
        if key in one and one["verb"] != "indirect":
            yield one[key]


def _shared_beside(code: Code | None) -> int:
    """Dynamic shared memory as traces of older versions have it: beside the code, for all its launches."""
    size = "0" if code is None else code.facts.get("dynamic_shared_bytes", "0")
    if not isinstance(size, str) or not checks.is_decimal(size):
        raise UsageError(f"replay: {'' if code is None else code.name}: shared memory of {size!r} bytes.")
    return int(size)


def _ask(program: Any, name: str) -> None:
    """What a launch needs besides arguments must be there here, too. Raises UsageError."""
    if not hasattr(program, name):
        raise UsageError(f"replay: {program.name}: programs of {program.device.name} have no {name}.")
