"""capsule: somebody's hang as a trace, which show, lint and replay take: what the rings held and did not get past.

In       a devcoredump of amdgpu, a report of hcq, or a process that answers inspectors
Out      the bytes of a trace: a submission for each ring with work, the job's indirect buffers, the packet that hangs
Changes  writes the file that -o names
Next     devcoredump/ and words_in_reports.py (what is read), capsule_replay.py (its work on an emulated GPU),
         hcq/trace/records.py (every byte)

A dump has words of rings and buffers, and nothing else of memory: what packets name beside them becomes allocations
called unknown memory. `missing`, in the facts of the device and in what is printed, says all that is not there.
"""

from __future__ import annotations

import argparse
import json
import struct
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from hcq import checks, config
from hcq.amd.abi.page_fault import PAGE_BYTES
from hcq.amd.chip import Chip
from hcq.command import Indirect
from hcq.errors import UsageError
from hcq.inspect import client
from hcq.rules import effects, examine
from hcq.tools.trace import devcoredump, words_in_reports
from hcq.tools.trace.color import clean, counted
from hcq.tools.trace.devcoredump import place, show
from hcq.tools.trace.devcoredump.dump import MAX_WORDS, Buffer, Dump, Ring
from hcq.tools.trace.devcoredump.place import Stuck
from hcq.trace.records import MAGIC, Alloc, Block, Kind, Submit, pack_commands, pack_record

UNKNOWN = "unknown memory"
CELL_BYTES = 16
MAX_ALLOCATIONS = 1 << 12
HIGHEST = 1 << 48
DEVCOREDUMP = "from a devcoredump"
DEADLINE_S = 10.0  # for the answer of a process


def options(verb: argparse.ArgumentParser) -> None:
    """What the verb takes on the command line."""
    verb.add_argument(
        "dump",
        metavar="DUMP",
        nargs="?",
        help="a devcoredump of amdgpu, or a report of hcq; - is standard input",
    )
    verb.add_argument(
        "--live", metavar="PID", help="a process that runs with HCQ_INSPECT=1, in place of a dump"
    )
    verb.add_argument("-o", "--output", metavar="FILE", required=True, help="where the trace goes")
    verb.add_argument("--chip", metavar="GFX", default="", help="the GPU, where the dump does not say it")


def run(given: argparse.Namespace) -> int:
    """Write a capsule. Raises UsageError for what is no dump, and for a dump in which nothing hangs."""
    if (given.dump is None) == (given.live is None):
        raise UsageError("capsule: give a file, or --live with a process, and not both.")
    if given.live is not None:
        made = live(given.live, given.chip)
    else:
        try:
            content = sys.stdin.buffer.read() if given.dump == "-" else Path(given.dump).read_bytes()
        except OSError as error:
            raise UsageError(f"{given.dump}: cannot be read ({error.strerror}).") from None
        made = capsule(content, given.chip, given.dump)
    try:
        Path(given.output).write_bytes(made.content)
    except OSError as error:
        raise UsageError(
            f"{given.output}: cannot be written ({error.strerror}). Name another file."
        ) from None
    for line in made.lines:
        print(clean(line))
    return 0


class Capsule(NamedTuple):
    """A trace, and what to say of it."""

    content: bytes
    lines: list[str]


def capsule(content: bytes, named: str = "", path: str = "the file") -> Capsule:
    """A dump as a trace. named: the GPU, where the command line says it. Raises UsageError."""
    if content.startswith(MAGIC):
        raise UsageError(f"capsule {path}: this is a trace already: hcq-trace show, lint and replay take it.")
    if words_in_reports.recognises(content):
        dump, arch = words_in_reports.of_report(content, path)
        return _made(dump, named or words_in_reports.chip_name(arch), path, "from a report of hcq")
    if not devcoredump.recognises(content):
        raise UsageError(
            f"capsule {path}: no devcoredump of amdgpu. It is what"
            " /sys/class/drm/card<n>/device/devcoredump/data holds after a hang."
        )
    return _made(devcoredump.read(content), named, path, DEVCOREDUMP)


