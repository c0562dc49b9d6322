"""nv_capsule: a hang of an NVIDIA GPU as a trace: the methods of the segments that are not done, the stuck one marked.

In       words of its GPFIFOs and segments, out of a report of hcq or of a live process
Out      Capsule: a submission for each channel with work, its segments one behind the other
Next     capsule.py (AMD's, and the verb), words_in_reports.py (what is read), nv_capsule_replay.py (its work on an
         emulated GPU), hcq/nv/ring_words.py (who finds the words)

GP_GET counts entries that were fetched, and a channel fetches ahead. What it does not get past is, of the entries that
were fetched, the first wait whose semaphore does not hold the value and is nobody's here to set; else the first launch,
whose kernel may still run. Else GP_GET may be old: such a wait in any entry; else the entry that was fetched last.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from hcq.emu.nv.host_processor import Acquire as Semaphore
from hcq.errors import UsageError
from hcq.layout import Packet
from hcq.nv.abi.classes import ARCHITECTURES
from hcq.nv.abi.compute_methods import NoOperation
from hcq.nv.abi.gpfifo import GpControl, GpEntry, decode_entry
from hcq.nv.abi.methods import COMPUTE_SUBCHANNEL, MAX_COUNT, non_incrementing
from hcq.nv.abi.qmd import Qmd, qmd_for
from hcq.nv.decode import decoder
from hcq.nv.validate import NvModel
from hcq.nv.waits_and_launches import Acquire, acquires, launches
from hcq.rules import effects
from hcq.tools.trace.capsule_records import UNKNOWN, Capsule, CapsuleRecords, pages_of, spans_of, without
from hcq.tools.trace.color import counted
from hcq.tools.trace.words_in_reports import Words, no_ring, ring_of, words_of
from hcq.trace.records import Kind

FORM = "gpfifo"
ENTRY_WORDS = 2
MOST_ENTRIES, MOST_WORDS = 1 << 13, 1 << 20
CELL_WORDS = 2
MOST_BUFFERS = 64
SMALL_BYTES = 16  # of a write that may set a semaphore


@dataclass
class Entry:
    """An entry of a GPFIFO. at: the first word of its segment in the submission; None where that is not there."""

    slot: tuple[int, int]
    at: int | None = None
    words: list[int] = field(default_factory=list)

    @cached_property
    def decoded(self) -> GpEntry | GpControl:
        """What it says."""
        return decode_entry(*self.slot)


@dataclass
class Lane:
    """A channel with work. fetched: how many of its entries GP_GET has passed."""

    name: str
    place: int
    size: int
    fetched: int
    entries: list[Entry] = field(default_factory=list)
    words: list[int] = field(default_factory=list)

    def entry_at(self, word: int) -> int:
        """The number of the entry in which a word of the submission is."""
        return next(
            number
            for number, one in enumerate(self.entries)
            if one.at is not None and one.at <= word < one.at + len(one.words)
        )


@dataclass(frozen=True)
class Stuck:
    """Where a channel stands. rank: how sure it is, 0 the most."""

    rank: int
    lane: Lane
    entry: int
    word: int
    packet: str
    why: str


def made(found: Words, named: str, path: str, model: str, pid: int) -> Capsule:
    """The trace. named: the GPU, where the command line says it. Raises UsageError."""
    arch = named or found.arch
    if arch not in ARCHITECTURES:
        raise UsageError(
            f"capsule {path}: {arch or 'its GPU'} is no GPU of NVIDIA's that is known. Give --chip with one of "
            f"{', '.join(ARCHITECTURES)}."
        )
    return _Maker(found, arch, path, model, pid).made()


class _Maker(CapsuleRecords):
    """Writes one capsule."""

    def __init__(self, found: Words, arch: str, path: str, model: str, pid: int) -> None:
        super().__init__(pid)
        self.arch, self.path, self.model_name = arch, path, model
        self.decode = decoder(arch)
        self.model = NvModel(arch)
        self.qmd = qmd_for(ARCHITECTURES[arch].compute)
        self.segments = {one["va"]: words_of(one) for one in found.buffers}
        self.memory = {one["va"]: words for one in found.memory if (words := words_of(one))}
        self.code = {
            one["va"]: words for one in found.code if len(words := words_of(one)) == one["size"] and words
        }
        self.missing += [f"the code of kernels: {text}" for text in found.left_out]
        self.held = [(va, va + size, name) for va, size, name in found.allocations if size > 0]
        self.lanes = [lane for said in found.rings if (lane := self._lane(said)) is not None]

    def made(self) -> Capsule:
        stuck = self._stuck()
        named = self._named()
        known = [(va, va + 4 * len(words)) for va, words in {**self.memory, **self.code}.items()]
        known += [
            (one.decoded.get, one.decoded.get + 4 * len(one.words))
            for lane in self.lanes
            for one in lane.entries
            if one.at is not None and isinstance(one.decoded, GpEntry)
        ]
        held = [
            (start, end, name)
            for low, high, name in self.held
            for start, end in without([(low, high)], known)
        ]
        known += [(start, end) for start, end, _ in held]
        unknown = self.cut(list(without(pages_of(named), known)))
        self.note_unknown(unknown)
        self.missing += [
            *self._without_code(),
            "what is in the buffers of kernels",
            "the methods that earlier segments sent: classes are taken to be bound as hcq binds them",
        ]
        self._heads()
        for start, end in unknown:
            self.alloc(start, end - start, f"{UNKNOWN}@{start:x}")
        for start, end, name in held[:MOST_BUFFERS]:
            self.alloc(start, end - start, f"{UNKNOWN} of {name}")
        for va, words in self.code.items():
            self.alloc(va, 4 * len(words), f"code@{va:x}")
        for va, words in self.memory.items():
            name = "semaphore" if len(words) == CELL_WORDS else "launch data"
            self.alloc(va, 4 * len(words), f"{name}@{va:x}")
        for value, lane in enumerate(self.lanes, 1):
            self.submit(value, f"GPFIFO {lane.name}", lane.words)
        place = stuck.lane.entries[stuck.entry].decoded
        where = f"entry {stuck.lane.place + stuck.entry} of the GPFIFO of the {stuck.lane.name} channel, {place!r}"
        self.text(
            Kind.FAULT,
            {
                "device": 0,
                "what": f"the {stuck.lane.name} channel hangs",
                "why": f"{where}: {stuck.why}",
                "submission": 1 + self.lanes.index(stuck.lane),
                "word": stuck.word,
                "block": None,
                "block_word": 0,
            },
        )
        return Capsule(self.content, list(self._said(stuck, where)))

    def _without_code(self) -> list[str]:
        """The kernels whose code is not there."""
        entries = {
            qmd.value("program_address")
            for lane in self.lanes
            for one in launches(self._packets([entry for entry in lane.entries if entry.at is not None]))
            if (qmd := self._qmd(one.qmd)) is not None
        }
        held = [(va, va + 4 * len(words)) for va, words in self.code.items()]
        lost = sorted(va for va in entries if not any(low <= va < high for low, high in held))
        return [f"the code of the kernel at {va:#x}" for va in lost[:MOST_BUFFERS]]

    def _said(self, stuck: Stuck, where: str) -> Iterator[str]:
        work = ", ".join(
            f"{lane.name} channel ({counted(len(lane.entries), 'entry')}, {counted(len(lane.words), 'word')})"
            for lane in self.lanes
        )
        yield f"{self.arch}: {work}"
        yield f"hangs at {stuck.packet[:240]}"
        yield f"  {where}"
        yield f"  {stuck.why}"
        yield "missing:"
        for text in self.missing:
            yield f"  {text}"

    # ------------------------------------------------------------ what is in it

    def _lane(self, said: dict[str, Any]) -> Lane | None:
        """The entries from the first one that is not known to be done to GP_PUT."""
        read = ring_of(said)
        if read is None or said["language"] != "GPFIFO":
            self.missing.append(no_ring(said))
            return None
        words, known = read
        size = len(words) // ENTRY_WORDS
        done, get, put = (said[key] // ENTRY_WORDS % size for key in ("done", "get", "put"))
        count = (put - done) % size
        fetched = (get - done) % size
        lane = Lane(said["name"], done, size, min(fetched, count))
        for number in range(min(count, MOST_ENTRIES)):
            at = ENTRY_WORDS * ((done + number) % size)
            if not all(known[at : at + ENTRY_WORDS]):
                break
            entry = Entry((words[at], words[at + 1]))
            self._fill(lane, entry)
            lane.entries.append(entry)
        if len(lane.entries) < count:
            self.missing.append(
                f"{lane.name} channel: {count - len(lane.entries)} of {count} entries that are not done"
            )
        lane.fetched = min(lane.fetched, len(lane.entries))
        return lane if lane.words else None

    def _fill(self, lane: Lane, entry: Entry) -> None:
        """A segment's words, where all of them are there."""
        where = entry.decoded
        if not isinstance(where, GpEntry):
            return
        words = self.segments.get(where.get, [])
        if len(words) < where.length or len(lane.words) + where.length > MOST_WORDS:
            self.missing.append(
                f"{lane.name} channel: the segment at {where.get:#x}, {counted(where.length, 'word')}"
            )
            return
        words = words[: where.length]
        for launch in launches(enumerate(self.decode(words))):
            lane.words += self._launch_note(lane, launch.qmd)
        entry.at, entry.words = len(lane.words), words
        lane.words += words

    def _qmd(self, va: int) -> Qmd | None:
        """A launch description, where it is there."""
        words = self.memory.get(va, [])
        return self.qmd.decode(words) if len(words) == self.qmd.length_words else None

    def _launch_note(self, lane: Lane, va: int) -> list[int]:
        """What a launch points to, as traces of hcq note it: before the segment, in words that no channel reads."""
        qmd = self._qmd(va)
        if qmd is None:
            self.missing.append(f"{lane.name} channel: the QMD at {va:#x}")
            return []
        bank = self.memory.get(qmd.value("constant_buffer_addr_0"), [])
        data = [*self.memory[va], *bank]
        if not bank or len(data) > MAX_COUNT or len(lane.words) + len(data) > MOST_WORDS:
            self.missing.append(f"{lane.name} channel: constant bank 0 of the launch at {va:#x}")
            return []
        return list(non_incrementing(COMPUTE_SUBCHANNEL, NoOperation, data).words)

    def _packets(self, entries: Sequence[Entry]) -> Iterator[tuple[int, Packet]]:
        """Each packet with its first word. A segment begins with a header."""
        for one in entries:
            at = one.at or 0
            for packet in self.decode(one.words):
                yield at, packet
                at += len(packet.words)

    def _effects(self, lane: Lane) -> Iterator[tuple[int, effects.Effect]]:
        for step in self.model.steps(struct.pack(f"<{len(lane.words)}I", *lane.words), "", {}):
            for one in step.effects:
                yield step.at, one

    def _named(self) -> list[tuple[int, int]]:
        """What packets read and write, from an address to before another."""
        return [span for lane in self.lanes for _, one in self._effects(lane) for span in spans_of(one)]

    # ------------------------------------------------------------ the mark

    def _stuck(self) -> Stuck:
        found = [one for lane in self.lanes for one in self._candidates(lane)]
        if not found:
            raise UsageError(
                f"capsule {self.path}: no channel in it has segments that are not done, so nothing can be run again."
            )
        return min(found, key=lambda one: one.rank)

    def _candidates(self, lane: Lane) -> Iterator[Stuck]:
        """Where a channel may stand, the likeliest first."""
        there = [one for one in lane.entries if one.at is not None]
        fetched = [one for one in lane.entries[: lane.fetched] if one.at is not None]
        shown = dict(self._packets(there))
        set_here = {va for other in self.lanes for _, one in self._effects(other) for va in _sets(one)}

        def at(rank: int, word: int, why: str) -> Stuck:
            return Stuck(rank, lane, lane.entry_at(word), word, repr(shown[word]), why)

        def waiting(entries: Sequence[Entry]) -> Iterator[tuple[int, str]]:
            for wait in acquires(self._packets(entries)):
                if wait.va not in set_here and (why := self._waits(wait)):
                    yield wait.at, why

        for word, why in waiting(fetched):
            yield at(0, word, why)
        for launch in launches(self._packets(fetched)):
            qmd = self._qmd(launch.qmd)
            which = "a kernel" if qmd is None else f"the kernel at {qmd.value('program_address'):#x}"
            yield at(1, launch.at, f"it launches {which}, which may not have ended")
        for word, why in waiting(there):
            yield at(2, word, f"{why}; GP_GET has not passed it, and may be old")
        if fetched:
            yield at(3, fetched[-1].at or 0, "the last entry that GP_GET has passed: it may not be done")
        elif there:
            yield at(4, there[0].at or 0, "GP_GET is at this entry")

    def _waits(self, wait: Acquire) -> str:
        """Why a wait does not end; "" for one that does."""
        until = f"it waits for the semaphore at {wait.va:#x}, {wait.how.name} {wait.payload:#x}"
        words = self.memory.get(wait.va, [])
        if len(words) < CELL_WORDS:
            return f"{until}; what that holds is not known"
        value = (words[0] | words[1] << 32) & (1 << 8 * wait.size_bytes) - 1
        if Semaphore(wait.va, wait.how, wait.payload, wait.size_bytes).holds(value):
            return ""
        return f"{until}; it holds {value:#x}"

    # ------------------------------------------------------------ records

    def _heads(self) -> None:
        self.text(Kind.PROCESS, {"pid": self.process, "argv": [], "host": "", "clock": None})
        rings = [
            {
                "name": lane.name,
                "form": FORM,
                "place": lane.place,
                "size": lane.size,
                "fetched": lane.fetched,
                "entries": [[*one.slot, one.at] for one in lane.entries],
            }
            for lane in self.lanes
        ]
        memory = [[va, words] for va, words in self.memory.items()]
        code = [[va, words] for va, words in self.code.items()]
        about = {"rings": rings, "memory": memory, "code": code, "missing": self.missing}
        facts = {"model": self.model_name, "foreign": True, "capsule": about}
        self.text(Kind.DEVICE, {"device": 0, "name": "NV", "arch": self.arch, "facts": facts})


def _sets(one: effects.Effect) -> list[int]:
    """The semaphore that a packet may set."""
    if isinstance(one, effects.Signal):
        return [one.cell]
    is_small = isinstance(one, effects.Access) and one.is_write and one.size_bytes <= SMALL_BYTES
    return [one.va] if isinstance(one, effects.Access) and is_small else []
