"""capsule: somebody's hang as a trace, which show, lint and replay take: what the rings held and did not get past.

In       a devcoredump of amdgpu, a report of hcq, or a process that answers inspectors
Out      the bytes of a trace: a submission for each ring with work, the job's indirect buffers, the packet that hangs
Changes  writes the file that -o names
Next     devcoredump/ and words_in_reports.py (what is read), nv_capsule.py (the same of NVIDIA's GPUs),
         metal_capsule.py (of Metal), capsule_records.py (what all write), capsule_replay.py (its work on an emulated
         GPU)

A dump has words of rings and buffers, and nothing else of memory: what packets name beside them becomes allocations
called unknown memory. `missing`, in the facts of the device and in what is printed, says all that is not there.
"""

from __future__ import annotations

import argparse
import struct
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from hcq import checks, config
from hcq.amd.abi.page_fault import PAGE_BYTES
from hcq.amd.chip import Chip
from hcq.command import Indirect
from hcq.errors import UsageError
from hcq.inspect import client
from hcq.rules import effects, examine
from hcq.tools.trace import devcoredump, envelopes, metal_capsule, nv_capsule, words_in_reports
from hcq.tools.trace.capsule_records import UNKNOWN, Capsule, CapsuleRecords, pages_of, spans_of, without
from hcq.tools.trace.color import clean, counted
from hcq.tools.trace.devcoredump import place, show
from hcq.tools.trace.devcoredump.dump import MAX_WORDS, Buffer, Dump, Ring
from hcq.tools.trace.devcoredump.place import Stuck
from hcq.tools.trace.words_in_reports import Words
from hcq.trace.records import MAGIC, Block, Kind, pack_commands

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


def capsule(content: bytes, named: str = "", path: str = "the file") -> Capsule:
    """A dump as a trace. named: the GPU, where the command line says it. Raises UsageError."""
    if content.startswith(MAGIC):
        raise UsageError(f"capsule {path}: this is a trace already: hcq-trace show, lint and replay take it.")
    content = envelopes.plain(content)
    if not words_in_reports.recognises(content) and not devcoredump.recognises(content):
        content = envelopes.bare(content)
    if words_in_reports.recognises(content):
        found = words_in_reports.of_report(content, path)
        return _of_words(found, named, path, "from a report of hcq")
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
    found = words_in_reports.of_process(said, pid)
    return _of_words(found, named, f"--live {pid}", f"of process {pid}, while it ran", pid)


def _of_words(found: Words, named: str, path: str, model: str, pid: int = 0) -> Capsule:
    """Words of rings that are not done, of whichever kind of GPU."""
    if found.speaks("GPFIFO"):
        return nv_capsule.made(found, named, path, model, pid)
    if found.speaks(metal_capsule.LANGUAGE):
        return metal_capsule.made(found, path, model, pid)
    dump = words_in_reports.as_dump(found)
    if pid:
        dump.head["pid"] = str(pid)
    return _made(dump, named or words_in_reports.chip_name(found.arch), path, model)


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


class _Maker(CapsuleRecords):
    """Writes one capsule, record by record."""

    def __init__(
        self, dump: Dump, chip: Chip, found: Stuck, notes: list[str], model: str, is_sure: bool
    ) -> None:
        self.dump, self.chip, self.found, self.model_name, self.is_sure = dump, chip, found, model, is_sure
        pid = dump.head.get("pid", "")
        super().__init__(int(pid) if pid.isdecimal() and int(pid) < 1 << 32 else 0)
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
        self.note_unknown(named)
        self.missing.append(
            "the code of kernels, their arguments, and the registers that earlier packets set"
        )
        self._heads(rings)
        for start, end in named:
            self.alloc(start, end - start, f"{UNKNOWN}@{start:x}")
        for buffer in self.buffers.values():
            self.alloc(buffer.va, 4 * len(buffer.words), f"IB #{buffer.number}")
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
        return Capsule(self.content, list(self._said(rings)))

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
                spans += spans_of(one)
        known = [(one.va, one.va + 4 * len(one.words)) for one in self.buffers.values()]
        fault = self.dump.fault_address or 0
        if self.dump.has_fault:
            known.append((fault & -PAGE_BYTES, (fault & -PAGE_BYTES) + PAGE_BYTES))
        return self.cut(list(without(pages_of(spans), known)))

    # ------------------------------------------------------------ records

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
        self.submit(value, f"{form.upper()} {ring.name}", words, self._commands(words, form))
