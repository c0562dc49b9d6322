"""NVIDIA GPUs for the rules: what their methods do, what they promise, and a rule of their own.

In       words as encode.py makes them, or those of a trace; the device's arch and facts
Out      NvModel
Next     hcq/rules/effects.py (what a model declares), hcq/rules/ (the rules), hcq/rules/examine.py (who runs them)

A method's meaning is spread over those before it, so words are read from their start with the state of each subchannel.
Launches take their data in the order in which both stand in the words: that is how pieces and blocks are laid out.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from hcq.errors import UsageError
from hcq.layout import Packet
from hcq.nv.abi import compute_methods as compute
from hcq.nv.abi import copy_methods as copy
from hcq.nv.abi import host_methods as host
from hcq.nv.abi.host_methods import SemExecuteOperation
from hcq.nv.abi.method import Method
from hcq.nv.abi.methods import COMPUTE_SUBCHANNEL, COPY_SUBCHANNEL, HOST_END, Push, SecOp
from hcq.nv.abi.qmd import ALIGNMENT_BYTES, Qmd
from hcq.nv.bundle import Bundle
from hcq.nv.chip import CHIPS, RESERVED_SHARED_BYTES
from hcq.nv.decode import LaunchData, RunBlock, decoder
from hcq.nv.encode import Piece
from hcq.nv.link import Kernel, Linked
from hcq.nv.program import MAX_BLOCK, MAX_GRID
from hcq.rules.effects import (
    Access,
    Argument,
    Barrier,
    Copy,
    Effect,
    Fill,
    Launch,
    Limits,
    Model,
    ProgramFacts,
    Programs,
    Run,
    Signal,
    Step,
    Wait,
)
from hcq.rules.rule import Check, Violation, rule
from hcq.rules.submission_check import SubmissionCheck
from hcq.signal import CELL_BYTES

POINTER_BYTES = 8
LAUNCH_DATA = rule(
    "nv-launch-data",
    "A QMD has the version that its GPU reads, and its constant bank 0 agrees with it.",
    "Let hcq.nv.launch make the launch data.",
)
STAMP_BYTES = 8
COPY_QUEUE = "copy"
LAUNCH = COMPUTE_SUBCHANNEL, compute.SendSignalingPcas2B.at

STORED = -1, 0  # among the registers: where the last plain store of a semaphore went
Registers = dict[tuple[int, int], int]  # (subchannel, address) -> the last word written there


class LaunchRead(NamedTuple):
    """An effect of this kind alone: a launch will read these data."""

    data: LaunchData


def _address(channel: int, upper: Any, lower: Any, registers: Registers) -> int | None:
    """The address that two methods have said; None when one of them has not been sent."""
    high, low = registers.get((channel, upper.at)), registers.get((channel, lower.at))
    return None if high is None or low is None else high << 32 | low


def _agree(submission: SubmissionCheck, effect: Any) -> Iterator[Violation]:
    """The QMD and its constant bank say the same."""
    data: LaunchData = effect.data
    qmd, bank = data.qmd, data.bank0
    if qmd.value("qmd_major_version") != qmd.version:
        found = qmd.value("qmd_major_version")
        yield Violation(
            LAUNCH_DATA, f"its QMD says it is version {found}, and this GPU reads version {qmd.version}"
        )
        return
    size = qmd.value("constant_buffer_size_0")
    if not qmd.value("constant_buffer_valid_0") or size > 4 * len(data.constants):
        held = 4 * len(data.constants)
        yield Violation(
            LAUNCH_DATA, f"its constant bank 0 is {size} bytes of the {held} there are, or not valid"
        )
    for name, prefix, known in (("grid", "nctaid", _grid(qmd)), ("block", "ntid", _block(qmd))):
        said = tuple(bank.values[f"{prefix}_{axis}"] for axis in "xyz")
        if said != known:
            yield Violation(LAUNCH_DATA, f"its {name} is {known} in the QMD and {said} in constant bank 0")


def _grid(qmd: Qmd) -> tuple[int, int, int]:
    return qmd.value("grid_width"), qmd.value("grid_height"), qmd.value("grid_depth")


def _block(qmd: Qmd) -> tuple[int, int, int]:
    return (
        qmd.value("cta_thread_dimension0"),
        qmd.value("cta_thread_dimension1"),
        qmd.value("cta_thread_dimension2"),
    )


# what a transfer needs to have been told, without and with remapping
_TARGET = (copy.OffsetOutUpper, copy.OffsetOutLower, copy.LineLengthIn)
PLACES = ((copy.OffsetInUpper, copy.OffsetInLower, *_TARGET), (*_TARGET, copy.SetRemapComponents))


class NvModel(Model):
    """One channel. Launches may overlap until a WFI; a copy is finished when its semaphore was awaited."""

    signal_bytes = CELL_BYTES
    signal_alignment = CELL_BYTES
    checks: Mapping[type, tuple[Check, ...]] = {LaunchRead: (_agree,)}

    def __init__(self, arch: str, facts: Mapping[str, Any] | None = None) -> None:
        super().__init__(arch, facts)
        self.chip = CHIPS[arch]
        self.limits = Limits(
            grid=MAX_GRID,
            block=MAX_BLOCK,
            threads=self.chip.max_block,
            shared_bytes=self.chip.max_shared_bytes + RESERVED_SHARED_BYTES,
            registers=255,
        )
        self._decode = decoder(arch)
        self._kernels: dict[int, Kernel] = {}
        # "order": in older traces
        self.copy_fence_va = int(self.facts.get("copy_fence", self.facts.get("order", 0)))
        self.stamp_va = int(self.facts.get("stamp", 0))
        self._own_cells = (self.copy_fence_va, self.stamp_va, int(self.facts.get("lane_fence", 0)))
        # how a foreign program's host sets its semaphores back nobody has seen: values prove nothing
        self.is_foreign = bool(self.facts.get("foreign"))

    def decode(self, words: Sequence[int], queue: str) -> list[Packet]:
        return self._decode(words)

    def lanes(self, words: Sequence[bytes]) -> Sequence[tuple[str, Sequence[tuple[int, bytes]]]]:
        """What goes to the copy channel is a queue of its own: the notes of blocks say which."""
        found: dict[str, list[tuple[int, bytes]]] = {"": []}
        at = 0
        for blob in words:
            is_trace = len(words) == 1 and not isinstance(blob, Piece)
            for part in self._parts(blob) if is_trace else (blob,):
                is_free = isinstance(part, Piece) and part.is_free
                found.setdefault(COPY_QUEUE if is_free else "", []).append((at, part))
                at += len(part) // 4
        return list(found.items())

    def _parts(self, words: bytes) -> Iterator[bytes]:
        """The words of a whole submission, cut before and behind the notes of blocks on the copy channel."""
        start = at = 0
        for packet in self.decode(memoryview(bytes(words)).cast("I"), ""):
            end = at + len(packet.words)
            if isinstance(packet, RunBlock) and packet.is_free:
                if start < at:
                    yield words[4 * start : 4 * at]
                part = Piece(words[4 * at : 4 * end])
                part.is_free = True
                yield part
                start = end
            at = end
        if start < at or not words:
            yield words[4 * start :]

    def malformed(self, packet: Packet) -> tuple[str, str] | None:
        if not isinstance(packet, Push):
            return "packet-unknown", f"{packet!r} is read by nobody"
        if packet.missing:
            return (
                "packet-length",
                f"its header counts {packet.count} words, and {packet.missing} are missing",
            )
        unknown = packet.unknown_address
        if unknown is None:
            return None
        return "packet-unknown", f"the class of subchannel {packet.subchannel} has no method {unknown:#06x}"

    def own_steps(self, words: bytes, ring: str) -> list[Step]:
        """A launch of a program's own reads its QMD in memory, and not from beside the words."""
        found = []
        for step in super().own_steps(words, ring):
            packet = step.packet
            writes = (
                packet.writes()
                if isinstance(packet, Push) and packet.subchannel == COMPUTE_SUBCHANNEL
                else ()
            )
            reads = [
                Access(word << 8, ALIGNMENT_BYTES, False, "QMD")
                for at, word in writes
                if at == compute.SendPcasA.at
            ]
            found.append(step._replace(effects=[*step.effects, *reads]))
        return found

    def own_fault(self, packet: Packet, ring: str) -> str:
        if isinstance(packet, Push):
            if packet.sec_op == SecOp.END_PB_SEGMENT:
                return "it ends the segment, and what ends the submission stands behind it"
            at = packet.method_address
            if (
                ring == COPY_QUEUE
                and at >= HOST_END
                and packet.subchannel != COPY_SUBCHANNEL
                and packet.writes()
            ):
                return (
                    f"it is for subchannel {packet.subchannel}, and the copy engine is on subchannel "
                    f"{COPY_SUBCHANNEL}; with ring='compute' the channel takes all"
                )
        return super().own_fault(packet, ring)

    def own_name(self, packet: Packet) -> str:
        if isinstance(packet, Push) and packet.methods:
            return "+".join(dict.fromkeys(written.method.vendor for written in packet.methods))
        return super().own_name(packet)

    def program(self, facts: ProgramFacts, image: bytes) -> ProgramFacts:
        """Registers, shared memory and parameters, as the code object says."""
        try:
            kernel = Linked(Bundle.of(image), facts.name, self.chip, facts.name).kernel
        except UsageError:  # a program may go by another name than its entry
            return facts
        self._kernels[facts.entry] = kernel
        x, y, z = kernel.required_block or (0, 0, 0)
        return replace(
            facts,
            block=(x, y, z) if x else facts.block,
            threads=kernel.largest_block or facts.threads,
            shared_bytes=self.chip.shared_bytes(kernel.static_shared, 0),
            registers=kernel.registers,
            argument_bytes=kernel.param_bytes,
        )

    def steps(self, words: bytes, queue: str, programs: Programs) -> list[Step]:
        found: list[Step] = []
        registers: Registers = {}
        pending: list[LaunchData] = []
        at = 0
        for packet in self.decode(memoryview(bytes(words)).cast("I"), queue):
            does: list[Effect] = []
            if isinstance(packet, LaunchData):
                pending.append(packet)
                does.append(LaunchRead(packet))  # type: ignore[arg-type]
            elif isinstance(packet, RunBlock):
                does.append(Run(packet.entry.get, packet.entry.length))
            elif isinstance(packet, Push):
                for address, word in packet.writes():
                    # semaphores and WFI are the host's on every subchannel
                    channel = 0 if address < HOST_END else packet.subchannel
                    registers[channel, address] = word
                    does += self._effects(channel, address, word, registers)
                    if (channel, address) == LAUNCH and pending:
                        does.append(self._launch(pending.pop(0), programs))
            found.append(Step(at, packet, does))
            at += len(packet.words)
        return found

    def _effects(self, channel: int, address: int, word: int, registers: Registers) -> Iterator[Effect]:
        if not channel and address == host.SemExecute.at:
            yield from self._semaphore(host.SemExecute.decode([word]), registers)
        elif not channel and address == host.Wfi.at:
            yield Barrier()
        elif channel == COPY_SUBCHANNEL and address == copy.LaunchDma.at:
            launch = copy.LaunchDma.decode([word])
            yield from self._copy(launch, registers)
            if launch.semaphore_type and not self.is_foreign:
                yield from self._cell(channel, copy.SetSemaphoreA, copy.SetSemaphoreB, registers)
        elif channel and not self.is_foreign:
            yield from self._others(channel, address, word, registers)
        elif not self.is_foreign and address == host.Semaphored.at:
            yield from self._cell(channel, host.Semaphorea, host.Semaphoreb, registers)

    def _others(self, channel: int, address: int, word: int, registers: Registers) -> Iterator[Effect]:
        """What methods of the compute class write, beside the launch."""
        if channel != COMPUTE_SUBCHANNEL:
            return
        places: tuple[Any, Any]
        if address == compute.ReportSemaphoreExecute.at:
            places = compute.SetReportSemaphoreAddressUpper, compute.SetReportSemaphoreAddressLower
            yield from self._cell(channel, *places, registers)
        elif address == compute.SetReportSemaphoreD.at:
            places = compute.SetReportSemaphoreA, compute.SetReportSemaphoreB
            yield from self._cell(channel, *places, registers)
        elif address == compute.Notify.at:
            yield from self._cell(channel, compute.SetNotifyA, compute.SetNotifyB, registers)
        elif address == compute.LaunchDma.at:
            launch = compute.LaunchDma.decode([word])
            va = _address(channel, compute.OffsetOutUpper, compute.OffsetOut, registers)
            length = registers.get((channel, compute.LineLengthIn.at), 0)
            if va is not None:
                yield Access(va, length, True, "destination", in_turn=True)
                below = registers.get((channel, compute.LineCount.at), 1) - 1
                if below > 0:
                    last = va + below * registers.get((channel, compute.PitchOut.at), 0)
                    yield Access(last, length, True, "destination of the last line", in_turn=True)
            if launch.completion_type == compute.CompletionType.RELEASE_SEMAPHORE:
                yield from self._cell(channel, compute.SetI2mSemaphoreA, compute.SetI2mSemaphoreB, registers)

    def _cell(self, channel: int, upper: Any, lower: Any, registers: Registers) -> Iterator[Effect]:
        """A semaphore or notification that two methods name; without them it is where an earlier submission said."""
        va = _address(channel, upper, lower, registers)
        if va is not None and va not in self._own_cells:
            yield Access(va, 4, True, "semaphore", alignment=4, in_turn=True)

    def _semaphore(self, execute: Method, registers: Registers) -> Iterator[Effect]:
        va = registers.get((0, host.SemAddrHi.at), 0) << 32 | registers.get((0, host.SemAddrLo.at), 0)
        value = registers.get((0, host.SemPayloadLo.at), 0)
        if execute.payload_size:
            value |= registers.get((0, host.SemPayloadHi.at), 0) << 32
        is_release = execute.operation == SemExecuteOperation.RELEASE
        if is_release and execute.release_wfi:
            yield Barrier()
        if self.is_foreign or va in self._own_cells:
            if not is_release:
                yield Barrier()  # the copy before it has ended
        elif is_release and not execute.release_timestamp:
            # no signal of ours: memory that a kernel is to find so, and the front end waits until it is
            registers[STORED] = va
            size = 8 if execute.payload_size else 4
            yield Access(va, size, True, "store", alignment=size)
        elif is_release:
            yield Signal(va, value)
        elif registers.get(STORED) == va and execute.operation == SemExecuteOperation.ACQUIRE:
            yield Barrier()
        elif execute.operation == SemExecuteOperation.REDUCTION:
            size = 8 if execute.payload_size else 4
            yield Access(va, size, True, "semaphore", alignment=size, in_turn=True)
        else:
            yield Wait(va, value)

    def _copy(self, launch: Method, registers: Registers) -> Iterator[Effect]:
        def known(method: Any) -> int:
            return registers.get((COPY_SUBCHANNEL, method.at), 0)

        if not launch.data_transfer_type or any(
            (COPY_SUBCHANNEL, method.at) not in registers for method in PLACES[bool(launch.remap_enable)]
        ):
            return  # with what an earlier submission has set, a foreign program's copy may go anywhere
        count = known(copy.LineLengthIn)
        dst = known(copy.OffsetOutUpper) << 32 | known(copy.OffsetOutLower)
        if launch.remap_enable:
            made = copy.SetRemapComponents.decode([known(copy.SetRemapComponents)])
            yield Fill(dst, count * (made.component_size + 1) * (made.num_dst_components + 1))
            return
        src = known(copy.OffsetInUpper) << 32 | known(copy.OffsetInLower)
        if src == self.stamp_va + STAMP_BYTES and count == STAMP_BYTES:
            yield Access(dst, STAMP_BYTES, True, "timestamp", alignment=STAMP_BYTES)
            return
        yield Copy(dst, src, count)
        below = known(copy.LineCount) - 1
        if launch.multi_line_enable and below > 0 and launch.src_memory_layout and launch.dst_memory_layout:
            yield Access(src + below * known(copy.PitchIn), count, False, "source's last line", in_turn=True)
            last = dst + below * known(copy.PitchOut)
            yield Access(last, count, True, "destination of the last line", in_turn=True)

    def _launch(self, data: LaunchData, programs: Programs) -> Launch:
        qmd = data.qmd
        entry = qmd.value("program_address")
        facts, kernel = programs.get(entry), self._kernels.get(entry)
        arguments: list[Argument] = []
        if facts is not None and facts.args is not None and kernel is not None:
            held = b"".join(word.to_bytes(4, "little") for word in data.constants)
            for index, (kind, one) in enumerate(zip(facts.args, kernel.parameters)):
                at = kernel.param_base + one.offset
                # a tensor map, which may stand for a buffer, begins with its address
                size = min(one.size_bytes, POINTER_BYTES) if kind == "buffer" else one.size_bytes
                value = int.from_bytes(held[at : at + size], "little")
                access = facts.access[index] if facts.access is not None else ""
                arguments.append(Argument(index, kind, value, access))
        size = qmd.value("constant_buffer_size_0")
        is_short = kernel is not None and size < kernel.param_base + kernel.param_bytes
        return Launch(
            entry=entry,
            grid=_grid(qmd),
            block=_block(qmd),
            arguments=tuple(arguments),
            shared_bytes=qmd.value("shared_memory_size"),
            registers=qmd.value("register_count"),
            argument_bytes=max(size - kernel.param_base, 0) if kernel is not None and is_short else None,
        )
