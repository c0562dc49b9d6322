"""Wave copies: tiles brought to shared memory by loads whose result no register gets, a wave's lanes side by side.

In       the stages of a loop that is pipelined with three tiles or more, on AMD's CDNA
Out      copies that a wave begins, waits for those of a step; for what such copies cannot do, loads and stores
Next     sharing.py (copies by all threads), ../render/amdgpu.py (how they are spelled), banks.py (swizzles)
Source   CDNA3 and CDNA4 ISA documents, 10.3: a lane's place is a base that the wave has, and the lane's number times 4
         or 16 bytes

Lanes cannot choose where they write, so they choose what they read: a tile is copied in the order in which it lies, and
for each word of it the swizzle, which is its own inverse, says which one of memory that is. Gaps behind rows are
written, too, with whatever. What is turned, padded with zeros, made of what is loaded, or lies otherwise than in whole
words is loaded by threads as a step begins, and stored when it ends.

A wave waits for numbers of instructions, so each batch has as many; where some are left out, it waits for all.
"""

from __future__ import annotations

from dataclasses import replace

from hcq.compiler.linear.alignment import BUFFER_ALIGN, Alignment
from hcq.compiler.linear.context import Context, Lowering
from hcq.compiler.linear.program import NOT_NEGATIVE, Instruction
from hcq.compiler.linear.tile_copies import STEPS_AT_ONCE, Copied, Copy, TileCopies, steps_ahead
from hcq.compiler.linear.tiles import Part, Tile
from hcq.compiler.loops.loop import Loop
from hcq.compiler.loops.nest import ScheduleError, Stage
from hcq.ir.dtype import dtypes
from hcq.ir.node import Node
from hcq.ir.op import Op

WORD_BYTES = 4


class WaveCopies(Lowering):
    """Copies of tiles by waves. wave_copy_bytes: the most of a lane."""

    def __init__(self, context: Context, tiles: TileCopies, wave_copy_bytes: int):
        super().__init__(context)
        self.tiles, self.wave_copy_bytes = tiles, wave_copy_bytes
        self.by_waves: dict[Node, bool] = {}  # by load: whether its tiles are copied so, those of every step

    def start(self, stages: list[Stage]) -> None:
        """A pipelined loop begins: which of its tiles waves copy is found anew."""
        for stage in stages:
            self.by_waves.pop(stage.load, None)

    def _are_by_waves(self, loop: Loop) -> bool:
        """Whether a wave has copies of a loop's tiles to wait for."""
        return any(self.by_waves.get(stage.load) for stage in self.nest.stages if stage.at is loop)

    def wait_for(self, loop: Loop, counter: Instruction, end: Instruction) -> None:
        """Wait for the tiles of a step of a loop that copies some steps ahead."""
        if not self._are_by_waves(loop):
            return
        ahead = steps_ahead(self.nest, loop)
        others_begun = self.emitter.emit(Op.CMPLT, dtypes.bool, (self.emitter.plus(counter, ahead - 1), end))
        self.emitter.place(Op.WAIT, dtypes.index, (others_begun,), ahead - 1)

    def copied(self, tile: Tile, at: Instruction, loop: Loop) -> Copied:
        """What a thread copies of a step's tile to that step's buffer, as part of its wave where that can be."""
        load = tile.stage.load
        if self.nest.pipelined[loop] > 2 and self.by_waves.get(load, True):
            copies = self._wave_copies(tile)
            if self.by_waves.setdefault(load, bool(copies)) != bool(copies):
                raise ScheduleError(
                    f"pipeline {loop.name}: one tile begins at whole words of memory, the next does not"
                )
            if copies:
                packed = self.tiles.packed(tile, at, keep=loop)
                packed.swizzle = None  # places are those that the copies have
                return Copied(packed, copies, by_waves=True)
        return Copied(self.tiles.packed(tile, at, keep=loop), self.tiles.copies(tile))

    def begin(self, copied: list[Copied], condition: Instruction | None = None) -> list[Copied]:
        """Begin the copies of waves; the rest, which the threads are to store when this step ends, is returned."""
        count, ready = 0, []
        for packed, copies, by_waves in copied:
            for terms, offset, load, guard in copies if by_waves else ():
                count += guard is None  # the others some waves leave out
                guard = self.emitter.both(condition, guard)
                to = self.emitter.total([*packed.terms, *terms])
                src = (packed.address, to, load.src[0], load.src[1], None, guard)
                ready.append((load.dtype, src, (offset, load.arg)))
        # one behind another: a condition that they share is asked once
        for dtype, src, where in ready:
            self.emitter.place(Op.COPY_SHARED, dtype, src, where)
        if ready:
            self.emitter.place(Op.COMMIT, dtypes.index, (), count)
        return [one for one in copied if not one.by_waves]

    def _wave_copies(self, tile: Tile) -> list[Copy]:
        """A tile word by word in the order in which it lies there; nothing where that cannot be."""
        if tile.is_turned or tile.is_read_by_unit or tile.stage.value is not tile.stage.load:
            return []
        itemsize = tile.stage.value.dtype.itemsize
        for size in (BUFFER_ALIGN, WORD_BYTES):
            if itemsize <= size <= min(self.wave_copy_bytes, tile.lanes * itemsize) and tile.sizes:
                if copies := self._words(tile, size):
                    return copies
        return []

    def _words(self, tile: Tile, size: int) -> list[Copy]:
        """The same, of words of so many bytes."""
        lanes = size // tile.stage.value.dtype.itemsize
        view = replace(tile, lanes=lanes, parts=_parts(tile, lanes))

        def copy_all() -> list[Copy]:
            made = []
            for first, word, mask in self.tiles.turns(view, 4 * STEPS_AT_ONCE * BUFFER_ALIGN // size):
                ((_, _, value, _),) = self.tiles.copy(view, self._read_for(view, word), mask)
                if (
                    value.op is not Op.LOAD
                    or len(value.src) > 2
                    or Alignment().bytes(value, value.dtype) < size
                ):
                    return []
                made.append(([(self.loops.thread, lanes)], first * lanes, value, mask))
            return made

        return self.tiles.from_the_start(tile, copy_all)

    def _read_for(self, tile: Tile, word: Instruction) -> Instruction:
        """The word of a tile as memory has it that goes to a word as shared memory has it."""
        if tile.swizzle is None:
            return word
        made = word
        for shift, mask in tile.swizzle.parts:  # of elements; in words of them both are shorter
            low = (mask & -mask) // tile.lanes
            row = self.emitter.quotient(word, low << shift)
            rows = self.emitter.number(mask // (mask & -mask) + 1)
            row = self.emitter.emit(Op.MOD, dtypes.index, (row, rows), NOT_NEGATIVE)
            made = self.emitter.emit(
                Op.XOR, dtypes.index, (made, self.emitter.arithmetic(Op.MUL, row, self.emitter.number(low)))
            )
        return made


def _parts(tile: Tile, lanes: int) -> list[Part]:
    """Digits of a word's number, the fastest first; rows farther apart than they are long end in a gap."""
    axes = list(reversed(tile.sizes))
    row = tile.strides[axes[1]] if len(axes) > 1 else tile.sizes[axes[0]]
    count = tile.sizes[axes[0]] // lanes
    made = [Part(axes[0], count, lanes, gap=row // lanes - count)]
    return made + [Part(axis, tile.sizes[axis], 1) for axis in axes[1:]]
