"""Traces for the tests of hcq-trace: made record by record, or recorded from a small program.

In       what a trace should hold
Out      a file
Changes  files in the folder it is given
Next     test_*.py beside this file
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from hcq.command import Command, Signal, Wait
from hcq.cpu import packets
from hcq.events.named_spans import Span, Work
from hcq.events.ranks import Place
from hcq.performance.counters import Counters
from hcq.trace.records import MAGIC, Alloc, Free, Kind, SignalSeen, Submit, Times, pack_commands, pack_record

PROCESS = 7
CELL = 0x10000
TIMELINE = 0x9000

# every verb has something to look at: two kernels, a fill, a copy, a graph with symbols, a signal, reads by the host
PROGRAM = """
import sys, hcq
from hcq.graph import Symbol
dev = hcq.open("CPU")
image = open(sys.argv[1], "rb").read()
step = dev.load(image, "step", args=("buffer", "int"), name="one step")
mixed = dev.load(image, "mixed")
out, other = dev.alloc(4096, "out"), dev.alloc(64, "other")
other.write(bytes(range(64)))
dev.queue().fill(out, 0).dispatch(step, [out, -3]).dispatch(mixed, [other, 1.5, 2, 3.5, 4, 5, 6, 7, 88, 9.25]).submit()
graph = dev.graph("twice").dispatch(step, [Symbol("where"), 5]).dispatch(step, [out, Symbol("k", "int")])
graph.replay({"where": other, "k": 6}).wait()
gate = dev.signal("gate")
gate.set(1)
dev.queue().wait(gate, 1).copy(out, other, 16, dst_offset=32).submit().wait()
graph.replay({"where": out, "k": 7}).wait()
assert out.read(0, 8) and other.read()
"""


class Maker:
    """Writes a trace record by record. `at_ns` moves by 1000 with each; `about` is said of the process."""

    def __init__(self, process: int = PROCESS, at_ns: int = 0, **about: object) -> None:
        self.parts = [MAGIC]
        self.process = process
        self.at_ns = at_ns
        self.strings: dict[str, int] = {}
        self.values: dict[int, int] = {}
        self.text(Kind.PROCESS, {"pid": process, **about})

    def raw(self, kind: int, text: bytes = b"", data: bytes = b"") -> Maker:
        self.at_ns += 1000
        self.parts.append(pack_record(kind, self.process, self.at_ns, text, data))
        return self

    def text(self, kind: Kind, fields: dict[str, object], data: bytes = b"") -> Maker:
        return self.raw(kind, json.dumps(fields).encode(), data)

    def string(self, text: str) -> int:
        if text not in self.strings:
            self.strings[text] = len(self.strings) + 1
            self.raw(Kind.STRING, b"", self.strings[text].to_bytes(4, "little") + text.encode())
        return self.strings[text]

    def device(self, name: str = "CPU", arch: str = "x86_64") -> int:
        """A device; returns its number. Its timeline is at TIMELINE + 16 * number."""
        number = len(self.values)
        self.values[number] = 0
        facts = {"timeline": TIMELINE + 16 * number, "threads": 2, "max_grid": 2**31 - 1, "max_block": 1}
        self.text(Kind.DEVICE, {"device": number, "name": name, "arch": arch, "facts": facts})
        return number

    def alloc(self, va: int, size_bytes: int = 16, name: str = "", device: int = 0) -> Maker:
        head = Alloc(device=device, name=self.string(name) if name else 0, va=va, size_bytes=size_bytes,
                     capacity_bytes=size_bytes)  # fmt: skip
        return self.raw(Kind.ALLOC, b"", head.to_bytes())

    def free(self, va: int, device: int = 0) -> Maker:
        return self.raw(Kind.FREE, b"", Free(device=device, va=va).to_bytes())

    def submit(self, *commands: Command, device: int = 0, words: bytes | None = None) -> int:
        """A submission; returns its timeline value. The words are a CPU device's, for waits and signals only."""
        self.values[device] += 1
        value = self.values[device]
        if words is None:
            words = b"".join(_words(one) for one in commands)
            words += packets.Signal(signal=TIMELINE + 16 * device, value=value).to_bytes()
        packed = pack_commands(commands, self.string)
        queue, site, thread = self.string("main"), self.string("x.py:3 in f"), self.string("MainThread")
        head = Submit(device=device, queue=queue, value=value, site=site, thread=thread, size_words=len(words) // 4,
                      commands=len(commands))  # fmt: skip
        self.raw(Kind.SUBMIT, b"", head.to_bytes() + words + packed)
        return value

    def times(self, *entries: tuple[int, int, int], device: int = 0) -> Maker:
        flat = b"".join(number.to_bytes(8, "little") for entry in entries for number in entry)
        return self.raw(Kind.TIMES, b"", Times(device=device, entries_count=len(entries)).to_bytes() + flat)

    def host_sets(self, va: int, value: int, device: int = 0) -> Maker:
        head = SignalSeen(device=device, is_set=1, va=va, value=value, timestamp_ns=self.at_ns)
        return self.raw(Kind.SIGNAL, b"", head.to_bytes())

    def place(self, place: Place) -> Maker:
        return self.text(Kind.PLACE, place._asdict())

    def span(self, span: Span, device: int = 0) -> Maker:
        return self.text(Kind.SPAN, {"device": device, **span._asdict()})

    def work(self, work: Work, device: int = 0) -> Maker:
        return self.text(Kind.SPAN, {"device": device, **work._asdict()})

    def counted(self, made: Counters, device: int = 0, loads: bool = True) -> Maker:
        """Launches of a kernel as an emulated GPU counts them, perhaps with the program that they were of."""
        if loads:
            code = {
                "device": device,
                "name": made.kernel,
                "entry": "k",
                "va": made.entry,
                "args": None,
                "scratch_bytes": 0,
            }
            self.text(Kind.CODE, {**code, "facts": {}}, b"\x7fELF")
        return self.text(Kind.COUNTERS, {"device": device, "counters": made.as_fields()})

    @property
    def content(self) -> bytes:
        return b"".join(self.parts)

    def write(self, path: Path) -> Path:
        path.write_bytes(self.content)
        return path


PRODUCT = Counters(
    arch="sm_90", entry=0x5000, kernel="dot", launches=2, grid=(32, 32, 1), block=(256, 1, 1), blocks=32,
    grid_blocks=2048, warps=256, instructions={"matrix": 1 << 14, "integer": 1 << 12}, matrix_flops={"f16": 2 * 2**33},
    load_sectors=1 << 21, bytes_needed=1 << 25, l2_bytes=1 << 26, dram_read_bytes=1 << 22, dram_write_bytes=1 << 20,
    shared_passes=1 << 20, bank_conflicts=1 << 19, registers=128, shared_bytes=65536, occupancy=0.25,
    limited_by="registers",
)  # fmt: skip


def _words(one: Command) -> bytes:
    if isinstance(one, Wait):
        return packets.Wait(signal=one.signal, value=one.value).to_bytes()
    if isinstance(one, Signal):
        return packets.Signal(signal=one.signal, value=one.value).to_bytes()
    raise TypeError(f"the maker has no words for {one}; give them")


def record(
    script: str, path: Path, *arguments: str, options: str = ",data", environment: Sequence[str] = ()
) -> Path:
    """Run a script with tracing."""
    extra = dict(pair.split("=") for pair in environment)
    subprocess.run(
        [sys.executable, "-c", script, *arguments],
        env={**os.environ, **extra, "HCQ_TRACE": f"{path}{options}"},
        check=True,
        timeout=300,
    )
    return path
