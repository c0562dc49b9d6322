"""The AQL packet processor: HSA queues.

In       64-byte slots of a ring; amd_queue_t beside it
Out      kernels launched, PM4 executed, completion signals decremented
Changes  the process's memory; a slot's type goes back to INVALID when it has been read
Next     hcq/amd/abi/aql.py (the packets), pm4_processor.py (indirect buffers of PM4), dispatch.py (kernels)
"""

from __future__ import annotations

from hcq.amd.abi import aql
from hcq.amd.abi.kfd import CreateQueueArgs
from hcq.emu.amd.dispatch import dispatch_from_aql
from hcq.emu.amd.pm4_processor import Pm4Engine
from hcq.emu.amd.process_gpu import UNRUNG, EmulatedQueue, ProcessGpu
from hcq.layout import Packet

QUEUE_BYTES = 4 * aql.AmdQueue.length_words


class AqlQueue(EmulatedQueue):
    """A compute queue of AQL packets. Its pointers count packets; the doorbell is the index of the last one."""

    kind = "AQL"

    def __init__(self, gpu: ProcessGpu, number: int, doorbell_index: int, args: CreateQueueArgs) -> None:
        super().__init__(gpu, number, doorbell_index, args)
        self.engine = Pm4Engine(gpu, self)
        self.slots = self.ring_bytes // aql.PACKET_BYTES
        offset = aql.AmdQueue.read_dispatch_id.byte_offset
        self.queue_va = self.rptr_va - offset  # of the amd_queue_t
        self.indirect: aql.Pm4Ib | None = None  # the buffer of PM4 that it executes
        self.xccs_left: list[int] = []

    def descriptor(self) -> aql.AmdQueue:
        """The queue's amd_queue_t, as it stands in memory now."""
        return aql.AmdQueue.decode(self.gpu.vm.load_words(self.queue_va, QUEUE_BYTES // 4))

    def step(self) -> bool:
        if self.engine.frames:
            return self.engine.step()
        if self.indirect is not None:
            return self._next_xcc()
        last = self.doorbell
        if last == UNRUNG or last < self.rptr:
            return False
        if last >= self.rptr + self.slots:
            raise self.stop(f"doorbell {last} is not within one ring of the read index {self.rptr}")
        if self.gpu.vm.load64(self.wptr_va) <= last:
            raise self.stop(f"doorbell {last} was rung before write_dispatch_id said so")
        slot = self.ring + self.rptr % self.slots * aql.PACKET_BYTES
        packet = aql.decode_one(self.gpu.vm.load_words(slot, 16))
        if packet.values["type"] == aql.PacketType.INVALID:
            return False  # reserved, but not ready
        self._acquire(packet)
        self.engine.dispatches.drain()  # all our packets have the barrier bit; one without it would only get more order
        if isinstance(packet, aql.KernelDispatch):
            return self._dispatch(packet, slot)
        if isinstance(packet, aql.BarrierAnd):
            return self._barrier(packet, slot)
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
            self.engine.push(words, self.xccs_left.pop(0))
            return True
        self.engine.dispatches.drain()
        self.indirect = None
        return self._done(packet, self.ring + self.rptr % self.slots * aql.PACKET_BYTES)

    def _dispatch(self, packet: aql.KernelDispatch, slot: int) -> bool:
        work = dispatch_from_aql(self.gpu.chip, self.gpu.vm, self.descriptor(), self.queue_va, packet, slot)
        if isinstance(work, int):
            self._inactive(work)
            raise self.stop(f"{packet!r}: {aql.INACTIVE[work]}")
        self.gpu.run(work)
        return self._done(packet, slot)

    def _barrier(self, packet: aql.BarrierAnd, slot: int) -> bool:
        for index in range(5):
            signal = packet.values[f"dep_signal_{index}"]
            if signal and self.gpu.vm.load64(signal + aql.AmdSignal.value.byte_offset):
                return False
        return self._done(packet, slot)

    def _acquire(self, packet: Packet) -> None:
        """The fence before a packet: of the agent's own caches, or of the L2, too."""
        scope = packet.values.get("acquire_fence_scope", aql.FenceScope.NONE)
        if self.gpu.caches is not None and scope != aql.FenceScope.NONE:
            far = scope == aql.FenceScope.SYSTEM
            self.gpu.caches.acquire(code=True, scalar=True, vector=True, l2=far, l2_write_back=far)

    def _release(self, packet: Packet) -> None:
        """The fence after it: what it wrote leaves the L2."""
        if self.gpu.caches is not None and packet.values.get("release_fence_scope") == aql.FenceScope.SYSTEM:
            self.gpu.caches.l2.write_back()

    def _done(self, packet: Packet, slot: int) -> bool:
        self._release(packet)
        vm = self.gpu.vm
        header = vm.load32(slot) & ~0xFF | aql.PacketType.INVALID
        vm.store32(slot, header)
        self.rptr += 1
        vm.store64(self.rptr_va, self.rptr)
        if signal := packet.values.get("completion_signal", 0):
            value = signal + aql.AmdSignal.value.byte_offset
            vm.store64(value, vm.load64(value) - 1)
            mailbox = vm.load64(signal + aql.AmdSignal.event_mailbox_ptr.byte_offset)
            if mailbox:
                event = vm.load32(signal + aql.AmdSignal.event_id.byte_offset)
                vm.store64(mailbox, event)
                self.gpu.interrupt(event)
        return True

    def _inactive(self, code: int) -> None:
        """Say why the queue stops, in its queue_inactive_signal."""
        signal = self.descriptor().queue_inactive_signal
        if signal:
            self.gpu.vm.store64(signal + aql.AmdSignal.value.byte_offset, code)
