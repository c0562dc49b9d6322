"""Lint: the rules over a whole trace, as they would have judged the work while it happened.

In       a Trace
Out      Findings, in order
Next     hcq/rules/examine.py (the engine), validator.py (the same before the doorbell), tools/trace/lint.py (prints)
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from hcq.rules import waits
from hcq.rules.effects import Argument, ProgramFacts
from hcq.rules.examine import examine, model_of
from hcq.rules.rule import Finding
from hcq.rules.state import DeviceState, State
from hcq.rules.submission_check import SubmissionCheck
from hcq.trace.file import Record, Submission, Trace

# what no rule foresaw, and the trace recorded; a trace with one of them is not clean
FAULT = "recorded-fault"
TIMEOUT = "recorded-timeout"
RECORDED = {
    FAULT: "Look at what the submission names, with hcq-trace show, and at what was submitted just before it.",
    TIMEOUT: "hcq-trace graph shows who waits for whom; give slow work more time with timeout_ms.",
}


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
        self.state = State(knows_host_writes=False, keeps_log=True, signals="buffers of their own")
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
            access, extents = code.facts.get("access"), code.facts.get("extents")
            facts = ProgramFacts(
                code.name,
                code.va,
                code.args,
                None if access is None else tuple(access),
                None if extents is None else tuple(extents),
                scratch_bytes=code.scratch_bytes,
            )
            device.load(device.model.program(facts, code.image))
        elif record.name == "UNLOAD":
            self.devices[fields["device"]].unload(fields["va"])
        elif record.name == "SIGNAL" and fields["is_set"]:
            state.host_set(fields["va"], fields["value"])
        elif record.name == "SIGNAL":
            state.host_saw(fields["va"], fields["value"])
        elif record.name == "FINDING":
            yield self._kernel(record)
        elif record.name == "FAULT":
            yield self._recorded(record)
            if "first" not in fields:
                return
            device = self.devices[fields["device"]]
            for finding in waits.stuck(state):  # what stood still then is why it was dropped
                if finding.device == device.name and fields["first"] <= finding.submission <= fields["last"]:
                    yield finding
            state.drop(device, fields["first"], fields["last"])
        elif record.index in self.submissions:
            yield from self._submit(self.submissions[record.index])

    def _recorded(self, record: Record) -> Finding:
        """A fault or a time-out as a finding: an error, or a warning where what was waited for came after all."""
        fields = record.fields
        number = int(fields["device"])
        device = self.devices[number]
        is_timeout = fields.get("what") == "timeout"
        id = TIMEOUT if is_timeout else FAULT
        value, is_late = int(fields.get("last", 0)), False
        if is_timeout:
            va, wanted = int(fields.get("va", 0)), int(fields.get("value", 0))
            is_late = any(
                after.fields["va"] == va and after.fields["value"] >= wanted
                for after in self.trace.records[record.index :]
                if after.process == self.process and after.name == "SIGNAL"
            )
            value = wanted if va == device.timeline else 0
        made = self.sent.get((number, value))
        what = str(fields.get("why", "")).strip().rstrip(".") or str(fields.get("what", "the device stopped"))
        return Finding(
            id,
            "warning" if is_late else "error",
            what,
            RECORDED[id],
            device.name,
            made.queue if made is not None else "",
            value,
            site=made.site if made is not None else "",
        )

    def _kernel(self, record: Record) -> Finding:
        """What an emulated GPU found in a kernel (HCQ_SANITIZE), with the launch that probably did it: the first that
        was not done then."""
        said = dict(record.fields["finding"])
        found = Finding(**{name: said[name] for name in Finding._fields if name in said})
        device = self.devices[int(record.fields["device"])]
        made = [
            one
            for one in self.submissions.values()
            if one.record < record.index
            and one.device.key == device.name
            and any(command.get("kernel") == found.kernel for command in one.all_commands())
        ]
        running = [one for one in made if one.finished_ns is None or one.finished_ns >= record.time_ns]
        likely = running[0] if running else made[-1] if made else None
        found = found._replace(device=device.name)
        if likely is None:
            return found
        return found._replace(queue=likely.queue, submission=likely.value, site=likely.site)

    def _open(self, record: Record) -> None:
        number = int(record.fields["device"])
        device = next(d for d in self.trace.devices if d.process == self.process and d.number == number)
        model = model_of(device.name, device.arch, device.facts, device.decode)

        def finished(value: int) -> bool:
            made = self.sent.get((number, value))
            return made is None or made.finished_ns is None or made.finished_ns < self.now_ns

        timeline = int(device.facts.get("timeline", 0))
        self.devices[number] = DeviceState(device.key, model, timeline, finished)

    def _submit(self, made: Submission) -> Iterator[Finding]:
        if made.dropped:
            return
        device = self.devices[made.device.number]
        submission = SubmissionCheck(self.state, device, made.queue, made.value, made.site)
        submission.arguments = [
            (command["entry"], tuple(_buffers(command)))
            for command in made.all_commands()
            if command["verb"] == "dispatch"
        ]
        images = {image.va: image for image in made.blocks}

        def read_block(va: int, size_bytes: int) -> bytes:
            for start, image in images.items():
                if start <= va < start + 4 * len(image.words):  # a part of it, perhaps
                    at = (va - start) // 4
                    words = image.words[at : at + size_bytes // 4]
                    return b"".join(word.to_bytes(4, "little") for word in words)
            return b""

        labels = [image.label for image in images.values()]
        words = b"".join(word.to_bytes(4, "little") for word in made.words)
        yield from examine(
            submission, [words], read_block, labels[0] if len(labels) == 1 else "a block", ends=True
        )
        submission.commit()


def _buffers(command: dict[str, Any]) -> Iterator[Argument]:
    """The buffers of a dispatch; a pointer to nothing is none."""
    for number, arg in enumerate(command["args"]):
        if arg["kind"] == "buffer" and arg["value"]:
            yield Argument(number, "buffer", arg["value"])