def live(process: str, named: str = "") -> Capsule:
    """What hangs in a process that answers inspectors. Raises UsageError, WaitTimeout."""
    if not checks.is_decimal(process) or len(process) > 9:
        raise UsageError(f"capsule --live {checks.shown(process)}: give the number of a process.")
    pid = int(process)
    said = client.ask(config.current().cache_dir, pid, ("words",), DEADLINE_S)
    dump, arch = words_in_reports.of_process(said, pid)
    dump.head["pid"] = str(pid)
    chip = named or words_in_reports.chip_name(arch)
    return _made(dump, chip, f"--live {pid}", f"of process {pid}, while it ran")


def _made(dump: Dump, named: str, path: str, model: str) -> Capsule:
    chip, doubt = place.chip_of(dump, named)
    found = place.stuck(dump, chip)
    if found is None:
        raise UsageError(
            f"capsule {path}: no ring in it has packets that are not done, so nothing can be run again."
            f" {' '.join(f'{note}.' for note in dump.notes[:2])} hcq-trace decode shows what it has."
        )
    is_sure = model == DEVCOREDUMP
    if not is_sure:
        found = _running(dump, chip, found)
    return _Maker(dump, chip, found, [doubt] if doubt else [], model, is_sure).made()


def _running(dump: Dump, chip: Chip, found: Stuck) -> Stuck:
    """Without registers of the queue: the packet before the read pointer, where it runs a buffer that is known."""
    before = place.window(found.ring, chip).done[-1:]
    base = before[0].fields.get("ib_base") if before else None
    if found.at or not any(one.va == base for one in dump.buffers):
        return found
    why = "the read pointer is behind it, and the buffer that it runs may not be done"
    return found._replace(at=before[0].at, piece=before[0], why=why)


