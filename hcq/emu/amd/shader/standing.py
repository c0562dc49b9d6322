"""Standing: where the waves of a dispatch are, in which lanes, and what they wait for. For reports.

In       a Machine between two blocks, or in the middle of one that a fault ended
Out      `waves_of`: a record for all waves that are alike
Next     machine.py (who calls), hcq/events/waves.py (the record), memory_ops.py and scalar_memory_ops.py (addresses)

A wave that waits for another does so in one of two ways: at a barrier, or in a loop that reads memory and stores
nothing. Such a loop is found in the code: a way from here back to here.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from hcq.emu.amd.shader.control import direct_targets
from hcq.emu.amd.shader.errors import ShaderFault
from hcq.emu.amd.shader.isa import Instruction
from hcq.emu.amd.shader.memory_ops import address_of
from hcq.emu.amd.shader.operands import Context, Mode, scalar64
from hcq.emu.amd.shader.program import Program
from hcq.emu.amd.shader.scalar_memory_ops import offset_of
from hcq.emu.amd.shader.waves import Batch
from hcq.errors import UsageError
from hcq.events.waves import Wave, active_text, groups_text

if TYPE_CHECKING:
    from hcq.emu.amd.shader.machine import Machine

LONGEST_LOOP = 512  # instructions that are looked at for a way back
ADDRESSES_SHOWN = 4  # of a loop's loads
BARRIER_BYTES = 4  # s_barrier and s_barrier_wait: a waiting wave is behind it


def waves_of(machine: Machine, fault_pc: int = 0) -> tuple[Wave, ...]:
    """All waves that have not ended, those that are alike together; those that run first.

    fault_pc   of the instruction that stopped the batch which was running; 0: none did
    """
    found: list[Wave] = []
    stepping = machine.stepping
    if stepping is not None:
        found += _alike(machine, stepping, fault_pc or stepping.pc, "", is_stopped=bool(fault_pc))
    for b in machine.ready:
        if b is not stepping:
            found += _alike(machine, b, b.pc, "")
    residents = machine.residents
    for b in machine.waiting:
        here = np.bincount(
            residents.group_of[np.concatenate([one.ids for one in machine.waiting])],
            minlength=len(residents.alive),
        )
        for counts in sorted({(int(here[g]), int(residents.alive[g])) for g in b.groups}):
            chosen = (here[b.groups] == counts[0]) & (residents.alive[b.groups] == counts[1])
            waits = f"the barrier of its workgroup: {counts[0]} of {counts[1]} waves are there"
            found += _alike(machine, b.take(chosen), b.pc - BARRIER_BYTES, waits)
    return tuple(found)


def _alike(machine: Machine, b: Batch, pc: int, waits_for: str, is_stopped: bool = False) -> Iterator[Wave]:
    """The waves of a batch by the lanes that are on."""
    masks: dict[int, list[int]] = defaultdict(list)
    size = b.residents.wave_size
    bits = np.packbits(b.lanes.reshape(b.waves, size), axis=1, bitorder="little")
    for number, row in enumerate(bits):
        masks[int.from_bytes(row.tobytes(), "little")].append(number)
    try:
        text = machine.program.text(pc)
    except ShaderFault:
        text = "no instruction that is known here"
    for mask, numbers in sorted(masks.items(), key=lambda one: -len(one[1])):
        spins = () if waits_for or is_stopped else _spins_on(machine.program, b.take(np.array(numbers)))
        groups = groups_text(b.residents.group_ids[b.ids[numbers]].tolist())
        active = active_text(mask, size, "exec")
        yield Wave("wave", len(numbers), groups, pc, "", text, active, waits_for, spins)


def _spins_on(program: Program, b: Batch) -> tuple[int, ...]:
    """The addresses that a loop around here reads, when it stores nothing; () when there is no such loop."""
    loop = loop_at(program, b.pc)
    if any("store" in one.name for one in loop):
        return ()
    found: dict[int, None] = {}
    for one in loop:
        found.update(dict.fromkeys(_addresses(program, one, b)))
    return tuple(found)[:ADDRESSES_SHOWN]


def loop_at(program: Program, start: int) -> list[Instruction]:
    """The instructions of the shortest way from an address back to it; [] when there is none among those decoded."""
    ways: list[tuple[int, list[Instruction]]] = [(start, [])]
    seen = {start}
    while ways:
        pc, way = ways.pop(0)
        way = way.copy()
        while (inst := program.instructions.get(pc)) is not None and len(way) < LONGEST_LOOP:
            way.append(inst)
            targets = direct_targets(inst)
            if start in targets:
                return way
            if targets != [inst.next_pc]:
                ways += [(target, way) for target in targets if target not in seen]
                seen.update(targets)
                break
            pc = inst.next_pc
    return []


def _addresses(program: Program, inst: Instruction, b: Batch) -> list[int]:
    """Where an instruction of a loop reads, by the registers as they are now; [] when it reads nothing."""
    ctx = Context(program.isa, inst, Mode(b.mode), program.wave_size, program.acc_offset)
    try:
        if inst.name.startswith(("s_load", "s_atomic")):
            every = scalar64(ctx, 2 * inst.fields["sbase"])(b) + offset_of(ctx)(b)
        elif inst.format in ("GLOBAL", "FLAT") and ("load" in inst.name or "atomic" in inst.name):
            addresses = np.broadcast_to(address_of(ctx)(b), b.lanes.shape)
            every = addresses[b.lanes]
        else:
            return []
    except (ShaderFault, UsageError, KeyError, IndexError):  # a form that has no such address
        return []
    return [int(address) for address in np.unique(every)[:ADDRESSES_SHOWN]]
