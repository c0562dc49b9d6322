"""Constant bank 0: what compiled code reads beside its parameters, which the launcher writes and no hardware fills.

In       fields by name
Out      Bank0 for each family: the driver's part of the bank; parameters follow at `param_base` or where a cubin says
Changes  nothing
Next     launch.py (who fills it), cubin.py (EIATTR_PARAM_CBANK: where the parameters are)
Source   SASS of ptxas 13.0 for every special register and address conversion; none of it has been seen in a header
"""

from __future__ import annotations

from typing import ClassVar

from hcq.layout import SparsePacket, bits

STACK_TOP = (16 << 20) - 0x240  # in the local memory window: where the stack of every thread begins
STACK_RESERVED_BYTES = 0x240  # above it


class Bank0(SparsePacket, words=0):
    """The part before the parameters. Names are PTX's, where it has one."""

    param_base: ClassVar[int] = 0


class Bank0Sm80(Bank0, words=0x160 // 4):
    """sm_80, sm_86, sm_89"""

    param_base: ClassVar[int] = 0x160

    ntid_x = bits(31, 0)
    ntid_y = bits(63, 32)
    ntid_z = bits(95, 64)
    nctaid_x = bits(127, 96)
    nctaid_y = bits(159, 128)
    nctaid_z = bits(191, 160)
    shared_window = bits(255, 192)
    local_window = bits(319, 256)
    stack_pointer = bits(351, 320)
    dynamic_shared_bytes = bits(383, 352)
    gridid = bits(447, 384)
    param_address = bits(575, 512, doc="of the parameters, as kernels reach them through generic addresses")
    bank_address = bits(703, 640)
    nsmid = bits(2175, 2144)
    reserved_shared_bytes = bits(2239, 2208)
    global_descriptor = bits(2303, 2240)
    param_bytes = bits(2431, 2400)
    graph_exec = bits(2495, 2432)


class Bank0Sm90(Bank0Sm80, words=0x210 // 4, without=("param_bytes",)):
    """sm_90"""

    param_base: ClassVar[int] = 0x210

    bank_address = bits(0xD7 * 8 + 7, 0xD0 * 8)
    cluster_shared_bytes = bits(0x13F * 8 + 7, 0x13C * 8)
    cluster_nctaid_x = bits(0x147 * 8 + 7, 0x144 * 8)
    cluster_nctaid_y = bits(0x14B * 8 + 7, 0x148 * 8)
    cluster_nctaid_z = bits(0x14F * 8 + 7, 0x14C * 8)
    nclusterid_x = bits(0x15F * 8 + 7, 0x15C * 8)
    nclusterid_y = bits(0x163 * 8 + 7, 0x160 * 8)
    nclusterid_z = bits(0x167 * 8 + 7, 0x164 * 8)
    cluster_nctarank = bits(0x18B * 8 + 7, 0x188 * 8)
    graph_exec = bits(0x197 * 8 + 7, 0x190 * 8)
    param_address = bits(0x19F * 8 + 7, 0x198 * 8, doc="of the parameters, for generic addresses")
    param_end = bits(0x1A7 * 8 + 7, 0x1A0 * 8)
    global_descriptor = bits(0x20F * 8 + 7, 0x208 * 8)


class Bank0Sm100(Bank0, words=0x380 // 4):
    """sm_100, sm_120. What depends on clusters is read 0xa0 bytes further down when there are some: both are filled."""

    param_base: ClassVar[int] = 0x380

    gridid = bits(0x147 * 8 + 7, 0x140 * 8)
    bank_address = bits(0x127 * 8 + 7, 0x120 * 8)
    reserved_shared_bytes = bits(0x16F * 8 + 7, 0x16C * 8)
    cluster_nctaid_x_low = bits(0x203 * 8 + 7, 0x200 * 8)
    cluster_nctaid_y_low = bits(0x207 * 8 + 7, 0x204 * 8)
    cluster_nctaid_z_low = bits(0x20B * 8 + 7, 0x208 * 8)
    dynamic_shared_bytes_low = bits(0x20F * 8 + 7, 0x20C * 8)
    nclusterid_x_low = bits(0x223 * 8 + 7, 0x220 * 8)
    nclusterid_y_low = bits(0x227 * 8 + 7, 0x224 * 8)
    nclusterid_z_low = bits(0x22B * 8 + 7, 0x228 * 8)
    cluster_nctarank_low = bits(0x22F * 8 + 7, 0x22C * 8)
    cluster_nctaid_x = bits(0x2A3 * 8 + 7, 0x2A0 * 8)
    cluster_nctaid_y = bits(0x2A7 * 8 + 7, 0x2A4 * 8)
    cluster_nctaid_z = bits(0x2AB * 8 + 7, 0x2A8 * 8)
    dynamic_shared_bytes = bits(0x2AF * 8 + 7, 0x2AC * 8)
    nclusterid_x = bits(0x2C3 * 8 + 7, 0x2C0 * 8)
    nclusterid_y = bits(0x2C7 * 8 + 7, 0x2C4 * 8)
    nclusterid_z = bits(0x2CB * 8 + 7, 0x2C8 * 8)
    cluster_nctarank = bits(0x2CF * 8 + 7, 0x2CC * 8)
    nsmid = bits(0x2D3 * 8 + 7, 0x2D0 * 8)
    graph_exec = bits(0x2EF * 8 + 7, 0x2E8 * 8)
    shared_window = bits(0x2F7 * 8 + 7, 0x2F0 * 8)
    local_window = bits(0x2FF * 8 + 7, 0x2F8 * 8)
    param_address = bits(0x34F * 8 + 7, 0x348 * 8, doc="of the parameters, for generic addresses")
    param_end = bits(0x357 * 8 + 7, 0x350 * 8)
    global_descriptor = bits(0x35F * 8 + 7, 0x358 * 8)
    ntid_x = bits(0x363 * 8 + 7, 0x360 * 8)
    ntid_y = bits(0x367 * 8 + 7, 0x364 * 8)
    ntid_z = bits(0x36B * 8 + 7, 0x368 * 8)
    nctaid_x = bits(0x373 * 8 + 7, 0x370 * 8)
    nctaid_y = bits(0x377 * 8 + 7, 0x374 * 8)
    nctaid_z = bits(0x37B * 8 + 7, 0x378 * 8)
    stack_pointer = bits(0x37F * 8 + 7, 0x37C * 8)


BANK0_OF_QMD: dict[int, type[Bank0]] = {3: Bank0Sm80, 4: Bank0Sm90, 5: Bank0Sm100}