class _Maker:
    """Writes one capsule, record by record."""

    def __init__(
        self, dump: Dump, chip: Chip, found: Stuck, notes: list[str], model: str, is_sure: bool
    ) -> None:
        self.dump, self.chip, self.found, self.model_name, self.is_sure = dump, chip, found, model, is_sure
        self.parts = [MAGIC]
        self.now = 0
        pid = dump.head.get("pid", "")
        self.process = int(pid) if pid.isdecimal() and int(pid) < 1 << 32 else 0
        self.strings: dict[str, int] = {}
        self.missing = list(notes)
        self.model = examine.model_of("AMD", chip.arch, {}, lambda words: [])
        self.buffers = {one.va: one for one in reversed(dump.buffers) if one.words and one.va % 4 == 0}

    def made(self) -> Capsule:
        dump, found = self.dump, self.found
        rings = self._rings()
        named = list(self._named(rings))
        absent = sorted(
            {va for _, words, form in rings for va, _ in self._runs(words, form) if va not in self.buffers}
        )
        self.missing += [f"the indirect buffer at {va:#x} is not in the dump" for va in absent[:8]]
        if len(absent) > 8:
            self.missing.append(f"nor are {len(absent) - 8} more indirect buffers")
        self.missing += dump.notes
        if named:
            size = sum(end - start for start, end in named)
            self.missing.append(
                f"memory that packets name: {counted(len(named), 'range')}, {size} bytes, contents unknown"
            )
        self.missing.append(
            "the code of kernels, their arguments, and the registers that earlier packets set"
        )
        self._heads(rings)
        for start, end in named:
            self._alloc(start, end - start, f"{UNKNOWN}@{start:x}")
        for buffer in self.buffers.values():
            self._alloc(buffer.va, 4 * len(buffer.words), f"IB #{buffer.number}")
            self._block(buffer)
        for value, (ring, words, form) in enumerate(rings, 1):
            self._submit(value, ring, words, form)
        value = next(n for n, (ring, _, _) in enumerate(rings, 1) if ring is found.ring)
        why = f"{show.where(found)}: {found.piece.name}, {found.why}"
        if dump.has_fault:
            why += f"; page fault: {show.fault_sentence(dump)}"
        self.text(
            Kind.FAULT,
            {
                "device": 0,
                "what": f"ring {found.ring.name} hangs",
                "why": why,
                "submission": value,
                "word": 0 if found.at < 0 else found.at,
                "block": None if found.buffer is None else found.buffer.va,
                "block_word": found.buffer_at,
                **({} if self.is_sure else {"inside": len(found.piece.words)}),
            },
        )
        return Capsule(b"".join(self.parts), list(self._said(rings)))

    def _said(self, rings: Sequence[tuple[Ring, list[int], str]]) -> Iterator[str]:
        work = ", ".join(f"{ring.name} ({counted(len(words), 'word')})" for ring, words, _ in rings)
        yield f"{self.chip.arch}: {work}; {counted(len(self.buffers), 'indirect buffer')}"
        yield f"hangs at {self.found.piece.line()[:240]}"
        yield f"  {show.where(self.found)}: {self.found.why}"
        yield "missing:"
        for text in self.missing:
            yield f"  {text}"

    # ------------------------------------------------------------ what is in it

    def _rings(self) -> list[tuple[Ring, list[int], str]]:
        """Each ring with work: its words from where the work begins."""
        rings = []
        for ring in self.dump.rings:
            seen = place.window(ring, self.chip, MAX_WORDS)
            words = [word for one in seen.ahead for word in one.words * one.times]
            if (
                ring is self.found.ring and self.found.at < 0
            ):  # the packet that runs the buffer is behind the pointer
                behind = next(one for one in seen.done if one.at == self.found.at)
                words = [*behind.words, *words]
            if words and seen.form:
                rings.append((ring, words, seen.form))
                if len(words) < seen.pending:
                    self.missing.append(
                        f"ring {ring.name}: {seen.pending - len(words)} of {seen.pending} words that are not done"
                    )
        return rings

    def _effects(self, words: Sequence[int], form: str) -> Iterator[effects.Effect]:
        blob = struct.pack(f"<{len(words)}I", *words)
        for step in self.model.steps(blob, form.upper(), {}):
            yield from step.effects

    def _runs(self, words: Sequence[int], form: str) -> list[tuple[int, int]]:
        """The buffers that packets run: where, how many words."""
        return [
            (one.address, one.size_words)
            for one in self._effects(words, form)
            if isinstance(one, effects.Run)
        ]

    def _named(self, rings: Sequence[tuple[Ring, list[int], str]]) -> list[tuple[int, int]]:
        """The pages that packets name, without what is known and without the page of the fault."""
        spans: list[tuple[int, int]] = []
        inner = {form for _, _, form in rings}
        form = (
            place.inner_form(next(iter(inner)))
            if len(inner) == 1
            else show.buffer_form(self.dump, self.found)
        )
        texts = [
            *((words, form) for _, words, form in rings),
            *((one.words.tolist(), form) for one in self.buffers.values()),
        ]
        for words, language in texts:
            for one in self._effects(words, language):
                spans += _spans(one)
        known = [(one.va, one.va + 4 * len(one.words)) for one in self.buffers.values()]
        fault = self.dump.fault_address or 0
        if self.dump.has_fault:
            known.append((fault & -PAGE_BYTES, (fault & -PAGE_BYTES) + PAGE_BYTES))
        found = list(_without(_pages(spans), known))
        if len(found) > MAX_ALLOCATIONS:
            self.missing.append(
                f"{len(found) - MAX_ALLOCATIONS} more ranges of memory are named, and left out"
            )
        return found[:MAX_ALLOCATIONS]

    # ------------------------------------------------------------ records

    def raw(self, kind: Kind, text: bytes = b"", data: bytes = b"") -> None:
        self.now += 1
        self.parts.append(pack_record(kind, self.process, self.now, text, data))

    def text(self, kind: Kind, fields: dict[str, Any]) -> None:
        self.raw(kind, json.dumps(fields, separators=(",", ":")).encode())

    def string(self, text: str) -> int:
        if text not in self.strings:
            number = self.strings[text] = len(self.strings) + 1
            self.raw(Kind.STRING, b"", number.to_bytes(4, "little") + text.encode("utf-8", "replace"))
        return self.strings[text]

    def _heads(self, rings: Sequence[tuple[Ring, list[int], str]]) -> None:
        dump = self.dump
        argv = [dump.head["process"]] if "process" in dump.head else []
        self.text(Kind.PROCESS, {"pid": self.process, "argv": argv, "host": "", "clock": None})
        places = [
            {
                "name": ring.name,
                "form": form,
                "place": (ring.rptr + min(self.found.at, 0) * (ring is self.found.ring)) & ring.mask,
                "size_words": ring.mask + 1,
            }
            for ring, _, form in rings
        ]
        about = {"rings": places, "missing": self.missing}
        if dump.has_fault:
            about["fault_page"] = (dump.fault_address or 0) & -PAGE_BYTES
        facts = {"model": self.model_name, "foreign": True, "capsule": about}
        self.text(Kind.DEVICE, {"device": 0, "name": "AMD", "arch": self.chip.arch, "facts": facts})

    def _alloc(self, va: int, size_bytes: int, name: str) -> None:
        head = Alloc(
            device=0, name=self.string(name), va=va, size_bytes=size_bytes, capacity_bytes=size_bytes
        )
        self.raw(Kind.ALLOC, b"", head.to_bytes())

    def _commands(self, words: Sequence[int], form: str) -> list[Indirect]:
        found = []
        for va, size in self._runs(words, form):
            label = (
                f"IB #{self.buffers[va].number}" if va in self.buffers else "a buffer that is not in the dump"
            )
            found.append(Indirect(va, size, label))
        return found

    def _block(self, buffer: Buffer) -> None:
        form = show.buffer_form(self.dump, self.found)
        commands = self._commands(buffer.words.tolist(), form)
        packed = pack_commands(commands, self.string)
        label = self.string(f"IB #{buffer.number}")
        head = Block(
            device=0, label=label, va=buffer.va, commands=len(commands), size_words=len(buffer.words)
        )
        self.raw(
            Kind.BLOCK, b"", head.to_bytes() + packed + struct.pack(f"<{len(buffer.words)}I", *buffer.words)
        )

    def _submit(self, value: int, ring: Ring, words: Sequence[int], form: str) -> None:
        commands = self._commands(words, form)
        packed = pack_commands(commands, self.string)
        head = Submit(
            device=0,
            queue=self.string(f"{form.upper()} {ring.name}"),
            value=value,
            site=0,
            thread=0,
            size_words=len(words),
            commands=len(commands),
        )
        self.raw(Kind.SUBMIT, b"", head.to_bytes() + struct.pack(f"<{len(words)}I", *words) + packed)


