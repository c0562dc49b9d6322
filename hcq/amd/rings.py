"""Rings: the circular buffers that AMD's processors read, one class for each way of counting.

In       packets as bytes
Out      a place in the ring; nothing is overwritten that the GPU has not read
Changes  the ring, the write pointer, the doorbell
Next     device.py (what goes into which ring), abi/kfd.py (CREATE_QUEUE)
Source   the counting of pointers and doorbells: kfd_doorbell.c, ROCr's queues, PM4Queue of kfdtest

    ring   write pointer, read pointer     the doorbell takes             a packet at the ring's end
    PM4    words; words in the ring, 32b   the new write pointer          may cross it
    SDMA   bytes; bytes                    the new write pointer          must not: NOPs fill the rest
    AQL    packets; packets                the index of the last packet   cannot: slots

Write pointers and the read pointers of SDMA and AQL only rise. PM4's read pointer is where in the ring the processor
reads, and begins again at 0 at the ring's end. Where both pointers meet a ring is empty: PM4 and SDMA are never filled.
"""

from __future__ import annotations

import errno
import struct
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import replace
from functools import partial

from hcq.amd.abi import aql, kfd
from hcq.amd.abi.kfd import QueueType
from hcq.amd.abi.registers import TmpringSize
from hcq.amd.chip import Chip
from hcq.amd.doorbells import Doorbells
from hcq.amd.ioctl import call
from hcq.amd.launch import Scratch
from hcq.amd.memory import Allocation, KfdMemory, Place
from hcq.amd.sizing import EOP_BYTES, area_headers, queue_sizes
from hcq.amd.topology import Node
from hcq.errors import DriverError, UsageError
from hcq.gpu.fence import full_fence
from hcq.gpu.release import do_all, quietly
from hcq.system import native
from hcq.system.port import PAGE_BYTES, Port

RING_BYTES = 1 << 20
SAVE_PLACE = Place.SHARED  # of the context save area
PACKET_WORDS = aql.PACKET_BYTES // 4
NOT_READY = aql.Header(type=aql.PacketType.INVALID).words[0]
WPTR_AT, RPTR_AT = 0, 64  # in the page of pointers; AQL has them where amd_queue_t says


