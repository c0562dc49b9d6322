"""The lower rungs of AMD's ladder: packets that this file puts into the rings itself, one idea more at each rung.

In       a device that has submitted nothing
Out      rungs: WRITE_DATA; the read pointer moves; RELEASE_MEM without and with an interrupt; polls; copy packets
Changes  memory for blocks and cells; the device's rings
Next     ../ladder.py (who climbs), hcq/amd/encode.py (the packets that the driver submits)
Source   kfdtest's PM4Queue and SDMAQueue ask the same of a queue, in this order
"""

from __future__ import annotations

import itertools
import struct
from collections.abc import Iterator
from typing import Any

from hcq import command
from hcq.amd.abi import aql, pm4, sdma
from hcq.amd.encode import COMPUTE, COPY
from hcq.amd.memory import Place
from hcq.doctor.check import Skip
from hcq.layout import Packet
from hcq.system import native
from hcq.tools.hw.ladder import expect, follows, wait_for
from hcq.tools.hw.rung import Rung

AREA_BYTES, BLOCKS_AT, TARGET_AT = 1 << 16, 4096, 32768  # cells, then blocks of PM4, then what is copied to


def open_quietly(bench: Any) -> Any:
    """A device: opening submits nothing."""
    return bench.open()


class Raw:
    """Packets straight into the rings, and cells that they write."""

    def __init__(self, device: Any) -> None:
        self.device = device
        self.area = device.gpu_memory.alloc(AREA_BYTES, Place.SHARED)
        native.write(self.area.va, bytes(AREA_BYTES), AREA_BYTES)
        self.value = itertools.count(0x1001)
        self.at = BLOCKS_AT

    def compute(self, *packets: Packet | bytes) -> None:
        """PM4 into the compute ring: as it is, or as a block that an AQL packet runs."""
        data = _join(packets)
        if self.device.is_aql:
            va = self.area.va + self.at
            native.write(va, data, len(data))
            self.at += -(-len(data) // 256) * 256
            data = aql.Pm4Ib(ib_base=va, ib_size=len(data) // 4).to_bytes()
        self._put(COMPUTE, data)

    def copies(self, *packets: Packet | bytes) -> None:
        """SDMA packets into the copy ring."""
        self._put(COPY, _join(packets))

    def _put(self, name: str, data: bytes) -> None:
        ring = self.device.rings[name]
        ring.write(data, lambda full, units: None)
        ring.commit()

    def wait(self, what: str, value: int) -> None:
        """Until the cell holds a value."""
        cell = native.view(self.area.va, 4).cast("I")
        wait_for(self.device, what, lambda: cell[0] == value)


def rungs(device: Any) -> Iterator[Rung]:
    """From nothing to what a submission ends with, on each ring."""
    raw = Raw(device)
    chip, cell, target = device.chip, raw.area.va, raw.area.va + TARGET_AT
    copies = chip.copies

    def followed(name: str) -> None:
        ring = device.rings[name]
        follows(device, "the read pointer follows the write pointer", lambda: ring.get == ring.put)

    def nop() -> None:
        if device.is_aql:
            raw._put(COMPUTE, aql.BarrierAnd().to_bytes())
        else:
            raw.compute(pm4.Nop())
        followed(COMPUTE)

    def stored(what: str, *before: Packet | bytes) -> None:
        value = next(raw.value)
        raw.compute(*before, pm4.WriteData(wr_confirm=1, address=cell, data=(value,)))
        raw.wait(what, value)

    def release(what: str, **how: Any) -> None:
        value = next(raw.value)
        raw.compute(
            device.encoder._once(
                chip.release(
                    data_sel=pm4.DataSel.SEND_64_BIT_DATA, address=cell, data=value, **how
                ).to_bytes()
            )
        )
        raw.wait(what, value)

    def seen_elsewhere() -> None:
        if not device.is_aql or device.node.xccs == 1:
            raise Skip("the queue is of one XCC")
        value = next(raw.value)
        first = device.encoder._once(
            chip.release(data_sel=pm4.DataSel.SEND_64_BIT_DATA, address=target, data=value).to_bytes()
        )
        native.write(target, bytes(8), 8)
        poll = pm4.WaitRegMem(
            function=pm4.Function.EQUAL, mem_space=pm4.MemSpace.MEMORY, address=target,
            reference=value, mask=0xFFFFFFFF, poll_interval=4,
        )  # fmt: skip
        then = _join((poll, pm4.WriteData(wr_confirm=1, address=cell, data=(value,))))
        guard = pm4.PredExec(exec_count=len(then) // 4, virtual_xcc_select=1 << device.node.xccs - 1)
        raw.compute(first, guard, then)
        raw.wait("RELEASE_MEM of the first XCC, seen by the last", value)

    def poll64() -> None:
        if chip.family == 9:
            raise Skip("this generation has no 64-bit poll")
        native.write(target, struct.pack("<Q", 5 << 32), 8)
        stored("WAIT_REG_MEM64", pm4.WaitRegMem64(
            function=pm4.Function.GREATER_THAN_OR_EQUAL, mem_space=pm4.MemSpace.MEMORY,
            address=target, reference=5 << 32, mask=2**64 - 1,
            poll_interval=4,
        ))  # fmt: skip

    def fence(what: str, *before: Packet | bytes) -> None:
        value = next(raw.value)
        raw.copies(*before, copies.fence(address=cell, data=value))
        raw.wait(what, value)

    def copy() -> None:
        data = bytes(range(256)) * 16
        native.write(target + 8192, data, len(data))
        fence("a copy of 4 KiB", device.encoder.encode(command.Copy(target, target + 8192, len(data))))
        expect(target, data, "a copy of 4 KiB")

    def fill() -> None:
        native.write(target, bytes(64), 64)
        fence(
            "a fill of bytes",
            copies.fill(fillsize=sdma.FillSize.BYTE, dst_addr=target + 1, src_data=0x5A, count=12),
        )
        expect(target, b"\0" + b"\x5a" * 13 + bytes(18), "a fill of 13 bytes at an odd address")

    def sdma_nop() -> None:
        raw.copies(sdma.Nop())
        followed(COPY)

    wake = {"int_sel": pm4.IntSel.SEND_INTERRUPT_AFTER_WRITE_CONFIRM}
    yield "write data", "WRITE_DATA into host memory", lambda: stored("WRITE_DATA")
    yield "nop", "the compute ring's read pointer follows", nop
    yield "acquire", "ACQUIRE_MEM", lambda: stored("ACQUIRE_MEM", chip.acquire())
    yield "release", "RELEASE_MEM with a value, after all waves", lambda: release("RELEASE_MEM")
    yield (
        "release wake",
        "RELEASE_MEM with an interrupt",
        lambda: release("RELEASE_MEM with an interrupt", **wake),
    )
    yield "release seen", "RELEASE_MEM of one XCC is seen by another", seen_elsewhere
    yield "poll 64", "WAIT_REG_MEM64 whose condition holds", poll64
    yield "copy ring fence", "a fence alone, and nothing else in the ring", lambda: fence("FENCE")
    yield "copy ring nop", "the copy ring's read pointer follows", sdma_nop
    yield "copy 4 KiB", "COPY_LINEAR and a fence", copy
    yield "fill bytes", "CONST_FILL of 13 bytes at an odd address", fill


def _join(packets: tuple[Packet | bytes, ...]) -> bytes:
    return b"".join(one if isinstance(one, bytes) else one.to_bytes() for one in packets)
