"""Accesses: what a schedule wants to know about a kernel's memory and work.

In       a LoopNest whose ranges are merged but not split
Out      strides of loads and stores by axis, bytes, operations, an estimate of the time on one thread
Next     heuristic.py, contraction.py (who decide)
"""

from __future__ import annotations

from functools import cached_property

from hcq.compiler.loops.loop import Axis
from hcq.compiler.loops.loop_nest import LoopNest
from hcq.compiler.target import Target
from hcq.ir.dtype import Kind
from hcq.ir.node import Node, toposort
from hcq.ir.op import ARITHMETIC, Op

BYTES_PER_NS = 12.0  # one thread, mixed reads and writes
LANE_OPS_PER_NS = 3.0  # vector instructions started per nanosecond, one thread


class Accesses:
    """The facts of one nest. Axes may be given by their old selves: a merge makes axes anew, under the same name."""

    def __init__(self, nest: LoopNest):
        self.nest = nest

    def stride(self, access: Node, axis: Axis) -> int | None:
        """Elements between neighbours along an axis; None where the address is no sum in it."""
        axis = self.nest.axis(axis)
        form = self.nest.affine.of(access.src[1])
        for atom in form.atoms():
            if self.nest.masks[atom] & axis.bit:
                return None
        return form.coefficient(axis.range)

    def store_stride(self, axis: Axis) -> int | None:
        """The stride of the stores where all agree."""
        strides = {self.stride(store, axis) for store in self.nest.stores}
        return strides.pop() if len(strides) == 1 else None

    def all_strides(self, axis: Axis, allowed: tuple[int, ...]) -> bool:
        """Whether every load's stride along an axis is one of these."""
        return all(self.stride(load, axis) in allowed for load in self.nest.loads)

    def contiguous_loads(self, axis: Axis) -> int:
        """How many loads run along the axis element by element; 0 if any jumps."""
        strides = [self.stride(load, axis) for load in self.nest.loads]
        if any(s not in (0, 1, -1) for s in strides):
            return sum(s in (1, -1) for s in strides) if len(strides) == 1 else 0
        return sum(s in (1, -1) for s in strides)

    def run(self, load: Node) -> int:
        """How many elements in a row the reduced ranges walk in memory."""
        reduced = [axis for axis in self.nest.axes if axis.is_reduce]
        run = 1
        while longer := [axis for axis in reduced if axis.size > 1 and self.stride(load, axis) == run]:
            run *= longer[0].size
        return run

    def is_masked(self, load: Node) -> bool:
        """Whether a load has a condition."""
        return len(load.src) > 2

    def lanes(self, target: Target, along: Axis | None = None) -> int:
        """Lanes of a full vector of the widest type that memory holds here (4 bytes where all are narrower).

        along   only what differs along this axis: a row that is folded has lanes, what becomes of its result has none
        """
        values = [n for n in self.values if n.dtype.kind is not Kind.INDEX]
        if along is not None:
            bit = self.nest.axis(along).bit
            values = [n for n in values if self.nest.masks[n] & bit]
        sizes = [n.dtype.itemsize for n in values]
        widest = max([4, *sizes])
        return max(1, target.vector_bits // 8 // widest)

    @cached_property
    def values(self) -> list[Node]:
        """Everything computed that is not address arithmetic."""
        return [n for n in toposort((self.nest.sink,)) if n.op in ARITHMETIC or n.op is Op.LOAD]

    @cached_property
    def op_count(self) -> int:
        """Arithmetic operations per element, the addresses' own left out."""
        return sum(1 for n in self.values if n.op in ARITHMETIC and n.dtype.kind is not Kind.INDEX)

    def ops_along(self, axis: Axis) -> int:
        """Those of them that differ along an axis: the others are shared by its steps."""
        bit = self.nest.axis(axis).bit
        return sum(
            1
            for n in self.values
            if n.op in ARITHMETIC and n.dtype.kind is not Kind.INDEX and self.nest.masks[n] & bit
        )

    @cached_property
    def points(self) -> int:
        """Elements the innermost body runs for."""
        count = 1
        for axis in self.nest.axes:
            count *= axis.size
        return count

    @cached_property
    def outputs(self) -> int:
        """Elements that are stored."""
        count = 1
        for axis in self.nest.axes:
            if not axis.is_reduce:
                count *= axis.size
        return count

    def work_ns(self) -> float:
        """Roughly how long one thread needs."""
        moved = 0
        for load in self.nest.loads:
            moved += self.extent(load) * load.dtype.itemsize
        for store in self.nest.stores:
            moved += self.extent(store) * store.src[2].dtype.itemsize
        is_vector = all(self.stride(s, a) is not None for s in self.nest.stores for a in self.nest.axes)
        per_ns = LANE_OPS_PER_NS * (8 if is_vector else 1)
        return moved / BYTES_PER_NS + self.points * (1 + self.op_count) / per_ns

    def extent(self, access: Node) -> int:
        """Elements an access walks over, at most."""
        count = 1
        for axis in self.nest.axes:
            if self.nest.masks[access.src[1]] & axis.bit:
                count *= axis.size
        return count
