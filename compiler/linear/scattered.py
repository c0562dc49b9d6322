"""Scattered: stores whose lanes go to places far apart, as in the gradient of a convolution's weight.

In       the stores of a kernel whose vectors run along a range that is not the last one in memory
Out      a short loop over the lanes: a line for each lane of each vector would be thousands, and as long to compile
Changes  scratch memory, in which the vectors wait for the loop
Next     stores.py (who asks), lower_expr.py (values at a point)

*turned*   a store of vectors that are computed without such memory: the vectors go to scratch, the loop moves them.
*by lane*  stores that read such memory as well (an optimizer's step on the weight): only the sums go to scratch, and
           what is made of them is computed lane by lane, in the loop.
"""

from __future__ import annotations

from hcq.compiler.linear.context import Lowering
from hcq.compiler.linear.places import Packed, Point
from hcq.compiler.linear.program import Instruction
from hcq.compiler.loops.loop import Axis, Loop
from hcq.ir.node import Node
from hcq.ir.op import NEEDED, Op

TURN_AT_LEAST = 64  # scattered values that make the detour through scratch worth while


def is_conditional(store: Node) -> bool:
    """Whether some of its elements must not be written."""
    return len(store.src) > 3 and store.arg != NEEDED


class Scattered(Lowering):
    """Stores along a range that is far apart in memory."""

    def takes(self) -> bool:
        """Kernels all of whose stores are walked lane by lane."""
        return self.walked_axis() is not None

    def write(self) -> None:
        """Write all stores of such a kernel."""
        vector = self.walked_axis()
        assert vector is not None, "it was asked whether it takes them"
        self.store_by_lane(vector)

    def is_scattered(self, store: Node) -> bool:
        """True for many vectors whose lanes go to places a constant stride apart, unconditionally."""
        vector = self._vector_of(self.ranges.masks[store])
        if vector is None or is_conditional(store) or store in self.ranges.volatile or self.nest.digits:
            return False
        return self._is_far(store.src[1], vector) and self._written_out_values(store) >= TURN_AT_LEAST

    def walked_axis(self) -> Axis | None:
        """The range whose lanes are walked one by one for all stores, because they read far places, too; if any."""
        stores = self.nest.stores
        vector = self._vector_of(self.ranges.masks[stores[0]])
        if vector is None or self.nest.digits or self.nest.scans or not self.nest.reduces:
            return None
        far = 0
        read = False
        for store in stores:
            if self.ranges.masks[store] != self.ranges.masks[stores[0]] or is_conditional(store):
                return None
            far += self._is_far(store.src[1], vector)
        for node in self._after_sums():
            if self.ranges.masks[node] & vector.bit and node in self.values.packed:
                return None
            if node.op is Op.LOAD and self._is_far(node.src[1], vector):
                if self._has_neighbours(node, vector):
                    return None
                far += 1
                read = True
        return vector if read and far * self._written_out_values(stores[0]) >= TURN_AT_LEAST else None

    def _vector_of(self, mask: int) -> Axis | None:
        return next((axis for axis in self.ranges.axes_of(mask) if axis.loops[-1].kind == "vector"), None)

    def _is_far(self, index: Node, vector: Axis) -> bool:
        """Whether lanes are a constant stride of more than one element apart."""
        form = self.ranges.affine.of(index)
        if any(self.ranges.masks[atom] & vector.bit for atom in form.atoms()):
            return False
        return form.coefficient(vector.range) not in (0, 1)

    def _has_neighbours(self, load: Node, vector: Axis) -> bool:
        """Whether as much of another range as there are lanes is written out along memory: squares of it are turned."""
        lanes = vector.loops[-1].size
        form = self.ranges.affine.of(load.src[1])
        return any(
            form.coefficient(axis.range) == 1 and self.ranges.extent[axis] >= lanes
            for axis in self.ranges.axes_of(self.ranges.masks[load])
            if axis is not vector
        )

    def _after_sums(self) -> list[Node]:
        """The reductions that the stores read, and every node that is computed from them and from memory then."""
        found: dict[Node, None] = {}
        stack = [store.src[2] for store in self.nest.stores]
        while stack:
            node = stack.pop()
            if node not in found:
                found[node] = None
                stack.extend(node.src if node.op is not Op.REDUCE else ())
        return list(found)

    def _written_out_values(self, store: Node) -> int:
        count = 1
        for axis in self.ranges.axes_of(self.ranges.masks[store]):
            count *= self.ranges.extent[axis]
        return count

    # -- turned -----------------------------------------------------------------------------------------------------

    def store_turned(self, store: Node) -> None:
        """Write the vectors to scratch, then walk them lane by lane."""
        vector = self._vector_of(self.ranges.masks[store])
        assert vector is not None
        tile = self._to_scratch(store, store.src[2])
        self._begin_walk(vector)
        for point in self.ranges.points(self.ranges.masks[store] & ~vector.bit):
            here = {**point, vector: (0, 1)}
            self._store_at(store, self._from_scratch(tile, here), here)
        self._end_walk(vector)

    # -- by lane ----------------------------------------------------------------------------------------------------

    def store_by_lane(self, vector: Axis) -> None:
        """Write the sums to scratch, then compute and write everything else lane by lane, and row by row."""
        sums = [
            node
            for node in self._after_sums()
            if node.op is Op.REDUCE and self.ranges.masks[node] & vector.bit
        ]
        tiles = {node: self._to_scratch(node, node) for node in sums}
        results, self.values.results = self.values.results, dict(self.values.results)
        axes = self.ranges.axes_of(self.ranges.masks[self.nest.stores[0]])
        index = self.ranges.affine.of(self.nest.stores[0].src[1])
        walked = [axis for axis in axes if axis.loops[-1].is_written_out and axis.loops[-1].stride == 1]
        walked.sort(key=lambda axis: -abs(index.coefficient(axis.range)))  # along memory innermost
        for axis in walked:
            self._begin_walk(axis)
        still = 0
        for axis in axes:
            still |= axis.bit if axis not in walked else 0
        for point in self.ranges.points(still):
            here = {**point, **dict.fromkeys(walked, (0, 1))}
            for node, tile in tiles.items():
                self.values.results[node, self.ranges.place_in(node, here)] = self._from_scratch(tile, here)
            values = [
                self.values.value(store.src[2], here) for store in self.nest.stores
            ]  # before any is overwritten
            for store, value in zip(self.nest.stores, values, strict=True):
                self._store_at(store, value, here)
        for axis in reversed(walked):
            self._end_walk(axis)
        self.values.results = results

    # -- both -------------------------------------------------------------------------------------------------------

    def _to_scratch(self, node: Node, value: Node) -> Packed:
        """Write a value of every written-out point to scratch memory of `node`, lane beside lane."""
        axes = self.ranges.axes_of(self.ranges.masks[node])  # that of the lanes last
        strides: dict[Loop, int] = {}
        count = 1
        for loop in reversed([loop for axis in axes for loop in axis.written_out]):
            strides[loop] = count
            count *= loop.size
        tile = Packed(self.memory.scratch(node, value.dtype, count), strides, self.emitter.depth)
        for point in self.ranges.points(self.ranges.masks[node]):
            self.values.store_packed(tile, self.values.value(value, point), point)
        return tile

    def _from_scratch(self, tile: Packed, here: Point) -> Instruction:
        kept = self.values.packed_spot(tile, here)
        return self.emitter.place(
            Op.LOAD, tile.address.dtype, (tile.address, self.emitter.total(kept.terms)), kept.offset
        )

    def _store_at(self, store: Node, value: Instruction, here: Point) -> None:
        spot = self.values.spot(store.src[1], here)
        src = self.values.addresses[store.src[0]], self.emitter.total(spot.terms), value
        self.emitter.store(src, spot.offset)

    def _begin_walk(self, axis: Axis) -> None:
        """A loop over all that is written out of a range: until its end the range's innermost loop is counted."""
        name = "lane" if axis.loops[-1].kind == "vector" else "row"
        self.loops.counters[axis.loops[-1]] = self.emitter.begin(
            name, self.emitter.number(0), self.emitter.number(self.ranges.extent[axis]), runs=True
        )
        self.loops.moved()

    def _end_walk(self, axis: Axis) -> None:
        self.emitter.end(self.loops.counters.pop(axis.loops[-1]))
        self.loops.moved()
