"""Constant bank 0: what compiled code reads beside its parameters, which the launcher writes and no hardware fills.

In       fields by name
Out      Bank0 for each family: the driver's part of the bank; parameters follow at `param_base` or where a cubin says
Next     launch.py (who fills it), cubin.py (EIATTR_PARAM_CBANK: where the parameters are)
Source   SASS of ptxas 12.8 to 13.5 for every special register and address conversion; none of it has been seen in a
         header. tests/hcq/nv/test_special_registers.py compiles them all and compares: no word that code loads is
         missing here. That nothing but compiled code reads the bank is an inference
"""

from __future__ import annotations

from typing import ClassVar

from hcq.layout import Bits, SparsePacket, bits, placed

STACK_TOP = (16 << 20) - 0x240  # in the local memory window: where the stack of every thread begins
STACK_RESERVED_BYTES = 0x240  # above it


def at(byte: int, size_bytes: int = 4, doc: str = "") -> Bits:
    """A field by its place in the bank, as machine code names it: c[0x0][byte]."""
    return bits(8 * (byte + size_bytes) - 1, 8 * byte, doc=doc)


# what a launcher leaves at zero, and why that is right
ZERO = {
    "gridid": "%gridid: a number of the launch, which only a debugger needs; launches are made once and replayed",
    "envreg": "%envreg0 to %envreg31: the driver's own; 1 and 2 are a cooperative grid's workspace",
    "graph_exec": "%current_graph_exec: 0 says that the kernel was not launched by the vendor's graphs",
    "is_explicit_cluster": "%is_explicit_cluster; without clusters barrier.cluster is a barrier of the block",
    # inferred: a driver that runs on Ada and Blackwell leaves it, too
    "global_descriptor": "what global accesses are made with, caching and all: 0 is an ordinary access",
}


class Bank0(SparsePacket, words=0):
    """The part before the parameters. Names are PTX's, where it has one.

    param_base  where parameters are, unless a cubin says otherwise
    addresses   fields to which the address of the launch data is added
    """

    param_base: ClassVar[int] = 0
    addresses: ClassVar[tuple[str, ...]] = ("param_address", "param_end")


