"""Collecting: results of a matrix unit are put together in shared memory, from which whole rows are stored.

In       the results of a unit, each thread of a wave holding some here and some there
Out      some tiles of them at a time: stores to shared memory, a barrier; there on what the kernel makes of them is
         computed for neighbours in memory by neighbouring threads, and stored so
Changes  shared memory where tiles of operands were, which nobody reads any more
Next     fragments.py (whose results these are), banks.py (swizzles), stores.py (the other way), sharing.py (the way in)

A thread of mma has two neighbours, and four threads eight: half a sector of memory, where they are halves. Here a
thread has four and a wave a row, of the result and of whatever else the kernel reads at the same place.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from hcq.compiler.linear.banks import BANKS, CHUNK_BYTES, LINE_BYTES, Swizzle, swizzle_of_stores
from hcq.compiler.linear.context import Lowering
from hcq.compiler.linear.places import Packed, Point
from hcq.compiler.linear.program import Instruction
from hcq.compiler.loops.loop import Axis, Loop
from hcq.compiler.loops.nest import Chained, MatrixUse, ScheduleError
from hcq.ir.dtype import dtypes
from hcq.ir.node import Node, index, toposort
from hcq.ir.op import Op

MADE_LANES = 4  # of what chained products are made into, in a thread
ROOM = 32 << 10  # bytes of shared memory at a time, or what the operands had


class Collecting(Lowering):
    """Stores of what a matrix unit computed, by rows."""

    def takes(self) -> bool:
        """Kernels whose schedule says `collect`, of a unit's results or of what chained products are made into."""
        return self.nest.collects and (bool(self.nest.chained) or self.nest.unit is not None)

    def write(self) -> None:
        """Write all stores of the kernel."""
        if self.nest.chained:
            self.store_made(self.nest.chained[0])
        elif self.nest.unit is not None:
            self.store_collected(self.nest.unit)

    def store_collected(self, use: MatrixUse) -> None:
        """Write all stores of the kernel, some written-out tiles along m at a time."""
        self._check(use)
        rows = [loop for loop in use.m.loops if loop not in use.m.counted]
        columns = [loop for loop in use.n.loops if loop not in use.n.counted]
        width = 1
        for loop in columns:
            width *= loop.size
        parts = len(use.unit.d_m)
        if width * use.reduce.dtype.itemsize < LINE_BYTES:  # rows of threads that store at once fill lines
            rows[-parts:] = sorted(rows[-parts:], key=lambda loop: loop.kind == "thread")
        tiles = next((loop for loop in rows[:-parts] if loop.is_written_out), None)
        count = 1 if tiles is None else tiles.size
        row_bytes = width * use.reduce.dtype.itemsize
        height = 1
        for loop in rows:
            height *= loop.size
        together = count
        room = max(ROOM, self.memory.shared_bytes)
        while together > 1 and height // count * together * row_bytes > room:
            together //= 2
        size = height // count * together * row_bytes
        self.memory.results(size)
        strides: dict[Loop, int] = {}
        stride = width
        for loop in reversed(rows):
            strides[loop] = stride
            stride *= together if loop is tiles else loop.size
        strides |= {loop: loop.stride for loop in columns}
        swizzle = _swizzle(use, self.nest.digits, strides)
        for first in range(0, count, together):
            self.emitter.begin_step(first)
            address = self.emitter.emit(Op.SHARED, use.reduce.dtype, (), 0)
            self.emitter.barrier()  # all have read what was here
            for tile in range(first, first + together):
                offset = 0 if tiles is None else (tile - first) * strides[tiles]
                inside = {loop: stride for loop, stride in strides.items() if loop is not tiles}
                self._keep(
                    use, tiles, tile, Packed(address, inside, self.emitter.depth, offset, swizzle=swizzle)
                )
            self.emitter.barrier()
            kept = Packed(address, {}, self.emitter.depth, swizzle=swizzle)
            walked = [(loop, together if loop is tiles else loop.size, strides[loop]) for loop in rows]
            start = 0 if tiles is None else first * tiles.stride
            lanes = CHUNK_BYTES // use.reduce.dtype.itemsize
            axes = use.m, use.n
            self._store_rows(self.nest.stores, use.reduce, axes, kept, walked, width, start, lanes)
            self.emitter.end_step()

    def store_made(self, link: Chained) -> None:
        """Write the stores of a kernel with chained products: what is stored is computed where the results are."""
        row, column = (link.use.m, link.use.n) if link.is_a else (link.use.n, link.use.m)
        others = [axis for axis in self.nest.axes if axis not in (row, column) and not axis.is_reduce]
        if any(axis.written_out or axis.threads for axis in others):
            raise ScheduleError("collect: more is in threads or written out than rows and columns")
        for store in self.nest.stores:
            form, made = self.ranges.affine.of(store.src[1]), store.src[2]
            seen = all(self.ranges.masks[made] & axis.bit for axis in (row, column))
            if form.coefficient(column.range) != 1 or any(form.atoms()) or not seen:
                raise ScheduleError(f"collect: a store is not contiguous along {column.name}")
            self._store_one(store, row, column, link.is_a)

    def _store_one(self, store: Node, row: Axis, column: Axis, is_a: bool) -> None:
        made = store.src[2]
        rows = [loop for loop in row.loops if loop not in row.counted]
        columns = [loop for loop in column.loops if loop not in column.counted]
        width, height = prod(loop.size for loop in columns), prod(loop.size for loop in rows)
        # what the threads of a row write at once, 16 bytes at most: rows beside it then meet other banks
        near = prod(
            loop.size for loop in columns if loop.kind == "vector" or (is_a and loop.kind == "thread")
        )
        stride = width + max(min(near, CHUNK_BYTES // made.dtype.itemsize), MADE_LANES)
        size = height * stride * made.dtype.itemsize
        self.memory.results(size)
        self.emitter.begin_step(0)  # what is read in here is not what was read for another store
        address = self.emitter.emit(Op.SHARED, made.dtype, (), 0)
        strides = {loop: loop.stride * stride for loop in rows} | {loop: loop.stride for loop in columns}
        self.emitter.barrier()  # all have read what was here
        packed = Packed(address, strides, self.emitter.depth)
        for point in self.ranges.points(self.ranges.masks[made]):
            self.values.store_packed(packed, self.values.value(made, point), point)
        self.emitter.barrier()
        walked = [(loop, loop.size, loop.stride * stride) for loop in rows]
        kept = Packed(address, {}, self.emitter.depth)
        self._store_rows([store], made, (row, column), kept, walked, width, 0, MADE_LANES)
        self.emitter.end_step()

    def _check(self, use: MatrixUse) -> None:
        """Raises ScheduleError for what is more than one product and the values made of it."""
        bits = use.m.bit | use.n.bit
        for axis in self.nest.axes:
            if axis not in (use.m, use.n) and not axis.is_reduce and (axis.written_out or axis.threads):
                raise ScheduleError(
                    f"collect: {axis.name} is in threads or written out, beside the product's"
                )
        for store in self.nest.stores:
            form = self.ranges.affine.of(store.src[1])
            sums = [node for node in toposort(store.src[1:]) if node.op is Op.REDUCE]
            if self.ranges.masks[store] & bits != bits or any(node is not use.reduce for node in sums):
                raise ScheduleError(
                    "collect: a store is not of the product's own ranges, or of other sums, too"
                )
            if form.coefficient(use.n.range) != 1 or any(True for _ in form.atoms()):
                raise ScheduleError(f"collect: a store is not contiguous along {use.n.name}")

    def _keep(self, use: MatrixUse, tiles: Loop | None, tile: int, packed: Packed) -> None:
        """Write one tile's results to shared memory."""
        for point in self.ranges.points(self.ranges.masks[use.reduce]):
            if tiles is not None and point[use.m][0] // tiles.stride % tiles.size != tile:
                continue
            value = self.values.results[use.reduce, self.ranges.place_in(use.reduce, point)]
            spot = self.values.packed_spot(packed, point)
            src = (packed.address, self.emitter.total(spot.terms), value)
            self.emitter.store(src, spot.offset)

    def _store_rows(
        self,
        stores: Sequence[Node],
        node: Node,
        axes: tuple[Axis, Axis],
        kept: Packed,
        rows: list[tuple[Loop, int, int]],
        width: int,
        start: int,
        lanes: int,
    ) -> None:
        """Compute and store what is kept: a thread has four neighbours, the threads after it those that follow.

        node    what is kept, of the two ranges `axes`: rows and columns
        rows    loops of the first, how many steps of each there are, and what a step is worth in shared memory
        start   where the first row is, in the block's tile

        What is swizzled is read as it lies, which meets no bank twice: a thread computes which piece it has there.
        """
        row, column = axes
        pieces = width // lanes
        for _, count, _ in rows:
            pieces *= count
        threads = self.nest.threads
        inside = [loop for axis in (row, column) for loop in axis.threads]
        stilled = {loop: self.loops.counters[loop] for loop in inside}
        for loop in inside:
            self.loops.counters[loop] = self.emitter.number(0)
        for step in range(-(-pieces // threads)):
            piece = self.emitter.plus(self.loops.thread, step * threads)
            mask = None
            if (step + 1) * threads > pieces:
                mask = self.emitter.is_below(piece, pieces)
            across = self._row_axis(column, width)
            across.loops = [
                Loop(f"{across.name}.0", across, width // lanes, lanes),
                Loop(f"{across.name}.1", across, lanes, 1, "vector"),
            ]
            number = piece if kept.swizzle is None else self._number_of(kept.swizzle, step, lanes)
            rest = self._digit_of(across.loops[0], number, width // lanes)
            self.ranges.add(across)
            down = self._row_axis(row, row.size)
            strides = {loop: loop.stride for loop in across.loops}
            for loop, count, stride in reversed(rows):
                if count > 1:
                    down.loops.insert(0, Loop(f"{down.name}.{len(down.loops)}", down, count, loop.stride))
                    rest = self._digit_of(down.loops[0], rest, count)
                    strides[down.loops[0]] = stride
            self.ranges.add(down)
            self.loops.moved()
            packed = Packed(kept.address, strides, kept.depth)
            if kept.swizzle is not None:
                here = (
                    piece
                    if mask is None
                    else self.emitter.arithmetic(Op.MIN, piece, self.emitter.number(pieces - 1))
                )
                packed = Packed(kept.address, {across.loops[1]: 1}, kept.depth, terms=[(here, lanes)])
            point: Point = dict.fromkeys(self.nest.axes, (0, 1)) | {row: (start, 1), across: (0, lanes)}
            self._store_piece(stores, node, axes, packed, down, across, point, mask)
        self.loops.counters.update(stilled)
        self.loops.moved()

    def _store_piece(
        self,
        stores: Sequence[Node],
        node: Node,
        axes: tuple[Axis, Axis],
        packed: Packed,
        down: Axis,
        across: Axis,
        point: Point,
        mask: Instruction | None,
    ) -> None:
        """Write the stores of a piece, whose sums are in shared memory."""
        kept = Node(Op.CAST, node.dtype, (down.range * across.size + across.range,))
        row, column = axes
        mapping = {node: kept, row.range: row.range + down.range, column.range: column.range + across.range}
        for store in stores:
            made = store.substitute(mapping)
            self.ranges.mask_copies(made)
            self.ranges.mask_copies(kept)
            self.values.pack(kept, packed)
            value = self.values.value(made.src[2], point)
            lanes = across.loops[-1].size
            inside = self.values.value(made.src[3], point) if len(made.src) > 3 else None
            if inside is not None and inside.number is not None:
                if not inside.number:
                    continue
                inside = None
            if mask is not None and inside is not None:
                mask = self.emitter.emit(
                    Op.AND, inside.dtype, (inside, self.emitter.broadcast(mask, inside.dtype.lanes))
                )
            where = mask if inside is None else inside if mask is None else mask
            spot = self.values.spot(made.src[1], point)
            masks = () if where is None else (self.emitter.broadcast(where, lanes),)
            src = (
                self.values.addresses[made.src[0]],
                self.emitter.total(spot.terms),
                self.emitter.broadcast(value, lanes),
                *masks,
            )
            self.emitter.store(src, spot.offset)
            self.values.pack(kept, None)

    def _number_of(self, swizzle: Swizzle, step: int, lanes: int) -> Instruction:
        """Which piece of so many elements lies where a step's piece would without a swizzle: it is its own inverse."""
        threads = self.nest.threads
        pieces = Swizzle(tuple([(shift, mask // lanes) for shift, mask in swizzle.parts]))
        packed = Packed(self.loops.thread, {}, self.emitter.depth, swizzle=pieces)
        terms, offset = [(self.loops.thread, 1)], step * threads
        if threads & (threads - 1):  # they have bits in common
            terms, offset = [(self.emitter.plus(self.loops.thread, offset), 1)], 0
        terms, offset = self.values.swizzled(packed, terms, offset)
        found = self.emitter.total(terms, offset)
        assert found is not None
        return found

    def _digit_of(self, loop: Loop, number: Instruction, count: int) -> Instruction:
        """A loop counts the lowest digit of a number; the rest of it."""
        self.loops.counters[loop] = self.emitter.rest(number, count)
        return self.emitter.quotient(number, count)

    def _row_axis(self, axis: Axis, size: int) -> Axis:
        """A range of its own, beside an axis."""
        bit = len(self.ranges.axes)
        node = Node(Op.RANGE, dtypes.index, (index(size),), ("copy", bit))
        return Axis(node, f"{axis.name}.row", size, False, False, 1 << bit)


def _swizzle(use: MatrixUse, digits: Sequence[int], strides: dict[Loop, int]) -> Swizzle | None:
    """So that threads of a wave that store at once meet no bank twice.

    digits  sizes of the digits of a thread's number, the fastest first
    """
    own = next((loop.size for loop in use.n.loops if loop.kind == "vector"), 1)
    places: dict[int, int] = {}
    for loop in (*use.n.threads, *use.m.threads):
        number, place = prod(digits[: loop.digit]), strides[loop]
        if number >= BANKS:
            continue  # more threads than are served at once
        if any(size & (size - 1) for size in (number, place, loop.size)):
            return None
        for bit in range(loop.size.bit_length() - 1):
            places[number << bit] = place << bit
    return swizzle_of_stores([places[number] for number in sorted(places)], own, use.reduce.dtype.itemsize)
