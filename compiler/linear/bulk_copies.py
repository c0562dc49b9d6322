"""Bulk copies: whole tiles brought to shared memory by the tensor memory accelerator (TMA), counted by mbarriers.

In       the stages of a pipelined loop that the schedule says `bulk` of
Out      mbarriers, one for each buffer; copies that one thread begins; waits for the tiles of a step
Next     sharing.py (copies by all threads), ../loops/tensors.py (what can be copied so), ../render/bulk.py (the PTX)
Source   PTX ISA, "cp.async.bulk.tensor", "mbarrier"; CUDA C++ Programming Guide, "Using TMA to transfer
         multi-dimensional arrays"

A tensor map says what lies where; it takes the place of the buffer's address among the kernel's parameters. A copy
brings 64 elements along the contiguous range, a swizzled row, times all rows of the tile, and zeros for what is outside
of the tensor. The tiles of a step share an mbarrier: its phase is over when all their bytes are there.
"""

from __future__ import annotations

from hcq.compiler.linear.program import NOT_NEGATIVE, Instruction
from hcq.compiler.linear.sharing import SPAN, Sharing, Tile
from hcq.compiler.loops.loop import Axis, Loop
from hcq.compiler.loops.nest import ScheduleError, Stage
from hcq.compiler.loops.tensors import tensor_of
from hcq.ir.dtype import dtypes
from hcq.ir.op import Op

MBARRIER_BYTES = 8
MOST_BOX = 256  # of each side


class BulkCopies(Sharing):
    """Copies of tiles by the GPU's own accelerator."""

    def share(self, stages: list[Stage], loop: Loop | None) -> None:
        if loop is None or loop not in self.nest.bulk:
            super().share(stages, loop)
            return
        tiles = [self._tile(stage, loop) for stage in stages]
        counter = self.counters[loop]
        buffers = self.number(self.nest.pipelined[loop])
        rounds = self.emit(Op.FLOORDIV, dtypes.index, (counter, buffers), NOT_NEGATIVE)
        parity = self.emit(Op.MOD, dtypes.index, (rounds, self.number(2)), NOT_NEGATIVE)
        slot = self.emit(Op.MOD, dtypes.index, (counter, buffers), NOT_NEGATIVE)
        self.place(Op.WAIT_TILES, dtypes.index, (self.mbarriers, slot, parity))
        # all have begun this step: what those of the steps before read is free, but for what the unit still reads
        self.place(Op.BARRIER, dtypes.index, ())
        after = self._sum(counter, self.ahead(loop))
        is_inside = self.emit(Op.CMPLT, dtypes.bool, (after, self.number(loop.size)))
        self._bring(tiles, loop, after, is_inside)
        self.counters[loop] = counter
        self.moved()
        for tile in tiles:
            self.pack(tile.stage.value, self._packed(tile, counter, keep=loop))

    def share_first(self, stages: list[Stage], loop: Loop) -> None:
        if loop not in self.nest.bulk:
            super().share_first(stages, loop)
            return
        if any(other.kind == "serial" for other in self.counters):
            raise ScheduleError("pipeline: bulk copies are those of the only loop of a kernel")
        self.counters[loop] = self.number(0)
        tiles = [self._tile(stage, loop) for stage in stages]
        buffers = self.nest.pipelined[loop]
        start = -(-self.shared_bytes // MBARRIER_BYTES) * MBARRIER_BYTES
        self.shared_bytes = start + buffers * MBARRIER_BYTES
        self.mbarriers = self.emit(Op.SHARED, dtypes.int64, (), start)
        self.place(Op.MBARRIERS, dtypes.index, (self.mbarriers, self._is_first()), buffers)
        self.place(Op.BARRIER, dtypes.index, ())
        for step in range(min(self.ahead(loop), loop.size)):
            self._bring(tiles, loop, self.number(step), None)
        del self.counters[loop]
        self.moved()

    def share_last(self, loop: Loop) -> None:
        if loop not in self.nest.bulk:
            super().share_last(loop)

    def _is_first(self) -> Instruction:
        """Whether this is the thread that begins copies."""
        return self.emit(Op.CMPEQ, dtypes.bool, (self.thread, self.number(0)))

    def _bring(self, tiles: list[Tile], loop: Loop, at: Instruction, guard: Instruction | None) -> None:
        """Begin the copies of a step."""
        self.counters[loop] = at
        self.moved()
        buffers = self.number(self.nest.pipelined[loop])
        slot = at if at.op is Op.CONST else self.emit(Op.MOD, dtypes.index, (at, buffers), NOT_NEGATIVE)
        who = self._is_first()
        if guard is not None:
            who = self.emit(Op.AND, dtypes.bool, (guard, who))
        self.place(
            Op.EXPECT_TILES, dtypes.index, (self.mbarriers, slot, who), sum([tile.bytes for tile in tiles])
        )
        for tile in tiles:
            packed = self._packed(tile, at, keep=loop)
            base = self.total(packed.terms)
            for x in range(0, tile.sizes[tile.inner], SPAN):
                for y in range(0, tile.sizes[tile.outer], MOST_BOX):
                    where = self._coordinates(tile, {tile.inner: x, tile.outer: y})
                    src = (packed.address, base, self.mbarriers, slot, who, *where)
                    self.place(Op.COPY_TILE, tile.stage.load.dtype, src, tile.place(y, x))

    def _coordinates(self, tile: Tile, more: dict[Axis, int]) -> list[Instruction]:
        """The map, and where a box begins along each range of the tensor, the contiguous one first."""
        load = tile.stage.load
        tensor = tensor_of(self.nest, load)
        assert tensor is not None, "the schedule has asked for it"
        box = {tile.inner: SPAN, tile.outer: min(tile.sizes[tile.outer], MOST_BOX)}
        self.tensor_maps[tensor.param.arg.index] = tensor.map(box)
        return [
            self.addresses[load.src[0]],
            *[self._begin_of(axis, more.get(axis, 0)) for axis in tensor.axes],
        ]

    def _begin_of(self, axis: Axis, more: int) -> Instruction:
        """Where the open loops of a range are."""
        terms = [(self.counters[loop], loop.stride) for loop in axis.counted if loop in self.counters]
        return self.total(terms, more) or self.number(0)
