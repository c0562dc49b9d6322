"""tcgen05: tensor memory is allocated, loaded, stored and filled; commits, fences and waits around products.

In       Code
Out      steps
Changes  tensor memory, registers; shared memory where an allocation's address or an mbarrier is
Next     tensor_memory.py, tcgen05_moves.py (cp, shift, reductions), tcgen05_products.py (tcgen05.mma),
         mbarrier_ops.py (who waits for a commit), copies.py, tensor_races.py (what is touched too early)
Source   PTX ISA 8.6, "TensorCore 5th Generation Instructions"; which thread has what: CUTLASS's copy traits

Products and copies are asynchronous: here they are done when somebody looks at an mbarrier, in the order in which they
were issued. A kernel that does not wait for its commit reads old words. Loads and stores of tensor memory are done at
once, so a forgotten tcgen05.wait changes no result: tensor_races.py finds it. Of a pair of blocks (cta_group::2) each
allocates by itself, which both have to do alike.
"""

from __future__ import annotations

import re

import numpy as np

from hcq.emu.nv.shader import (
    mbarrier_ops,
    spaces,
    tcgen05_moves,
    tcgen05_products,
    tensor_memory,
    tensor_races,
)
from hcq.emu.nv.shader.batch import WARP, Batch
from hcq.emu.nv.shader.bulk_moves import Issuer, address, each, goals_of
from hcq.emu.nv.shader.clusters import name_access
from hcq.emu.nv.shader.decode import Code, Registers, Rules, Step
from hcq.emu.nv.shader.errors import BadAccess, KernelFault
from hcq.emu.nv.shader.groups import Group
from hcq.emu.nv.shader.memory_ops import address_of
from hcq.emu.nv.shader.syntax import Immediate
from hcq.emu.nv.shader.types import TYPES, Lanes

RULES = Rules()
B32, U32, U64 = TYPES["b32"], TYPES["u32"], TYPES["u64"]
ALLOCATIONS = (32, 64, 128, 256, 512)
SHAPES = {"32x32b": 1, "16x64b": 1, "16x128b": 2, "16x256b": 4, "16x32bx2": 1}  # registers of a repeat
REPEAT = re.compile(r"x(\d+)")
MOST_REGISTERS = 128
WARP_LANES = 32  # of tensor memory, that a warp of a warpgroup reaches


@RULES.on("tcgen05")
def tcgen05(code: Code) -> Step:
    """`tcgen05.*`, by the word behind it."""
    what = code.take(
        "alloc", "dealloc", "relinquish_alloc_permit", "ld", "st", "cp", "mma", "shift", "commit", "wait::ld",
        "wait::st", "fence::before_thread_sync", "fence::after_thread_sync",
    )  # fmt: skip
    is_pair = code.flag("cta_group::2")
    code.flag("cta_group::1")
    is_sync = code.flag("sync")
    if is_sync:
        code.flag("aligned")
    if what in ("wait::ld", "wait::st"):
        code.expect(0)
        kind = "load" if what == "wait::ld" else "store"
        return lambda registers, group: tensor_races.waited(group.batch, _leaders(group), kind)
    if what in ("fence::before_thread_sync", "fence::after_thread_sync"):
        code.expect(0)
        return lambda registers, group: None
    if what == "relinquish_alloc_permit":
        code.expect(0)
        return lambda registers, group: None
    if what == "alloc":
        return _allocate(code)
    if what == "dealloc":
        return _give_back(code)
    if what in ("ld", "st"):
        return _move(code, what == "ld")
    if what == "cp":
        return tcgen05_moves.copy(code, is_pair)
    if what == "shift":
        return tcgen05_moves.shift(code, is_pair)
    if what == "commit":
        return _commit(code)
    if what == "mma":
        return tcgen05_products.product(code, is_pair)
    raise code.refuse("this one of tcgen05 is not emulated")


