"""A GPU as one process has it: its page table, its doorbells, its queues; and what happens when one of them goes wrong.

In       queues created through the KFD; doorbells, as stores to mapped memory
Out      packets executed; interrupts, page faults and resets as events of the process
Changes  the process's memory through the GPU's page table
Next     pm4_processor.py, sdma_processor.py, aql_processor.py (the packets), launch.py (kernels), gpu.py (the thread),
         kfd_process.py (who has one of these for each GPU)
Source   kfd_priv.h: kfd_process_device, qcm_process_device
"""

from __future__ import annotations

import traceback
from abc import ABC, abstractmethod
from random import Random
from typing import TYPE_CHECKING

from hcq.amd.abi.kfd import (
    DOORBELL_SLICE_BYTES,
    ContextSaveAreaHeader,
    CreateQueueArgs,
    ProcessDeviceApertures,
)
from hcq.emu.amd.caches import Caches
from hcq.emu.amd.dispatch import Dispatch
from hcq.emu.amd.gpu import EmulatedGpu, Turns
from hcq.emu.amd.kfd_events import Events
from hcq.emu.amd.kfd_topology import EmulatedNode
from hcq.emu.amd.memory import BufferObject, GpuVm
from hcq.emu.amd.saved import Area, Saved
from hcq.emu.amd.shader.errors import PageFault, ShaderFault, Trapped
from hcq.emu.amd.spec import Chip
from hcq.emu.backing import Backing, DeviceMemory

if TYPE_CHECKING:
    from hcq.emu.amd.shader.machine import Machine
    from hcq.emu.amd.shader.run import ShaderCore
    from hcq.emu.amd.watch import GpuWatch

TRAP, ILLEGAL_INSTRUCTION = 2, 4  # exception codes: EC_QUEUE_WAVE_TRAP, EC_QUEUE_WAVE_ILLEGAL_INSTRUCTION
UNRUNG = 2**64 - 1  # what a doorbell holds before the first store


class QueueStopped(Exception):
    """A packet, a pointer or a doorbell that makes no sense: hardware hangs here, and so does this queue."""


class EmulatedQueue(Turns, ABC):
    """One queue. `step` executes one packet; a subclass knows the packets and what its pointers count."""

    kind = ""
    unit_bytes = 1  # what its pointers count

    def __init__(self, gpu: ProcessGpu, number: int, doorbell_index: int, args: CreateQueueArgs) -> None:
        self.gpu, self.number, self.doorbell_index = gpu, number, doorbell_index
        self.ring, self.ring_bytes = args.ring_base_address, args.ring_size
        self.rptr_va, self.wptr_va = args.read_pointer_address, args.write_pointer_address
        self.eop_va = args.eop_buffer_address
        self.buffers = (self.ring, self.rptr_va, self.wptr_va, self.eop_va, args.ctx_save_restore_address)
        self.save_area = args.ctx_save_restore_address
        self.ctl_stack_bytes, self.save_bytes = args.ctl_stack_size, args.ctx_save_restore_size  # of each XCC
        self.rptr = 0  # init_mqd: whatever the memory of the read pointer holds
        self.is_suspended = not args.queue_percentage & 0xFF
        self.is_evicted = False
        self.is_ending = False  # it is being destroyed: the kernel it runs shall end
        self.has_global_sync = False  # ALLOC_QUEUE_GWS
        self.is_stuck = False  # its last packet could not be done: it waits
        self.machine: Machine | None = None  # the waves of the kernel that it runs, or that a fault ended
        self.area = Area(self.save_area, self.ctl_stack_bytes, self.save_bytes)
        self.saved = [Saved()] * gpu.chip.xccs  # of each XCC: what its save area holds
        self.stopped = ""
        # what observers were told: up to where, of which doorbell, and how far it was
        self.told = self.put_before = self.done_before = self.rptr
        self.rung_before = UNRUNG
        gpu.doorbell_slots[doorbell_index] = UNRUNG

    @abstractmethod
    def step(self) -> bool:
        """Execute the next packet; False when there is none, or when it has to wait."""

    def turn(self) -> bool:
        return self.gpu.step(self)

    def trapped(self, code: int) -> None:
        """A wave has told a trap handler of this exception, and halts."""

    @property
    def doorbell(self) -> int:
        """The last value stored to the doorbell, UNRUNG before the first."""
        return int(self.gpu.doorbell_slots[self.doorbell_index])

    @property
    def has_work(self) -> bool:
        return self.doorbell not in (UNRUNG, self.rptr)

    def rung(self, ring: int, unit: str, multiple_of: int = 1) -> int | None:
        """The write pointer, when the doorbell says that there is something new. `ring`: how many units it has."""
        wptr = self.doorbell
        if wptr in (UNRUNG, self.rptr):
            return None
        if wptr % multiple_of or not self.rptr < wptr <= self.rptr + ring:
            raise self.stop(
                f"doorbell {wptr} is not within one ring of the read pointer {self.rptr} (both in {unit})"
            )
        if self.gpu.vm.load64(self.wptr_va) < wptr:
            raise self.stop(f"doorbell {wptr} was rung before the write pointer in memory said so")
        return wptr

    @property
    def can_run(self) -> bool:
        """Whether it takes packets: not while it is suspended, evicted or stopped."""
        return not (self.is_suspended or self.is_evicted or self.stopped)

    def uses(self, bo: BufferObject) -> bool:
        """Whether a buffer object holds one of the addresses the queue was created with."""
        return any(bo.va <= va < bo.va + bo.size_bytes for va in self.buffers if va)

    def stop(self, why: str) -> QueueStopped:
        """Stop here for good. Returns the exception to raise."""
        self.stopped = f"{self.kind} queue {self.number} stopped: {why}"
        self.gpu.log(self.stopped)
        self.gpu.hangs(self)
        if self.gpu.watch is not None:
            self.gpu.watch.stopped(self, self.stopped)
        return QueueStopped(why)


