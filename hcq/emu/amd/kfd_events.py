"""Events of the emulated KFD: signals that GPUs raise, memory exceptions, hardware exceptions.

In       CREATE_EVENT, WAIT_EVENTS and the other calls on events; interrupts and faults from GPUs
Out      event ids, and waits that end when an event fires or time is out
Changes  slots of the event page: the caller's, or the kernel's own
Next     kfd_calls.py (the ioctls), process_gpu.py (who raises)
Source   kfd_events.c: the function named at each method

An event has an age, which rises with every set: who waits with the age it has seen before misses no set, even when
another waiter has taken the event meanwhile.
"""

from __future__ import annotations

import errno
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from hcq.amd.abi.kfd import (
    EVENT_PAGE_BYTES,
    FOREVER_MS,
    UNSIGNALLED,
    CreateEventArgs,
    EventData,
    EventType,
    HwExceptionData,
    MemoryExceptionData,
    SignalEventData,
    WaitEventsArgs,
    WaitResult,
)
from hcq.emu.amd.memory import PAGE, BufferObject
from hcq.emu.backing import Backing, DeviceMemory
from hcq.emu.condition import Condition
from hcq.emu.kernel import Process, Refusal

SIGNAL_LIMIT = 4096
UNMAPPED_LIMIT = (
    256  # slots of the kernel's own page that are used before it is mapped: the oldest libraries know these
)
FIRST_OTHER_ID = 0x40000000  # KFD_FIRST_NONSIGNAL_EVENT_ID
DATA_BYTES = 4 * EventData.length_words
MAX_WAITERS = (
    4 << 20
) // 56  # of one wait: kcalloc gives 4 MiB at most, and struct kfd_event_waiter has 56 bytes
WITH_SLOT = (EventType.SIGNAL, EventType.DEBUG_EVENT)
INTERRUPTED_SECONDS = 0.05  # how often a wait asks whether anybody still waits


@dataclass(eq=False)
class Waiter:
    """One wait for one event.

    has_age   the caller gave an age, and gets the new one: without, 0 stays 0
    is_gone   the event was destroyed meanwhile
    """

    event: Event
    is_activated: bool
    has_age: bool
    is_gone: bool = False

    def data(self) -> bytes:
        """copy_signaled_event_data: what it tells of an event that has fired."""
        if self.event.type != EventType.SIGNAL:
            return self.event.payload
        return SignalEventData(last_event_age=self.event.age).to_bytes() if self.has_age else b""


@dataclass(eq=False)
class Event:
    """A signal, or a kind of exception, that a process can wait for."""

    id: int
    type: int
    auto_reset: bool
    is_signalled: bool = False
    age: int = 1
    payload: bytes = b""
    waiters: list[Waiter] = field(default_factory=list)

    def fire(self) -> None:
        """set_event: every waiter wakes; one that resets itself stays set only when nobody waits."""
        self.is_signalled = not self.auto_reset or not self.waiters
        self.age += 1
        for waiter in self.waiters:
            waiter.is_activated = True