class Ring(ABC):
    """One queue. `put` counts what was written, in the units of its pointers.

    size        of the ring, in these units
    capacity    how much of it may be filled
    """

    kind = ""
    queue_type: QueueType
    size: int
    capacity: int

    def __init__(
        self,
        port: Port,
        memory: KfdMemory,
        node: Node,
        chip: Chip,
        doorbells: Doorbells,
        apertures: kfd.ProcessDeviceApertures,
    ) -> None:
        self.port, self.memory, self.node, self.chip = port, memory, node, chip
        self.apertures = apertures
        self.put = 0
        self.rung = 0
        self.queue_id = -1
        self.is_ending = False
        self.seen: list[bytes] | None = None  # what was written, for HCQ_DEBUG=push
        self.save_area: Allocation | None = None  # where waves are once the queue is off the GPU
        self.save_bytes = 0  # of it, for each XCC
        self.allocations: list[Allocation] = []
        self._doorbells = doorbells
        try:
            self._create()
        except BaseException:
            quietly(self.destroy)
            raise

    # ------------------------------------------------------------ the queue

    def _create(self) -> None:
        self.ring = self._alloc(RING_BYTES, Place.SHARED)
        self.pointers = self._alloc(PAGE_BYTES, Place.SHARED)
        self.bytes = native.view(self.ring.va, RING_BYTES)
        page = native.view(self.pointers.va, PAGE_BYTES)
        page[:] = bytes(PAGE_BYTES)
        self.bytes[:] = self._empty_ring()
        wptr_at, rptr_at = self._prepare_pointers(page)
        self._wptr = page[wptr_at : wptr_at + 8].cast("Q")
        self._rptr = page[rptr_at : rptr_at + 8].cast("Q")
        self.rptr_va = self.pointers.va + rptr_at
        made = self._create_queue(
            ring_base_address=self.ring.va,
            ring_size=RING_BYTES,
            write_pointer_address=self.pointers.va + wptr_at,
            read_pointer_address=self.pointers.va + rptr_at,
            gpu_id=self.node.gpu_id,
            queue_type=self.queue_type,
        )
        self.queue_id = made.queue_id
        self._doorbell = self._doorbells.at(made.doorbell_offset)

    def _create_queue(self, **fields: int) -> kfd.CreateQueueArgs:
        """CREATE_QUEUE. A save area of a size that this kernel driver does not expect is EINVAL: where sysfs does not
        say which it expects, and older drivers are known to expect another, that one is tried, too."""
        before = len(self.allocations)
        try:
            return call(
                self.port, self.memory.kfd_fd, kfd.CREATE_QUEUE, **fields, **self._compute_buffers(self.chip)
            )
        except DriverError as refusal:
            once = self.chip.vgpr_bytes_once
            if refusal.errno != errno.EINVAL or not once or self.node.cwsr_bytes or self.is_copying:
                raise
        while len(self.allocations) > before:
            self.memory.free(self.allocations.pop())
        older = self._compute_buffers(replace(self.chip, vgpr_bytes=once))
        return call(self.port, self.memory.kfd_fd, kfd.CREATE_QUEUE, **fields, **older)

    @property
    def is_copying(self) -> bool:
        """Whether it is a copy engine's queue, which needs no buffers of waves."""
        return self.queue_type == QueueType.SDMA

    def _compute_buffers(self, chip: Chip) -> dict[str, int]:
        """The buffers that compute queues also need: end-of-pipe events, and where waves are saved."""
        if self.is_copying:
            return {}
        sizes = queue_sizes(self.node, chip)
        area = self.save_area = self._alloc(sizes.area_bytes, SAVE_PLACE)
        self.save_bytes = sizes.save_bytes
        view = native.view(area.va, sizes.area_bytes)
        for offset, header in area_headers(sizes, self.node.xccs):
            view[offset : offset + len(header)] = header
        fields = {
            "ctx_save_restore_address": area.va,
            "ctx_save_restore_size": sizes.save_bytes,
            "ctl_stack_size": sizes.ctl_stack_bytes,
        }
        # ROCr gives AQL queues of gfx942 none, for it sends no RELEASE_MEM there. Our blocks of PM4 do, and the
        # processor notes each in this buffer: without one it writes to address 0 (a peer's finding, not seen by us)
        eop = self._alloc(EOP_BYTES, Place.PRIVATE)
        return {**fields, "eop_buffer_address": eop.va, "eop_buffer_size": EOP_BYTES}

    def _prepare_pointers(self, page: memoryview) -> tuple[int, int]:
        return WPTR_AT, RPTR_AT

    def _empty_ring(self) -> bytes:
        return bytes(RING_BYTES)

    def _alloc(self, size_bytes: int, place: Place) -> Allocation:
        self.allocations.append(self.memory.alloc(size_bytes, place))
        return self.allocations[-1]

    def destroy(self) -> None:
        """End the queue and free its buffers. Work in it is dropped."""
        if self.queue_id >= 0:
            again, self.is_ending = self.is_ending, True
            try:
                call(self.port, self.memory.kfd_fd, kfd.DESTROY_QUEUE, queue_id=self.queue_id)
            except DriverError as refusal:
                # a call that was interrupted may have ended it
                if not again or refusal.errno != errno.EINVAL:
                    self.is_ending = False
                    raise
            self.queue_id = -1
        self._free()

    def _free(self) -> None:
        self.save_area = None
        allocations, self.allocations = self.allocations, []
        do_all(partial(self.memory.free, what) for what in reversed(allocations))

    # ------------------------------------------------------------ writing

    @property
    def get(self) -> int:
        """How far the GPU has read."""
        return self._rptr[0]

    @property
    def wptr(self) -> int:
        """How far the GPU may read: the write pointer in memory."""
        return self._wptr[0]

    def take_back(self, put: int) -> None:
        """Forget packets behind the write pointer in memory."""
        self.put = put

    @abstractmethod
    def after(self, put: int, packets: bytes) -> int:
        """What `put` becomes when these packets are written there."""

    @abstractmethod
    def most_units(self, size_bytes: int) -> int:
        """How far so many bytes of packets move the write pointer at most."""

    @abstractmethod
    def write(self, packets: bytes, wait: Callable[[Ring, int], None]) -> None:
        """Put whole packets into the ring. wait(ring, units) returns once there is room for so many more."""

    def commit(self) -> None:
        """Show the GPU what was written."""
        if self.put == self.rung:
            return
        full_fence()  # packets are visible before the write pointer covers them,
        self._wptr[0] = self.put
        full_fence()  # and the write pointer before the doorbell makes the GPU look
        self._doorbell[0] = self._doorbell_value()
        self.rung = self.put

    def _note(self, packets: bytes) -> None:
        if self.seen is not None:
            self.seen.append(packets)

    def _doorbell_value(self) -> int:
        return self.put

    def has_room(self, units: int) -> bool:
        """Whether this many units can be written before the GPU has read more."""
        return self.put + units - self.get <= self.capacity

    def too_long(self, size_bytes: int) -> UsageError:
        """The error for packets that no empty ring of this kind could hold."""
        return UsageError(
            f"submit: {size_bytes} bytes of packets in one piece do not fit the {self.kind} ring's {RING_BYTES}. "
            "Split them."
        )


