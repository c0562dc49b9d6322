"""Tile copies: what each thread of a group copies of a tile, and where in shared memory the tile lies.

In       a stage of the schedule, the loops that are open where it begins
Out      a tile with room in shared memory; places, values and conditions of one thread's copies; their stores
Changes  the shared memory of the kernel
Next     tiles.py (how an operand lies there), sharing.py, wave_copies.py, bulk_copies.py (who copies when)
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple, TypeVar

from hcq.compiler.linear.banks import LINE_BYTES
from hcq.compiler.linear.context import Lowering
from hcq.compiler.linear.emitter import Term
from hcq.compiler.linear.places import Packed, Point
from hcq.compiler.linear.program import Instruction
from hcq.compiler.linear.tiles import SWIZZLE_ALIGN, Tile, tile_of
from hcq.compiler.loops.loop import Axis, Loop
from hcq.compiler.loops.loop_nest import LoopNest
from hcq.compiler.loops.nest import ScheduleError, Stage
from hcq.ir.dtype import dtypes
from hcq.ir.node import Node, index
from hcq.ir.op import Op

T = TypeVar("T")
BEHIND_AT_LEAST = 4  # tiles, of which one may be that of the step before
STEPS_AT_ONCE = 8  # loads of a thread under way


# where in the tile, what, and under which condition
Copy = tuple[list[Term], int, Instruction, Instruction | None]


class Copied(NamedTuple):
    """What a thread copies of a tile. by_waves: the threads of a wave copy to places one behind the other."""

    packed: Packed
    copies: list[Copy]
    by_waves: bool = False


def steps_ahead(nest: LoopNest, loop: Loop) -> int:
    """How many steps ahead a pipelined loop copies.

    A unit that works by itself still reads the tile of the step before, where there are enough of them.
    """
    buffers = nest.pipelined[loop]
    return buffers - 2 if is_unit_behind(nest, loop) else max(1, buffers - 1)


def is_unit_behind(nest: LoopNest, loop: Loop | None) -> bool:
    """Whether a matrix unit is still at work on a step of a loop when the next one begins."""
    use = nest.unit
    buffers = 1 if loop is None else nest.pipelined.get(loop, 1)
    if use is None or not use.unit.reads_shared:
        return False
    if use.unit.keeps_sums or nest.chained:  # whose every step is waited for
        return False
    return buffers >= BEHIND_AT_LEAST


class TileCopies(Lowering):
    """One thread's part of a tile."""

    def tile(self, stage: Stage, loop: Loop | None) -> Tile:
        """The tile of a stage, with room for it."""
        self.values.pack(stage.value, None)
        mask = self.ranges.masks[stage.load]
        tile = tile_of(
            stage,
            mask,
            self.nest.axes,
            self.loops.counters,
            self.ranges.affine,
            self.nest.unit,
            self.nest.is_read_by_unit(stage.load),
            self.nest.threads,
        )
        buffers = 1 if loop is None else self.nest.pipelined.get(loop, 1)
        if stage.load not in self.memory.scratch_at:
            align = SWIZZLE_ALIGN if tile.is_read_by_unit else LINE_BYTES
            self.memory.shared_align = max(self.memory.shared_align, align)
            start = -(-self.memory.shared_bytes // align) * align
            self.memory.scratch_at[stage.load] = start
            self.memory.shared_bytes = start + buffers * tile.bytes
        if self.memory.shared_bytes > self.memory.most_shared:
            raise ScheduleError(
                f"stage: {self.memory.shared_bytes} bytes of shared memory exceed {self.memory.most_shared}"
            )
        return tile

    def packed(self, tile: Tile, step: Instruction | None = None, keep: Loop | None = None) -> Packed:
        """Where a tile lies; of a pipelined one, in the buffer that a step has."""
        dtype = tile.stage.value.dtype
        address = self.emitter.emit(Op.SHARED, dtype, (), self.memory.scratch_at[tile.stage.load])
        packed = Packed(address, {}, self.emitter.depth, swizzle=tile.swizzle)
        buffers = self.nest.pipelined[keep] if keep is not None else 1
        if step is not None and buffers > 1:
            is_known = step.op is Op.CONST
            buffer = (
                self.emitter.number(int(step.arg) % buffers) if is_known else self.emitter.rest(step, buffers)
            )
            packed.terms.append((buffer, tile.bytes // dtype.itemsize))
        self.memory.tile_of[tile.stage.value] = tile
        for axis, stride in tile.strides.items():
            for loop in axis.loops:
                if loop is not keep and (loop.kind == "thread" or loop not in self.loops.counters):
                    packed.strides[loop] = stride * loop.stride
        return packed

    def store(self, packed: Packed, copies: list[Copy]) -> None:
        """Write what was copied to shared memory."""
        for terms, offset, value, mask in copies:
            terms, offset = self.values.swizzled(packed, terms, offset)
            masks = () if mask is None else (mask,)
            src = (packed.address, self.emitter.total([*packed.terms, *terms]), value, *masks)
            self.emitter.store(src, offset)

    def copies(self, tile: Tile) -> list[Copy]:
        """What this thread copies of a tile: place, value, and a condition where not all threads have a part."""

        def copy_all() -> list[Copy]:
            turns = self.turns(tile, 4 * STEPS_AT_ONCE)
            return [copy for _, piece, mask in turns for copy in self.copy(tile, piece, mask)]

        return self.from_the_start(tile, copy_all)

    def turns(self, tile: Tile, most: int) -> Iterator[tuple[int, Instruction, Instruction | None]]:
        """The pieces of a tile that this thread copies: what its number is added to, the piece, and if there is one.

        Raises ScheduleError for more than `most` turns
        """
        threads = self.nest.threads
        steps = -(-tile.pieces // threads)
        if steps > most:
            raise ScheduleError(
                f"stage: {steps} steps of {threads} threads copy one tile; stage less at a time"
            )
        for first in range(0, steps * threads, threads):
            piece = self.emitter.plus(self.loops.thread, first)
            is_whole = first + threads <= tile.pieces
            yield first, piece, None if is_whole else self.emitter.is_below(piece, tile.pieces)

    def from_the_start(self, tile: Tile, write: Callable[[], T]) -> T:
        """What is written where the tile's ranges are at the begin of the step."""
        stilled = {
            loop: self.loops.counters.get(loop)
            for axis in tile.seen
            for loop in axis.loops
            if not loop.is_written_out and (loop.kind == "thread" or loop not in self.loops.counters)
        }
        for loop in stilled:  # the tile starts where the step does
            self.loops.counters[loop] = self.emitter.number(0)
        made = write()
        for loop, before in stilled.items():
            if before is None:
                del self.loops.counters[loop]
            else:
                self.loops.counters[loop] = before
        self.loops.moved()
        return made

    def copy(self, tile: Tile, piece: Instruction, mask: Instruction | None) -> list[Copy]:
        """What a thread copies of piece number `piece`, whose digits count the tile's parts."""
        terms: list[Term] = []
        walks = {axis: self._walk(tile, axis) for axis in tile.sizes}
        rest, left = piece, tile.pieces
        for part in tile.parts:
            here, room = rest, part.count + part.gap
            if left > room:
                here = self.emitter.rest(rest, room)
                rest = self.emitter.quotient(rest, room)
                left //= room
                if part.gap:  # what is read for a gap matters to nobody
                    here = self.emitter.arithmetic(Op.MIN, here, self.emitter.number(part.count - 1))
            elif mask is not None or part.gap:  # beyond the last piece: anywhere inside
                here = self.emitter.arithmetic(Op.MIN, rest, self.emitter.number(part.count - 1))
            walk = walks[part.axis]
            self.loops.counters[next(loop for loop in walk.counted if loop.stride == part.step)] = here
            terms.append((here, part.stride))
        self.loops.moved()
        source = tile.stage.value.substitute(
            {axis.range: axis.range + walk.range for axis, walk in walks.items()}
        )
        self.ranges.mask_copies(source)
        point: Point = dict.fromkeys(self.nest.axes, (0, 1))
        if tile.lanes > 1 and tile.vector is not None:
            point[walks[tile.vector]] = (0, tile.lanes)
        if not tile.is_turned:
            return [(terms, 0, self.emitter.broadcast(self.values.value(source, point), tile.lanes), mask)]
        assert tile.vector is not None
        along = walks[next(reversed(tile.sizes))]
        rows = [
            self.emitter.broadcast(self.values.value(source, {**point, along: (step, 1)}), tile.lanes)
            for step in range(tile.run)
        ]
        kind = tile.stage.value.dtype.vec(tile.run)
        columns = []
        for lane in range(tile.lanes):
            column = self.emitter.emit(Op.VECTOR, kind, tuple([self.emitter.lane(row, lane) for row in rows]))
            columns.append((terms, lane * tile.strides[tile.vector], column, mask))
        return columns

    def _walk(self, tile: Tile, axis: Axis) -> Axis:
        """A range of a copy: loops that the piece's number counts, and those of its rectangle."""
        bit = len(self.ranges.axes)
        size = tile.sizes[axis]
        node = Node(Op.RANGE, dtypes.index, (index(size),), ("copy", bit))
        walk = Axis(node, f"{axis.name}.copy", size, False, False, 1 << bit)
        parts = sorted([part for part in tile.parts if part.axis is axis], key=lambda part: -part.step)
        walk.loops = [Loop(f"{walk.name}.{part.step}", walk, part.count, part.step) for part in parts]
        inner = "vector" if axis is tile.vector else "unroll"
        width = tile.lanes if axis is tile.vector else tile.run if axis is next(reversed(tile.sizes)) else 1
        if width > 1:
            walk.loops.append(Loop(f"{walk.name}.1", walk, width, 1, inner))
        self.ranges.add(walk)
        return walk
