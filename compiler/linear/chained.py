"""Chained products: a matrix unit multiplies what the threads made of its first product, without a detour by memory.

In       a sum that the schedule's `chain` names, in a step of the loops of its range
Out      fragments of results, to which each step adds MATRIX or WARPGROUP_MATRIX instructions
Next     nested.py (whose steps these are), fragments.py (of what is loaded), warpgroups.py (units that read that in
         shared memory), ../loops/products.py (`chain`)

The first product's fragments lie where the second one's operand is wanted: the range that is summed over is counted by
the same threads. Where two threads have every other element of it, and each is to have all, they exchange.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from math import prod

from hcq.compiler.linear.context import Context, Lowering
from hcq.compiler.linear.fragments import Fragments, Sums
from hcq.compiler.linear.program import Instruction
from hcq.compiler.linear.tensor_memory import TensorMemory
from hcq.compiler.linear.warpgroups import Warpgroups
from hcq.compiler.loops.loop import Axis
from hcq.compiler.loops.matrix_units import HELD, MatrixUnit, Order, Parts, offsets
from hcq.compiler.loops.nest import Chained, MatrixUse
from hcq.compiler.loops.products import exchanged, operand_parts
from hcq.ir.node import Node
from hcq.ir.op import Op

WARPGROUP_LANES = 8  # of a factor in registers
PAIR = 2  # numbers in a register


class ChainedProducts(Lowering):
    """Products of what was made from products."""

    def __init__(
        self, context: Context, fragments: Fragments, warpgroups: Warpgroups, tensor_memory: TensorMemory
    ):
        super().__init__(context)
        self.fragments, self.warpgroups, self.tensor_memory = fragments, warpgroups, tensor_memory

    def open(self, links: Sequence[Chained]) -> None:
        """The loops begin in whose steps products are chained."""
        first = self.nest.unit
        if first is not None and any(link.use.unit.keeps_sums for link in links):
            self.tensor_memory.open(first, links[0].use)

    def close(self) -> None:
        """They are over."""
        self.tensor_memory.close()

    def fragments_for(self, link: Chained, depth: int) -> Sums:
        """An accumulator for each tile of results, outside of the loops."""
        use = link.use
        rows, columns = tiles_from(use.m, use.unit.size("m")), tiles_from(use.n, use.unit.size("n"))
        return self.fragments.sums_for(use, rows, columns, depth)

    def rescaled_fragments(self, link: Chained, now: Sums, factor: Node) -> Sums:
        """The fragments times a factor of their rows."""
        use = link.use
        made = {}
        for (row, column), fragment in now.items():
            factors = []
            for m, n in use.unit.registers:
                at = (row + m, 1) if link.is_a else (column + n, 1)
                factors.append(self.values.value(factor, {use.m if link.is_a else use.n: at}))
            whole = self.emitter.emit(Op.VECTOR, fragment.dtype, tuple(factors))
            made[row, column] = self.emitter.place(Op.MUL, fragment.dtype, (fragment, whole))
        return made

    def add_products(self, link: Chained, now: Sums) -> Sums:
        """The fragments after a step."""
        use, unit = link.use, link.use.unit
        if unit.reads_shared:
            if unit.keeps_sums:
                return self.tensor_memory.add_made(use, self._all_made(use, PAIR), now)
            made_lefts = {at: left for at, (left,) in self._all_made(use, WARPGROUP_LANES).items()}
            return self.warpgroups.add_made(use, made_lefts, now)
        rows, columns = tiles_from(use.m, unit.size("m")), tiles_from(use.n, unit.size("n"))
        loaded, own, parts, axis = (
            (use.b, unit.d_n, unit.b_n, use.n) if link.is_a else (use.a, unit.d_m, unit.a_m, use.m)
        )
        root, walk = self.fragments.along(loaded, axis, own, parts)
        self.fragments.follow(loaded, axis, walk)
        k_axis, made_parts = use.k, operand_parts(use.k, unit)
        k_parts, wanted = made_parts or unit.k, unit.k_of_b if link.is_a else unit.k
        loaded_parts = k_parts
        if made_parts is None or wanted != unit.k:
            tail = 0  # the loops that make up one step of the unit
            while prod(loop.size for loop in use.k.loops[len(use.k.loops) - tail :]) < unit.size("k"):
                tail += 1
            here = tuple((loop.size, loop.digit) for loop in use.k.loops[len(use.k.loops) - tail :])
            before, loaded_parts = root, wanted
            root, k_axis = self.fragments.along(before, use.k, here, wanted)
            self.fragments.follow(before, use.k, k_axis)
        a_order, b_order = (in_parts(order, unit.k, k_parts) for order in (unit.a_order, unit.b_order))
        made = dict(now)
        for start in tiles_from(use.k, unit.size("k")):
            of_k = k_axis, loaded_parts
            if link.is_a:
                lefts = [
                    self._made(use.a, use.m, unit.a_m, row, use, start, k_parts, a_order)[0] for row in rows
                ]
                rights = [
                    self.fragments.fragment(root, walk, parts, n, use, start, b_order, of_k) for n in columns
                ]
            else:
                lefts = [
                    self.fragments.fragment(root, walk, parts, row, use, start, a_order, of_k) for row in rows
                ]
                rights = [
                    self._made(use.b, use.n, unit.b_n, n, use, start, k_parts, b_order)[0] for n in columns
                ]
            for (row, left), (column, right) in product(zip(rows, lefts), zip(columns, rights)):
                src = (left, right, made[row, column])
                made[row, column] = self.emitter.place(Op.MATRIX, src[2].dtype, src, unit.name)
        return made

    def _all_made(self, use: MatrixUse, lanes: int) -> dict[tuple[int, int], list[Instruction]]:
        """All of a step's left operand, by where its parts begin along k and m, in vectors of so many lanes."""
        unit = use.unit
        parts = operand_parts(use.k, unit)
        assert parts is not None, "`chain` has asked"
        order = in_parts(unit.a_order, unit.k_of_made, parts)
        starts = product(tiles_from(use.k, unit.size("k")), tiles_from(use.m, unit.size("m")))
        return {
            (k, row): self._made(use.a, use.m, unit.a_m, row, use, k, parts, order, lanes)
            for k, row in starts
        }

    def _made(
        self,
        root: Node,
        axis: Axis,
        parts: Parts,
        tile: int,
        use: MatrixUse,
        start: int,
        k_parts: Parts,
        order: Order,
        lanes: int = 0,
    ) -> list[Instruction]:
        """A fragment of what the threads have made, rounded to the unit's format: one vector, or of so many lanes."""
        unit, values = use.unit, []
        for at in offsets(order, {"k": k_parts, "m": parts, "n": parts}):
            here, k = tile + at["m"] + at["n"], start + at["k"]
            values.append(self._element(root, axis, here, use.k, k, unit))
        made, lanes = [], lanes or len(values)
        for first in range(0, len(values), lanes):
            some = tuple(values[first : first + lanes])
            wide = self.emitter.emit(Op.VECTOR, values[0].dtype.vec(lanes), some)
            made.append(self.emitter.emit(Op.CAST, unit.a.vec(lanes), (wide,)))
        return made

    def _element(self, root: Node, axis: Axis, here: int, key: Axis, k: int, unit: MatrixUnit) -> Instruction:
        """One element of it."""
        last = key.loops[-1]
        if exchanged(key, unit.k):
            own = self.values.value(root, {axis: (here, 1), key: (k - k % 2, 1)})
            bit = prod(self.nest.digits[: last.digit])
            other = self.emitter.emit(Op.SHUFFLE, own.dtype, (own,), bit)
            is_first = self.emitter.is_equal(self.loops.digits[last.digit], 0)
            pair = (own, other) if k % 2 == 0 else (other, own)
            return self.emitter.emit(Op.WHERE, own.dtype, (is_first, *pair))
        lanes = last.size if last.kind == "vector" else 1
        return self.emitter.lane(
            self.values.value(root, {axis: (here, 1), key: (k - k % lanes, lanes)}), k % lanes
        )


def tiles_from(axis: Axis, size: int) -> list[int]:
    """Where the tiles of a size begin that one step of the axis's counted loops covers."""
    outer = [loop for loop in axis.loops if loop.is_written_out and loop.stride * loop.size > size]
    places = [sum(at) for at in product(*[range(0, l.size * l.stride, l.stride) for l in outer])]
    return [at for at in places if at % size == 0]


def in_parts(order: Order, k: Parts, parts: Parts) -> Order:
    """An order of registers where k consists of other parts: those that registers count, in their order."""
    if k == parts:
        return order
    held = [("k", place) for place, (_, digit) in enumerate(parts) if digit == HELD]
    return tuple([part for mine in order for part in (held if mine[0] == "k" else [mine])])
