"""Sharing: what the threads of a group read from the same tile, copied once into the memory that they share.

In       the stages of one loop, as a step of it begins, in a kernel with threads
Out      loads by all threads, a barrier, stores to shared memory, a barrier; from there on the operands are read there
Next     staging.py (the same for one worker's scratch), linearize.py (where stages belong), across.py (the other user)

Of a pipelined loop there are several tiles. With two, a step computes with one while its threads have the next in
registers, and then store it into the other. With more, the GPU copies by itself, some steps ahead. One barrier for a
step is enough.

A tile is a box: for each range of the operand, what one step of its innermost open loop covers. It lies in the order of
memory, so threads next to each other copy what lies next to each other, 16 bytes each where that divides. A row is
padded by 16 bytes: reads down a column then meet different banks.
"""

from __future__ import annotations

from math import prod

from hcq.compiler.linear.alignment import BUFFER_ALIGN
from hcq.compiler.linear.lower_expr import Packed, Point
from hcq.compiler.linear.program import NOT_NEGATIVE, Instruction
from hcq.compiler.linear.staging import Staging
from hcq.compiler.loops.loop import Axis, Loop
from hcq.compiler.loops.loop_nest import LoopNest
from hcq.compiler.loops.nest import ScheduleError, Stage
from hcq.ir.dtype import dtypes
from hcq.ir.node import Node, index
from hcq.ir.op import Op

MOST_SHARED = 48 << 10  # bytes of a group, which every GPU has
STEPS_AT_ONCE = 8  # loads of a thread under way


class _Tile:
    """One operand's box: its ranges with how much of each it holds, the last one contiguous in memory."""

    def __init__(self, writer: Sharing, stage: Stage):
        self.stage = stage
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
        count = 1
        for axis in reversed(self.sizes):
            self.strides[axis] = count
            count *= self.sizes[axis]
            if axis is inner and len(self.sizes) > 1:
                count += BUFFER_ALIGN // stage.value.dtype.itemsize
        self.bytes = count * stage.value.dtype.itemsize

    @property
    def pieces(self) -> int:
        """Accesses of `lanes` elements that fill it."""
        return prod(self.sizes.values()) // self.lanes


Copy = tuple[Instruction | None, Instruction, Instruction | None]  # where, what, and under which condition


class Sharing(Staging):
    """Copies for all threads of a group."""

    shared_bytes = 0

    def __init__(self, nest: LoopNest, most_shared: int):
        super().__init__(nest)
        self.most_shared = most_shared  # bytes of a group
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
            if buffers > 2:
                self.place(Op.WAIT, dtypes.index, (), buffers - 2)
            # this step's tiles are there, and those before have been read
            self.place(Op.BARRIER, dtypes.index, ())
            counter = self.counters[loop]
            after = self._sum(counter, buffers - 1)
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
        self.place(Op.BARRIER, dtypes.index, ())
        for tile, (packed, _) in zip(tiles, copies, strict=True):
            self.pack(tile.stage.value, packed)

    def share_first(self, stages: list[Stage], loop: Loop) -> None:
        """The tiles of a pipelined loop's first steps, before it begins."""
        self._all_have_read()
        buffers = self.nest.pipelined[loop]
        for step in range(buffers - 1):
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

    def _tile(self, stage: Stage, loop: Loop | None) -> _Tile:
        """The tile of a stage, with room for it."""
        self.pack(stage.value, None)
        tile = _Tile(self, stage)
        buffers = 1 if loop is None else self.nest.pipelined.get(loop, 1)
        if stage.load not in self.scratch_at:
            start = -(-self.shared_bytes // BUFFER_ALIGN) * BUFFER_ALIGN
            self.scratch_at[stage.load] = start
            self.shared_bytes = start + buffers * tile.bytes
        if self.shared_bytes > self.most_shared:
            raise ScheduleError(
                f"stage: {self.shared_bytes} bytes of shared memory exceed {self.most_shared}"
            )
        return tile

    def _packed(self, tile: _Tile, step: Instruction | None = None, keep: Loop | None = None) -> Packed:
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

    def _copies(self, tile: _Tile) -> list[Copy]:
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

    def _copy(self, tile: _Tile, piece: Instruction, zeros: Point, mask: Instruction | None) -> Copy:
        """One access of a thread: piece number `piece`, taken apart into a place for each range."""
        mapping: dict[Node, Node] = {}
        point = dict(zeros)
        terms = []
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
            terms.append((here, lanes * tile.strides[axis]))
            if lanes > 1:
                point[walk] = (0, lanes)
            mapping[axis.range] = axis.range + walk.range
        self.moved()
        source = tile.stage.value.substitute(mapping)
        self._mask_copies(source)
        value = self.value(source, point)
        return self.total(terms), self.broadcast(value, tile.lanes), mask

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
