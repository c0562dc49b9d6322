"""Words of rings: the entries of each GPFIFO that are not known to be done, their segments, and what these point to.

In       an open device, which another thread uses meanwhile
Out      plain data
Changes  nothing; no lock is taken
Next     inspection.py (what this is part of), waits_and_launches.py (semaphores and QMDs),
         hcq/observe/report_words.py (in reports), tools/trace/nv_capsule.py (who makes a trace of it)

GP_GET counts what was fetched, and a channel fetches ahead: what is done is what the timeline has passed. Where no
submission is under way, GP_GET is all there is. Of a launch there are its description, its arguments and its code, as
it lies in memory; of the buffers that the arguments point to there is where they are, and nothing of what is in them.
"""

from __future__ import annotations

import contextlib
from bisect import bisect_right
from typing import TYPE_CHECKING, Any

from hcq.errors import DriverError
from hcq.nv.abi.classes import ARCHITECTURES
from hcq.nv.abi.gpfifo import GP_ENTRY_BYTES, USERD_GP_GET, GpEntry, decode_entry
from hcq.nv.abi.qmd import qmd_for
from hcq.nv.decode import decoder
from hcq.nv.waits_and_launches import acquires, launches
from hcq.system.inspection import words_at

if TYPE_CHECKING:
    from hcq.nv.channel import Channel
    from hcq.nv.device import NvDevice

MOST_ENTRIES, MOST_WORDS, MOST_BLOCKS = 512, 1 << 16, 128
ENTRY_WORDS = GP_ENTRY_BYTES // 4
CELL_WORDS = 2
MOST_BANK_BYTES = 1 << 16
MOST_CODE_WORDS, MOST_ALLOCATIONS = 1 << 15, 64


def ring_words(device: NvDevice) -> dict[str, Any]:
    """Each GPFIFO from the first entry that is not done to GP_PUT; places count words, and begin again at its end."""
    rings = [_ring(name, channel) for name, channel in zip(("main", "copy"), list(device._channels))]
    segments: dict[int, list[int]] = {}
    memory: dict[int, list[int]] = {}
    around = _Allocations(device)
    decode = decoder(device.arch)
    for ring in rings:
        for low, high in zip(ring["words"][::2], ring["words"][1::2]) if ring["pending"] else ():
            entry = decode_entry(low, high)
            if isinstance(entry, GpEntry):
                _read(entry.get, entry.length, segments, MOST_ENTRIES)
    for words in segments.values():
        packets = list(enumerate(decode(words)))
        for wait in acquires(packets):
            _read(wait.va, CELL_WORDS, memory, MOST_BLOCKS)
        for launch in launches(packets):
            _launch_data(device.arch, launch.qmd, memory, around)
    return {
        "arch": device.arch,
        "rings": rings,
        "buffers": [{"va": va, "words": words} for va, words in segments.items()],
        "memory": [{"va": va, "words": words} for va, words in memory.items()],
        "code": [{"va": va, "words": words} for va, words in around.code.items()],
        "allocations": [
            {"va": va, "size": size, "name": name} for va, size, name in sorted(around.arguments)
        ],
        "left_out": around.left_out,
    }


class _Allocations:
    """What lies where: the code of launches, and the buffers that their arguments point to."""

    def __init__(self, device: NvDevice) -> None:
        # addresses and names alone: a buffer that is held here would end in this thread
        self.blocks = sorted((one.va or 0, one.size_bytes, one.name or "") for one in device.memory.owners())
        self.starts = [va for va, _, _ in self.blocks]
        self.code: dict[int, list[int]] = {}
        self.arguments: set[tuple[int, int, str]] = set()
        self.left_out: list[str] = []

    def _holding(self, va: int) -> tuple[int, int, str] | None:
        at = bisect_right(self.starts, va) - 1
        found = self.blocks[at] if at >= 0 else None
        return found if found is not None and va < found[0] + found[1] else None

    def add_code(self, entry: int) -> None:
        """The image in which a kernel is, whole or not at all: what finds its parts are addresses in it."""
        found = self._holding(entry)
        if found is None or found[0] in self.code:
            return
        va, size, name = found
        why = ""
        if size // 4 + sum(map(len, self.code.values())) > MOST_CODE_WORDS:
            why = f"it has {size} bytes, and {4 * MOST_CODE_WORDS} are kept"
        else:
            try:
                self.code[va] = words_at(va, size // 4)
            except DriverError as refusal:
                why = str(refusal)
        said = f"{name or 'the code'} at {va:#x}: {why}"
        if why and said not in self.left_out:
            self.left_out.append(said)

    def add_arguments(self, bank: list[int]) -> None:
        """Where a constant bank points to: pointers are aligned to 8 bytes."""
        for low, high in zip(bank[::2], bank[1::2]):
            found = self._holding(low | high << 32) if high else None
            if found is not None and len(self.arguments) < MOST_ALLOCATIONS:
                self.arguments.add(found)


def _read(va: int, count: int, found: dict[int, list[int]], most: int) -> None:
    """Words of memory, unless the host does not read it, or there are too many."""
    if va and va not in found and len(found) < most and count + sum(map(len, found.values())) <= MOST_WORDS:
        with contextlib.suppress(DriverError):
            found[va] = words_at(va, count)


def _launch_data(arch: str, va: int, found: dict[int, list[int]], around: _Allocations) -> None:
    """A QMD, its code, and its constant bank 0, in which the arguments are."""
    kind = qmd_for(ARCHITECTURES[arch].compute)
    _read(va, kind.length_words, found, MOST_BLOCKS)
    if va in found and len(found[va]) == kind.length_words:
        qmd = kind.decode(found[va])
        around.add_code(qmd.value("program_address"))
        size = qmd.value("constant_buffer_size_0")
        if qmd.value("constant_buffer_valid_0") and size <= MOST_BANK_BYTES:
            bank = qmd.value("constant_buffer_addr_0")
            _read(bank, size // 4, found, MOST_BLOCKS)
            around.add_arguments(found.get(bank, []))


def _ring(name: str, channel: Channel) -> dict[str, Any]:
    fifo = channel.fifo
    put, size = fifo.put, fifo.entries
    seen = words_at(fifo.userd_va + USERD_GP_GET, 1)[0]
    value = fifo.passed()
    marks = fifo._marks.copy()
    done = max((behind for at, behind in marks if at <= value), default=0)
    done = max(done, fifo._read, put - size)
    get = max(done, put - (put - seen) % size)
    if all(at <= value for at, _ in marks):  # no submission is under way
        done = get
    first = done % size
    count = min(put - done, MOST_ENTRIES)
    head = min(count, size - first)
    words = [
        *words_at(fifo.va + GP_ENTRY_BYTES * first, ENTRY_WORDS * head),
        *words_at(fifo.va, ENTRY_WORDS * (count - head)),
    ]
    return {
        "name": name,
        "language": fifo.kind,
        "get": ENTRY_WORDS * (get % size),
        "put": ENTRY_WORDS * (put % size),
        "done": ENTRY_WORDS * first,
        "pending": ENTRY_WORDS * (put - done),
        "size": ENTRY_WORDS * size,
        "first": ENTRY_WORDS * first,
        "words": words,
    }
