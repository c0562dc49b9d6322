"""The packets for the rules: what they do, in words that every kind of device shares.

In       packets
Out      OpenClModel
Next     hcq/rules/effects.py (what can be said)
"""

from __future__ import annotations

from collections.abc import Sequence

from hcq.layout import Packet
from hcq.rules import effects
from hcq.rules.effects import Argument, Effect, Launch, Model, Programs
from hcq.signal import CELL_BYTES
from hcq_opencl import packets


class OpenClModel(Model):
    """One in-order queue, one memory that all see the same way."""

    finishes_packets = True
    signal_bytes = CELL_BYTES

    def decode(self, words: Sequence[int], queue: str) -> list[Packet]:
        return packets.decode(words)

    def malformed(self, packet: Packet) -> tuple[str, str] | None:
        if not isinstance(packet, packets.Header):
            return None
        if packet.opcode not in packets.PACKETS:
            return "packet-unknown", f"the processor knows no opcode {int(packet.opcode)}"
        return "packet-length", f"{packet.length} words are too few for it, or more than there are"

    def effects(self, packet: Packet, programs: Programs) -> Sequence[Effect]:
        match packet:
            case packets.Launch():
                return (self._launch(packet, programs),)
            case packets.Copy():
                return (effects.Copy(packet.dst, packet.src, packet.size_bytes, may_overlap=True),)
            case packets.Fill():
                return (effects.Fill(packet.dst, packet.size_bytes),)
            case packets.Wait():
                return (effects.Wait(packet.cell, packet.value),)
            case packets.Signal():
                return (effects.Signal(packet.cell, packet.value),)
            case packets.Stamp():
                return (effects.Access(packet.address, 8, True, "timestamp"),)
            case packets.Run():
                return (effects.Run(packet.address, packet.size_words),)
        return ()

    def _launch(self, packet: packets.Launch, programs: Programs) -> Launch:
        words = packet.tail_words
        values = [low | high << 32 for low, high in zip(words[::2], words[1::2])]
        facts = programs.get(packet.entry)
        kinds = facts.args if facts is not None and facts.args is not None else ()
        access = facts.access if facts is not None and facts.access is not None else ("",) * len(kinds)
        return Launch(
            packet.entry,
            (packet.grid_x, packet.grid_y, packet.grid_z),
            (packet.block_x, packet.block_y, packet.block_z),
            arguments=tuple(map(Argument, range(len(kinds)), kinds, values, access)),
            carried=len(values),
        )
