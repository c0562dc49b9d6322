"""Steps that tell who comes to barriers and to instructions of a warp, where faults of synchronization are looked for.

In       a decoded block; then the groups of threads that run it
Out      the block with steps that tell: `synchronized`
Changes  the SyncFaults of the batch; no register, no memory
Next     sync_faults.py (what comes of it), control.py (the barriers), warp_ops.py (the instructions of a warp)
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from hcq.emu.nv.shader import spaces
from hcq.emu.nv.shader.clusters import exits_of
from hcq.emu.nv.shader.decode import Code, DecodedBlock, Lowering, Registers, Step
from hcq.emu.nv.shader.flow import BasicBlock, is_warp_barrier
from hcq.emu.nv.shader.groups import Group
from hcq.emu.nv.shader.mbarrier_ops import OBJECT_BYTES, is_wait
from hcq.emu.nv.shader.memory_ops import address_of, of_lanes
from hcq.emu.nv.shader.paths import Path
from hcq.emu.nv.shader.syntax import Address, Instruction, TensorAddress
from hcq.emu.nv.shader.types import TYPES

ORDERING = {"acquire", "release", "acq_rel", "volatile"}
MASKED = ("shfl", "vote", "match", "redux", "elect")
End = Callable[[Any, Registers, Any], int]
U32, B32 = TYPES["u32"], TYPES["b32"]


def synchronized(lowering: Lowering, block: BasicBlock, made: DecodedBlock) -> None:
    """Put before the steps of a block, and before its end, what tells of them."""
    if block.body and block.body[0].opcode in MASKED and "sync" in block.body[0].modifiers:
        made.steps[0] = _masked(lowering, block.body[0], made.steps[0])
    made.steps[:] = [_in_cluster(lowering, one, step) for one, step in zip(block.body, made.steps)]
    if block.end is not None and made.end is not None and block.end.opcode in ("bar", "barrier"):
        made.end = _met(lowering, block.end, made.end)


def _masked(lowering: Lowering, instruction: Instruction, step: Step) -> Step:
    code = Code(lowering, instruction)
    slot, line = code.source(len(code.operands) - 1, B32), instruction.line

    def told(registers: Registers, group: Group) -> None:
        faults = group.batch.sync_faults
        if faults is not None:
            lanes = group.lanes
            faults.masked(group.batch.every_lane if lanes is None else lanes, registers[slot], line)
        step(registers, group)

    return told


def _in_cluster(lowering: Lowering, instruction: Instruction, step: Step) -> Step:
    """Around what touches memory, and what orders: for blocks of a cluster that end too early."""
    opcode, words = instruction.opcode, set(instruction.modifiers)
    code = Code(lowering, instruction)
    places = [one for one in code.operands if isinstance(one, (Address, TensorAddress))]
    is_fence = opcode in ("fence", "membar") or bool(ORDERING & words)
    is_object = opcode == "mbarrier" and bool(places)
    if not places and not is_fence:
        return step
    select, line = code.select(), instruction.line
    waits, at_of = is_wait(instruction), address_of(code, places[0]) if is_object else None

    def told(registers: Registers, group: Group) -> None:
        batch = group.batch
        exits = exits_of(batch)
        if exits is None:
            step(registers, group)
            return
        exits.line = line
        step(registers, group)
        chosen = select(registers, group)
        lanes = batch.every_lane if chosen is None else chosen
        if at_of is not None and len(lanes):
            at = spaces.shared_address(batch, of_lanes(at_of(registers), chosen, batch.count))
            objects = spaces.places_of(batch, lanes, at, OBJECT_BYTES)
            (exits.acquire if waits else exits.release)(batch.local_row[lanes], objects)
        elif is_fence:
            exits.fence(batch.local_row[lanes])

    return told


def _met(lowering: Lowering, instruction: Instruction, end: End) -> End:
    code, line = Code(lowering, instruction), instruction.line
    if is_warp_barrier(instruction):
        slot = code.source(0, B32)

        def of_warp(machine: Any, registers: Registers, path: Path) -> int:
            faults = machine.batch.sync_faults
            if faults is not None:
                lanes = path.lanes
                faults.masked(path.batch.every_lane if lanes is None else lanes, registers[slot], line)
            return end(machine, registers, path)

        return of_warp
    modifiers = instruction.modifiers
    if "cluster" in modifiers:
        return end
    is_aligned = instruction.opcode == "bar" or "aligned" in modifiers
    first = 1 if "red" in modifiers else 0
    last = len(code.operands) - 1 - first
    number = code.source(first, U32)
    count = code.source(last, U32) if last > first else None

    def of_block(machine: Any, registers: Registers, path: Path) -> int:
        faults = machine.batch.sync_faults
        if (
            faults is not None
            and len(registers[number]) == 1
            and (count is None or len(registers[count]) == 1)
        ):
            which = int(registers[number][0])
            barrier = machine.barriers.get(which)
            is_open = barrier is not None and bool((barrier.arrived * path.per_block()).any())
            if is_aligned and is_open:
                faults.aligned(path.full_mask, barrier.here, which, line)
            given = 0 if count is None else int(registers[count][0])
            together = int(path.per_block().max(initial=0))
            faults.counted(int(np.argmax(path.full_mask)), which, given, is_open, line, together)
        return end(machine, registers, path)

    return of_block
