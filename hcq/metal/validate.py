"""Metal for the rules: what its packets do, and what it promises.

In       packets of packets.py; the device's facts
Out      MetalModel
Next     hcq/rules/effects.py (what a model declares), program.py (how arguments are packed)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from hcq.errors import UsageError
from hcq.layout import Packet
from hcq.metal import encode, packets
from hcq.metal.program import Parameter, parameters_of
from hcq.rules import effects
from hcq.rules.effects import Argument, Effect, Launch, Limits, Model, ProgramFacts, Programs
from hcq.signal import CELL_BYTES

STAMP_BYTES = 8


class MetalModel(Model):
    """One queue, each packet finished before the next one starts, one memory that all see the same way."""

    finishes_packets = True
    signal_bytes = CELL_BYTES

    def __init__(self, arch: str, facts: Mapping[str, Any] | None = None) -> None:
        super().__init__(arch, facts)
        most = int(self.facts.get("max_grid", 2**32 - 1))
        threads = int(self.facts.get("max_block", 1024))
        self.limits = Limits(grid=(most, most, most), block=(threads,) * 3, threads=threads)
        self._parameters: dict[int, tuple[Parameter, ...]] = {}

    def program(self, facts: ProgramFacts, image: bytes) -> ProgramFacts:
        """What the text says of its parameters."""
        try:
            self._parameters[facts.entry] = parameters_of(
                image.decode("utf-8", "replace"), facts.name, facts.name
            )
        except UsageError:  # its name is not its entry's: arguments are not looked at
            self._parameters.pop(facts.entry, None)
        return facts

    def decode(self, words: Sequence[int], queue: str) -> list[Packet]:
        return encode.decode(words)

    def malformed(self, packet: Packet) -> tuple[str, str] | None:
        if not isinstance(packet, packets.Header):
            return None
        if packet.opcode not in packets.PACKETS:
            return "packet-unknown", f"no message belongs to opcode {int(packet.opcode)}"
        return "packet-length", f"{packet.length} words are too few for it, or more than there are"

    def effects(self, packet: Packet, programs: Programs) -> Sequence[Effect]:
        match packet:
            case packets.DispatchThreadgroups():
                return (self._launch(packet, programs),)
            case packets.CopyFromBuffer():
                return (effects.Copy(packet.dst, packet.src, packet.size_bytes, may_overlap=True),)
            case packets.FillBuffer():
                return (effects.Fill(packet.dst, packet.size_bytes),)
            case packets.EncodeWaitForEvent():
                return (effects.Wait(packet.signal, packet.value),)
            case packets.EncodeSignalEvent():
                return (effects.Signal(packet.signal, packet.value),)
            case packets.GpuEndTime():
                return (
                    effects.Access(packet.address, STAMP_BYTES, True, "timestamp", alignment=STAMP_BYTES),
                )
            case packets.Run():
                return (effects.Run(packet.address, packet.size_words),)
            case packets.Barrier():
                return (effects.Barrier(),)
        return ()

    def _launch(self, packet: packets.DispatchThreadgroups, programs: Programs) -> Launch:
        facts = programs.get(packet.pipeline)
        parameters = self._parameters.get(packet.pipeline, ())
        data = b"".join([word.to_bytes(4, "little") for word in packet.tail_words])
        access = facts.access if facts is not None and facts.access is not None else ("",) * len(parameters)
        found, at = [], 0
        for number, one in enumerate(parameters):
            value = int.from_bytes(data[at : at + one.size_bytes], "little")
            found.append(Argument(number, one.kind, value, access[number] if number < len(access) else ""))
            at += -(-one.size_bytes // 4) * 4
        return Launch(
            packet.pipeline,
            (packet.grid_x, packet.grid_y, packet.grid_z),
            (packet.block_x, packet.block_y, packet.block_z),
            tuple(found) if at == len(data) else (),
            argument_bytes=len(data),
        )
