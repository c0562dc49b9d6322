"""Dispatches on an emulated GPU: what the registers promise has to be there before a kernel runs."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from hcq.amd.abi.registers import Rsrc1, Rsrc2
from hcq.emu.amd.dispatch import Dispatch
from hcq.emu.amd.gpu import EmulatedGpu
from hcq.emu.amd.kfd_events import Events
from hcq.emu.amd.kfd_topology import make_nodes
from hcq.emu.amd.process_gpu import ProcessGpu
from hcq.emu.amd.shader.architectures import ISAS
from hcq.emu.amd.shader.errors import PageFault
from hcq.emu.amd.spec import parse
from hcq.emu.backing import DeviceMemory

CODE, SCRATCH = 0x10000, 0x200000
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