class Pm4Ring(Ring):
    """Compute packets (PM4): put and get count words."""

    kind = "PM4"
    queue_type = QueueType.COMPUTE
    size = RING_BYTES // 4
    capacity = size - 1

    @property
    def get(self) -> int:
        """How far the GPU has read: the last place at or before `put` that is where it reads in the ring."""
        return self.put - (self.put - self._rptr[0]) % self.size

    def after(self, put: int, packets: bytes) -> int:
        return put + len(packets) // 4

    def most_units(self, size_bytes: int) -> int:
        return size_bytes // 4

    def write(self, packets: bytes, wait: Callable[[Ring, int], None]) -> None:
        self._note(packets)
        units = len(packets) // 4
        if units > self.capacity:
            raise self.too_long(len(packets))
        if not self.has_room(units):
            wait(self, units)
        at = 4 * self.put % RING_BYTES
        head = min(len(packets), RING_BYTES - at)
        self.bytes[at : at + head] = packets[:head]
        if head < len(packets):
            self.bytes[: len(packets) - head] = packets[head:]
        self.put += units


class SdmaRing(Ring):
    """Copy packets (SDMA): put and get count bytes. What does not fit before the ring's end begins at its start."""

    kind = "SDMA"
    queue_type = QueueType.SDMA
    size = RING_BYTES
    capacity = size - 4  # a word less

    def after(self, put: int, packets: bytes) -> int:
        return put + self._gap(put, len(packets)) + len(packets)

    def most_units(self, size_bytes: int) -> int:
        return 2 * size_bytes

    def _gap(self, put: int, size: int) -> int:
        """What is left of the ring when packets of this size do not fit behind `put`."""
        at = put % RING_BYTES
        return RING_BYTES - at if at + size > RING_BYTES else 0

    def write(self, packets: bytes, wait: Callable[[Ring, int], None]) -> None:
        self._note(packets)
        size = len(packets)
        at = self.put % RING_BYTES
        gap = self._gap(self.put, size)
        if size + gap > self.capacity:
            raise self.too_long(size)
        if not self.has_room(gap + size):
            wait(self, gap + size)
        if gap:
            self.bytes[at:] = bytes(gap)  # words of zero: NOPs
            self.put += gap
            at = 0
        self.bytes[at : at + size] = packets
        self.put += size


