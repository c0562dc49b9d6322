"""Rings of AMD's runtime, found in its calls and read from its memory: AQL, PM4 and SDMA packets, queues' structures.

In       what was seen
Out      for each queue its parameters and the packets in its ring; numbers of packets by name
Next     ../watch.py (who asks), ../seen.py (the calls), hcq/amd/abi/ (the packets)
Source   kfd_ioctl.h: CREATE_QUEUE has the addresses of ring and pointers, which are memory of this process
"""

from __future__ import annotations

import struct
from collections import Counter
from typing import Any

from hcq.amd.abi import aql, kfd, pm4, sdma
from hcq.amd.abi.kfd import QueueType
from hcq.amd.chip import CHIPS
from hcq.layout import Packet
from hcq.tools.hw.memory_map import MemoryOfProcess
from hcq.tools.hw.seen import Seen

SHOWN_BYTES = 16 << 10  # of a ring, up to its write pointer
QUEUE_BYTES, KERNARG_BYTES = 0x100, 256
# the vendor packet's INDIRECT_BUFFER; where a dispatch has its kernel
PM4_IB_WORD, KERNEL_OBJECT_WORD = (0xC0023F00, 8)
COUNTED_IN = {QueueType.COMPUTE: 4, QueueType.COMPUTE_AQL: aql.PACKET_BYTES}  # bytes; SDMA counts bytes


def rings(seen: Seen, arch: str, release: str) -> dict[str, Any]:
    """Every queue's ring now. Never raises for what memory holds."""
    memory = MemoryOfProcess()
    packets: Counter[str] = Counter()
    found = []
    for one in seen.calls:
        if one.call.request & 0xFFFF == kfd.CREATE_QUEUE.request & 0xFFFF and one.result == 0:
            made = kfd.CREATE_QUEUE.decode(one.call.after)
            assert made is not None
            found.append(_queue(memory, made.values, arch, packets))
    return {"queues": found, "packets": dict(packets.most_common())}


def _queue(memory: MemoryOfProcess, made: dict[str, int], arch: str, packets: Counter[str]) -> dict[str, Any]:
    unit = COUNTED_IN.get(QueueType(made["queue_type"]), 1) if made["queue_type"] <= 3 else 1
    write, read = (
        int.from_bytes(memory.read(made[name], 8), "little")
        for name in ("write_pointer_address", "read_pointer_address")
    )
    size = made["ring_size"]
    end = write * unit
    start = max(end - min(SHOWN_BYTES, size), 0)
    ring = memory.read(made["ring_base_address"], size)
    data = bytes(ring[at % size] for at in range(start, end)) if ring else b""
    shown: list[str] = []
    for packet in _decoded(data, made["queue_type"], arch):
        packets[type(packet).__name__] += 1
        shown.append(repr(packet))
        if isinstance(packet, aql.KernelDispatch):
            kernarg = memory.read(packet.values["kernarg_address"], KERNARG_BYTES)
            shown.append(f"    kernarg: {kernarg.hex()}")
        if isinstance(packet, aql.Pm4Ib):
            block = memory.read(packet.values["ib_base"], 4 * packet.values["ib_size"])
            shown += [f"    {inner!r}" for inner in _pm4(block, arch)]
    queue = memory.read(
        made["write_pointer_address"] - aql.AmdQueue.write_dispatch_id.byte_offset, QUEUE_BYTES
    )
    return {
        "parameters": {name: hex(value) for name, value in made.items()}, "write": write, "read": read,
        "is_visible": bool(ring), "words": data.hex(), "packets": shown,
        **({"amd_queue_t": queue.hex()} if made["queue_type"] == QueueType.COMPUTE_AQL else {}),
    }  # fmt: skip


def _decoded(data: bytes, kind: int, arch: str) -> list[Packet]:
    if kind == QueueType.COMPUTE_AQL:
        words = struct.unpack(f"<{len(data) // 4}I", data[: len(data) // 4 * 4])
        return [aql.decode_one(_unread(words[at : at + 16])) for at in range(0, len(words) // 16 * 16, 16)]
    if kind == QueueType.COMPUTE:
        return _pm4(data, arch)
    return _each(data, lambda words: sdma.decode_one(words, CHIPS[arch].copies))


def _unread(words: tuple[int, ...]) -> tuple[int, ...]:
    """A packet as it was before the processor marked it as read: it overwrites the type, and leaves the rest."""
    header = aql.Header.decode(words)
    if header.values["type"] != aql.PacketType.INVALID or not any(words[1:]):
        return words
    if words[1] == PM4_IB_WORD:
        kind = aql.PacketType.VENDOR_SPECIFIC
    elif words[KERNEL_OBJECT_WORD] | words[KERNEL_OBJECT_WORD + 1]:
        kind = aql.PacketType.KERNEL_DISPATCH
    else:
        kind = aql.PacketType.BARRIER_AND
    field = aql.Header.fields["type"]
    return words[0] & ~field.mask | field.encode(kind), *words[1:]


def _pm4(data: bytes, arch: str) -> list[Packet]:
    return _each(data, lambda words: pm4.decode_one(words, CHIPS[arch].packets))


def _each(data: bytes, decode: Any) -> list[Packet]:
    words = struct.unpack(f"<{len(data) // 4}I", data[: len(data) // 4 * 4])
    found: list[Packet] = []
    at = 0
    while at < len(words):
        packet = decode(words[at : at + 0x4001])
        found.append(packet)
        at += max(len(packet.words), 1)
    return found
