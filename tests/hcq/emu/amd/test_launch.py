"""Dispatches on an emulated GPU: what they need before a kernel runs, and kernels of several queues."""

from __future__ import annotations

import dataclasses
import time

import numpy as np
import pytest

from hcq.amd.abi.kfd import CreateQueueArgs
from hcq.amd.abi.registers import Rsrc1, Rsrc2
from hcq.emu.amd.dispatch import Dispatch
from hcq.emu.amd.gpu import EmulatedGpu
from hcq.emu.amd.kfd_events import Events
from hcq.emu.amd.kfd_topology import make_nodes
from hcq.emu.amd.process_gpu import EmulatedQueue, ProcessGpu
from hcq.emu.amd.shader.architectures import ISAS
from hcq.emu.amd.shader.errors import PageFault
from hcq.emu.amd.spec import parse
from hcq.emu.backing import DeviceMemory
from tests.hcq.emu.amd.shader.assembler import Assembler

CODE, SCRATCH, FLAGS = 0x10000, 0x200000, 0x1_2345_6000
EMPTY = Dispatch(
    entry=CODE,
    rsrc1=Rsrc1(),
    rsrc2=Rsrc2(scratch_en=1),
    rsrc3=0,
    wave_size=64,
    user_sgprs=(),
    grid=(1, 1, 1),
    block=(64, 1, 1),
    lds_bytes=0,
    scratch_base=SCRATCH,
    wave_scratch_bytes=1024,
    scratch_waves=32,
)


@pytest.mark.parametrize("arch", ["gfx942", "gfx1100", "gfx1201"])
def test_scratch_memory_of_all_waves_is_mapped_where_the_registers_say(arch: str) -> None:
    memory = DeviceMemory("kfd")
    (node,) = make_nodes([parse(f"amd:{arch}")])
    gpu = ProcessGpu(EmulatedGpu(node, print, memory), Events(lambda: None), memory)
    gpu.vm.map(CODE, np.array(ISAS[arch].encode("s_endpgm"), np.uint32), name="code")
    gpu.run(dataclasses.replace(EMPTY, rsrc2=Rsrc2()))
    with pytest.raises(PageFault, match=f"{SCRATCH:#x}: not mapped"):
        gpu.run(EMPTY)
    gpu.vm.map(SCRATCH, np.zeros(32 * 1024 - 4, np.uint8), name="scratch")
    with pytest.raises(PageFault, match="ends beyond its mapping"):
        gpu.run(EMPTY)
    gpu.vm.unmap(SCRATCH)
    gpu.vm.map(SCRATCH, np.zeros(32 * 1024, np.uint8), name="scratch")
    gpu.run(EMPTY)


def poll_and_store(poll: int, store: int) -> bytes:
    """Code for gfx1100: wait until the word at s[0:1] + poll is 1, then store 1 at s[0:1] + store."""
    code = Assembler(ISAS["gfx1100"])
    for register in (0, 1):
        code("v_mov_b32", f"v{register}", f"s{register}")
    code("v_mov_b32", "v2", 1)
    top = len(code.words)
    code("s_load_b32", "s4", "s[0:1]", offset=poll, glc=1, soffset=124)
    code("s_waitcnt", 0)
    code("s_cmp_lg_u32", "s4", 1)
    code("s_cbranch_scc1", top - len(code.words) - 1)
    code("flat_store_b32", "v[0:1]", "v2", offset=store)
    code("s_endpgm", 0)
    return code.to_bytes()


class OneKernel(EmulatedQueue):
    """A queue with one kernel to run."""

    kind = "test"

    def __init__(self, gpu: ProcessGpu, number: int, work: Dispatch) -> None:
        super().__init__(gpu, number, number, CreateQueueArgs(read_pointer_address=FLAGS))
        self.work: Dispatch | None = work

    @property
    def has_work(self) -> bool:
        return self.work is not None

    def step(self) -> bool:
        if self.work is None:
            return False
        work, self.work = self.work, None
        self.gpu.run(work)
        return True


