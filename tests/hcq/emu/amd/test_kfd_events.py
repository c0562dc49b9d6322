"""Events of the emulated KFD: ages, waiters that all wake, and what a wait gives back."""

from __future__ import annotations

import errno
import mmap
import threading
import time
from typing import Any

import numpy as np
import pytest

from hcq.amd.abi import kfd
from hcq.amd.abi.kfd import CreateEventArgs, EventData, EventType, WaitEventsArgs, WaitResult
from hcq.amd.memory import Place
from hcq.emu.amd.kfd_events import Events
from hcq.emu.kernel import OwnProcess, Refusal
from hcq.errors import DriverError
from hcq.system import native
from hcq.system.port import MAP_SHARED, PROT_READ, PROT_WRITE
from tests.hcq.emu.amd.rig import EventPage
from tests.hcq.emu.amd.test_kfd import Process

SELF = OwnProcess(0, {})


class Table:
    """Events of a process without the calls: made, set, waited for."""

    def __init__(self, has_ages: bool = True) -> None:
        self.events = Events(lambda: None, has_ages)
        page: Any = EventPage()
        self.page = page
        self.first = self.events.create(CreateEventArgs(event_type=EventType.SIGNAL, auto_reset=1), page)[0]

    def make(self, kind: int = EventType.SIGNAL, auto_reset: int = 1) -> int:
        return self.events.create(CreateEventArgs(event_type=kind, auto_reset=auto_reset), None)[0]

    def wait(self, *numbers: int, ages: tuple[int, ...] = (), ms: int = 0, is_all: int = 0) -> Any:
        """(result, what stands in the first 8 bytes of each entry afterwards)."""
        seen = ages or (0,) * len(numbers)
        data = bytearray(
            b"".join(EventData(event_id=n, payload_low=age).to_bytes() for n, age in zip(numbers, seen))
        )
        args = WaitEventsArgs(
            events_ptr=native.address_of(data), num_events=len(numbers), timeout=ms, wait_for_all=is_all
        )
        result = self.events.wait(args, SELF)
        size = 4 * EventData.length_words
        return result, [int.from_bytes(data[at : at + 8], "little") for at in range(0, len(data), size)]


def test_a_set_wakes_every_waiter_of_an_event_that_resets_itself():
    table = Table()
    results: list[Any] = []
    threads = [
        threading.Thread(target=lambda: results.append(table.wait(table.first, ms=20_000)[0]))
        for _ in range(3)
    ]
    for thread in threads:
        thread.start()
    while len(table.events.events[table.first].waiters) < 3:
        time.sleep(0.001)
    table.events.set(table.first)
    for thread in threads:
        thread.join()
    assert results == [WaitResult.COMPLETE] * 3
    assert not table.events.events[table.first].is_signalled  # somebody waited: it was reset


def test_a_set_that_nobody_waits_for_stays_until_one_wait_takes_it():
    table = Table()
    table.events.set(table.first)
    assert table.wait(table.first)[0] == WaitResult.COMPLETE
    assert table.wait(table.first)[0] == WaitResult.TIMEOUT


def test_who_waits_with_the_age_it_saw_misses_no_set_that_another_took():
    table = Table()
    (age,) = table.wait(table.first, ages=(7,))[1]  # another age: it returns at once, and says the age
    assert age == 1
    table.events.set(table.first)
    assert table.wait(table.first)[0] == WaitResult.COMPLETE  # another waiter takes it
    assert table.wait(table.first, ages=(age,)) == (WaitResult.COMPLETE, [2])
    assert table.wait(table.first, ages=(2,))[0] == WaitResult.TIMEOUT


def test_before_interface_1_14_there_are_no_ages():
    table = Table(has_ages=False)
    assert table.wait(table.first, ages=(7,))[0] == WaitResult.TIMEOUT
    table.events.set(table.first)
    assert table.wait(table.first, ages=(7,)) == (WaitResult.COMPLETE, [7])


def test_a_wait_for_all_is_over_when_each_has_been_set():
    table = Table()
    second = table.make()
    table.events.set(second)
    both = [table.first, second]
    results: list[Any] = []
    thread = threading.Thread(target=lambda: results.append(table.wait(*both, ms=20_000, is_all=1)[0]))
    thread.start()
    while not table.events.events[table.first].waiters:
        time.sleep(0.001)
    table.events.set(table.first)
    thread.join()
    assert results == [WaitResult.COMPLETE]


def test_a_wait_for_an_event_that_is_destroyed_fails():
    table = Table()
    numbers: list[int] = []

    def wait() -> None:
        with pytest.raises(Refusal) as refusal:
            table.wait(table.first, ms=20_000)
        numbers.append(refusal.value.number)

    thread = threading.Thread(target=wait)
    thread.start()
    while not table.events.events[table.first].waiters:
        time.sleep(0.001)
    table.events.destroy(table.first)
    thread.join()
    assert numbers == [errno.EIO]


def test_a_wait_that_is_interrupted_gives_back_what_it_took():
    class Interrupted(OwnProcess):
        def is_interrupted(self) -> bool:
            return True

    table = Table()
    second = table.make()
    table.events.set(second)
    data = bytearray(b"".join(EventData(event_id=n).to_bytes() for n in (table.first, second)))
    where = native.address_of(data)
    args = WaitEventsArgs(events_ptr=where, num_events=2, timeout=20_000, wait_for_all=1)
    with pytest.raises(Refusal) as refusal:
        table.events.wait(args, Interrupted(0, {}))
    assert refusal.value.number == errno.EINTR
    assert table.wait(second)[0] == WaitResult.COMPLETE


