"""Steps that tell of copies, waits, fences and accesses to memory, where waits for copies are looked for.

In       a decoded block; then the groups of threads that run it
Out      the block with steps that tell: `waited`
Changes  the SharedWaits of the batch; no register, no memory
Next     shared_waits.py (what comes of it), bulk_moves.py (which tells of bulk copies), async_races.py (of matrices
         that are read), tcgen05_ops.py (of commits), race_steps.py (the sister)
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from hcq.emu.nv.shader import spaces
from hcq.emu.nv.shader.batch import WARP, Batch
from hcq.emu.nv.shader.counters import type_of
from hcq.emu.nv.shader.decode import Code, DecodedBlock, Lowering, Registers, Step
from hcq.emu.nv.shader.flow import BasicBlock
from hcq.emu.nv.shader.groups import Group
from hcq.emu.nv.shader.mbarrier_ops import is_wait, phases_at
from hcq.emu.nv.shader.memory_ops import address_of, of_lanes, take_space, vector_of
from hcq.emu.nv.shader.shared_waits import SharedWaits
from hcq.emu.nv.shader.syntax import Address, Immediate, Instruction
from hcq.emu.nv.shader.types import TYPES, Lanes
from hcq.emu.nv.shader.wmma_ops import MatrixAccess

STORES = {"ld": False, "ldu": False, "st": True, "atom": True, "red": True}
Look = Callable[[Registers, Group, SharedWaits], None]


def waited(lowering: Lowering, block: BasicBlock, made: DecodedBlock) -> None:
    """Put around the steps of a block what tells of them, in kernels that have asynchronous copies."""
    if not lowering.copies_by_itself:
        return
    made.steps = [_around(lowering, one, step) for one, step in zip(block.body, made.steps)]


def _around(lowering: Lowering, instruction: Instruction, step: Step) -> Step:
    look = _of(lowering, instruction)
    if look is None:
        return step
    is_behind = is_wait(instruction)

    def told(registers: Registers, group: Group) -> None:
        waits = group.batch.waits
        if waits is None:
            step(registers, group)
        elif is_behind:
            step(registers, group)
            look(registers, group, waits)
        else:
            look(registers, group, waits)
            step(registers, group)

    return told


def _of(lowering: Lowering, instruction: Instruction) -> Look | None:
    opcode, modifiers = instruction.opcode, instruction.modifiers
    code = Code(lowering, instruction)
    if opcode == "cp":
        return _copy(code)
    if opcode == "fence":
        return _fence(code) if modifiers[:2] == ("proxy", "async") else None
    if is_wait(instruction):
        return _mbarrier(code)
    if opcode in ("ldmatrix", "stmatrix"):
        return _rows(code)
    if opcode == "wmma" and modifiers[0] in ("load", "store"):
        return _fragment(code)
    if opcode not in STORES or "async" in modifiers:
        return None
    return _access(code)


def _access(code: Code) -> Look | None:
    places = [one for one in code.operands if isinstance(one, Address)]
    space = take_space(code)
    if not places or space not in ("", "shared", "global"):
        return None
    size = vector_of(code) * TYPES[type_of(code.instruction)].size_bytes
    at_of, select, line = address_of(code, places[0]), code.select(), code.instruction.line
    stores = STORES[code.instruction.opcode]

    def look(registers: Registers, group: Group, waits: SharedWaits) -> None:
        lanes = select(registers, group)
        at = of_lanes(at_of(registers), lanes, group.batch.count)
        who = _all(group, lanes)
        if waits.of_global.under_way and space != "shared":
            verb = "writes it" if stores else "reads it"
            waits.of_global.access(group.batch.local_row[who], at, size, line, verb)
        if space != "global":
            _tell(group.batch, waits, who, at, size, line, stores)

    return look


def _rows(code: Code) -> Look:
    """ldmatrix and stmatrix: the first 8, 16 or 32 threads of a warp name a row of 16 bytes each."""
    place = next(one for one in code.operands if isinstance(one, Address))
    stores, line = code.instruction.opcode == "stmatrix", code.instruction.line
    rows = 8 * int(code.take("x1", "x2", "x4")[1:] or 1)
    at_of = address_of(code, place)

    def look(registers: Registers, group: Group, waits: SharedWaits) -> None:
        batch = group.batch
        who = _all(group, group.lanes)
        who = who[batch.thread_of_lane[who] % WARP < rows]
        at = np.broadcast_to(at_of(registers), (batch.count,))[who]
        _tell(batch, waits, who, at, 16, line, stores)

    return look


def _fragment(code: Code) -> Look:
    kind = code.take("load", "store")
    code.flag("sync"), code.flag("aligned")
    operands = code.operands if kind == "store" else [code.operands[1], code.operands[0]]
    access = MatrixAccess(code, operands[0], operands[1])
    line = code.instruction.line

    def look(registers: Registers, group: Group, waits: SharedWaits) -> None:
        if access.space in ("", "shared"):
            who, at = access.addresses(registers, group)
            _tell(group.batch, waits, who, at, access.type.size_bytes, line, kind == "store")

    return look


def _copy(code: Code) -> Look | None:
    """cp.async and its groups, the bulk groups, an arrival that waits. Bulk copies themselves tell bulk_moves.py."""
    modifiers = code.instruction.modifiers
    is_bulk, line, select = "bulk" in modifiers, code.instruction.line, code.select()
    if "commit_group" in modifiers:
        return lambda registers, group, waits: (waits.bulk_commit if is_bulk else waits.commit)(
            _threads(group, select(registers, group))
        )
    if "wait_group" in modifiers:
        pending = code.operands[0]
        count = pending.value if isinstance(pending, Immediate) else 0
        if is_bulk:
            only_reads = "read" in modifiers
            return lambda registers, group, waits: waits.bulk_wait(
                _threads(group, select(registers, group)), count, only_reads
            )
        return lambda registers, group, waits: waits.wait(_threads(group, select(registers, group)), count)
    if "wait_all" in modifiers or ("mbarrier" in modifiers and not is_bulk):
        return lambda registers, group, waits: waits.wait(_threads(group, select(registers, group)), None)
    if is_bulk or not isinstance(code.operands[2], Immediate):
        return None
    at_of, size = address_of(code, code.operands[0]), code.operands[2].value
    source = address_of(code, code.operands[1])

    def look(registers: Registers, group: Group, waits: SharedWaits) -> None:
        batch, lanes = group.batch, select(registers, group)
        at = of_lanes(at_of(registers), lanes, batch.count)
        everyone = _all(group, lanes)
        if waits.of_global.under_way:
            there = of_lanes(source(registers), lanes, batch.count)
            waits.of_global.access(batch.local_row[everyone], there, size, line, "reads it")
        who, places = _in_shared(batch, everyone, at, size)
        waits.copy(batch.local_row[who], places, size, line)

    return look


def _fence(code: Code) -> Look:
    select = code.select()
    return lambda registers, group, waits: waits.fence(_threads(group, select(registers, group)))


def _mbarrier(code: Code) -> Look:
    """Behind the step: who asked, what for, and what the object says now."""
    at_of, select = address_of(code, code.operands[1]), code.select()
    found = code.predicate(code.operands[0])

    def look(registers: Registers, group: Group, waits: SharedWaits) -> None:
        batch, lanes = group.batch, select(registers, group)
        at = of_lanes(at_of(registers), lanes, batch.count)
        who, places = _in_shared(batch, _all(group, lanes), at, 8)
        over = np.broadcast_to(found(registers), (batch.count,))[who]
        waits.looked(batch.local_row[who], places, phases_at(batch, places), over)

    return look


def _all(group: Group, lanes: Lanes | None) -> Lanes:
    return group.batch.every_lane if lanes is None else lanes


def _threads(group: Group, lanes: Lanes | None) -> Lanes:
    """The numbers that these lanes have in the whole batch, of which the group's may be a part."""
    return group.batch.local_row if lanes is None else group.batch.local_row[lanes]


def _in_shared(batch: Batch, who: Lanes, at: Lanes, size: int) -> tuple[Lanes, Lanes]:
    """(lanes, places in the shared memory of the batch) of those whose address is in that of their block."""
    offsets = spaces.shared_address(batch, at.astype(np.uint64))
    if batch.clusters is not None:  # what is in that of another block is looked at by nobody
        offsets = offsets - batch.clusters.own(batch, who)
    inside = offsets + np.uint64(size) <= np.uint64(batch.shared_bytes)
    inside &= batch.thread_of_lane[who] < batch.threads_per_block
    who = who[inside]
    return who, offsets[inside].astype(np.int64) + batch.shared_start[who]


def _tell(
    batch: Batch, waits: SharedWaits, who: Lanes, at: Lanes, size: int, line: int, stores: bool
) -> None:
    who, places = _in_shared(batch, who, at, size)
    if len(who):
        waits.access(batch.local_row[who], places, size, line, stores)
