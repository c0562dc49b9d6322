"""metal_capsule: a hang of a Metal device as a trace: the packets of the submissions that are not done, one marked.

In       words of these submissions, out of a report of hcq or of a live process
Out      Capsule: a submission for each, the blocks of its graphs, the packet that it does not get past
Next     capsule.py (AMD's, and the verb), words_in_reports.py (what is read), metal_capsule_replay.py (its work on an
         emulated GPU), hcq/metal/inspection.py (who finds the words)

A queue of Metal does one submission after the other, and how far it is inside one is not told. What the oldest does not
get past is the first wait whose signal does not have the value, and that nothing before it sets; else its first launch,
whose kernel may still run; else its first packet.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from hcq.command import Indirect
from hcq.errors import UsageError
from hcq.layout import Packet
from hcq.metal import encode, packets
from hcq.metal.validate import MetalModel
from hcq.rules import effects
from hcq.tools.trace.capsule_records import UNKNOWN, Capsule, CapsuleRecords, pages_of, spans_of, without
from hcq.tools.trace.color import counted
from hcq.tools.trace.words_in_reports import Words, no_ring, ring_of, words_of
from hcq.trace.records import Block, Kind, pack_commands

FORM = "metal"
LANGUAGE = "METAL"
MOST_DEEP, MOST_PACKETS = 8, 1 << 16
CELL_WORDS = 2


class Place(NamedTuple):
    """A packet: the word of the submission, and where it is in the block that runs there, if one does."""

    word: int
    packet: Packet
    block: int | None = None
    block_word: int = 0


def places(
    words: Sequence[int], blocks: dict[int, list[int]], word: int | None = None, block: int | None = None
) -> Iterator[Place]:
    """Packets in the order in which they are done, those of blocks in the place of what runs them."""
    todo = [(words, word, block, 0)]
    count = 0
    while todo and count < MOST_PACKETS and len(todo) <= MOST_DEEP:
        now, outer, va, at = todo.pop()
        for packet in encode.decode(now[at:]):
            count += 1
            here = at if outer is None else outer
            inner = blocks.get(packet.address) if isinstance(packet, packets.Run) else None
            at += len(packet.words)
            if inner is not None and isinstance(packet, packets.Run):
                todo += [(now, outer, va, at), (inner, here, packet.address, 0)]
                break
            yield Place(here, packet, va, 0 if va is None else at - len(packet.words))


def made(found: Words, path: str, model: str, pid: int) -> Capsule:
    """The trace. Raises UsageError."""
    return _Maker(found, path, model, pid).made()


class _Maker(CapsuleRecords):
    """Writes one capsule."""

    def __init__(self, found: Words, path: str, model: str, pid: int) -> None:
        super().__init__(pid)
        self.arch, self.path, self.model_name = found.arch, path, model
        self.model = MetalModel(found.arch)
        self.blocks = {one["va"]: words_of(one) for one in found.buffers if words_of(one)}
        self.signals = {one["va"]: words for one in found.memory if len(words := words_of(one)) >= CELL_WORDS}
        self.code = {one["va"]: words for one in found.code if len(words := words_of(one)) == one["size"]}
        self.held = [(va, va + size, name) for va, size, name in found.allocations if size > 0]
        self.missing += [f"left out: {text}" for text in found.left_out]
        self.lanes: list[tuple[str, list[int]]] = []
        for said in found.rings:
            words = self._words(said)
            if words and said["language"] == LANGUAGE:
                self.lanes.append((said["name"], words))

    def _words(self, said: dict[str, Any]) -> list[int]:
        read = ring_of(said)
        if read is None:
            self.missing.append(no_ring(said))
            return []
        words, known = read
        count = min(int(said["put"]), len(words))
        whole = next((at for at in range(count) if not known[at]), count)
        if whole < count:
            self.missing.append(f"{said['name']}: {count - whole} of {count} words")
        return list(words[:whole])

    def made(self) -> Capsule:
        if not self.lanes:
            raise UsageError(
                f"capsule {self.path}: no submission in it is not done, so nothing can be run again."
            )
        stuck, why = self._stuck()
        known = [(va, va + 4 * len(words)) for va, words in self.blocks.items()]
        held = [
            (start, end, name)
            for low, high, name in self.held
            for start, end in without([(low, high)], known)
        ]
        known += [(start, end) for start, end, _ in held]
        named = [span for _, words in self.lanes for one in self._effects(words) for span in spans_of(one)]
        named += [
            span for words in self.blocks.values() for one in self._effects(words) for span in spans_of(one)
        ]
        unknown = self.cut(list(without(pages_of(named), known)))
        self.note_unknown(unknown)
        self.missing.append("what is in the buffers of kernels, and how far the submission is")
        self._heads()
        for start, end, name in held:
            self.alloc(start, end - start, f"{UNKNOWN} of {name}")
        for start, end in unknown:
            self.alloc(start, end - start, f"{UNKNOWN}@{start:x}")
        for va, words in self.blocks.items():
            self._block(va, words)
        for number, (name, words) in enumerate(self.lanes, 1):
            self.submit(number, f"{LANGUAGE} {name}", words, self._runs(words))
        name = self.lanes[0][0].replace("_", " ")
        self.text(
            Kind.FAULT,
            {
                "device": 0,
                "what": f"{name} hangs",
                "why": f"{type(stuck.packet).__name__}: {why}",
                "submission": 1,
                "word": stuck.word,
                "block": stuck.block,
                "block_word": stuck.block_word,
            },
        )
        return Capsule(self.content, list(self._said(stuck, why)))

    def _said(self, stuck: Place, why: str) -> Iterator[str]:
        yield f"{self.arch}: {counted(len(self.lanes), 'submission')}, {counted(len(self.blocks), 'block')} of graphs"
        yield f"hangs at {repr(stuck.packet)[:240]}"
        inside = "" if stuck.block is None else f", word {stuck.block_word} of the block at {stuck.block:#x}"
        yield f"  word {stuck.word} of {self.lanes[0][0].replace('_', ' ')}{inside}"
        yield f"  {why}"
        yield "missing:"
        for text in self.missing:
            yield f"  {text}"

    def _stuck(self) -> tuple[Place, str]:
        """What the oldest submission does not get past."""
        found = list(places(self.lanes[0][1], self.blocks))
        values = {va: words[0] | words[1] << 32 for va, words in self.signals.items()}
        for one in found:
            packet = one.packet
            if isinstance(packet, packets.EncodeSignalEvent):
                values[packet.signal] = max(packet.value, values.get(packet.signal, 0))
            if isinstance(packet, packets.EncodeWaitForEvent):
                value = values.get(packet.signal)
                if value is None or value < packet.value:
                    is_known = "what that holds is not known" if value is None else f"it holds {value}"
                    return one, f"it waits for the signal at {packet.signal:#x} >= {packet.value}; {is_known}"
        for one in found:
            if isinstance(one.packet, packets.DispatchThreadgroups):
                return one, "it launches a kernel, which may not have ended"
        return found[0], "the oldest submission that is not done begins here"

    def _effects(self, words: Sequence[int]) -> Iterator[effects.Effect]:
        for step in self.model.steps(struct.pack(f"<{len(words)}I", *words), "", {}):
            yield from step.effects

    def _runs(self, words: Sequence[int]) -> list[Indirect]:
        return [
            Indirect(one.address, one.size_words, f"graph@{one.address:x}")
            for one in self._effects(words)
            if isinstance(one, effects.Run)
        ]

    # ------------------------------------------------------------ records

    def _heads(self) -> None:
        self.text(Kind.PROCESS, {"pid": self.process, "argv": [], "host": "", "clock": None})
        about = {
            "rings": [{"name": name, "form": FORM} for name, _ in self.lanes],
            "signals": [[va, *words[:CELL_WORDS]] for va, words in self.signals.items()],
            "code": [[va, words] for va, words in self.code.items()],
            "missing": self.missing,
        }
        facts = {"model": self.model_name, "foreign": True, "capsule": about}
        self.text(Kind.DEVICE, {"device": 0, "name": "METAL", "arch": self.arch, "facts": facts})

    def _block(self, va: int, words: list[int]) -> None:
        commands = self._runs(words)
        packed = pack_commands(commands, self.string)
        label = self.string(f"graph@{va:x}")
        head = Block(device=0, label=label, va=va, commands=len(commands), size_words=len(words))
        self.raw(Kind.BLOCK, b"", head.to_bytes() + packed + struct.pack(f"<{len(words)}I", *words))