class ProcessGpu:
    """One GPU, as one process has it. pid: the process, as the system numbers it."""

    def __init__(self, gpu: EmulatedGpu, events: Events, kfd_memory: DeviceMemory, pid: int = 0) -> None:
        self.gpu, self.events, self.pid = gpu, events, pid
        self.vm = GpuVm()
        self.caches = Caches(self.vm, self.chip.copies.has_gcr) if self.node.spec.has_caches else None
        self.has_trap_handler = False
        self.drm_file: object = None  # the open file whose address space it is, once that has been acquired
        # libhsakmt 5.2.3 keeps the high half of the first queue's offset alone
        self.doorbells = Backing(DOORBELL_SLICE_BYTES, kfd_memory, multiple_of=4 << 30)
        self.doorbell_slots = self.doorbells.data.view("u8")
        self.apertures = ProcessDeviceApertures(
            lds_base=1 << 48,
            lds_limit=1 << 48 | 0xFFFFFFFF,
            scratch_base=2 << 48,
            scratch_limit=2 << 48 | 0xFFFFFFFF,
            gpuvm_base=0x10000,
            gpuvm_limit=2**47 - 1,
            gpu_id=self.gpu_id,
        )
        self.is_evicted = False  # after a fault none of the process's queues runs here any more
        self.queues: dict[int, EmulatedQueue] = {}
        self.has_dump = False  # of the queues that there are
        self.running: EmulatedQueue | None = None
        self.core: ShaderCore | None = None  # made by the first kernel
        self.watch: GpuWatch | None = None  # tells observers, if there are any

    # ------------------------------------------------------------ what it shares with other processes

    @property
    def gpu_id(self) -> int:
        """What names it in ioctls."""
        return self.gpu.gpu_id

    @property
    def node(self) -> EmulatedNode:
        """What the topology says of it."""
        return self.gpu.node

    @property
    def chip(self) -> Chip:
        """Its architecture."""
        return self.gpu.chip

    @property
    def random(self) -> Random | None:
        """What draws the order of things that nothing orders; None: as they come."""
        return self.gpu.random

    def log(self, text: str) -> None:
        """One line of the kernel's log."""
        self.gpu.log(text)

    def clock(self) -> int:
        """The GPU's counter."""
        return self.gpu.clock()

    # ------------------------------------------------------------ queues

    def free_doorbell(self) -> int | None:
        """The number of a doorbell that no queue has; None when all are taken."""
        used = {queue.doorbell_index for queue in self.queues.values()}
        return next((index for index in range(DOORBELL_SLICE_BYTES // 8) if index not in used), None)

    def add(self, queue: EmulatedQueue) -> None:
        """Let a queue run, unless the process is evicted: create_queue_cpsch."""
        queue.is_evicted, self.has_dump = self.is_evicted, False
        self.queues[queue.number] = queue
        self.gpu.add(queue)

    def remove(self, number: int) -> None:
        """End a queue, in the middle of what it does."""
        queue = self.queues[number]
        with self.gpu.visit():
            is_stuck = (queue.is_stuck and queue.has_work) or self.gpu.is_paused(queue)
            if is_stuck and not (self.has_dump or queue.stopped or queue.is_evicted):
                self.hangs(queue)
        self.gpu.remove(queue)
        del self.queues[number]

    def hangs(self, queue: EmulatedQueue, fault: PageFault | None = None) -> None:
        """A queue goes on no more, or is destroyed before its work is done: a devcoredump says how it was."""
        self.has_dump = True
        self.gpu.on_hang(self, queue, fault)

    def run(self, work: Dispatch) -> None:
        """Run a kernel to its end, or until its queue is destroyed. Raises a ShaderFault."""
        from hcq.emu.amd.launch import launch, shader_core  # the shader core: much code, for kernels alone

        queue = self.running
        if work.rsrc2.scratch_en and self.chip.has_architected_scratch:  # the registers say where it is
            for xcc in range(work.xccs):
                base = work.scratch_base + xcc * work.xcc_scratch_bytes
                self.vm.bytes_at(base, work.wave_scratch_bytes * work.scratch_waves, "write")
        if self.core is None:
            self.core = shader_core(self.chip.arch, self.vm, self.caches)
        preemptions = self.gpu.preemptions
        try:
            launch(
                self.core,
                self.chip.arch,
                work,
                lambda: queue is not None and self._ends(queue),
                is_cooperative=queue is not None and queue.has_global_sync,
                pid=self.pid,
                begins=lambda machine: self._runs(queue, machine),
                schedules=self.gpu.schedules,
            )
            self._runs(queue, None)
        finally:
            if self.caches is not None:
                self.caches.vector.end_kernel()
            self.vm.settle()
        if queue is not None and not work.is_privileged and self.gpu.preemptions != preemptions:
            raise queue.stop("waves without RSRC1.PRIV were saved, and their state was not restored")

    def _runs(self, queue: EmulatedQueue | None, machine: Machine | None) -> None:
        if queue is not None:
            queue.machine = machine

    def take_off(self, queue: EmulatedQueue) -> None:
        """It stands still from now on, in the middle of a kernel: its waves go into its save area."""
        queue.is_suspended = True
        self.gpu.preemptions += 1
        with self.gpu.visit():
            self._save(queue)

    def _save(self, queue: EmulatedQueue) -> None:
        if queue.machine is None or not queue.save_area:
            queue.saved = [Saved()] * self.chip.xccs
            return
        from hcq.emu.amd.save_area import save  # NumPy, and the layout: for queues that are taken off alone

        queue.saved = save(self.vm, self.chip, queue.area, queue.machine)

    def _ends(self, queue: EmulatedQueue) -> bool:
        """In the middle of a kernel: other queues have their turns; then, whether its own is being destroyed."""
        self.vm.settle()
        self.gpu.pause(queue)
        return queue.is_ending

    def interrupt(self, context: int) -> None:
        """Raise the event with this context, as a packet asked."""
        self.events.interrupt(context)

    def step(self, queue: EmulatedQueue) -> bool:
        """A queue's next packet; what goes wrong there is its end, or that of everything of the process."""
        self.running = queue
        watch = self.watch
        try:
            if watch is not None:
                watch.before(queue)
            worked = queue.step()
            queue.is_stuck = not worked
            if watch is not None:
                watch.after(queue)
            return worked
        except QueueStopped:
            return False
        except PageFault as fault:
            self.log(f"{queue.kind} queue {queue.number}: {fault}")
            self.hangs(queue, fault)
            self._evict()
            if watch is not None:
                watch.fault(queue, fault)
            is_read_only = "read-only" in fault.why
            is_store = is_read_only or "read" not in fault.kind
            self.events.memory_exception(self.gpu_id, fault.address, not is_read_only, is_store)
        except ShaderFault as fault:
            if queue.is_ending:
                queue.is_evicted = True
                return False
            self.log(f"{queue.kind} queue {queue.number}: {fault}")
            self.hangs(queue)
            if watch is not None:
                watch.fault(queue, fault)
            if self.has_trap_handler and queue.save_area:
                queue.stopped = str(fault)
                self._tell_runtime(queue, TRAP if isinstance(fault, Trapped) else ILLEGAL_INSTRUCTION)
                return False
            self._evict()
            self.events.hw_exception(self.gpu_id, memory_lost=False)
        except Exception:
            self.log(f"{queue.kind} queue {queue.number}: the emulator failed: {traceback.format_exc()}")
            self._evict()
            self.events.hw_exception(self.gpu_id, memory_lost=True)
        finally:
            self.vm.settle()
        return False

    def _tell_runtime(self, queue: EmulatedQueue, code: int) -> None:
        """What AMD's trap handlers do; the wave halts, and its queue goes on no more.

        With RUNTIME_ENABLE the handler interrupts, and kfd_send_exception_to_runtime stores the reason where the save
        area's header says, and sets the event there. Older ones store it into the queue's inactive signal themselves.
        """
        if not self.events.is_runtime_enabled:
            queue.trapped(code)
            return
        words = self.vm.load_words(queue.save_area, ContextSaveAreaHeader.length_words)
        header = ContextSaveAreaHeader.decode(words)
        if header.err_payload_addr:
            reasons = self.vm.load64(header.err_payload_addr) | 1 << code - 1
            self.vm.store64(header.err_payload_addr, reasons)
        if header.err_event_id:
            self.events.set(header.err_event_id)

    def _evict(self) -> None:
        """Nothing of the process runs here any more: kfd_dqm_evict_pasid, which nothing takes back."""
        self.is_evicted = True
        for queue in self.queues.values():
            queue.is_evicted = True
            self._save(queue)
