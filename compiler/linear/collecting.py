"""Collecting: results of a matrix unit are put together in shared memory, from which whole rows are stored.

In       the results of a unit, each thread of a wave holding some here and some there
Out      some tiles of them at a time: stores to shared memory, a barrier; there on what the kernel makes of them is
         computed for neighbours in memory by neighbouring threads, and stored so
Changes  shared memory where tiles of operands were, which nobody reads any more
Next     fragments.py (whose results these are), banks.py (swizzles), linearize.py (who asks), sharing.py (the way in)

A thread of mma has two neighbours, and four threads eight: half a sector of memory, where they are halves. Here a
thread has four and a wave a row, of the result and of whatever else the kernel reads at the same place.
"""

from __future__ import annotations

from hcq.compiler.linear.banks import CHUNK_BYTES, CHUNKS, Swizzle
from hcq.compiler.linear.nested import Nested
from hcq.compiler.linear.places import Packed, Point
from hcq.compiler.linear.program import NOT_NEGATIVE, Instruction
from hcq.compiler.loops.loop import Axis, Loop
from hcq.compiler.loops.nest import MatrixUse, ScheduleError
from hcq.ir.dtype import dtypes
from hcq.ir.node import Node, index, toposort
from hcq.ir.op import Op

ROOM = 32 << 10  # bytes of shared memory at a time, or what the operands had


