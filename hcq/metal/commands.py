"""Commands: packets become messages to command buffers and their encoders.

In       packets in order; the device, which knows buffers, programs and signals by address
Out      a command buffer, committed
Changes  Metal's command queue
Next     packets.py (what each packet becomes), device.py (who submits), stamps.py (the time between two of them)
Source   MTLCommandBuffer.h, MTLCommandEncoder.h: one encoder at a time, ended before the next begins, before an event
         is encoded and before commit

A compute encoder made by `computeCommandEncoder` is serial: each launch sees what those before it wrote. Between
encoders Metal keeps the order of all that touches one buffer, for our buffers' hazards are tracked.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from hcq.command import Copy
from hcq.errors import UsageError
from hcq.gpu.copies import split_overlapping
from hcq.layout import Packet
from hcq.metal import encode, kernels, packets
from hcq.metal.abi import messages
from hcq.metal.event import EventCell
from hcq.metal.objc import Objc
from hcq.metal.program import MetalProgram
from hcq.metal.relay import Expected, Relay
from hcq.metal.stamps import Stamps
from hcq.signal import Signal
from hcq.system import native


class Submitter(Protocol):
    """The device, as far as encoding needs it."""

    @property
    def name(self) -> str:
        """How messages call it."""
        ...

    objc: Objc
    queue_object: int
    stamps: Stamps

    def resolve(self, va: int) -> tuple[int, int]:
        """The MTLBuffer that an address is in, and the offset there."""
        ...

    relay: Relay

    def cell_of(self, va: int) -> EventCell:
        """What a signal is here."""
        ...

    def lower(self, cell: EventCell, va: int, value: int, encoded: Sequence[EventCell] | None = None) -> None:
        """A signal becomes another event, or is refused while work in flight names the one it is."""
        ...

    def foreign_signal(self, va: int) -> Signal | None:
        """The signal of another device at an address."""
        ...

    def program_of(self, pipeline: int) -> MetalProgram:
        """A loaded program by its entry."""
        ...

    def own_pipeline(self, name: str) -> int:
        """A kernel of kernels.py."""
        ...


class Commands:
    """One submission being encoded.

    made      its command buffers so far, retained; the last one is not committed yet
    cells     the signals that it waits for or sets
    launches  of programs
    packets   that were encoded
    """

    def __init__(self, device: Submitter) -> None:
        self.device, self.objc = device, device.objc
        self.made: list[int] = []
        self.cells: list[EventCell] = []
        self.launches = self.packets = 0
        self.expected: list[Expected] = []  # of other devices, by the command buffer that is encoded
        self.followed: list[tuple[EventCell, int]] = []  # what it sets that other devices look at
        self.encoder = 0
        self._kind = ""
        self._pipeline = 0
        self._begin()

    # ------------------------------------------------------------ command buffers and encoders

    def _begin(self) -> None:
        self.made.append(self.objc.retain(self.objc.make(self.device.queue_object, messages.COMMAND_BUFFER)))

    @property
    def command_buffer(self) -> int:
        """The one that is encoded now."""
        return self.made[-1]

    def _compute(self) -> int:
        if self._kind != "compute":
            self.end()
            self.encoder = self.objc.make(self.command_buffer, messages.COMPUTE_ENCODER)
            self._kind = "compute"
        return self.encoder

    def _blit(self) -> int:
        if self._kind != "blit":
            self.end()
            self.encoder = self.objc.make(self.command_buffer, messages.BLIT_ENCODER)
            self._kind = "blit"
        return self.encoder

    def end(self) -> None:
        """End the open encoder, if there is one."""
        encoder, self.encoder, self._kind, self._pipeline = self.encoder, 0, "", 0
        if encoder:
            self.objc.send(encoder, messages.END_ENCODING)

    def commit(self) -> None:
        """Hand the command buffer to the GPU."""
        self.end()
        self.device.relay.begin(self.expected, self.followed)
        self.objc.send(self.command_buffer, messages.COMMIT)
        self.expected, self.followed = [], []

    def drop(self) -> None:
        """Something went wrong: the command buffer that is not committed is given back."""
        self.end()
        self.device.relay.cancel(self.expected, self.followed)
        self.objc.release(self.made.pop())

    # ------------------------------------------------------------ packets

    def words(self, words: Sequence[int]) -> None:
        """Encode packets."""
        for packet in encode.decode(words):
            self.packet(packet)

    def packet(self, packet: Packet) -> None:
        """Encode one packet. Raises UsageError for one that names nothing this device has."""
        self.packets += 1
        match packet:
            case packets.DispatchThreadgroups():
                self._dispatch(packet)
            case packets.CopyFromBuffer():
                for part in (
                    split_overlapping(Copy(packet.dst, packet.src, packet.size_bytes))
                    if _overlaps(packet)
                    else [Copy(packet.dst, packet.src, packet.size_bytes)]
                ):
                    self._copy(part.dst, part.src, part.size_bytes)
            case packets.FillBuffer():
                self._fill(packet.dst, packet.pattern, packet.size_bytes)
            case packets.EncodeWaitForEvent():
                self._wait(packet.signal, packet.value)
            case packets.EncodeSignalEvent():
                self._signal(packet.signal, packet.value)
            case packets.GpuEndTime():
                self._stamp(packet.address)
            case packets.Run():
                self.words(memoryview(native.read(packet.address, 4 * packet.size_words)).cast("I"))
            case packets.Barrier():
                pass
            case _:
                raise UsageError(f"submit on {self.device.name}: {packet} is no packet of Metal's.")

    def _wait(self, va: int, value: int) -> None:
        foreign = self.device.foreign_signal(va)
        if foreign is None:
            cell = self.device.cell_of(va)
            self.cells.append(cell)
            self._event(messages.WAIT_FOR_EVENT, cell.encoded, value)
        elif foreign._cell[0] < value:
            self.expected.append(self.device.relay.expect(foreign, value))
            self._event(messages.WAIT_FOR_EVENT, self.device.relay.event.event, self.expected[-1].number)

    def _signal(self, va: int, value: int) -> None:
        cell = self.device.cell_of(va)
        if value < cell.asked:  # by then
            self._fall(cell, va, value)
        self.cells.append(cell)
        cell.asked = value
        if cell.is_shown:
            self.followed.append((cell, value))
        self._event(messages.SIGNAL_EVENT, cell.encoded, value)

    def _fall(self, cell: EventCell, va: int, value: int) -> None:
        """A queue sets a signal to less than it has by then.

        What it names from here on is another event. Nobody sees one being set to 0, with which it begins, and other
        devices look at one event alone: there it becomes another one now, or is refused while work in flight names it.
        """
        if value and not cell.is_shown:
            cell.fall()
        else:
            self.device.lower(cell, va, value, self.cells)

    def _event(self, message: messages.Message, event: int, value: int) -> None:
        self.end()
        self.objc.send(self.command_buffer, message, event, value)

    def _stamp(self, address: int) -> None:
        stamps = self.device.stamps
        self._event(messages.SIGNAL_EVENT, stamps.ended.event, stamps.next())
        self.commit()
        value = stamps.after(self.command_buffer, address)
        self._begin()
        self._event(messages.WAIT_FOR_EVENT, stamps.event.event, value)

    def _dispatch(self, packet: packets.DispatchThreadgroups) -> None:
        program = self.device.program_of(packet.pipeline)
        self.launches += 1
        data = b"".join([word.to_bytes(4, "little") for word in packet.tail_words])
        grid = packet.grid_x, packet.grid_y, packet.grid_z
        self._launch(
            packet.pipeline,
            [(one.place, one.is_buffer, data[at : at + size]) for one, (at, size) in program.placed()],
            grid,
            (packet.block_x, packet.block_y, packet.block_z),
        )

    def _launch(
        self,
        pipeline: int,
        arguments: Sequence[tuple[int, bool, bytes]],
        grid: tuple[int, int, int],
        block: tuple[int, int, int],
    ) -> None:
        """arguments: (entry of the argument table, whether it is a buffer's address, its bytes)."""
        encoder, send = self._compute(), self.objc.send
        if self._pipeline != pipeline:
            send(encoder, messages.SET_PIPELINE, pipeline)
            self._pipeline = pipeline
        for index, is_buffer, data in arguments:
            if is_buffer:
                va = int.from_bytes(data, "little")
                buffer, offset = self.device.resolve(va) if va else (0, 0)  # nil is the null pointer
                send(encoder, messages.SET_BUFFER, buffer, offset, index)
            else:
                send(encoder, messages.SET_BYTES, data, len(data), index)
        send(encoder, messages.DISPATCH, grid, block)

    def _copy(self, dst: int, src: int, size_bytes: int) -> None:
        if not size_bytes:
            return
        to, to_offset = self.device.resolve(dst)
        source, from_offset = self.device.resolve(src)
        if kernels.is_aligned(to_offset, from_offset, size_bytes):
            self.objc.send(self._blit(), messages.COPY, source, from_offset, to, to_offset, size_bytes)
            return
        self._bytewise("hcq_copy", dst, (src, True), size_bytes)

    def _fill(self, dst: int, pattern: int, size_bytes: int) -> None:
        if not size_bytes:
            return
        to, offset = self.device.resolve(dst)
        byte = kernels.repeated_byte(pattern)
        if byte is not None and kernels.is_aligned(offset, size_bytes):
            self.objc.send(self._blit(), messages.FILL, to, (offset, size_bytes), byte)
            return
        self._bytewise("hcq_fill", dst, (pattern, False), size_bytes)

    def _bytewise(self, name: str, dst: int, second: tuple[int, bool], size_bytes: int) -> None:
        value, is_buffer = second
        arguments = [
            (0, True, dst.to_bytes(8, "little")),
            (1, is_buffer, value.to_bytes(8, "little")),
            (2, False, size_bytes.to_bytes(8, "little")),
        ]
        groups = -(-size_bytes // kernels.BLOCK)
        self._launch(self.device.own_pipeline(name), arguments, (groups, 1, 1), (kernels.BLOCK, 1, 1))


def _overlaps(packet: packets.CopyFromBuffer) -> bool:
    return bool(abs(packet.dst - packet.src) < packet.size_bytes)
