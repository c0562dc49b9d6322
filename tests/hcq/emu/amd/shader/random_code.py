"""Random machine code, and a wave's registers before and after it, by the interpreter and by compiled code.

In       an architecture, a seed
Out      Pair: what both left of registers, LDS and memory
Changes  nothing outside of its own arrays
Next     test_native.py (the law), tests/campaigns/compiled_cores.py (the same for an hour)
"""

from __future__ import annotations

import random
import struct
from typing import Any, NamedTuple

import numpy as np

from hcq.emu.amd.shader.architectures import ISAS
from hcq.emu.amd.shader.isa import Instruction
from hcq.emu.amd.shader.machine import Limits, Machine, Report
from hcq.emu.amd.shader.memory import AddressSpace
from hcq.emu.amd.shader.native import Native
from hcq.emu.amd.shader.native_text import Translator
from hcq.emu.amd.shader.program import Program
from hcq.emu.amd.shader.residents import Residents
from hcq.emu.amd.shader.wave_start import Launch, WorkItems
from hcq.emu.amd.shader.waves import Batch

CODE, DATA, DATA_BYTES, LDS_BYTES = 0x10000, 0x20_0000_0000, 1 << 16, 1 << 12
VECTORS, SOURCES = 256, 24  # registers, and those of them that are read and never written
ADDRESSES = (
    16  # a pair with an address in DATA, one in LDS, one in the buffer, a pair that is alike in all lanes
)
SCALARS = 40  # scalar registers that are read; the next ones hold the address of DATA, then a descriptor of a buffer
BUFFER, SCRATCH_BYTES = SCALARS + 4, LDS_BYTES + 64
FORMATS = "SOP1 SOP2 SOPC SOPK VOP1 VOP2 VOPC VOP3 VOP3SD VOP3P MAI DS GLOBAL SMEM MUBUF SCRATCH FLAT".split()
SPECIAL = [
    0,
    1,
    2,
    31,
    32,
    0xFF,
    0x7FFF,
    0x8000,
    0xFFFF,
    0x7FFFFFFF,
    0x80000000,
    0xFFFFFFFF,
    0x00000001,
    0x807FFFFF,
]
# 1, -1, infinities, a NaN, the smallest and the largest, pairs of float16
SPECIAL += [
    0x3F800000,
    0xBF800000,
    0x7F800000,
    0xFF800000,
    0xFFC00000,
    0x00800000,
    0x7F7FFFFF,
    0x3C003C00,
    0x80008000,
]
MODES = (0x3F0, 0x1F0, 0x3C0, 0x330, 0x300, 0x0F0, 0x3FF)


class State(NamedTuple):
    vectors: Any
    scalars: Any
    conditions: Any
    shared: Any
    memory: Any
    instructions: int


class Pair(NamedTuple):
    names: list[str]
    interpreted: State
    compiled: State
    left: list[str]  # instructions that were not compiled


def registers(rng: np.random.Generator, shape: tuple[int, ...]) -> Any:
    """Numbers of all kinds: bits, floats near one, small integers, and those that are special."""
    kinds = rng.integers(0, 4, shape)
    bits = rng.integers(0, 1 << 32, shape, np.uint64).astype(np.uint32)
    # no NaNs of many kinds: which one NumPy takes of two depends on the lane
    bits = np.where((bits & 0x7F800000) == 0x7F800000, bits & np.uint32(0xFF7FFFFF), bits).astype(np.uint32)
    floats = (rng.standard_normal(shape) * 8).astype(np.float32).view(np.uint32)
    small = rng.integers(0, 70, shape).astype(np.uint32)
    special = np.array(SPECIAL, np.uint32)[rng.integers(0, len(SPECIAL), shape)]
    return np.choose(kinds, [bits, floats, small, special]).astype(np.uint32)


