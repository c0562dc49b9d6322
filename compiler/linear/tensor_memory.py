"""Tensor memory: a reduction by a matrix unit that reads shared memory and keeps sums in a memory of its own.

In       the reduction that the schedule's `matrix` names, of such a unit, where it belongs
Out      columns of tensor memory; products that one thread begins, and waits for them; results in registers at the end
Changes  16 bytes of shared memory: an mbarrier, and the word that says which columns the block has
Next     warpgroups.py (the sister that adds up in registers, whose descriptors these are), sharing.py (tiles),
         ../render/tensor_memory.py (the PTX)
Source   PTX ISA, "TensorCore 5th Generation Family Instructions"

All threads wait until a step's products are done, by an mbarrier whose phase ends then: the tiles are free, and what
is copied meanwhile is that of later steps. The columns are zero at first, so each product adds. No GPU has run it.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import product

from hcq.compiler.linear.context import Context, Lowering
from hcq.compiler.linear.fragments import Fragments, tiles_of
from hcq.compiler.linear.warpgroups import Warpgroups
from hcq.compiler.loops.nest import MatrixUse, ScheduleError
from hcq.ir.dtype import dtypes
from hcq.ir.node import Node
from hcq.ir.op import Op

PLACE_BYTES = 16
WARP, WARPGROUP = 32, 128  # threads
LEAST_COLUMNS, MOST_COLUMNS = 32, 512  # that are allocated


class TensorMemory(Lowering):
    """Reductions by units that keep sums."""

    def __init__(self, context: Context, fragments: Fragments, warpgroups: Warpgroups):
        super().__init__(context)
        self.fragments, self.warpgroups = fragments, warpgroups

    def takes(self, use: MatrixUse) -> bool:
        """Units that keep sums."""
        return use.unit.keeps_sums

    def multiply(self, use: MatrixUse, node: Node, loops: Callable[[Callable[[], None]], None]) -> None:
        """Write a reduction as products that the unit begins; `loops` opens its loops around a body."""
        unit = use.unit
        rows, columns = tiles_of(use.m, unit.d_m), tiles_of(use.n, unit.d_n)
        width = unit.size("n")
        wanted = max(LEAST_COLUMNS, 1 << (len(rows) * len(columns) * width - 1).bit_length())
        self._check(use, node, wanted)
        start = -(-self.memory.shared_bytes // PLACE_BYTES) * PLACE_BYTES
        self.memory.shared_bytes = start + PLACE_BYTES
        place = self.emitter.emit(Op.SHARED, dtypes.int64, (), start)
        first_warp = self.emitter.is_below(self.loops.thread, WARP)
        first = self.emitter.is_equal(self.loops.thread, 0)
        warp = self.emitter.quotient(self.loops.thread, WARP)
        src = (place, first_warp, first, warp)
        address = self.emitter.place(Op.TENSOR_MEMORY, dtypes.int32, src, (wanted, width))
        phase = self.emitter.accumulator(self.emitter.number(0, dtypes.int32), self.emitter.depth)
        at = {tile: number * width for number, tile in enumerate(product(rows, columns))}

        def body() -> None:
            turned = [self.warpgroups.is_turned(root, use) for root in (use.a, use.b)]
            kind = unit.name.partition(".")[2]
            for k in tiles_of(use.k, unit.k):
                across = [self.warpgroups.descriptor(use.a, use.m, row, k, use) for row in rows]
                down = [self.warpgroups.descriptor(use.b, use.n, column, k, use) for column in columns]
                for (row, left), (column, right) in product(zip(rows, across), zip(columns, down)):
                    what = (at[row, column], kind, unit.size("m"), width, *turned)
                    self.emitter.place(Op.TENSOR_MATRIX, dtypes.index, (left, right, address, first), what)
            self.emitter.place(Op.TENSOR_COMMIT, dtypes.index, (place, first))
            self.emitter.place(Op.WAIT_TILES, dtypes.index, (place, self.emitter.number(0), phase))
            after = self.emitter.place(Op.XOR, dtypes.int32, (phase, self.emitter.number(1, dtypes.int32)))
            self.loops.update(self.loops.open_reductions, phase, after)

        loops(body)
        kind = unit.result.vec(unit.held)
        done = {
            tile: self.emitter.place(Op.TENSOR_RESULT, kind, (address, warp), column)
            for tile, column in at.items()
        }
        self.emitter.place(Op.TENSOR_FREE, dtypes.index, (address, first_warp), wanted)
        self.fragments.results_of(use, node, done)

    def _check(self, use: MatrixUse, node: Node, wanted: int) -> None:
        """Raises ScheduleError for what the unit, or one block's part of its memory, cannot do."""
        if any(axis not in (use.m, use.n) for axis in self.ranges.axes_of(self.ranges.masks[node])):
            raise ScheduleError("matrix: only its own output ranges are written out")
        if self.nest.threads != WARPGROUP or self.nest.produced:
            raise ScheduleError(
                f"matrix: {use.unit.name} is for blocks of {WARPGROUP} threads, not {self.nest.threads}"
            )
        if wanted > MOST_COLUMNS:
            raise ScheduleError(f"matrix: {wanted} columns of tensor memory; a block has {MOST_COLUMNS}")
        if any(loop.kind == "serial" for loop in self.loops.counters):
            raise ScheduleError(f"matrix: {use.unit.name} is for the only loops of a kernel")
