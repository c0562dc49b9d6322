"""The packets for the rules: what they do, in words that every kind of device shares.

In       packets
Out      WebGpuModel
Next     hcq/rules/effects.py (what can be said)
"""

from __future__ import annotations

from collections.abc import Sequence

from hcq.layout import Packet
from hcq.rules import effects
from hcq.rules.effects import Argument, Effect, Launch, Model, Programs
from hcq.signal import CELL_BYTES
from hcq_webgpu import packets


class WebGpuModel(Model):
    """One in-order queue; what the host writes and reads goes behind what was submitted."""

    finishes_packets = True
    signal_bytes = CELL_BYTES

    def decode(self, words: Sequence[int], queue: str) -> list[Packet]:
        return packets.decode(words)

    def malformed(self, packet: Packet) -> tuple[str, str] | None:
        if not isinstance(packet, packets.Head):
            return None
        if packet.opcode not in packets.PACKETS:
            return "packet-unknown", f"the processor knows no opcode {int(packet.opcode)}"
        return "packet-length", f"{packet.length} words are too few for it, or more than there are"

    def effects(self, packet: Packet, programs: Programs) -> Sequence[Effect]:
        match packet:
            case packets.Dispatch():
                return (self._launch(packet, programs),)
            case packets.Copy():
                return (effects.Copy(packet.dst, packet.src, packet.size_bytes, may_overlap=True),)
            case packets.Fill():
                return (effects.Fill(packet.dst, packet.size_bytes),)
            case packets.Await():
                return (effects.Wait(packet.cell, packet.value),)
            case packets.Store():
                return (effects.Signal(packet.cell, packet.value),)
            case packets.Time():
                return (effects.Access(packet.address, 8, True, "timestamp"),)
            case packets.Execute():
                return (effects.Run(packet.address, packet.size_words),)
        return ()

    def _launch(self, packet: packets.Dispatch, programs: Programs) -> Launch:
        words = packet.tail_words
        values = [low | high << 32 for low, high in zip(words[::2], words[1::2])]
        facts = programs.get(packet.kernel)
        kinds = facts.args if facts is not None and facts.args is not None else ()
        access = facts.access if facts is not None and facts.access is not None else ("",) * len(kinds)
        return Launch(
            packet.kernel,
            (packet.grid_x, packet.grid_y, packet.grid_z),
            (packet.block_x, packet.block_y, packet.block_z),
            arguments=tuple(map(Argument, range(len(kinds)), kinds, values, access)),
            carried=len(values),
        )