class Bank0Sm80(Bank0, words=0x160 // 4):
    """sm_80, sm_86, sm_89"""

    param_base: ClassVar[int] = 0x160
    addresses: ClassVar[tuple[str, ...]] = ("bank_address",)

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
    bank_address = at(0x040, 8, doc="of this bank: code adds where the parameters are in it")
    const_address = at(0x050, 8, doc="of constant bank 3, for generic addresses of .const variables")
    envreg = at(0x088, 128)
    nsmid = at(0x10C)
    reserved_shared_bytes = at(0x114)
    global_descriptor = at(0x118, 8)
    reserved_shared_end = at(0x120, doc="an offset in the block's shared memory")
    reserved_shared_slot = at(0x124, doc="%reserved_smem_offset_1, where cooperative groups exchange values")
    param_end_offset = at(0x12C, doc="of the parameters' end in the bank")
    graph_exec = at(0x130, 8)


class Bank0Sm90(Bank0, words=0x210 // 4):
    """sm_90. The words from 0x40 to 0xc0 are %envreg0 to %envreg31; two of them have another name as well."""

    param_base: ClassVar[int] = 0x210

    ntid_x = at(0x000)
    ntid_y = at(0x004)
    ntid_z = at(0x008)
    nctaid_x = at(0x00C)
    nctaid_y = at(0x010)
    nctaid_z = at(0x014)
    shared_window = at(0x018, 8, doc="code takes it from SR_SWINHI; written as on sm_80")
    local_window = at(0x020, 8)
    stack_pointer = at(0x028)
    dynamic_shared_bytes = at(0x02C)
    gridid = at(0x030, 8)
    envreg = at(0x040, 40)
    reserved_shared_end = at(0x068, doc="an offset in the block's shared memory")
    reserved_shared_slot = at(0x06C, doc="%reserved_smem_offset_1, where cooperative groups exchange values")
    envreg_12 = at(0x070, 80)
    const_address = at(0x0D0, 8, doc="of constant bank 3, for generic addresses of .const variables")
    nsmid = at(0x10C)
    reserved_shared_bytes = at(0x114)
    aggr_shared_bytes = at(
        0x13C, doc="reserved, static and dynamic; code takes the smaller of it and SR_SMEMSZ"
    )
    is_explicit_cluster = at(0x140)
    cluster_nctaid_x = at(0x144)
    cluster_nctaid_y = at(0x148)
    cluster_nctaid_z = at(0x14C)
    cluster_reciprocal_x = at(
        0x150, doc="1 / blocks of a cluster, a float; x by inference: %clusterid.x divides"
    )
    cluster_reciprocal_y = at(0x154, doc="a float, by which %clusterid.y multiplies")
    cluster_reciprocal_z = at(0x158)
    nclusterid_x = at(0x15C)
    nclusterid_y = at(0x160)
    nclusterid_z = at(0x164)
    cluster_nctarank = at(0x188)
    graph_exec = at(0x190, 8)
    param_address = at(0x198, 8, doc="of the parameters, for generic addresses")
    param_end = at(0x1A0, 8)
    global_descriptor = at(0x208, 8)


_CLUSTERS = {
    "envreg": bits(319, 0),
    "reserved_shared_end": bits(351, 320, doc="an offset in the block's shared memory"),
    "reserved_shared_slot": bits(383, 352, doc="%reserved_smem_offset_1"),
    "envreg_12": bits(511, 384),
    "cluster_nctaid_x": bits(671, 640),
    "cluster_nctaid_y": bits(703, 672),
    "cluster_nctaid_z": bits(735, 704),
    "dynamic_shared_bytes": bits(767, 736),
    "cluster_reciprocal_x": bits(799, 768, doc="x by inference, as on sm_90"),
    "cluster_reciprocal_y": bits(831, 800, doc="a float"),
    "cluster_reciprocal_z": bits(863, 832),
    "aggr_shared_bytes": bits(895, 864),
    "nclusterid_x": bits(927, 896),
    "nclusterid_y": bits(959, 928),
    "nclusterid_z": bits(991, 960),
    "cluster_nctarank": bits(1023, 992),
}


class Bank0Sm100(Bank0, words=0x380 // 4):
    """sm_100, sm_120. What clusters change is loaded SR_CgaSize * 0xa0 below the names without _low.

    What SR_CgaSize counts is not known. Inferred: 0 or 1 here, for 2 would hit other words; so both places are filled.
    """

    param_base: ClassVar[int] = 0x380

    envreg_16 = at(0x0D0, 64)
    const_address = at(0x120, 8, doc="of constant bank 3, for generic addresses of .const variables")
    gridid = at(0x140, 8)
    reserved_shared_bytes = at(0x16C)
    low = placed(8 * 0x1B0, {f"{name}_low": field for name, field in _CLUSTERS.items()})
    clusters = placed(8 * 0x250, _CLUSTERS)
    nsmid = at(0x2D0)
    graph_exec = at(0x2E8, 8)
    shared_window = at(0x2F0, 8, doc="code takes it from SR_SWINHI; written as on sm_80")
    local_window = at(0x2F8, 8)
    param_address = at(0x348, 8, doc="of the parameters, for generic addresses")
    param_end = at(0x350, 8)
    global_descriptor = at(0x358, 8)
    ntid_x = at(0x360)
    ntid_y = at(0x364)
    ntid_z = at(0x368)
    is_explicit_cluster = at(0x36C)
    nctaid_x = at(0x370)
    nctaid_y = at(0x374)
    nctaid_z = at(0x378)
    stack_pointer = at(0x37C)


BANK0_OF_QMD: dict[int, type[Bank0]] = {3: Bank0Sm80, 4: Bank0Sm90, 5: Bank0Sm100}
