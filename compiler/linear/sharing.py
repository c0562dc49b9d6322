"""Sharing: what the threads of a group read from the same tile, copied once into the memory that they share.

In       the stages of one loop, as a step of it begins, in a kernel with threads
Out      loads by all threads, a barrier, stores to shared memory, a barrier; from there on the operands are read there
Next     staging.py (the same for one worker's scratch), linearize.py (where stages belong), across.py (the other user)

Of a pipelined loop there are several tiles. With two, a step computes with one while its threads have the next in
registers, and then store it into the other. With more, the GPU copies by itself, some steps ahead. One barrier for a
step is enough.

A tile is a box: for each range of the operand, what one step of its innermost open loop covers. It lies in the order of
memory, so threads next to each other copy what lies next to each other, 16 bytes each where that divides. A row is
padded by 16 bytes: reads down a column then meet different banks. A tile that a matrix unit reads by itself is
swizzled instead: 64 elements that lie next to each other in memory are a row of 128 bytes, and the eight pieces of 16
bytes in it change places by the row's number, so that eight rows meet all banks.
"""

from __future__ import annotations

from math import prod

from hcq.compiler.linear.alignment import BUFFER_ALIGN
from hcq.compiler.linear.emitter import Term
from hcq.compiler.linear.lower_expr import Packed, Point
from hcq.compiler.linear.program import NOT_NEGATIVE, UNITS_READ, Instruction
from hcq.compiler.linear.staging import Staging
from hcq.compiler.loops.loop import Axis, Loop
from hcq.compiler.loops.loop_nest import LoopNest
from hcq.compiler.loops.nest import ScheduleError, Stage
from hcq.ir.dtype import dtypes
from hcq.ir.node import Node, index
from hcq.ir.op import Op

MOST_SHARED = 48 << 10  # bytes of a group, which every GPU has
SPAN = 64  # elements of 16 bits in a row of a swizzled tile
ROWS = 8  # after so many rows the swizzle begins anew
SWIZZLE_ALIGN = 1024  # bytes of them
BEHIND_AT_LEAST = 4  # tiles, of which one may be that of the step before
STEPS_AT_ONCE = 8  # loads of a thread under way


class Tile:
    """One operand's box: its ranges with how much of each it holds, the last one contiguous in memory."""

    def __init__(self, writer: Sharing, stage: Stage):
        self.stage = stage
        use = writer.nest.unit
        self.is_swizzled = use is not None and use.unit.reads_shared and stage.load in (use.a, use.b)
        mask = writer.masks[stage.load]
        form = writer.affine.of(stage.load.src[1])
        axes = [axis for axis in writer.nest.axes if axis.bit & mask]
        axes.sort(key=lambda axis: -abs(form.coefficient(axis.range)))
        self.sizes: dict[Axis, int] = {}
        for axis in axes:
            opened = [loop for loop in axis.counted if loop in writer.counters]
            step = opened[-1].stride if opened else axis.size
            if axis.size % step:
                raise ScheduleError(f"stage: {axis.name} ends in a partial step of {step}; pad it first")
            if step > 1:
                self.sizes[axis] = step
        inner = next(reversed(self.sizes), None)
        self.lanes = 1
        if inner is not None and form.coefficient(inner.range) == 1:
            self.lanes = BUFFER_ALIGN // max(stage.load.dtype.itemsize, stage.value.dtype.itemsize)
            while self.sizes[inner] % self.lanes:
                self.lanes //= 2
        self.strides: dict[Axis, int] = {}
        if self.is_swizzled:
            self._swizzle()
            return
        count = 1
        for axis in reversed(self.sizes):
            self.strides[axis] = count
            count *= self.sizes[axis]
            if axis is inner and len(self.sizes) > 1:
                count += BUFFER_ALIGN // stage.value.dtype.itemsize
        self.bytes = count * stage.value.dtype.itemsize

    def _swizzle(self) -> None:
        """The tile of a unit that reads shared memory: rows of 128 bytes, one behind the other."""
        if len(self.sizes) != 2:
            raise ScheduleError(f"stage: a swizzled tile has two ranges, this one {len(self.sizes)}")
        (outer, rows), (inner, width) = self.sizes.items()
        if rows % ROWS or width % SPAN:
            raise ScheduleError(
                f"stage: a swizzled tile is a multiple of {ROWS} of {outer.name} and of {SPAN} of {inner.name}, "
                f"not {rows} and {width}"
            )
        self.bytes = rows * width * self.stage.value.dtype.itemsize

    @property
    def outer(self) -> Axis:
        """The first of two ranges."""
        return next(iter(self.sizes))

    @property
    def inner(self) -> Axis:
        """The last range, along which neighbours lie next to each other."""
        return next(reversed(self.sizes))

    def place(self, outer: int, inner: int) -> int:
        """The element of a swizzled tile with these numbers, the first of a piece, before pieces change places."""
        return inner // SPAN * self.sizes[self.outer] * SPAN + outer * SPAN + inner % SPAN

    @property
    def pieces(self) -> int:
        """Accesses of `lanes` elements that fill it."""
        return prod(self.sizes.values()) // self.lanes