class Maker:
    """Instructions of an architecture with random operands, each writing registers of its own."""

    def __init__(self, arch: str, seed: int, mode: int) -> None:
        self.isa, self.rng = ISAS[arch], random.Random(seed)
        self.lanes = 64 if self.isa.is_gfx9 else 32
        self.next_vector, self.next_scalar = SOURCES, SCALARS + 8
        self.program = Program(self.isa, AddressSpace(), CODE, self.lanes, 100)
        self.translator = Translator(self.program, mode, VECTORS)

    def one(self, form: Any, opcode: Any) -> tuple[int, ...] | None:
        """An instruction's words; None where these operands make none that is compiled, or registers are used up."""
        rng, fields = self.rng, {}
        for operand in opcode.operands:
            name = operand.field
            if name in ("vcc", "literal32"):
                continue
            if name == "simm16":
                fields[name] = rng.randrange(1 << 16)
            elif operand.file in "VA":
                is_source = name.startswith(("src", "vsrc", "data", "addr"))
                register = rng.randrange(0, 12) if is_source else self._vector(operand.width)
                fields[name] = register + 256 if name.startswith("src") else register
            elif operand.file == "S":
                is_source = name.startswith(("ssrc", "src", "sbase", "saddr", "soffset"))
                fields[name] = 2 * rng.randrange(0, 18) if is_source else self._scalar(operand.width)
        for name, bits in (("abs", 8), ("neg", 8), ("clamp", 2), ("omod", 4), ("opsel", 16)):
            if name in form.layout.fields and rng.random() < 0.2:
                fields[name] = rng.randrange(bits)
        for name in ("src0", "src1", "ssrc0", "ssrc1"):
            if name in fields and rng.random() < 0.25:
                scalar = (2 * rng.randrange(0, 18), 128 + rng.randrange(64), 193 + rng.randrange(16), 240)
                fields[name] = rng.choice((*scalar, 106, 253 if "ssrc" in name else 106))
        self._memory(form.name, opcode.name, fields)
        fields = {name: value for name, value in fields.items() if name in form.layout.fields}
        try:
            words = self.isa.encode(opcode.name, form.name, **fields)
            inst: Instruction = self.isa.decode((*words, rng.getrandbits(32), 0, 0), CODE)
        except Exception:
            return None
        if self.next_vector > 98 or self.next_scalar > 100 or not self.translator.traces(inst):
            return None
        return inst.words

    def _vector(self, width: int) -> int:
        self.next_vector += max(1, width // 32)
        return self.next_vector - max(1, width // 32)

    def _scalar(self, width: int) -> int:
        words = max(1, width // 32)
        self.next_scalar = -(-self.next_scalar // min(words, 4)) * min(words, 4) + words
        return self.next_scalar - words

    def _memory(self, form: str, name: str, fields: dict[str, int]) -> None:
        """Addresses that are there."""
        rng = self.rng
        if form == "DS":
            fields |= {"addr": ADDRESSES + 2, "offset0": rng.randrange(64), "offset1": 0}
        elif form in ("GLOBAL", "FLAT", "SCRATCH"):
            fields |= {"addr": ADDRESSES, "offset": rng.randrange(40), "data": rng.randrange(0, 12)}
            fields["saddr"] = self.isa.no_saddr
            if form == "SCRATCH":
                fields |= {"addr": ADDRESSES + 2, "sve": 1}
            elif "atomic" in name:  # all lanes of a wave at one place, too
                fields |= {"addr": ADDRESSES + rng.choice((0, 4)), "offset": 4 * rng.randrange(8)}
            fields |= dict.fromkeys(("sc0", "glc", "th"), rng.randrange(2))
        elif form == "MUBUF":
            descriptor = BUFFER if self.isa.arch.startswith("gfx12") else BUFFER // 4
            nothing = 124 if self.isa.arch.startswith("gfx12") else 128
            fields |= {"vaddr": ADDRESSES + 3, "srsrc": descriptor, "offen": 1, "soffset": nothing}
            fields |= {"offset": rng.randrange(40) & (~3 if "atomic" in name else ~0)}
            fields |= dict.fromkeys(("sc0", "glc", "th"), rng.randrange(2))
        elif form == "SMEM":
            fields |= {"sbase": SCALARS // 2, "offset": 4 * rng.randrange(64), "imm": 1}
            fields["soffset"] = max(0, self.isa.null)


def code(
    arch: str, seed: int, mode: int, count: int, names: list[str] | None = None
) -> tuple[list[int], list[str]]:
    """So many instructions; of these names, in their order, where some are given."""
    maker = Maker(arch, seed, mode)
    every = [
        (form, opcode) for form in maker.isa.formats if form.name in FORMATS for opcode in form.table.values()
    ]
    if names is not None:
        every = [(form, opcode) for form, opcode in every if f"{form.name}:{opcode.name}" in names]
    words: list[int] = []
    made: list[str] = []
    for number in range(20 * count if names is None else len(every)):
        form, opcode = every[number] if names is not None else maker.rng.choice(every)
        if names is None and opcode.name.startswith(("v_cmpx", "v_cmp_")) and maker.rng.random() < 0.8:
            continue  # there are so many, and few lanes are on behind them
        found = maker.one(form, opcode)
        if found is not None:
            words += found
            made.append(f"{form.name}:{opcode.name}")
        if len(made) == count:
            break
    return words, made


def run(arch: str, words: list[int], seed: int, mode: int, waves: int = 3) -> tuple[State, State, list[str]]:
    """The state after code, by the interpreter and by compiled code; and what was not compiled."""
    isa = ISAS[arch]
    lanes = 64 if isa.is_gfx9 else 32
    end = CODE + 4 * len(words)
    image = struct.pack(f"<{len(words) + 5}I", *words, *isa.encode("s_endpgm"), 0, 0, 0, 0)
    found, left = [], []
    for compiled in (False, True):
        rng = np.random.default_rng(seed)
        data = rng.integers(0, 256, DATA_BYTES).astype(np.uint8)
        memory = AddressSpace()
        memory.map(CODE, bytearray(image), name="code")
        memory.map(DATA, data, name="data")
        launch = Launch(
            CODE, lanes, VECTORS, lds_bytes=LDS_BYTES, scratch_bytes=SCRATCH_BYTES, mode=mode, acc_offset=100
        )
        items = WorkItems((waves, 1, 1), (lanes, 1, 1), (waves * lanes, 1, 1))
        residents = Residents(launch, items, np.arange(waves), memory, memory, isa.flat_scratch)
        residents.lds.data[:] = rng.integers(0, 256, len(residents.lds.data))
        v = registers(rng, (VECTORS, waves, lanes))
        row = np.arange(waves * lanes).reshape(waves, lanes)
        places = DATA + 64 * rng.permutation(row.size)[row].astype(np.uint64) + 4
        v[ADDRESSES], v[ADDRESSES + 1] = places.astype(np.uint32), (places >> np.uint64(32)).astype(np.uint32)
        v[ADDRESSES + 3] = (places - DATA).astype(np.uint32)
        shared = DATA + 0xC000 + 64 * np.arange(waves, dtype=np.uint64)[:, None]
        v[ADDRESSES + 4], v[ADDRESSES + 5] = (
            shared.astype(np.uint32),
            (shared >> np.uint64(32)).astype(np.uint32),
        )
        v[ADDRESSES + 2] = 4 * rng.integers(0, LDS_BYTES // 4, (waves, lanes))
        s = registers(rng, (waves, 128))
        s[:, SCALARS : SCALARS + 2] = DATA + 0x8000 & 0xFFFFFFFF, DATA >> 32  # waves store below that
        s[:, BUFFER : BUFFER + 4] = DATA & 0xFFFFFFFF, DATA >> 32, 64 * (waves * lanes - 9) + 18, 0
        masks = rng.integers(0, 1 << 32, (waves, 2), np.uint64).astype(np.uint32)
        masks[0] = 0xFFFFFFFF
        if seed % 5 == 0:
            masks[waves - 1] = 0
        s[:, 126 : 126 + lanes // 32] = masks[:, : lanes // 32]
        b = Batch(residents, CODE, mode, np.arange(waves), v, s, rng.integers(0, 2, waves).astype(np.bool_))
        program = Program(isa, memory, CODE, lanes, 100)
        program.leaders.add(end)
        report = Report()
        machine = Machine(program, residents, report, Limits(1 << 30, None, None))
        machine.native = Native(program, residents, memory, is_eager=True) if compiled else None
        ready = [b]
        with np.errstate(all="ignore"):
            for _ in range(10_000):
                ready = [done for one in ready for done in ([one] if one.pc == end else machine.step(one))]
                if all(one.pc == end for one in ready):
                    break
            else:
                raise AssertionError("the code does not come to its end")
        b = Batch.join(ready)
        if compiled:
            left = sorted(machine.native.missing(mode, VECTORS))  # type: ignore[union-attr]
        state = State(
            b.u32.copy(), b.s.copy(), np.array(b.scc), residents.lds.data.copy(), data, report.instructions
        )
        found.append(state)
    return found[0], found[1], left


def low_of_nans(x: Any, y: Any) -> Any:
    """Whether words are the lower half of a float64 that is a NaN in both."""
    high = [(np.roll(one, -1, axis=0) & 0x7FF00000) == 0x7FF00000 for one in (x, y)]
    found: Any = high[0] & high[1]
    return found


def both_nans(x: Any, y: Any) -> Any:
    """Whether words are a NaN of float32 in both."""
    found: Any = ((x & 0x7FFFFFFF) > 0x7F800000) & ((y & 0x7FFFFFFF) > 0x7F800000)
    return found


def alike_in_halves(x: Any, y: Any) -> Any:
    """Whether each half of a word is the same, or a NaN of float16 or bfloat16 in both."""
    halves = [
        (x >> at & 0xFFFF == y >> at & 0xFFFF) | ((x >> at & 0x7FFF) > 0x7C00) & ((y >> at & 0x7FFF) > 0x7C00)
        for at in (0, 16)
    ]
    found: Any = halves[0] & halves[1]
    return found


def differences(a: State, b: State) -> list[str]:
    """What is not alike, in words. A NaN is like a NaN: NumPy's own depends on the lane where there are two."""
    out = []
    for name in ("vectors", "scalars"):
        x, y = getattr(a, name), getattr(b, name)
        nan = both_nans(x, y)
        nan |= alike_in_halves(x, y) | (low_of_nans(x, y) if name == "vectors" else False)
        for place in np.argwhere((x != y) & ~nan)[:4].tolist():
            at = tuple(place)
            out.append(f"{name}{place}: {int(x[at]):#x} and {int(y[at]):#x}")
    for name in ("conditions", "shared", "memory"):
        x, y = getattr(a, name), getattr(b, name)
        if name != "conditions":
            x, y = x.view(np.uint32), y.view(np.uint32)
            alike = low_of_nans(x, y) | alike_in_halves(x, y) | both_nans(x, y)
            x, y = np.where(alike, 0, x), np.where(alike, 0, y)
        if not np.array_equal(x, y):
            out.append(f"{name} differ at {np.flatnonzero(x != y)[:8].tolist()}")
    if a.instructions != b.instructions:
        out.append(f"{a.instructions} and {b.instructions} instructions")
    return out
