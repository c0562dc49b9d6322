"""Faults in words: from what the error notifier and RM say to the buffer, the kernel and the segment.

In       a ChannelError, the channel, what names an address, the kernel's log
Out      sentences for DeviceFault and WaitTimeout
Next     channel.py (where errors come from), abi/status.py (numbers in words), device.py (who raises)
Source   nverror.h; ctrl906f.h: NV906F_CTRL_CMD_GET_MMU_FAULT_INFO
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from hcq.errors import HcqError
from hcq.gpu.uploads import Uploads
from hcq.layout import Packet
from hcq.nv.abi.controls import ControlId
from hcq.nv.abi.gpfifo import GpEntry, decode_entry
from hcq.nv.abi.status import describe_xid
from hcq.nv.channel import Channel, ChannelError
from hcq.nv.rings import GpFifo

_WHO = re.compile(r"^ *pid=.*?, Ch [0-9a-fA-F]+, ")  # the process and the channel, which are ours
MMU_FAULT = 31
AROUND = 3  # segments before and after the one that the GPU reads next
# inferred: that a kernel's trap or illegal instruction reaches the error notifier without a debugger's object (Xid 13)


def describe_fault(
    channel: Channel, error: ChannelError, describe_address: Callable[[int], str], log: Sequence[str]
) -> str:
    """What happened, with the address named, and the last line about it in the kernel's log, if we see one."""
    number = f": {error.xid},"
    line = next((line for line in reversed(log) if number in line), "")
    says = _WHO.sub("", line.partition(number)[2]).strip().rstrip(".")
    return _describe(channel, error, describe_address) + (f"; the kernel's log says: {says}" if says else "")


def _describe(channel: Channel, error: ChannelError, describe_address: Callable[[int], str]) -> str:
    if error.xid == MMU_FAULT and (fault := mmu_fault(channel)) is not None:
        va, why = fault
        named = f" {why}" if why else ""
        return f"the GPU took a page fault:{named} at {va:#x} ({describe_address(va)})"
    return f"the GPU stopped the channel: {describe_xid(error.xid)}"


def mmu_fault(channel: Channel) -> tuple[int, str] | None:
    """(address, kind) of the page fault that a channel took, when RM knows it."""
    try:
        said = channel.rm.control(channel.handle, ControlId.NV906F_CTRL_CMD_GET_MMU_FAULT_INFO).values
    except HcqError:  # on parts and in containers that do not answer it, the number is all there is
        return None
    text = int(said["faultstring"]).to_bytes(32, "little").partition(b"\0")[0].decode("ascii", "replace")
    va = said["addrhi"] << 32 | said["addrlo"]
    return (va, text) if va or text else None


def ring_around(
    fifo: GpFifo, uploads: Uploads, decode: Callable[[Sequence[int]], list[Packet]]
) -> list[tuple[int, str]]:
    """The segments around the one that the GPU reads next, and the methods of that one.

    When there is no such, those of the last one read: the GPU may still be doing what it says.
    """
    get, put = fifo.get, fifo.put
    shown = get if get < put else get - 1
    found: list[tuple[int, str]] = []
    for number in range(max(0, get - AROUND, put - fifo.entries), min(get + AROUND + 1, put)):
        word = fifo.slots[number % fifo.entries]
        entry = decode_entry(word & 0xFFFFFFFF, word >> 32)
        found.append((number - get, repr(entry)))
        if number == shown and isinstance(entry, GpEntry):
            found += [(number - get, f"    {method!r}") for method in _methods(entry, uploads, decode)]
    return found


def _methods(
    entry: GpEntry, uploads: Uploads, decode: Callable[[Sequence[int]], list[Packet]]
) -> list[Packet]:
    """What a segment says, where it is in the pushbuffer; a graph's blocks are not."""
    at = entry.get - uploads.va
    if not 0 <= at <= uploads.size_bytes - 4 * entry.length:
        return []
    return decode(memoryview(bytes(uploads.bytes[at : at + 4 * entry.length])).cast("I"))


def describe_ring(channel: Channel) -> str:
    """How far a channel is."""
    fifo = channel.fifo
    text = f"GPFIFO: the GPU has read up to {fifo.get} of {fifo.put} segments"
    if fifo.put != fifo.rung:
        text += f", and the doorbell was rung for {fifo.rung}"
    error = channel.error()
    return f"{text}, and stopped: {describe_xid(error.xid)}" if error is not None else text