Copy = tuple[Instruction | None, Instruction, Instruction | None]  # where, what, and under which condition


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
        self.under_way: dict[
            Loop, list[tuple[Packed, list[Copy]]]
        ] = {}  # read, and stored when the step ends

    def share(self, stages: list[Stage], loop: Loop | None) -> None:
        """Write the copies of operands that are staged at one loop; from now on they are read from shared memory.

        Where the loop is pipelined, the copies are those of the next step, and what is read is what the step before,
        or `share_first`, has stored.
        """
        tiles = [self._tile(stage, loop) for stage in stages]
        if loop is not None and loop in self.nest.pipelined:
            buffers = self.nest.pipelined[loop]
            ahead = self.ahead(loop)
            if buffers > 2:
                self.place(Op.WAIT, dtypes.index, (), ahead - 1)
            # this step's tiles are there, and those before have been read
            self._all_have_come()
            counter = self.counters[loop]
            after = self._sum(counter, ahead)
            self.counters[loop] = self.arithmetic(Op.MIN, after, self.number(loop.size - 1))
            self.moved()
            self.under_way[loop] = [
                (self._packed(tile, after, keep=loop), self._copies(tile)) for tile in tiles
            ]
            self.counters[loop] = counter
            self.moved()
            if buffers > 2:
                self._begin(self.under_way.pop(loop))
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

    def ahead(self, loop: Loop) -> int:
        """How many steps ahead a pipelined loop copies.

        A unit that works by itself still reads the tile of the step before, where there are enough of them.
        """
        buffers = self.nest.pipelined[loop]
        return buffers - 2 if self.is_unit_behind(loop) else buffers - 1

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
        """The tiles of a pipelined loop's first steps, before it begins."""
        self._all_have_read()
        buffers = self.nest.pipelined[loop]
        for step in range(self.ahead(loop)):
            self.counters[loop] = self.number(min(step, loop.size - 1))
            self.moved()
            tiles = [self._tile(stage, loop) for stage in stages]
            at = self.number(step)
            copies = [(self._packed(tile, at, keep=loop), self._copies(tile)) for tile in tiles]
            if buffers > 2:
                self._begin(copies)
            else:
                for packed, written in copies:
                    self._store(packed, written)
        del self.counters[loop]
        self.moved()

    def share_last(self, loop: Loop) -> None:
        """A pipelined loop has ended: what it began is there, so that its memory is free."""
        if self.is_unit_behind(loop):
            self.place(Op.WARPGROUP_WAIT, dtypes.index, (), 0)
        if self.nest.pipelined[loop] > 2:
            self.place(Op.WAIT, dtypes.index, (), 0)

    def _begin(self, copies: list[tuple[Packed, list[Copy]]]) -> None:
        """Begin copies that the GPU does by itself; what is more than a load is stored by the thread."""
        for packed, written in copies:
            for copy in written:
                place, value, guard = copy
                source = _plain_load(value)
                if source is None:
                    self._store(packed, [copy])
                    continue
                load, mask = source
                terms = [*packed.terms, *([] if place is None else [(place, 1)])]
                src = (packed.address, self.total(terms), load.src[0], load.src[1], mask, guard)
                self.place(Op.COPY_SHARED, load.dtype, src, (0, load.arg))
        self.place(Op.COMMIT, dtypes.index, ())

    def share_ahead(self, loop: Loop) -> None:
        """The step ends: the next one's tiles, which were read while it computed, are stored."""
        for packed, copies in self.under_way.pop(loop, []):
            self._store(packed, copies)

    def _all_have_read(self) -> None:
        """Wait for all threads where a loop around has tiles of the step before."""
        if any(loop.kind == "serial" for loop in self.counters):
            self.place(Op.BARRIER, dtypes.index, ())

    def _tile(self, stage: Stage, loop: Loop | None) -> Tile:
        """The tile of a stage, with room for it."""
        self.pack(stage.value, None)
        tile = Tile(self, stage)
        buffers = 1 if loop is None else self.nest.pipelined.get(loop, 1)
        if stage.load not in self.scratch_at:
            align = SWIZZLE_ALIGN if tile.is_swizzled else BUFFER_ALIGN
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
        packed = Packed(address, {}, self.depth)
        if step is not None:
            buffer = step
            if step.op is not Op.CONST:
                assert keep is not None
                buffers = self.number(self.nest.pipelined[keep])
                buffer = self.emit(Op.MOD, dtypes.index, (step, buffers), NOT_NEGATIVE)
            packed.terms.append((buffer, tile.bytes // dtype.itemsize))
        self.tile_of[tile.stage.value] = tile
        for axis, stride in tile.strides.items():
            for loop in axis.loops:
                if loop is not keep and (loop.kind == "thread" or loop not in self.counters):
                    packed.strides[loop] = stride * loop.stride
        return packed

    def _store(self, packed: Packed, copies: list[Copy]) -> None:
        """Write what was copied to shared memory."""
        for place, value, mask in copies:
            terms = list(packed.terms)
            if place is not None:
                terms.append((place, 1))
            masks = () if mask is None else (mask,)
            src = (packed.address, self.total(terms), value, *masks)
            self.place(Op.STORE, dtypes.index, src, 0)

    def _copies(self, tile: Tile) -> list[Copy]:
        """What this thread copies of a tile: place, value, and a condition where not all threads have a part."""
        threads = self.nest.threads
        steps = -(-tile.pieces // threads)
        if steps > 4 * STEPS_AT_ONCE:
            raise ScheduleError(
                f"stage: {steps} steps of {threads} threads copy one tile; stage less at a time"
            )
        stilled = {
            loop: self.counters.get(loop)
            for axis in tile.sizes
            for loop in axis.loops
            if not loop.is_written_out and (loop.kind == "thread" or loop not in self.counters)
        }
        for loop in stilled:  # the tile starts where the step does
            self.counters[loop] = self.number(0)
        zeros: Point = dict.fromkeys(tile.sizes, (0, 1))
        made = []
        for step in range(steps):
            piece = self._sum(self.thread, step * threads)
            mask = None
            if (step + 1) * threads > tile.pieces:
                mask = self.emit(Op.CMPLT, dtypes.bool, (piece, self.number(tile.pieces)))
            made.append(self._copy(tile, piece, zeros, mask))
        for loop, before in stilled.items():
            if before is None:
                del self.counters[loop]
            else:
                self.counters[loop] = before
        self.moved()
        return made

    def _copy(self, tile: Tile, piece: Instruction, zeros: Point, mask: Instruction | None) -> Copy:
        """One access of a thread: piece number `piece`, taken apart into a place for each range."""
        mapping: dict[Node, Node] = {}
        point = dict(zeros)
        terms = []
        heres: list[Instruction] = []
        rest, left = piece, tile.pieces
        for axis in reversed(tile.sizes):
            lanes = tile.lanes if not mapping else 1
            count = tile.sizes[axis] // lanes
            walk = self._walk(axis, count, lanes)
            here = rest
            if left > count:
                here = self.emit(Op.MOD, dtypes.index, (rest, self.number(count)), NOT_NEGATIVE)
                rest = self.emit(Op.FLOORDIV, dtypes.index, (rest, self.number(count)), NOT_NEGATIVE)
                left //= count
            elif mask is not None:  # beyond the last piece: anywhere inside
                here = self.arithmetic(Op.MIN, rest, self.number(count - 1))
            self.counters[walk.loops[0]] = here
            heres.append(here)
            if not tile.is_swizzled:
                terms.append((here, lanes * tile.strides[axis]))
            if lanes > 1:
                point[walk] = (0, lanes)
            mapping[axis.range] = axis.range + walk.range
        self.moved()
        source = tile.stage.value.substitute(mapping)
        self._mask_copies(source)
        value = self.value(source, point)
        if tile.is_swizzled:
            terms = self._swizzled(tile, *heres)
        return self.total(terms), self.broadcast(value, tile.lanes), mask

    def _swizzled(self, tile: Tile, along: Instruction, row: Instruction) -> list[Term]:
        """Where a piece of a swizzled tile lies: the piece's number along the inner range, the outer range's number."""
        per_piece = BUFFER_ALIGN // tile.stage.value.dtype.itemsize // tile.lanes
        sub, piece = self._taken_apart(along, per_piece)
        piece, span = self._taken_apart(piece, ROWS)
        bits, _ = self._taken_apart(row, ROWS)
        turned = self.emit(Op.XOR, dtypes.index, (piece, bits))
        rows = tile.sizes[tile.outer]
        return [(span, rows * SPAN), (row, SPAN), (turned, SPAN // ROWS), (sub, tile.lanes)]

    def _taken_apart(self, value: Instruction, size: int) -> tuple[Instruction, Instruction]:
        """Remainder and quotient."""
        if size == 1:
            return self.number(0), value
        number = self.number(size)
        rest = self.emit(Op.MOD, dtypes.index, (value, number), NOT_NEGATIVE)
        return rest, self.emit(Op.FLOORDIV, dtypes.index, (value, number), NOT_NEGATIVE)

    def _walk(self, axis: Axis, count: int, lanes: int) -> Axis:
        """A range of a copy, whose first loop is counted by the thread's number."""
        bit = len(self.axes)
        node = Node(Op.RANGE, dtypes.index, (index(count * lanes),), ("copy", bit))
        walk = Axis(node, f"{axis.name}.copy", count * lanes, False, False, 1 << bit)
        walk.loops.append(Loop(walk.name, walk, count, lanes))
        if lanes > 1:
            walk.loops.append(Loop(f"{walk.name}.1", walk, lanes, 1, "vector"))
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
