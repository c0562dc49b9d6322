"""Steps that tell which registers loads fill, what waits, and which registers are used, where waits are looked for.

In       instructions as a program compiles them; then the batches of waves that run them
Out      `Waiting`: steps around those of the program
Changes  the RegisterWaits of the resident waves; no register, no memory
Next     register_waits.py (what comes of it), register_uses.py (what an instruction uses), lds_wait_steps.py (the same
         for LDS), hazards.py (instructions that follow each other too soon), race_steps.py (the sister)
Source   RDNA2, RDNA3, RDNA4, CDNA2 and CDNA3 ISA documents: fields of s_waitcnt, counters; LLVM 22,
         SIInsertWaitcnts.cpp: no invalidation of caches counts before gfx12, where global_inv counts in loadcnt

Between two instructions that issue something, wait, or change EXEC, the registers of all are looked up at once; one by
one only when something is under way to one of them.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from hcq.emu.amd.shader.arrays import Array, pack_lanes
from hcq.emu.amd.shader.hazards import Before
from hcq.emu.amd.shader.isa import Instruction, wait_counts
from hcq.emu.amd.shader.lds_wait_steps import lds_access
from hcq.emu.amd.shader.memory_ops import INVALIDATES, LOWEST_APERTURE, OTHER_CACHES, address_of, only_stores
from hcq.emu.amd.shader.operands import SHARED_APERTURE, Context, Step
from hcq.emu.amd.shader.register_uses import uses_of
from hcq.emu.amd.shader.register_waits import FLAT, LDS, MEMORY, SCALAR, Hazard, RegisterWaits, Waited
from hcq.emu.amd.shader.registers import EXEC, Uses
from hcq.emu.amd.shader.scalar_memory_ops import CACHE_ONLY
from hcq.emu.amd.shader.waves import Batch

NONE = np.zeros(0, np.int64)
VECTOR_MEMORY = ("FLAT", "GLOBAL", "SCRATCH", "MUBUF")
NOT_COUNTED = INVALIDATES | OTHER_CACHES | {"ds_nop"}


@dataclass
class _Segment:
    """Instructions in a row that neither issue, wait nor change EXEC. filled: what any load of the program fills."""

    filled: set[int]
    uses: list[tuple[Uses, int]] = field(default_factory=list)
    known: tuple[int, Array] = (-1, NONE)

    def look(self, b: Batch) -> None:
        """Their registers, as the batch is about to run them."""
        if not self.uses or b.answer is not None:
            return
        size, registers = self.known
        if size != len(self.filled):
            every = {one for uses, _ in self.uses for one in uses.all}
            registers = np.array(sorted(every & self.filled), np.int64)
            self.known = len(self.filled), registers
        if not len(registers):
            return
        waits = _waits(b)
        if waits.pending(registers, b.ids).any():
            for uses, place in self.uses:
                waits.used(b.ids, lane_bits(b), uses, place)


class Waiting:
    """Makes the steps of one program tell. Their batches belong to Residents that have `waits`."""

    def __init__(self) -> None:
        self.filled: set[int] = set()
        self.before = Before()
        self.behind: dict[
            int, _Segment
        ] = {}  # by the identity of a Context: what follows it, until `head` knows

    def around(self, ctx: Context, step: Step) -> Step:
        """The step of an instruction that issues, waits or changes EXEC; others stay as they are."""
        uses = uses_of(ctx)
        waited, queue = waited_by(ctx.inst, ctx.isa.generation), queue_of(ctx)
        changes_exec = EXEC in uses.writes or EXEC + 1 in uses.writes
        if waited is None and queue is None and not changes_exec:
            return step
        place = ctx.inst.pc
        behind = self.behind[id(ctx)] = _Segment(self.filled)
        issue = None if queue is None else self._issue(ctx, uses, queue)
        access = lds_access(ctx)

        def told(b: Batch) -> None:
            if b.answer is not None:  # a guess of retry.py issues nothing
                step(b)
                return
            waits = _waits(b)
            if waited is not None:
                waits.wait(b.ids, waited)
            else:
                waits.used(b.ids, lane_bits(b), uses, place, queue)
            if issue is not None:
                issue(b)
            if access is not None:
                access(b)
            step(b)
            behind.look(b)

        return told

    def _issue(self, ctx: Context, uses: Uses, queue: int) -> Step:
        place, registers = ctx.inst.pc, np.array(uses.writes, np.int64)
        self.filled |= set(uses.writes)
        if ctx.inst.format == "FLAT":
            return _flat(ctx, registers)
        if queue == SCALAR:
            every = np.uint64(0xFFFFFFFFFFFFFFFF)
            return lambda b: _waits(b).issue(b.ids, SCALAR, registers, place, every)
        return lambda b: _waits(b).issue(b.ids, queue, registers, place, lane_bits(b))

    def head(self, instructions: list[Context]) -> Step | None:
        """What looks at the registers of a block's first instructions."""
        first = segment = _Segment(self.filled)
        for ctx in instructions:
            behind = self.behind.get(id(ctx))
            if behind is not None:
                segment = behind
                continue
            uses = uses_of(ctx)
            if uses.all:
                segment.uses.append((uses, ctx.inst.pc))
        self.behind.clear()
        if not instructions:
            return first.look if first.uses else None
        coming: dict[int, tuple[list[Hazard], int]] = {}  # by what a wave ran before

        def look(b: Batch) -> None:
            first.look(b)
            if b.answer is not None:
                return
            waits = _waits(b)
            numbers = waits.ran_last[b.ids]
            for number in np.unique(numbers).tolist():
                if number not in coming:
                    coming[number] = self.before.then(number, instructions)
                hazards, after = coming[number]
                which = b.ids[numbers == number]
                waits.ran_last[which] = after
                if hazards:
                    waits.follow_too_soon(which, hazards)

        return look


