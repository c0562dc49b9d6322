"""Tensor memory: a reduction by a matrix unit that reads shared memory and keeps sums in a memory of its own.

In       the reduction that the schedule's `matrix` names, of such a unit, where it belongs; or in steps of attention, a
         product of keys, and one whose left factor threads have made
Out      columns of tensor memory; products that one thread begins, and waits for them; results in registers at the end
Changes  16 bytes of shared memory: an mbarrier, and the word that says which columns the block has
Next     warpgroups.py (the sister that adds up in registers, whose descriptors these are), chained.py (factors that
         were made), sharing.py (tiles), ../render/tensor_memory.py (the PTX)
Source   PTX ISA, "TensorCore 5th Generation Family Instructions"

All threads wait until a step's products are done, by an mbarrier whose phase ends then: the tiles are free, and what
is copied meanwhile is that of later steps. The columns are zero at first, so each product adds. In attention, sums of
the second product, which are multiplied in each step, are kept in registers: a step's own come to the columns, as if
they were alone. No GPU has run it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import product

from hcq.compiler.linear.context import Context, Lowering
from hcq.compiler.linear.fragments import Fragments, Sums, tiles_of
from hcq.compiler.linear.program import Instruction
from hcq.compiler.linear.warpgroups import Warpgroups
from hcq.compiler.loops.matrix_units import MatrixUnit
from hcq.compiler.loops.nest import MatrixUse, ScheduleError
from hcq.ir.dtype import dtypes
from hcq.ir.node import Node
from hcq.ir.op import Op

PLACE_BYTES = 16
COLUMN_BYTES = 4
WARP, WARPGROUP = 32, 128  # threads
LEAST_COLUMNS, MOST_COLUMNS = 32, 512  # that are allocated


@dataclass
class _Columns:
    """What a block has of it: how many columns, from which address; the mbarrier; a thread's warp, the first warp and
    the first thread; where the second product's columns begin."""

    wanted: int
    place: Instruction
    address: Instruction
    warp: Instruction
    first_warp: Instruction
    first: Instruction
    second: int = 0