class Collecting(Nested):
    """Stores of what a matrix unit computed, by rows."""

    def store_collected(self, use: MatrixUse) -> None:
        """Write all stores of the kernel, some written-out tiles along m at a time."""
        self._check(use)
        rows = [loop for loop in use.m.loops if loop not in use.m.counted]
        columns = [loop for loop in use.n.loops if loop not in use.n.counted]
        width = 1
        for loop in columns:
            width *= loop.size
        parts = len(use.unit.d_m)
        tiles = next((loop for loop in rows[:-parts] if loop.is_written_out), None)
        count = 1 if tiles is None else tiles.size
        row_bytes = width * use.reduce.dtype.itemsize
        height = 1
        for loop in rows:
            height *= loop.size
        together = count
        room = max(ROOM, self.shared_bytes)
        while together > 1 and height // count * together * row_bytes > room:
            together //= 2
        size = height // count * together * row_bytes
        if size > self.most_shared:
            raise ScheduleError(f"collect: {size} bytes of shared memory exceed {self.most_shared}")
        self.shared_bytes = max(self.shared_bytes, size)
        strides: dict[Loop, int] = {}
        stride = width
        for loop in reversed(rows):
            strides[loop] = stride
            stride *= together if loop is tiles else loop.size
        strides |= {loop: loop.stride for loop in columns}
        swizzle = _swizzle(use, strides, width)
        for first in range(0, count, together):
            self.begin_step(first)
            address = self.emit(Op.SHARED, use.reduce.dtype, (), 0)
            self.place(Op.BARRIER, dtypes.index, ())  # all have read what was here
            for tile in range(first, first + together):
                offset = 0 if tiles is None else (tile - first) * strides[tiles]
                inside = {loop: stride for loop, stride in strides.items() if loop is not tiles}
                self._keep(use, tiles, tile, Packed(address, inside, self.depth, offset, swizzle=swizzle))
            self.place(Op.BARRIER, dtypes.index, ())
            kept = Packed(address, {}, self.depth, swizzle=swizzle)
            walked = [(loop, together if loop is tiles else loop.size, strides[loop]) for loop in rows]
            start = 0 if tiles is None else first * tiles.stride
            self._store_rows(use, kept, walked, width, start)
            self.end_step()

    def _check(self, use: MatrixUse) -> None:
        """Raises ScheduleError for what is more than one product and the values made of it."""
        bits = use.m.bit | use.n.bit
        for axis in self.nest.axes:
            if axis not in (use.m, use.n) and not axis.is_reduce and (axis.written_out or axis.threads):
                raise ScheduleError(
                    f"collect: {axis.name} is in threads or written out, beside the product's"
                )
        for store in self.nest.stores:
            form = self.affine.of(store.src[1])
            sums = [node for node in toposort(store.src[1:]) if node.op is Op.REDUCE]
            if self.masks[store] & bits != bits or any(node is not use.reduce for node in sums):
                raise ScheduleError(
                    "collect: a store is not of the product's own ranges, or of other sums, too"
                )
            if form.coefficient(use.n.range) != 1 or any(True for _ in form.atoms()):
                raise ScheduleError(f"collect: a store is not contiguous along {use.n.name}")

    def _keep(self, use: MatrixUse, tiles: Loop | None, tile: int, packed: Packed) -> None:
        """Write one tile's results to shared memory."""
        for point in self.points(self.masks[use.reduce]):
            if tiles is not None and point[use.m][0] // tiles.stride % tiles.size != tile:
                continue
            value = self.results[use.reduce, self.place_in(use.reduce, point)]
            spot = self._packed_spot(packed, point)
            src = (packed.address, self.total(spot.terms), value)
            self.place(Op.STORE, dtypes.index, src, spot.offset)

    def _store_rows(
        self, use: MatrixUse, kept: Packed, rows: list[tuple[Loop, int, int]], width: int, start: int
    ) -> None:
        """Compute and store what is kept: a thread has four neighbours, the threads after it those that follow.

        rows    loops of m, how many steps of each there are, and what a step is worth in shared memory
        start   where the first row is, in the block's tile
        """
        lanes = CHUNK_BYTES // use.reduce.dtype.itemsize
        pieces = width // lanes
        for _, count, _ in rows:
            pieces *= count
        threads = self.nest.threads
        inside = [loop for axis in (use.m, use.n) for loop in axis.threads]
        stilled = {loop: self.counters[loop] for loop in inside}
        for loop in inside:
            self.counters[loop] = self.number(0)
        for step in range(-(-pieces // threads)):
            piece = self._sum(self.thread, step * threads)
            mask = None
            if (step + 1) * threads > pieces:
                mask = self.emit(Op.CMPLT, dtypes.bool, (piece, self.number(pieces)))
            across = self._row_axis(use.n, width)
            across.loops = [
                Loop(f"{across.name}.0", across, width // lanes, lanes),
                Loop(f"{across.name}.1", across, lanes, 1, "vector"),
            ]
            rest = self._digit_of(across.loops[0], piece, width // lanes)
            self._add_axis(across)
            down = self._row_axis(use.m, use.m.size)
            strides = {loop: loop.stride for loop in across.loops}
            for loop, count, stride in reversed(rows):
                if count > 1:
                    down.loops.insert(0, Loop(f"{down.name}.{len(down.loops)}", down, count, loop.stride))
                    rest = self._digit_of(down.loops[0], rest, count)
                    strides[down.loops[0]] = stride
            self._add_axis(down)
            self.moved()
            packed = Packed(kept.address, strides, kept.depth, swizzle=kept.swizzle)
            point: Point = dict.fromkeys(self.nest.axes, (0, 1)) | {use.m: (start, 1), across: (0, lanes)}
            self._store_piece(use, packed, down, across, point, mask)
        self.counters.update(stilled)
        self.moved()

    def _store_piece(
        self,
        use: MatrixUse,
        packed: Packed,
        down: Axis,
        across: Axis,
        point: Point,
        mask: Instruction | None,
    ) -> None:
        """Write the stores of a piece, whose sums are in shared memory."""
        kept = Node(Op.CAST, use.reduce.dtype, (down.range * across.size + across.range,))
        mapping = {
            use.reduce: kept,
            use.m.range: use.m.range + down.range,
            use.n.range: use.n.range + across.range,
        }
        for store in self.nest.stores:
            made = store.substitute(mapping)
            self._mask_copies(made)
            self._mask_copies(kept)
            self.pack(kept, packed)
            value = self.value(made.src[2], point)
            lanes = across.loops[-1].size
            inside = self.value(made.src[3], point) if len(made.src) > 3 else None
            if inside is not None and inside.number is not None:
                if not inside.number:
                    continue
                inside = None
            if mask is not None and inside is not None:
                mask = self.emit(Op.AND, inside.dtype, (inside, self.broadcast(mask, inside.dtype.lanes)))
            where = mask if inside is None else inside if mask is None else mask
            spot = self._spot(made.src[1], point)
            masks = () if where is None else (self.broadcast(where, lanes),)
            src = (self.addresses[made.src[0]], self.total(spot.terms), self.broadcast(value, lanes), *masks)
            self.place(Op.STORE, dtypes.index, src, spot.offset)
            self.pack(kept, None)

    def _digit_of(self, loop: Loop, number: Instruction, count: int) -> Instruction:
        """A loop counts the lowest digit of a number; the rest of it."""
        self.counters[loop] = self.emit(Op.MOD, dtypes.index, (number, self.number(count)), NOT_NEGATIVE)
        return self.emit(Op.FLOORDIV, dtypes.index, (number, self.number(count)), NOT_NEGATIVE)

    def _row_axis(self, axis: Axis, size: int) -> Axis:
        """A range of its own, beside an axis."""
        bit = len(self.axes)
        node = Node(Op.RANGE, dtypes.index, (index(size),), ("copy", bit))
        return Axis(node, f"{axis.name}.row", size, False, False, 1 << bit)


def _swizzle(use: MatrixUse, strides: dict[Loop, int], width: int) -> Swizzle | None:
    """So that threads of a wave that differ by row write to different chunks of a line.

    The first digit of a thread's number counts neighbours in a row, which fill some chunks; the next one counts rows.
    """
    itemsize = use.reduce.dtype.itemsize
    chunk = CHUNK_BYTES // itemsize
    own = [loop for loop in use.n.loops if loop.kind == "thread" and loop.digit == 0]
    rows = [loop for loop in use.m.loops if loop.kind == "thread" and loop.digit == 1]
    if not own or not rows or width & (width - 1) or width < CHUNKS * chunk:
        return None
    filled = max(1, own[0].size * own[0].stride // chunk)
    parts = []
    step = strides[rows[0]]
    while filled < CHUNKS:
        target = filled * chunk
        parts.append((step.bit_length() - target.bit_length(), target))
        filled, step = 2 * filled, 2 * step
    return Swizzle(tuple(parts)) if parts else None