def _leaders(group: Group) -> Lanes:
    """The first thread of each warp that executes."""
    lanes = group.batch.every_lane if group.mask is None else np.flatnonzero(group.mask)
    return (
        lanes[lanes % WARP == 0]
        if group.mask is None
        else lanes[np.unique(lanes // WARP, return_index=True)[1]]
    )


def _number(registers: Registers, slot: int, lane: int, batch: Batch) -> int:
    return int(np.broadcast_to(registers[slot], (batch.count,))[lane])


def _fault(batch: Batch, lane: int, code: Code, why: str) -> KernelFault:
    return Issuer(batch, lane, code.instruction).refuse(why)


def _allocate(code: Code) -> Step:
    code.take("shared::cta", "shared")
    code.type("b32")
    code.expect(2)
    goal, slot = address_of(code, code.operands[0]), code.source(1, U32)

    def step(registers: Registers, group: Group) -> None:
        batch = group.batch
        memory, at = tcgen05_products.memory_of(batch), goal(registers)
        for lane in _leaders(group).tolist():
            count = _number(registers, slot, lane, batch)
            if count not in ALLOCATIONS:
                raise _fault(
                    batch,
                    lane,
                    code,
                    f"{count} columns; one of {', '.join(map(str, ALLOCATIONS))} are allocated",
                )
            start = memory.allocate(int(batch.block_of_lane[lane]), count)
            if start is None:
                raise _fault(
                    batch, lane, code,
                    f"no {count} columns of tensor memory are free; a GPU waits here until some are given back",
                )  # fmt: skip
            issuer = Issuer(batch, lane, code.instruction)
            place = spaces.shared_number(batch, address(at, issuer))
            try:
                spaces.SHARED.store(
                    batch, issuer.lanes, np.array([place], np.uint64), np.array([start], np.uint32)
                )
            except BadAccess as bad:
                raise issuer.fault(bad, "store of 4 bytes") from None

    return step


def _give_back(code: Code) -> Step:
    code.type("b32")
    code.expect(2)
    first, slot = code.source(0, U32), code.source(1, U32)

    def step(registers: Registers, group: Group) -> None:
        batch = group.batch
        for lane in _leaders(group).tolist():
            at, count = _number(registers, first, lane, batch), _number(registers, slot, lane, batch)
            if not tcgen05_products.memory_of(batch).give_back(
                int(batch.block_of_lane[lane]), tensor_memory.column_of(at), count
            ):
                raise _fault(batch, lane, code, f"{count} columns at {at:#x} are no allocation of this block")

    return step


def _move(code: Code, loads: bool) -> Step:
    reduces = loads and code.flag("red")
    shape = code.take(*SHAPES)
    if not shape:
        raise code.refuse(f"the shape is one of {', '.join(SHAPES)}")
    repeat = next((found for found in map(REPEAT.fullmatch, code.rest) if found), None)
    if repeat is None:
        raise code.refuse("the number of repeats is missing: x1, x2, ...")
    code.flag(repeat[0])
    count = SHAPES[shape] * int(repeat[1])
    if not 1 <= count <= MOST_REGISTERS or count & (count - 1):
        raise code.refuse(
            f"{shape}.{repeat[0]} would take {count} registers; at most {MOST_REGISTERS}, a power of two"
        )
    is_packed = not reduces and code.flag("pack::16b" if loads else "unpack::16b")
    operands, apart = list(code.operands), 0
    reduction = None
    if reduces:
        if shape not in ("32x32b", "16x32bx2") or count < 2 or len(operands) < 2:
            raise code.refuse("a load that reduces is of 32x32b or 16x32bx2, of two registers and more")
        reduction = tcgen05_moves.reduction(code, operands.pop(1))
        code.operands = operands
    else:
        code.type("b32")
    operands = list(operands)
    if shape == "16x32bx2":
        code.expect(3)
        between = operands.pop(2 if loads else 1)
        if not isinstance(between, Immediate) or not 0 <= between.value < tensor_memory.COLUMNS:
            raise code.refuse(
                f"how far both halves are apart is a number from 0 to {tensor_memory.COLUMNS - 1}"
            )
        apart = between.value
    else:
        code.expect(2)
    operand, place = operands if loads else reversed(operands)
    at_of = address_of(code, place)
    parts = code.parts(operand, count)
    lanes, columns = tensor_memory.places(shape, int(repeat[1]))
    columns = columns * (2 if is_packed else 1) + apart * (np.arange(WARP) // 16)
    width = int(columns.max()) + (2 if is_packed else 1)
    targets = (
        [code.destination(part, B32) for part in parts] if loads else [code.slot(part, B32) for part in parts]
    )
    writes = [code.writer(slot) for slot in targets] if loads else []

    def step(registers: Registers, group: Group) -> None:
        batch = group.batch
        words = tcgen05_products.memory_of(batch).words
        at = np.broadcast_to(at_of(registers), (batch.count,))
        found = np.zeros((count, batch.count), np.uint32) if loads else None
        values = (
            None
            if loads
            else np.stack([np.broadcast_to(registers[slot], (batch.count,)) for slot in targets])
        )
        for leader in _leaders(group).tolist():
            block = int(batch.block_of_lane[leader])
            first, column = _start(batch, leader, code, int(at[leader]), width)
            threads = leader - leader % WARP + np.arange(WARP)
            rows = first + lanes
            both = np.stack((columns, columns + is_packed)) + column
            kind, line = "load" if loads else "store", code.instruction.line
            tensor_races.touched(batch, leader, kind, block, rows, both, line, is_engine=False)
            if found is not None:
                if is_packed:
                    low, high = (words[block, rows, column + columns + half] & 0xFFFF for half in (0, 1))
                    found[:, threads] = low | high << np.uint32(16)
                else:
                    found[:, threads] = words[block, rows, column + columns]
            elif values is not None:
                mine = values[:, threads]
                if is_packed:
                    words[block, rows, column + columns] = mine & np.uint32(0xFFFF)
                    words[block, rows, column + columns + 1] = mine >> np.uint32(16)
                else:
                    words[block, rows, column + columns] = mine
        if found is not None:
            for write, row in zip(writes, found):
                write(registers, group, row)
            if reduction is not None:
                reduction(registers, group, found)

    return step


def _start(batch: Batch, leader: int, code: Code, at: int, width: int) -> tuple[int, int]:
    """The first lane and column of a warp's access, which must be its own and allocated."""
    lane, column = tensor_memory.lane_of(at), tensor_memory.column_of(at)
    own = int(batch.thread_of_lane[leader]) // WARP % 4
    if lane // WARP_LANES != own or lane % WARP_LANES not in (0, 16):
        raise _fault(
            batch, leader, code,
            f"the address {at:#x} is of lane {lane}; warp {own} of a warpgroup reaches lanes {WARP_LANES * own} to "
            f"{WARP_LANES * own + WARP_LANES - 1}, from the first or the 17th on",
        )  # fmt: skip
    if not tcgen05_products.memory_of(batch).is_allocated(int(batch.block_of_lane[leader]), column, width):
        raise _fault(batch, leader, code, f"columns {column} to {column + width - 1} are not all allocated")
    return lane, column


def _tell(issuer: Issuer, objects: list[int]) -> None:
    """Tell what looks for missing waits, if anything does, of a commit that arrives at these mbarriers."""
    batch = issuer.batch
    if batch.waits is None:
        return
    at = np.array(objects, np.uint64)
    try:
        places = spaces.places_of(batch, np.repeat(issuer.lanes, len(at)), at, mbarrier_ops.OBJECT_BYTES)
    except BadAccess as bad:
        raise issuer.fault(bad, "access to an mbarrier") from None
    phases = mbarrier_ops.phases_at(batch, places)
    row = int(batch.local_row[issuer.lane])
    batch.waits.commit_gathered(row, dict(zip(places.tolist(), phases.tolist())))


def _commit(code: Code) -> Step:
    code.flag("mbarrier::arrive::one")
    code.take("shared::cluster", "shared::cta", "shared")
    code.flag("b64")
    is_multicast = code.flag("multicast::cluster")
    code.expect(2 if is_multicast else 1)
    goals = goals_of(code, 1, is_multicast)
    at_of, select, instruction = address_of(code, code.operands[0]), code.select(), code.instruction

    def step(registers: Registers, group: Group) -> None:
        batch = group.batch
        at = at_of(registers)
        for issuer in each(group, select(registers, group), instruction):
            place = spaces.shared_number(batch, address(at, issuer))
            told = goals(registers, issuer, place)
            _tell(issuer, told)

            def work(issuer: Issuer = issuer, places: list[int] = told) -> None:
                name_access(batch, issuer.instruction)
                try:
                    for one in places:
                        mbarrier_ops.arrive_once(batch, issuer.lanes, one)
                except BadAccess as bad:
                    raise issuer.fault(bad, "access to an mbarrier") from None

            batch.copies.count(work)

    return step
