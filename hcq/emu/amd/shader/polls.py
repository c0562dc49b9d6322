"""Polls: loads of LDS that wait for another wave, which an instruction set does not tell from other loads.

In       a program
Out      the places of loads that do nothing but wait
Next     checks.py (who asks), race_steps.py (who tells), hcq/emu/shader/shared_races.py (what a poll orders),
         memory_order.py (global memory, where bits tell)

An atomic load of LDS is one like any other. One that a block repeats until it ends, from an address that the block
does not change, and that nothing else in the block can change, is there to see what another wave stores.
"""

from __future__ import annotations

from hcq.emu.amd.shader.control import branch_target
from hcq.emu.amd.shader.field_registers import VECTORS, use_of
from hcq.emu.amd.shader.isa import Instruction
from hcq.emu.amd.shader.program import Program

LOADS = ("ds_read_", "ds_load_")
TOUCH = ("DS", "FLAT", "GLOBAL", "SCRATCH", "MUBUF", "MTBUF", "SMEM")  # formats of what touches memory


def polls_of(program: Program) -> frozenset[int]:
    """The places of such loads, in blocks that branch to their own beginning."""
    found: set[int] = set()
    for pc, inst in list(program.instructions.items()):
        if not inst.name.startswith("s_cbranch_") or branch_target(inst) > pc:
            continue
        block = _block(program, branch_target(inst), pc)
        touching = [one for one in block if one.format in TOUCH]
        if touching and all(one.name.startswith(LOADS) for one in touching):
            written = {number for one in block for number in _written(program, one)}
            found |= {one.pc for one in touching if VECTORS + one.fields["addr"] not in written}
    return frozenset(found)


def _block(program: Program, start: int, end: int) -> list[Instruction]:
    """The instructions from one address to another; none where others branch to between them."""
    found: list[Instruction] = []
    pc = start
    while pc <= end and pc in program.instructions and (pc == start or pc not in program.leaders):
        found.append(program.instructions[pc])
        pc = found[-1].next_pc
    return found if pc > end else []


def _written(program: Program, inst: Instruction) -> list[int]:
    parts = use_of(inst, program.wave_size, not program.isa.has_sdwa).writes
    return [number for part in parts for number in part.registers]
