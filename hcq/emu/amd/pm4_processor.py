"""The PM4 packet processor: compute queues, and the indirect buffers of other queues.

In       words of a ring or an indirect buffer
Out      registers set, kernels launched, memory written, interrupts
Changes  the process's memory through the GPU's page table
Next     hcq/amd/abi/pm4.py (the packets), dispatch.py (what a dispatch starts)

A dispatch ends before the next packet starts, which is more order than hardware promises. With a seed it does not:
dispatches are kept back until something waits for them, and then run in random order.
"""

from __future__ import annotations

import functools
from collections import deque
from collections.abc import Sequence
from typing import Any

import numpy as np

from hcq.amd.abi import pm4, registers
from hcq.amd.abi.kfd import CreateQueueArgs
from hcq.emu.amd.dispatch import dispatch_from_registers
from hcq.emu.amd.engine import Handlers, Unordered, holds
from hcq.emu.amd.process_gpu import EmulatedQueue, ProcessGpu
from hcq.emu.shader import copy_checks
from hcq.events import kernel_debug
from hcq.layout import Packet

AHEAD_WORDS = 64  # of the ring, that are read together
# nobody sees their end
QUIET = frozenset((pm4.Opcode.SET_SH_REG, pm4.Opcode.NOP, pm4.Opcode.EVENT_WRITE, pm4.Opcode.ACQUIRE_MEM))
# none of them takes long, or has others follow that are not in the ring: the next one follows in the same step
BRIEF = QUIET | {pm4.Opcode.RELEASE_MEM}
MAX_NESTING = 2  # a ring runs an indirect buffer, and that one no other
HANDLERS = Handlers()
on = HANDLERS.on


@functools.lru_cache(4096)
def _decoded(words: tuple[int, ...], family: int) -> Packet:
    return pm4.decode_one(words, pm4.GFX9 if family == 9 else pm4.GFX11)


@functools.lru_cache(1024)
def _first_register(header: int, where: int, length: int, family: int) -> int | None:
    """The first register that a packet of these two words, and so many in all, writes; None: it is looked at."""
    packet = _decoded((header, where, *[0] * (length - 2)), family)
    if type(packet) is not pm4.SetShReg or packet.unclaimed or len(packet.tail_words) != length - 2:
        return None
    first = int(packet.reg_offset)
    return first if registers.FIRST <= first <= first + length - 3 <= registers.LAST else None


class Frame:
    """An indirect buffer being executed."""

    def __init__(self, words: Sequence[int], xcc: int, va: int) -> None:
        self.words, self.xcc, self.va, self.at = words, xcc, va, 0
        self.skip_until = 0  # PRED_EXEC: words up to here are for other XCCs


