"""Bulk copies: whole tiles brought to shared memory by the tensor memory accelerator (TMA), counted by mbarriers.

In       the stages of a pipelined loop that the schedule says `bulk` of
Out      mbarriers, one for each buffer; copies that one thread begins; waits for the tiles of a step
Next     sharing.py (copies by all threads), ../loops/tensors.py (what can be copied so), ../render/bulk.py (the PTX)
Source   PTX ISA, "cp.async.bulk.tensor", "mbarrier"; CUDA C++ Programming Guide, "Using TMA to transfer
         multi-dimensional arrays"

A tensor map says what lies where; it takes the place of the buffer's address among the kernel's parameters. A copy
brings 64 elements along the contiguous range, a swizzled row, times all rows of the tile, and zeros for what is outside
of the tensor. The tiles of a step share an mbarrier: its phase is over when all their bytes are there. A producer is a
warpgroup that only begins copies; each of the others' warps says by a second mbarrier of a buffer that it was read. No
registers change hands (setmaxnreg): of three warpgroups a thread may have 168, and ptxas is content with fewer.
"""

from __future__ import annotations

from hcq.compiler.linear.context import Context, Lowering
from hcq.compiler.linear.emitter import Scope
from hcq.compiler.linear.program import Instruction
from hcq.compiler.linear.tile_copies import TileCopies, is_unit_behind, steps_ahead
from hcq.compiler.linear.tiles import SPAN, Tile
from hcq.compiler.loops.loop import Axis, Loop
from hcq.compiler.loops.nest import ScheduleError, Stage
from hcq.compiler.loops.tensors import tensor_of
from hcq.ir.dtype import dtypes
from hcq.ir.op import Op

MBARRIER_BYTES = 8
MOST_BOX = 256  # of each side
ROWS = 8  # after so many the swizzle begins anew
WARP, WARPGROUP = 32, 128  # threads


