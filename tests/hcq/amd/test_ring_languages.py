"""What goes into a ring is in its language, and every address that a packet names is looked at, before the doorbell."""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

import pytest

from hcq.amd.abi import aql, pm4, sdma
from hcq.amd.device import AmdDevice
from hcq.amd.encode import COMPUTE, COPY, Piece, piece
from hcq.errors import UsageError

NOWHERE = 0x123000


@pytest.fixture(params=["gfx1100 pm4", "gfx1100 aql", "gfx942 aql", "gfx1201 pm4"])
def device(request: pytest.FixtureRequest, open_amd: Callable[..., AmdDevice]) -> AmdDevice:
    arch, queue = request.param.split()
    return open_amd(arch, queue)


def foreign(device: AmdDevice, address: int) -> dict[str, tuple[str, bytes]]:
    """A ring, and a packet in the language of another one."""
    store = pm4.WriteData(address=address, data=(1, 2)).to_bytes()
    fence = device.chip.copies.fence(address=address, data=1).to_bytes()
    launch = aql.KernelDispatch(kernel_object=address).to_bytes()
    found = {"PM4 for the copies": (COPY, store), "AQL for the copies": (COPY, launch)}
    found["SDMA for the kernels"] = (COMPUTE, fence)
    other = store if device.is_aql else launch
    return {**found, "the other kind of queue": (COMPUTE, other)}


@pytest.mark.parametrize("is_plain", [True, False])
def test_a_packet_in_another_rings_language_is_refused_before_the_doorbell(
    device: AmdDevice, is_plain: bool
) -> None:
    buffer = device.alloc(4096, "mine")
    for what, (ring, packet) in foreign(device, buffer.address).items():
        words = packet if is_plain and ring == COMPUTE else piece(packet, ring)
        with pytest.raises(UsageError, match="packet-unknown"):
            device.submit([words], [])
            pytest.fail(what)
    fence = device.chip.copies.fence(address=buffer.address, data=7).to_bytes()
    device.submit([piece(fence, COPY)], []).wait()
    assert struct.unpack_from("<I", buffer.read())[0] == 7


def test_a_ring_of_another_name_is_refused_in_one_sentence(device: AmdDevice) -> None:
    with pytest.raises(UsageError, match=r"piece\(ring='gfx'\): an AMD GPU has the rings compute and copy"):
        piece(b"", "gfx")
    for is_free in (False, True):
        made = Piece(aql.Pm4Ib().to_bytes() if device.is_aql else pm4.NopWord().to_bytes())
        made.ring, made.is_free = "gfx", is_free
        with pytest.raises(UsageError, match="gfx"):
            device.submit([made], [])
    buffer = device.alloc(64)
    device.queue().fill(buffer, 3).submit().wait()
    assert buffer.read()[0] == 3


def naming(device: AmdDevice, va: int) -> dict[str, tuple[str, Any]]:
    """Packets, each of which names an address."""
    copies = device.chip.copies
    on_compute: dict[str, Any] = {
        "WriteData": pm4.WriteData(address=va, data=(1, 2)),
        "CopyData to": pm4.CopyData(
            src_sel=pm4.CopySrc.IMMEDIATE_DATA, dst_sel=pm4.CopyDst.MEM, source=1, destination=va
        ),
        "DmaData to": pm4.DmaData(src_sel=pm4.DmaSrc.DATA, destination=va, byte_count=64),
        "ReleaseMem": device.chip.release(data_sel=pm4.DataSel.SEND_32_BIT_LOW, address=va),
    }
    on_copy: dict[str, Any] = {
        "Fence": copies.fence(address=va, data=1),
        "Timestamp": sdma.Timestamp(address=va),
        "Atomic": sdma.Atomic(atomic_op=sdma.AtomicOp.ADD64, address=va, src_data=1),
        "Copy": copies.copy(src_addr=va, dst_addr=va, count=3),
    }
    found = {name: (COPY, packet) for name, packet in on_copy.items()}
    if device.is_aql:
        signals = (
            aql.BarrierAnd(dep_signal_0=va),
            aql.BarrierOr(completion_signal=va),
            aql.Pm4Ib(ib_base=va, ib_size=4),
        )
        return {**found, **{type(one).__name__: (COMPUTE, one) for one in signals}}
    return {**found, **{name: (COMPUTE, packet) for name, packet in on_compute.items()}}


def test_every_packet_with_an_address_is_looked_at(device: AmdDevice) -> None:
    for what, (ring, packet) in naming(device, NOWHERE).items():
        with pytest.raises(UsageError, match=r"address-unmapped|block-out-of-bounds"):
            device.submit([piece(packet.to_bytes(), ring)], [])
            pytest.fail(what)


def test_packets_that_name_memory_of_ours_run(device: AmdDevice) -> None:
    if device.is_aql:
        pytest.skip("the compute ring takes AQL packets alone")
    buffer = device.alloc(4096, "mine")
    packets = [
        pm4.WriteData(address=buffer.address, data=(5, 6)),
        pm4.CopyData(
            src_sel=pm4.CopySrc.TC_L2,
            dst_sel=pm4.CopyDst.MEM,
            source=buffer.address,
            destination=buffer.address + 8,
        ),
        pm4.DmaData(source=buffer.address, destination=buffer.address + 16, byte_count=8),
        pm4.DmaData(src_sel=pm4.DmaSrc.DATA, source=9, destination=buffer.address + 24, byte_count=6),
    ]
    device.submit([b"".join(packet.to_bytes() for packet in packets)], []).wait()
    assert struct.unpack_from("<8I", buffer.read()) == (5, 6, 5, 0, 5, 6, 9, 9)
