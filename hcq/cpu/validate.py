"""The CPU device for the rules: what its packets do, what it promises, and two rules of its own.

In       packets of packets.py; the device's arch and facts
Out      CpuModel
Next     hcq/rules/effects.py (what a model declares), hcq/rules/ (the rules), hcq/rules/examine.py (who runs them)
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from hcq.cpu import encode, packets
from hcq.cpu.processor import machine_named
from hcq.layout import Packet
from hcq.rules import effects
from hcq.rules.effects import Access, Argument, Effect, Launch, Limits, Model, Programs, Run, Step
from hcq.rules.launches import SCRATCH_LIMIT
from hcq.rules.rule import Check, Violation, rule
from hcq.rules.submission_check import SubmissionCheck

LAUNCH_GROUPS = rule(
    "cpu-launch-groups",
    "A CPU dispatch counts as many groups as its grid has.",
    "Set groups to grid_x * grid_y * grid_z.",
)
LAUNCH_HEADER = rule(
    "cpu-launch-header",
    "A CPU dispatch is as long as its header's argument slots, and the group's slot is one of them.",
    "Let hcq.cpu.encode make the packet.",
)


HEAD_BYTES = 4 * packets.Dispatch.length_words
DISPATCH_BYTE = bytes([packets.Opcode.DISPATCH])
MAX_HEADS = 4096
STAMP_BYTES = 8


def _header(submission: SubmissionCheck, effect: Launch) -> Iterator[Violation]:
    packet = submission.step.packet if submission.step is not None else None
    if not isinstance(packet, packets.Dispatch):
        return
    product = packet.grid_x * packet.grid_y * packet.grid_z
    if packet.groups != product and product:
        yield Violation(LAUNCH_GROUPS, f"its grid has {product} groups, and groups says {packet.groups}")
    assert isinstance(submission.model, CpuModel)
    slots = submission.model.slots(packet)
    if len(packet.tail_words) != 2 * slots or packet.group_slot >= slots:
        text = f"it has {len(packet.tail_words)} argument words, and its header says {2 * slots}"
        yield Violation(LAUNCH_HEADER, f"{text}, the group in slot {packet.group_slot}")
    elif submission.kernel is not None and submission.kernel.args is not None and effect.carried is None:
        kinds = ", ".join(submission.kernel.args)
        yield Violation(LAUNCH_HEADER, f"its slots are not those of {submission.kernel.name}({kinds})")
    most = -(-submission.device.scratch_bytes // 4096) * 4096
    if packet.scratch_bytes > most:
        text = f"it asks for {packet.scratch_bytes} bytes of scratch memory, and each thread has {most}"
        yield Violation(SCRATCH_LIMIT, text)


class CpuModel(Model):
    """One queue, each packet finished before the next, one memory that all see the same way."""

    finishes_packets = True
    signal_bytes = 4 * packets.SignalCell.length_words
    signal_alignment = 16
    checks: Mapping[type, tuple[Check, ...]] = {Launch: (_header,)}

    def __init__(self, arch: str, facts: Mapping[str, Any] | None = None) -> None:
        super().__init__(arch, facts)
        self.machine = machine_named(arch)
        self._heads: dict[bytes, packets.Dispatch] = {}
        most = int(self.facts.get("max_grid", 2**31 - 1))
        self.limits = Limits(grid=(most, most, most), block=(1, 1, 1))

    def decode(self, words: Sequence[int], queue: str) -> list[Packet]:
        return encode.decode(words)

    def split(self, words: bytes, queue: str) -> list[bytes]:
        """Packet by packet, as far as the lengths make sense; what is left is one piece."""
        found = []
        at = 0
        while at + 4 <= len(words):
            size = 4 * struct.unpack_from("<H", words, at + 2)[0]
            if not size or at + size > len(words):
                break
            found.append(words[at : at + size] if size < len(words) else words)
            at += size
        if at < len(words):
            found.append(words[at:])
        return found

    def steps(self, words: bytes, queue: str, programs: Programs) -> list[Step]:
        """Launches of one program differ in their arguments: what stands before them is decoded once."""
        if words[:1] != DISPATCH_BYTE or 4 * struct.unpack_from("<H", words, 2)[0] != len(words):
            return super().steps(words, queue, programs)
        head = words[:HEAD_BYTES]
        known = self._heads.get(head)
        if known is None:
            if len(head) < HEAD_BYTES:
                return super().steps(words, queue, programs)
            if len(self._heads) >= MAX_HEADS:
                self._heads.clear()
            known = self._heads[head] = packets.Dispatch.decode(memoryview(head).cast("I"))
        packet = packets.Dispatch.__new__(packets.Dispatch)
        packet.values, packet.unclaimed = known.values, known.unclaimed
        packet.tail_words = tuple(memoryview(words)[HEAD_BYTES:].cast("I"))
        return [Step(0, packet, self.effects(packet, programs))]

    def malformed(self, packet: Packet) -> tuple[str, str] | None:
        if isinstance(packet, packets.Header):
            if packet.opcode not in packets.PACKETS:
                return "packet-unknown", f"the command processor knows no opcode {int(packet.opcode)}"
            return "packet-length", f"{packet.length} words are too few for it, or more than there are"
        if packet.values["length"] % 2:
            return "packet-length", "it is an odd number of words long"
        return None

    def own_fault(self, packet: Packet, ring: str) -> str:
        """A dispatch is called with the slots that its header counts, and for the groups that it counts."""
        if fault := super().own_fault(packet, ring):
            return fault
        if isinstance(packet, packets.Dispatch):
            slots = self.slots(packet)
            if len(packet.tail_words) != 2 * slots or packet.group_slot >= slots:
                text = f"it has {len(packet.tail_words)} argument words, and its header says {2 * slots}"
                return f"{text}, the group in slot {packet.group_slot}"
            if packet.groups != (grid := packet.grid_x * packet.grid_y * packet.grid_z):
                return f"its grid has {grid} groups, and groups says {packet.groups}"
        return ""

    def slots(self, packet: packets.Dispatch) -> int:
        """How many argument slots a dispatch's header says it has."""
        machine = self.machine
        return (
            machine.integer_registers
            + (machine.float_registers if packet.has_floats else 0)
            + packet.stack_slots
        )

    def effects(self, packet: Packet, programs: Programs) -> Sequence[Effect]:
        if isinstance(packet, packets.Dispatch):
            return (self._launch(packet, programs),)
        if isinstance(packet, packets.Copy):
            return (effects.Copy(packet.dst, packet.src, packet.size_bytes, may_overlap=True),)
        if isinstance(packet, packets.Fill):
            return (effects.Fill(packet.dst, packet.size_bytes),)
        if isinstance(packet, packets.Wait):
            return (effects.Wait(packet.signal, packet.value),)
        if isinstance(packet, packets.Signal):
            return (effects.Signal(packet.signal, packet.value),)
        if isinstance(packet, packets.Timestamp):
            return (Access(packet.address, STAMP_BYTES, True, "timestamp", alignment=STAMP_BYTES),)
        if isinstance(packet, packets.Barrier):
            return (effects.Barrier(),)
        if isinstance(packet, packets.Indirect):
            return (Run(packet.address, packet.size_words),)
        return effects.declared_accesses(packet)

    def _launch(self, packet: packets.Dispatch, programs: Programs) -> Launch:
        facts = programs.get(packet.entry)
        arguments: list[Argument] = []
        count = None
        if facts is not None and facts.args is not None:
            letters = "".join("f" if kind == "float" else "i" for kind in facts.args)
            shape = encode.argument_shape(self.machine, letters)
            has = (len(packet.tail_words), bool(packet.has_floats), packet.group_slot)
            should = (shape.head[2] - packet.length_words, bool(shape.head[1]), shape.head[4])
            if has == should:
                count = len(facts.args)
                for index, kind in enumerate(facts.args):
                    slot = 2 * shape.slots[index]
                    value = packet.tail_words[slot] | packet.tail_words[slot + 1] << 32
                    access = facts.access[index] if facts.access is not None else ""
                    arguments.append(Argument(index, kind, value, access))
            elif packet.group_slot != len(facts.args):
                count = packet.group_slot  # integer arguments come before the group's slot
        return Launch(
            packet.entry,
            (packet.grid_x, packet.grid_y, packet.grid_z),
            (1, 1, 1),
            tuple(arguments),
            carried=count,
            scratch_bytes=packet.scratch_bytes,
        )
