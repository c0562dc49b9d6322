"""Moves: what one bulk copy of one thread does, in pieces, between global and shared memory.

In       a Move: pieces by their global addresses and their places in shared memory; an mbarrier or a reduction
Out      nothing; KernelFault when a piece is not to be had
Changes  shared memory, an mbarrier, or global memory, when somebody waits (copies.py)
Next     bulk_ops.py (moves of plain bytes), tensor_map_ops.py (of tiles)
Source   PTX ISA, "cp.async.bulk", "cp.reduce.async.bulk"

What can be refused is refused when the copy is issued: addresses in shared memory, the mbarrier, what is read from
global memory. Global memory is read at once, and written when somebody waits.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np

from hcq.emu.nv.shader import async_races, mbarrier_ops, spaces
from hcq.emu.nv.shader.atomic_ops import Operation
from hcq.emu.nv.shader.batch import Batch
from hcq.emu.nv.shader.clusters import OFFSET_MASK, RANK_SHIFT, name_access
from hcq.emu.nv.shader.decode import Code, Registers
from hcq.emu.nv.shader.errors import BadAccess, KernelFault
from hcq.emu.nv.shader.groups import Group
from hcq.emu.nv.shader.memory_ops import check_alignment, of_lanes
from hcq.emu.nv.shader.race_steps import What
from hcq.emu.nv.shader.shared_waits import Brought
from hcq.emu.nv.shader.syntax import Instruction
from hcq.emu.nv.shader.types import BITS, TYPES, Lanes, Type


class Move(NamedTuple):
    """Pieces of a power of two bytes. inside: which have a global address; the others are `filling` and not stored."""

    at: Lanes
    inside: Lanes
    places: Lanes
    piece_bytes: int
    filling: Lanes

    @property
    def size_bytes(self) -> int:
        """Of all pieces, those outside included: what an mbarrier counts."""
        return len(self.at) * self.piece_bytes


class Reduction(NamedTuple):
    """How a store changes what is there."""

    operation: Operation
    type: Type


class Issuer(NamedTuple):
    """The thread that issued a copy, and with what."""

    batch: Batch
    lane: int
    instruction: Instruction

    @property
    def lanes(self) -> Lanes:
        """Itself, as an array."""
        return np.array([self.lane])

    def fault(self, bad: BadAccess, what: str) -> KernelFault:
        """The report of a refused access."""
        everyone = Group(self.batch, None, self.batch.count)
        return everyone.fault(bad, self.instruction, what, self.lanes)

    def refuse(self, why: str) -> KernelFault:
        """The report of anything else."""
        block, thread = self.batch.place(self.lane)
        return KernelFault(
            f"kernel {self.batch.launch.kernel_name}, PTX line {self.instruction.line} `{self.instruction}`, thread "
            f"{thread} of block {block}: {why}.",
            self.instruction.line,
            [(block, thread)],
        )


def claim_end(code: Code) -> tuple[bool, bool]:
    """The modifiers behind the state spaces: (counted by an mbarrier, names blocks of the cluster)."""
    is_counted = code.flag("mbarrier::complete_tx::bytes")
    if not is_counted and not code.flag("bulk_group"):
        raise code.refuse("expected .mbarrier::complete_tx::bytes or .bulk_group")
    return is_counted, code.flag("multicast::cluster")


def goals_of(code: Code, number: int, is_multicast: bool) -> Callable[[Registers, Issuer, int], list[int]]:
    """Where a copy to an address in shared memory goes: there, or to the same place in each block that a mask names.

    number  of the operand with the mask
    """
    if not is_multicast:
        return lambda registers, issuer, at: [at]
    slot = code.source(number, TYPES["u16"])

    def goals(registers: Registers, issuer: Issuer, at: int) -> list[int]:
        mask = value(registers, slot, issuer)
        return [at & OFFSET_MASK | rank << RANK_SHIFT for rank in ranks_in(issuer, mask)]

    return goals


def ranks_in(issuer: Issuer, mask: int) -> list[int]:
    """The ranks of the blocks that a mask names."""
    clusters = issuer.batch.clusters
    size = 1 if clusters is None else clusters.size
    if not 0 < mask < 1 << size:
        raise issuer.refuse(
            f"the mask {mask:#x} names blocks of the cluster; those there are have the mask {(1 << size) - 1:#x}"
        )
    return [rank for rank in range(size) if mask >> rank & 1]


def each(group: Group, lanes: Lanes | None, instruction: Instruction) -> Iterator[Issuer]:
    """The threads that issue a copy each."""
    everyone = group.batch.every_lane if lanes is None else lanes
    for lane in everyone.tolist():
        yield Issuer(group.batch, lane, instruction)


def value(registers: Registers, slot: int, issuer: Issuer) -> int:
    """A register's value in the thread."""
    return int(of_lanes(registers[slot], issuer.lanes, issuer.batch.count)[0])


