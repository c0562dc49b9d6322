"""Control flow: branches, calls, barriers, the end of a wave, and the MODE register.

In       a Context for one SOPP, SOP1 or SOPK instruction that decides where waves go on
Out      an Ending: where the waves of a batch continue, and whether they wait or stop there
Changes  pc and mode of batches; SGPRs that receive return addresses
Next     machine.py (splits and joins batches by these), scalar_ops.py (everything else scalar)
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from hcq.emu.amd.shader import global_sync
from hcq.emu.amd.shader.arrays import Array
from hcq.emu.amd.shader.errors import Trapped
from hcq.emu.amd.shader.isa import Instruction
from hcq.emu.amd.shader.operands import (
    PRIVATE_APERTURE,
    SHARED_APERTURE,
    Context,
    Step,
    scalar32,
    scalar64,
    scalar_write,
)
from hcq.emu.amd.shader.scalar_memory_ops import clock
from hcq.emu.amd.shader.waves import EXEC, VCC, Batch

NO_EFFECT = {
    *"s_nop s_sethalt s_set_inst_prefetch_distance s_inst_prefetch s_clause s_delay_alu s_waitcnt_depctr".split(),
    *"s_waitcnt s_wait_idle".split(),
    *"s_wait_event s_setprio s_sendmsg s_incperflevel s_decperflevel s_ttracedata s_ttracedata_imm".split(),
    *"s_icache_inv s_wakeup s_version s_waitcnt_vscnt s_waitcnt_vmcnt s_waitcnt_expcnt s_waitcnt_lgkmcnt".split(),
    *"s_wait_loadcnt s_wait_storecnt s_wait_samplecnt s_wait_bvhcnt s_wait_expcnt s_wait_dscnt s_wait_kmcnt".split(),
    *"s_wait_loadcnt_dscnt s_wait_storecnt_dscnt s_wait_alu".split(),
    *"s_cbranch_cdbgsys s_cbranch_cdbguser s_cbranch_cdbgsys_or_user s_cbranch_cdbgsys_and_user s_setvskip".split(),
}
ENDS = {"s_endpgm", "s_endpgm_saved", "s_endpgm_ordered_ps_done", "s_code_end"}
BRANCHES = {f"s_cbranch_{name}" for name in ("scc0", "scc1", "vccz", "vccnz", "execz", "execnz")}
MODE_REGISTER = 1
MODE_BITS = 0x3FF  # rounding, denormals, dx10_clamp, ieee
MODE_BITS_RDNA4 = 0xFF  # the last two are gone: clamp makes zero of NaN, and there is one kind of minimum
WORKGROUP_BARRIER = 193  # the inline constant -1


@dataclass(frozen=True)
class Ending:
    """What closes a block. `run` returns the batches that go on; `kind` says what they do next."""

    kind: str  # go, barrier (arrive and wait), signal (arrive), wait, end
    run: Callable[[Batch], list[Batch]]


def direct_targets(inst: Instruction) -> list[int]:
    """Addresses an instruction can jump to, when the words alone say so, its successor included."""
    if inst.name in ENDS or inst.name in ("s_setpc_b64", "s_swappc_b64"):
        return []
    if inst.name == "s_branch":
        return [branch_target(inst)]
    if inst.name in BRANCHES or inst.name == "s_call_b64" or inst.name.startswith("s_subvector_loop_"):
        return [inst.next_pc, branch_target(inst)]
    return [inst.next_pc]


def branch_target(inst: Instruction) -> int:
    """Where a branch goes: a signed count of words, from the next instruction on."""
    offset = (inst.fields["simm16"] ^ 0x8000) - 0x8000
    return (inst.next_pc + 4 * offset) & 0xFFFFFFFFFFFFFFFF


def goes_to(pc: int) -> Callable[[Batch], list[Batch]]:
    """A step after which all waves are at one place."""

    def run(b: Batch) -> list[Batch]:
        b.pc = pc
        return [b]

    return run


def compile_ending(ctx: Context) -> Ending | None:
    """The Ending of an instruction that closes a block, or None for one that does not."""
    inst = ctx.inst
    name = inst.name
    if name in ENDS:
        return Ending("end", lambda b: [b])
    if name == "s_barrier":
        return Ending("barrier", goes_to(inst.next_pc))
    if name in ("ds_gws_init", "ds_gws_barrier"):
        return Ending("go", (global_sync.init if name == "ds_gws_init" else global_sync.wait)(ctx))
    if name in ("s_barrier_signal", "s_barrier_signal_isfirst"):
        return Ending("signal", signal_barrier(ctx))
    if name == "s_barrier_wait" and inst.fields["simm16"] == 0xFFFF:
        return Ending("wait", goes_to(inst.next_pc))
    if name.startswith("s_barrier_") or name == "s_alloc_vgpr":
        raise ctx.refuse(
            "barriers other than the workgroup's, and changing numbers of registers, are not emulated"
        )
    if name == "s_branch":
        return Ending("go", goes_to(branch_target(inst)))
    if name in ("s_sleep", "s_sleep_var"):
        return Ending("go", goes_to(inst.next_pc))  # a chance for the others
    if name in BRANCHES:
        return Ending("go", branch(condition(ctx, name), branch_target(inst), inst.next_pc))
    if name == "s_call_b64":
        link = scalar_write(ctx, inst.fields["sdst"], 2)

        def call(b: Batch) -> list[Batch]:
            link(b, np.full(b.waves, inst.next_pc, np.uint64))
            b.pc = branch_target(inst)
            return [b]

        return Ending("go", call)
    if name in ("s_setpc_b64", "s_swappc_b64"):
        return Ending("go", indirect(ctx))
    if name in ("s_round_mode", "s_denorm_mode") or writes_mode(inst):
        return Ending("go", mode_change(ctx))
    if name in ("s_subvector_loop_begin", "s_subvector_loop_end"):
        return Ending("go", half_wave_loop(ctx))
    if name == "s_trap":
        if inst.fields["simm16"] == 3:
            return None  # a debugger's trap, with no debugger
        return Ending("go", trap(inst))
    if name in ("s_sendmsghalt", "s_setkill", "s_rfe_b64"):
        raise ctx.refuse("not something a compute kernel may do here")
    return None


def trap(inst: Instruction) -> Callable[[Batch], list[Batch]]:
    """Stop the kernel: there is no trap handler here."""

    def run(b: Batch) -> list[Batch]:
        what = f"{inst.name}: trap {inst.fields['simm16']}: the kernel gave up (an assertion or llvm.trap)"
        raise Trapped(inst.pc, what)

    return run


def signal_barrier(ctx: Context) -> Callable[[Batch], list[Batch]]:
    """Arrive at the workgroup's barrier and go on; s_barrier_wait waits for the others."""
    inst = ctx.inst
    refuse_other_barriers(ctx)
    tells_first = inst.name.endswith("isfirst")

    def run(b: Batch) -> list[Batch]:
        b.residents.go_on(b.ids)
        first = b.residents.arrive(b.ids)
        if tells_first:
            b.scc = first
        b.pc = inst.next_pc
        return [b]

    return run


