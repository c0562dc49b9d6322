"""Views of NVIDIA devices for `python -m hcq inspect`: segments of the GPFIFO around GP_GET, and what stands in them.

In       an open device, which another thread uses meanwhile
Out      plain data
Changes  nothing; no lock is taken, and the kernel driver is not asked, but by `waves`, for reports
Next     rings.py (the GPFIFO), channel.py (channels), ring_words.py (for capsules),
         hcq/system/inspection.py (what this is part of)
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from hcq.errors import DriverError
from hcq.nv.abi.gpfifo import GP_ENTRY_BYTES, USERD_GP_GET, USERD_GP_PUT, GpEntry, decode_entry
from hcq.nv.decode import decoder
from hcq.nv.ring_words import ring_words
from hcq.system.inspection import BEHIND_WORDS, Inspection, at_get, entry, words_at

if TYPE_CHECKING:
    from hcq.events.waves import Kernel
    from hcq.nv.channel import Channel
    from hcq.nv.device import NvDevice

BEFORE, BEHIND = 2, 4  # segments
PACKETS = 12  # of the segment at get
NOTE = (
    "with the first methods of the segment at get, or of the last one. GP_GET counts those that were fetched."
)


def rings(device: NvDevice) -> list[dict[str, Any]]:
    """Each channel's GPFIFO: the segments around GP_GET, and the methods of the one at GP_GET."""
    return [_ring(device, name, channel) for name, channel in zip(("main", "copy"), list(device._channels))]


def _ring(device: NvDevice, name: str, channel: Channel) -> dict[str, Any]:
    fifo = channel.fifo
    put = fifo.put
    seen = words_at(fifo.userd_va + USERD_GP_GET, 1)[0]
    done = fifo.passed()
    known = max((behind for value, behind in fifo._marks.copy() if value <= done), default=0)
    get = max(known, fifo._read, put - (put - seen) % fifo.entries)
    shown: list[dict[str, Any]] = []
    for index in range(max(0, get - BEFORE), min(put, get + BEHIND)):
        low, high = words_at(fifo.va + index % fifo.entries * GP_ENTRY_BYTES, 2)
        segment = decode_entry(low, high)
        is_at_get = index == get
        shown.append(entry(repr(segment), (low, high), index, index < get, is_at_get))
        if index == min(get, put - 1) and isinstance(segment, GpEntry):
            shown += _methods(device, segment)
    return {
        "name": f"{name} ({fifo.kind})",
        "language": fifo.kind,
        "unit": "segments",
        "get": get,
        "put": put,
        "size": fifo.entries,
        "doorbell": fifo.rung,
        "address": fifo.va,
        "note": NOTE,
        "packet": at_get(shown),
        "packets": shown,
    }


def _methods(device: NvDevice, segment: GpEntry) -> list[dict[str, Any]]:
    """The first packets of a pushbuffer's segment."""
    try:
        words = words_at(segment.get, min(segment.length, BEHIND_WORDS))
    except DriverError as refusal:
        return [entry(f"  its words: {refusal}", (), 0)]
    found, at = [], 0
    for packet in decoder(device.arch)(words)[:PACKETS]:
        length = max(1, len(packet.words))
        found.append(entry(f"  {packet!r}", words[at : at + length], at))
        at += length
    return found


def queues(device: NvDevice) -> list[dict[str, Any]]:
    """Channels, as they were made: RM shows no more of them to programs."""
    return [
        {
            "name": f"{name} channel of group {channel.group:#x}",
            "notes": [],
            "fields": {
                "handle": channel.handle,
                "work_submit_token": channel.fifo.token,
                "gpfifo": channel.fifo.va,
                "gpfifo_entries": channel.fifo.entries,
                "userd": channel.fifo.userd_va,
                "gp_get": words_at(channel.fifo.userd_va + USERD_GP_GET, 1)[0],
                "gp_put": words_at(channel.fifo.userd_va + USERD_GP_PUT, 1)[0],
            },
        }
        for name, channel in zip(("main", "copy"), list(device._channels))
    ]


def waves(device: NvDevice, programs: Mapping[int, Any]) -> list[Kernel]:
    """What SMs say of the warps that they stopped, on a real GPU."""
    from hcq.nv import sm_errors  # for reports alone

    return sm_errors.kernels(device, programs)


INSPECTION = Inspection(rings, queues, waves=waves, words=ring_words)
