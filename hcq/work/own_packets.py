"""Own packets: what a program made itself for a ring is checked before the doorbell, on every device and always.

In       layouts, words or bytes; the ring they are for; the buffers that they use
Out      one Packets command, and the live buffers that its addresses lie in
Next     hcq/queue.py (Queue.packets), hcq/rules/effects.py (the model of a kind says what packets are and do),
         docs/own-packets.md

A kind's model, which the rules use, says with the decoder of the trace where packets begin and end and which memory
they name. What the rules say beyond that, of order for one, is asked under HCQ_VALIDATE alone.
"""

from __future__ import annotations

import struct
import weakref
from collections.abc import Sequence
from typing import Any

from hcq import backends, checks, command
from hcq.errors import UsageError
from hcq.layout import Packet
from hcq.memory import Buffer
from hcq.signal import CELL_BYTES

_models: weakref.WeakKeyDictionary[Any, Any] = weakref.WeakKeyDictionary()  # device -> its Model


def checked(
    device: Any, packets: Sequence[Any], ring: str, uses: Sequence[Buffer]
) -> tuple[command.Packets, list[Buffer]]:
    """The packets as one command, and the buffers of the device that they name.

    Raises  UsageError: see Queue.packets
    """
    call = f"packets on {device.name}"
    if not device.own_rings:
        raise UsageError(
            f"{call}: this kind of device takes no packets of a program's own; those of AMD, NV and CPU do. "
            "Use the verbs of the queue."
        )
    if ring not in device.own_rings:
        raise UsageError(
            f"{call}: it has no ring {checks.shown(ring)}. Its rings: {', '.join(device.own_rings)}."
        )
    words = b"".join(_bytes_of(device, call, each, ring) for each in packets)
    if not words:
        raise UsageError(f"{call}: no packet was given. Give layouts of the device, or their words.")
    model = _model(device)
    steps = model.own_steps(words, ring)
    at = 0
    found: dict[int, Buffer] = {}
    for step in steps:
        if fault := model.own_fault(step.packet, ring):
            raise UsageError(f"{call}: word {at} of {len(words) // 4} on the {ring} ring: {fault}. {_ADVICE}")
        at += len(step.packet.words)
    if 4 * at != len(words):
        raise UsageError(
            f"{call}: {len(words) // 4} words on the {ring} ring are no whole packets: these are {at} words long. "
            f"{_ADVICE}"
        )
    for step in steps:
        for effect in step.effects:
            for what, va, size, access in model.ranges(effect):
                if not size:
                    continue
                if not _is_used(uses, va, size) and not device.is_mapped(va, size, access):
                    raise UsageError(
                        f"{call}: {step.packet!r} names {size} bytes at {va:#x} as its {what}, and they are not all "
                        f"mapped for this device to {access}. Take the address from a Buffer of it."
                    )
                if (
                    access == "write"
                    and va < device.timeline.va + CELL_BYTES
                    and device.timeline.va < va + size
                ):
                    raise UsageError(
                        f"{call}: {step.packet!r} writes to the timeline of the device at {device.timeline.va:#x}, "
                        "which the end of a submission alone sets. Use a signal from Device.signal()."
                    )
                found.update(_owner(device, va))
    names = tuple(model.own_name(step.packet) for step in steps)
    return command.Packets(ring, words, names), list(found.values())


_ADVICE = "Give whole packets, made with their layouts."


def _bytes_of(device: Any, call: str, each: Any, ring: str) -> bytes:
    if isinstance(each, Packet):
        return bytes(device.own_bytes(each, ring))
    if isinstance(each, (bytes, bytearray, memoryview)):
        data = bytes(each)
        if len(data) % 4:
            raise UsageError(
                f"{call}: {len(data)} bytes are no whole number of 32-bit words. Add what is missing."
            )
        return data
    if checks.is_whole(each) and 0 <= each < 1 << 32:
        return struct.pack("<I", each)
    raise UsageError(f"{call}: takes layouts of hcq.layout, 32-bit words or bytes, not {checks.shown(each)}.")


def _model(device: Any) -> Any:
    found = _models.get(device)
    if found is None:
        backend = backends.find(device.name)
        if backend is None or not backend.rules:
            raise UsageError(
                f"packets on {device.name}: its backend names no rules, so nobody knows what its packets do. "
                "Declare them: see docs/adding-a-device.md."
            )
        facts = {**device.facts(), "is_live": True}
        found = _models[device] = backends.load(backend.rules)(device.arch, facts)
    return found


def _is_used(uses: Sequence[Buffer], va: int, size: int) -> bool:
    return any(one.address <= va and va + size <= one.address + one.size_bytes for one in uses)


def _owner(device: Any, va: int) -> dict[int, Buffer]:
    """The live buffer that an address lies in, by its own address."""
    for buffer in device.memory.owners():
        if buffer.address <= va < buffer.address + buffer.size_bytes:
            return {buffer.address: buffer}
    return {}
