"""Waves run as machine code of the host: a batch goes through a program's compiled blocks, one wave after the other.

In       a Program, a batch at one of its entries
Out      batches where their waves have left the compiled code: at what only the interpreter does, or when time is up
Changes  registers of the batch, LDS and memory, as the instructions do
Next     native_text.py (the code), machine.py (who asks), hcq/emu/compiled/assemble.py (LLVM)

A program is compiled once it has taken the interpreter, by estimate, as long as compiling it would take. Programs that
are looked at while they run (counters, races, guards) and memory behind emulated caches are always interpreted.
"""

from __future__ import annotations

import functools
import hashlib
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from hcq import config
from hcq.emu.amd.shader import kept_programs
from hcq.emu.amd.shader.kept_programs import Compiled, Text
from hcq.emu.amd.shader.memory import AddressSpace, Range, SharedRange
from hcq.emu.amd.shader.residents import Residents
from hcq.emu.amd.shader.waves import Batch, by_wave
from hcq.emu.compiled import accesses, assemble
from hcq.system import native

if TYPE_CHECKING:
    from hcq.emu.amd.shader.program import Program

COMPILE_NS = 2_500_000  # LLVM and this compiler: for each instruction,
BEGIN_NS = 30_000_000  # and for a program
STEP_NS, LANE_NS = 15_000, 2.0  # the interpreter: for each instruction, and for each lane of it
LEAST_NOTED_NS, NOTES = 2_000_000, 64  # what is spent is noted so often, before it is worth to compile
MOST_TABULATED = 4  # memories whose ranges are at hand
MOST_KEPT = 512  # programs, wherever they lie, of which the machine code is kept in this process
WHOLE = 0xFFFFFFFFFFFFFFFF
FUEL = 1 << 16  # instructions that a wave runs before others do, and before anybody asks whether to stop


_made: dict[str, Compiled | None] = {}  # the one that was made longest ago stands first


def is_possible(program: Program, memory: Any, scalar_memory: Any) -> bool:
    """Whether a program may run as machine code."""
    if config.current().emu_compiled == "0" or program.additions:
        return False
    return scalar_memory is memory and _is_space(type(memory)) and assemble.is_installed()  # type: ignore[arg-type]


@functools.cache
def _is_space(kind: type) -> bool:
    """Whether memory of a kind is one whose ranges are known: asking a protocol takes long."""
    return issubclass(kind, AddressSpace)


def native_of(program: Program, residents: Residents) -> Native | None:
    """What runs waves of a program as machine code; None where they are interpreted."""
    is_looked_at = residents.races is not None or residents.tally is not None
    if is_looked_at or not is_possible(program, residents.memory, residents.scalar_memory):
        return None
    assert isinstance(residents.memory, AddressSpace)
    return Native(program, residents, residents.memory)


def ready(program: Program, mode: int, registers: int, is_eager: bool = False) -> Compiled | None:
    """Machine code for a program, where there is some, or where it is time to make some."""
    key = mode, registers
    if key in program.native:
        found: Compiled | None = program.native[key]
        return found
    is_eager = is_eager or config.current().emu_compiled == "always"
    worth = BEGIN_NS + COMPILE_NS * len(program.instructions)
    is_time = is_eager or program.spent_ns >= worth
    if not is_time and key in program.looked:
        if program.spent_ns >= program.noted_ns:
            _note_spent(program, mode, registers, worth)
        return None
    program.looked.add(key)
    made = compile_program(program, mode, registers, only_kept=not is_time)
    if made is None and not is_time and not program.noted_ns:  # other processes have interpreted it, too
        program.spent_ns += kept_programs.spent_ns(_identity(program, mode, registers))
        program.noted_ns = program.spent_ns + max(LEAST_NOTED_NS, worth / NOTES)
        if program.spent_ns >= worth:
            return ready(program, mode, registers)
    if made is not None or is_time:
        program.native[key] = made
    return made


def _note_spent(program: Program, mode: int, registers: int, worth: float) -> None:
    """What the interpreter has taken is kept on disk now and then: the next process goes on from there."""
    kept_programs.note_spent(_identity(program, mode, registers), program.spent_ns)
    program.noted_ns = program.spent_ns + max(LEAST_NOTED_NS, worth / NOTES)


