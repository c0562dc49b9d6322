"""The SDMA packet processor: copy queues.

In       words of a ring or an indirect buffer
Out      memory copied, filled and fenced; interrupts
Changes  the process's memory through the GPU's page table
Next     hcq/amd/abi/sdma.py (the packets)

With a seed, copies and fills are kept back until a fence asks for them, and then run in random order: two of them
depend on each other only if a fence and a poll stand between.
"""

from __future__ import annotations

import functools
from typing import Any

from hcq.amd.abi import sdma
from hcq.amd.abi.kfd import CreateQueueArgs
from hcq.emu.amd.caches import WriteBack
from hcq.emu.amd.engine import Handlers, Unordered, holds
from hcq.emu.amd.process_gpu import EmulatedQueue, ProcessGpu
from hcq.emu.amd.spec import Chip
from hcq.emu.shader import copy_checks
from hcq.events import kernel_debug
from hcq.layout import Packet

MAX_PACKET_WORDS = 256  # of those that write words inline; the ring is read that far ahead
HANDLERS = Handlers()
on = HANDLERS.on


@functools.lru_cache(4096)
def _decoded(words: tuple[int, ...], chip: Chip) -> Packet:
    return sdma.decode_one(words, chip.copies)


class SdmaQueue(EmulatedQueue):
    """A copy queue. Its pointers count bytes; a packet never crosses the ring's end."""

    kind = "SDMA"

    def __init__(self, gpu: ProcessGpu, number: int, doorbell_index: int, args: CreateQueueArgs) -> None:
        super().__init__(gpu, number, doorbell_index, args)
        self.vm = gpu.vm
        self.data = gpu.vm if gpu.caches is None else gpu.caches.copies  # as copies see it
        self.indirect_words: list[int] = []  # of the indirect buffer that it executes
        self.indirect_at = self.indirect_va = 0
        self.copies = Unordered(gpu.random)

    def step(self) -> bool:
        if self.indirect_at < len(self.indirect_words):
            packet = self._packet(self.indirect_words[self.indirect_at : self.indirect_at + MAX_PACKET_WORDS])
            if not HANDLERS[type(packet)](self, packet):
                return False
            self.indirect_at += len(packet.words)
            return True
        wptr = self.rung(self.ring_bytes, "bytes", multiple_of=4)
        if wptr is None:
            return self.copies.drain()
        at = self.rptr % self.ring_bytes
        left = min(self.ring_bytes - at, wptr - self.rptr)
        packet = self._packet(self.vm.load_words(self.ring + at, min(left // 4, MAX_PACKET_WORDS)))
        size = 4 * len(packet.words)
        if size > left:
            raise self.stop(f"{packet!r} crosses the end of the ring or the doorbell {wptr}")
        if isinstance(packet, sdma.Indirect) and (at + size) % 32:
            raise self.stop(f"{packet!r} does not end at a multiple of 8 words")
        if not HANDLERS[type(packet)](self, packet):
            return False
        self.rptr += size
        self.vm.store64(self.rptr_va, self.rptr)
        return True

    def _packet(self, words: list[int]) -> Packet:
        packet = self._known(words)
        if kernel_debug.debugger is not None:
            kernel_debug.debugger.packet("sdma", packet)
        return packet

    def _known(self, words: list[int]) -> Packet:
        version = self.gpu.chip.copies
        if words[0] & 0xFF == sdma.Op.NOP:
            return sdma.Nop.decode([words[0], *[0] * (words[0] >> 16 & 0x3FFF)])
        size = sdma.length_words(words, version)
        packet = _decoded(tuple(words[:size]), self.gpu.chip) if size else sdma.Header.decode(words)
        if type(packet) not in HANDLERS:
            raise self.stop(f"{packet!r} is no packet this engine knows, or is cut off: {words[0]:#010x}")
        if packet.unclaimed:
            raise self.stop(f"{packet!r} sets bits that no field has")
        return packet

    # ------------------------------------------------------------ packets

    @on(sdma.Nop)
    def nop(self, packet: Packet) -> bool:
        """NOP."""
        return True

    @on(sdma.GcrReq)
    def gcr_req(self, packet: sdma.GcrReq) -> bool:
        """GCR_REQ: write back and invalidate the caches it names, where caches are emulated."""
        if self.gpu.caches is not None:
            self.copies.drain()
            self.gpu.caches.acquire_copies(bool(packet.gl2_wb), bool(packet.gl2_inv))
        return True

    @on(sdma.CopyLinear, sdma.CopyLinearV4, sdma.CopyLinearV7)
    def copy_linear(self, packet: Any) -> bool:
        """COPY_LINEAR: at most as many bytes as the chip copies at once."""
        size = packet.count + 1
        if size > self.gpu.chip.copy_bytes:
            raise self.stop(
                f"{packet!r}: {size} bytes are more than {self.gpu.chip.copy_bytes} in one packet"
            )
        copy_checks.look(self.gpu.pid, "COPY_LINEAR", packet.dst_addr, packet.src_addr, size)
        self.copies.add(lambda: self.data.copy(packet.dst_addr, packet.src_addr, size))
        return True

    @on(sdma.CopyWindow, sdma.CopyWindowV7)
    def copy_window(self, packet: Any) -> bool:
        """COPY_LINEAR_SUB_WIN: a box out of one array into another, row by row."""
        size = 1 << packet.elementsize
        row = (packet.rect_x + 1) * size

        def starts(base: int, x: int, y: int, z: int, pitch: int, slice_pitch: int) -> list[int]:
            return [
                base + size * ((z + k) * (slice_pitch + 1) + (y + j) * (pitch + 1) + x)
                for k in range(packet.rect_z + 1)
                for j in range(packet.rect_y + 1)
            ]

        sources = starts(
            packet.src_addr,
            packet.src_x,
            packet.src_y,
            packet.src_z,
            packet.src_pitch,
            packet.src_slice_pitch,
        )
        targets = starts(
            packet.dst_addr,
            packet.dst_x,
            packet.dst_y,
            packet.dst_z,
            packet.dst_pitch,
            packet.dst_slice_pitch,
        )

        def copy() -> None:
            for source, target in zip(sources, targets):
                self.data.copy(target, source, row)

        self.copies.add(copy)
        return True

    @on(sdma.Atomic)
    def atomic(self, packet: sdma.Atomic) -> bool:
        """ATOMIC: once all copies are done, add to 64 bits."""
        self.copies.drain()
        if packet.atomic_op != sdma.AtomicOp.ADD64 or packet.loop or packet.address % 8:
            raise self.stop(f"{packet!r}: only ADD64 at a multiple of 8 is emulated")
        self.vm.add64(packet.address, packet.src_data)
        return True

    @on(sdma.ConstFill, sdma.ConstFillV4, sdma.ConstFillV7)
    def const_fill(self, packet: Any) -> bool:
        """CONST_FILL, with values of 1, 2 or 4 bytes."""
        data = int(packet.src_data).to_bytes(4, "little")[: 1 << packet.fillsize]
        size = packet.count + 1
        if packet.fillsize == sdma.FillSize.WORD:
            size = (packet.count & ~3) + 4
        copy_checks.look(self.gpu.pid, "CONST_FILL", packet.dst_addr, None, size)
        self.copies.add(lambda: self.data.fill(packet.dst_addr, data, size))
        return True

    @on(sdma.WriteLinear, sdma.WriteLinearV4, sdma.WriteLinearV7)
    def write_linear(self, packet: Any) -> bool:
        """WRITE_LINEAR: the words behind the packet, to memory."""
        data = b"".join(word.to_bytes(4, "little") for word in packet.tail_words)
        copy_checks.look(self.gpu.pid, "WRITE_LINEAR", packet.dst_addr, None, len(data))
        self.copies.add(lambda: self.data.fill(packet.dst_addr, data, len(data)))
        return True

    @on(sdma.Fence, sdma.FenceV4, sdma.FenceV7)
    def fence(self, packet: Any) -> bool:
        """FENCE: once all copies are done, write a value."""
        self.copies.drain()
        if packet.address % 4:
            raise self.stop(f"{packet!r}: the address is not a multiple of 4")
        is_cached = packet.values.get("mtype", sdma.MTYPE_UC) != sdma.MTYPE_UC
        if is_cached and isinstance(self.data, WriteBack):
            self.data.hold(packet.address, packet.data)
        else:
            self.vm.store32(packet.address, packet.data)
        return True

    @on(sdma.Timestamp)
    def timestamp(self, packet: sdma.Timestamp) -> bool:
        """TIMESTAMP GET_GLOBAL: once all copies are done, write the clock."""
        if packet.sub_op != sdma.TimestampOp.GET_GLOBAL:
            raise self.stop(f"{packet!r}: only GET_GLOBAL is emulated")
        self.copies.drain()
        self.vm.store64(packet.address, self.gpu.clock())
        return True

    @on(sdma.PollRegmem, sdma.PollRegmemV4, sdma.PollRegmemV7)
    def poll_regmem(self, packet: Any) -> bool:
        """POLL_REGMEM: False, and the packet is looked at again, until memory has the value."""
        if not packet.mem_poll and packet.address == sdma.HDP_FLUSH_ADDRESS:
            return True  # what the host wrote is in memory already
        if not packet.mem_poll or packet.address % 4:
            raise self.stop(f"{packet!r}: a user's queue polls memory, at a multiple of 4")
        return holds(packet.func, self.vm.load32(packet.address) & packet.mask, packet.value)

    @on(sdma.Trap)
    def trap(self, packet: sdma.Trap) -> bool:
        """TRAP: interrupt."""
        self.gpu.interrupt(packet.int_context)
        return True

    @on(sdma.Indirect)
    def indirect(self, packet: sdma.Indirect) -> bool:
        """INDIRECT_BUFFER: run packets from memory; not inside another one."""
        if self.indirect_at < len(self.indirect_words) or not packet.ib_size:
            raise self.stop(f"{packet!r}: empty, or inside another one")
        self.indirect_words = self.vm.load_words(packet.ib_base, packet.ib_size)
        self.indirect_at, self.indirect_va = 0, packet.ib_base
        return True