def address(values: Lanes, issuer: Issuer) -> int:
    """The same of addresses, computed for all threads or one that all share."""
    return int(of_lanes(values, issuer.lanes, issuer.batch.count)[0])


def in_pair(told: int, goal: int, named: int) -> int:
    """The mbarrier that is told of a copy for a pair of blocks: in that of the two of the named one's parity."""
    rank = goal >> RANK_SHIFT & ~1 | named >> RANK_SHIFT & 1
    return told & OFFSET_MASK | rank << RANK_SHIFT


def bring(issuer: Issuer, move: Move, mbarrier: int, is_pair: bool = False) -> None:
    """Global to shared memory; the mbarrier is told of the bytes once they are there."""
    batch, lanes = issuer.batch, issuer.lanes
    apart = (int(move.places[0]) ^ mbarrier) >> RANK_SHIFT if len(move.places) else 0
    if apart > is_pair:
        raise issuer.refuse("the mbarrier is not in the shared memory of the block that the bytes come to")
    data = np.tile(move.filling, (len(move.at), 1))
    try:
        check_alignment(move.at[move.inside], move.piece_bytes)
        data[move.inside] = _load(spaces.GLOBAL, batch, None, move.at[move.inside], move.piece_bytes)
    except BadAccess as bad:
        raise issuer.fault(bad, "bulk load") from None
    _check_shared(issuer, move.places, move.piece_bytes)
    _check_mbarrier(issuer, mbarrier)
    _count(issuer, "load", move)
    who = np.repeat(lanes, len(move.places))
    _touched(issuer, "load", move.at[move.inside], move.piece_bytes, "global")
    _touched(issuer, "store", move.places, move.piece_bytes)
    _tell_brought(issuer, move, mbarrier)
    if batch.waits is not None:
        of_global, row = batch.waits.of_global, batch.local_row[lanes]
        of_global.access(row, move.at[move.inside], move.piece_bytes, issuer.instruction.line, "reads it")

    def work() -> None:
        name_access(batch, issuer.instruction)
        try:
            _store(spaces.SHARED, batch, who, move.places, data)
            mbarrier_ops.complete_tx(batch, lanes, mbarrier, move.size_bytes)
        except BadAccess as bad:
            raise issuer.fault(bad, "bulk load") from None

    batch.copies.count(work)


def carry(issuer: Issuer, move: Move, source: Lanes, mbarrier: int, reduction: Reduction | None) -> None:
    """Shared to shared memory, of any block of the cluster."""
    batch, lanes = issuer.batch, issuer.lanes
    for places in (move.places, source):
        _check_shared(issuer, places, move.piece_bytes)
    _check_mbarrier(issuer, mbarrier)
    if batch.launch.tally is not None:
        batch.launch.tally.lines(move.size_bytes * (2 if reduction is None else 3))
    who = np.repeat(lanes, len(move.places))
    if batch.waits is not None:
        places = spaces.places_of(batch, who, source, move.piece_bytes)
        batch.waits.read_async(who, places, move.piece_bytes, issuer.instruction.line)
    _touched(issuer, "load", source, move.piece_bytes)
    _touched(issuer, "store" if reduction is None else "atomic", move.places, move.piece_bytes)
    _tell_brought(issuer, move, mbarrier)

    def work() -> None:
        name_access(batch, issuer.instruction)
        try:
            data = _load(spaces.SHARED, batch, who, source, move.piece_bytes)
            if reduction is not None:
                data = _reduced(
                    reduction, _load(spaces.SHARED, batch, who, move.places, move.piece_bytes), data
                )
            _store(spaces.SHARED, batch, who, move.places, data)
            mbarrier_ops.complete_tx(batch, lanes, mbarrier, move.size_bytes)
        except BadAccess as bad:
            raise issuer.fault(bad, "bulk copy in shared memory") from None

    batch.copies.count(work)


