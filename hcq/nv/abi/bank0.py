"""Constant bank 0: what compiled code reads beside its parameters, which the launcher writes and no hardware fills.

In       fields by name
Out      Bank0 for each family: the driver's part of the bank; parameters follow at `param_base` or where a cubin says
Changes  nothing
Next     launch.py (who fills it), cubin.py (EIATTR_PARAM_CBANK: where the parameters are)
Source   SASS of ptxas 13.0 for every special register and address conversion; none of it has been seen in a header
"""

from __future__ import annotations

from typing import ClassVar

from hcq.layout import Bits, SparsePacket, bits

STACK_TOP = (16 << 20) - 0x240  # in the local memory window: where the stack of every thread begins
STACK_RESERVED_BYTES = 0x240  # above it


def at(byte: int, size_bytes: int = 4, doc: str = "") -> Bits:
    """A field by its place in the bank, as machine code names it: c[0x0][byte]."""
    return bits(8 * (byte + size_bytes) - 1, 8 * byte, doc=doc)


class Bank0(SparsePacket, words=0):
    """The part before the parameters. Names are PTX's, where it has one."""

    param_base: ClassVar[int] = 0


class Bank0Sm80(Bank0, words=0x160 // 4):
    """sm_80, sm_86, sm_89"""

    param_base: ClassVar[int] = 0x160

    ntid_x = at(0x000)
    ntid_y = at(0x004)
    ntid_z = at(0x008)
    nctaid_x = at(0x00C)
    nctaid_y = at(0x010)
    nctaid_z = at(0x014)
    shared_window = at(0x018, 8)
    local_window = at(0x020, 8)
    stack_pointer = at(0x028)
    dynamic_shared_bytes = at(0x02C)
    gridid = at(0x030, 8)
    param_address = at(0x040, 8, doc="of the parameters, as kernels reach them through generic addresses")
    bank_address = at(0x050, 8)
    nsmid = at(0x10C)
    reserved_shared_bytes = at(0x114)
    global_descriptor = at(0x118, 8)
    param_bytes = at(0x12C)
    graph_exec = at(0x130, 8)


class Bank0Sm90(Bank0Sm80, words=0x210 // 4, without=("param_bytes",)):
    """sm_90"""

    param_base: ClassVar[int] = 0x210

    bank_address = at(0x0D0, 8)
    cluster_shared_bytes = at(0x13C)
    cluster_nctaid_x = at(0x144)
    cluster_nctaid_y = at(0x148)
    cluster_nctaid_z = at(0x14C)
    nclusterid_x = at(0x15C)
    nclusterid_y = at(0x160)
    nclusterid_z = at(0x164)
    cluster_nctarank = at(0x188)
    graph_exec = at(0x190, 8)
    param_address = at(0x198, 8, doc="of the parameters, for generic addresses")
    param_end = at(0x1A0, 8)
    global_descriptor = at(0x208, 8)


class Bank0Sm100(Bank0, words=0x380 // 4):
    """sm_100, sm_120. What depends on clusters is read 0xa0 bytes further down when there are some: both are filled."""

    param_base: ClassVar[int] = 0x380

    gridid = at(0x140, 8)
    bank_address = at(0x120, 8)
    reserved_shared_bytes = at(0x16C)
    cluster_nctaid_x_low = at(0x200)
    cluster_nctaid_y_low = at(0x204)
    cluster_nctaid_z_low = at(0x208)
    dynamic_shared_bytes_low = at(0x20C)
    nclusterid_x_low = at(0x220)
    nclusterid_y_low = at(0x224)
    nclusterid_z_low = at(0x228)
    cluster_nctarank_low = at(0x22C)
    cluster_nctaid_x = at(0x2A0)
    cluster_nctaid_y = at(0x2A4)
    cluster_nctaid_z = at(0x2A8)
    dynamic_shared_bytes = at(0x2AC)
    nclusterid_x = at(0x2C0)
    nclusterid_y = at(0x2C4)
    nclusterid_z = at(0x2C8)
    cluster_nctarank = at(0x2CC)
    nsmid = at(0x2D0)
    graph_exec = at(0x2E8, 8)
    shared_window = at(0x2F0, 8)
    local_window = at(0x2F8, 8)
    param_address = at(0x348, 8, doc="of the parameters, for generic addresses")
    param_end = at(0x350, 8)
    global_descriptor = at(0x358, 8)
    ntid_x = at(0x360)
    ntid_y = at(0x364)
    ntid_z = at(0x368)
    nctaid_x = at(0x370)
    nctaid_y = at(0x374)
    nctaid_z = at(0x378)
    stack_pointer = at(0x37C)


BANK0_OF_QMD: dict[int, type[Bank0]] = {3: Bank0Sm80, 4: Bank0Sm90, 5: Bank0Sm100}
