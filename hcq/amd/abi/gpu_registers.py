"""Registers that tell whether a GPU is busy and what each hardware queue does, and debugfs's file of registers.

In       nothing
Out      numbers of registers by generation, names of their bits, the state that amdgpu_regs2 selects by
Next     hcq/amd/debugfs_registers.py (who reads them), hcq/emu/amd/debugfs_files.py (who answers when there is no GPU),
         mqd.py (the fields of a hardware queue)
Source   gc_9_4_3_offset.h, gc_10_3_0_offset.h, gc_11_0_0_offset.h, gc_12_0_0_offset.h and their sh_mask
         files; amdgpu_umr.h: amdgpu_debugfs_regs2_iocdata_v2; vega10_ip_offset.h, navi10_ip_offset.h (the first
         segment of GC); gfx_v9_0.c, gfx_v10_0.c, gfx_v11_0.c, gfx_v12_0.c: sw_init (pipes, queues); soc15.c, soc21.c,
         soc24.c: allowed_read_registers
"""

from __future__ import annotations

from typing import NamedTuple

from hcq.amd.abi import mqd
from hcq.layout import SparsePacket, bits
from hcq.system.ioctl_numbers import READ, WRITE, ioctl_number

FIRST_WORD, LAST_WORD = (
    128,
    183,
)  # of an MQD: CP_MQD_BASE_ADDR to CP_HQD_PQ_WPTR_HI, in the order of the registers
VMID_WORD = 131
COUNT = LAST_WORD - FIRST_WORD + 1
MICRO_ENGINE = 1  # the first one of compute; 0 is that of graphics


class Numbers(NamedTuple):
    """Of a generation, counted in words from the first segment of GC.

    base     where that segment begins, where the GPU does not say it
    queues   number of CP_MQD_BASE_ADDR, the first register of a hardware queue
    pipes    of a micro engine; with so many queues each
    status   numbers by name: registers that the kernel driver reads for everybody
    """

    base: int
    queues: int
    pipes: int
    queues_per_pipe: int
    status: dict[str, int]


_STATUS_9 = {"GRBM_STATUS": 0x4, "GRBM_STATUS2": 0x2, "CP_STAT": 0x1A0}
_STATUS_11 = {"GRBM_STATUS": 0xDA4, "GRBM_STATUS2": 0xDA2, "CP_STAT": 0xF40}
NUMBERS = {
    9: Numbers(0x2000, 0x1245, 4, 8, _STATUS_9),
    10: Numbers(0x1260, 0x1FA9, 4, 4, _STATUS_11),  # gfx10.3
    11: Numbers(0x1260, 0x1FA9, 4, 4, _STATUS_11),
    12: Numbers(0x1260, 0x1FA9, 2, 4, _STATUS_11),
}
# of GRBM_STATUS, the same from gfx9 to gfx12; others are shown as a number
BITS = {
    "GRBM_STATUS": {
        14: "TA_BUSY",
        20: "SX_BUSY",
        22: "SPI_BUSY",
        28: "CP_COHERENCY_BUSY",
        29: "CP_BUSY",
        31: "GUI_ACTIVE",
    }
}


class Regs2State(SparsePacket, words=11):
    """amdgpu_debugfs_regs2_iocdata_v2: what an open amdgpu_regs2 selects around each read."""

    use_srbm = bits(31, 0)  # select a queue
    use_grbm = bits(63, 32)  # select a shader engine
    pg_lock = bits(95, 64)
    se = bits(127, 96)
    sh = bits(159, 128)
    instance = bits(191, 160)
    me = bits(223, 192)
    pipe = bits(255, 224)
    queue = bits(287, 256)
    vmid = bits(319, 288)
    xcc_id = bits(351, 320)


# amdgpu_debugfs_regs2_ioctl: the state of this open file (EINVAL for any other request)
SET_STATE_V2 = ioctl_number(READ | WRITE, 0x20, 1, 4 * Regs2State.length_words)


def queue_of(words: list[int], family: int) -> mqd.ComputeMqd:
    """The registers of a hardware queue as its MQD has them.

    words   COUNT of them, from CP_MQD_BASE_ADDR on
    """
    layout = mqd.COMPUTE[family]
    whole = [0] * layout.length_words
    whole[FIRST_WORD : LAST_WORD + 1] = words
    return layout.decode(whole)
