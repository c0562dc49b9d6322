"""What belongs to the process and not to one device: render nodes, the event page, the events of faults.

In       the port of whichever device needs one of these first
Out      KfdProcess, one for each operating system (the real one, or an emulated one)
Changes  opens render nodes, which stay open: a GPU's address space is bound to the file it was acquired with
Next     device.py (who opens), memory.py (allocations), fault.py (events in words)
Source   kfd_events.c: one event page for each process; kfd_process.c: one render file for each GPU
"""

from __future__ import annotations

import struct
import threading
from dataclasses import dataclass

from hcq import native
from hcq.amd.abi import kfd
from hcq.amd.abi.kfd import EventData, EventType, HwExceptionData, MemoryExceptionData
from hcq.amd.ioctl import call
from hcq.amd.memory import Allocation, KfdMemory, Place
from hcq.errors import HcqError
from hcq.port import Port, of_process

DATA_BYTES = 4 * EventData.length_words


@dataclass(frozen=True)
class Fault:
    """What the kernel driver said of a GPU: a page fault, or a hang that it ended with a reset."""

    gpu_id: int
    memory: MemoryExceptionData | None = None
    hardware: HwExceptionData | None = None


class KfdProcess:
    """Shared by the devices of one operating system."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.kfd_fd = -1
        self.render_fds: dict[int, int] = {}  # gpu id -> file
        self.acquired: set[int] = set()  # GPUs whose address space is bound to such a file
        self.faults: dict[int, Fault] = {}  # gpu id -> what was reported, until its device has seen it
        self.event_page: Allocation | None = None
        self.memory_event = 0
        self.hardware_event = 0

    def open_kfd(self, port: Port) -> int:
        """/dev/kfd, opened on first use."""
        with self.lock:
            if self.kfd_fd < 0:
                self.kfd_fd = port.open("/dev/kfd")
            return self.kfd_fd

    def render_fd(self, port: Port, gpu_id: int, minor: int) -> int:
        """The render node of a GPU, opened on first use."""
        with self.lock:
            if gpu_id not in self.render_fds:
                self.render_fds[gpu_id] = port.open(f"/dev/dri/renderD{minor}")
            return self.render_fds[gpu_id]

    def drop_render_fd(self, port: Port, gpu_id: int) -> None:
        """Close the render node of a GPU whose address space could not be acquired with it."""
        with self.lock:
            if gpu_id not in self.acquired:
                port.close(self.render_fds.pop(gpu_id))

    def make_events(self, port: Port, kfd_fd: int, memory: KfdMemory) -> int:
        """A signal event for one device: its id. The first device also makes the page and the events of faults."""
        with self.lock:
            if self.event_page is None:
                page = memory.alloc(kfd.EVENT_PAGE_BYTES, Place.SHARED)
                made = self._create(port, kfd_fd, EventType.SIGNAL, page.handle)
                self.event_page = page
                del memory.live[page.va]  # pinned for as long as the process lives
                signal = made.event_id
            else:
                self._share_page(memory)
                signal = self._create(port, kfd_fd, EventType.SIGNAL).event_id
            try:
                self._make_fault_events(port, kfd_fd)
            except HcqError:
                self._quietly_destroy(port, kfd_fd, signal)
                raise
            return int(signal)

    def _make_fault_events(self, port: Port, kfd_fd: int) -> None:
        if not self.memory_event:
            self.memory_event = self._create(port, kfd_fd, EventType.MEMORY, auto_reset=0).event_id
        if not self.hardware_event:
            self.hardware_event = self._create(port, kfd_fd, EventType.HW_EXCEPTION, auto_reset=0).event_id

    def _quietly_destroy(self, port: Port, kfd_fd: int, event_id: int) -> None:
        """The error that led here is the one to raise."""
        try:
            call(port, kfd_fd, kfd.DESTROY_EVENT, event_id=event_id)
        except HcqError:
            return

    def slot(self, event_id: int) -> int:
        """Where a GPU writes to raise an event."""
        assert self.event_page is not None
        return self.event_page.va + 8 * event_id

    def wait(self, port: Port, event_id: int, timeout_ms: int) -> None:
        """Until the event fires, a fault is reported, or time is out. Faults of any GPU are noted in `faults`."""
        ids = (event_id, self.memory_event, self.hardware_event)
        data = bytearray(DATA_BYTES * len(ids))
        at = EventData.event_id.byte_offset
        for index, number in enumerate(ids):
            struct.pack_into("<I", data, DATA_BYTES * index + at, number)
        call(
            port,
            self.kfd_fd,
            kfd.WAIT_EVENTS,
            events_ptr=native.address_of(data),
            num_events=len(ids),
            wait_for_all=0,
            timeout=timeout_ms,
        )
        words = memoryview(data).cast("I")
        memory = MemoryExceptionData.decode(words[12:20])
        hardware = HwExceptionData.decode(words[24:28])
        if memory.gpu_id:
            self.faults[memory.gpu_id] = Fault(memory.gpu_id, memory=memory)
            call(port, self.kfd_fd, kfd.RESET_EVENT, event_id=self.memory_event)
        if hardware.gpu_id:
            self.faults.setdefault(hardware.gpu_id, Fault(hardware.gpu_id, hardware=hardware))
            call(port, self.kfd_fd, kfd.RESET_EVENT, event_id=self.hardware_event)

    def _create(
        self, port: Port, kfd_fd: int, kind: EventType, page: int = 0, auto_reset: int = 1
    ) -> kfd.CreateEventArgs:
        return call(
            port, kfd_fd, kfd.CREATE_EVENT, event_type=kind, event_page_offset=page, auto_reset=auto_reset
        )

    def _share_page(self, memory: KfdMemory) -> None:
        assert self.event_page is not None
        self.event_page = memory.map_for(self.event_page, memory.gpu_id)
        memory.live.pop(self.event_page.va, None)


def process_of(port: Port) -> KfdProcess:
    """The process as the operating system behind a port knows it."""
    return of_process(port, KfdProcess)