class Events:
    """The events of one process.

    has_ages         the kernel knows ages: from interface 1.14 on
    memory           what /dev/kfd maps: the kernel's own page lies there
    is_map_unseen    the process maps that by itself, and we do not see how much of it
    page, limit      where the slots are, and how many of them are used, id 0 included
    """

    def __init__(
        self,
        kick: Callable[[], None],
        has_ages: bool = True,
        memory: DeviceMemory | None = None,
        is_map_unseen: bool = False,
    ) -> None:
        self.kick = kick  # a process that waits is a good moment for GPUs to look at their doorbells
        self.has_ages = has_ages
        self.memory = memory
        self.condition = Condition()
        self.events: dict[int, Event] = {}
        self.page: BufferObject | Backing | None = None
        self.limit = SIGNAL_LIMIT if is_map_unseen else UNMAPPED_LIMIT
        # RUNTIME_ENABLE: exceptions of a queue are told through the header of its context save area
        self.is_runtime_enabled = False

    def create(self, args: CreateEventArgs, page: BufferObject | None) -> tuple[int, int]:
        """kfd_event_create: a new event, its id and its slot.

        page   kfd_kmap_event_page: the caller's, once in a process. Without one the kernel makes a page of its own
        """
        with self.condition:
            if page is not None:
                self._set_page(page)
            if args.event_type in WITH_SLOT:
                if self.page is None:
                    self._take_page(Backing(EVENT_PAGE_BYTES, self.memory))
                number = next((id for id in range(1, self.limit) if id not in self.events), 0)
                if not number:
                    raise Refusal(errno.ENOSPC)
                self.slots[number] = UNSIGNALLED
                slot = number
            else:
                number = FIRST_OTHER_ID
                while number in self.events:
                    number += 1
                slot = 0
            self.events[number] = Event(number, args.event_type, bool(args.auto_reset))
        return number, slot

    def _set_page(self, page: BufferObject) -> None:
        """kfd_kmap_event_page; amdgpu_amdkfd_gpuvm_map_gtt_bo_to_kernel: no pages of the process (USERPTR)."""
        if self.page is not None or page.size_bytes < EVENT_PAGE_BYTES or page.user is not None:
            raise Refusal(errno.EINVAL)
        page.is_pinned = True
        self.limit = SIGNAL_LIMIT
        self._take_page(page)

    def _take_page(self, page: BufferObject | Backing) -> None:
        page.data[:EVENT_PAGE_BYTES] = 0xFF
        self.page = page

    @property
    def own_page(self) -> Backing | None:
        """The kernel's own page, if the caller gave none."""
        return self.page if isinstance(self.page, Backing) else None

    @property
    def slots(self) -> Any:
        """The slots of the page, by id."""
        assert self.page is not None
        return self.page.data[:EVENT_PAGE_BYTES].view("u8")

    def map_page(self, va: int, size_bytes: int, prot: int, flags: int) -> int:
        """kfd_event_mmap: show the kernel's own page; from now on as many slots are used as are mapped.

        Raises Refusal (EINVAL) for more than all of it, and where there is no page. Of one that the caller gave the
        kernel maps nothing that makes sense (the physical address of memory that has none): that is refused here, too.
        """
        size = -(-size_bytes // PAGE) * PAGE
        with self.condition:
            own = self.own_page
            if size > EVENT_PAGE_BYTES or own is None:
                raise Refusal(errno.EINVAL)
            at = own.map_host(va, size, prot, flags)
            self.limit = size // 8
        return at

    def destroy(self, number: int) -> None:
        """kfd_event_destroy: who waits for it is woken, and fails. Raises Refusal (EINVAL) when there is none."""
        with self.condition:
            event = self.events.pop(number, None)
            if event is None:
                raise Refusal(errno.EINVAL)
            for waiter in event.waiters:
                waiter.is_gone = True
            self.condition.notify_all()

    def release(self) -> None:
        """The process is gone."""
        for number in list(self.events):
            self.destroy(number)
        self.page = None

    def set(self, number: int) -> None:
        """kfd_set_event: set a signal. Raises Refusal (EINVAL) for any other event."""
        with self.condition:
            event = self.events.get(number)
            if event is None or event.type != EventType.SIGNAL:
                raise Refusal(errno.EINVAL)
            event.fire()
            self.condition.notify_all()

    def reset(self, number: int) -> None:
        """kfd_reset_event: set a signal back. Raises Refusal (EINVAL) for any other event."""
        with self.condition:
            event = self.events.get(number)
            if event is None or event.type != EventType.SIGNAL:
                raise Refusal(errno.EINVAL)
            event.is_signalled = False

    def interrupt(self, number: int) -> None:
        """kfd_signal_event_interrupt: the event fires if its slot was written.

        A number that is no such event's makes the kernel look at all slots.
        """
        with self.condition:
            if self.page is None:
                return
            slots = self.slots
            event = self.events.get(number) if 0 < number < SIGNAL_LIMIT else None
            if event is None or int(slots[number]) == UNSIGNALLED:
                fired = [one for id, one in self.events.items() if id < SIGNAL_LIMIT]
                fired = [one for one in fired if int(slots[one.id]) != UNSIGNALLED]
            else:
                fired = [event]
            for one in fired:
                slots[one.id] = UNSIGNALLED
                one.fire()
            if fired:
                self.condition.notify_all()

    def memory_exception(self, gpu_id: int, va: int, is_missing: bool, is_store: bool) -> None:
        """kfd_signal_vm_fault_event: a page fault, so every MEMORY event of the process fires.

        It tells the page. ReadOnly is prot_write of event_interrupt_wq_v9 and _v11: set by every store that fails, for
        it is bit 5 of the fault's status, which gmc_v9_0_process_interrupt reads as "it was a store".
        """
        self._raise(
            EventType.MEMORY,
            MemoryExceptionData(
                NotPresent=is_missing, ReadOnly=is_store, va=va & -4096, gpu_id=gpu_id
            ).to_bytes(),
        )

    def hw_exception(self, gpu_id: int, memory_lost: bool) -> None:
        """kfd_signal_reset_event: the GPU hung and was reset."""
        self._raise(
            EventType.HW_EXCEPTION, HwExceptionData(memory_lost=memory_lost, gpu_id=gpu_id).to_bytes()
        )

    def _raise(self, kind: EventType, payload: bytes) -> None:
        with self.condition:
            for event in self.events.values():
                if event.type == kind:
                    event.payload = payload
                    event.fire()
            self.condition.notify_all()

    def wait(self, args: WaitEventsArgs, process: Process) -> WaitResult:
        """kfd_wait_on_events: for any or all of the events in the caller's array, and fill in what fired."""
        if args.num_events and not args.events_ptr:
            raise Refusal(errno.EFAULT)
        if args.num_events > MAX_WAITERS:
            raise Refusal(errno.ENOMEM)  # alloc_event_waiters
        array = process.read(args.events_ptr, DATA_BYTES * args.num_events)
        asked = [array[at : at + DATA_BYTES] for at in range(0, len(array), DATA_BYTES)]
        end = None if args.timeout == FOREVER_MS else time.monotonic() + args.timeout / 1000
        if args.timeout:
            self.kick()
        with self.condition:
            waiters = self._waiters(asked)
            try:
                result = self._until(waiters, bool(args.wait_for_all), end, process)
            finally:
                for waiter in waiters:
                    if waiter in waiter.event.waiters:
                        waiter.event.waiters.remove(waiter)
            found = [waiter.data() if waiter.is_activated else b"" for waiter in waiters]
        if result == WaitResult.COMPLETE:
            for index, data in enumerate(found):
                if data:
                    process.write(args.events_ptr + DATA_BYTES * index, data)
        return result

    def _waiters(self, asked: list[bytes]) -> list[Waiter]:
        """init_event_waiter: what is set, or has another age than was seen, counts; what resets itself is reset."""
        id_at = EventData.event_id.byte_offset
        events = [self.events.get(int.from_bytes(one[id_at : id_at + 4], "little")) for one in asked]
        waiters: list[Waiter] = []
        for event, one in zip(events, asked):
            if event is None:
                self._undo(waiters)
                raise Refusal(errno.EINVAL)
            age = int.from_bytes(one[:8], "little")
            waiter = Waiter(event, event.is_signalled, self.has_ages and age != 0)
            event.is_signalled = event.is_signalled and not event.auto_reset
            if waiter.has_age and event.type == EventType.SIGNAL and event.age != age:
                waiter.is_activated = True
            if not waiter.is_activated:
                event.waiters.append(waiter)
            waiters.append(waiter)
        return waiters

    def _until(self, waiters: list[Waiter], is_all: bool, end: float | None, process: Process) -> WaitResult:
        """test_event_condition, until it says something or time is out. Called with the condition's lock."""
        while True:
            if any(waiter.is_gone for waiter in waiters):
                raise Refusal(errno.EIO)
            fired = sum(waiter.is_activated for waiter in waiters)
            if fired == len(waiters) if is_all else fired:
                return WaitResult.COMPLETE
            left = INTERRUPTED_SECONDS if end is None else end - time.monotonic()
            if left <= 0:
                return WaitResult.TIMEOUT
            if process.is_interrupted():
                self._undo(waiters)
                raise Refusal(errno.EINTR)
            self.condition.wait(min(left, INTERRUPTED_SECONDS))

    def _undo(self, waiters: list[Waiter]) -> None:
        """free_waiters: the call is made again, so it gives back what it took."""
        for waiter in waiters:
            if waiter in waiter.event.waiters:
                waiter.event.waiters.remove(waiter)
        for waiter in waiters:
            if waiter.is_activated and waiter.event.auto_reset:
                waiter.event.is_signalled = True