@dataclass
class Tabulated:
    """What is mapped where, as compiled code looks it up."""

    index: Any
    rows: Any
    held: Any

    def __post_init__(self) -> None:
        self.address = int(self.rows.ctypes.data)  # of the table


_tabulated: list[Tabulated] = []  # the last ones


def ranges_of(memory: AddressSpace) -> Tabulated:
    """The ranges of a memory as they are now."""
    index = memory.index
    for one in _tabulated:
        if one.index is index:
            return one
    known = [one for one in index[1] if type(one) in (Range, SharedRange)]
    rows = [(one.start, len(one.data), one.data.ctypes.data - one.start, one.writable) for one in known]
    wrapped = [[number & 2**64 - 1 for number in row] for row in rows]
    made = Tabulated(index, np.array(wrapped, np.uint64).reshape(-1, 4), known)
    _tabulated[:] = [made, *_tabulated[: MOST_TABULATED - 1]]
    return made


class Native:
    """The machine code of a program, for the waves that are resident together."""

    def __init__(
        self, program: Program, residents: Residents, memory: AddressSpace, is_eager: bool = False
    ) -> None:
        self.program, self.residents, self.memory, self.is_eager = program, residents, memory, is_eager
        self.troubles: set[int] = set()
        self.ranges: Tabulated | None = None
        self.sites: dict[int, Any] = {}  # by MODE
        self.lds = residents.lds.data.ctypes.data + residents.group_of.astype(np.int64) * residents.lds_stride
        own = residents.scratch_size * residents.wave_size  # of each wave
        self.scratch = residents.scratch.data.ctypes.data + own * np.arange(len(residents.group_of))

    @property
    def is_made(self) -> bool:
        """Whether there is machine code already."""
        return any(self.program.native.values())

    def step(self, b: Batch, budget: int) -> tuple[list[Batch], int] | None:
        """Run a batch as far as compiled code goes; None where there is none for it.

        budget   instructions that its waves may still run, all together
        Returns the batches that can go on, and how many instructions were run.
        """
        compiled = ready(self.program, b.mode, len(b.u32), self.is_eager)
        begin = self.program.entry
        entry = None if compiled is None else compiled.text.entries.get((b.pc - begin) & WHOLE)
        if b.pc in self.troubles:  # an access that is not for compiled code: not before the block has ended
            self.troubles.remove(b.pc)
            entry = None
        if compiled is None or entry is None:
            size = self.residents.wave_size
            length = len(self.program.block(b.pc, b.mode).steps) if compiled is None else 0
            self.program.spent_ns += length * (STEP_NS + LANE_NS * b.waves * size)
            return None
        return self._run(b, compiled, entry, budget)

    def missing(self, mode: int, registers: int) -> set[str]:
        """Names of the instructions that the interpreter runs, of a program that is compiled for a MODE."""
        compiled = self.program.native.get((mode, registers))
        return set() if compiled is None else set(compiled.text.why_not)

    def _run(self, b: Batch, compiled: Compiled, entry: int, budget: int) -> tuple[list[Batch], int]:
        text = compiled.text
        if not b.is_by_wave or not b.u32.flags.writeable:
            b.bind(by_wave(b.u32))
        vectors = b.u32
        scalars = b.s
        if not scalars.flags.c_contiguous or not scalars.flags.writeable:
            scalars = b.scalars = np.ascontiguousarray(scalars)
        conditions = np.array(b.scc, np.bool_)
        exits = np.zeros(b.waves, np.int32)
        shared, scratch = self.lds[b.ids], self.scratch[b.ids]
        ranges = self._look_at_memory(text, b.mode)
        table = np.zeros(accesses.TABLE_WORDS, np.int64)
        table[accesses.WAVES] = b.waves
        table[accesses.VECTORS] = vectors.ctypes.data
        table[accesses.WAVE_BYTES] = vectors.strides[1]
        table[accesses.SCALARS] = scalars.ctypes.data
        table[accesses.CONDITIONS] = conditions.ctypes.data
        table[accesses.EXITS] = exits.ctypes.data
        fuel = max(1, min(FUEL, budget // b.waves + 1))
        entries, fuels = np.full(b.waves, entry), np.full(b.waves, fuel)
        groups, meets = self._together(b, text)
        table[accesses.ENTRIES], table[accesses.FUELS] = entries.ctypes.data, fuels.ctypes.data
        table[accesses.GROUPS], table[accesses.GROUP_COUNT] = groups.ctypes.data, len(groups) - 1
        table[accesses.MEETS] = meets
        table[accesses.RANGES], table[accesses.RANGE_COUNT] = ranges.address, len(ranges.rows)
        table[accesses.SITES] = self.sites[b.mode].ctypes.data
        table[accesses.SHARED], table[accesses.SHARED_BYTES] = shared.ctypes.data, self.residents.lds_size
        table[accesses.SCRATCH], table[accesses.SCRATCH_BYTES] = (
            scratch.ctypes.data,
            self.residents.scratch_size,
        )
        compiled.code.run(native.address_of(table.data))
        b.scc = conditions
        b.known.clear()
        b.exec_changed()
        executed = fuel * b.waves - int(fuels.sum())
        going = []
        for number in np.unique(exits).tolist():
            part = b if (exits == number).all() else b.take(exits == number)
            place = text.exits[number]
            part.pc, part.turn = (self.program.entry + place) & WHOLE, b.turn
            if place in text.troubles:
                self.troubles.add(part.pc)
            going.append(part)
        return going, executed

    def _together(self, b: Batch, text: Text) -> tuple[Any, bool]:
        """Where each workgroup's waves begin, and whether all of its waves are here, none of them at a barrier yet."""
        whole = np.array([0, b.waves])
        if not text.has_barriers:
            return whole, False
        groups = b.groups
        starts = np.concatenate(([0], np.flatnonzero(groups[1:] != groups[:-1]) + 1, [b.waves]))
        here, residents = groups[starts[:-1]], self.residents
        is_whole = (np.diff(starts) == residents.alive[here]).all() and not residents.arrived[here].any()
        return (starts, True) if is_whole else (whole, False)

    def _look_at_memory(self, text: Text, mode: int) -> Tabulated:
        """What is mapped where; stores of the interpreter come before those of compiled code."""
        self.memory.settle()
        found = ranges_of(self.memory)
        if found is not self.ranges:
            self.ranges = found
            self.sites.clear()
        if mode not in self.sites:
            self.sites[mode] = np.zeros((max(1, text.sites), accesses.SITE_WORDS), np.int64)
        return found


def compile_program(
    program: Program, mode: int, registers: int, *, only_kept: bool = False
) -> Compiled | None:
    """Machine code for a program; None where none of it can be compiled. only_kept: nor where none was made before."""
    if any(one.name.startswith("s_set_gpr_idx") for one in program.instructions.values()):
        return None  # what such an instruction turns on changes the meaning of those behind it
    key = _identity(program, mode, registers)
    if key in _made:
        made = _made[key]
    else:
        made = kept_programs.read(key)
        if made is None:
            if only_kept:
                return None
            from hcq.emu.amd.shader.native_text import Translator

            text = Translator(program, mode, registers).translate()
            made = Compiled(text, assemble.Assembled(text.ir)) if text.entries else None
            kept_programs.write(key, made)
        _made[key] = made
        while len(_made) > MOST_KEPT:
            del _made[next(iter(_made))]
    if made is None:
        return None
    text = made.text
    # what is behind an instruction that is not compiled begins a block
    program.leaders |= {(program.entry + place) & WHOLE for place in text.entries}
    program.blocks.clear()
    if "code" in config.current().debug:
        names = ", ".join(f"{name} ({why})" for name, why in sorted(text.why_not.items())) or "none"
        sys.stderr.write(
            f"hcq: kernel at {program.entry:#x} is compiled: {len(text.entries)} entries; interpreted are: {names}\n"
        )
    return made


def _identity(program: Program, mode: int, registers: int) -> str:
    """What the text of a program depends on: its code, wherever it lies, and how far it is known."""
    code = program.instructions
    begin = program.entry if any("getpc" in one.name for one in code.values()) else 0
    places = [
        sorted((pc - program.entry) & WHOLE for pc in found) for found in (program.leaders, program.frontier)
    ]
    words = sorted(((pc - program.entry) & WHOLE, one.words) for pc, one in code.items())
    facts = program.isa.arch, program.wave_size, program.acc_offset, mode, registers, begin, places, words
    return hashlib.sha256(repr(facts).encode()).hexdigest()