def take(issuer: Issuer, move: Move, reduction: Reduction | None) -> None:
    """Shared to global memory, in the thread's bulk group."""
    batch = issuer.batch
    _check_shared(issuer, move.places, move.piece_bytes)
    _count(issuer, "store" if reduction is None else "atomic", move)
    at, places = move.at[move.inside], move.places[move.inside]
    who = np.repeat(issuer.lanes, len(places))
    if batch.waits is not None:
        read = spaces.places_of(batch, who, places, move.piece_bytes)
        batch.waits.take(issuer.lane, read, move.piece_bytes, issuer.instruction.line)
        row, adds = int(batch.local_row[issuer.lane]), reduction is not None
        group = int(batch.waits.bulk_ended[row])
        batch.waits.of_global.take(row, group, at, move.piece_bytes, issuer.instruction.line, adds)
    _touched(issuer, "load", places, move.piece_bytes)
    _touched(issuer, "store" if reduction is None else "atomic", at, move.piece_bytes, "global")

    def work() -> None:
        data = _load(spaces.SHARED, batch, who, places, move.piece_bytes)
        try:
            check_alignment(at, move.piece_bytes)
            if reduction is not None:
                old = _load(spaces.GLOBAL, batch, None, at, move.piece_bytes)
                data = _reduced(reduction, old, data)
            _store(spaces.GLOBAL, batch, None, at, data)
        except BadAccess as bad:
            raise issuer.fault(bad, "bulk store") from None

    batch.copies.group(issuer.lane, work)


def _tell_brought(issuer: Issuer, move: Move, mbarrier: int) -> None:
    """Tell what looks for races and missing waits, if anything does, what comes to shared memory."""
    batch = issuer.batch
    async_races.counted(batch, issuer.lanes, np.array([mbarrier], np.uint64), issuer.instruction.line)
    if batch.waits is None:
        return
    who = np.repeat(issuer.lanes, len(move.places))
    place = spaces.places_of(batch, issuer.lanes, np.array([mbarrier], np.uint64), 8)
    phase = mbarrier_ops.phases_at(batch, place)
    what = Brought(issuer.lane, issuer.instruction.line, int(place[0]), int(phase[0]))
    batch.waits.bring(what, spaces.places_of(batch, who, move.places, move.piece_bytes), move.piece_bytes)


def _touched(issuer: Issuer, kind: str, at: Lanes, piece_bytes: int, space: str = "shared") -> None:
    what = What(kind, piece_bytes, issuer.instruction.line)
    async_races.touched(issuer.batch, issuer.lane, what, at, space)


def _count(issuer: Issuer, kind: str, move: Move) -> None:
    """Tell the launch's Tally, if it has one: global memory without L1, and shared memory in whole lines."""
    batch, tally = issuer.batch, issuer.batch.launch.tally
    if tally is not None:
        at = move.at[move.inside]
        block = np.broadcast_to(batch.blocks[batch.block_of_lane[issuer.lane]], at.shape)
        passes = -tally.record.shared_passes
        tally.lines(move.size_bytes)
        passes += tally.record.shared_passes
        warp = np.zeros(len(at), np.int64)
        tally.memory(kind, warp, block, at, move.piece_bytes, by_l1=False, stored=passes)


def _reduced(reduction: Reduction, old: Lanes, data: Lanes) -> Lanes:
    bits = reduction.type.bits
    before, values = (np.ascontiguousarray(x).reshape(-1).view(bits) for x in (old, data))
    after = reduction.operation.update(before, values, values)
    return np.ascontiguousarray(after).view(np.uint8).reshape(data.shape)


def _check_shared(issuer: Issuer, places: Lanes, piece_bytes: int) -> None:
    """Whether all pieces are in the block's shared memory."""
    try:
        check_alignment(places, piece_bytes)
        spaces.SHARED.index(issuer.batch, np.repeat(issuer.lanes, len(places)), places, piece_bytes)
    except BadAccess as bad:
        raise issuer.fault(bad, "bulk copy in shared memory") from None


def _check_mbarrier(issuer: Issuer, mbarrier: int) -> None:
    try:
        check_alignment(np.array([mbarrier], np.uint64), 8)
        spaces.SHARED.index(issuer.batch, issuer.lanes, np.array([mbarrier], np.uint64), 8)
    except BadAccess as bad:
        raise issuer.fault(bad, "access to an mbarrier") from None


def _load(space: spaces.Space, batch: Batch, lanes: Lanes | None, at: Lanes, piece_bytes: int) -> Lanes:
    """(n, piece_bytes) bytes."""
    if not len(at):
        return np.zeros((0, piece_bytes), np.uint8)
    scalar, count = (np.uint64, 2) if piece_bytes == 16 else (BITS[piece_bytes], 1)
    found = np.ascontiguousarray(space.load(batch, lanes, at, scalar, count))
    return found.view(np.uint8).reshape(len(at), piece_bytes)


def _store(space: spaces.Space, batch: Batch, lanes: Lanes | None, at: Lanes, data: Lanes) -> None:
    if not len(at):
        return
    piece_bytes = data.shape[1]
    scalar = np.uint64 if piece_bytes == 16 else BITS[piece_bytes]
    values = np.ascontiguousarray(data).view(scalar)
    space.store(batch, lanes, at, values if piece_bytes == 16 else values.reshape(-1))