class Pm4Engine:
    """Executes packets for one queue; its registers stay from packet to packet."""

    def __init__(self, gpu: ProcessGpu, queue: EmulatedQueue) -> None:
        self.gpu, self.queue, self.vm = gpu, queue, gpu.vm
        self.family = gpu.chip.family
        self.registers: dict[int, int] = {}
        self.frames: list[Frame] = []
        self.headers: deque[int] = deque(maxlen=8)  # of the packets that it took last
        self.is_waiting = False  # the last one is not done: it is tried again
        self.dispatches = Unordered(gpu.random)

    def step(self) -> bool:
        """Execute the next packet of the innermost buffer."""
        frame = self.frames[-1]
        if frame.at >= len(frame.words):
            self.frames.pop()
            return True
        size = pm4.length_words(frame.words[frame.at])
        words = tuple(frame.words[frame.at : frame.at + size])
        if len(words) < size:
            raise self.queue.stop(
                f"a packet of {size} words at the end of an indirect buffer of {len(frame.words)}"
            )
        if frame.at < frame.skip_until:
            frame.at += size
            return True
        depth = len(self.frames)
        if not self.execute(words):
            return False
        self.frames[depth - 1].at += size
        return True

    def execute(self, words: tuple[int, ...]) -> bool:
        """Execute one whole packet. False: it waits for something; call again."""
        if not self.is_waiting:
            self.headers.append(words[0])
        if words[0] >> 8 & 0xFF == pm4.Opcode.SET_SH_REG and len(words) > 2 and kernel_debug.debugger is None:
            first = _first_register(words[0], words[1], len(words), self.family)
            if first is not None:
                self.registers.update(zip(range(first, first + len(words) - 2), words[2:]))
                return True
        packet = _decoded(words, self.family)
        handler = HANDLERS.get(type(packet))
        if handler is None:
            raise self.queue.stop(f"{packet!r} is no packet this processor knows: {words[0]:#010x}")
        if packet.unclaimed:
            raise self.queue.stop(f"{packet!r} sets bits that no field has")
        if kernel_debug.debugger is not None and not self.is_waiting:
            kernel_debug.debugger.packet("pm4", packet)
        is_done = handler(self, packet)
        self.is_waiting = not is_done
        return is_done

    def push(self, words: Sequence[int], va: int, xcc: int = 0) -> None:
        """Run these words, which are at an address, next, in the place of a packet."""
        self.frames.append(Frame(words, xcc, va))

    # ------------------------------------------------------------ packets

    @on(pm4.Nop, pm4.NopWord)
    def nop(self, packet: Packet) -> bool:
        """NOP."""
        return True

    @on(pm4.AcquireMem, pm4.AcquireMemGfx9)
    def acquire_mem(self, packet: Any) -> bool:
        """ACQUIRE_MEM: write back and invalidate the caches it names, where caches are emulated."""
        if self.gpu.caches is not None:
            self.dispatches.drain()
            self.gpu.caches.acquire(**caches_named(packet, self.gpu.chip.family))
        return True

    @on(pm4.SetShReg)
    def set_sh_reg(self, packet: pm4.SetShReg) -> bool:
        """SET_SH_REG: write registers of compute, all of which must be known ones."""
        first, last = packet.reg_offset, packet.reg_offset + len(packet.tail_words) - 1
        if not registers.FIRST <= first <= last <= registers.LAST:
            raise self.queue.stop(
                f"{packet!r} writes registers {first:#x}..{last:#x}, which are not compute's"
            )
        for index, value in enumerate(packet.tail_words):
            self.registers[first + index] = value
        return True

    @on(pm4.DispatchDirect)
    def dispatch_direct(self, packet: pm4.DispatchDirect) -> bool:
        """DISPATCH_DIRECT: launch what the registers describe."""
        work = dispatch_from_registers(self.gpu.chip, self.registers, packet)
        if isinstance(work, str):
            raise self.queue.stop(f"{packet!r}: {work}")
        self.dispatches.add(lambda: self.gpu.run(work))
        return True

    @on(pm4.EventWrite)
    def event_write(self, packet: pm4.EventWrite) -> bool:
        """EVENT_WRITE: CS_PARTIAL_FLUSH waits for the waves; other events are refused."""
        if packet.event_type == pm4.Event.CS_PARTIAL_FLUSH:
            if packet.event_index != pm4.EventIndex.CS_PARTIAL_FLUSH:
                raise self.queue.stop(f"{packet!r}: CS_PARTIAL_FLUSH goes with event_index 4")
            self.dispatches.drain()
        return True

    @on(pm4.ReleaseMem, pm4.ReleaseMemGfx9)
    def release_mem(self, packet: Any) -> bool:
        """RELEASE_MEM: once all work before it is done and written back, write a value or a clock, and interrupt."""
        self.dispatches.drain()
        if not self.queue.eop_va:  # where the processor notes events at the end of the pipe
            raise self.vm.fault(np.array([0], np.uint64), 4, "write")
        if self.gpu.caches is not None:
            self.gpu.caches.acquire(**caches_named(packet, self.gpu.chip.family))
            self.vm.settle()  # pages of another process have it before the value says so
        if packet.data_sel == pm4.DataSel.SEND_32_BIT_LOW:
            self.vm.store32(packet.address, packet.data)
        elif packet.data_sel == pm4.DataSel.SEND_64_BIT_DATA:
            self.vm.store64(self._aligned(packet, 8), packet.data)
        elif packet.data_sel in (pm4.DataSel.SEND_GPU_CLOCK_COUNTER, pm4.DataSel.SEND_SYSTEM_CLOCK_COUNTER):
            self.vm.store64(self._aligned(packet, 8), self.gpu.clock())
        elif packet.data_sel != pm4.DataSel.NONE:
            raise self.queue.stop(f"{packet!r}: data_sel {packet.data_sel} is not one this processor knows")
        if packet.int_sel in (pm4.IntSel.SEND_INTERRUPT_ONLY, pm4.IntSel.SEND_INTERRUPT_AFTER_WRITE_CONFIRM):
            self.gpu.interrupt(packet.int_ctxid)
        return True

    @on(pm4.WriteData)
    def write_data(self, packet: pm4.WriteData) -> bool:
        """WRITE_DATA, to memory."""
        if packet.dst_sel not in (pm4.WriteDst.MEMORY, pm4.WriteDst.TC_L2):
            raise self.queue.stop(f"{packet!r}: only memory can be written from a user's queue")
        for index, word in enumerate(packet.tail_words):
            self.vm.store32(packet.address + (0 if packet.addr_incr else 4 * index), word)
        return True

    @on(pm4.CopyData)
    def copy_data(self, packet: pm4.CopyData) -> bool:
        """COPY_DATA: from memory, an immediate or the clock, to memory."""
        if packet.src_sel == pm4.CopySrc.TC_L2:
            value = self.vm.load64(packet.source) if packet.count_sel else self.vm.load32(packet.source)
        elif packet.src_sel == pm4.CopySrc.IMMEDIATE_DATA:
            value = packet.source
        elif packet.src_sel in (pm4.CopySrc.GPU_CLOCK_COUNT, pm4.CopySrc.SYSTEM_CLOCK_COUNT):
            value = self.gpu.clock()
        else:
            raise self.queue.stop(f"{packet!r}: this source cannot be read from a user's queue")
        if packet.dst_sel not in (pm4.CopyDst.MEM, pm4.CopyDst.TC_L2):
            raise self.queue.stop(f"{packet!r}: only memory can be written from a user's queue")
        (self.vm.store64 if packet.count_sel else self.vm.store32)(packet.destination, value)
        return True

    @on(pm4.DmaData)
    def dma_data(self, packet: pm4.DmaData) -> bool:
        """DMA_DATA: copy between places in memory, or fill with a word; addresses rise."""
        sources, targets = (pm4.DmaSrc.MEMORY, pm4.DmaSrc.TC_L2), (pm4.DmaDst.MEMORY, pm4.DmaDst.TC_L2)
        is_fill = packet.src_sel == pm4.DmaSrc.DATA
        if (not is_fill and packet.src_sel not in sources) or packet.dst_sel not in targets:
            raise self.queue.stop(f"{packet!r}: a user's queue copies memory, or fills it with a word")
        if packet.sas or packet.das or packet.saic or packet.daic:
            raise self.queue.stop(f"{packet!r}: registers and addresses that stand still are not emulated")
        pid, source = self.gpu.pid, None if is_fill else packet.source
        copy_checks.look(pid, "DMA_DATA", packet.destination, source, packet.byte_count)
        if is_fill:
            word = (packet.source & 0xFFFFFFFF).to_bytes(4, "little")
            self.vm.fill(packet.destination, word, packet.byte_count)
        elif packet.byte_count:
            self.vm.copy(packet.destination, packet.source, packet.byte_count)
        return True

    @on(pm4.WaitRegMem, pm4.WaitRegMem64)
    def wait_reg_mem(self, packet: Any) -> bool:
        """WAIT_REG_MEM: False, and the packet is looked at again, until memory has the value."""
        if packet.mem_space != pm4.MemSpace.MEMORY or packet.operation:
            raise self.queue.stop(f"{packet!r}: a user's queue waits for memory")
        load = self.vm.load64 if isinstance(packet, pm4.WaitRegMem64) else self.vm.load32
        return holds(packet.function, load(packet.address) & packet.mask, packet.reference)

    @on(pm4.WaitRegister)
    def wait_register(self, packet: pm4.WaitRegister) -> bool:
        """WAIT_REG_MEM of registers: a flush of the HDP, through which the host writes. Here nothing waits in it."""
        asked = packet.operation, packet.register, packet.second_register
        flush = pm4.NbioRegister.GPU_HDP_FLUSH_REQ, pm4.NbioRegister.GPU_HDP_FLUSH_DONE
        if asked != (pm4.WaitOperation.WR_WAIT_WR_REG, *flush):
            raise self.queue.stop(
                f"{packet!r}: of registers, a user's queue waits for those of the HDP flush"
            )
        return holds(packet.function, packet.reference & packet.mask, packet.reference)

    @on(pm4.IndirectBuffer)
    def indirect_buffer(self, packet: pm4.IndirectBuffer) -> bool:
        """INDIRECT_BUFFER: run packets from memory, nested as deep as hardware does."""
        if not packet.valid or not packet.ib_size or len(self.frames) >= MAX_NESTING:
            raise self.queue.stop(f"{packet!r}: not valid, empty, or nested too deep")
        if packet.chain:
            raise self.queue.stop(f"{packet!r}: chained buffers are not emulated")
        words = self.vm.load_words(packet.ib_base, packet.ib_size)
        self.push(words, packet.ib_base, self.frames[-1].xcc if self.frames else 0)
        return True

    @on(pm4.PredExec)
    def pred_exec(self, packet: pm4.PredExec) -> bool:
        """PRED_EXEC: the packets after it only on the XCCs named."""
        if not self.frames:
            raise self.queue.stop(f"{packet!r} works inside indirect buffers only")
        frame = self.frames[-1]
        if not packet.virtual_xcc_select >> frame.xcc & 1:
            frame.skip_until = frame.at + packet.length_words + packet.exec_count
        return True

    def _aligned(self, packet: Any, to: int) -> int:
        if packet.address % to:
            raise self.queue.stop(f"{packet!r}: {packet.address:#x} is not a multiple of {to}")
        return int(packet.address)


