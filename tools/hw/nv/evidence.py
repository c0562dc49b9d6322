"""Evidence of an NVIDIA GPU: the notifier, GP_GET and GP_PUT, the ring's slots and segments, what RM says of errors.

In       a device, open or half opened
Out      plain data
Changes  a debugger object of RM while the SMs' errors are read
Next     ../evidence.py (who asks for the parts), hcq/nv/fault.py (the same in a sentence)
Source   ctrl906f.h: GET_MMU_FAULT_INFO; ctrl83de.h: DEBUG_READ_ALL_SM_ERROR_STATES, which has each SM's ESR and warp PC
"""

from __future__ import annotations

import struct
from typing import Any

from hcq.nv.abi.classes import ClassId
from hcq.nv.abi.control_structs import SmErrorState
from hcq.nv.abi.controls import ControlId
from hcq.nv.abi.gpfifo import GpEntry, decode_entry
from hcq.nv.fault import describe_ring, mmu_fault
from hcq.system import native
from hcq.tools.hw.evidence import Part, words_at

MAX_SMS = 80  # that one call reads
AROUND = 4  # slots on both sides of GP_GET


def _notifier(device: Any) -> dict[str, Any]:
    channel = device.channel
    return {"words": bytes(channel.notifier).hex(), "error": str(channel.error())}


def _ring(device: Any) -> dict[str, Any]:
    fifo = device.channel.fifo
    slots = []
    for number in range(max(fifo.get - AROUND, 0), fifo.put + 1)[: 4 * AROUND]:
        word = fifo.slots[number % fifo.entries]
        entry = decode_entry(word & 0xFFFFFFFF, word >> 32)
        slots.append(
            {
                "slot": number % fifo.entries,
                "word": f"{word:016x}",
                "entry": repr(entry),
                **_segment(device, entry),
            }
        )
    return {
        "get": fifo.get, "put": fifo.put, "rung": fifo.rung, "token": hex(fifo.token), "va": hex(fifo.va),
        "says": describe_ring(device.channel), "slots": slots,
    }  # fmt: skip


def _segment(device: Any, entry: Any) -> dict[str, Any]:
    """The methods of a segment, where the host sees the pushbuffer."""
    if not isinstance(entry, GpEntry) or not entry.values["get"]:
        return {}
    words = words_at(entry.values["get"], min(entry.values["length"], 512))
    return {
        "words": words,
        "methods": [repr(one) for one in device.decode([int(word, 16) for word in words])],
    }


def _cells(device: Any) -> dict[str, Any]:
    cells = device._cells
    return {"va": hex(cells.va), "words": words_at(cells.va, 256)}


def _fault(device: Any) -> Any:
    return mmu_fault(device.channel)


def _sm_errors(device: Any) -> Any:
    """What stopped each SM: exceptions and program counters."""
    rm, gpu = device.rm, device.gpu
    made = rm.alloc(
        gpu.device, ClassId.GT200_DEBUGGER, happclient=rm.client, hclass3dobject=device.channel.compute
    )
    try:
        said = rm.control(
            made,
            ControlId.NV83DE_CTRL_CMD_DEBUG_READ_ALL_SM_ERROR_STATES,
            htargetchannel=device.channel.handle,
            numsmstoread=min(gpu.sm_count, MAX_SMS),
        )
    finally:
        rm.free(made, gpu.device)
    layout = said.fields["smerrorstatearray"]
    states = int(said.values["smerrorstatearray"]).to_bytes((layout.high - layout.low + 8) // 8, "little")
    size = SmErrorState.size_bytes
    found = {
        f"sm {number}": repr(SmErrorState.from_bytes(states[at : at + size]))
        for number, at in enumerate(range(0, len(states) - size + 1, size))
        if any(states[at : at + size])
    }
    return {"mmu_fault_valid": said.values["mmufault_valid"], **found}


def _doorbell(device: Any) -> dict[str, Any]:
    return {"va": hex(device.gpu.doorbell_va), "usermodes": [one.name for one in device.gpu.usermodes]}


def _userd(device: Any) -> dict[str, Any]:
    va = device.channel.fifo.userd_va
    data = native.peek(va, 512)
    return {"va": hex(va), "words": [f"{word:08x}" for (word,) in struct.iter_unpack("<I", data)]}


PARTS: dict[str, Part] = {
    "notifier": _notifier,
    "ring": _ring,
    "userd": _userd,
    "cells": _cells,
    "doorbell": _doorbell,
    "mmu_fault": _fault,
    "sm_errors": _sm_errors,
    "channel": lambda device: {
        name: hex(getattr(device.channel, name))
        for name in ("group", "handle", "compute", "window", "window_bytes")
    },
    "local": lambda device: device.local,
    "gpu": lambda device: {
        name: repr(value) for name, value in vars(device.gpu).items() if name not in ("process", "doorbell")
    },
}
