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

from hcq.compiler.linear.emitter import Scope
from hcq.compiler.linear.program import NOT_NEGATIVE, Instruction
from hcq.compiler.linear.tiles import SPAN, Tile
from hcq.compiler.linear.wave_copies import WaveCopies
from hcq.compiler.loops.loop import Axis, Loop
from hcq.compiler.loops.nest import ScheduleError, Stage
from hcq.compiler.loops.tensors import tensor_of
from hcq.ir.dtype import dtypes
from hcq.ir.op import Op

MBARRIER_BYTES = 8
MOST_BOX = 256  # of each side
ROWS = 8  # after so many the swizzle begins anew
WARP, WARPGROUP = 32, 128  # threads


class BulkCopies(WaveCopies):
    """Copies of tiles by the GPU's own accelerator."""

    def share(self, stages: list[Stage], loop: Loop | None) -> None:
        if loop is None or loop not in self.nest.bulk:
            super().share(stages, loop)
            return
        tiles = [self._tile(stage, loop) for stage in stages]
        counter = self.counters[loop]
        slot, parity = self._turn(loop, counter)
        self.place(Op.WAIT_TILES, dtypes.index, (self.mbarriers, slot, parity))
        if loop not in self.nest.produced:
            # all have begun this step: what those of the steps before read is free, but for what the unit still reads
            self.place(Op.BARRIER, dtypes.index, ())
            after = self._sum(counter, self.ahead(loop))
            who = self.emit(Op.AND, dtypes.bool, (self._is_before(after, loop.size), self._is_thread(0)))
            self._bring(tiles, loop, after, who)
            self.counters[loop] = counter
            self.moved()
        for tile in tiles:
            self.pack(tile.stage.value, self._packed(tile, counter, keep=loop))

    def share_ahead(self, loop: Loop) -> None:
        if loop not in self.nest.produced:
            super().share_ahead(loop)
            return
        read = counter = self.counters[loop]
        who = self.emit(Op.CMPEQ, dtypes.bool, (self._rest(self.thread, WARP), self.number(0)))
        if self.is_unit_behind(loop):  # what it has read is the tiles of the step before
            read = self._sum(counter, -1)
            is_later = self.emit(Op.CMPLT, dtypes.bool, (self.number(0), counter))
            read = self.emit(Op.MAX, dtypes.index, (read, self.number(0)))
            who = self.emit(Op.AND, dtypes.bool, (is_later, who))
        slot = self._rest(read, self.nest.pipelined[loop])
        self.place(Op.FREE_TILES, dtypes.index, (self.freed, slot, who))

    def share_first(self, stages: list[Stage], loop: Loop) -> None:
        if loop not in self.nest.bulk:
            super().share_first(stages, loop)
            return
        if any(other.kind == "serial" for other in self.counters):
            raise ScheduleError("pipeline: bulk copies are those of the only loop of a kernel")
        self.counters[loop] = self.number(0)
        tiles = [self._tile(stage, loop) for stage in stages]
        is_produced, buffers = loop in self.nest.produced, self.nest.pipelined[loop]
        start = -(-self.shared_bytes // MBARRIER_BYTES) * MBARRIER_BYTES
        expected = (1,) * buffers + (self.nest.threads // WARP,) * (buffers if is_produced else 0)
        self.shared_bytes = start + len(expected) * MBARRIER_BYTES
        self.mbarriers = self.emit(Op.SHARED, dtypes.int64, (), start)
        self.freed = self.emit(Op.SHARED, dtypes.int64, (), start + buffers * MBARRIER_BYTES)
        self.place(Op.MBARRIERS, dtypes.index, (self.mbarriers, self._is_thread(0)), expected)
        self.place(Op.BARRIER, dtypes.index, ())
        if is_produced:
            self._produce(tiles, loop)
        else:
            for step in range(min(self.ahead(loop), loop.size)):
                self._bring(tiles, loop, self.number(step), self._is_thread(0))
        del self.counters[loop]
        self.moved()

    def share_last(self, loop: Loop) -> None:
        if loop not in self.nest.bulk:
            super().share_last(loop)

    def _produce(self, tiles: list[Tile], loop: Loop) -> None:
        """The producer's own loop: a buffer at a time, as soon as all have read what is in it.

        What does not depend on its loop is written before it, as around any loop, for the other threads to use, too.
        """
        self.producers = WARPGROUP
        who = self._is_thread(self.nest.threads)
        self.scopes.append(Scope())
        counter = self.begin(loop.name, self.number(0), self.number(loop.size), runs=True)
        slot, parity = self._turn(loop, counter)
        # the phase before the first is over from the beginning
        before = self.emit(
            Op.ADD, dtypes.index, (self.emit(Op.MUL, dtypes.index, (parity, self.number(-1))), self.number(1))
        )
        self.place(Op.WAIT_TILES, dtypes.index, (self.freed, slot, before))
        self._bring(tiles, loop, counter, self._is_thread(self.nest.threads))
        self.end(counter)
        made = self.scopes.pop().instructions
        self.place(Op.PRODUCER, dtypes.index, (who,), "begin")
        self.scopes[-1].instructions += made
        self.place(Op.PRODUCER, dtypes.index, (who,), "end")
        self.moved()

    def _turn(self, loop: Loop, counter: Instruction) -> tuple[Instruction, Instruction]:
        """A step's buffer, and the parity of its mbarrier's phase."""
        buffers = self.nest.pipelined[loop]
        rounds = self.emit(Op.FLOORDIV, dtypes.index, (counter, self.number(buffers)), NOT_NEGATIVE)
        return self._rest(counter, buffers), self._rest(rounds, 2)

    def _rest(self, value: Instruction, size: int) -> Instruction:
        if value.op is Op.CONST:
            return self.number(int(value.arg) % size)
        return self.emit(Op.MOD, dtypes.index, (value, self.number(size)), NOT_NEGATIVE)

    def _is_thread(self, number: int) -> Instruction:
        """Whether this is the thread of that number."""
        return self.emit(Op.CMPEQ, dtypes.bool, (self.thread, self.number(number)))

    def _is_before(self, value: Instruction, end: int) -> Instruction:
        return self.emit(Op.CMPLT, dtypes.bool, (value, self.number(end)))

    def _bring(self, tiles: list[Tile], loop: Loop, at: Instruction, who: Instruction) -> None:
        """Begin the copies of a step; who: the condition for one thread."""
        self.counters[loop] = at
        self.moved()
        slot = self._rest(at, self.nest.pipelined[loop])
        self.place(
            Op.EXPECT_TILES, dtypes.index, (self.mbarriers, slot, who), sum([tile.bytes for tile in tiles])
        )
        for tile in tiles:
            packed = self._packed(tile, at, keep=loop)
            base = self.total(packed.terms)
            for x in range(0, tile.sizes[tile.inner], SPAN):
                for y in range(0, tile.sizes[tile.outer], _rows_of_box(tile)):
                    where = self._coordinates(tile, {tile.inner: x, tile.outer: y})
                    src = (packed.address, base, self.mbarriers, slot, who, *where)
                    self.place(Op.COPY_TILE, tile.stage.load.dtype, src, tile.place(y, x))

    def _coordinates(self, tile: Tile, more: dict[Axis, int]) -> list[Instruction]:
        """The map, and where a box begins along each range of the tensor, the contiguous one first."""
        load = tile.stage.load
        tensor = tensor_of(self.nest, load)
        assert tensor is not None, "the schedule has asked for it"
        box = {tile.inner: SPAN, tile.outer: _rows_of_box(tile)}
        self.tensor_maps[tensor.param.arg.index] = tensor.map(box)
        return [
            self.addresses[load.src[0]],
            *[self._begin_of(axis, more.get(axis, 0)) for axis in tensor.axes],
        ]

    def _begin_of(self, axis: Axis, more: int) -> Instruction:
        """Where the open loops of a range are."""
        terms = [(self.counters[loop], loop.stride) for loop in axis.counted if loop in self.counters]
        return self.total(terms, more) or self.number(0)


def _rows_of_box(tile: Tile) -> int:
    """Rows that one copy brings: all of the tile, or a part that divides it and begins where the swizzle does."""
    rows = tile.sizes[tile.outer]
    return max(size for size in range(ROWS, min(rows, MOST_BOX) + 1, ROWS) if rows % size == 0)
