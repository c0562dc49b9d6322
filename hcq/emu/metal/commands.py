"""MTLCommandQueue, MTLCommandBuffer and its encoders: what they refuse, and the work they keep until it is committed.

In       messages in the order of a program
Out      command buffers, whose steps processor.py runs
Changes  what is kept and retained
Next     processor.py (who runs them), device.py (what they name), ../../metal/commands.py (the driver that sends
         this)
Source   MTLCommandQueue.h, MTLCommandBuffer.h, MTLCommandEncoder.h, MTLComputeCommandEncoder.h,
         MTLBlitCommandEncoder.h, and "Metal Programming Guide", "Command Organization and Execution Model": which
         message may come when

A command buffer retains what its encoders name until it has ended. Retained and released as a Mac would, so that a
driver that releases too early, too often or never is seen.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import prod
from typing import NamedTuple

from hcq.emu.metal import checks
from hcq.emu.metal.gpu import Gpu
from hcq.emu.metal.objects import Error
from hcq.emu.metal.processor import Processor
from hcq.emu.metal.resources import Buffer, Pipeline, SharedEvent
from hcq.emu.metal.runtime import Object, answers
from hcq.emu.metal.shader.program import Binding
from hcq.errors import DriverError
from hcq.events import known_memory
from hcq.metal.abi import messages
from hcq.metal.abi.messages import COPY_ALIGNMENT, MAX_BUFFERS, MAX_BYTES, Message, Status
from hcq.system import native

PLACES = ("pipeline", "dst", "src", "event")  # addresses and handles


class Told:
    """What a debugger is told of a step."""

    def __repr__(self) -> str:
        shown = (
            f"{name}={value:#x}" if name in PLACES else f"{name}={value}"
            for name, value in vars(self).items()
        )
        return f"{type(self).__name__}({', '.join(shown)})"


@dataclass(frozen=True, repr=False)
class DispatchThreadgroups(Told):
    """Of a launch."""

    kernel: str
    pipeline: int
    grid_x: int
    grid_y: int
    grid_z: int
    block_x: int
    block_y: int
    block_z: int


@dataclass(frozen=True, repr=False)
class CopyFromBuffer(Told):
    """Of a copy."""

    dst: int
    src: int
    size_bytes: int


@dataclass(frozen=True, repr=False)
class FillBuffer(Told):
    """Of a fill. pattern: each of its bytes."""

    dst: int
    size_bytes: int
    pattern: int


@dataclass(frozen=True, repr=False)
class EncodeSignalEvent(Told):
    """Of an event that is set."""

    event: int
    value: int


@dataclass(frozen=True, repr=False)
class EncodeWaitForEvent(Told):
    """Of an event that is waited for."""

    event: int
    value: int


class Step(NamedTuple):
    """A part of a command buffer's work. told: what a debugger hears of it; do: returns once it is done.

    event   what to wait for before, until it has this value
    """

    told: Told
    do: Callable[[], None]
    event: SharedEvent | None = None
    value: int = 0


def _nothing() -> None:
    """Waiting is all."""


class Queue(Object):
    """MTLCommandQueue: its command buffers run one after the other, in the order of commit."""

    kind = "MTLCommandQueue"

    def __init__(self, device: Gpu, most: int) -> None:
        super().__init__(device.runtime)
        self.device, self.most = device, most
        self.unfinished = 0
        self.processor = Processor(device)
        device.retain()

    def dealloc(self) -> None:
        self.processor.stop()
        self.device.release()

    @answers(messages.COMMAND_BUFFER)
    def _command_buffer(self) -> Object:
        """Blocks while as many are not completed as the queue was made for."""
        with self.device.changed:
            self.device.changed.wait_for(lambda: self.unfinished < self.most)
            self.unfinished += 1
        return CommandBuffer(self)


class CommandBuffer(Object):
    """MTLCommandBuffer. `steps` are what it does, in order."""

    kind = "MTLCommandBuffer"

    def __init__(self, queue: Queue) -> None:
        super().__init__(queue.runtime)
        self.queue, self.device = queue, queue.device
        self.status = Status.NOT_ENQUEUED
        self.steps: list[Step] = []
        self.signals: list[tuple[SharedEvent, int]] = []  # that it will set, and to what
        self.encoder: Encoder | None = None
        self.why = ""  # of status ERROR
        self.ended_seconds = 0.0
        self._kept: list[Object] = []
        queue.retain()

    def dealloc(self) -> None:
        if self.encoder is not None:
            raise self.refuse(f"{self.encoder} was deallocated without endEncoding.")
        if self.status < Status.COMMITTED:
            self._count_down()
        self.let_go()
        self.queue.release()

    def keep(self, thing: Object) -> None:
        """What it names stays until it has ended."""
        thing.retain()
        self._kept.append(thing)

    def let_go(self) -> None:
        """It has ended."""
        kept, self._kept = self._kept, []
        for thing in kept:
            thing.release()

    def _count_down(self) -> None:
        with self.device.changed:
            self.queue.unfinished -= 1
            self.device.changed.notify_all()

    def end(self, status: Status, seconds: float, why: str = "") -> None:
        """By the processor: all of it is done, or it has failed."""
        with self.device.changed:
            self.status, self.ended_seconds, self.why = status, seconds, why
            self.steps.clear()
            self.queue.unfinished -= 1
            self.device.changed.notify_all()
        self.let_go()

    @property
    def is_given_up(self) -> bool:
        """Whether nobody can be waiting for it: the host has set all that it would set to more than that."""
        return bool(self.signals) and all(event.value > value for event, value in self.signals)

    def check_open(self, message: Message) -> None:
        """Raises DriverError when nothing can be encoded."""
        if self.status >= Status.COMMITTED:
            raise self.refuse(f"{message}: the command buffer was committed. Encode before commit.")
        if self.encoder is not None:
            raise self.refuse(f"{message}: its {self.encoder.kind} is still open. Send it endEncoding first.")

    @answers(messages.COMPUTE_ENCODER)
    def _compute_encoder(self) -> Object:
        self.check_open(messages.COMPUTE_ENCODER)
        return ComputeEncoder(self)

    @answers(messages.BLIT_ENCODER)
    def _blit_encoder(self) -> Object:
        self.check_open(messages.BLIT_ENCODER)
        return BlitEncoder(self)

    @answers(messages.SIGNAL_EVENT, "MTLSharedEvent")
    def _signal_event(self, event: SharedEvent, value: int) -> None:
        self.check_open(messages.SIGNAL_EVENT)
        self.keep(event)
        self.steps.append(Step(EncodeSignalEvent(event.handle, value), lambda: event.set(value)))
        self.signals.append((event, value))

    @answers(messages.WAIT_FOR_EVENT, "MTLSharedEvent")
    def _wait_for_event(self, event: SharedEvent, value: int) -> None:
        self.check_open(messages.WAIT_FOR_EVENT)
        self.keep(event)
        self.steps.append(Step(EncodeWaitForEvent(event.handle, value), _nothing, event, value))

    @answers(messages.COMMIT)
    def _commit(self) -> None:
        self.check_open(messages.COMMIT)
        self.status = Status.COMMITTED
        self.queue.processor.take(self)

    @answers(messages.WAIT_UNTIL_COMPLETED)
    def _wait_until_completed(self) -> None:
        if self.status < Status.COMMITTED:
            raise self.refuse(
                f"{messages.WAIT_UNTIL_COMPLETED}: it was not committed, and would never be completed."
            )
        with self.device.changed:
            self.device.changed.wait_for(lambda: self.status >= Status.COMPLETED)

    @answers(messages.STATUS)
    def _status_now(self) -> int:
        return int(self.status)

    @answers(messages.ERROR)
    def _error(self) -> Object | None:
        return Error(self.runtime, self.why) if self.status == Status.ERROR else None

    @answers(messages.GPU_END_TIME)
    def _gpu_end_time(self) -> float:
        return self.ended_seconds


class Encoder(Object):
    """One encoder, from its making to endEncoding."""

    kind = "MTLCommandEncoder"

    def __init__(self, buffer: CommandBuffer) -> None:
        super().__init__(buffer.runtime)
        self.buffer = buffer
        self.is_ended = False
        buffer.encoder = self
        buffer.retain()

    def dealloc(self) -> None:
        if not self.is_ended:
            self.buffer.encoder = None
            self.buffer.release()
            raise self.refuse(f"{self} was deallocated without endEncoding.")
        self.buffer.release()

    def check_open(self, message: Message) -> None:
        """Raises DriverError after endEncoding."""
        if self.is_ended:
            raise self.refuse(f"{message}: endEncoding was sent before. Make another encoder.")

    @answers(messages.END_ENCODING)
    def _end_encoding(self) -> None:
        self.check_open(messages.END_ENCODING)
        self.is_ended = True
        self.buffer.encoder = None


class ComputeEncoder(Encoder):
    """MTLComputeCommandEncoder, a serial one: each launch sees what those before it wrote."""

    kind = "MTLComputeCommandEncoder"

    def __init__(self, buffer: CommandBuffer) -> None:
        super().__init__(buffer)
        self.pipeline: Pipeline | None = None
        self.table: dict[int, tuple[Buffer | None, int] | bytes] = {}

    @answers(messages.SET_PIPELINE, "MTLComputePipelineState")
    def _set_pipeline(self, pipeline: Pipeline) -> None:
        self.check_open(messages.SET_PIPELINE)
        self.buffer.keep(pipeline)
        self.pipeline = pipeline

    @answers(messages.SET_BUFFER, "MTLBuffer?")
    def _set_buffer(self, buffer: Buffer | None, offset: int, index: int) -> None:
        self._check_index(messages.SET_BUFFER, index)
        if buffer is None:
            self.table[index] = None, 0
            return
        if offset >= buffer.size:
            raise self.refuse(
                f"{messages.SET_BUFFER}: offset {offset} is beyond the buffer's {buffer.size} bytes."
            )
        self.buffer.keep(buffer)
        self.table[index] = buffer, offset

    @answers(messages.SET_BYTES)
    def _set_bytes(self, data: bytes, length: int, index: int) -> None:
        self._check_index(messages.SET_BYTES, index)
        if not 0 < length <= MAX_BYTES or length > len(data):
            raise self.refuse(
                f"{messages.SET_BYTES}: {length} bytes of {len(data)}; it takes 1 to {MAX_BYTES}. Use a buffer."
            )
        self.table[index] = bytes(data[:length])

    def _check_index(self, message: Message, index: int) -> None:
        self.check_open(message)
        if index >= MAX_BUFFERS:
            raise self.refuse(f"{message}: index {index}; the table has {MAX_BUFFERS} entries.")

    @answers(messages.DISPATCH)
    def _dispatch(self, grid: tuple[int, int, int], block: tuple[int, int, int]) -> None:
        self.check_open(messages.DISPATCH)
        pipeline = self.pipeline
        if pipeline is None:
            raise self.refuse(
                f"{messages.DISPATCH}: there is no pipeline. Send setComputePipelineState: first."
            )
        if not prod(grid) or not prod(block):
            raise self.refuse(
                f"{messages.DISPATCH}: {grid} threadgroups of {block} threads; each size is at least 1."
            )
        if prod(block) > pipeline.most:
            raise self.refuse(
                f"{messages.DISPATCH}: {prod(block)} threads in a threadgroup; this pipeline's have {pipeline.most} "
                "at most."
            )
        bindings: dict[int, Binding] = {}
        for index, what in pipeline.program.table.items():
            bound = self.table.get(index)
            if bound is None:
                raise self.refuse(
                    f"{messages.DISPATCH}: missing buffer binding at index {index} for {what.name}."
                )
            if what.is_pointer and isinstance(bound, bytes):
                raise self.refuse(
                    f"{messages.DISPATCH}: {what.name} is memory that is written; bind a buffer."
                )
            if isinstance(bound, bytes):
                data: Binding = bound
            elif bound[0] is not None:
                data = bound[0].data[bound[1] :]
            else:
                bindings[index] = b""  # nil: any element of it is beyond its end
                continue
            if len(data) < what.size_bytes:
                raise self.refuse(
                    f"{messages.DISPATCH}: {what.name} takes {what.size_bytes} bytes, and {len(data)} are bound."
                )
            if isinstance(bound, tuple) and bound[1] % what.alignment:
                raise self.refuse(
                    f"{messages.DISPATCH}: {what.name} begins at offset {bound[1]}, no multiple of {what.alignment}."
                )
            bindings[index] = data
        stop = self.buffer.queue.processor.stopping
        told = DispatchThreadgroups(pipeline.program.kernel.name, pipeline.handle, *grid, *block)
        self.buffer.steps.append(
            Step(told, lambda: checks.run(pipeline.program, grid, block, bindings, pipeline.handle, stop))
        )


class BlitEncoder(Encoder):
    """MTLBlitCommandEncoder."""

    kind = "MTLBlitCommandEncoder"

    @answers(messages.COPY, "MTLBuffer", "MTLBuffer")
    def _copy(self, source: Buffer, source_offset: int, to: Buffer, to_offset: int, size: int) -> None:
        self._check(messages.COPY, source, source_offset, size)
        self._check(messages.COPY, to, to_offset, size)
        if source is to and abs(source_offset - to_offset) < size:
            raise self.refuse(f"{messages.COPY}: the ranges overlap, and what becomes of them is undefined.")
        self.buffer.keep(source)
        self.buffer.keep(to)

        def step() -> None:
            to.data[to_offset : to_offset + size] = source.data[source_offset : source_offset + size]
            known_memory.written(native.address_of(to.data) + to_offset, size)

        dst, src = native.address_of(to.data) + to_offset, native.address_of(source.data) + source_offset
        self.buffer.steps.append(Step(CopyFromBuffer(dst, src, size), step))

    @answers(messages.FILL, "MTLBuffer")
    def _fill(self, to: Buffer, where: tuple[int, int], value: int) -> None:
        offset, size = where
        self._check(messages.FILL, to, offset, size)
        self.buffer.keep(to)

        def step() -> None:
            to.data[offset : offset + size] = value
            known_memory.written(native.address_of(to.data) + offset, size)

        self.buffer.steps.append(Step(FillBuffer(native.address_of(to.data) + offset, size, value), step))

    def _check(self, message: Message, buffer: Buffer, offset: int, size: int) -> DriverError | None:
        self.check_open(message)
        if not size or offset + size > buffer.size:
            raise self.refuse(
                f"{message}: {size} bytes from {offset} do not lie in a buffer of {buffer.size}, or are none."
            )
        if offset % COPY_ALIGNMENT or size % COPY_ALIGNMENT:
            raise self.refuse(
                f"{message}: {size} bytes from {offset}; on macOS both are multiples of {COPY_ALIGNMENT}."
            )
        return None
