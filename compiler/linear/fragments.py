"""Fragments: a reduction that a matrix unit does, one instruction for a tile of results.

In       the reduction that the schedule's `matrix` names, at the place in the program where it belongs
Out      accumulators with one fragment of results for each tile; loads of operands' fragments; MATRIX instructions
Next     products.py (who asks), ../loops/matrix_units.py (which thread holds what), sharing.py (operands)

Each thread of a wave holds some elements of every operand. Where an operand's are others than the result's, it is read
along a range of its own, which the same loops count but for the threads.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import product

from hcq.compiler.linear.context import Lowering
from hcq.compiler.linear.places import Packed
from hcq.compiler.linear.program import Instruction
from hcq.compiler.loops.loop import Axis, Loop
from hcq.compiler.loops.matrix_units import HELD, Order, Parts, offsets, strides_of
from hcq.compiler.loops.nest import MatrixUse, ScheduleError
from hcq.ir.block_scales import EXPONENT_OF_ONE
from hcq.ir.dtype import dtypes
from hcq.ir.node import Node, index, toposort
from hcq.ir.op import Op

Sums = dict[tuple[int, int], Instruction]  # where a tile begins, in m and n -> its fragment
ROWS, ROW_BYTES = 8, 16  # of the squares that LOAD_ROWS deals out


class Fragments(Lowering):
    """Reductions by matrix units whose operands threads hold."""

    def takes(self, use: MatrixUse) -> bool:
        """Units that do not read shared memory by themselves."""
        return not use.unit.reads_shared

    def multiply(self, use: MatrixUse, node: Node, loops: Callable[[Callable[[], None]], None]) -> None:
        """Write a reduction as MATRIX instructions; `loops` opens its loops around a body."""
        unit = use.unit
        if any(axis not in (use.m, use.n) for axis in self.ranges.axes_of(self.ranges.masks[node])):
            raise ScheduleError("matrix: only its own output ranges are written out")
        a, a_axis = self.along(use.a, use.m, unit.d_m, unit.a_m)
        b, b_axis = self.along(use.b, use.n, unit.d_n, unit.b_n)
        rows, columns = tiles_of(use.m, unit.d_m), tiles_of(use.n, unit.d_n)
        kind = unit.result.vec(unit.held)
        sides = (use.m, unit.d_m, unit.a_m), (use.n, unit.d_n, unit.b_n)
        scales = [self.along(of, *side) for of, side in zip(use.scales, sides) if of is not None]
        sums = self.sums_for(use, rows, columns, self.emitter.depth)

        def body() -> None:
            now = dict(sums)
            self.follow(use.a, use.m, a_axis)
            self.follow(use.b, use.n, b_axis)
            b_now, b_walk = self.along(b, use.k, unit.k, unit.k_of_b)
            self.follow(b, use.k, b_walk)
            of_b = b_walk, unit.k_of_b
            blocks = [(side, *self.along(of, use.k, unit.k, unit.blocks)) for of, side in scales]
            for start in tiles_of(use.k, unit.k):
                across = [self.fragment(a, a_axis, unit.a_m, row, use, start, unit.a_order) for row in rows]
                down = [
                    self.fragment(b_now, b_axis, unit.b_n, at, use, start, unit.b_order, of_b)
                    for at in columns
                ]
                exponents = self.exponents(use, blocks, start, (rows, columns))
                for (row, left), (column, right) in product(zip(rows, across), zip(columns, down)):
                    src = (
                        left,
                        right,
                        now[row, column],
                        *[of[at] for of, at in zip(exponents, (row, column))],
                    )
                    now[row, column] = self.emitter.place(Op.MATRIX, kind, src, unit.name)
            for at, accumulator in sums.items():
                self.loops.update(self.loops.open_reductions, accumulator, now[at])

        loops(body)
        self.results_of(use, node, sums)

    def exponents(
        self,
        use: MatrixUse,
        blocks: list[tuple[Axis, Node, Axis]],
        start: int,
        tiles: tuple[list[int], list[int]],
    ) -> list[dict[int, Instruction]]:
        """Of each side, each tile's exponents of the thread's block; nothing where neither side has scales."""
        if not blocks:
            return []
        left = iter(blocks)
        made: list[dict[int, Instruction]] = []
        for of, mine in zip(use.scales, tiles):
            if of is None:
                made.append(dict.fromkeys(mine, self.emitter.number(EXPONENT_OF_ONE, dtypes.int32)))
                continue
            side, node, walk = next(left)
            made.append({at: self.values.value(node, {side: (at, 1), walk: (start, 1)}) for at in mine})
        return made

    def sums_for(self, use: MatrixUse, rows: list[int], columns: list[int], depth: int) -> Sums:
        """An accumulator for each tile of results, outside of the loops."""
        zero = self.emitter.broadcast(self.emitter.number(0, use.unit.result), use.unit.held)
        return {at: self.emitter.accumulator(zero, depth) for at in product(rows, columns)}

    def results_of(self, use: MatrixUse, node: Node, sums: Sums) -> None:
        """What each register of a fragment is the value of."""
        unit = use.unit
        across, down = [
            axis.loops[-1].size if axis.loops[-1].kind == "vector" else 1 for axis in (use.n, use.m)
        ]
        places = {at: register for register, at in enumerate(unit.registers)}
        for (row, column), total in sums.items():
            for m, n in places:
                if n % across or m % down:
                    continue
                picks = tuple(places[m + i, n + j] for i in range(down) for j in range(across))
                value = self.emitter.place(Op.LANE, unit.result.vec(len(picks)), (total,), picks)
                point = {use.m: (row + m, down), use.n: (column + n, across)}
                self.values.results[node, self.ranges.place_in(node, point)] = value

    def fragment(
        self,
        root: Node,
        axis: Axis,
        parts: Parts,
        tile: int,
        use: MatrixUse,
        start: int,
        order: Order,
        of_k: tuple[Axis, Parts] | None = None,
    ) -> Instruction:
        """The registers of an operand for one tile, in the unit's order, and rounded where it rounds its factors.

        of_k  along which range it is read, and its parts, where these are not the ones of the product
        """
        made = self._fragment(root, axis, parts, tile, use, start, order, of_k)
        return self.emitter.emit(Op.ROUND_TF32, made.dtype, (made,)) if use.unit.rounds else made

    def _fragment(
        self,
        root: Node,
        axis: Axis,
        parts: Parts,
        tile: int,
        use: MatrixUse,
        start: int,
        order: Order,
        of_k: tuple[Axis, Parts] | None,
    ) -> Instruction:
        """The same as it is in memory."""
        unit = use.unit
        k_axis, k_parts = of_k or (use.k, unit.k)
        can_be_rows = unit.has_row_loads and k_parts == unit.k
        rows = self._rows(root, axis, parts, tile, use, start) if can_be_rows else None
        if rows is not None:
            return rows
        lanes = k_parts[-1][0] if k_parts[-1][1] == HELD and k_axis.loops[-1].kind == "vector" else 1
        across, last = 1, order[-1]
        if last[0] != "k" and last[1] == len(parts) - 1 and axis.loops[-1].kind == "vector":
            across = parts[-1][0]
        together = ("k", len(k_parts) - 1) if lanes > 1 else last if across > 1 else None
        outer = [place for place in order if place != together]
        values: list[Instruction] = []
        for at in offsets(outer, {"k": k_parts, "m": parts, "n": parts}):
            here = tile + at["m"] + at["n"]
            value = self.values.value(root, {axis: (here, across), k_axis: (start + at["k"], lanes)})
            value = self.emitter.broadcast(value, lanes * across)
            values += [self.emitter.lane(value, lane) for lane in range(lanes * across)]
        return self.emitter.emit(Op.VECTOR, root.dtype.vec(len(values)), tuple(values))

    def _rows(
        self, root: Node, axis: Axis, parts: Parts, tile: int, use: MatrixUse, start: int
    ) -> Instruction | None:
        """A fragment of shared memory by rows of 16 bytes, one for each thread, which the unit's own load deals out.

        The squares of 8 rows are those with the first half of k and then those with the other, in each those that the
        unit holds first of the other range: thread i has the address of row i % 8 of square i / 8. Turned bytes come in
        pairs of neighbours, and a thread has those of two squares, which are 2 steps of k apart: see `LOAD_ROWS` in
        program.py. None where rows lie otherwise.
        """
        packed = self.values.packed.get(root)
        if packed is None or packed.address.op is not Op.SHARED:
            return None
        step = _step(packed, axis)
        k_step = _step(packed, use.k)
        itemsize = root.dtype.itemsize
        chunk = ROW_BYTES // itemsize
        if 1 not in (step, k_step) or max(step, k_step) % chunk or (k_step != 1 and itemsize > 2):
            return None
        digits = len(use.unit.digits)
        loops = {
            loop: s for loop, s in packed.strides.items() if loop.kind != "thread" or loop.digit >= digits
        }
        squares = 1
        for size, _ in parts:
            squares *= size
        squares //= ROWS  # of each half of k
        row, number = self._bits(1, ROWS), [self._bits(ROWS << i, 2) for i in range(2)]
        terms = []
        if k_step == 1:  # rows run along k
            by_digit = {digit: stride for (_, digit), stride in zip(parts, strides_of(parts), strict=True)}
            terms += [(row, by_digit[1] * step), (number[squares - 1], chunk)]
            if squares == 2:
                terms.append((number[0], by_digit[HELD] * step))
        elif itemsize == 1:  # rows run along the other range, and a thread has four neighbours along k
            terms += [(self._bits(1, 2), k_step), (self._bits(2, ROWS // 2), 4 * k_step)]
            terms += [(number[0], 2 * k_step), (number[1], chunk * k_step)]
        else:
            terms += [(row, k_step), (number[squares - 1], ROWS * k_step)]
            if squares == 2:
                terms.append((number[0], ROWS))
        rest = Packed(
            packed.address, loops, packed.depth, packed.offset, packed.terms, packed.swizzle
        )  # of all threads
        spot = self.values.packed_spot(rest, {axis: (tile, 1), use.k: (start, 1)}, terms)
        base = self.emitter.total(spot.terms)
        kind = root.dtype.vec(ROWS * squares // itemsize)
        least = max(spot.least, packed.depth)
        return self.emitter.emit(
            Op.LOAD_ROWS, kind, (packed.address, base), (spot.offset, k_step != 1), least
        )

    def _bits(self, below: int, count: int) -> Instruction:
        """A part of the thread's number: how often `below` goes into it, modulo `count`."""
        value = self.loops.thread
        if below > 1:
            value = self.emitter.quotient(value, below)
        return self.emitter.rest(value, count)

    def along(self, root: Node, axis: Axis, own: Parts, parts: Parts) -> tuple[Node, Axis]:
        """An operand along a range whose innermost loops are `parts`, where the axis itself has those of the result."""
        if own == parts:
            return root, axis
        bit = len(self.ranges.axes)
        node = Node(Op.RANGE, dtypes.index, (index(axis.size),), ("operand", bit))
        walk = Axis(node, f"{axis.name}.operand", axis.size, False, False, 1 << bit)
        for loop in axis.loops[: len(axis.loops) - len(own)]:
            copy = Loop(f"{walk.name}.{len(walk.loops)}", walk, loop.size, loop.stride, loop.kind, loop.digit)
            walk.loops.append(copy)
            if not loop.is_written_out:
                self.loops.counters[copy] = self.loops.counters[loop]
        for (size, digit), stride in zip(parts, strides_of(parts), strict=True):
            kind = "unroll" if digit == HELD else "thread"
            loop = Loop(f"{walk.name}.{len(walk.loops)}", walk, size, stride, kind, digit)
            walk.loops.append(loop)
            if digit != HELD:
                self.loops.counters[loop] = self.loops.digits[digit]
        self.ranges.add(walk)
        self.loops.moved()
        mapping = {axis.range: walk.range}
        made = root.substitute(mapping)
        self.ranges.mask_copies(made)
        return made, walk

    def follow(self, root: Node, axis: Axis, walk: Axis) -> None:
        """What is packed by now of an operand is packed along its other range, too."""
        if walk is axis:
            return
        inside = set(toposort((root,)))
        for value, packed in list(self.values.packed.items()):
            step = _step(packed, axis)
            if value not in inside or not step:
                continue
            strides = {loop: s for loop, s in packed.strides.items() if loop.axis is not axis}
            most = max(loop.stride * loop.size for loop in packed.strides if loop.axis is axis)
            strides |= {loop: step * loop.stride for loop in walk.loops if loop.stride * loop.size <= most}
            copy = value.substitute({axis.range: walk.range})
            self.ranges.mask_copies(copy)
            self.values.pack(
                copy,
                Packed(packed.address, strides, packed.depth, packed.offset, packed.terms, packed.swizzle),
            )


def _step(packed: Packed, axis: Axis) -> int:
    """Elements between neighbours of an axis in a packed operand; 0 where it does not differ along it."""
    return next((s // loop.stride for loop, s in packed.strides.items() if loop.axis is axis), 0)


def tiles_of(axis: Axis, parts: Parts) -> list[int]:
    """Where the tiles begin that one step of the axis's counted loops covers."""
    outer = [loop for loop in axis.loops[: len(axis.loops) - len(parts)] if loop.is_written_out]
    return [sum(at) for at in product(*[range(0, l.size * l.stride, l.stride) for l in outer])]
