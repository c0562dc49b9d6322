"""Validation: rules that a submission's packets must keep, checked before the doorbell when HCQ_VALIDATE=1.

In       the pieces about to go into the rings, and what the device has mapped
Out      nothing, or a UsageError whose first word is the broken rule's id
Changes  nothing
Next     device.py (who calls it), encode.py (who makes the packets)

The queue's verbs check their arguments anyway. These rules look at the packets themselves, as the GPU will, so they
also catch a wrong encoder, a patched graph gone wrong, and packets that someone wrote by hand.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from hcq.amd import aql, pm4, registers, sdma
from hcq.amd.descriptor import ENTRY_ALIGNMENT
from hcq.amd.encode import Piece
from hcq.errors import UsageError
from hcq.layout import Packet
from hcq.signal import CELL_BYTES

if TYPE_CHECKING:
    from hcq.amd.device import AmdDevice

HEADERS = (pm4.Header, sdma.Header, aql.Header)


class Rule(NamedTuple):
    """An id, what it says, and a check that returns what is wrong, or ""."""

    id: str
    says: str
    check: Callable[[AmdDevice, Packet], str]


def _parses(device: AmdDevice, packet: Packet) -> str:
    return "it is no packet that this GPU knows, or is cut off" if isinstance(packet, HEADERS) else ""


def _unclaimed(device: AmdDevice, packet: Packet) -> str:
    return "it sets bits that no field claims" if packet.unclaimed else ""


def _mapped(device: AmdDevice, packet: Packet) -> str:
    for va, size in _ranges(packet):
        if size and not device.is_mapped(va, size) and not _is_event_slot(device, va):
            return f"{size} bytes at {va:#x} are not mapped on an open device"
    return ""


def _is_event_slot(device: AmdDevice, va: int) -> bool:
    return va == device.process.slot(device.event_id)


def _ranges(packet: Any) -> list[tuple[int, int]]:
    """The memory a packet itself touches; a dispatch's kernel may touch more."""
    if isinstance(packet, (sdma.CopyLinear, sdma.CopyLinearV4, sdma.CopyLinearV7)):
        return [(packet.dst_addr, packet.count + 1), (packet.src_addr, packet.count + 1)]
    if isinstance(packet, (sdma.ConstFill, sdma.ConstFillV4, sdma.ConstFillV7)):
        return [(packet.dst_addr, packet.count + 1)]
    if isinstance(packet, (sdma.WriteLinear, sdma.WriteLinearV4, sdma.WriteLinearV7)):
        return [(packet.dst_addr, 4 * len(packet.tail_words))]
    if isinstance(packet, (pm4.ReleaseMem, pm4.ReleaseMemGfx9)) and packet.data_sel != pm4.DataSel.NONE:
        return [(packet.address, 4 if packet.data_sel == pm4.DataSel.SEND_32_BIT_LOW else 8)]
    if isinstance(packet, (pm4.WaitRegMem, pm4.WaitRegMem64)):
        return [(packet.address, 4 if isinstance(packet, pm4.WaitRegMem) else 8)]
    if isinstance(packet, pm4.IndirectBuffer):
        return [(packet.ib_base, 4 * packet.ib_size)]
    return []


def _launch(device: AmdDevice, packet: Packet) -> str:
    if isinstance(packet, pm4.SetShReg) and packet.reg_offset == registers.PGM_LO:
        entry = packet.tail_words[0] << 8 | packet.tail_words[1] << 40
        if not device.is_mapped(entry, ENTRY_ALIGNMENT):
            return f"no loaded program can start at {entry:#x}"
    if isinstance(packet, aql.KernelDispatch):
        if not device.is_mapped(packet.kernel_object, 64):
            return f"no kernel descriptor can be at {packet.kernel_object:#x}"
        if packet.group_segment_size > device.chip.lds_bytes:
            return f"it wants {packet.group_segment_size} bytes of LDS, and a workgroup has {device.chip.lds_bytes}"
    if isinstance(packet, pm4.DispatchDirect) and not (packet.dim_x and packet.dim_y and packet.dim_z):
        return "its grid is empty"
    return ""


def _aligned(device: AmdDevice, packet: Packet) -> str:
    if isinstance(packet, (pm4.WaitRegMem64,)) and packet.address % CELL_BYTES:
        return f"signal {packet.address:#x} is not a multiple of {CELL_BYTES}"
    return ""


RULES = (
    Rule("packet-parses", "every packet is one the GPU knows, and whole", _parses),
    Rule("no-stray-bits", "no packet sets bits that its layout does not name", _unclaimed),
    Rule("address-mapped", "copies, fills, signals and blocks lie in mapped memory", _mapped),
    Rule("launch-agrees", "a launch names loaded code and stays within the chip's limits", _launch),
    Rule("signal-aligned", "signals are 16-byte cells", _aligned),
)


def validate(device: AmdDevice, words: Sequence[bytes]) -> None:
    """Check every packet of a submission. Raises UsageError naming the rule, the packet and what is wrong."""
    for piece in words:
        blocks = [bytes(piece)]
        is_block = device.is_aql and piece[0] == aql.PacketType.VENDOR_SPECIFIC  # PM4's first byte is 0, too
        if is_block and isinstance(piece, Piece) and piece.upload:
            blocks.append(piece.upload)  # the PM4 that an AQL packet runs
        for block in blocks:
            for packet in device.decode(memoryview(block).cast("I")):
                for rule in RULES:
                    if wrong := rule.check(device, packet):
                        raise UsageError(f"[{rule.id}] {packet}: {wrong}. The rule: {rule.says}.")