def test_an_interrupt_with_a_number_that_is_no_events_finds_the_slot_that_was_written():
    table = Table()
    second = table.make()
    slots = table.page.data.view(np.uint64)
    slots[second] = 1
    table.events.interrupt(3000)
    assert table.wait(second)[0] == WaitResult.COMPLETE
    assert int(slots[second]) == kfd.UNSIGNALLED
    assert table.wait(table.first)[0] == WaitResult.TIMEOUT


def test_events_that_a_gpu_signals_come_with_the_offset_of_their_page_and_others_with_none():
    """0 for a signal: AMD's runtime would give it no mailbox, and its waits would end at their timeout alone."""
    one = Process()
    page = one.memory.alloc(kfd.EVENT_PAGE_BYTES, Place.SHARED)
    events = kfd.MmapType.EVENTS << kfd.MMAP_TYPE_SHIFT
    memory = one.call(kfd.CREATE_EVENT, event_type=EventType.MEMORY, event_page_offset=page.handle)
    assert memory.event_page_offset == 0
    assert memory.event_id >= 0x40000000
    for kind in (EventType.SIGNAL, EventType.DEBUG_EVENT):
        made = one.call(kfd.CREATE_EVENT, event_type=kind)
        assert (made.event_page_offset, made.event_slot_index) == (events, made.event_id)
    assert one.call(kfd.CREATE_EVENT, event_type=EventType.HW_EXCEPTION).event_page_offset == 0


def maps_events(one: Process, size_bytes: int) -> int:
    """The page of signals, mapped as far as that."""
    offset = kfd.signed_offset(kfd.MmapType.EVENTS << kfd.MMAP_TYPE_SHIFT)
    return one.port.mmap(0, size_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, one.fd, offset)


def test_without_a_page_from_the_caller_signals_lie_in_the_kernels_own_which_is_mapped_without_a_gpu():
    one = Process()
    with pytest.raises(DriverError) as error:
        maps_events(one, kfd.EVENT_PAGE_BYTES)  # there is none yet
    assert error.value.errno == errno.EINVAL
    made = one.call(kfd.CREATE_EVENT, event_type=EventType.SIGNAL, auto_reset=1)
    assert made.event_id == made.event_slot_index == 1  # 0 is nobody's
    assert made.event_page_offset == kfd.MmapType.EVENTS << kfd.MMAP_TYPE_SHIFT
    with pytest.raises(DriverError) as error:
        maps_events(one, kfd.EVENT_PAGE_BYTES + 1)
    assert error.value.errno == errno.EINVAL
    va = maps_events(one, kfd.EVENT_PAGE_BYTES)
    assert native.read(va, kfd.EVENT_PAGE_BYTES) == b"\xff" * kfd.EVENT_PAGE_BYTES
    native.write(va + 8, bytes(8), 8)
    driver: Any = one.port.kernels[0]
    (table,) = (process.events for process in driver.processes.values())
    table.interrupt(made.event_id)
    assert native.read(va + 8, 8) == b"\xff" * 8  # the kernel saw what was written, and set it back
    assert table.events[made.event_id].is_signalled


def test_a_page_that_comes_after_the_kernels_own_is_refused_and_so_are_pages_of_the_process():
    one = Process()
    own = one.memory.alloc(kfd.EVENT_PAGE_BYTES, Place.SHARED)
    memory = mmap.mmap(-1, kfd.EVENT_PAGE_BYTES)
    where = native.address_of(memory)
    flags = kfd.AllocFlags.USERPTR | kfd.AllocFlags.WRITABLE
    user = one.alloc(size=kfd.EVENT_PAGE_BYTES, flags=flags, mmap_offset=where)
    one.refuses(errno.EINVAL, kfd.CREATE_EVENT, event_type=EventType.SIGNAL, event_page_offset=user.handle)
    one.call(kfd.CREATE_EVENT, event_type=EventType.SIGNAL)
    one.refuses(errno.EINVAL, kfd.CREATE_EVENT, event_type=EventType.SIGNAL, event_page_offset=own.handle)
    del memory


def test_of_the_kernels_own_page_256_slots_are_used_and_more_once_more_is_mapped():
    one = Process()
    made = [one.call(kfd.CREATE_EVENT, event_type=EventType.SIGNAL).event_id for _ in range(255)]
    assert made == list(range(1, 256))
    one.refuses(errno.ENOSPC, kfd.CREATE_EVENT, event_type=EventType.DEBUG_EVENT)
    assert one.call(kfd.CREATE_EVENT, event_type=EventType.MEMORY).event_id >= 0x40000000  # has no slot
    one.call(kfd.DESTROY_EVENT, event_id=7)
    assert one.call(kfd.CREATE_EVENT, event_type=EventType.SIGNAL).event_id == 7
    maps_events(one, 4096)
    more = [one.call(kfd.CREATE_EVENT, event_type=EventType.SIGNAL).event_id for _ in range(256)]
    assert more == list(range(256, 512))
    one.refuses(errno.ENOSPC, kfd.CREATE_EVENT, event_type=EventType.SIGNAL)
