"""Steps that tell of every access to shared memory, for kernels whose races are looked for.

In       a decoded block; then the groups of threads that run it
Out      the block with steps that tell: `looked`
Changes  the SharedRaces of the batch; no register, no memory
Next     hcq/emu/shader/shared_races.py (what comes of it), counters.py (the same for counting), machine.py (barriers)

What bulk copies and matrix instructions of the async proxy move is not told. An mbarrier orders who arrives before who
waits.
"""

from __future__ import annotations

import numpy as np

from hcq.emu.nv.shader.batch import WARP, Batch
from hcq.emu.nv.shader.counters import type_of
from hcq.emu.nv.shader.decode import Code, DecodedBlock, Lowering, Registers, Step
from hcq.emu.nv.shader.flow import BasicBlock
from hcq.emu.nv.shader.groups import Group
from hcq.emu.nv.shader.memory_ops import address_of, of_lanes, take_space, vector_of
from hcq.emu.nv.shader.spaces import WINDOW_BYTES
from hcq.emu.nv.shader.syntax import Address, Immediate, Instruction, Operand
from hcq.emu.nv.shader.types import TYPES, Lanes
from hcq.emu.nv.shader.wmma_ops import MatrixAccess

KINDS = {"ld": "load", "ldu": "load", "st": "store", "atom": "atomic", "red": "atomic"}
TOGETHER = {"volatile", "relaxed", "acquire", "release", "mmio"}  # others may do the same at the same time
MBARRIER_BYTES = 8


def looked(lowering: Lowering, block: BasicBlock, made: DecodedBlock) -> None:
    """Put around the steps of a block what tells of their accesses."""
    made.steps = [_around(lowering, one, step) for one, step in zip(block.body, made.steps)]


def _around(lowering: Lowering, instruction: Instruction, step: Step) -> Step:
    look = _of(lowering, instruction)
    if look is None:
        return step

    def both(registers: Registers, group: Group) -> None:
        look(registers, group)
        step(registers, group)

    return both


def _of(lowering: Lowering, instruction: Instruction) -> Step | None:
    opcode, modifiers = instruction.opcode, instruction.modifiers
    places = [one for one in instruction.operands if isinstance(one, Address)]
    if not places:
        return None
    code = Code(lowering, instruction)
    if opcode in ("ldmatrix", "stmatrix"):
        return _rows(code, places[0])
    if opcode == "cp":
        return _copy(code, places[0]) if len(places) == 2 and "bulk" not in modifiers else None
    if opcode == "wmma":
        return _fragment(code)
    if opcode == "mbarrier":
        return _mbarrier(code, places[0])
    if opcode not in KINDS or "async" in modifiers:
        return None
    space = take_space(code)
    if space not in ("", "shared"):
        return None
    size = vector_of(code) * TYPES[type_of(instruction)].size_bytes
    at_of, select = address_of(code, places[0]), code.select()
    kind, line, together = KINDS[opcode], instruction.line, bool(TOGETHER & set(modifiers))

    def look(registers: Registers, group: Group) -> None:
        batch, lanes = group.batch, select(registers, group)
        at = of_lanes(at_of(registers), lanes, batch.count)
        who = batch.every_lane if lanes is None else lanes
        _tell(batch, kind, who, at, size, line, space == "shared", together)

    return look


def _tell(
    batch: Batch,
    kind: str,
    who: Lanes,
    at: Lanes,
    size: int,
    line: int,
    is_shared: bool,
    is_atomic: bool = False,
) -> None:
    """Of these lanes. is_shared: the addresses are in shared memory; else some may be, which their windows say."""
    if not is_shared:
        offsets = at.astype(np.uint64) - np.uint64(batch.shared_window)
        inside = offsets < np.uint64(WINDOW_BYTES)
        if not inside.any():
            return
        who, at = who[inside], offsets[inside]
    races = batch.races
    assert races is not None  # a kernel whose steps look runs with them
    thread = batch.thread_of_lane[who]
    live = thread < batch.threads_per_block
    if not live.all():
        who, at, thread = who[live], at[live], thread[live]
    warps = batch.block_of_lane[who] * races.warps + thread // WARP
    races.access(kind, warps, thread % WARP, at, size, line, is_atomic)


def _rows(code: Code, place: Operand) -> Step:
    """ldmatrix and stmatrix: the first 8, 16 or 32 threads of a warp name a row of 16 bytes each."""
    kind = "load" if code.instruction.opcode == "ldmatrix" else "store"
    rows = 8 * int(code.take("x1", "x2", "x4")[1:] or 1)
    at_of, line = address_of(code, place), code.instruction.line

    def look(registers: Registers, group: Group) -> None:
        batch = group.batch
        who = batch.every_lane if group.lanes is None else group.lanes
        who = who[batch.thread_of_lane[who] % WARP < rows]
        at = np.broadcast_to(at_of(registers), (batch.count,))[who]
        window = np.uint64(batch.shared_window)
        offsets = at.astype(np.uint64) - window
        at = np.where(offsets < np.uint64(WINDOW_BYTES), offsets, at)
        _tell(batch, kind, who, at, 16, line, True)

    return look


def _copy(code: Code, to: Operand) -> Step | None:
    """cp.async: a store to shared memory, here as soon as it begins."""
    size = code.operands[2]
    if not isinstance(size, Immediate):
        return None
    at_of, select, line, size_bytes = address_of(code, to), code.select(), code.instruction.line, size.value

    def look(registers: Registers, group: Group) -> None:
        batch, lanes = group.batch, select(registers, group)
        at = of_lanes(at_of(registers), lanes, batch.count)
        who = batch.every_lane if lanes is None else lanes
        _tell(batch, "store", who, at, size_bytes, line, True)

    return look


def _fragment(code: Code) -> Step:
    """wmma.load and wmma.store."""
    kind = code.take("load", "store")
    code.flag("sync"), code.flag("aligned")
    operands = code.operands if kind == "store" else [code.operands[1], code.operands[0]]
    access = MatrixAccess(code, operands[0], operands[1])
    line = code.instruction.line

    def look(registers: Registers, group: Group) -> None:
        who, at = access.addresses(registers, group)
        is_shared = access.space == "shared"
        if access.space in ("", "shared"):
            _tell(group.batch, kind, who, at, access.type.size_bytes, line, is_shared)

    return look


def _mbarrier(code: Code, place: Operand) -> Step:
    """Who arrives makes known what was done; who waits, or asks, knows it from then on."""
    waits = code.instruction.modifiers[0] in ("test_wait", "try_wait")
    at_of, select, line = address_of(code, place), code.select(), code.instruction.line

    def look(registers: Registers, group: Group) -> None:
        batch, lanes = group.batch, select(registers, group)
        at = of_lanes(at_of(registers), lanes, batch.count)
        who = batch.every_lane if lanes is None else lanes
        kind = "load" if waits else "atomic"
        is_shared = not len(at) or int(at.max()) < WINDOW_BYTES
        _tell(batch, kind, who, at, MBARRIER_BYTES, line, is_shared, True)

    return look
