"""Tiles: how what one step of a loop reads of an operand lies in shared memory, and which thread copies what of it.

In       a stage of the schedule, the loops that are open where it begins
Out      `Tile`: its ranges, strides and swizzle, and the `Part`s of a piece's number that cover it
Next     tile_copies.py (who writes the copies), banks.py (the swizzle), fragments.py (who reads)

A tile is a box: for each range of the operand, what one step of its innermost open loop covers. It lies in the order of
memory, so threads next to each other copy what lies next to each other, 16 bytes each where that divides.

Where a matrix unit takes its operands as runs along k, and memory has them along another range, the tile is turned: it
lies along k, too. A thread then reads a rectangle, a few steps of k by 16 bytes, and writes its columns. A tile that a
unit reads by itself lies as that unit wants it: 64 elements that are neighbours in memory are a row.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import prod

from hcq.compiler.linear.alignment import BUFFER_ALIGN
from hcq.compiler.linear.banks import BANK_BYTES, CHUNK_BYTES, CHUNKS, LINE_BYTES, Swizzle, swizzle
from hcq.compiler.loops.affine import Affine
from hcq.compiler.loops.loop import Axis, Loop
from hcq.compiler.loops.nest import MatrixUse, ScheduleError, Stage

SPAN = 64  # elements of 16 bits in a row of a tile that a unit reads by itself
SWIZZLE_ALIGN = 1024  # bytes: eight of them, after which the swizzle begins anew
BLOCKS_OF_A_LINE = 8  # threads that read 128 bytes together
BLOCK_IN_ORDER = 16  # rows
RUN_LEAST_BYTES = 4  # of the steps of k in a run that is turned


@dataclass
class Part:
    """Some digits of a piece's number: they count so many steps of an axis, of so many values each.

    stride   elements of the tile from one step to the next
    gap      steps more that the digits count, between which and the next number nothing lies
    """

    axis: Axis
    count: int
    step: int
    stride: int = 0
    gap: int = 0


@dataclass
class Tile:
    """One operand's box.

    seen      the ranges that the operand sees, those of which the tile holds one value, too
    sizes     how much of each range it holds, in the order in which it lies; the last one contiguous
    strides   elements from one value of a range to the next
    parts     what the number of a piece counts, its fastest digits first
    vector    the axis along which memory is read by vectors of `lanes`, if by any
    run       steps of `sizes`' last axis that a piece has, each of which is such a vector; 1 where it is not turned
    """

    stage: Stage
    seen: list[Axis]
    sizes: dict[Axis, int]
    strides: dict[Axis, int] = field(default_factory=dict)
    parts: list[Part] = field(default_factory=list)
    vector: Axis | None = None
    lanes: int = 1
    run: int = 1
    swizzle: Swizzle | None = None
    bytes: int = 0
    is_read_by_unit: bool = False  # in spans of 128 bytes, see below

    @property
    def pieces(self) -> int:
        """Pieces that fill it, with its gaps."""
        return prod(part.count + part.gap for part in self.parts)

    @property
    def is_turned(self) -> bool:
        """Whether it lies along another range than memory does."""
        return self.run > 1

    @property
    def outer(self) -> Axis:
        """The first range."""
        return next(iter(self.sizes))

    @property
    def inner(self) -> Axis:
        """The last range, along which neighbours lie next to each other."""
        return next(reversed(self.sizes))

    def place(self, outer: int, inner: int) -> int:
        """The element with these numbers of a tile in spans, before chunks change places."""
        return inner // SPAN * self.sizes[self.outer] * SPAN + outer * SPAN + inner % SPAN


def tile_of(
    stage: Stage,
    mask: int,
    axes: list[Axis],
    opened: Mapping[Loop, object],
    affine: Affine,
    use: MatrixUse | None,
    is_read_by_unit: bool,
    threads: int,
) -> Tile:
    """The tile of a stage.

    mask, axes   the ranges that its load sees; all ranges
    opened       the loops that are open
    use          the kernel's matrix unit, if it has one; is_read_by_unit: it reads the tile by itself
    """
    at = stage.load.src[1]
    seen = sorted([axis for axis in axes if axis.bit & mask], key=lambda axis: -affine.stride(at, axis.range))
    sizes = {}
    for axis in seen:
        steps = [loop.stride for loop in axis.counted if loop in opened]
        size = steps[-1] if steps else axis.size
        if axis.size % size:
            raise ScheduleError(f"stage: {axis.name} ends in a partial step of {size}; pad it first")
        if size > 1:
            sizes[axis] = size
    if seen and not sizes:  # one element: still not the value that is read where it lies in memory
        sizes[seen[-1]] = 1
    made = Tile(stage, seen, sizes)
    itemsize = stage.value.dtype.itemsize
    inner = next(reversed(sizes), None)
    if inner is not None and affine.stride(at, inner.range) == 1:
        made.lanes = BUFFER_ALIGN // max(stage.load.dtype.itemsize, itemsize)
        starts = [affine.stride(at, axis.range) for axis in seen if axis is not inner] if use is None else []
        while (
            sizes[inner] % made.lanes
            or affine.step(at, inner.range, made.lanes) != 1
            or any(start % made.lanes for start in starts)
        ):
            made.lanes //= 2
            if not made.lanes:
                break
        if made.lanes:
            made.vector = inner
        made.lanes = max(1, made.lanes)
    if is_read_by_unit:
        _lay_in_spans(made)
        return made
    is_square = all(size & (size - 1) == 0 for size in sizes.values())
    if use is not None and is_square and len(sizes) > 1:
        if use.unit.takes_runs and inner is not use.k and use.k in sizes and made.lanes > 1:
            _turn(made, use.k, threads)
        row = made.sizes[made.inner]
        together, across = _read_together(made, use) if use.unit.has_row_loads else ((0, 1, 2), 1)
        made.swizzle = swizzle(row, prod(made.sizes.values()) // row, itemsize, together, across)
        if made.swizzle is not None and made.is_turned:
            made.swizzle = _for_columns(made, made.swizzle, row, itemsize)
    count = 1
    inner = next(reversed(made.sizes), None)
    for axis in reversed(made.sizes):
        made.strides[axis] = count
        count *= made.sizes[axis]
        if axis is inner and len(made.sizes) > 1 and made.swizzle is None:
            # reads down a column then meet different banks; rows of one chunk do as they are
            if use is None and made.lanes == 1:
                count = _odd(count, itemsize)
            elif made.sizes[axis] * itemsize != CHUNK_BYTES:
                count += BUFFER_ALIGN // itemsize
    made.bytes = count * itemsize
    if not made.parts:
        for axis in reversed(made.sizes):
            step = made.lanes if axis is made.vector else 1
            made.parts.append(Part(axis, made.sizes[axis] // step, step))
    for part in made.parts:
        part.stride = part.step * made.strides[part.axis]
    return made


def _odd(row: int, itemsize: int) -> int:
    """Elements of a row that is an odd number of banks long."""
    banks = -(-row * itemsize // BANK_BYTES) | 1
    return max(row, banks * BANK_BYTES // itemsize)


def _read_together(made: Tile, use: MatrixUse) -> tuple[tuple[int, ...], int]:
    """The bits of a row's number that count the rows read at once by LOAD_ROWS, or LOAD; how many chunks of each."""
    itemsize = made.stage.value.dtype.itemsize
    if itemsize == 4 and made.inner is not use.k:
        return (0, 1), 2  # four steps of k by eight numbers, for which there is no LOAD_ROWS
    if itemsize > 1:
        return (0, 1, 2), 1
    if made.inner is use.k:
        return (1, 2, 3), 1  # every second row
    return (0, 2, 3), 1  # the first two of every four steps of k


