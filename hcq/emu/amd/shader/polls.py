"""Polls: loads of LDS that wait for another wave, which an instruction set does not tell from other loads.

In       the instructions of a block
Out      the places of loads that do nothing but wait
Changes  nothing
Next     race_steps.py (who asks), hcq/emu/shader/shared_races.py (what a poll orders), memory_order.py (global memory,
         where bits tell)

An atomic load of LDS is one like any other. One that a block repeats until it ends, from an address that the block
does not change, and that nothing else in the block can change, is there to see what another wave stores.
"""

from __future__ import annotations

from hcq.emu.amd.shader.control import branch_target
from hcq.emu.amd.shader.field_registers import VECTORS, use_of
from hcq.emu.amd.shader.operands import Context

LOADS = ("ds_read_", "ds_load_")
TOUCH = ("DS", "FLAT", "GLOBAL", "SCRATCH", "MUBUF", "MTBUF", "SMEM")  # formats of what touches memory


def polls_of(instructions: list[Context]) -> set[int]:
    """The places of such loads in a block, which ends with its last instruction."""
    last = instructions[-1].inst if instructions else None
    if last is None or not last.name.startswith("s_cbranch_") or branch_target(last) != instructions[0].inst.pc:
        return set()
    touching = [one for one in instructions if one.inst.format in TOUCH]
    if not touching or not all(one.inst.name.startswith(LOADS) for one in touching):
        return set()
    written = {
        number
        for one in instructions
        for part in use_of(one.inst, one.wave_size, not one.is_gfx9).writes
        for number in part.registers
    }
    return {one.inst.pc for one in touching if VECTORS + one.inst.fields["addr"] not in written}
