"""Watch: the events that the emulated KFD and its GPUs report to observers.

In       queues before and after each step; faults
Out      packets as doorbells show them, each once and before it runs; how far queues are; faults with instructions
Next     hcq/events/kernel_observer.py (the observers), kfd.py (ioctls), process_gpu.py (who steps)

A doorbell says how far packets are written. What lies between that and what was told last is told whole, as the GPU
will read it, so nothing is missing and nothing comes twice; of an AQL queue, up to the first packet that is not ready.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from hcq.amd.abi import aql
from hcq.emu.amd.shader.errors import PageFault, ShaderFault
from hcq.errors import HcqError
from hcq.events.kernel_observer import GpuFault, KernelObserver

if TYPE_CHECKING:
    from hcq.emu.amd.process_gpu import EmulatedQueue, ProcessGpu
    from hcq.emu.kernel import Process

UNRUNG = 2**64 - 1
INSTRUCTION_BYTES = 16


class GpuWatch:
    """Tells of one process on one GPU."""

    def __init__(self, observers: list[KernelObserver], process: Process, gpu: ProcessGpu) -> None:
        self.observers, self.process, self.gpu = observers, process, gpu

    def before(self, queue: EmulatedQueue) -> None:
        """The queue is about to look at its ring."""
        put = queue.doorbell
        if put in (UNRUNG, queue.rung_before) and queue.told == queue.put_before:
            return
        queue.rung_before = put
        if put == UNRUNG:
            return
        end = self._end(queue, put + 1 if queue.kind == "AQL" else put)
        queue.put_before = put + 1 if queue.kind == "AQL" else put
        if end <= queue.told:
            return
        words = self._ring(queue, queue.told, end)
        at, queue.told = queue.told, end
        for one in self.observers:
            one.taken(self.process, queue.number, at * queue.unit_bytes, words, self.read)

    def after(self, queue: EmulatedQueue) -> None:
        """The queue has done a step."""
        if queue.rptr != queue.done_before:
            queue.done_before = queue.rptr
            for one in self.observers:
                one.done(self.process, queue.number, queue.rptr * queue.unit_bytes)

    def fault(self, queue: EmulatedQueue, fault: ShaderFault) -> None:
        """A kernel, or a packet, stopped the GPU."""
        where: dict[str, int | str | None] = {}
        if isinstance(fault, PageFault):
            where = {
                "address": fault.address,
                "size_bytes": fault.size_bytes,
                "access": fault.kind,
                "work_item": fault.where,
            }
        self._tell(
            GpuFault(
                self.gpu.gpu_id,
                queue.number,
                "page fault" if isinstance(fault, PageFault) else "a kernel stopped",
                str(fault),
                pc=fault.pc,
                instruction=self._instruction(fault.pc),
                **where,  # type: ignore[arg-type]
            )
        )

    def stopped(self, queue: EmulatedQueue, why: str) -> None:
        """A packet, a pointer or a doorbell made no sense."""
        self._tell(GpuFault(self.gpu.gpu_id, queue.number, "a queue stopped", why))

    def read(self, va: int, size_bytes: int) -> bytes:
        """GPU memory; nothing where some of it is not mapped."""
        try:
            return b"".join(piece.tobytes() for piece in self.gpu.vm.pieces(va, size_bytes, "read"))
        except PageFault:
            return b""

    def _tell(self, fault: GpuFault) -> None:
        for one in self.observers:
            one.faulted(self.process, fault, self.read)

    def _end(self, queue: EmulatedQueue, put: int) -> int:
        """Up to where packets can be told; not beyond a ring's length, where the doorbell makes no sense."""
        if put > queue.rptr + queue.ring_bytes // queue.unit_bytes:
            return queue.told
        if queue.kind != "AQL":
            return put
        slots = queue.ring_bytes // aql.PACKET_BYTES
        end = queue.told
        while end < put:
            header = self.read(queue.ring + end % slots * aql.PACKET_BYTES, 1)
            if not header or header[0] == aql.PacketType.INVALID:
                break
            end += 1
        return end

    def _ring(self, queue: EmulatedQueue, first: int, end: int) -> bytes:
        """What the ring holds from one place to another; it may go round."""
        unit, size = queue.unit_bytes, queue.ring_bytes
        at, count = first * unit % size, (end - first) * unit
        head = min(count, size - at)
        return self.read(queue.ring + at, head) + (
            self.read(queue.ring, count - head) if count > head else b""
        )

    def _instruction(self, pc: int) -> str:
        """The instruction at an address, in words; "" where there is none."""
        if not pc:
            return ""
        from hcq.emu.amd.shader.architectures import ISAS
        from hcq.emu.amd.shader.disassembly import text

        data = self.read(pc, INSTRUCTION_BYTES)
        isa = ISAS[self.gpu.chip.arch]
        with contextlib.suppress(HcqError, IndexError, ValueError):
            return text(isa, isa.decode(memoryview(data).cast("I").tolist(), pc))
        return ""
