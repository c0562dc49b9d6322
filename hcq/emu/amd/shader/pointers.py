"""Pointers of a kernel in machine code: from which of its arguments the address of each access was made.

In       a program, where its arguments are, their values in a launch
Out      `origins`: address of an instruction -> Origin, for accesses by registers that point into buffers
Next     hcq/emu/shader/pointers.py (what an Origin is), field_registers.py (which registers), checks.py (who asks)

A register has half of a pointer. Registers are followed along all branches until nothing changes: what is said holds on
every path. Vector registers are written by the lanes that are on; when others may come on again, a register is what it
was ever written with.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from hcq.emu.amd.shader.control import direct_targets
from hcq.emu.amd.shader.field_registers import EXEC, VECTORS, Part, Use, use_of
from hcq.emu.amd.shader.isa import Instruction
from hcq.emu.amd.shader.program import Program
from hcq.emu.shader.pointers import NUMBER, UNKNOWN, Origin, added, joined, mixed

ARGUMENTS: Origin = frozenset([-1])  # the address of the arguments themselves
ZERO = 128  # code of a source
APERTURES = range(235, 239)  # codes of sources: where LDS and scratch begin
MOVES = (
    "s_mov_b", "v_mov_b", "v_readfirstlane_b32", "v_readlane_b32", "v_accvgpr_read", "v_accvgpr_write",
    "v_accvgpr_mov",
)  # fmt: skip
SUMS = (
    "s_add_u",
    "s_add_i",
    "s_addc_u",
    "s_add_nc_u",
    "v_add_co_",
    "v_addc_co_",
    "v_add_nc_u",
    "v_add_u32",
    "v_add3_u32",
)
SCALED_SUMS = ("v_lshl_add_u", "v_mad_u64_u32", "v_mad_i64_i32", "v_mad_u32_u24")  # the last source is added
DIFFERENCES = (
    "s_sub_u",
    "s_sub_i",
    "s_subb_u",
    "s_sub_nc_u",
    "v_sub_co_",
    "v_subb_co_",
    "v_sub_nc_u",
    "v_sub_u32",
)
CHOICES = ("s_cselect_b", "v_cndmask_b32")
INDIRECT = ("s_setpc", "s_swappc", "s_call", "s_rfe", "s_movrel", "v_movrel", "s_set_gpr_idx", "s_cbranch_g")
NARROWS = ("s_and_saveexec", "s_and_not1_saveexec", "s_andn2_saveexec", "v_cmpx")


class _State:
    """What registers are at one place. ever: what vector registers were written with, by any lanes."""

    def __init__(self, now: dict[int, Origin], ever: dict[int, Origin], is_narrow: bool) -> None:
        self.now, self.ever, self.is_narrow = now, ever, is_narrow

    def copy(self) -> _State:
        return _State(dict(self.now), dict(self.ever), self.is_narrow)

    def of(self, register: int) -> Origin:
        return self.now.get(register, NUMBER)

    def write(self, register: int, origin: Origin) -> None:
        self.now[register] = origin
        if register >= VECTORS:
            old = self.ever.get(register, origin)
            self.ever[register] = joined(old, origin) if self.is_narrow else origin

    def widen(self) -> None:
        """Lanes may come on again."""
        if self.is_narrow:
            self.now.update(self.ever)

    def meet(self, other: _State) -> bool:
        """Another path comes here. Whether that is news."""
        changed = other.is_narrow and not self.is_narrow
        self.is_narrow |= other.is_narrow
        for mine, others in ((self.now, other.now), (self.ever, other.ever)):
            for register, origin in others.items():
                new = joined(mine.get(register, origin), origin)
                if register not in mine or mine[register] != new:
                    mine[register], changed = new, True
        return changed


class _Walk(NamedTuple):
    """argument: (offset of a word among the arguments) -> its Origin."""

    argument: Callable[[int], Origin]

    def results(self, inst: Instruction, use: Use, state: _State) -> list[tuple[int, Origin]]:
        """(register, what it is) of all that an instruction writes."""
        name = inst.name
        if inst.format == "VOPD":
            return self._dual(inst, use, state)
        if inst.format in ("SMEM", "DS", "FLAT", "GLOBAL", "SCRATCH", "MUBUF"):
            return self._loaded(inst, use, state)
        sources = [part for part in use.reads if part.field not in ("vcc", "old")]
        found: list[tuple[int, Origin]] = []
        for part in use.writes:
            for word, register in enumerate(part.registers):
                if part.field in ("vcc", "swapped") or (part.field == "sdst" and len(use.writes) > 1):
                    found.append((register, NUMBER if part.field != "swapped" else UNKNOWN))  # a mask
                    continue
                found.append((register, self._made(inst, name, sources, word, state)))
        if inst.dpp is not None:
            found = [(register, joined(state.of(register), origin)) for register, origin in found]
        return found

    def _made(
        self, inst: Instruction, name: str, sources: Sequence[Part], word: int, state: _State
    ) -> Origin:
        """One word of a result."""
        whole = [self._whole(part, state) for part in sources]
        words = [self._word(inst, part, word, state) for part in sources]
        if inst.sdwa is not None or name.startswith("s_getpc"):
            return UNKNOWN if name.startswith("s_getpc") else _sum(mixed(*whole))
        if name.startswith(MOVES) and sources:
            return words[0]
        if name.startswith(SUMS):
            return _sum(*(words[:3] if name.startswith("v_add3") else words[:2]))
        if name.startswith("v_lshl_add_u") and inst.fields["src1"] == ZERO:
            return _sum(words[0], words[2])
        if name.startswith(SCALED_SUMS) and len(sources) > 2:
            return _sum(mixed(*whole[:2]), words[2])
        if name.startswith("s_lshl") and "_add_u32" in name:
            return _sum(mixed(whole[0]), words[1])
        if name.startswith(DIFFERENCES) and len(sources) > 1:
            return _sum(words[0]) if words[1] == NUMBER else UNKNOWN
        if name.startswith(CHOICES) and len(sources) > 1:
            return joined(words[0], words[1])
        return mixed(*whole)

    def _word(self, inst: Instruction, part: Part, word: int, state: _State) -> Origin:
        if part.first < 0:
            return UNKNOWN if inst.fields.get(part.field) in APERTURES else NUMBER
        return state.of(part.first + word) if word < part.words else NUMBER

    def _whole(self, part: Part, state: _State) -> Origin:
        return mixed(*(state.of(register) for register in part.registers))

    def _dual(self, inst: Instruction, use: Use, state: _State) -> list[tuple[int, Origin]]:
        assert inst.pair is not None
        found = []
        for opcode, side, part in zip(inst.pair, "xy", use.writes):
            first, second = use.read(f"src0{side}"), use.read(f"vsrc1{side}")
            assert first is not None and second is not None
            one = NUMBER if first.first < 0 else state.of(first.first)
            other = state.of(second.first)
            if opcode.name == "v_dual_mov_b32":
                origin = one
            elif opcode.name == "v_dual_add_nc_u32":
                origin = _sum(one, other)
            elif opcode.name == "v_dual_cndmask_b32":
                origin = joined(one, other)
            else:
                origin = mixed(one, other)
            found.append((part.first, origin))
        return found

    def _loaded(self, inst: Instruction, use: Use, state: _State) -> list[tuple[int, Origin]]:
        """Addresses may be loaded, and words of what a thread has put aside may be halves of one."""
        found: list[tuple[int, Origin]] = []
        base, offset = use.read("sbase"), inst.fields.get("offset", 0)
        is_argument = base is not None and use.read("soffset") is None
        is_argument &= base is not None and all(state.of(each) == ARGUMENTS for each in base.registers)
        total = sum(part.words for part in use.writes)
        for part in use.writes:
            for word, register in enumerate(part.registers):
                if is_argument and inst.name.startswith("s_load") and not inst.name.endswith(("8", "16")):
                    found.append((register, self.argument(offset + 4 * word)))
                elif total == 1 and inst.format in ("SMEM", "GLOBAL", "MUBUF"):
                    found.append((register, NUMBER))
                else:
                    found.append((register, UNKNOWN))
        return found


def _sum(*parts: Origin) -> Origin:
    """Of a sum, in which the address of the arguments is no pointer into a buffer."""
    found = added(*parts)
    return UNKNOWN if found == ARGUMENTS else found


def origins(
    program: Program, scalars: dict[int, Origin], argument: Callable[[int], Origin]
) -> dict[int, Origin]:
    """From which arguments addresses were made, by the instruction that makes the access; ARGUMENTS for the arguments.

    scalars   what scalar registers are when a wave begins
    argument  (offset of a word among the arguments) -> its Origin
    """
    if program.frontier or any(one.name.startswith(INDIRECT) for one in program.instructions.values()):
        return {}
    walk, found = _Walk(argument), dict[int, Origin]()
    before = {program.entry: _State(dict(scalars), {}, False)}
    pending = [program.entry]
    while pending:
        pc = pending.pop()
        state = before[pc].copy()
        for after in _through(walk, program, pc, state, None):
            known = before.get(after)
            if known is None:
                before[after] = state.copy()
            elif not known.meet(state):
                continue
            if after not in pending:
                pending.append(after)
    for pc, state in before.items():
        _through(walk, program, pc, state.copy(), found)
    return {pc: origin for pc, origin in found.items() if origin}


def _through(
    walk: _Walk, program: Program, pc: int, state: _State, found: dict[int, Origin] | None
) -> list[int]:
    """Run a block. Returns where it goes on. found: gets what is said of accesses."""
    while (inst := program.instructions.get(pc)) is not None:
        use = use_of(inst, program.wave_size, program.isa.has_halves)
        if found is not None and (origin := _address(inst, use, state)):
            found[pc] = origin
        for register, origin in walk.results(inst, use, state):
            state.write(register, origin)
        _mask(inst, use, state)
        targets = direct_targets(inst)
        if targets != [inst.next_pc] or inst.next_pc in program.leaders:
            return targets
        pc = inst.next_pc
    return []


def _mask(inst: Instruction, use: Use, state: _State) -> None:
    """EXEC may have changed: fewer lanes, or others."""
    writes_exec = any(EXEC <= each <= EXEC + 1 for part in use.writes for each in part.registers)
    if inst.name.startswith(NARROWS):
        state.is_narrow = True
    elif "saveexec" in inst.name or "wrexec" in inst.name or writes_exec:
        is_and = (
            inst.name.startswith(("s_and_b", "s_andn2_b", "s_and_not1_b"))
            and inst.fields.get("ssrc0") == EXEC
        )
        if not is_and:
            state.widen()
        state.is_narrow = True


def _address(inst: Instruction, use: Use, state: _State) -> Origin:
    """What the address of an access was made from."""
    if inst.format == "SMEM" and inst.name.startswith(("s_load", "s_store")):
        base, rest = use.read("sbase"), use.read("soffset")
        offset = NUMBER if rest is None or rest.first < 0 else state.of(rest.first)
    elif inst.format == "GLOBAL" and (base := use.read("saddr")) is not None:
        lane = use.read("addr")
        offset = NUMBER if lane is None else state.of(lane.first)
    elif inst.format in ("GLOBAL", "FLAT"):
        base, offset = use.read("addr"), NUMBER
    else:
        return UNKNOWN
    if base is None or offset != NUMBER or len(base.registers) != 2:
        return UNKNOWN
    low, high = (state.of(each) for each in base.registers)
    return low if low == high else UNKNOWN
