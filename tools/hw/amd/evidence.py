"""Evidence of an AMD GPU: every ring with its pointers and the packets around them, the queue's structure, events.

In       a device, open or half opened
Out      plain data
Next     ../evidence.py (who asks for the parts), hcq/amd/fault.py (the same in a sentence)
"""

from __future__ import annotations

from typing import Any

from hcq.amd.fault import describe_ring
from hcq.amd.rings import AqlRing
from hcq.tools.hw.evidence import Part, words_at

BEFORE_BYTES, SHOWN_WORDS = 256, 192  # of a ring, before its read pointer and in all


def _rings(device: Any) -> dict[str, Any]:
    return {name: _ring(device, ring) for name, ring in device.rings.items()}


def _ring(device: Any, ring: Any) -> dict[str, Any]:
    size = len(ring.bytes)
    at = max(ring.get * (size // ring.capacity) % size - BEFORE_BYTES, 0)
    words = words_at(ring.ring.va + at, min(SHOWN_WORDS, (size - at) // 4))
    found = {
        "kind": ring.kind, "get": ring.get, "wptr": ring.wptr, "put": ring.put, "rung": ring.rung,
        "queue_id": ring.queue_id, "va": hex(ring.ring.va), "says": describe_ring(ring),
        "at_bytes": at, "words": words,
        "packets": [repr(one) for one in device.decode([int(word, 16) for word in words])][:40],
        "pointers": words_at(ring.pointers.va, 320),
    }  # fmt: skip
    if isinstance(ring, AqlRing):
        found["inactive_code"] = hex(ring.inactive_code)
    return found


def _cells(device: Any) -> dict[str, Any]:
    return {"va": hex(device._cells.va), "words": words_at(device._cells.va, 256)}


def _events(device: Any) -> dict[str, Any]:
    process = device.process
    slot = process.slot(device.event_id)
    return {
        "event_id": device.event_id,
        "slot": words_at(slot, 2),
        "memory_event": process.memory_event,
        "hardware_event": process.hardware_event,
        "faults": {hex(gpu): repr(fault) for gpu, fault in process.faults.items()},
    }


PARTS: dict[str, Part] = {
    "queues": _rings,
    "cells": _cells,
    "events": _events,
    "scratch": lambda device: repr(device.scratch),
    "node": lambda device: repr(device.node),
    "apertures": lambda device: repr(device.apertures),
}
