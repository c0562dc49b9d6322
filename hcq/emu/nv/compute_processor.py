"""The compute engine of a channel: windows and local memory, small uploads, launches, semaphores, cache invalidations.

In       methods of a compute class
Out      grids run through the shader; memory written; semaphores released
Changes  memory, the shader's caches
Next     launch.py (a launch), hcq/nv/abi/compute_methods.py (the declarations), semaphores.py (what a release stores)
Source   clc6c0.h to clcec0.h, clc6c0qmd.h to clcec0qmd.h

A launch is SEND_PCAS_A with the address of a QMD, then SEND_SIGNALING_PCAS2_B with what to do with it. Launches of a
channel are not ordered among each other: WAIT_FOR_IDLE, a semaphore or a dependent QMD orders them.
"""

from __future__ import annotations

import functools
from typing import Any

from hcq.emu.nv import semaphores
from hcq.emu.nv.channel import Channel
from hcq.emu.nv.engine import Engine, on
from hcq.emu.nv.errors import ChannelError, ClassError, LaunchError
from hcq.emu.nv.launch import Shader, Windows
from hcq.emu.nv.launch_plans import BEHIND, Split
from hcq.nv.abi import compute_methods as compute
from hcq.nv.abi.compute_methods import PcasAction, StructureSize
from hcq.nv.abi.qmd import ALIGNMENT_BYTES, DependentAction, Qmd, qmd_for

FRONT = "GRAPHICS HUBCLIENT_FE"
SCHEDULER = "GRAPHICS HUBCLIENT_SKED"
COPIES = frozenset(
    {
        PcasAction.INVALIDATE_COPY_SCHEDULE,
        PcasAction.INVALIDATE_PREFETCH_COPY_SCHEDULE,
        PcasAction.INVALIDATE_PREFETCH_COPY_FORCE_REQUIRE_SCHEDULING,
    }
)
SCHEDULES = COPIES | {PcasAction.SCHEDULE, PcasAction.PREFETCH_SCHEDULE}
HARMLESS = frozenset({PcasAction.NOP, PcasAction.INVALIDATE, PcasAction.PREFETCH})
RELEASES = range(3)
PAYLOAD_BYTES = {
    StructureSize.SEMAPHORE_ONE_WORD: 4,
    StructureSize.SEMAPHORE_TWO_WORDS: 8,
    StructureSize.SEMAPHORE_FOUR_WORDS: 4,
}
OF_WINDOWS = (
    compute.SetShaderSharedMemoryWindowA, compute.SetShaderSharedMemoryWindowB, compute.SetShaderLocalMemoryWindowA,
    compute.SetShaderLocalMemoryWindowB, compute.SetShaderLocalMemoryA, compute.SetShaderLocalMemoryB,
    compute.SetShaderLocalMemoryNonThrottledA, compute.SetShaderLocalMemoryNonThrottledB,
    compute.SetShaderLocalMemoryNonThrottledC,
)  # fmt: skip
WINDOWS_AT = tuple(method.at for method in OF_WINDOWS)
MAX_CHAIN = 1 << 16  # dependent launches behind one another: more is a circle
REDUCTIONS = ("ADD", "MIN", "MAX", "INC", "DEC", "AND", "OR", "XOR")


@functools.lru_cache(1 << 10)
def _decoded(class_id: int, words: tuple[int, ...]) -> tuple[Qmd, bool]:
    """A QMD, and whether it is alone, as Split says."""
    found = qmd_for(class_id).decode(words)
    return found, not any(found.value(name) for name in BEHIND)


@functools.cache
def _bank_words(class_id: int) -> tuple[str, int, int, int, int]:
    """The field of a QMD with the address of constant bank 0: its name, first word, bits there, first bit, unit."""
    kind = qmd_for(class_id)
    name = kind.renamed.get("constant_buffer_addr_0", "constant_buffer_addr_0")
    field = kind.fields[name]
    first = field.low // 32
    return name, first, field.mask >> 32 * first, field.low - 32 * first, field.unit