def barrier_state(ctx: Context) -> Step:
    """The workgroup's barrier: bit 0, whether there is one; bits 10:4, its waves; bits 22:16, those that have come.

    Source: Linux, cwsr_trap_handler_gfx12.asm, BARRIER_STATE_*. A workgroup of one wave has none (inferred from the
    RDNA4 ISA document, where its barriers do nothing).
    """
    refuse_other_barriers(ctx)
    write = scalar_write(ctx, ctx.inst.fields["sdst"])

    def run(b: Batch) -> None:
        residents, groups = b.residents, b.groups
        waves, came = residents.alive[groups], residents.arrived[groups]
        state = np.where(residents.waves_per_group > 1, came << 16 | waves << 4 | 1, 0)
        write(b, state.astype(np.uint32))

    return run


def refuse_other_barriers(ctx: Context) -> None:
    """Raises IllegalOperation for a barrier that is not the workgroup's: RDNA4 has no others for kernels."""
    number = ctx.inst.fields["ssrc0"]
    if number != WORKGROUP_BARRIER:
        raise ctx.refuse(f"barrier {number} is not emulated; -1 is the workgroup's")


def condition(ctx: Context, name: str) -> Callable[[Batch], Array]:
    """(wave,) booleans: take the branch."""
    kind = name[len("s_cbranch_") :]
    if kind == "scc0":
        return lambda b: ~b.scc
    if kind == "scc1":
        return lambda b: b.scc
    register = VCC if kind.startswith("vcc") else EXEC
    if kind.endswith("nz"):
        return lambda b: b.any_bit(register)
    return lambda b: ~b.any_bit(register)


