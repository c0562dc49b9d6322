"""Steps that tell of every access to shared and global memory, for kernels whose races are looked for.

In       a decoded block; then the groups of threads that run it
Out      the block with steps that tell: `looked`
Changes  the Races of the batch; no register, no memory
Next     hcq/emu/shader/races.py (what comes of it), async_races.py (asynchronous copies), counters.py (the same for
         counting), machine.py (barriers)
Source   PTX ISA, "Memory Consistency Model"

Bulk copies, st.async, red.async, wgmma and tcgen05 tell by themselves (async_races.py), when they are issued. An
mbarrier orders who arrives before who waits. Of the instructions with .sync only bar.warp.sync orders memory: shuffles,
votes and matrix products do not, as PTX has it.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from hcq.emu.nv.shader import spaces
from hcq.emu.nv.shader.batch import WARP, Batch
from hcq.emu.nv.shader.clusters import OFFSET_MASK, RANK_SHIFT
from hcq.emu.nv.shader.counters import type_of
from hcq.emu.nv.shader.decode import Code, DecodedBlock, Lowering, Registers, Step
from hcq.emu.nv.shader.flow import BasicBlock
from hcq.emu.nv.shader.groups import Group
from hcq.emu.nv.shader.memory_ops import address_of, of_lanes, take_space, vector_of
from hcq.emu.nv.shader.spaces import PARAM_WINDOW, WINDOW_BYTES
from hcq.emu.nv.shader.stored_values import stored_of
from hcq.emu.nv.shader.syntax import Address, Immediate, Instruction, Operand
from hcq.emu.nv.shader.types import TYPES, Lanes
from hcq.emu.nv.shader.wmma_ops import MatrixAccess
from hcq.emu.shader.order import BLOCK, DEVICE, PLAIN
from hcq.emu.shader.races import Numbers, Races
from hcq.emu.shader.stored import Stored
from hcq.emu.shader.volatile_races import VolatileRaces

KINDS = {"ld": "load", "ldu": "load", "st": "store", "atom": "atomic", "red": "atomic"}
STRONG = {
    "volatile",
    "relaxed",
    "acquire",
    "release",
    "acq_rel",
    "mmio",
}  # others may do the same at the same time
OF_BLOCK = {"cta", "cluster"}  # scopes that reach no other cluster: its blocks are looked at as one
RELEASES, ACQUIRES = {"release", "acq_rel"}, {"acquire", "acq_rel"}
MBARRIER_BYTES = 8
SPACES = ("", "shared", "global")


class What(NamedTuple):
    """What an instruction does at each address."""

    kind: str
    size: int
    line: int
    is_volatile: bool = False


def looked_at_shared(lowering: Lowering, block: BasicBlock, made: DecodedBlock) -> None:
    """Put around the steps of a block what tells of their accesses to shared memory, and nothing else."""
    looked(lowering, block, made, only_shared=True)


def looked(lowering: Lowering, block: BasicBlock, made: DecodedBlock, only_shared: bool = False) -> None:
    """Put around the steps of a block what tells of their accesses."""
    looks = [None if only_shared and _is_elsewhere(one) else _of(lowering, one) for one in block.body]
    if not any(looks):
        return
    made.steps = [step if look is None else _both(look, step) for look, step in zip(looks, made.steps)]
    if made.retry is not None:  # one thread after the other, each of which tells
        made.retry = made.retry._replace(steps=made.steps, swap=None)


def _is_elsewhere(instruction: Instruction) -> bool:
    """Whether it tells of no access to shared memory: global ones, and fences."""
    words = instruction.modifiers
    return instruction.opcode in ("membar", "fence") or (
        "global" in words and not any(map(_is_shared, words))
    )


def _is_shared(word: str) -> bool:
    return word.partition("::")[0] == "shared"


def _both(look: Step, step: Step) -> Step:
    def both(registers: Registers, group: Group) -> None:
        look(registers, group)
        step(registers, group)

    return both


def _of(lowering: Lowering, instruction: Instruction) -> Step | None:
    opcode, modifiers = instruction.opcode, instruction.modifiers
    if opcode in ("membar", "fence"):
        return _fence(Code(lowering, instruction))
    places = [one for one in instruction.operands if isinstance(one, Address)]
    if not places:
        return None
    code = Code(lowering, instruction)
    if opcode in ("ldmatrix", "stmatrix"):
        return _rows(code, places[0])
    if opcode == "cp":
        if "bulk" in modifiers:
            return None  # which tells by itself: async_races.py
        if "mbarrier" in modifiers:
            return _mbarrier(code, places[0])
        return _copy(code, *places) if len(places) == 2 else None
    if opcode == "tcgen05":
        return _commit(code, places[0]) if modifiers[0] == "commit" else None
    if opcode == "wmma":
        return _fragment(code)
    if opcode == "mbarrier":
        return _first(code, places[0]) if modifiers[0] in ("init", "inval") else _mbarrier(code, places[0])
    if opcode not in KINDS or "async" in modifiers:
        return None
    space = take_space(code)
    if space not in SPACES:
        return None
    count = vector_of(code)
    size = count * TYPES[type_of(instruction)].size_bytes
    at_of, select = address_of(code, places[0]), code.select()
    stored_by = stored_of(code, space, count) if opcode == "st" else None
    level, words = _level(instruction), set(modifiers)
    what = What(KINDS[opcode], size, instruction.line, "volatile" in words)
    releases, acquires = bool(RELEASES & words), bool(ACQUIRES & words)

    def look(registers: Registers, group: Group) -> None:
        batch, lanes = group.batch, select(registers, group)
        at = of_lanes(at_of(registers), lanes, batch.count)
        who = batch.every_lane if lanes is None else lanes
        if releases:
            order_of(batch, who, level, False)
        stored = None
        if stored_by is not None and batch.races is not None and batch.races.by_value and len(who):
            stored = stored_by(registers, batch, lanes, at)
        tell(batch, what, who, at, space, level, stored)
        if acquires:
            order_of(batch, who, level, True)

    return look


def _level(instruction: Instruction) -> int:
    """How far an access reaches as an atomic operation."""
    words = set(instruction.modifiers)
    if instruction.opcode not in ("atom", "red") and not STRONG & words:
        return PLAIN
    return BLOCK if OF_BLOCK & words else DEVICE


def _fence(code: Code) -> Step | None:
    """fence and membar, but for those that order accesses by different proxies of one thread."""
    words = set(code.instruction.modifiers)
    if "proxy" in words:
        return None
    level = BLOCK if OF_BLOCK & words else DEVICE
    select = code.select()

    def look(registers: Registers, group: Group) -> None:
        batch, lanes = group.batch, select(registers, group)
        who = batch.every_lane if lanes is None else lanes
        order_of(batch, who, level, True)
        order_of(batch, who, level, False)

    return look


def order_of(batch: Batch, who: Lanes, level: int, acquires: bool) -> None:
    """These threads have a fence that acquires, or one that releases."""
    races = batch.races
    if races is None:
        return
    thread = batch.thread_of_lane[who]
    warps = np.unique(
        (batch.block_of_lane[who] * races.warps + thread // WARP)[thread < batch.threads_per_block]
    )
    (races.order.acquire if acquires else races.order.release)(warps, level)


def tell(
    batch: Batch,
    what: What,
    who: Lanes,
    at: Lanes,
    space: str,
    level: int = PLAIN,
    stored: Stored | None = None,
) -> None:
    """Of these lanes. space: "shared", "global", or "": generic addresses, of which each is where the windows say."""
    races = batch.races
    if races is None:  # blocks without shared memory, where nothing else is looked at
        return
    numbers = races.numbers
    if numbers is None or numbers.threads is not batch.thread_of_lane:
        numbers = races.numbers = _numbers_of(batch, races.warps)
    if numbers.live is not None:
        live = numbers.live[who]
        who, at, stored = who[live], at[live], _some(stored, live)
    at = at.astype(np.uint64, copy=False)
    warps, lanes = numbers.warps, numbers.lanes
    if who is not batch.every_lane:
        warps, lanes = warps[who], lanes[who]
    if space == "shared":
        if races.shared is not None:
            at = _in_cluster(batch, at)
            _tell_shared(races, what, warps, lanes, at, level, stored)
        return
    elsewhere = None
    if space == "":
        inside = spaces.in_shared(batch, at)
        if inside.any() and races.shared is not None:
            offsets = _in_cluster(batch, at[inside] - np.uint64(batch.shared_window))
            here = warps[inside], lanes[inside], offsets
            _tell_shared(races, what, *here, level, _some(stored, inside))
        elsewhere = inside
        for window in (batch.local_window, PARAM_WINDOW):
            elsewhere = elsewhere | (at - np.uint64(window) < np.uint64(WINDOW_BYTES))
    if races.everywhere is None:
        return
    if elsewhere is not None and elsewhere.any():
        warps, lanes, at = warps[~elsewhere], lanes[~elsewhere], at[~elsewhere]
        stored = _some(stored, ~elsewhere)
    races.everywhere.access(races.order, what.kind, warps, lanes, at, what.size, what.line, level, stored)


def _numbers_of(batch: Batch, warps_per_block: int) -> Numbers:
    threads = batch.thread_of_lane
    live = threads < batch.threads_per_block
    warps = batch.block_of_lane.astype(np.int64) * warps_per_block + threads // WARP
    return Numbers(threads, warps, (threads % WARP).astype(np.int64), None if live.all() else live)


def _tell_shared(
    races: Races, what: What, warps: Lanes, lanes: Lanes, at: Lanes, level: int, stored: Stored | None
) -> None:
    assert races.shared is not None
    races.shared.access(what.kind, warps, lanes, at, what.size, what.line, level > PLAIN, level, stored)
    if what.is_volatile:
        if races.of_volatile is None:
            races.of_volatile = VolatileRaces(races.shared)
        races.of_volatile.access(what.kind, warps, lanes, at, what.size, what.line)


def _in_cluster(batch: Batch, at: Lanes) -> Lanes:
    """Addresses in shared memory as places in that of the whole cluster, one block's behind the other's."""
    if batch.clusters is None:
        return at
    return (at >> np.uint64(RANK_SHIFT)) * np.uint64(batch.clusters.stride) + (at & np.uint64(OFFSET_MASK))


def _some(stored: Stored | None, which: Lanes) -> Stored | None:
    return None if stored is None else stored.some(which)


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
        at = spaces.shared_address(batch, at.astype(np.uint64))
        tell(batch, What(kind, 16, line), who, at, "shared")

    return look


def _copy(code: Code, to: Operand, source: Operand) -> Step | None:
    """cp.async: a load from global memory and a store to shared memory, here as soon as it begins."""
    size = code.operands[2]
    if not isinstance(size, Immediate):
        return None
    ends = {"store": (address_of(code, to), "shared"), "load": (address_of(code, source), "global")}
    limit = (
        code.source(3, TYPES["u32"])
        if len(code.operands) == 4 and "L2::cache_hint" not in code.rest
        else None
    )
    select, line, size_bytes = code.select(), code.instruction.line, size.value

    def look(registers: Registers, group: Group) -> None:
        batch, lanes = group.batch, select(registers, group)
        who = batch.every_lane if lanes is None else lanes
        for kind, (at_of, space) in ends.items():
            at, some = of_lanes(at_of(registers), lanes, batch.count), who
            if kind == "load" and limit is not None:  # what is beyond is not read
                whole = of_lanes(registers[limit], lanes, batch.count) >= size_bytes
                at, some = at[whole], who[whole]
            tell(batch, What(kind, size_bytes, line), some, at, space)

    return look


def _fragment(code: Code) -> Step:
    """wmma.load and wmma.store."""
    kind = code.take("load", "store")
    code.flag("sync"), code.flag("aligned")
    operands = code.operands if kind == "store" else [code.operands[1], code.operands[0]]
    access = MatrixAccess(code, operands[0], operands[1])
    what = What(kind, access.type.size_bytes, code.instruction.line)

    def look(registers: Registers, group: Group) -> None:
        who, at = access.addresses(registers, group)
        if access.space in SPACES:
            tell(group.batch, what, who, at, access.space)

    return look


def _first(code: Code, place: Operand) -> Step:
    """mbarrier.init and .inval: stores, which whoever uses the object comes after.

    Of those who used it before .inval, threads of the same warp may have met by match.sync alone: so libcu++'s
    pipelines end, whose last thread was chosen that way.
    """
    at_of, select = address_of(code, place), code.select()
    what, ends = What("store", MBARRIER_BYTES, code.instruction.line), "inval" in code.instruction.modifiers

    def look(registers: Registers, group: Group) -> None:
        batch, lanes = group.batch, select(registers, group)
        at = of_lanes(at_of(registers), lanes, batch.count)
        who = batch.every_lane if lanes is None else lanes
        if ends and batch.races is not None:
            warps = batch.block_of_lane[who] * batch.races.warps + batch.thread_of_lane[who] // WARP
            batch.races.order.rejoin(np.unique(warps))
        tell(batch, what, who, at, _space_of(batch, at))

    return look


def _space_of(batch: Batch, at: Lanes) -> str:
    """That of addresses of mbarriers: of shared memory, or generic ones."""
    return "shared" if not len(at) or int(at.max()) < batch.shared_window_bytes else ""


def _mbarrier(code: Code, place: Operand) -> Step:
    """Who arrives makes known what was done; who waits, or asks, knows it from then on."""
    words = code.instruction.modifiers
    waits, orders = words[0] in ("test_wait", "try_wait"), "relaxed" not in words
    at_of, select = address_of(code, place), code.select()
    what = What("load" if waits else "atomic", MBARRIER_BYTES, code.instruction.line)

    def look(registers: Registers, group: Group) -> None:
        batch, lanes = group.batch, select(registers, group)
        at = of_lanes(at_of(registers), lanes, batch.count)
        who = batch.every_lane if lanes is None else lanes
        space = _space_of(batch, at)
        if orders and not waits:
            order_of(batch, who, BLOCK, False)
        tell(batch, what, who, at, space, BLOCK)
        if orders and waits:
            order_of(batch, who, BLOCK, True)

    return look


def _commit(code: Code, place: Operand) -> Step:
    """tcgen05.commit: an arrival; one that a mask sends to blocks of the cluster is taken to come to all of them."""
    at_of, select = address_of(code, place), code.select()
    what, is_multicast = (
        What("atomic", MBARRIER_BYTES, code.instruction.line),
        "multicast::cluster" in code.rest,
    )

    def look(registers: Registers, group: Group) -> None:
        batch, lanes = group.batch, select(registers, group)
        who = batch.every_lane if lanes is None else lanes
        at = spaces.shared_address(batch, of_lanes(at_of(registers), lanes, batch.count).astype(np.uint64))
        order_of(batch, who, BLOCK, False)
        size = batch.clusters.size if is_multicast and batch.clusters is not None else 0
        for rank in range(size):
            there = at & np.uint64(OFFSET_MASK) | np.uint64(rank << RANK_SHIFT)
            tell(batch, what, who, there, "shared", BLOCK)
        if not size:
            tell(batch, what, who, at, "shared", BLOCK)

    return look