def _split(class_id: int, words: list[int]) -> Split:
    """A QMD, and what it has in common with those that differ in the address of constant bank 0 alone."""
    name, first, bits, low, unit = _bank_words(class_id)
    count = -(-bits.bit_length() // 32)
    packed = sum(words[first + number] << 32 * number for number in range(count))
    rest = packed & ~bits
    for number in range(count):
        words[first + number] = rest >> 32 * number & 0xFFFFFFFF
    common, is_alone = _decoded(class_id, tuple(words))
    whole = object.__new__(type(common))
    whole.__dict__.update(common.__dict__)
    whole.values = {**common.values, name: ((packed & bits) >> low) * unit}
    return Split(common, whole, is_alone)


class ComputeProcessor(Engine):
    """The compute engine as one channel sees it."""

    def __init__(self, channel: Channel, class_id: int, shader: Shader) -> None:
        super().__init__(channel, class_id)
        self.qmd = qmd_for(class_id)
        self.shader = shader
        self.inline: list[int] = []
        self._said: tuple[tuple[int | None, ...], Windows] | None = (
            None  # words of windows, and what they say
        )
        self.dependence: dict[int, int] = {}  # QMD address -> how many grids it still waits for

    # ------------------------------------------------------------ launches

    @on(compute.SendSignalingPcasB)
    def signal_older(self, method: Any) -> None:
        """SEND_SIGNALING_PCAS_B: schedule the launch description, and perhaps copy it first."""
        if method.schedule:
            self._schedule(copy=bool(method.invalidate))

    @on(compute.SendSignalingPcas2B)
    def signal(self, method: Any) -> None:
        """SEND_SIGNALING_PCAS2_B: the same, said as one action."""
        action = PcasAction(method.pcas_action)
        if action in SCHEDULES:
            self._schedule(copy=action in COPIES)
        elif action not in HARMLESS:
            raise ClassError(f"SEND_SIGNALING_PCAS2_B.pcas_action={action.name} is not emulated")

    def _schedule(self, copy: bool) -> None:
        """Launch the QMD of SEND_PCAS_A. With a copy it is read now, without one when the grid starts."""
        va = self.last(compute.SendPcasA).qmd_address_shifted8
        self._begin(va, self.read_qmd(va) if copy else None)

    def _begin(self, va: int, qmd: Split | None) -> None:
        self.channel.begin(self, lambda: self._launch(va, qmd), is_ordered=False)

    def read_qmd(self, va: int) -> Split:
        """The QMD at an address. Raises LaunchError when it is of a version that this class does not read."""
        if va % ALIGNMENT_BYTES:
            raise LaunchError(
                f"Graphics SKEDCHECK: the QMD at {va:#x} is not aligned to {ALIGNMENT_BYTES} bytes"
            )
        words = self.channel.view.words(va, self.qmd.length_words, SCHEDULER)
        found = _split(self.class_id, words)
        version = found.common.value("qmd_major_version"), found.common.value("qmd_minor_version")
        if version != (self.qmd.version, 0):
            raise LaunchError(
                f"Graphics SKEDCHECK: the QMD at {va:#x} says version {version[0]}.{version[1]}; class "
                f"{self.class_id:#x} reads {self.qmd.version}.0"
            )
        return found

    def _launch(self, va: int, read: Split | None) -> None:
        """Run a grid, release its semaphores, then launch what depends on it."""
        waiting = [(va, read)]
        for _ in range(MAX_CHAIN):
            if not waiting:
                return
            va, read = waiting.pop(0)
            read = self.read_qmd(va) if read is None else read
            qmd = read.qmd
            try:
                self.shader.run(
                    read,
                    self.channel.view,
                    self._windows(),
                    lambda: self.channel.is_ending,
                    self.channel.process.pid,
                )
            except ChannelError as error:
                error.program = qmd.value("program_address")
                raise
            if read.is_alone:
                continue
            for number in RELEASES:
                self._release_of(qmd, number)
            waiting += self._dependents(qmd)
        raise LaunchError(
            f"Graphics SKEDCHECK: the QMD at {va:#x} depends on itself: {MAX_CHAIN} launches in a chain"
        )

    def _windows(self) -> Windows:
        """What the channel has said of its windows and of local memory."""
        words = tuple(map(self.words.get, WINDOWS_AT))
        if self._said is None or self._said[0] != words:
            self._said = words, self._said_windows()
        return self._said[1]

    def _said_windows(self) -> Windows:
        kind = self.accepted[compute.SetShaderLocalMemoryNonThrottledC.at].method
        counts = kind.decode([self.word(kind)]).values
        return Windows(
            self.address(compute.SetShaderSharedMemoryWindowA, compute.SetShaderSharedMemoryWindowB),
            self.address(compute.SetShaderLocalMemoryWindowA, compute.SetShaderLocalMemoryWindowB),
            self.address(compute.SetShaderLocalMemoryA, compute.SetShaderLocalMemoryB),
            self.address(
                compute.SetShaderLocalMemoryNonThrottledA, compute.SetShaderLocalMemoryNonThrottledB
            ),
            counts["max_sm_count"],
            counts.get("max_plural_tpc_gpc_count", 0),
            counts.get("max_singleton_tpc_gpc_count", 0),
        )

    def _dependents(self, qmd: Qmd) -> list[tuple[int, Split | None]]:
        found: list[tuple[int, Split | None]] = []
        for number in range(2):
            if not qmd.value(f"dependent_qmd{number}_enable"):
                continue
            va, action = (
                qmd.value(f"dependent_qmd{number}_pointer"),
                qmd.value(f"dependent_qmd{number}_action"),
            )
            if action in (DependentAction.QMD_SCHEDULE, DependentAction.QMD_INVALIDATE_COPY_SCHEDULE):
                found.append((va, None))
            elif action == DependentAction.QMD_DECREMENT_DEPENDENCE:
                left = self.dependence.pop(va, None)
                if left is None:
                    left = self.read_qmd(va).common.value("dependence_counter")
                if left > 1:
                    self.dependence[va] = left - 1
                else:
                    found.append((va, None))
            else:
                raise LaunchError(
                    f"Graphics SKEDCHECK: DEPENDENT_QMD{number}_ACTION {action!r} is not emulated"
                )
        return found

    def _release_of(self, qmd: Qmd, number: int) -> None:
        """One of the semaphores that a QMD releases when its grid has ended."""
        if not qmd.value(f"release{number}_enable"):
            return
        va, payload = qmd.value(f"release{number}_address"), qmd.value(f"release{number}_payload")
        structure = qmd.value(f"release{number}_structure_size")
        if structure not in PAYLOAD_BYTES:
            raise LaunchError(
                f"Graphics SKEDCHECK: RELEASE{number}_STRUCTURE_SIZE {structure} has no meaning"
            )
        size = 8 if qmd.value(f"release{number}_payload64b") else PAYLOAD_BYTES[StructureSize(structure)]
        how = ""
        if qmd.value(f"release{number}_reduction_enable"):
            how = REDUCTIONS[qmd.value(f"release{number}_reduction_op")]
        is_signed = qmd.value(f"release{number}_reduction_format") == 1
        self.release(va, payload, size, structure == StructureSize.SEMAPHORE_FOUR_WORDS, how, is_signed)

    def release(
        self, va: int, payload: int, size: int, has_timestamp: bool, how: str, is_signed: bool
    ) -> None:
        """Store or reduce a semaphore; `how` is empty for a store."""
        if not semaphores.is_aligned(va, size, has_timestamp and not how):
            raise ClassError(
                f"the semaphore at {va:#x} is not aligned to its {16 if has_timestamp else size} bytes"
            )
        now = self.channel.card.time_ns() if has_timestamp else None
        semaphores.release(self.channel.view, va, payload, size, now, FRONT, how, is_signed)

    # ------------------------------------------------------------ waiting, caches

    @on(compute.WaitForIdle)
    def wait_for_idle(self, method: Any) -> None:
        """WAIT_FOR_IDLE: all launches before it are finished."""
        self.channel.finish(self)

    @on(compute.PmTriggerWfi)
    def trigger_wfi(self, method: Any) -> None:
        """PM_TRIGGER_WFI: waits as WAIT_FOR_IDLE does."""
        self.channel.finish(self)

    @on(compute.InvalidateShaderCaches)
    def invalidate(self, method: Any) -> None:
        """INVALIDATE_SHADER_CACHES: once all launches are finished, drop what the caches it names hold."""
        self.channel.finish(self)
        self._invalidate(method)
        if method.data:
            self.shader.invalidate_data()

    @on(compute.InvalidateShaderCachesNoWfi)
    def invalidate_no_wfi(self, method: Any) -> None:
        """INVALIDATE_SHADER_CACHES_NO_WFI: the same at once."""
        self._invalidate(method)
        if method.global_data:
            self.shader.invalidate_data()

    def _invalidate(self, method: Any) -> None:
        if method.instruction:
            self.shader.invalidate_code()
        if method.constant:
            self.shader.invalidate_constants()

    # ------------------------------------------------------------ semaphores

    @on(compute.SetReportSemaphoreD)
    def report(self, method: Any) -> None:
        """After all that was launched before."""
        if method.operation != compute.SetReportSemaphoreDOperation.RELEASE:
            raise ClassError("SET_REPORT_SEMAPHORE_D.operation=TRAP is not emulated")
        self.channel.finish(self)
        how = REDUCTIONS[method.reduction_op] if method.reduction_enable else ""
        has_timestamp = method.structure_size == compute.SemaphoreStructSize.FOUR_WORDS and not how
        va = self.address(compute.SetReportSemaphoreA, compute.SetReportSemaphoreB)
        payload = self.word(compute.SetReportSemaphoreC)
        self.release(va, payload, 4, has_timestamp, how, method.reduction_format == 1)

    @on(compute.ReportSemaphoreExecute)
    def report_execute(self, method: Any) -> None:
        """The newer form, of 64-bit payloads."""
        if method.operation != compute.ReportSemaphoreExecuteOperation.RELEASE or method.trap_type:
            raise ClassError(f"REPORT_SEMAPHORE_EXECUTE.operation={method.operation!r} is not emulated")
        self.channel.finish(self)
        va = self.address(compute.SetReportSemaphoreAddressUpper, compute.SetReportSemaphoreAddressLower)
        payload = self.address(compute.SetReportSemaphorePayloadUpper, compute.SetReportSemaphorePayloadLower)
        size = 8 if method.payload_size64 or method.structure_size == 2 else 4
        how = REDUCTIONS[method.reduction_op] if method.reduction_enable else ""
        has_timestamp = method.structure_size == compute.StructureSize.SEMAPHORE_FOUR_WORDS and not how
        self.release(va, payload, size, has_timestamp, how, method.reduction_format == 1)

    # ------------------------------------------------------------ data in the pushbuffer

    @on(compute.LaunchDma)
    def launch_dma(self, method: Any) -> None:
        """The next LOAD_INLINE_DATA words go to memory."""
        if method.dst_memory_layout != compute.DstMemoryLayout.PITCH or method.reduction_enable:
            raise ClassError("LAUNCH_DMA: only plain stores to a PITCH layout are emulated")
        self.inline = []
        if not self.word(compute.LineLengthIn) or not self.word(compute.LineCount):
            raise ClassError("LAUNCH_DMA with LINE_LENGTH_IN or LINE_COUNT 0")

    @on(compute.LoadInlineData)
    def load_inline_data(self, method: Any) -> None:
        """Lines begin at words; the last word of a line may be used in part."""
        length, lines = self.word(compute.LineLengthIn), self.word(compute.LineCount)
        per_line = -(-length // 4)
        self.inline.append(method.v)
        if len(self.inline) > per_line * lines:
            raise ClassError(f"LOAD_INLINE_DATA: more than {lines} lines of {length} bytes")
        if len(self.inline) < per_line * lines:
            return
        target = self.address(compute.OffsetOutUpper, compute.OffsetOut)
        pitch = self.word(compute.PitchOut)
        for line in range(lines):
            words = self.inline[line * per_line : (line + 1) * per_line]
            data = b"".join(word.to_bytes(4, "little") for word in words)[:length]
            self.channel.view.write(target + line * pitch, data, FRONT)
        dma = self.last(compute.LaunchDma)
        if dma.completion_type == compute.CompletionType.RELEASE_SEMAPHORE:
            va = self.address(compute.SetI2mSemaphoreA, compute.SetI2mSemaphoreB)
            has_timestamp = dma.semaphore_struct_size == compute.SemaphoreStructSize.FOUR_WORDS
            self.release(va, self.word(compute.SetI2mSemaphoreC), 4, has_timestamp, "", False)

    @on(compute.LoadInlineQmdData)
    def load_inline_qmd(self, method: Any) -> None:
        """LOAD_INLINE_QMD_DATA: refused."""
        raise ClassError("LOAD_INLINE_QMD_DATA is not emulated: write the QMD to memory and send SEND_PCAS_A")
