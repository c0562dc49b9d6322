"""One traced process: which of its files are a GPU's, what it asks of them, and its queues.

In       system calls as they begin and return; doorbells that are about to be written
Out      the events of hcq/kernel_observer.py
Changes  nothing but its doorbells' mappings
Next     tracer.py (who stops the threads), doorbells.py, hcq/amd/foreign/ (what becomes of the events)
Source   kfd_ioctl.h: CREATE_QUEUE; how pointers count: hcq/amd/rings.py. kfd_mmap: what an offset of /dev/kfd shows

Rings are read when a doorbell is about to be written: the GPU has seen nothing of that yet. How far it has come is read
then, too, so a submission's end is known no better than by the next call or doorbell of the process.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass

from hcq import backends
from hcq.amd.abi import aql, kfd
from hcq.kernel_observer import Call, Client, KernelObserver
from hcq.pointers import Nested, noted
from hcq.tools.trace.tracer import doorbells
from hcq.tools.trace.tracer.doorbells import Doorbells

DEVICES = ("/dev/kfd", "/dev/dri/renderD")
PAGE = 4096
UNITS = {kfd.QueueType.COMPUTE: 4, kfd.QueueType.COMPUTE_AQL: aql.PACKET_BYTES, kfd.QueueType.SDMA: 1, 3: 1}
MAP_SHARED = 1


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


class TracedProcess(Client):
    """A process with its memory. `close` when it is gone."""

    def __init__(self, pid: int, observer: KernelObserver) -> None:
        self._pid, self.observer = pid, observer
        self.files: dict[tuple[int, int], str] = {}  # device files that it opened, by what they are
        self.queues: dict[int, Queue] = {}
        self.doorbell_offsets: set[int] = set()
        self.doorbells: list[Doorbells] = []
        self.call_at = 0  # behind some instruction that makes system calls
        self._memory = os.open(f"/proc/{pid}/mem", os.O_RDONLY | os.O_CLOEXEC)

    @property
    def pid(self) -> int:
        return self._pid

    def read(self, va: int, size_bytes: int) -> bytes:
        """Its memory; nothing where some of it cannot be read."""
        try:
            data = os.pread(self._memory, size_bytes, va)
        except (OSError, OverflowError):
            return b""
        return data if len(data) == size_bytes else b""

    def close(self) -> None:
        """It is gone, or executes another program."""
        os.close(self._memory)
        self.observer.exited(self)

    # ------------------------------------------------------------ files

    def opened(self, path: str, fd: int) -> None:
        """An open returned."""
        if path.startswith(DEVICES) and (what := self._what(fd)):
            self.files[what] = path

    def path_of(self, fd: int) -> str:
        """The device file behind a descriptor, however it came by it; "" for any other."""
        what = self._what(fd)
        if what is None:
            return ""
        if what not in self.files:
            try:
                self.files[what] = os.readlink(f"/proc/{self.pid}/fd/{fd}")
            except OSError:
                return ""
        path = self.files[what]
        return path if path.startswith(DEVICES) else ""

    def _what(self, fd: int) -> tuple[int, int] | None:
        try:
            found = os.stat(f"/proc/{self.pid}/fd/{fd}")
        except OSError:
            return None
        return found.st_dev, found.st_ino

    # ------------------------------------------------------------ calls

    def calls(self, fd: int, request: int, va: int) -> Callable[[int], None] | None:
        """An ioctl begins. Returns what is to be done once it has returned; None for one that is no GPU's."""
        path = self.path_of(fd)
        if not path:
            return None
        size = request >> 16 & 0x3FFF
        before = self.read(va, size)
        nested = noted(backends.pointers_of("AMD")(request, before), before, self.read)
        return lambda result: self._returned(path, fd, request, va, before, nested, result)

    def _returned(
        self,
        path: str,
        fd: int,
        request: int,
        va: int,
        before: bytes,
        nested: Callable[[], list[Nested]],
        result: int,
    ) -> None:
        after = self.read(va, len(before))
        error = -result if result < 0 else 0
        self.observer.called(self, Call(path, request, before, after, error, nested(), fd))
        if path == "/dev/kfd" and not error:
            number = request & 0xFF
            if number == kfd.CREATE_QUEUE.number:
                self._created(after)
            elif number == kfd.DESTROY_QUEUE.number:
                self.queues.pop(int.from_bytes(before[:4], "little"), None)
        self.look_done()

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
        """A shared mapping of a file was made by this thread, which is stopped at its end."""
        if self.path_of(fd) == "/dev/kfd" and offset & -kfd.DOORBELL_SLICE_BYTES in self.doorbell_offsets:
            page = doorbells.withhold(thread, start, size_bytes, fd, offset)
            if page is not None:
                self.doorbells = [one for one in self.doorbells if one.start != start] + [page]

    # ------------------------------------------------------------ rings

    def rung(self, va: int) -> Doorbells | None:
        """A store to this address is about to be made; if it is a doorbell, the rings have been read."""
        page = next((one for one in self.doorbells if one.holds(va)), None)
        if page is not None:
            for queue in list(self.queues.values()):
                self._look(queue)
            self.look_done()
        return page

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
        """How far the GPU has come."""
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
