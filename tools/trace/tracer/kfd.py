"""A traced process that uses AMD's kernel driver: its queues.

In       ioctls of /dev/kfd as they return, mappings of doorbells
Out      packets as doorbells are about to show them, how far rings are read
Next     process.py (the rest of it), hcq/amd/foreign/ (what becomes of the events), rm.py (the sister)
Source   kfd_ioctl.h: CREATE_QUEUE; how pointers count: hcq/amd/rings.py. kfd_mmap: what an offset of /dev/kfd shows
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from hcq.amd.abi import aql, kfd
from hcq.events.kernel_observer import Call, KernelObserver
from hcq.tools.trace.tracer.process import TracedProcess

UNITS = {kfd.QueueType.COMPUTE: 4, kfd.QueueType.COMPUTE_AQL: aql.PACKET_BYTES, kfd.QueueType.SDMA: 1, 3: 1}


@dataclass
class Queue:
    """A queue as CREATE_QUEUE described it. told: up to where packets were told, in units of its pointers."""

    number: int
    kind: int
    ring: int
    ring_bytes: int
    wptr_va: int
    rptr_va: int
    unit_bytes: int
    told: int = 0
    done: int = 0


class KfdProcess(TracedProcess):
    """A process, by its use of the KFD."""

    kind: ClassVar[str] = "AMD"
    devices: ClassVar[tuple[str, ...]] = ("/dev/kfd", "/dev/dri/renderD")

    def __init__(self, pid: int, observer: KernelObserver) -> None:
        super().__init__(pid, observer)
        self.queues: dict[int, Queue] = {}
        self.doorbell_offsets: set[int] = set()

    # ------------------------------------------------------------ calls

    def returned(self, call: Call) -> None:
        if call.path == "/dev/kfd":
            number = call.request & 0xFF
            if number == kfd.CREATE_QUEUE.number:
                self._created(call.after)
            elif number == kfd.DESTROY_QUEUE.number:
                self.queues.pop(int.from_bytes(call.before[:4], "little"), None)

    def _created(self, after: bytes) -> None:
        made = kfd.CREATE_QUEUE.decode(after)
        assert isinstance(made, kfd.CreateQueueArgs)
        unit = UNITS.get(made.queue_type)
        if unit is None:
            return
        queue = Queue(
            made.queue_id,
            made.queue_type,
            made.ring_base_address,
            made.ring_size,
            made.write_pointer_address,
            made.read_pointer_address,
            unit,
        )
        queue.told = queue.done = self._number(queue.wptr_va)
        self.queues[queue.number] = queue
        # the queue's own doorbell lies somewhere in the slice
        self.doorbell_offsets.add(made.doorbell_offset & -kfd.DOORBELL_SLICE_BYTES)

    def mapped(self, thread: int, start: int, size_bytes: int, fd: int, offset: int) -> None:
        if self.path_of(fd) == "/dev/kfd" and offset & -kfd.DOORBELL_SLICE_BYTES in self.doorbell_offsets:
            self.withhold(thread, start, size_bytes, fd, offset)

    # ------------------------------------------------------------ rings

    def look(self) -> None:
        for queue in list(self.queues.values()):
            self._look(queue)

    def _look(self, queue: Queue) -> None:
        put = self._number(queue.wptr_va)
        slots = queue.ring_bytes // queue.unit_bytes
        if not queue.told < put <= queue.told + slots:
            return
        if queue.kind == kfd.QueueType.COMPUTE_AQL:
            put = self._ready(queue, put, slots)
        first, size = queue.told * queue.unit_bytes, (put - queue.told) * queue.unit_bytes
        at = first % queue.ring_bytes
        head = min(size, queue.ring_bytes - at)
        words = self.read(queue.ring + at, head) + (
            self.read(queue.ring, size - head) if size > head else b""
        )
        if words:
            queue.told = put
            self.observer.taken(self, queue.number, first, words, self.read)

    def _ready(self, queue: Queue, put: int, slots: int) -> int:
        """Up to the first packet whose header has not been stored yet."""
        for place in range(queue.told, put):
            header = self.read(queue.ring + place % slots * aql.PACKET_BYTES, 1)
            if not header or header[0] == aql.PacketType.INVALID:
                return place
        return put

    def look_done(self) -> None:
        for queue in list(self.queues.values()):
            if queue.done == queue.told:
                continue
            get = self._number(queue.rptr_va)
            if queue.kind == kfd.QueueType.COMPUTE:  # 32 bits, a place in the ring
                words = queue.ring_bytes // 4
                get = queue.told - (queue.told - get) % words
            if queue.done < get <= queue.told:
                queue.done = get
                self.observer.done(self, queue.number, get * queue.unit_bytes)

    def _number(self, va: int) -> int:
        return int.from_bytes(self.read(va, 8), "little")