@pytest.mark.parametrize("seed", ["", ":seed=3"])
def test_kernels_of_two_queues_run_side_by_side(seed: str) -> None:
    memory = DeviceMemory("kfd")
    (node,) = make_nodes([parse(f"amd:gfx1100{seed}")])
    gpu = ProcessGpu(EmulatedGpu(node, print, memory), Events(lambda: None), memory)
    flags = np.zeros(1024, np.uint32)
    gpu.vm.map(FLAGS, flags, name="flags")
    queues = []
    for number, (poll, store) in enumerate(((4, 0), (0, 8), (8, 12))):
        entry = CODE + 0x1000 * number
        gpu.vm.map(entry, np.frombuffer(poll_and_store(poll, store), np.uint8), name="code")
        work = dataclasses.replace(
            EMPTY,
            entry=entry,
            rsrc2=Rsrc2(user_sgpr=2),
            wave_size=32,
            block=(1, 1, 1),
            user_sgprs=(FLAGS & 0xFFFFFFFF, FLAGS >> 32),
        )
        queues.append(OneKernel(gpu, number, work))
    for queue in queues:  # the first waits for the host, the second for the first, the third for the second
        gpu.add(queue)
    flags[1] = 1
    end = time.monotonic() + 20
    while flags[3] != 1 and time.monotonic() < end:
        time.sleep(0.001)
    for queue in queues:
        gpu.remove(queue.number)
    assert flags[:4].tolist() == [1, 1, 1, 1]


def test_a_queue_ends_while_its_kernel_waits_for_ever_beside_another() -> None:
    memory = DeviceMemory("kfd")
    (node,) = make_nodes([parse("amd:gfx1100")])
    gpu = ProcessGpu(EmulatedGpu(node, print, memory), Events(lambda: None), memory)
    gpu.vm.map(FLAGS, np.zeros(1024, np.uint32), name="flags")
    gpu.vm.map(CODE, np.frombuffer(poll_and_store(4, 0), np.uint8), name="code")
    work = dataclasses.replace(
        EMPTY,
        rsrc2=Rsrc2(user_sgpr=2),
        wave_size=32,
        block=(1, 1, 1),
        user_sgprs=(FLAGS & 0xFFFFFFFF, FLAGS >> 32),
    )
    queues = [OneKernel(gpu, number, work) for number in range(2)]
    for queue in queues:
        gpu.add(queue)
    for queue in queues:
        while queue.has_work:
            time.sleep(0.001)
    for queue in queues:
        gpu.remove(queue.number)
    assert not gpu.queues


def test_a_queue_that_is_suspended_stops_in_the_middle_of_its_kernel_and_goes_on() -> None:
    memory = DeviceMemory("kfd")
    (node,) = make_nodes([parse("amd:gfx1100")])
    gpu = ProcessGpu(EmulatedGpu(node, print, memory), Events(lambda: None), memory)
    flags = np.zeros(1024, np.uint32)
    gpu.vm.map(FLAGS, flags, name="flags")
    gpu.vm.map(CODE, np.frombuffer(poll_and_store(4, 0), np.uint8), name="code")
    work = dataclasses.replace(
        EMPTY,
        rsrc2=Rsrc2(user_sgpr=2),
        wave_size=32,
        block=(1, 1, 1),
        user_sgprs=(FLAGS & 0xFFFFFFFF, FLAGS >> 32),
    )
    queue = OneKernel(gpu, 0, work)
    gpu.add(queue)
    while queue.has_work:
        time.sleep(0.001)
    queue.is_suspended = True
    while not gpu.gpu.is_paused(queue):
        time.sleep(0.001)
    flags[1] = 1
    time.sleep(0.05)
    assert flags[0] == 0
    queue.is_suspended = False
    end = time.monotonic() + 20
    while not flags[0] and time.monotonic() < end:
        time.sleep(0.001)
    gpu.remove(0)
    assert flags[0] == 1
