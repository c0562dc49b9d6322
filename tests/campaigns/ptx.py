"""PTX: random programs of video instructions and values of sixteen bytes, some of them guarded, some in branches.

In       a case
Out      registers and memory of every thread, as plain Python computes them
Next     _plain_ptx.py (what is drawn, and its meaning), hcq/emu/nv/shader/ (what runs it)
"""

from __future__ import annotations

import random

import numpy as np

from tests.campaigns._plain_ptx import CELL, KINDS, REGISTERS, Drawn, numbers
from tests.campaigns.campaign import Campaign, Case, Outcome, Wrong

THREADS = (1, 7, 32, 33, 96)
MAX_LINES = 12


class Line:
    """One drawn line of a program. guard: which register's lowest bit decides, None for all threads."""

    def __init__(self, rng: random.Random) -> None:
        self.drawn: Drawn = rng.choice(KINDS)(rng)
        self.guard = rng.randrange(REGISTERS) if rng.random() < 0.5 else None
        self.jumps = " " in self.drawn.line.partition(";")[2] or rng.random() < 0.5

    def text(self, number: int) -> str:
        """As PTX: several instructions, or half of the guarded ones, are jumped over."""
        if self.guard is None:
            return self.drawn.line
        test = f"and.b32 %bit, %r{self.guard}, 1; setp.ne.u32 %p, %bit, 0;"
        if self.jumps:
            return f"{test} @!%p bra AFTER{number}; {self.drawn.line} AFTER{number}:"
        return f"{test} @%p {self.drawn.line}"

    def run(self, registers: list[int], cell: list[int]) -> None:
        """For one thread."""
        if self.guard is None or registers[self.guard] & 1:
            self.drawn.meaning(registers, cell)


def program(lines: list[str]) -> str:
    """A kernel whose threads load their registers from A, run the lines over them and their cells in B, and store."""
    names = [f"%r{i}" for i in range(REGISTERS)]
    text = [
        ".version 8.3\n.target sm_90\n.address_size 64\n.visible .entry k(.param .u64 A, .param .u64 B) {"
    ]
    text.append(
        f".reg .b32 %r<{REGISTERS}>, %t, %bit; .reg .b64 %d<4>, %at, %cell; .reg .b128 %q<4>; .reg .pred %p;"
    )
    text.append("mov.u32 %t, %tid.x; ld.param.u64 %at, [A]; ld.param.u64 %cell, [B];")
    text.append(f"mad.wide.u32 %at, %t, {4 * REGISTERS}, %at; mad.wide.u32 %cell, %t, {4 * CELL}, %cell;")
    text += [f"ld.global.u32 {name}, [%at+{4 * i}];" for i, name in enumerate(names)]
    text += lines
    text += [f"st.global.u32 [%at+{4 * i}], {name};" for i, name in enumerate(names)]
    return "\n".join([*text, "ret; }"])


def found_by(text: str, registers: np.ndarray, cells: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Registers and cells of all threads after the emulated GPU has run a program."""
    from hcq.emu.nv.shader.memory import AddressSpace
    from hcq.emu.nv.shader.run import Kernel

    memory, found = AddressSpace(), (registers.copy(), cells.copy())
    places = (0x10_0000, 0x20_0000)
    for place, array in zip(places, found):
        memory.map(place, array)
    params = b"".join(place.to_bytes(8, "little") for place in places)
    Kernel(text, "k").run((1, 1, 1), (len(registers), 1, 1), memory, params)
    return found


def expected_of(lines: list[Line], registers: np.ndarray, cells: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The same by plain Python."""
    mine, own = registers.tolist(), cells.tolist()
    for thread in range(len(mine)):
        for line in lines:
            line.run(mine[thread], own[thread])
    return np.array(mine, np.uint32), np.array(own, np.uint32)


def _drawn(case: Case) -> tuple[list[Line], np.ndarray, np.ndarray]:
    rng = case.rng()
    threads = rng.choice(THREADS)
    registers = np.array(numbers(rng, threads * REGISTERS), np.uint32).reshape(threads, REGISTERS)
    cells = np.array(numbers(rng, threads * CELL), np.uint32).reshape(threads, CELL)
    return [Line(rng) for _ in range(rng.randrange(1, MAX_LINES))], registers, cells


def _difference(lines: list[Line], registers: np.ndarray, cells: np.ndarray) -> str:
    """What comes out otherwise than it should, "" for nothing."""
    text = program([line.text(i) for i, line in enumerate(lines)])
    found, expected = found_by(text, registers, cells), expected_of(lines, registers, cells)
    for what, one, other in zip(("%r", "word "), found, expected):
        if not np.array_equal(one, other):
            thread, number = np.argwhere(one != other)[0]
            start = [hex(value) for value in registers[thread].tolist()]
            return (
                f"thread {thread} has {what}{number} = {one[thread, number]:#x}, not {other[thread, number]:#x}; it "
                f"began with {start} and the cell {[hex(value) for value in cells[thread].tolist()]}:\n{text}"
            )
    return ""


def run(case: Case) -> Outcome:
    """A program, on the emulated GPU and in plain Python."""
    wrong = _difference(*_drawn(case))
    if wrong:
        raise Wrong(wrong)
    return Outcome.RIGHT


def explain(case: Case) -> str:
    """The fewest lines that still differ."""
    lines, registers, cells = _drawn(case)
    at = 0
    while at < len(lines):
        fewer = lines[:at] + lines[at + 1 :]
        if fewer and _difference(fewer, registers, cells):
            lines = fewer
        else:
            at += 1
    return _difference(lines, registers, cells)


CAMPAIGNS = (
    Campaign(
        "ptx",
        "random video instructions and 16-byte values on an emulated NVIDIA GPU, guarded and in branches",
        run,
        short=60,
        explain=explain,
    ),
)
