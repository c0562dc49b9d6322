"""Sharing: what the threads of a group read from the same tile, copied once into the memory that they share.

In       the stages of one loop, as a step of it begins, in a kernel with threads
Out      loads by all threads, a barrier, stores to shared memory, a barrier; from there on the operands are read there
Next     tile_copies.py (what a thread copies of a tile), wave_copies.py and bulk_copies.py (other ways of copying
         ahead), staged_loops.py (where stages belong), staging.py (the same for one worker's scratch)

Of a pipelined loop there are several tiles. With two, a step computes with one while its threads have the next in
registers, and then store it into the other; with one, into the same, after one more barrier. With more, the GPU copies
by itself, some steps ahead. But for that one, a barrier for each step is enough.
"""

from __future__ import annotations

from hcq.compiler.linear.context import Context, Lowering
from hcq.compiler.linear.program import UNITS_READ, Instruction
from hcq.compiler.linear.tile_copies import Copied, TileCopies, is_unit_behind, steps_ahead
from hcq.compiler.linear.tiles import Tile
from hcq.compiler.linear.wave_copies import WaveCopies
from hcq.compiler.loops.loop import Loop
from hcq.compiler.loops.nest import Stage
from hcq.ir.dtype import dtypes
from hcq.ir.op import Op


class ThreadCopies(Lowering):
    """Copies ahead that each thread begins for itself."""

    def __init__(self, context: Context, tiles: TileCopies):
        super().__init__(context)
        self.tiles = tiles

    def start(self, stages: list[Stage]) -> None:
        """A pipelined loop begins: nothing is known of the one before."""

    def wait_for(self, loop: Loop, counter: Instruction, end: Instruction) -> None:
        """Wait for the tiles of a step of a loop that copies some steps ahead."""
        self.emitter.place(Op.WAIT, dtypes.index, (), steps_ahead(self.nest, loop) - 1)

    def copied(self, tile: Tile, at: Instruction, loop: Loop) -> Copied:
        """What a thread copies of a step's tile to that step's buffer."""
        return Copied(self.tiles.packed(tile, at, keep=loop), self.tiles.copies(tile))

    def begin(self, copied: list[Copied], condition: Instruction | None = None) -> list[Copied]:
        """Begin copies that the GPU does by itself; what is more than a load is stored by the thread.

        The rest, which the threads are to store when this step ends, is returned.
        """
        for packed, written, _ in copied:
            for copy in written:
                terms, offset, value, guard = copy
                source = _plain_load(value)
                if source is None:
                    self.tiles.store(packed, [copy])
                    continue
                load, mask = source
                guard = self.emitter.both(condition, guard)
                terms, offset = self.values.swizzled(packed, terms, offset)
                to = self.emitter.total([*packed.terms, *terms])
                src = (packed.address, to, load.src[0], load.src[1], mask, guard)
                self.emitter.place(Op.COPY_SHARED, load.dtype, src, (offset, load.arg))
        self.emitter.place(Op.COMMIT, dtypes.index, ())
        return []


