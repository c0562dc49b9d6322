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
from typing import Any

from hcq.amd.abi import kfd
from hcq.amd.abi.kfd import EventData, EventType, HwExceptionData, MemoryExceptionData
from hcq.amd.ioctl import call
from hcq.amd.memory import Allocation, KfdMemory, Place
from hcq.errors import DriverError, HcqError
from hcq.system import native
from hcq.system.port import Port, of_process

DATA_BYTES = 4 * EventData.length_words
NO_GPU = 0xFFFFFFFF  # ids of GPUs have 16 bits: kfd_generate_gpu_id
# where they stand in what is waited with: of each event, and of the faults of the second and the third
EVENT_ID = EventData.event_id.byte_offset
MEMORY_GPU = DATA_BYTES + MemoryExceptionData.gpu_id.byte_offset
HARDWARE_GPU = 2 * DATA_BYTES + HwExceptionData.gpu_id.byte_offset


@dataclass(frozen=True)
class Fault:
    """What the kernel driver said of a GPU: a page fault, or a hang that it ended with a reset."""

    gpu_id: int
    memory: MemoryExceptionData | None = None
    hardware: HwExceptionData | None = None


class KfdProcess:
    """Shared by the devices of one operating system, until a fault evicts it.

    is_second   a context beside the process's first one: CREATE_PROCESS makes it
    """

    def __init__(self, is_second: bool = False) -> None:
        self.is_second = is_second
        self.lock = threading.RLock()
        self.kfd_fd = -1
        self.render_fds: dict[int, int] = {}  # gpu id -> file
        self.acquired: set[int] = set()  # GPUs whose address space is bound to such a file
        # gpu id -> what was reported. It stays: the kernel runs no queue of this process on that GPU any more
        self.faults: dict[int, Fault] = {}
        self.event_page: Allocation | None = None
        self.memory_event = 0
        self.hardware_event = 0

    def open_kfd(self, port: Port) -> int:
        """/dev/kfd, opened on first use."""
        with self.lock:
            if self.kfd_fd < 0:
                fd = port.open("/dev/kfd")
                try:
                    if self.is_second:
                        call(port, fd, kfd.CREATE_PROCESS)
                except HcqError:
                    port.close(fd)
                    raise
                self.kfd_fd = fd
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
            self.memory_event = self._create(port, kfd_fd, EventType.MEMORY).event_id
        if not self.hardware_event:
            self.hardware_event = self._create(port, kfd_fd, EventType.HW_EXCEPTION).event_id

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
        """Until the event fires, a fault is reported, or time is out. Faults of any GPU are noted in `faults`.

        All events reset themselves when a wait has seen them: kfd_reset_event does so for signals alone. The kernel
        writes data for those that fired; bits that it cannot write stand there before, so that data of zeros are seen.
        """
        ids = (event_id, self.memory_event, self.hardware_event)
        data = bytearray(DATA_BYTES * len(ids))
        for index, number in enumerate(ids):
            struct.pack_into("<I", data, DATA_BYTES * index + EVENT_ID, number)
        for place in (MEMORY_GPU, HARDWARE_GPU):
            struct.pack_into("<I", data, place, NO_GPU)
        call(  # kfd_wait_on_events: EINVAL for an event that is not there, EIO for one destroyed meanwhile
            port,
            self.kfd_fd,
            kfd.WAIT_EVENTS,
            events_ptr=native.address_of(data),
            num_events=len(ids),
            wait_for_all=0,
            timeout=timeout_ms,
        )
        words = memoryview(data).cast("I")
        if words[MEMORY_GPU // 4] != NO_GPU:
            memory = MemoryExceptionData.decode(words[12:20])
            self._note(memory.gpu_id, memory=memory)
        if words[HARDWARE_GPU // 4] != NO_GPU:
            hardware = HwExceptionData.decode(words[24:28])
            self._note(hardware.gpu_id, hardware=hardware)

    def _note(self, gpu_id: int, **what: Any) -> None:
        """Keep the first fault of a GPU; one without a GPU's id (kfd_signal_hw_exception_event) is of all of them."""
        for number in (gpu_id,) if gpu_id else self.acquired:
            self.faults.setdefault(number, Fault(number, **what))

    def check_not_evicted(self, gpu_id: int, what_to_do: str = "Restart the process.") -> None:
        """Raises DriverError when the kernel runs no queue of this process on a GPU any more.

        A page fault evicts the process there (kfd_dqm_evict_pasid), a reset does so everywhere
        (kfd_suspend_all_processes). Nothing takes either back: queues made later are evicted from the start
        (create_queue_cpsch, is_evicted = !!qpd->evicted), until the process ends (kfd_process_notifier_release).
        """
        fault = self.faults.get(gpu_id)
        if fault is not None:
            why = "a page fault" if fault.memory is not None else "the GPU's reset"
            raise DriverError(
                f"after {why} the kernel driver runs no queue of this process on GPU {gpu_id:#x} any more. {what_to_do}"
            )

    def _create(self, port: Port, kfd_fd: int, kind: EventType, page: int = 0) -> kfd.CreateEventArgs:
        # kfd_event_create: EINVAL for a page of events beside the first, ENOSPC beyond 4096 signals
        return call(port, kfd_fd, kfd.CREATE_EVENT, event_type=kind, event_page_offset=page, auto_reset=1)

    def _share_page(self, memory: KfdMemory) -> None:
        assert self.event_page is not None
        self.event_page = memory.map_for(self.event_page, memory.gpu_id)
        memory.live.pop(self.event_page.va, None)


class _Current:
    """The context of the process that new devices are opened in."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.process = KfdProcess()


def process_of(port: Port) -> KfdProcess:
    """The process as the operating system behind a port knows it."""
    return of_process(port, _Current).process


def process_after(port: Port, evicted: KfdProcess) -> KfdProcess:
    """A second context of the process, once a first one is evicted from a GPU. Devices of the first stay there."""
    current = of_process(port, _Current)
    with current.lock:
        if current.process is evicted:
            current.process = KfdProcess(is_second=True)
        return current.process
