"""Validation: rules that a submission's words must keep, checked before the doorbell when HCQ_VALIDATE=1.

In       the words about to go into the ring, and what the device has mapped and loaded
Out      nothing, or a UsageError whose first word is the broken rule's id
Changes  nothing
Next     device.py (who calls it), packets.py (the words)

The queue's verbs check their arguments anyway. These rules look at the words themselves, as the command processor will,
so they also catch a wrong encoder, a patched graph gone wrong, and words that someone wrote by hand.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from hcq.cpu import encode, packets
from hcq.errors import UsageError
from hcq.layout import Packet

if TYPE_CHECKING:
    from hcq.cpu.device import CpuDevice


class Rule(NamedTuple):
    """An id, what it says, and a check that returns what is wrong, or ""."""

    id: str
    says: str
    check: Callable[[CpuDevice, Packet], str]


def _parses(device: CpuDevice, packet: Packet) -> str:
    if isinstance(packet, packets.Header):
        return "its opcode or its length is not one the command processor knows"
    return "it is an odd number of words long" if packet.values["length"] % 2 else ""


def _unclaimed(device: CpuDevice, packet: Packet) -> str:
    return "it sets bits that no field claims" if packet.unclaimed else ""


def _mapped(device: CpuDevice, packet: Packet) -> str:
    for va, size in _ranges(packet):
        if size and not device.is_mapped(va, size):
            return f"{size} bytes at {va:#x} are not mapped on an open device"
    return ""


def _ranges(packet: Packet) -> list[tuple[int, int]]:
    """The memory a packet itself touches; a dispatch's kernel may touch more."""
    if isinstance(packet, packets.Copy):
        return [(packet.dst, packet.size_bytes), (packet.src, packet.size_bytes)]
    if isinstance(packet, packets.Fill):
        return [(packet.dst, packet.size_bytes)]
    if isinstance(packet, (packets.Wait, packets.Signal)):
        return [(packet.signal, 4 * packets.SignalCell.length_words)]
    if isinstance(packet, packets.Timestamp):
        return [(packet.address, 8)]
    if isinstance(packet, packets.Indirect):
        return [(packet.address, 4 * packet.size_words)]
    return []


def _launch(device: CpuDevice, packet: Packet) -> str:
    if not isinstance(packet, packets.Dispatch):
        return ""
    if packet.entry not in device.entries:
        return f"no loaded program starts at {packet.entry:#x}"
    if not packet.groups or packet.groups != packet.grid_x * packet.grid_y * packet.grid_z:
        return f"its grid has {packet.grid_x * packet.grid_y * packet.grid_z} groups, not {packet.groups}"
    machine = device.machine
    slots = (
        machine.integer_registers + (machine.float_registers if packet.has_floats else 0) + packet.stack_slots
    )
    if len(packet.tail_words) != 2 * slots or packet.group_slot >= slots:
        return f"it has {len(packet.tail_words)} argument words, and its header says {2 * slots}"
    if packet.scratch_bytes > device.scratch_limit:
        return f"it wants {packet.scratch_bytes} bytes of scratch memory, and each thread has {device.scratch_limit}"
    return ""


def _aligned(device: CpuDevice, packet: Packet) -> str:
    if isinstance(packet, (packets.Wait, packets.Signal)) and packet.signal % 16:
        return f"signal {packet.signal:#x} is not a multiple of 16"
    return ""


RULES = (
    Rule("packet-parses", "every packet has a known opcode and a length that fits", _parses),
    Rule("no-stray-bits", "no packet sets bits that its layout does not name", _unclaimed),
    Rule("address-mapped", "copies, fills, signals and blocks lie in mapped memory", _mapped),
    Rule("launch-agrees", "a dispatch agrees with its program, its grid and its own header", _launch),
    Rule("signal-aligned", "signals are 16-byte cells", _aligned),
)


def validate(device: CpuDevice, words: Sequence[int]) -> None:
    """Check every packet of a submission. Raises UsageError naming the rule, the packet and what is wrong."""
    at = 0
    for packet in encode.decode(words):
        for rule in RULES:
            if wrong := rule.check(device, packet):
                raise UsageError(f"[{rule.id}] word {at}, {packet}: {wrong}. The rule: {rule.says}.")
        at += len(packet.words)