def queue_of(ctx: Context) -> int | None:
    """The queue that an instruction's result comes by; None for one that counts where no register is waited for."""
    inst = ctx.inst
    name, form = inst.name, inst.format
    if name.startswith(("s_sendmsg_rtn", "s_get_barrier_state")):
        return SCALAR
    if form == "SMEM":
        return None if name in CACHE_ONLY else SCALAR
    if name == "global_inv":
        return MEMORY
    if name in NOT_COUNTED:
        return None
    if form == "DS":
        return LDS
    if form not in VECTOR_MEMORY:
        return None
    if ctx.is_gfx9 or form == "FLAT":
        return MEMORY
    return None if only_stores(inst) else MEMORY


def waited_by(inst: Instruction, generation: int) -> Waited | None:
    """What an instruction waits for; None where it is no such wait."""
    name, bits = inst.name, inst.fields.get("simm16", 0)
    if name == "s_waitcnt":
        memory, lds = wait_counts(bits, generation)
        return Waited(memory, lds, lds)
    if name == "s_wait_idle":
        return Waited(0, 0, 0)
    found = {
        "s_waitcnt_vmcnt": Waited(memory=bits),
        "s_waitcnt_lgkmcnt": Waited(lds=bits, scalar=bits),
        "s_wait_loadcnt": Waited(memory=bits),
        "s_wait_dscnt": Waited(lds=bits),
        "s_wait_kmcnt": Waited(scalar=bits),
        "s_wait_loadcnt_dscnt": Waited(memory=bits >> 8 & 63, lds=bits & 63),
        "s_wait_storecnt_dscnt": Waited(lds=bits & 63),
    }
    return found.get(name)


def _flat(ctx: Context, registers: Array) -> Step:
    """A flat instruction: by where its lanes go it is one of memory, of LDS, or of both."""
    address, place = address_of(ctx), ctx.inst.pc
    counts_in_memory = ctx.is_gfx9 or len(registers) > 0

    def issue(b: Batch) -> None:
        at = np.broadcast_to(address(b), b.lanes.shape)
        inside = np.zeros(b.waves, np.bool_)
        outside = np.ones(b.waves, np.bool_)
        if int(at.max(initial=0)) >= LOWEST_APERTURE:
            is_shared = at >> np.uint64(32) == SHARED_APERTURE
            inside = (is_shared & b.lanes).any(axis=1)
            outside = ~inside | (~is_shared & b.lanes).any(axis=1)
        bits, waits = lane_bits(b), _waits(b)
        for queue, which in ((MEMORY, outside & ~inside), (LDS, inside & ~outside), (FLAT, inside & outside)):
            if which.any() and (queue != MEMORY or counts_in_memory):
                waits.issue(b.ids[which], queue, registers, place, bits[which])

    return issue


def lane_bits(b: Batch) -> Array:
    """(wave,) uint64: which lanes are on."""
    words = pack_lanes(b.lanes).astype(np.uint64)
    found: Array = words[:, 0] if words.shape[1] == 1 else words[:, 0] | words[:, 1] << np.uint64(32)
    return found


def _waits(b: Batch) -> RegisterWaits:
    found = b.residents.waits
    assert found is not None  # a program whose steps tell runs with one
    return found
