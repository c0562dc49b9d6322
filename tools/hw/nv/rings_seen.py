"""Rings of NVIDIA's runtime, found in its calls and read from its memory: GPFIFO entries, methods, launch descriptions.

In       what was seen
Out      for each channel its parameters, slots, segments as methods, QMDs and constant banks; methods counted by name
Next     ../watch.py (who asks), ../seen.py (the calls), hcq/nv/decode.py (the methods)
Source   NV_CHANNEL_ALLOC_PARAMS; UVM_MAP_EXTERNAL_ALLOCATION says which object lies at which address of the GPU

The GPU's addresses are the host's where the runtime maps both alike, which is tried first; else the object that lies
there is looked up, and where the host has it mapped. What the host does not see is left out, and said so.
"""

from __future__ import annotations

import struct
from collections import Counter
from typing import Any

from hcq.nv.abi.classes import ARCHITECTURES
from hcq.nv.abi.compute_methods import SendPcasA
from hcq.nv.abi.gpfifo import GP_ENTRY_BYTES, USERD_GP_GET, USERD_GP_PUT, GpEntry, decode_entry
from hcq.nv.abi.ioctls import ALLOCATIONS, RM_ALLOC, RM_MAP_MEMORY, UVM_MAP_EXTERNAL_ALLOCATION, abi_for
from hcq.nv.abi.qmd import qmd_for
from hcq.nv.decode import decoder
from hcq.tools.hw.memory_map import MemoryOfProcess
from hcq.tools.hw.seen import Seen

SLOTS_KEPT, SEGMENT_WORDS = 96, 4096
BANK_BYTES = 0x400


class Channels:
    """Channels of a process that was watched."""

    def __init__(self, seen: Seen, release: str) -> None:
        self.abi = abi_for(release)
        self.memory = MemoryOfProcess()
        self.channels: list[tuple[int, Any]] = []  # class, parameters
        self.objects: dict[int, tuple[int, int]] = {}  # memory object -> where the host has it, bytes
        self.ranges: list[tuple[int, int, int, int]] = []  # address of the GPU, bytes, object, offset
        for one in seen.calls:
            self._take(one.call, seen)

    def _take(self, call: Any, seen: Seen) -> None:
        number = call.request & 0xFFFF
        if number == RM_ALLOC.request & 0xFFFF:
            made = self.abi.of(RM_ALLOC).from_bytes(call.after).values
            name = ALLOCATIONS.get(made["hclass"], "")
            parameters = next((block.before for block in call.nested if block.name == "pallocparms"), b"")
            if name == "ChannelAlloc" and parameters:
                self.channels.append((int(made["hclass"]), self.abi.layout(name).from_bytes(parameters)))
        elif number == RM_MAP_MEMORY.request & 0xFFFF:
            made = self.abi.of(RM_MAP_MEMORY).from_bytes(call.after).values
            shown = next((one for one in seen.mappings if one.fd == made["fd"]), None)
            if shown is not None:
                self.objects[made["hmemory"]] = shown.va, shown.size_bytes
        elif call.request == UVM_MAP_EXTERNAL_ALLOCATION.request:
            made = self.abi.of(UVM_MAP_EXTERNAL_ALLOCATION).from_bytes(call.after).values
            self.ranges.append((made["base"], made["length"], made["hmemory"], made["offset"]))

    def read(self, va: int, size_bytes: int) -> bytes:
        """Memory by the GPU's address; b"" where the host does not see it."""
        found = self.memory.read(va, size_bytes)
        if found:
            return found
        for base, length, handle, offset in self.ranges:
            if base <= va < base + length and handle in self.objects:
                host, size = self.objects[handle]
                at = va - base + offset
                return self.memory.read(host + at, min(size_bytes, max(size - at, 0)))
        return b""


def rings(seen: Seen, arch: str, release: str) -> dict[str, Any]:
    """Every channel's ring now. Never raises for what memory holds."""
    known = Channels(seen, release)
    methods: Counter[str] = Counter()
    found = [_channel(known, class_id, parameters, arch, methods) for class_id, parameters in known.channels]
    return {"channels": found, "methods": dict(methods.most_common())}


def _channel(
    known: Channels, class_id: int, parameters: Any, arch: str, methods: Counter[str]
) -> dict[str, Any]:
    values = parameters.values
    va, count = values["gpfifooffset"], values["gpfifoentries"]
    host, _ = known.objects.get(values["huserdmemory_0"], (0, 0))
    userd = known.memory.read(host + values["userdoffset_0"], 512) if host else b""
    got, put = (int.from_bytes(userd[at : at + 4], "little") for at in (USERD_GP_GET, USERD_GP_PUT))
    ring = known.read(va, count * GP_ENTRY_BYTES)
    slots = []
    for number, (low, high) in enumerate(struct.iter_unpack("<2I", ring[: len(ring) // 8 * 8])):
        if low or high:
            slots.append((number, low, high))
    shown = [_slot(known, one, arch, methods) for one in slots[-SLOTS_KEPT:]]
    return {
        "class": hex(class_id), "parameters": {name: hex(value) for name, value in values.items() if value},
        "is_visible": bool(ring), "gp_get": got, "gp_put": put, "slots_used": len(slots), "slots": shown,
    }  # fmt: skip


def _slot(known: Channels, slot: tuple[int, int, int], arch: str, methods: Counter[str]) -> dict[str, Any]:
    number, low, high = slot
    entry = decode_entry(low, high)
    made: dict[str, Any] = {"slot": number, "word": f"{high:08x}{low:08x}", "entry": repr(entry)}
    if not isinstance(entry, GpEntry):
        return made
    data = known.read(entry.values["get"], 4 * min(entry.values["length"], SEGMENT_WORDS))
    words = list(struct.unpack(f"<{len(data) // 4}I", data[: len(data) // 4 * 4]))
    made["words"] = " ".join(f"{word:08x}" for word in words)
    made["packets"], made["launches"] = [], []
    for packet in decoder(arch)(words):
        made["packets"].append(repr(packet))
        for written in getattr(packet, "methods", ()):
            methods[written.method.vendor or f"method {written.address:#06x}"] += 1
            if isinstance(written.method, SendPcasA):
                made["launches"].append(_launch(known, written.method.values["qmd_address_shifted8"], arch))
    return made


def _launch(known: Channels, va: int, arch: str) -> dict[str, Any]:
    """A launch description with its constant bank."""
    layout = qmd_for(ARCHITECTURES[arch].compute)
    data = known.read(va, 4 * layout.length_words)
    if len(data) < 4 * layout.length_words:
        return {"qmd_va": hex(va), "qmd": "the host does not see it"}
    qmd = layout.decode(struct.unpack(f"<{layout.length_words}I", data))
    bank = qmd.values.get("constant_buffer_addr_0", 0)
    return {"qmd_va": hex(va), "qmd": repr(qmd), "qmd_bytes": data.hex(), "bank_va": hex(bank),
            "bank": known.read(bank, BANK_BYTES).hex()}  # fmt: skip