def branch(decide: Callable[[Batch], Array], taken: int, not_taken: int) -> Callable[[Batch], list[Batch]]:
    """A step after which waves are at one of two places; the batch parts when they differ."""

    def run(b: Batch) -> list[Batch]:
        goes = decide(b)
        if goes.all():
            b.pc = taken
            return [b]
        if not goes.any():
            b.pc = not_taken
            return [b]
        jumps, stays = b.take(goes), b.take(~goes)
        jumps.pc, stays.pc = taken, not_taken
        jumps.turn = stays.turn = b.turn
        return [jumps, stays]

    return run


def half_wave_loop(ctx: Context) -> Callable[[Batch], list[Batch]]:
    """A loop that runs once for the lower lanes of a wave, then for the upper ones, if any of them is on.

    Its SGPR keeps the other half of EXEC meanwhile. Source: RDNA ISA documents. A half without lanes is left out.
    """
    inst = ctx.inst
    register, target, begins = inst.fields["sdst"], branch_target(inst), inst.name.endswith("begin")
    kept, write = scalar32(ctx, register), scalar_write(ctx, register)
    write_exec = scalar_write(ctx, EXEC, 2)

    def run(b: Batch) -> list[Batch]:
        if ctx.wave_size != 64:
            raise ctx.refuse("waves of 32 lanes have no halves")
        halves = b.s[:, EXEC : EXEC + 2].astype(np.uint64)
        low, high, other = halves[:, 0], halves[:, 1] << np.uint64(32), kept(b).astype(np.uint64)
        if begins:
            goes = (low == 0) & (high == 0)
            both = low != 0
            write(b, np.where(both, high >> np.uint64(32), low).astype(np.uint32))
            write_exec(b, np.where(both, low, high))
        else:
            second, goes = high != 0, (high == 0) & (other != 0)
            write(b, np.where(goes, low, other).astype(np.uint32))
            write_exec(b, np.where(second, high | other, np.where(goes, other << np.uint64(32), low)))
        return branch(lambda _: goes, target, inst.next_pc)(b)

    return run


def split_by(b: Batch, values: Array) -> list[tuple[Batch, int]]:
    """One batch for every different value."""
    different = np.unique(values)
    if len(different) == 1:
        return [(b, int(different[0]))]
    parts = [(b.take(values == value), int(value)) for value in different]
    for part, _ in parts:
        part.turn = b.turn
    return parts


def indirect(ctx: Context) -> Callable[[Batch], list[Batch]]:
    """s_setpc and s_swappc: to the address in a register pair."""
    target = scalar64(ctx, ctx.inst.fields["ssrc0"])
    link = scalar_write(ctx, ctx.inst.fields["sdst"], 2) if ctx.inst.name == "s_swappc_b64" else None

    def run(b: Batch) -> list[Batch]:
        where = target(b).copy()
        if link is not None:
            link(b, np.full(b.waves, ctx.inst.next_pc, np.uint64))
        out = []
        for part, pc in split_by(b, where):
            part.pc = pc
            out.append(part)
        return out

    return run


# -- hardware registers -----------------------------------------------------------------------------------------------
def register_field(inst: Instruction) -> tuple[int, int, int]:
    """(register, offset, size) from the immediate of s_getreg and s_setreg."""
    simm = inst.fields["simm16"]
    return simm & 63, simm >> 6 & 31, (simm >> 11 & 31) + 1


def writes_mode(inst: Instruction) -> bool:
    """Whether it may change MODE, for which code is compiled anew."""
    return inst.name in ("s_setreg_b32", "s_setreg_imm32_b32") and register_field(inst)[0] == MODE_REGISTER


def mode_change(ctx: Context) -> Callable[[Batch], list[Batch]]:
    """The step of an instruction that writes MODE; waves with different modes part."""
    inst = ctx.inst
    if inst.name == "s_round_mode":
        offset, size = 0, 4
    elif inst.name == "s_denorm_mode":
        offset, size = 4, 4
    else:
        _, offset, size = register_field(inst)
    mask = ((1 << size) - 1) << offset & (MODE_BITS_RDNA4 if ctx.is_gfx12 else MODE_BITS)
    source = scalar32(ctx, inst.fields["sdst"]) if inst.name == "s_setreg_b32" else None
    constant = inst.literal if inst.name == "s_setreg_imm32_b32" else inst.fields.get("simm16", 0)

    def run(b: Batch) -> list[Batch]:
        values = np.full(b.waves, constant, np.uint32) if source is None else source(b)
        out = []
        for part, value in split_by(b, values):
            part.mode = (part.mode & ~mask) | (value << offset & mask)
            part.pc = inst.next_pc
            out.append(part)
        return out

    return run


