"""Replay of a capsule of a Metal device: the packets of somebody's hang, one after the other, on emulated shader cores.

In       a Trace that metal_capsule.py made
Out      Stand: at which packet the work stands, and whether that is the one of the report
Changes  nothing: memory is made for this
Next     capsule_replay.py (AMD's, and who calls), metal_capsule.py (who made the trace), capsule_stand.py (the
         outcome), hcq/emu/metal/shader/program.py (what runs a kernel)

Signals hold what they held, and the text of kernels is there; of memory the contents are unknown: it reads as zeros
until something writes it. Kernels are interpreted, line by line, and one that does not end in its budget of lines
counts as one that hangs. Packets before the marked one that cannot be done here are passed over.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hcq.emu.metal.shader.errors import KernelFault, MslError
from hcq.emu.metal.shader.parser import parse
from hcq.emu.metal.shader.program import Binding, Program
from hcq.emu.metal.shader.standing import at_fault
from hcq.emu.metal.spec import CHIPS
from hcq.errors import UsageError
from hcq.metal import packets
from hcq.metal.program import parameters_of
from hcq.tools.trace.capsule_records import UNKNOWN
from hcq.tools.trace.capsule_stand import Stand
from hcq.tools.trace.metal_capsule import Place, places
from hcq.trace.file import Trace, TraceDevice
from hcq.trace.records import Kind

MAX_UNKNOWN_BYTES = 1 << 28
LINES = 1 << 16  # of what a kernel was translated to
NO_TEXT = "it launches a kernel, whose text is not in the report"


class _Refused(Exception):
    """A packet that cannot be done here."""


def replay(trace: Trace, device: TraceDevice, on: str) -> Stand:
    """Run the packets of a capsule. on: an emulated GPU. Raises UsageError for one that is not."""
    wanted = on.lower().removeprefix("metal:")
    if wanted and wanted not in CHIPS:
        raise UsageError(f"replay: no {wanted} is emulated by Metal. Emulated are {', '.join(CHIPS)}.")
    return _Run(trace, device).run()


class _Run:
    def __init__(self, trace: Trace, device: TraceDevice) -> None:
        self.trace, self.arch = trace, device.arch
        about = device.facts["capsule"]
        mark = next(one.fields for one in trace.faults if "submission" in one.fields)
        block = mark["block"]
        self.mark = int(mark["word"]), None if block is None else int(block), int(mark["block_word"])
        self.values = {int(va): int(low) | int(high) << 32 for va, low, high in about["signals"]}
        self.texts = {int(va): _text([int(one) for one in words]) for va, words in about["code"]}
        self.programs: dict[int, Program] = {}
        self.blocks = {
            int(record.fields["va"]): list(
                trace.block(device, int(record.fields["va"]), len(trace.records)).words
            )
            for record in trace.records
            if record.kind == Kind.BLOCK
        }
        self.memory: list[tuple[int, NDArray[np.uint8]]] = []
        self.unknown_bytes = self.done = 0
        self.passed: list[str] = []
        self.assumed = ""
        for one in trace.memory_at(trace.records[-1]).ranges:
            if one.name.startswith(UNKNOWN) and self.unknown_bytes + one.size_bytes <= MAX_UNKNOWN_BYTES:
                self.memory.append((one.start, np.zeros(one.size_bytes, np.uint8)))
                self.unknown_bytes += one.size_bytes

    def run(self) -> Stand:
        """All submissions, one after the other, until one stops."""
        stood: tuple[Place | None, bool] = None, False
        why = "everything was done"
        for number, submission in enumerate(self.trace.submissions):
            is_before = number == 0
            for place in places(submission.words, self.blocks):
                is_mark = number == 0 and (place.word, place.block, place.block_word) == self.mark
                is_before = is_before and not is_mark
                try:
                    self._do(place, is_mark)
                    self.done += 1
                except _Refused as refusal:
                    if is_before:
                        self.passed.append(f"{type(place.packet).__name__}: {refusal}")
                        continue
                    stood, why = (place, is_mark), str(refusal)
                    break
            if stood[0] is not None:
                break
        at, is_same = stood
        return Stand(
            word=0 if at is None else at.word,
            block=None if at is None else at.block,
            block_word=0 if at is None else at.block_word,
            packet="" if at is None else repr(at.packet)[:240],
            is_same=is_same,
            why=why,
            done=self.done,
            passed=self.passed,
            unknown_bytes=self.unknown_bytes,
            arch=self.arch,
            assumed=self.assumed,
        )

    # ------------------------------------------------------------ packets

    def _do(self, place: Place, is_mark: bool) -> None:
        packet = place.packet
        match packet:
            case packets.EncodeWaitForEvent():
                self._wait(packet, is_mark)
            case packets.EncodeSignalEvent():
                self.values[packet.signal] = max(packet.value, self.values.get(packet.signal, 0))
            case packets.CopyFromBuffer():
                data = self._bytes(packet.src, packet.size_bytes).copy()
                self._bytes(packet.dst, packet.size_bytes)[:] = data
            case packets.FillBuffer():
                pattern = np.frombuffer(packet.pattern.to_bytes(8, "little"), np.uint8)
                self._bytes(packet.dst, packet.size_bytes)[:] = np.resize(pattern, packet.size_bytes)
            case packets.DispatchThreadgroups():
                self._launch(packet)
            case packets.Barrier() | packets.GpuEndTime():
                return
            case _:
                raise _Refused(
                    "it is no packet that can be done, or the block that it runs is not in the report"
                )

    def _wait(self, packet: packets.EncodeWaitForEvent, is_mark: bool) -> None:
        value = self.values.get(packet.signal)
        if value is None and is_mark:
            self.assumed = (
                f"the signal at {packet.signal:#x} is not in the report; it is taken not to have come so far"
            )
        if (value or 0) < packet.value:
            raise _Refused("it waits, and nothing here ends that")

    def _bytes(self, va: int, size_bytes: int) -> NDArray[np.uint8]:
        """Memory from an address on. size_bytes: how much; 0: to the end of what is known there."""
        for start, data in self.memory:
            if start <= va and va + max(size_bytes, 1) <= start + len(data):
                return data[va - start : va - start + size_bytes if size_bytes else None]
        raise _Refused(f"the memory at {va:#x} is not in the report")

    # ------------------------------------------------------------ kernels

    def _launch(self, packet: packets.DispatchThreadgroups) -> None:
        entry, text = self.texts.get(packet.pipeline, ("", ""))
        if not text:
            raise _Refused(NO_TEXT)
        try:
            program = self._program(packet.pipeline, entry, text)
            parameters = parameters_of(text, entry, entry)
        except (MslError, UsageError) as error:
            raise _Refused(f"the text of kernel {entry} cannot be run: {error}") from None
        data = b"".join(int(word).to_bytes(4, "little") for word in packet.tail_words)
        bindings: dict[int, Binding] = {}
        at = 0
        for one in parameters:
            given = data[at : at + one.size_bytes]
            at += -(-one.size_bytes // 4) * 4
            if len(given) < one.size_bytes:
                raise _Refused(f"its arguments have {len(data)} bytes; kernel {entry} takes more")
            bindings[one.place] = self._bytes(int.from_bytes(given, "little"), 0) if one.is_buffer else given
        grid = packet.grid_x, packet.grid_y, packet.grid_z
        block = packet.block_x, packet.block_y, packet.block_z
        if not all(grid) or not all(block):
            raise _Refused(f"a launch of {grid} threadgroups of {block} threads")
        try:
            with _budget(program):
                program.interpret(grid, block, bindings)
        except KernelFault as fault:
            line = fault.line or at_fault(program, fault.__traceback__)[1]
            where = f" at MSL line {line} `{program.source.line(line)}`" if line else ""
            raise _Refused(f"kernel {entry}{where}: {fault}") from None

    def _program(self, pipeline: int, entry: str, text: str) -> Program:
        if pipeline not in self.programs:
            read = parse(text)
            if entry not in read.kernels:
                raise MslError(f"it has no kernel {entry}")
            self.programs[pipeline] = Program(read, read.kernels[entry], "interpreted")
        return self.programs[pipeline]


@contextmanager
def _budget(program: Program) -> Iterator[None]:
    """So many lines, then KernelFault."""
    left = LINES

    def line(frame: FrameType, event: str, value: Any) -> Any:
        nonlocal left
        left -= event == "line"
        if left < 0:
            raise KernelFault(f"{LINES} lines of its translation were not enough. Is the loop endless?")
        return line

    before = sys.gettrace()
    sys.settrace(lambda frame, event, value: line if frame.f_code.co_filename == program.file_name else None)
    try:
        yield
    finally:
        sys.settrace(before)


def _text(words: list[int]) -> tuple[str, str]:
    """The name of a kernel and its text."""
    data = b"".join(word.to_bytes(4, "little") for word in words).rstrip(b"\0")
    entry, _, text = data.partition(b"\0")
    return entry.decode("utf-8", "replace"), text.decode("utf-8", "replace")
