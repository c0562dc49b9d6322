"""Hangs for the tests of dumps: queues of an emulated GPU without a driver, and what it writes when one stands still.

In       an architecture and packets
Out      the text of a devcoredump, and where the GPU stands in truth
Next     test_devcoredump.py, test_capsule.py
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any

import numpy as np

from hcq.amd.abi import aql, pm4, sdma
from hcq.amd.abi.kfd import CreateQueueArgs
from hcq.amd.abi.registers import Register
from hcq.emu.amd import devcoredump
from hcq.emu.amd.aql_processor import AqlQueue
from hcq.emu.amd.pm4_processor import Pm4Queue
from hcq.emu.amd.process_gpu import EmulatedQueue
from hcq.emu.amd.sdma_processor import SdmaQueue
from hcq.layout import Packet
from tests.hcq.emu.amd.rig import DATA, QUEUE, RING, SAVE_AREA, Rig

EOP, BUFFER, UNMAPPED = 0x600000, 0x700000, 0x12345000
RING_BYTES = 4096

WAIT = pm4.WaitRegMem(
    function=pm4.Function.EQUAL,
    mem_space=pm4.MemSpace.MEMORY,
    address=DATA + 64,
    reference=5,
    mask=0xFFFFFFFF,
)
WAIT_FOR_0 = pm4.WaitRegMem(
    function=pm4.Function.LESS_THAN, mem_space=pm4.MemSpace.MEMORY, address=DATA, reference=1, mask=0xFFFFFFFF
)
WRITE = pm4.WriteData(address=DATA, data=(1, 2, 3))
AWAY = pm4.WriteData(address=UNMAPPED, data=(1,))
LAUNCH: tuple[Packet, ...] = (
    pm4.SetShReg(reg_offset=Register.COMPUTE_PGM_LO, registers=(UNMAPPED >> 8, 0)),
    pm4.SetShReg(reg_offset=Register.COMPUTE_NUM_THREAD_X, registers=(64, 1, 1)),
    pm4.DispatchDirect(compute_shader_en=1, dim_x=1, dim_y=1, dim_z=1),
)


def words_of(packets: Sequence[Packet]) -> list[int]:
    return [word for packet in packets for word in packet.words]


class Hanging:
    """A GPU whose queue ran as far as it gets. begin: where in the ring the work began, in words."""

    def __init__(
        self,
        arch: str,
        kind: type[EmulatedQueue],
        packets: Sequence[Packet],
        buffer: Sequence[Packet] = (),
        begin: int = 0,
    ) -> None:
        self.rig = rig = Rig(f"amd:{arch}")
        rig.gpu.gpu.on_hang = devcoredump.keep
        rig.vm.map(EOP, np.zeros(4096, np.uint8))
        rig.vm.map(BUFFER, np.zeros(4096, np.uint8))
        inside = words_of(buffer)
        rig.store(BUFFER, struct.pack(f"<{len(inside)}I", *inside))
        args = CreateQueueArgs(
            ring_base_address=RING,
            ring_size=RING_BYTES,
            write_pointer_address=QUEUE + 0x100,
            read_pointer_address=QUEUE + 0x200,
            eop_buffer_address=EOP,
            ctx_save_restore_address=SAVE_AREA,
            queue_percentage=100,
        )
        self.queue = queue = kind(rig.gpu, 5, 0, args)
        rig.gpu.queues[5] = queue
        words = words_of(packets)
        for at, word in enumerate(words):
            rig.store(RING + 4 * ((begin + at) % (RING_BYTES // 4)), struct.pack("<I", word))
        unit = queue.unit_bytes // 4 or 1
        scale = 4 if kind is SdmaQueue else 1
        queue.rptr = begin * scale // unit
        end = (begin + len(words)) * scale // unit
        rig.vm.store64(queue.wptr_va, end)
        rig.gpu.doorbell_slots[0] = end - (kind is AqlQueue)
        rig.vm.store64(DATA + 64 + aql.AmdSignal.value.byte_offset, 1)
        while rig.gpu.step(queue):
            pass
        if rig.gpu.gpu.dump is None:  # it waits: somebody destroys it
            rig.gpu.hangs(queue)

    @property
    def text(self) -> bytes:
        """What sysfs shows."""
        dump = self.rig.gpu.gpu.dump
        assert dump is not None
        return dump()


def ib(words: int) -> Packet:
    return pm4.IndirectBuffer(ib_base=BUFFER, ib_size=words)


def _in_buffer(*packets: Packet) -> dict[str, Any]:
    return {"packets": (WRITE, ib(len(words_of(packets))), WRITE), "buffer": packets}


_POLL: dict[str, Any] = {"func": 3, "mem_poll": 1, "address": DATA + 64, "value": 7, "mask": 0xFFFFFFFF}
_FENCES = {"gfx942": sdma.FenceV4, "gfx1100": sdma.Fence, "gfx1201": sdma.FenceV7}
_POLLS = {"gfx942": sdma.PollRegmemV4, "gfx1100": sdma.PollRegmem, "gfx1201": sdma.PollRegmemV7}


def hang(name: str, arch: str) -> Hanging:
    """One of HANGS on an architecture."""
    if name == "a wait":
        return Hanging(arch, Pm4Queue, (WRITE, WAIT, WRITE))
    if name == "a wait around the ring's end":
        return Hanging(arch, Pm4Queue, (WRITE, WAIT, WRITE), begin=5 * 1024 - 8)
    if name == "a wait in a buffer":
        return Hanging(arch, Pm4Queue, **_in_buffer(WRITE, WAIT, WRITE))
    if name == "a wait that zeros would end":
        return Hanging(arch, Pm4Queue, (WRITE, WAIT_FOR_0, WRITE))
    if name == "a fault":
        return Hanging(arch, Pm4Queue, (WRITE, AWAY, WRITE))
    if name == "a fault in a buffer":
        return Hanging(arch, Pm4Queue, **_in_buffer(WRITE, WRITE, AWAY))
    if name == "a kernel without code":
        return Hanging(arch, Pm4Queue, (WRITE, *LAUNCH, WRITE))
    if name == "a packet that is none":
        return Hanging(arch, Pm4Queue, (WRITE, pm4.Header(type=3, opcode=0xFE, count=0), WRITE))
    if name == "a copy queue":
        fence = _FENCES[arch](address=DATA, data=3)
        return Hanging(arch, SdmaQueue, (fence, _POLLS[arch](**_POLL), fence))
    assert name == "a barrier of AQL"
    barrier = aql.BarrierAnd(dep_signal_0=DATA + 64)
    return Hanging(arch, AqlQueue, (aql.BarrierAnd(), barrier, aql.BarrierAnd()))


HANGS = {  # what the packet is called that hangs
    "a wait": "WaitRegMem",
    "a wait around the ring's end": "WaitRegMem",
    "a wait in a buffer": "WaitRegMem",
    "a wait that zeros would end": "WaitRegMem",
    "a fault": "WriteData",
    "a fault in a buffer": "WriteData",
    "a kernel without code": "DispatchDirect",
    "a packet that is none": "unknown opcode 0xfe",
    "a copy queue": "PollRegmem",
    "a barrier of AQL": "BarrierAnd",
}
ARCHITECTURES = ("gfx942", "gfx1100", "gfx1201")
