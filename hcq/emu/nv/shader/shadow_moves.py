"""Shadows that move: of instructions that put bits of their sources elsewhere, in one thread or among those of a warp.

In       the Code of such an instruction, and its own step
Out      `moved`: what it makes of shadows; None: what it writes is written
Next     shadow_results.py (instructions that compute), shadows.py (where shadows are), init_steps.py (who asks)

The step itself is run once more, with shadows in the place of the sources whose bits it moves. What says where they go
(a selector, a lane, a position) keeps its value; where that is unwritten, so is the whole result. A shuffle from a
thread that does not execute it gives what nobody wrote.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from hcq.emu.nv.shader.decode import Code, Lowering, Registers, Step
from hcq.emu.nv.shader.flow import reads_and_writes, registers_of
from hcq.emu.nv.shader.groups import Group
from hcq.emu.nv.shader.shadows import Follow, Unwritten
from hcq.emu.nv.shader.syntax import Immediate, Operand, Register
from hcq.emu.nv.shader.types import Lanes
from hcq.emu.shader import shadow_bits
from hcq.emu.shader.unwritten import Read

# opcode -> the operands whose bits it moves
MOVES = {
    "shfl": (1,),
    "prmt": (1, 2),
    "bfe": (1,),
    "bfi": (1, 2),
    "shf": (1, 2),
    "brev": (1,),
    "mov": (1,),
    "vote": (1,),
}


def moved(code: Code, lowering: Lowering, step: Step) -> Follow | None:
    """An instruction that moves bits. step: its own, which tells nobody."""
    one = code.instruction
    places = MOVES.get(one.opcode)
    if places is None or (one.opcode == "vote" and "ballot" not in one.modifiers):
        return None
    if not all(_moves(one.operands[place]) for place in places):
        return None
    data = _slots(lowering, [one.operands[place] for place in places])
    _, written = reads_and_writes(one)
    targets = [slot for name in written if (slot := lowering.register(name)) is not None]
    targets = [slot for slot in targets if lowering.decoded.first[slot].dtype.kind == "u"]
    controls = _slots(lowering, [x for at, x in enumerate(one.operands) if at and at not in places])
    if not targets or set(data) & set(controls):
        return None

    def follow(
        unwritten: Unwritten, registers: Registers, group: Group
    ) -> list[tuple[int, Any, Read | None]]:
        known_controls = [known for slot in controls if (known := unwritten.of(slot)) is not None]
        decides = next((known for known in known_controls if _of_group(known[0], group).any()), None)
        if decides is not None:
            dtypes = [registers[slot].dtype for slot in targets]
            return [
                (slot, shadow_bits.whole(decides[0], dtype), decides[1])
                for slot, dtype in zip(targets, dtypes)
            ]
        origin = next((known[1] for slot in data if (known := unwritten.of(slot)) is not None), None)
        absent = ~group.full_mask if one.opcode == "shfl" and group.mask is not None else None
        if origin is None and (absent is None or not data or not absent.any()):
            return []
        shadows = list(registers)
        for slot in (*targets, *data):
            known = unwritten.of(slot)
            shadows[slot] = np.zeros(1, registers[slot].dtype) if known is None else known[0]
        if absent is not None and data:
            shadows[data[0]] = np.where(absent, np.uint32(0xFFFFFFFF), shadows[data[0]])
            origin = origin or Read(
                "register", name=f"{one.operands[1]} of a thread that takes no part in {one}"
            )
        step(shadows, group)
        return [(slot, shadows[slot], origin) for slot in targets]

    return follow


def _of_group(shadow: Lanes, group: Group) -> Lanes:
    """Of the threads that execute."""
    return shadow if len(shadow) == 1 or group.mask is None else shadow[group.mask]


def _moves(operand: Operand) -> bool:
    """Whether its bits are moved as they are. Of numbers 0 alone is its own shadow."""
    if isinstance(operand, Register):
        return not operand.negated and not operand.part and not operand.minus
    return operand.value == 0 if isinstance(operand, Immediate) else bool(registers_of(operand))


def _slots(lowering: Lowering, operands: list[Operand]) -> list[int]:
    names = [name for operand in operands for name in registers_of(operand)]
    return [slot for name in names if (slot := lowering.register(name)) is not None]
