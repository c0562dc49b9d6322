"""Sharing: what the threads of a group read from the same tile, copied once into the memory that they share.

In       the stages of one loop, as a step of it begins, in a kernel with threads
Out      loads by all threads, a barrier, stores to shared memory, a barrier; from there on the operands are read there
Next     tiles.py (how an operand lies there), staging.py (the same for one worker's scratch), linearize.py (where
         stages belong), wave_copies.py and bulk_copies.py (other ways of copying ahead), across.py (the other user)

Of a pipelined loop there are several tiles. With two, a step computes with one while its threads have the next in
registers, and then store it into the other; with one, into the same, after one more barrier. With more, the GPU copies
by itself, some steps ahead. But for that one, a barrier for each step is enough.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, TypeVar

from hcq.compiler.linear.alignment import BUFFER_ALIGN
from hcq.compiler.linear.banks import LINE_BYTES
from hcq.compiler.linear.emitter import Term
from hcq.compiler.linear.places import Packed, Point
from hcq.compiler.linear.program import NOT_NEGATIVE, UNITS_READ, Instruction
from hcq.compiler.linear.staging import Staging
from hcq.compiler.linear.tiles import SWIZZLE_ALIGN, Tile, tile_of
from hcq.compiler.loops.loop import Axis, Loop
from hcq.compiler.loops.loop_nest import LoopNest
from hcq.compiler.loops.nest import ScheduleError, Stage
from hcq.ir.dtype import dtypes
from hcq.ir.node import Node, index
from hcq.ir.op import Op

T = TypeVar("T")
MOST_SHARED = 48 << 10  # bytes of a group, which every GPU has
BEHIND_AT_LEAST = 4  # tiles, of which one may be that of the step before
STEPS_AT_ONCE = 8  # loads of a thread under way


# where in the tile, what, and under which condition
Copy = tuple[list[Term], int, Instruction, Instruction | None]


class Copied(NamedTuple):
    """What a thread copies of a tile. by_waves: the threads of a wave copy to places one behind the other."""

    packed: Packed
    copies: list[Copy]
    by_waves: bool = False


class Sharing(Staging):
    """Copies for all threads of a group."""

    shared_bytes = 0
    shared_align = BUFFER_ALIGN

    def __init__(self, nest: LoopNest, most_shared: int):
        super().__init__(nest)
        self.most_shared = most_shared  # bytes of a group
        # of bulk copies, one for each buffer: its tiles are there; they have been read
        self.mbarriers = self.freed = Instruction(Op.SHARED, dtypes.int64, (), 0, 0)
        self.tensor_maps: dict[int, str] = {}  # by parameter
        self.producers = 0  # threads that only bring tiles
        self.tile_of: dict[Node, Tile] = {}  # of what is staged, at its last place
        self.under_way: dict[Loop, list[Copied]] = {}  # read, and stored when the step ends

    def share(self, stages: list[Stage], loop: Loop | None) -> None:
        """Write the copies of operands that are staged at one loop; from now on they are read from shared memory.

        Where the loop is pipelined, the copies are those of the next step, and what is read is what the step before,
        or `share_first`, has stored.
        """
        tiles = [self._tile(stage, loop) for stage in stages]
        if loop is not None and loop in self.nest.pipelined:
            buffers = self.nest.pipelined[loop]
            ahead = self.ahead(loop)
            counter, (_, end) = self.counters[loop], self.steps_of(loop)
            if buffers > 2:
                self._wait_for(loop, counter, end)
            # this step's tiles are there, and those before have been read
            self._all_have_come()
            after = self._sum(counter, ahead)
            self.is_at(loop, self.arithmetic(Op.MIN, after, self.arithmetic(Op.ADD, end, self.number(-1))))
            copied = [self._copied(tile, after, loop) for tile in tiles]
            self.is_at(loop, counter)
            if buffers > 2:
                more = self.emit(Op.CMPLT, dtypes.bool, (after, end))
                copied = self._begin(copied, more)
            self.under_way[loop] = copied
            for tile in tiles:
                self.pack(tile.stage.value, self._packed(tile, counter, keep=loop))
            return
        copies = [(self._packed(tile), self._copies(tile)) for tile in tiles]
        self._all_have_read()
        for packed, written in copies:
            self._store(packed, written)
        self._all_have_come()
        for tile, (packed, _) in zip(tiles, copies, strict=True):
            self.pack(tile.stage.value, packed)

    def steps_of(self, loop: Loop) -> tuple[Instruction, Instruction]:
        """The first step of a counted loop, and the one after its last."""
        if loop in self.limits:
            return self.limits[loop]
        return self.number(0), self.ends_of(loop)(-(-loop.axis.size // loop.stride))

    def ends_of(self, loop: Loop) -> Callable[[int], Instruction]:
        """Where a counted loop ends when its range ends after so many steps of its kind."""
        counted = loop.axis.counted
        outer = counted[: counted.index(loop)]
        behind = self.total([(self.counters[o], o.stride // loop.stride) for o in outer])
        always_whole = bool(outer) and loop.axis.size % outer[-1].stride == 0

        def until(steps: int) -> Instruction:
            if not outer:
                return self.number(min(loop.size, steps))
            if always_whole:
                return self.number(loop.size)
            ahead = self.number(steps)
            if behind is not None:
                ahead = self.arithmetic(Op.ADD, ahead, self.arithmetic(Op.MUL, behind, self.number(-1)))
            return self.arithmetic(Op.MIN, self.number(loop.size), ahead)

        return until

    def ahead(self, loop: Loop) -> int:
        """How many steps ahead a pipelined loop copies.

        A unit that works by itself still reads the tile of the step before, where there are enough of them.
        """
        buffers = self.nest.pipelined[loop]
        return buffers - 2 if self.is_unit_behind(loop) else max(1, buffers - 1)

    def is_unit_behind(self, loop: Loop | None) -> bool:
        """Whether a matrix unit is still at work on a step of a loop when the next one begins."""
        use = self.nest.unit
        buffers = 1 if loop is None else self.nest.pipelined.get(loop, 1)
        return use is not None and use.unit.reads_shared and buffers >= BEHIND_AT_LEAST

    def _all_have_come(self) -> None:
        """A barrier, behind which what was stored in shared memory is read, by whom it is."""
        use = self.nest.unit
        reads_shared = use is not None and use.unit.reads_shared
        self.place(Op.BARRIER, dtypes.index, (), UNITS_READ if reads_shared else None)

    def share_first(self, stages: list[Stage], loop: Loop) -> None:
        """The tiles of a pipelined loop's first steps, before it begins.

        Where the loop may end before them, copies of steps that it does not have are not begun: nobody would wait for
        them, and what comes after the loop may have another use for their memory.
        """
        self._all_have_read()
        buffers = self.nest.pipelined[loop]
        first, end = self.steps_of(loop)
        is_known = first.op is end.op is Op.CONST
        most = int(end.arg) - int(first.arg) if is_known else loop.size
        for step in range(self.ahead(loop)):
            if step >= most:
                if buffers > 2:
                    self.place(Op.COMMIT, dtypes.index, ())
                continue
            at = self.arithmetic(Op.ADD, first, self.number(step))
            has_step = None
            if buffers > 2 and not is_known:
                has_step = self.emit(Op.CMPLT, dtypes.bool, (at, end))
            # what is read for a step that the loop does not have is of one that its range has
            last = self.number(loop.size - 1)
            if loop not in self.limits:
                last = self.arithmetic(Op.ADD, end, self.number(-1))
            at = self.arithmetic(Op.MIN, at, last)
            self.is_at(loop, at)
            tiles = [self._tile(stage, loop) for stage in stages]
            copied = [self._copied(tile, at, loop) for tile in tiles]
            if buffers > 2:
                copied = self._begin(copied, has_step)
            for one in copied:
                self._store(one.packed, one.copies)
        self.is_at(loop, None)

    def share_last(self, loop: Loop) -> None:
        """A pipelined loop has ended: a unit that works by itself has done its last step."""
        if self.is_unit_behind(loop):
            self.place(Op.WARPGROUP_WAIT, dtypes.index, (), 0)

    def _wait_for(self, loop: Loop, counter: Instruction, end: Instruction) -> None:
        """Wait for the tiles of a step of a loop that copies some steps ahead."""
        self.place(Op.WAIT, dtypes.index, (), self.ahead(loop) - 1)

    def _copied(self, tile: Tile, at: Instruction, loop: Loop) -> Copied:
        """What a thread copies of a step's tile to that step's buffer."""
        return Copied(self._packed(tile, at, keep=loop), self._copies(tile))

    def _begin(self, copied: list[Copied], condition: Instruction | None = None) -> list[Copied]:
        """Begin copies that the GPU does by itself; what is more than a load is stored by the thread.

        The rest, which the threads are to store when this step ends, is returned.
        """
        for packed, written, _ in copied:
            for copy in written:
                terms, offset, value, guard = copy
                source = _plain_load(value)
                if source is None:
                    self._store(packed, [copy])
                    continue
                load, mask = source
                if guard is None or condition is None:
                    guard = guard or condition
                else:
                    guard = self.emit(Op.AND, dtypes.bool, (condition, guard))
                terms, offset = self.swizzled(packed, terms, offset)
                to = self.total([*packed.terms, *terms])
                src = (packed.address, to, load.src[0], load.src[1], mask, guard)
                self.place(Op.COPY_SHARED, load.dtype, src, (offset, load.arg))
        self.place(Op.COMMIT, dtypes.index, ())
        return []

    def share_ahead(self, loop: Loop) -> None:
        """The step ends: the next one's tiles, which were read while it computed, are stored."""
        tiles = self.under_way.pop(loop, [])
        if tiles and self.nest.pipelined[loop] == 1:  # their places are those of this step's
            self.place(Op.BARRIER, dtypes.index, ())
        for packed, copies, _ in tiles:
            self._store(packed, copies)

    def _all_have_read(self) -> None:
        """Wait for all threads where a loop around has tiles of the step before."""
        if any(loop.kind == "serial" for loop in self.counters):
            self.place(Op.BARRIER, dtypes.index, ())

    def _tile(self, stage: Stage, loop: Loop | None) -> Tile:
        """The tile of a stage, with room for it."""
        self.pack(stage.value, None)
        mask = self.masks[stage.load]
        tile = tile_of(
            stage, mask, self.nest.axes, self.counters, self.affine, self.nest.unit, self.nest.threads
        )
        buffers = 1 if loop is None else self.nest.pipelined.get(loop, 1)
        if stage.load not in self.scratch_at:
            align = SWIZZLE_ALIGN if tile.is_read_by_unit else LINE_BYTES
            self.shared_align = max(self.shared_align, align)
            start = -(-self.shared_bytes // align) * align
            self.scratch_at[stage.load] = start
            self.shared_bytes = start + buffers * tile.bytes
        if self.shared_bytes > self.most_shared:
            raise ScheduleError(
                f"stage: {self.shared_bytes} bytes of shared memory exceed {self.most_shared}"
            )
        return tile

    def _packed(self, tile: Tile, step: Instruction | None = None, keep: Loop | None = None) -> Packed:
        """Where a tile lies; of a pipelined one, in the buffer that a step has."""
        dtype = tile.stage.value.dtype
        address = self.emit(Op.SHARED, dtype, (), self.scratch_at[tile.stage.load])
        packed = Packed(address, {}, self.depth, swizzle=tile.swizzle)
        buffers = self.nest.pipelined[keep] if keep is not None else 1
        if step is not None and buffers > 1:
            buffer = step
            if step.op is not Op.CONST:
                buffer = self.emit(Op.MOD, dtypes.index, (step, self.number(buffers)), NOT_NEGATIVE)
            packed.terms.append((buffer, tile.bytes // dtype.itemsize))
        self.tile_of[tile.stage.value] = tile
        for axis, stride in tile.strides.items():
            for loop in axis.loops:
                if loop is not keep and (loop.kind == "thread" or loop not in self.counters):
                    packed.strides[loop] = stride * loop.stride
        return packed

    def _store(self, packed: Packed, copies: list[Copy]) -> None:
        """Write what was copied to shared memory."""
        for terms, offset, value, mask in copies:
            terms, offset = self.swizzled(packed, terms, offset)
            masks = () if mask is None else (mask,)
            src = (packed.address, self.total([*packed.terms, *terms]), value, *masks)
            self.place(Op.STORE, dtypes.index, src, offset)

    def _copies(self, tile: Tile) -> list[Copy]:
        """What this thread copies of a tile: place, value, and a condition where not all threads have a part."""
        threads = self.nest.threads
        steps = -(-tile.pieces // threads)
        if steps > 4 * STEPS_AT_ONCE:
            raise ScheduleError(
                f"stage: {steps} steps of {threads} threads copy one tile; stage less at a time"
            )

        def copy_all() -> list[Copy]:
            made = []
            for step in range(steps):
                piece = self._sum(self.thread, step * threads)
                mask = None
                if (step + 1) * threads > tile.pieces:
                    mask = self.emit(Op.CMPLT, dtypes.bool, (piece, self.number(tile.pieces)))
                made += self._copy(tile, piece, mask)
            return made

        return self.from_the_start(tile, copy_all)

    def from_the_start(self, tile: Tile, write: Callable[[], T]) -> T:
        """What is written where the tile's ranges are at the begin of the step."""
        stilled = {
            loop: self.counters.get(loop)
            for axis in tile.seen
            for loop in axis.loops
            if not loop.is_written_out and (loop.kind == "thread" or loop not in self.counters)
        }
        for loop in stilled:  # the tile starts where the step does
            self.counters[loop] = self.number(0)
        made = write()
        for loop, before in stilled.items():
            if before is None:
                del self.counters[loop]
            else:
                self.counters[loop] = before
        self.moved()
        return made

    def _copy(self, tile: Tile, piece: Instruction, mask: Instruction | None) -> list[Copy]:
        """What a thread copies of piece number `piece`, whose digits count the tile's parts."""
        terms: list[Term] = []
        walks = {axis: self._walk(tile, axis) for axis in tile.sizes}
        rest, left = piece, tile.pieces
        for part in tile.parts:
            here, room = rest, part.count + part.gap
            if left > room:
                here = self.emit(Op.MOD, dtypes.index, (rest, self.number(room)), NOT_NEGATIVE)
                rest = self.emit(Op.FLOORDIV, dtypes.index, (rest, self.number(room)), NOT_NEGATIVE)
                left //= room
                if part.gap:  # what is read for a gap matters to nobody
                    here = self.arithmetic(Op.MIN, here, self.number(part.count - 1))
            elif mask is not None or part.gap:  # beyond the last piece: anywhere inside
                here = self.arithmetic(Op.MIN, rest, self.number(part.count - 1))
            walk = walks[part.axis]
            self.counters[next(loop for loop in walk.counted if loop.stride == part.step)] = here
            terms.append((here, part.stride))
        self.moved()
        source = tile.stage.value.substitute(
            {axis.range: axis.range + walk.range for axis, walk in walks.items()}
        )
        self._mask_copies(source)
        point: Point = dict.fromkeys(self.nest.axes, (0, 1))
        if tile.lanes > 1 and tile.vector is not None:
            point[walks[tile.vector]] = (0, tile.lanes)
        if not tile.is_turned:
            return [(terms, 0, self.broadcast(self.value(source, point), tile.lanes), mask)]
        assert tile.vector is not None
        along = walks[next(reversed(tile.sizes))]
        rows = [
            self.broadcast(self.value(source, {**point, along: (step, 1)}), tile.lanes)
            for step in range(tile.run)
        ]
        kind = tile.stage.value.dtype.vec(tile.run)
        columns = []
        for lane in range(tile.lanes):
            column = self.emit(Op.VECTOR, kind, tuple([self.lane(row, lane) for row in rows]))
            columns.append((terms, lane * tile.strides[tile.vector], column, mask))
        return columns

    def _walk(self, tile: Tile, axis: Axis) -> Axis:
        """A range of a copy: loops that the piece's number counts, and those of its rectangle."""
        bit = len(self.axes)
        size = tile.sizes[axis]
        node = Node(Op.RANGE, dtypes.index, (index(size),), ("copy", bit))
        walk = Axis(node, f"{axis.name}.copy", size, False, False, 1 << bit)
        parts = sorted([part for part in tile.parts if part.axis is axis], key=lambda part: -part.step)
        walk.loops = [Loop(f"{walk.name}.{part.step}", walk, part.count, part.step) for part in parts]
        inner = "vector" if axis is tile.vector else "unroll"
        width = tile.lanes if axis is tile.vector else tile.run if axis is next(reversed(tile.sizes)) else 1
        if width > 1:
            walk.loops.append(Loop(f"{walk.name}.1", walk, width, 1, inner))
        self._add_axis(walk)
        return walk

    def _sum(self, value: Instruction, offset: int) -> Instruction:
        return value if not offset else self.emit(Op.ADD, dtypes.index, (value, self.number(offset)))


def _plain_load(value: Instruction) -> tuple[Instruction, Instruction | None] | None:
    """The load whose value this is, and the condition outside of which it is zero; None for anything else."""
    if value.op is Op.LOAD and len(value.src) == 2:
        return value, None
    if value.op is Op.LOAD and value.dtype.lanes == 1:
        return value, value.src[2]
    if value.op is Op.WHERE and value.source(1).op is Op.LOAD and value.source(2).number == 0:
        mask = value.source(0)
        if mask.op is Op.BROADCAST and len(value.source(1).src) == 2:
            return value.source(1), mask.source(0)
    return None