def compile_control(ctx: Context) -> Step | None:
    """Instructions of the control formats that do not close a block, or None when scalar_ops.py has them."""
    inst = ctx.inst
    name = inst.name
    if name in NO_EFFECT or name == "s_trap":
        return lambda b: None
    if name == "s_getpc_b64":
        link = scalar_write(ctx, inst.fields["sdst"], 2)
        return lambda b: link(b, np.full(b.waves, inst.next_pc, np.uint64))
    if name == "s_getreg_b32":
        return get_register(ctx)
    if name in ("s_setreg_b32", "s_setreg_imm32_b32"):
        return set_register(ctx)
    if name == "s_get_barrier_state":
        return barrier_state(ctx)
    if name in ("s_sendmsg_rtn_b32", "s_sendmsg_rtn_b64"):
        words = 2 if name.endswith("b64") else 1
        if inst.fields["ssrc0"] != 131:
            raise ctx.refuse(f"message {inst.fields['ssrc0']} has no answer here; 131 is the clock")
        write = scalar_write(ctx, inst.fields["sdst"], words)
        dtype = np.uint64 if words == 2 else np.uint32
        return lambda b: write(b, np.full(b.waves, clock() & (2 ** (32 * words) - 1), dtype))
    return None


def flat_scratch_registers(ctx: Context) -> dict[int, int]:
    """gfx10's FLAT_SCR_LO and HI: number -> the scalar register in whose place it is kept here."""
    return {20: ctx.isa.flat_scratch, 21: ctx.isa.flat_scratch + 1} if ctx.isa.generation == 10 else {}


def set_register(ctx: Context) -> Step:
    """s_setreg: of what does not close a block only FLAT_SCR_LO and HI have a meaning here."""
    inst = ctx.inst
    number, offset, size = register_field(inst)
    place = flat_scratch_registers(ctx).get(number)
    if place is None:
        return lambda b: None
    old, write = scalar32(ctx, place), scalar_write(ctx, place)
    literal = np.uint32(inst.literal or 0)
    read = scalar32(ctx, inst.fields["sdst"]) if inst.name == "s_setreg_b32" else None
    mask = np.uint32((1 << size) - 1 << offset & 0xFFFFFFFF)

    def run(b: Batch) -> None:
        value = (np.full(b.waves, literal) if read is None else read(b)) << np.uint32(offset)
        write(b, value & mask | old(b) & ~mask)

    return run


def get_register(ctx: Context) -> Step:
    """MODE, the shader clock, places of a wave, apertures; other hardware registers read 0 where that is true."""
    register, offset, size = register_field(ctx.inst)
    write = scalar_write(ctx, ctx.inst.fields["sdst"])
    mask = (1 << size) - 1
    gfx9 = ctx.is_gfx9
    readers: dict[int, Callable[[Batch], Array]] = {
        MODE_REGISTER: lambda b: np.full(b.waves, b.mode, np.uint32),
        2: lambda b: np.zeros(b.waves, np.uint32),  # STATUS: no exceptions
        3: lambda b: np.zeros(b.waves, np.uint32),  # TRAPSTS: none
        20: lambda b: np.zeros(b.waves, np.uint32),  # gfx942 XCC_ID; gfx11 FLAT_SCR_LO: scratch starts at 0
        21: lambda b: np.zeros(b.waves, np.uint32),
        **{number: scalar32(ctx, place) for number, place in flat_scratch_registers(ctx).items()},
        29: lambda b: np.full(b.waves, time.perf_counter_ns() & 0xFFFFF, np.uint32),
        4 if gfx9 else 23: lambda b: b.ids.astype(np.uint32),
    }
    if not ctx.is_gfx12:  # SH_MEM_BASES: of the private and of the shared aperture, the upper 16 bits of each
        readers[15] = lambda b: np.full(b.waves, SHARED_APERTURE | PRIVATE_APERTURE >> 16, np.uint32)
    if ctx.is_gfx12:  # the clock has two words there
        readers[29] = lambda b: np.full(b.waves, time.perf_counter_ns() & 0xFFFFFFFF, np.uint32)
        readers[30] = lambda b: np.full(b.waves, time.perf_counter_ns() >> 32 & 0xFFFFFFFF, np.uint32)
    read = readers.get(register)
    if read is None:
        raise ctx.refuse(f"hardware register {register} is not emulated")
    return lambda b: write(b, (read(b) >> np.uint32(offset)) & np.uint32(mask))
