"""The AQL packet processor: HSA queues.

In       64-byte slots of a ring; amd_queue_t beside it
Out      kernels launched, PM4 executed, completion signals decremented
Changes  the process's memory; a slot's type goes back to INVALID when it has been read
Next     hcq/amd/abi/aql.py (the packets), pm4_processor.py (indirect buffers of PM4), dispatch.py (kernels)
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable

from hcq.amd.abi import aql
from hcq.amd.abi.kfd import CreateQueueArgs
from hcq.emu.amd.dispatch import dispatch_from_aql
from hcq.emu.amd.pm4_processor import Pm4Engine
from hcq.emu.amd.process_gpu import UNRUNG, EmulatedQueue, ProcessGpu
from hcq.events import kernel_debug
from hcq.layout import Packet

QUEUE_BYTES = 4 * aql.AmdQueue.length_words
DISPATCH_IDS = [
    one.byte_offset // 4 for one in (aql.AmdQueue.write_dispatch_id, aql.AmdQueue.read_dispatch_id)
]
TRAPPED = {2: 0x80000000, 4: 0x40000000}  # exception -> what AMD's trap handler stores there
NO_SCRATCH = (0x1, 0x400)  # of the codes in queue_inactive_signal: for waves of 64, of 32
CONDITIONS: dict[int, Callable[[int, int], bool]] = {
    aql.Condition.EQ: operator.eq,
    aql.Condition.NE: operator.ne,
    aql.Condition.LT: operator.lt,
    aql.Condition.GTE: operator.ge,
}


class AqlQueue(EmulatedQueue):
    """A compute queue of AQL packets. Its pointers count packets; the doorbell is the index of the last one."""

    kind = "AQL"
    unit_bytes = aql.PACKET_BYTES

    def __init__(self, gpu: ProcessGpu, number: int, doorbell_index: int, args: CreateQueueArgs) -> None:
        super().__init__(gpu, number, doorbell_index, args)
        self.engine = Pm4Engine(gpu, self)
        self.slots = self.ring_bytes // aql.PACKET_BYTES
        offset = aql.AmdQueue.read_dispatch_id.byte_offset
        self.queue_va = self.rptr_va - offset  # of the amd_queue_t
        self.indirect: aql.Pm4Ib | None = None  # the buffer of PM4 that it executes
        self.xccs_left: list[int] = []
        self.last = -1  # the highest doorbell: producers that run ahead of others ring theirs first
        self.awaits_scratch = False
        self.told_of = -1  # the packet that a debugger was told of last
        self.started = 0  # when the packet was first looked at

    def descriptor(self) -> aql.AmdQueue:
        """The queue's amd_queue_t, as it stands in memory now, but for its dispatch ids, which each packet moves."""
        words = self.gpu.vm.load_words(self.queue_va, QUEUE_BYTES // 4)
        for at in DISPATCH_IDS:
            words[at : at + 2] = 0, 0
        return _queue_of(tuple(words))

    @property
    def has_work(self) -> bool:
        return self.doorbell != UNRUNG and self.doorbell >= self.rptr

    def step(self) -> bool:
        if self.engine.frames:
            return self.engine.step()
        if self.indirect is not None:
            return self._next_xcc()
        if self.awaits_scratch:
            if self._inactive_value():
                return False
            self.awaits_scratch = False
        rung = self.doorbell
        last = self.last = self.last if rung == UNRUNG else max(self.last, rung)
        if last < self.rptr:
            return False
        if last >= self.rptr + self.slots:
            raise self.stop(f"doorbell {last} is not within one ring of the read index {self.rptr}")
        if self.gpu.vm.load64(self.wptr_va) <= last:
            raise self.stop(f"doorbell {last} was rung before write_dispatch_id said so")
        slot = self.ring + self.rptr % self.slots * aql.PACKET_BYTES
        packet = aql.decode_one(self.gpu.vm.load_words(slot, 16))
        if packet.values["type"] == aql.PacketType.INVALID:
            return False  # reserved, but not ready
        self.started = self.gpu.clock()
        self._acquire(packet)
        self.engine.dispatches.drain()  # all our packets have the barrier bit; one without it would only get more order
        if kernel_debug.debugger is not None and self.told_of != self.rptr:
            self.told_of = self.rptr
            kernel_debug.debugger.packet("aql", packet)
        if isinstance(packet, aql.KernelDispatch):
            return self._dispatch(packet, slot)
        if isinstance(packet, (aql.BarrierAnd, aql.BarrierValue)):
            return self._is_over(packet) and self._done(packet, slot)
        if isinstance(packet, aql.Pm4Ib) and packet.ib_header == 0xC0023F00 and packet.ib_valid:
            self.indirect = packet
            self.xccs_left = list(range(self.gpu.chip.xccs))
            return self._next_xcc()
        self._inactive(0x20)
        raise self.stop(f"{packet!r} is no packet this processor knows")

    def _next_xcc(self) -> bool:
        """Run the indirect buffer on the next XCC; when it has run on all of them, the packet is done."""
        packet = self.indirect
        assert packet is not None
        if self.xccs_left:
            words = self.gpu.vm.load_words(packet.ib_base, packet.ib_size)
            self.engine.push(words, packet.ib_base, self.xccs_left.pop(0))
            return True
        self.engine.dispatches.drain()
        self.indirect = None
        return self._done(packet, self.ring + self.rptr % self.slots * aql.PACKET_BYTES)

    def _dispatch(self, packet: aql.KernelDispatch, slot: int) -> bool:
        work = dispatch_from_aql(self.gpu.chip, self.gpu.vm, self.descriptor(), self.queue_va, packet, slot)
        if work in NO_SCRATCH:
            return self._ask_for_scratch(work)
        if isinstance(work, int):
            self._inactive(work)
            raise self.stop(f"{packet!r}: {aql.INACTIVE[work]}")
        self.gpu.run(work)
        return self._done(packet, slot)

    def _ask_for_scratch(self, code: int) -> bool:
        """The host gives the queue scratch memory and stores 0 to the signal; then the packet is tried again."""
        if not self.descriptor().queue_inactive_signal:
            raise self.stop(f"{aql.INACTIVE[code]}, and there is no signal to say so")
        self._inactive(code)
        self.awaits_scratch = True
        return False

    def _is_over(self, packet: aql.BarrierAnd | aql.BarrierValue) -> bool:
        """Whether a barrier's signals have the values that it waits for."""
        value_at = aql.AmdSignal.value.byte_offset
        if isinstance(packet, aql.BarrierValue):
            if not packet.signal:
                return True
            seen = _signed(self.gpu.vm.load64(packet.signal + value_at) & packet.mask)
            compare = CONDITIONS.get(packet.cond)
            if compare is None:
                self._inactive(0x20)
                raise self.stop(f"{packet!r}: no such condition")
            return compare(seen, _signed(packet.value))
        signals = [packet.values[f"dep_signal_{index}"] for index in range(5)]
        values = [self.gpu.vm.load64(signal + value_at) for signal in signals if signal]
        if isinstance(packet, aql.BarrierOr):
            return not values or not all(values)
        return not any(values)

    def _acquire(self, packet: Packet) -> None:
        """The fence before a packet: of the agent's own caches, or of the L2, too, and never of instruction caches."""
        scope = packet.values.get("acquire_fence_scope", aql.FenceScope.NONE)
        if self.gpu.caches is not None and scope != aql.FenceScope.NONE:
            far = scope == aql.FenceScope.SYSTEM
            self.gpu.caches.acquire(code=False, scalar=True, vector=True, l2=far, l2_write_back=far)

    def _release(self, packet: Packet) -> None:
        """The fence after it: what it wrote leaves the L2."""
        if self.gpu.caches is not None and packet.values.get("release_fence_scope") == aql.FenceScope.SYSTEM:
            self.gpu.caches.l2.write_back()
            self.gpu.vm.settle()  # pages of another process have it before the signal says so

    def _done(self, packet: Packet, slot: int) -> bool:
        self._release(packet)
        vm = self.gpu.vm
        header = vm.load32(slot) & ~0xFF | aql.PacketType.INVALID
        vm.store32(slot, header)
        self.rptr += 1
        vm.store64(self.rptr_va, self.rptr)
        if signal := packet.values.get("completion_signal", 0):
            if self.descriptor().enable_profiling:
                vm.store64(signal + aql.AmdSignal.start_ts.byte_offset, self.started)
                vm.store64(signal + aql.AmdSignal.end_ts.byte_offset, self.gpu.clock())
            vm.add64(signal + aql.AmdSignal.value.byte_offset, -1)
            self._notify(signal)
        return True

    def _notify(self, signal: int) -> None:
        """Store a signal's event into its mailbox, and interrupt."""
        vm = self.gpu.vm
        mailbox = vm.load64(signal + aql.AmdSignal.event_mailbox_ptr.byte_offset)
        if mailbox:
            event = vm.load32(signal + aql.AmdSignal.event_id.byte_offset)
            vm.store64(mailbox, event)
            self.gpu.interrupt(event)

    def _inactive(self, code: int) -> None:
        """Say why the queue stops, in its queue_inactive_signal, and wake who waits for that."""
        signal = self.descriptor().queue_inactive_signal
        if signal:
            self.gpu.vm.store64(signal + aql.AmdSignal.value.byte_offset, code)
            self._notify(signal)

    def trapped(self, code: int) -> None:
        self._inactive(TRAPPED[code])

    def _inactive_value(self) -> int:
        """What the queue_inactive_signal holds now; -1, from the host, ends the queue."""
        value = self.gpu.vm.load64(self.descriptor().queue_inactive_signal + aql.AmdSignal.value.byte_offset)
        if value == 2**64 - 1:
            raise self.stop("the host ended it through its inactive signal")
        return value


@functools.lru_cache(64)
def _queue_of(words: tuple[int, ...]) -> aql.AmdQueue:
    return aql.AmdQueue.decode(words)


def _signed(value: int) -> int:
    return value - (1 << 64) if value >> 63 else value