class TensorMemory(Lowering):
    """Reductions by units that keep sums."""

    def __init__(self, context: Context, fragments: Fragments, warpgroups: Warpgroups):
        super().__init__(context)
        self.fragments, self.warpgroups = fragments, warpgroups
        self.opened: _Columns | None = None  # of a kernel whose products stand in another reduction's steps

    def takes(self, use: MatrixUse) -> bool:
        """Units that keep sums."""
        return use.unit.keeps_sums

    def multiply(self, use: MatrixUse, node: Node, loops: Callable[[Callable[[], None]], None]) -> None:
        """Write a reduction as products that the unit begins; `loops` opens its loops around a body."""
        unit = use.unit
        rows, columns = tiles_of(use.m, unit.d_m), tiles_of(use.n, unit.d_n)
        width = unit.size("n")
        if self.opened is not None:
            loops(lambda: self._of_a_step(use, node))
            return
        wanted = max(LEAST_COLUMNS, 1 << (len(rows) * len(columns) * width - 1).bit_length())
        self._check(use, node, wanted)
        mine = self._columns(wanted, width)
        place, first, address = mine.place, mine.first, mine.address
        phase = self.emitter.accumulator(self.emitter.number(0, dtypes.int32), self.emitter.depth)
        at = {tile: number * width for number, tile in enumerate(product(rows, columns))}

        def body() -> None:
            self._multiply(use, mine, at, adds=True)
            self.emitter.place(Op.TENSOR_COMMIT, dtypes.index, (place, first))
            self.emitter.place(Op.WAIT_TILES, dtypes.index, (place, self.emitter.number(0), phase))
            after = self.emitter.place(Op.XOR, dtypes.int32, (phase, self.emitter.number(1, dtypes.int32)))
            self.loops.update(self.loops.open_reductions, phase, after)

        loops(body)
        kind = unit.result.vec(unit.held)
        done = {
            tile: self.emitter.place(Op.TENSOR_RESULT, kind, (address, mine.warp), column)
            for tile, column in at.items()
        }
        self._free(mine)
        self.fragments.results_of(use, node, done)

    def _multiply(self, use: MatrixUse, mine: _Columns, at: dict[tuple[int, int], int], adds: bool) -> None:
        """Begin all products of a step; adds: to what is in the columns."""
        unit, turned = use.unit, [self.warpgroups.is_turned(root, use) for root in (use.a, use.b)]
        for k in tiles_of(use.k, unit.k):
            across = {row: self.warpgroups.descriptor(use.a, use.m, row, k, use) for row, _ in at}
            down = {column: self.warpgroups.descriptor(use.b, use.n, column, k, use) for _, column in at}
            for (row, column), first in at.items():
                what = (first, *_sizes(unit), adds or k > 0, *turned)
                src = (across[row], down[column], mine.address, mine.first)
                self.emitter.place(Op.TENSOR_MATRIX, dtypes.index, src, what)

    def _columns(self, wanted: int, width: int) -> _Columns:
        """Columns, all zero, and an mbarrier."""
        start = -(-self.memory.shared_bytes // PLACE_BYTES) * PLACE_BYTES
        self.memory.shared_bytes = start + PLACE_BYTES
        place = self.emitter.emit(Op.SHARED, dtypes.int64, (), start)
        first_warp = self.emitter.is_below(self.loops.thread, WARP)
        first = self.emitter.is_equal(self.loops.thread, 0)
        warp = self.emitter.quotient(self.loops.thread, WARP)
        src = (place, first_warp, first, warp)
        address = self.emitter.place(Op.TENSOR_MEMORY, dtypes.int32, src, (wanted, width))
        return _Columns(wanted, place, address, warp, first_warp, first)

    def _free(self, mine: _Columns) -> None:
        self.emitter.place(Op.TENSOR_FREE, dtypes.index, (mine.address, mine.first_warp), mine.wanted)

    # -- products in the steps of another reduction: scores, then what becomes of weights ------------------------------

    def open(self, first: MatrixUse, second: MatrixUse) -> None:
        """Columns for both products of a step, before the steps. Weights lie where scores were."""
        widths = first.unit.size("n"), second.unit.size("n")
        self.opened = self._columns(1 << (sum(widths) - 1).bit_length(), min(widths))
        self.opened.second = widths[0]

    def close(self) -> None:
        """The steps are over."""
        if self.opened is not None:
            self._free(self.opened)
            self.opened = None

    def _of_a_step(self, use: MatrixUse, node: Node) -> None:
        mine = self.opened
        assert mine is not None
        self._multiply(use, mine, {(0, 0): 0}, adds=False)
        self.fragments.results_of(use, node, {(0, 0): self._result(use.unit, mine, 0, 0)})

    def add_made(self, use: MatrixUse, lefts: dict[tuple[int, int], list[Instruction]], sums: Sums) -> Sums:
        """Sums after products whose left factors threads have made: `lefts` by where they begin along k and m."""
        mine, unit = self.opened, use.unit
        assert mine is not None
        pairs = [pair for left in lefts.values() for pair in left]
        self.emitter.place(Op.TENSOR_HELD, dtypes.index, (mine.address, mine.warp, *pairs), 0)
        is_turned = self.warpgroups.is_turned(use.b, use)
        for k, _ in lefts:
            right = self.warpgroups.descriptor(use.b, use.n, 0, k, use)
            what = (mine.second, *_sizes(unit), k > 0, k * unit.a.itemsize // COLUMN_BYTES, is_turned)
            self.emitter.place(Op.TENSOR_MATRIX, dtypes.index, (None, right, mine.address, mine.first), what)
        made = self._result(unit, mine, mine.second, 1)
        return {at: self.emitter.place(Op.ADD, total.dtype, (total, made)) for at, total in sums.items()}

    def _result(self, unit: MatrixUnit, mine: _Columns, column: int, parity: int) -> Instruction:
        """What has come to columns. A step has two such products, so the parities of their phases are known."""
        self.emitter.place(Op.TENSOR_COMMIT, dtypes.index, (mine.place, mine.first))
        src = (mine.place, self.emitter.number(0), self.emitter.number(parity))
        self.emitter.place(Op.WAIT_TILES, dtypes.index, src)
        kind = unit.result.vec(unit.held)
        return self.emitter.place(Op.TENSOR_RESULT, kind, (mine.address, mine.warp), column)

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


def _sizes(unit: MatrixUnit) -> tuple[str, int, int]:
    """A unit's type, rows and columns, as its instruction has them."""
    return unit.name.partition(".")[2], unit.size("m"), unit.size("n")
