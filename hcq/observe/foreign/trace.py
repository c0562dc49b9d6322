"""HCQ_TRACE for a foreign program: writes its submissions in the same records as our devices.

In       what a ForeignDevice notifies its observers of
Out      records
Changes  the file
Next     hcq/observe/trace.py (the sister), hcq/trace/records.py (every byte), docs/trace-format.md

A submission is in the file before the GPU reads its packets. Its value is its number on the device: the program's own
signals are in its packets. Its times are when the GPU came to its first packet and when it was done with the last.
"""

from __future__ import annotations

import errno
import os
import struct
import time
from collections.abc import Mapping, Sequence
from typing import Any

from hcq.command import Command, Dispatch
from hcq.events.foreign_devices import (
    ForeignBlock,
    ForeignBuffer,
    ForeignDevice,
    ForeignObserver,
    ForeignProgram,
    ForeignSubmission,
)
from hcq.events.kernel_observer import Call, GpuFault
from hcq.observe.trace_writer import TraceWriter
from hcq.performance.counters import Counters
from hcq.trace import calls
from hcq.trace.records import Alloc, Block, Free, Kind, Submit, Times, pack_commands, pack_record, packing

MAX_IMAGE_BYTES = 4 << 20  # of a code object; libraries have larger ones, with thousands of kernels


class ForeignTrace(ForeignObserver):
    """What one device adds to the file. number: of the device, among those of its process."""

    def __init__(self, device: ForeignDevice, writer: TraceWriter, number: int) -> None:
        self.device, self.writer, self.number = device, writer, number
        self._blocks: dict[int, bytes] = {}  # va -> words, as last written down

    def opened(self) -> None:
        device = self.device
        facts = {"device": self.number, "name": device.name, "arch": device.arch, "facts": device.facts()}
        self.writer.record(Kind.DEVICE, facts)
        self.writer.flush()

    def closed(self) -> None:
        self.writer.record(Kind.CLOSE, {"device": self.number, "submitted": self.device.submitted})
        self.writer.flush()

    def called(self, call: Call) -> None:
        fields: dict[str, Any] = {
            "device": self.number,
            "call": "ioctl",
            "path": call.path,
            "arguments": [call.fd, call.request],
            "argument_bytes": len(call.before),
        }
        if call.error:
            name = errno.errorcode.get(call.error, str(call.error))
            fields.update(error=f"{name} ({os.strerror(call.error)})", errno=call.error)
        else:
            fields["result"] = 0
        data = calls.pack(fields, call.before, call.after, call.nested)
        self.writer.record(Kind.PORT, fields, data)

    # ------------------------------------------------------------ memory and code

    def alloc(self, buffer: ForeignBuffer) -> None:
        name = self.writer.intern(buffer.name)
        size = buffer.size_bytes
        head = Alloc(device=self.number, name=name, va=buffer.va, size_bytes=size, capacity_bytes=size)
        self._later(Kind.ALLOC, head.to_bytes())

    def free(self, buffer: ForeignBuffer) -> None:
        head = Free(device=self.number, va=buffer.va, capacity_bytes=buffer.size_bytes)
        self._later(Kind.FREE, head.to_bytes())

    def renamed(self, buffer: ForeignBuffer) -> None:
        self.writer.record(Kind.NAME, {"device": self.number, "va": buffer.va, "name": buffer.name})

    def load(self, program: ForeignProgram) -> None:
        fields = {
            "device": self.number,
            "name": program.name,
            "entry": program.symbol,
            "va": program.entry,
            "args": program.args,
            "scratch_bytes": program.scratch_bytes,
            "facts": self._code_facts(program),
        }
        image = program.image if len(program.image) <= MAX_IMAGE_BYTES else b""
        self.writer.record(Kind.CODE, fields, image)

    def _code_facts(self, program: ForeignProgram) -> dict[str, Any]:
        if not program.is_found:
            return {"found": False}
        left_out = len(program.image) > MAX_IMAGE_BYTES
        return {"object_bytes": len(program.image), "left_out": True} if left_out else {}

    def unload(self, program: ForeignProgram) -> None:
        self.writer.record(Kind.UNLOAD, {"device": self.number, "va": program.entry})

    # ------------------------------------------------------------ submissions

    def submitting(self, made: ForeignSubmission) -> None:
        writer = self.writer
        self._write_blocks(made.blocks)
        _set_packing(made.commands)
        head = Submit(
            device=self.number,
            queue=writer.intern(made.queue),
            value=made.value,
            site=0,
            thread=0,
            size_words=len(made.words) // 4,
            commands=len(made.commands),
        )
        packed = pack_commands(made.commands, writer.intern)
        data = head.to_bytes() + made.words + packed
        writer.flush(pack_record(Kind.SUBMIT, writer.process, made.taken_ns, b"", data))

    def _write_blocks(self, blocks: Sequence[ForeignBlock]) -> None:
        writer = self.writer
        for block in blocks:
            if self._blocks.get(block.va) != block.words:
                self._blocks[block.va] = block.words
                _set_packing(block.commands)
                head = Block(
                    device=self.number,
                    label=writer.intern(block.label),
                    va=block.va,
                    commands=len(block.commands),
                    size_words=len(block.words) // 4,
                )
                packed = pack_commands(block.commands, writer.intern)
                self._later(Kind.BLOCK, head.to_bytes() + packed + block.words)

    def finished(self, made: ForeignSubmission) -> None:
        head = Times(device=self.number, entries_count=1).to_bytes()
        data = struct.pack("<3Q", made.value, made.started_ns, made.finished_ns)
        self._later(Kind.TIMES, head + data)

    def counted(self, made: Counters) -> None:
        self.writer.record(Kind.COUNTERS, {"device": self.number, "counters": made.as_fields()})

    def found(self, fields: Mapping[str, Any]) -> None:
        self.writer.record(Kind.FINDING, {"device": self.number, "finding": fields})
        self.writer.flush()

    def fault(self, fault: GpuFault, at: ForeignSubmission | None, program: ForeignProgram | None) -> None:
        facts = {} if at is None else {"first": at.value, "last": at.value}
        line = program.locate(fault.pc) if program is not None and fault.pc else ""
        why = fault.why + (f" [{line}]" if line else "")
        fields = {"device": self.number, "what": fault.what, "why": why, "pc": fault.pc, **facts}
        self.writer.record(Kind.FAULT, fields)
        self.writer.flush()

    def _later(self, kind: Kind, data: bytes) -> None:
        writer = self.writer
        writer.later(pack_record(kind, writer.process, time.monotonic_ns(), b"", data))


def _set_packing(commands: Sequence[Command]) -> None:
    """Every program of these launches knows how its arguments are packed."""
    for what in commands:
        if isinstance(what, Dispatch) and what.program.packed is None:
            assert isinstance(what.program, ForeignProgram)
            what.program.packed = packing(what.program.letters)
