"""Queues of an emulated GPU without a kernel driver and without a thread: packets are written, and steps made.

In       an architecture
Out      Rig: a GPU as one process has it, with memory in its page table; queues whose `step` the test calls
Next     test_aql_processor.py, test_sdma_processor.py
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any

import numpy as np

from hcq.amd.abi import aql
from hcq.amd.abi.kfd import EVENT_PAGE_BYTES, CreateEventArgs, CreateQueueArgs, EventType
from hcq.emu.amd.aql_processor import AqlQueue
from hcq.emu.amd.gpu import EmulatedGpu
from hcq.emu.amd.kfd_events import Events
from hcq.emu.amd.kfd_topology import make_nodes
from hcq.emu.amd.process_gpu import ProcessGpu
from hcq.emu.amd.sdma_processor import SdmaQueue
from hcq.emu.amd.spec import parse
from hcq.emu.backing import DeviceMemory

DATA, RING, QUEUE, SAVE_AREA, EVENTS = 0x100000, 0x200000, 0x300000, 0x400000, 0x500000
ARCHITECTURES = ("gfx90a", "gfx942", "gfx1030", "gfx1100", "gfx1201")


class EventPage:
    """As much of a buffer object as events need."""

    size_bytes = EVENT_PAGE_BYTES
    is_pinned = False
    user = None

    def __init__(self) -> None:
        self.data = np.zeros(EVENT_PAGE_BYTES, np.uint8)


class Rig:
    """A GPU, DATA (64 KiB) to work on, and its process's events."""

    def __init__(self, word: str = "amd:gfx1100") -> None:
        memory = DeviceMemory("kfd")
        self.log: list[str] = []
        (node,) = make_nodes([parse(word)])
        self.events = Events(lambda: None)
        self.gpu = ProcessGpu(EmulatedGpu(node, self.log.append, memory), self.events, memory)
        self.vm = self.gpu.vm
        self.data = np.zeros(1 << 16, np.uint8)
        self.vm.map(DATA, self.data)
        self.ring = np.zeros(1 << 14, np.uint8)
        self.vm.map(RING, self.ring)
        self.vm.map(QUEUE, np.zeros(4096, np.uint8))
        self.vm.map(SAVE_AREA, np.zeros(4096, np.uint8))
        self.written = 0

    def event(self) -> Any:
        """A signal event, and the address of its mailbox."""
        page: Any = None
        if self.events.page is None:
            page = EventPage()
            self.vm.map(EVENTS, page.data)
        number, slot = self.events.create(CreateEventArgs(event_type=EventType.SIGNAL), page)
        return self.events.events[number], EVENTS + 8 * slot

    def signal(self, at: int, value: int, event: Any = None) -> int:
        """An HSA signal in DATA, with an event if there is one; its address."""
        number, mailbox = (event[0].id, event[1]) if event is not None else (0, 0)
        fields = aql.AmdSignal(value=value & 2**64 - 1, event_id=number, event_mailbox_ptr=mailbox)
        self.store(DATA + at, fields.to_bytes())
        return DATA + at

    def value(self, signal: int) -> int:
        """What a signal holds."""
        return self.vm.load64(signal + aql.AmdSignal.value.byte_offset)

    def store(self, va: int, data: bytes) -> None:
        """Bytes into memory."""
        self.vm.bytes_at(va, len(data), "write")[:] = np.frombuffer(data, np.uint8)

    def read(self, va: int, size_bytes: int) -> bytes:
        """Bytes of memory."""
        return self.vm.read(va, size_bytes)

    def aql(self, **fields: int) -> AqlQueue:
        """A queue of 64 AQL packets; fields of its amd_queue_t."""
        self.store(QUEUE, aql.AmdQueue(**fields).to_bytes())
        args = CreateQueueArgs(
            ring_base_address=RING,
            ring_size=4096,
            write_pointer_address=QUEUE + aql.AmdQueue.write_dispatch_id.byte_offset,
            read_pointer_address=QUEUE + aql.AmdQueue.read_dispatch_id.byte_offset,
            ctx_save_restore_address=SAVE_AREA,
        )
        queue = AqlQueue(self.gpu, 1, 0, args)
        self.gpu.queues[1] = queue
        return queue

    def submit(self, queue: AqlQueue, *packets: Any, ring: bool = True) -> None:
        """Packets (or 16 words each) into the next slots, and the doorbell."""
        for packet in packets:
            words = packet if isinstance(packet, (list, tuple)) else packet.words
            self.store(RING + 64 * (self.written % 64), struct.pack("<16I", *words))
            self.written += 1
        self.vm.store64(queue.wptr_va, self.written)
        if ring:
            self.gpu.doorbell_slots[0] = self.written - 1

    def copies(self, words: Sequence[int]) -> SdmaQueue:
        """A copy queue with these words in its ring, and its doorbell rung."""
        self.store(RING, struct.pack(f"<{len(words)}I", *words))
        args = CreateQueueArgs(
            ring_base_address=RING,
            ring_size=1 << 14,
            write_pointer_address=QUEUE + 0x100,
            read_pointer_address=QUEUE + 0x108,
        )
        queue = SdmaQueue(self.gpu, 2, 1, args)
        self.vm.store64(queue.wptr_va, 4 * len(words))
        self.gpu.doorbell_slots[1] = 4 * len(words)
        return queue


def all_steps(queue: Any) -> int:
    """Make steps as long as there is something to do; how many packets that were."""
    count = 0
    while queue.step():
        count += 1
    return count