def caches_named(packet: Any, family: int) -> dict[str, bool]:
    """What ACQUIRE_MEM or RELEASE_MEM does to which cache. gfx11 has two for vectors, and both must be forgotten."""
    if isinstance(packet, (pm4.AcquireMemGfx9, pm4.ReleaseMemGfx9)):
        return {
            "code": bool(packet.values.get("sh_icache_action_ena")),
            "scalar": bool(packet.values.get("sh_kcache_action_ena")),
            "vector": bool(packet.tcl1_action_ena),
            "l2": bool(packet.tc_action_ena),
            "l2_write_back": bool(packet.tc_wb_action_ena),
        }
    return {
        "code": packet.values.get("gli_inv") == pm4.GliInv.ALL,
        "scalar": bool(packet.glk_inv),
        "vector": bool(packet.glv_inv and (packet.gl1_inv or family == 12)),
        "l2": bool(packet.gl2_inv),
        "l2_write_back": bool(packet.gl2_wb),
    }


class Pm4Queue(EmulatedQueue):
    """A compute queue of PM4 packets. Its pointers count words; a packet may cross the ring's end.

    The doorbell and the write pointer only rise. The read pointer is reported as 32 bits, the word in the ring that is
    read next, so that a ring that is filled completely looks as an empty one does, to the processor, too.
    """

    kind = "PM4"
    unit_bytes = 4

    def __init__(self, gpu: ProcessGpu, number: int, doorbell_index: int, args: CreateQueueArgs) -> None:
        super().__init__(gpu, number, doorbell_index, args)
        self.engine = Pm4Engine(gpu, self)
        self.ring_words = self.ring_bytes // 4

    def step(self) -> bool:
        if self.engine.frames:
            return self.engine.step()
        wptr = self.rung(self.ring_words, "words")
        if wptr is None or wptr - self.rptr == self.ring_words:
            return self.engine.dispatches.drain()
        ahead, at, told, goes_on = self._words(min(wptr - self.rptr, AHEAD_WORDS)), 0, 0, True
        is_alone = self.gpu.random is not None or self.gpu.watch is not None  # each packet is a step
        while goes_on and at < len(ahead):
            opcode, size = ahead[at] >> 8 & 0xFF, pm4.length_words(ahead[at])
            is_beyond, goes_on = self.rptr + size > wptr, not is_alone and opcode in BRIEF
            if told < at and (is_beyond or opcode not in QUIET):
                self._report_read_pointer()  # it may run for long
                told = at
            if is_beyond:
                raise self.stop(f"a packet of {size} words at {self.rptr} goes beyond the doorbell {wptr}")
            words = ahead[at : at + size] if at + size <= len(ahead) else self._words(size)
            try:
                if not self.engine.execute(tuple(words)):
                    return at > 0
            except Exception:
                if told < at:
                    self._report_read_pointer()  # this one is where the queue stands
                raise
            self.rptr += size
            at += size
        self._report_read_pointer()
        return True

    def _report_read_pointer(self) -> None:
        self.gpu.vm.store32(self.rptr_va, self.rptr % self.ring_words)

    def _words(self, count: int) -> list[int]:
        at = self.rptr % self.ring_words
        head = min(count, self.ring_words - at)
        words = self.gpu.vm.load_words(self.ring + 4 * at, head)
        return words + (self.gpu.vm.load_words(self.ring, count - head) if count > head else [])