def _lay_in_spans(made: Tile) -> None:
    """The tile of a unit that reads shared memory by itself: spans of 128 bytes, row by row, one behind the other."""
    if len(made.sizes) != 2:
        raise ScheduleError(f"stage: a swizzled tile has two ranges, this one {len(made.sizes)}")
    (outer, rows), (inner, width) = made.sizes.items()
    if rows % CHUNKS or width % SPAN:
        raise ScheduleError(
            f"stage: a swizzled tile is a multiple of {CHUNKS} of {outer.name} and of {SPAN} of {inner.name}, "
            f"not {rows} and {width}"
        )
    itemsize = made.stage.value.dtype.itemsize
    made.is_read_by_unit = True
    made.bytes = rows * width * itemsize
    made.swizzle = swizzle(SPAN, CHUNKS, itemsize)
    lanes = made.lanes
    made.parts = [
        Part(inner, SPAN // lanes, lanes, lanes),
        Part(inner, width // SPAN, SPAN, rows * SPAN),
        Part(outer, rows, 1, SPAN),
    ]
    made.parts = [part for part in made.parts if part.count > 1]


def _turn(made: Tile, k: Axis, threads: int) -> None:
    """Let it lie along k, and be copied by rectangles of `run` steps of k by `lanes` neighbours in memory.

    Eight threads read 128 bytes of a step of k, and the threads of one pass through shared memory write whole lines:
    some neighbours, and four runs or more along k of each. Neighbours come first: AMD's first-level cache takes four
    threads in a clock that read 64 bytes in a row.
    """
    vector = made.vector
    assert vector is not None
    itemsize = made.stage.value.dtype.itemsize
    chunk = CHUNK_BYTES // itemsize
    run = min(
        chunk,
        made.sizes[k],
        max(RUN_LEAST_BYTES // itemsize, prod(made.sizes.values()) // (threads * made.lanes)),
    )
    if run * itemsize < RUN_LEAST_BYTES:
        return
    made.run = run
    made.sizes = {axis: size for axis, size in made.sizes.items() if axis is not k} | {k: made.sizes[k]}
    runs, blocks = made.sizes[k] // run, made.sizes[vector] // made.lanes
    near = min(blocks, BLOCKS_OF_A_LINE)
    first = min(runs, max(4, LINE_BYTES // (run * itemsize) // near))
    at_once = max(
        1, min(near, LINE_BYTES // (run * itemsize) // first)
    )  # neighbours that are written in one pass
    made.parts = [Part(vector, at_once, made.lanes), Part(k, first, run)]
    made.parts += [Part(vector, near // at_once, at_once * made.lanes)]
    made.parts += [Part(k, runs // first, first * run), Part(vector, blocks // near, near * made.lanes)]
    made.parts += [
        Part(axis, size, 1) for axis, size in reversed(made.sizes.items()) if axis not in (k, vector)
    ]
    made.parts = [part for part in made.parts if part.count > 1]


def _for_columns(made: Tile, rows: Swizzle, row: int, itemsize: int) -> Swizzle:
    """What is written at once lies `lanes` rows apart: those blocks of rows, too, go to chunks of their own.

    The digits of a block's number the other way round: rows 0 to 3 are read at once with rows 20 to 23, see banks.py.
    Blocks of 16 rows have theirs as they are, for that reason: row 20 would meet row 0.
    """
    chunk = CHUNK_BYTES // itemsize
    first = next((part.count for part in made.parts if part.axis is made.inner), 1)
    low = max(1, first * made.run // chunk)  # chunks that the first runs fill
    if low >= CHUNKS or row < low * chunk:
        return rows
    parts = list(rows.parts)
    targets = [target for target in (4 * chunk, 2 * chunk, chunk) if target >= low * chunk]
    if made.lanes == BLOCK_IN_ORDER:
        targets.reverse()
    for number, target in enumerate(targets):
        block = made.lanes * row << number
        parts.append((block.bit_length() - target.bit_length(), target))
    return Swizzle(tuple(parts))