class BulkCopies(Lowering):
    """Copies of tiles by the GPU's own accelerator."""

    def __init__(self, context: Context, tiles: TileCopies):
        super().__init__(context)
        self.tiles = tiles
        # mbarriers, one for each buffer: its tiles are there; they have been read
        self.mbarriers = self.freed = Instruction(Op.SHARED, dtypes.int64, (), 0, 0)

    def takes(self, loop: Loop | None) -> bool:
        """The stages of loops that the schedule says `bulk` of."""
        return loop in self.nest.bulk

    def begin_step(self, stages: list[Stage], loop: Loop | None) -> None:
        """A step begins: wait for its tiles, and begin the copies of a later one's where no producer does."""
        assert loop is not None, "bulk copies are those of a loop"
        tiles = [self.tiles.tile(stage, loop) for stage in stages]
        counter = self.loops.counters[loop]
        slot, parity = self._turn(loop, counter)
        self.emitter.place(Op.WAIT_TILES, dtypes.index, (self.mbarriers, slot, parity))
        if loop not in self.nest.produced:
            # all have begun this step: what those of the steps before read is free, but for what the unit still reads
            self.emitter.barrier()
            after = self.emitter.plus(counter, steps_ahead(self.nest, loop))
            self._bring(tiles, loop, after, self._who(after, loop))
            self.loops.counters[loop] = counter
            self.loops.moved()
        for tile in tiles:
            self.values.pack(tile.stage.value, self.tiles.packed(tile, counter, keep=loop))

    def end_step(self, loop: Loop) -> None:
        """A step ends: where a producer brings tiles, it is told which have been read."""
        if loop not in self.nest.produced:
            return
        read = counter = self.loops.counters[loop]
        who = self.emitter.is_equal(self._rest(self.loops.thread, WARP), 0)
        if is_unit_behind(self.nest, loop):  # what it has read is the tiles of the step before
            read = self.emitter.plus(counter, -1)
            is_later = self.emitter.emit(Op.CMPLT, dtypes.bool, (self.emitter.number(0), counter))
            read = self.emitter.emit(Op.MAX, dtypes.index, (read, self.emitter.number(0)))
            who = self.emitter.emit(Op.AND, dtypes.bool, (is_later, who))
        slot = self._rest(read, self.nest.pipelined[loop])
        self.emitter.place(Op.FREE_TILES, dtypes.index, (self.freed, slot, who))

    def begin_loop(self, stages: list[Stage], loop: Loop) -> None:
        """The loop begins: mbarriers, and the copies of the first steps, or the producer's whole loop."""
        if any(other.kind == "serial" and other in self.loops.counters for other in self.nest.order):
            raise ScheduleError("pipeline: bulk copies are those of the only loop of a kernel")
        self.loops.counters[loop] = self.emitter.number(0)
        tiles = [self.tiles.tile(stage, loop) for stage in stages]
        is_produced, buffers = loop in self.nest.produced, self.nest.pipelined[loop]
        start = -(-self.memory.shared_bytes // MBARRIER_BYTES) * MBARRIER_BYTES
        expected = (1,) * buffers + (self.nest.threads // WARP,) * (buffers if is_produced else 0)
        self.memory.shared_bytes = start + len(expected) * MBARRIER_BYTES
        self.mbarriers = self.emitter.emit(Op.SHARED, dtypes.int64, (), start)
        self.freed = self.emitter.emit(Op.SHARED, dtypes.int64, (), start + buffers * MBARRIER_BYTES)
        self.emitter.place(Op.MBARRIERS, dtypes.index, (self.mbarriers, self._is_thread(0)), expected)
        self.emitter.barrier()
        if is_produced:
            self._produce(tiles, loop)
        else:
            first, _ = self.loops.steps_of(loop)
            for step in range(min(steps_ahead(self.nest, loop), loop.size)):
                at = self.emitter.arithmetic(Op.ADD, first, self.emitter.number(step))
                self._bring(tiles, loop, at, self._who(at, loop))
        del self.loops.counters[loop]
        self.loops.moved()

    def end_loop(self, loop: Loop) -> None:
        """The loop has ended; the last step has waited for the last tiles."""

    def _produce(self, tiles: list[Tile], loop: Loop) -> None:
        """The producer's own loop: a buffer at a time, as soon as all have read what is in it.

        What does not depend on its loop is written before it, as around any loop, for the other threads to use, too.
        """
        if loop in self.loops.limits:
            raise ScheduleError("pipeline: a producer brings the tiles of all steps, and some are left out")
        self.memory.producers = WARPGROUP
        who = self._is_thread(self.nest.threads)
        self.emitter.scopes.append(Scope())
        counter = self.emitter.begin(
            loop.name, self.emitter.number(0), self.emitter.number(loop.size), runs=True
        )
        slot, parity = self._turn(loop, counter)
        # the phase before the first is over from the beginning
        before = self.emitter.emit(
            Op.ADD,
            dtypes.index,
            (
                self.emitter.emit(Op.MUL, dtypes.index, (parity, self.emitter.number(-1))),
                self.emitter.number(1),
            ),
        )
        self.emitter.place(Op.WAIT_TILES, dtypes.index, (self.freed, slot, before))
        self._bring(tiles, loop, counter, self._is_thread(self.nest.threads))
        self.emitter.end(counter)
        made = self.emitter.scopes.pop().instructions
        self.emitter.place(Op.PRODUCER, dtypes.index, (who,), "begin")
        self.emitter.scopes[-1].instructions += made
        self.emitter.place(Op.PRODUCER, dtypes.index, (who,), "end")
        self.loops.moved()

    def _turn(self, loop: Loop, counter: Instruction) -> tuple[Instruction, Instruction]:
        """A step's buffer, and the parity of its mbarrier's phase."""
        buffers = self.nest.pipelined[loop]
        first, _ = self.loops.steps_of(loop)
        past = self.emitter.arithmetic(Op.MUL, first, self.emitter.number(-1))
        rounds = self.emitter.quotient(self.emitter.arithmetic(Op.ADD, counter, past), buffers)
        return self._rest(counter, buffers), self._rest(rounds, 2)

    def _rest(self, value: Instruction, size: int) -> Instruction:
        if value.op is Op.CONST:
            return self.emitter.number(int(value.arg) % size)
        return self.emitter.rest(value, size)

    def _is_thread(self, number: int) -> Instruction:
        """Whether this is the thread of that number."""
        return self.emitter.is_equal(self.loops.thread, number)

    def _who(self, at: Instruction, loop: Loop) -> Instruction:
        """The condition for the thread that copies: if the loop has that step."""
        _, end = self.loops.steps_of(loop)
        if at.op is end.op is Op.CONST:
            assert int(at.arg) < int(end.arg), "no copy is begun for a step that is known not to be there"
            return self._is_thread(0)
        is_there = self.emitter.emit(Op.CMPLT, dtypes.bool, (at, end))
        return self.emitter.emit(Op.AND, dtypes.bool, (is_there, self._is_thread(0)))

    def _bring(self, tiles: list[Tile], loop: Loop, at: Instruction, who: Instruction) -> None:
        """Begin the copies of a step; who: the condition for one thread."""
        self.loops.counters[loop] = at
        self.loops.moved()
        slot = self._rest(at, self.nest.pipelined[loop])
        self.emitter.place(
            Op.EXPECT_TILES, dtypes.index, (self.mbarriers, slot, who), sum([tile.bytes for tile in tiles])
        )
        for tile in tiles:
            packed = self.tiles.packed(tile, at, keep=loop)
            base = self.emitter.total(packed.terms)
            for x in range(0, tile.sizes[tile.inner], SPAN):
                for y in range(0, tile.sizes[tile.outer], _rows_of_box(tile)):
                    where = self._coordinates(tile, {tile.inner: x, tile.outer: y})
                    src = (packed.address, base, self.mbarriers, slot, who, *where)
                    self.emitter.place(Op.COPY_TILE, tile.stage.load.dtype, src, tile.place(y, x))

    def _coordinates(self, tile: Tile, more: dict[Axis, int]) -> list[Instruction]:
        """The map, and where a box begins along each range of the tensor, the contiguous one first."""
        load = tile.stage.load
        tensor = tensor_of(self.nest, load)
        assert tensor is not None, "the schedule has asked for it"
        box = {tile.inner: SPAN, tile.outer: _rows_of_box(tile)}
        self.memory.tensor_maps[tensor.param.arg.index] = tensor.map(box)
        return [
            self.values.addresses[load.src[0]],
            *[self._begin_of(axis, more.get(axis, 0)) for axis in tensor.axes],
        ]

    def _begin_of(self, axis: Axis, more: int) -> Instruction:
        """Where the open loops of a range are."""
        terms = [
            (self.loops.counters[loop], loop.stride) for loop in axis.counted if loop in self.loops.counters
        ]
        return self.emitter.total(terms, more) or self.emitter.number(0)


def _rows_of_box(tile: Tile) -> int:
    """Rows that one copy brings: all of the tile, or a part that divides it and begins where the swizzle does."""
    rows = tile.sizes[tile.outer]
    return max(size for size in range(ROWS, min(rows, MOST_BOX) + 1, ROWS) if rows % size == 0)