class Sharing(Lowering):
    """Copies for all threads of a group. `way`: how copies are made that the GPU does by itself."""

    def __init__(self, context: Context, tiles: TileCopies, way: ThreadCopies | WaveCopies):
        super().__init__(context)
        self.tiles, self.way = tiles, way
        self.under_way: dict[Loop, list[Copied]] = {}  # read, and stored when the step ends

    def takes(self, loop: Loop | None) -> bool:
        """All stages of kernels with threads."""
        return bool(self.nest.digits)

    def begin_step(self, stages: list[Stage], loop: Loop | None) -> None:
        """Write the copies of operands that are staged at one loop; from now on they are read from shared memory.

        Where the loop is pipelined, the copies are those of the next step, and what is read is what the step before,
        or `begin_loop`, has stored.
        """
        tiles = [self.tiles.tile(stage, loop) for stage in stages]
        if loop is not None and loop in self.nest.pipelined:
            buffers = self.nest.pipelined[loop]
            ahead = steps_ahead(self.nest, loop)
            counter, (_, end) = self.loops.counters[loop], self.loops.steps_of(loop)
            if buffers > 2:
                self.way.wait_for(loop, counter, end)
            # this step's tiles are there, and those before have been read
            self._all_have_come()
            after = self.emitter.plus(counter, ahead)
            self.loops.is_at(
                loop,
                self.emitter.arithmetic(
                    Op.MIN, after, self.emitter.arithmetic(Op.ADD, end, self.emitter.number(-1))
                ),
            )
            copied = [self.way.copied(tile, after, loop) for tile in tiles]
            self.loops.is_at(loop, counter)
            if buffers > 2:
                more = self.emitter.emit(Op.CMPLT, dtypes.bool, (after, end))
                copied = self.way.begin(copied, more)
            self.under_way[loop] = copied
            for tile in tiles:
                self.values.pack(tile.stage.value, self.tiles.packed(tile, counter, keep=loop))
            return
        copies = [(self.tiles.packed(tile), self.tiles.copies(tile)) for tile in tiles]
        self._all_have_read()
        for packed, written in copies:
            self.tiles.store(packed, written)
        self._all_have_come()
        for tile, (packed, _) in zip(tiles, copies, strict=True):
            self.values.pack(tile.stage.value, packed)

    def _all_have_come(self) -> None:
        """A barrier, behind which what was stored in shared memory is read, by whom it is."""
        use = self.nest.unit
        reads_shared = use is not None and use.unit.reads_shared
        self.emitter.place(Op.BARRIER, dtypes.index, (), UNITS_READ if reads_shared else None)

    def begin_loop(self, stages: list[Stage], loop: Loop) -> None:
        """The tiles of a pipelined loop's first steps, before it begins.

        Where the loop may end before them, copies of steps that it does not have are not begun: nobody would wait for
        them, and what comes after the loop may have another use for their memory.
        """
        self.way.start(stages)
        self._all_have_read()
        buffers = self.nest.pipelined[loop]
        first, end = self.loops.steps_of(loop)
        is_known = first.op is end.op is Op.CONST
        most = int(end.arg) - int(first.arg) if is_known else loop.size
        for step in range(steps_ahead(self.nest, loop)):
            if step >= most:
                if buffers > 2:
                    self.emitter.place(Op.COMMIT, dtypes.index, ())
                continue
            at = self.emitter.arithmetic(Op.ADD, first, self.emitter.number(step))
            has_step = None
            if buffers > 2 and not is_known:
                has_step = self.emitter.emit(Op.CMPLT, dtypes.bool, (at, end))
            # what is read for a step that the loop does not have is of one that its range has
            last = self.emitter.number(loop.size - 1)
            if loop not in self.loops.limits:
                last = self.emitter.arithmetic(Op.ADD, end, self.emitter.number(-1))
            at = self.emitter.arithmetic(Op.MIN, at, last)
            self.loops.is_at(loop, at)
            tiles = [self.tiles.tile(stage, loop) for stage in stages]
            copied = [self.way.copied(tile, at, loop) for tile in tiles]
            if buffers > 2:
                copied = self.way.begin(copied, has_step)
            for one in copied:
                self.tiles.store(one.packed, one.copies)
        self.loops.is_at(loop, None)

    def end_loop(self, loop: Loop) -> None:
        """A pipelined loop has ended: a unit that works by itself has done its last step."""
        if is_unit_behind(self.nest, loop):
            self.emitter.place(Op.WARPGROUP_WAIT, dtypes.index, (), 0)

    def end_step(self, loop: Loop) -> None:
        """The step ends: the next one's tiles, which were read while it computed, are stored."""
        tiles = self.under_way.pop(loop, [])
        if tiles and self.nest.pipelined[loop] == 1:  # their places are those of this step's
            self.emitter.barrier()
        for packed, copies, _ in tiles:
            self.tiles.store(packed, copies)

    def _all_have_read(self) -> None:
        """Wait for all threads where a loop around has tiles of the step before."""
        if any(loop.kind == "serial" for loop in self.loops.counters):
            self.emitter.barrier()


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