# ------------------------------------------------------------ ranges of memory


def _spans(one: effects.Effect) -> list[tuple[int, int]]:
    """Where a packet reads or writes, from an address to before another."""
    if isinstance(one, effects.Copy):
        return [(one.dst, one.dst + one.size_bytes), (one.src, one.src + one.size_bytes)]
    if isinstance(one, effects.Fill):
        return [(one.dst, one.dst + one.size_bytes)]
    if isinstance(one, (effects.Wait, effects.Signal)):
        return [(one.cell, one.cell + CELL_BYTES)]
    if isinstance(one, effects.Access):
        return [(one.va, one.va + max(one.size_bytes, 1))]
    return []


def _pages(spans: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """Whole pages, in order, ranges that touch as one. What no address space has is left out."""
    found: list[tuple[int, int]] = []
    for start, end in sorted((one & -PAGE_BYTES, -(-end // PAGE_BYTES) * PAGE_BYTES) for one, end in spans):
        if start < PAGE_BYTES or end > HIGHEST or end <= start:
            continue
        if found and start <= found[-1][1]:
            found[-1] = found[-1][0], max(found[-1][1], end)
        else:
            found.append((start, end))
    return found


def _without(spans: Sequence[tuple[int, int]], known: Sequence[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    """What is left of ranges."""
    for start, end in spans:
        at = start
        for low, high in sorted(known):
            if high <= at or low >= end:
                continue
            if low > at:
                yield at, low
            at = high
        if at < end:
            yield at, end
