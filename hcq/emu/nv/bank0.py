"""Constant bank 0: what compiled code finds there besides its parameters, by the version of the QMD.

In       a version; where the parameters begin, and how many bytes they have
Out      Bank0: offsets; the words that say where the bank itself is
Next     launch.py (who compares them with the QMD), launch_plans.py (who compares a bank with one before)
Source   constant bank 0 as SASS of ptxas reads it
"""

from __future__ import annotations

from typing import NamedTuple

from hcq.emu.nv.launch_plans import Spot


class Bank0(NamedTuple):
    """Where compiled code finds what the launcher wrote: offsets in constant bank 0, and 0 for what is not there.

    const      where constant bank 3 is
    reserved   of shared memory: where it ends, and the slot of cooperative groups
    bank       before sm_90: the bank's own address, and elsewhere the offset of the parameters' end
    params     from sm_90 on: the parameters' address, and behind it that of their end
    clusters   from sm_90 on, three words each: blocks of a cluster; 1 / these; clusters of the grid
    is_cluster   whether a cluster is more than one block
    envregs    %envreg registers in a row: (number of the first, how many, where)
    """

    ntid: int
    nctaid: int
    shared_window: int
    local_window: int
    stack_pointer: int
    const: int
    reserved: int
    bank: int = 0
    param_end: int = 0
    params: int = 0
    clusters: tuple[int, int, int] = (0, 0, 0)
    envregs: tuple[tuple[int, int, int], ...] = ()
    is_cluster: int = 0


BANKS = {
    3: Bank0(
        0x000, 0x00C, 0x018, 0x020, 0x028, 0x050, 0x120, bank=0x040, param_end=0x12C, envregs=((0, 32, 0x088),)
    ),
    4: Bank0(
        0x000, 0x00C, 0, 0x020, 0x028, 0x0D0, 0x068, params=0x198, clusters=(0x144, 0x150, 0x15C),
        envregs=((0, 32, 0x040),), is_cluster=0x140,
    ),
    5: Bank0(
        0x360, 0x370, 0, 0x2F8, 0x37C, 0x120, 0x278, params=0x348, clusters=(0x2A0, 0x2B0, 0x2C0),
        envregs=((0, 16, 0x250), (16, 16, 0x0D0)), is_cluster=0x36C,
    ),
}  # fmt: skip


def spots_of(at: Bank0, param_at: int, param_bytes: int) -> tuple[Spot, ...]:
    """Where constant bank 0 says where it is itself."""
    found = [Spot(at.bank, (0,))] if at.bank else []
    return (*found, *([Spot(at.params, (param_at, param_at + param_bytes))] if at.params else []))
