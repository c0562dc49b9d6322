"""Packets of PM4 that our driver does not send: those of a peer's, and what hardware would hang on."""

from __future__ import annotations

from typing import Any

import pytest

from hcq.amd.abi import pm4
from hcq.emu.amd.gpu import EmulatedGpu
from hcq.emu.amd.kfd_events import Events
from hcq.emu.amd.kfd_topology import make_nodes
from hcq.emu.amd.pm4_processor import Pm4Engine
from hcq.emu.amd.process_gpu import ProcessGpu
from hcq.emu.amd.spec import parse
from hcq.emu.backing import DeviceMemory

FLUSH = {
    "operation": pm4.WaitOperation.WR_WAIT_WR_REG,
    "function": pm4.Function.GREATER_THAN_OR_EQUAL,
    "register": pm4.NbioRegister.GPU_HDP_FLUSH_REQ,
    "second_register": pm4.NbioRegister.GPU_HDP_FLUSH_DONE,
    "reference": 0xFFFFFFFF,
    "mask": 0xFFFFFFFF,
}


class Stopped(Exception):
    """What a queue that hangs says here."""


class Queue:
    """As much of a queue as its engine needs."""

    def stop(self, why: str) -> Stopped:
        return Stopped(why)


def engine(arch: str) -> Any:
    memory = DeviceMemory("kfd")
    (node,) = make_nodes([parse(f"amd:{arch}")])
    queue: Any = Queue()
    return Pm4Engine(ProcessGpu(EmulatedGpu(node, print, memory), Events(lambda: None), memory), queue)


@pytest.mark.parametrize("arch", ["gfx90a", "gfx942", "gfx1030", "gfx1100", "gfx1201"])
def test_a_flush_of_the_hdp_is_done_at_once(arch: str):
    assert engine(arch).execute(pm4.WaitRegister(**FLUSH).words)


@pytest.mark.parametrize(
    "changes",
    [
        {"register": 0x1234},
        {"second_register": pm4.NbioRegister.GPU_HDP_FLUSH_REQ},
        {"operation": pm4.WaitOperation.WAIT_REG_MEM},
    ],
)
def test_a_users_queue_waits_for_no_other_registers(changes: dict[str, int]):
    with pytest.raises(Stopped, match="those of the HDP flush"):
        engine("gfx1100").execute(pm4.WaitRegister(**{**FLUSH, **changes}).words)


def test_a_wait_is_read_by_what_it_waits_for():
    packets = (
        pm4.WaitRegister(**FLUSH),
        pm4.WaitRegMem(mem_space=pm4.MemSpace.MEMORY, address=0x1000, reference=1, mask=1),
    )
    for packet in packets:
        assert pm4.decode_one(packet.words, pm4.GFX11) == packet


@pytest.mark.parametrize("arch", ["gfx942", "gfx1100"])
def test_the_range_of_an_acquire_may_fill_its_whole_word(arch: str):
    layout = pm4.AcquireMemGfx9 if arch == "gfx942" else pm4.AcquireMem
    assert engine(arch).execute(layout(coher_size=0xFFFFFFFFFF << 8, coher_size_rest=0xFFFFFF).words)