class AqlRing(Ring):
    """HSA packets (AQL): put and get count packets of 64 bytes."""

    kind = "AQL"
    queue_type = QueueType.COMPUTE_AQL
    size = capacity = RING_BYTES // aql.PACKET_BYTES  # the processor compares indices that never wrap

    def after(self, put: int, packets: bytes) -> int:
        return put + len(packets) // aql.PACKET_BYTES

    def most_units(self, size_bytes: int) -> int:
        return size_bytes // aql.PACKET_BYTES

    def _prepare_pointers(self, page: memoryview) -> tuple[int, int]:
        queue = aql.AmdQueue
        self.inactive = self.pointers.va + 1024  # an amd_signal_t: why the processor stopped, or 0
        read_at = queue.read_dispatch_id.byte_offset
        image = queue(
            base_address=self.ring.va,
            size=self.size,
            read_dispatch_id_field_base_byte_offset=read_at,
            max_cu_id=self.node.compute_units - 1,
            max_wave_id=self.node.scratch_waves_per_unit - 1,
            group_segment_aperture_base_hi=self.apertures.lds_base >> 32,
            private_segment_aperture_base_hi=self.apertures.scratch_base >> 32,
            queue_inactive_signal=self.inactive,
        ).to_bytes()
        page[: len(image)] = image
        page[1024:1088] = aql.AmdSignal().to_bytes()
        self._page = page
        return queue.write_dispatch_id.byte_offset, read_at

    def _empty_ring(self) -> bytes:
        slot = aql.Header(type=aql.PacketType.INVALID).to_bytes()
        return slot * self.size

    def set_scratch(self, scratch: Scratch, unit: int) -> None:
        """Tell the processor of new scratch memory; the queue is idle. Sizes are of each XCC's part, as ROCr's are."""
        size = TmpringSize(waves=scratch.waves, wavesize=scratch.wave_bytes // unit)
        queue = aql.AmdQueue
        at = queue.scratch_resource_descriptor_0.byte_offset
        words = self.chip.scratch_resource.of(scratch.va, scratch.size_bytes).to_bytes()
        self._page[at : at + len(words)] = words
        for field, text, value in (
            (queue.scratch_backing_memory_location, "<Q", scratch.va),
            (queue.scratch_backing_memory_byte_size, "<Q", scratch.size_bytes),
            (queue.scratch_wave64_lane_byte_size, "<I", scratch.wave_bytes // 64),
            (queue.compute_tmpring_size, "<I", size.words[0]),
        ):
            struct.pack_into(text, self._page, field.byte_offset, value)

    @property
    def inactive_code(self) -> int:
        """Why the processor stopped this queue; 0 while it runs."""
        at = 1024 + aql.AmdSignal.value.byte_offset
        return self._page[at : at + 8].cast("Q")[0]

    def write(self, packets: bytes, wait: Callable[[Ring, int], None]) -> None:
        self._note(packets)
        start, count = 0, len(packets) // aql.PACKET_BYTES
        while start < count:
            place = self.put % self.size
            some = min(count - start, self.size - place, max(self.capacity // 2, 1))
            if not self.has_room(some):
                wait(self, some)
            self._write_some(packets[start * aql.PACKET_BYTES : (start + some) * aql.PACKET_BYTES], place)
            start += some

    def _write_some(self, packets: bytes, place: int) -> None:
        """Packets for which there is room, up to the ring's end: whole before their first words make them ready."""
        words = memoryview(bytearray(packets)).cast("I")
        ready = list(words[::PACKET_WORDS])
        for at in range(0, len(words), PACKET_WORDS):
            words[at] = NOT_READY
        at = place * aql.PACKET_BYTES
        self.bytes[at : at + len(packets)] = words.cast("B")
        # counted before they are ready: who takes them back finds all of them
        self.put += len(ready)
        full_fence()
        there = self.bytes[at : at + len(packets)].cast("I")
        for number, word in enumerate(ready):
            there[number * PACKET_WORDS] = word

    def _doorbell_value(self) -> int:
        return self.put - 1

    def take_back(self, put: int) -> None:
        for index in range(put, self.put + 1):  # the last one may be there without being counted
            at = index % self.size * aql.PACKET_BYTES
            self.bytes[at : at + 4] = aql.Header(type=aql.PacketType.INVALID).to_bytes()[:4]
        self.put = put
