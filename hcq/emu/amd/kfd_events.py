"""Events of the emulated KFD: signals that GPUs raise, memory exceptions, hardware exceptions.

In       CREATE_EVENT, WAIT_EVENTS and the other calls on events; interrupts and faults from GPUs
Out      event ids, and waits that end when an event fires or time is out
Changes  slots of the event page
Next     kfd.py (the ioctls), gpu.py (who raises)
"""

from __future__ import annotations

import errno
import struct
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

from hcq.amd.abi.kfd import (
    EVENT_PAGE_BYTES,
    FOREVER_MS,
    UNSIGNALLED,
    CreateEventArgs,
    EventData,
    EventType,
    HwExceptionData,
    MemoryExceptionData,
    WaitEventsArgs,
    WaitResult,
)
from hcq.emu.amd.memory import BufferObject
from hcq.emu.kernel import Process, Refusal

SIGNAL_LIMIT = 4096
FIRST_OTHER_ID = 0x40000000
DATA_BYTES = 4 * EventData.length_words
INTERRUPTED_SECONDS = 0.05  # how often a wait asks whether anybody still waits


@dataclass
class Event:
    """A signal, or a kind of exception, that a process can wait for."""

    id: int
    type: EventType
    auto_reset: bool
    is_signalled: bool = False
    payload: bytes = b""


class Events:
    """The events of one process."""

    def __init__(self, kick: Callable[[], None]) -> None:
        self.kick = kick  # a process that waits is a good moment for GPUs to look at their doorbells
        self.condition = threading.Condition()
        self.events: dict[int, Event] = {}
        self.page: BufferObject | None = None

    def create(self, args: CreateEventArgs, page: BufferObject | None) -> tuple[int, int]:
        """A new event: its id and its slot."""
        if page is not None:
            if self.page is not None:
                raise Refusal(errno.EINVAL)
            if page.size_bytes < EVENT_PAGE_BYTES:
                raise Refusal(errno.EINVAL)
            page.data[:EVENT_PAGE_BYTES] = 0xFF
            page.is_pinned = True
            self.page = page
        try:
            kind = EventType(args.event_type)
        except ValueError:
            raise Refusal(errno.EINVAL) from None
        with self.condition:
            if kind == EventType.SIGNAL:
                if self.page is None:
                    raise Refusal(errno.ENOMEM)
                number = next((id for id in range(1, SIGNAL_LIMIT) if id not in self.events), 0)
                if not number:
                    raise Refusal(errno.ENOSPC)
                slot = number
            else:
                number = FIRST_OTHER_ID
                while number in self.events:
                    number += 1
                slot = 0
            self.events[number] = Event(number, kind, bool(args.auto_reset))
        return number, slot

    def destroy(self, number: int) -> None:
        """Destroy an event; who waits for it is woken. Raises Refusal (EINVAL) when there is none."""
        with self.condition:
            if self.events.pop(number, None) is None:
                raise Refusal(errno.EINVAL)
            self.condition.notify_all()

    def set(self, number: int) -> None:
        """Set a signal. Raises Refusal (EINVAL) for any other event."""
        with self.condition:
            event = self.events.get(number)
            if event is None or event.type != EventType.SIGNAL:
                raise Refusal(errno.EINVAL)
            event.is_signalled = True
            self.condition.notify_all()

    def reset(self, number: int) -> None:
        """Set it back. Raises Refusal (EINVAL) when there is none."""
        with self.condition:
            if number not in self.events:
                raise Refusal(errno.EINVAL)
            self.events[number].is_signalled = False

    def interrupt(self, number: int) -> None:
        """A GPU raised an interrupt with this context: the event fires if its slot was written."""
        with self.condition:
            event = self.events.get(number)
            if event is None or self.page is None:
                return
            slot = self.page.data[8 * number : 8 * number + 8].view("u8")
            if int(slot[0]) != UNSIGNALLED:
                slot[0] = UNSIGNALLED
                event.is_signalled = True
                self.condition.notify_all()

    def memory_exception(self, gpu_id: int, va: int, is_read_only: bool) -> None:
        """A page fault: every MEMORY event of the process fires."""
        self._raise(
            EventType.MEMORY,
            MemoryExceptionData(
                NotPresent=not is_read_only, ReadOnly=is_read_only, va=va, gpu_id=gpu_id
            ).to_bytes(),
        )

    def hw_exception(self, gpu_id: int, memory_lost: bool) -> None:
        """The GPU hung and was reset."""
        self._raise(
            EventType.HW_EXCEPTION, HwExceptionData(memory_lost=memory_lost, gpu_id=gpu_id).to_bytes()
        )

    def _raise(self, kind: EventType, payload: bytes) -> None:
        with self.condition:
            for event in self.events.values():
                if event.type == kind:
                    event.is_signalled, event.payload = True, payload
            self.condition.notify_all()

    def wait(self, args: WaitEventsArgs, process: Process) -> WaitResult:
        """Wait for any or all of the events in the caller's array, and fill in what fired."""
        if not args.events_ptr:
            raise Refusal(errno.EFAULT)
        array = process.read(args.events_ptr, DATA_BYTES * args.num_events)
        id_at = EventData.event_id.byte_offset
        ids = [struct.unpack_from("<I", array, DATA_BYTES * i + id_at)[0] for i in range(args.num_events)]
        end = None if args.timeout == FOREVER_MS else time.monotonic() + args.timeout / 1000
        if args.timeout:
            self.kick()
        with self.condition:
            while True:
                events = [self.events.get(number) for number in ids]
                if None in events:
                    raise Refusal(errno.EINVAL)
                fired = [event for event in events if event and event.is_signalled]
                if fired and (not args.wait_for_all or len(fired) == len(events)):
                    break
                left = INTERRUPTED_SECONDS if end is None else end - time.monotonic()
                if left <= 0:
                    return WaitResult.TIMEOUT
                if process.is_interrupted():
                    raise Refusal(errno.EINTR)
                self.condition.wait(min(left, INTERRUPTED_SECONDS))
            for index, event in enumerate(events):
                if event is not None and event.is_signalled:
                    if event.payload:
                        process.write(args.events_ptr + DATA_BYTES * index, event.payload)
                    if event.auto_reset:
                        event.is_signalled = False
        return WaitResult.COMPLETE
