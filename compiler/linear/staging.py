"""Staging: what an operand will be read for, packed into scratch first, in the order in which it is read.

In       a Stage of the schedule, at the place in the program where it belongs
Out      the copy's instructions; from there on the operand's reads go to scratch, dense and without conditions
Next     linearize.py (where stages belong), lower_expr.py (reads them), ../loops/loop_nest.py (`stage` and `box`)

Three ways to copy. By *points*: each value as the inner loops will ask for it. As a *box*: what sliding windows share
is walked once, by vectors. *Turned*: where the lanes are far apart in memory but the reduction is a contiguous run,
squares of vectors are read along the run and transposed in registers.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable

from hcq.compiler.linear.dots import Dots
from hcq.compiler.linear.places import Packed, Point
from hcq.compiler.linear.program import Instruction
from hcq.compiler.loops.dot_units import read_by
from hcq.compiler.loops.loop import Axis, Loop
from hcq.compiler.loops.loop_nest import LoopNest
from hcq.compiler.loops.nest import Stage
from hcq.ir.dtype import DType, dtypes
from hcq.ir.node import Node, index, toposort
from hcq.ir.op import Op

SCRATCH_ALIGN = 64  # bytes


class Staging(Dots):
    """Copies of operands: `copy_in` writes the loops that fill scratch, and reads of the operand then read scratch."""

    def __init__(self, nest: LoopNest):
        super().__init__(nest)
        self.scratch_bytes = 0
        self.scratch_at: dict[Node, int] = {}

    @abstractmethod
    def nested(self, loops: list[Loop], at: int, body: Callable[[], None], staging: bool) -> None:
        """Open the loops from number `at` inwards and write `body` inside them."""

    def scratch(self, owner: Node, dtype: DType, count: int) -> Instruction:
        """The address of an owner's part of this worker's scratch memory; the same for every copy of a body."""
        if owner not in self.scratch_at:
            self.scratch_at[owner] = -(-self.scratch_bytes // SCRATCH_ALIGN) * SCRATCH_ALIGN
            self.scratch_bytes = self.scratch_at[owner] + count * dtype.itemsize
        return self.emit(Op.SCRATCH, dtype, (), self.scratch_at[owner])

    def copy_in(self, stage: Stage) -> None:
        """Write the copy of one staged operand here; from now on it is read from scratch."""
        load, value = stage.load, stage.value
        mask = self.masks[load]
        boxes = [_Box(self, *pair) for pair in self.nest.walks(load)] if stage.is_box else []
        boxes = [box for box in boxes if box.is_exact]
        boxed = {axis for box in boxes for axis in (box.a, box.b) if axis is not None}
        loops = [loop for loop in self.nest.order if loop.axis.bit & mask and loop not in self.counters]
        loops = [loop for loop in loops if loop.axis not in boxed]
        axes = sorted(self.axes_of(mask), key=lambda axis: axis.loops[-1].kind == "vector")
        use = self.nest.dots
        words = use.k if use is not None and value in (use.a, use.b) and not boxes else None
        strides: dict[Loop, int] = {}
        count = 1
        for box in reversed(boxes):
            box.stride, count = count, count * box.nominal
        walked = loops + [loop for axis in axes if axis not in boxed for loop in axis.written_out]
        # the numbers of a word are neighbours
        innermost_last = sorted(walked, key=lambda loop: loop.kind == "dot")
        for loop in reversed(innermost_last):
            strides[loop] = count
            count *= loop.size
        for box in boxes:
            strides.update(box.strides())
        start = sum(box.start for box in boxes)
        address = self.scratch(value, value.dtype, count)
        packed = Packed(address, strides, self.depth, start)
        self.pack(value, None)
        chain = [] if boxes or words is not None else self._chain(load, strides)
        if chain:
            self._copy_turned(value, packed, chain)
            self.pack(value, packed)
            return
        source = value
        unboxed = {loop: stride for loop, stride in strides.items() if loop.axis not in boxed}
        written = Packed(address, unboxed, self.depth)
        zeros: Point = {}
        stilled: list[Loop] = []
        for number, box in enumerate(boxes):
            walk = box.axis(len(self.axes), f"{box.b.name}.all", value.dtype, number == len(boxes) - 1)
            self._add_axis(walk)
            source = source.substitute({box.b.range: box.place(walk.range)})
            loops += walk.counted
            stilled += [loop for loop in box.b.counted if loop not in self.counters]
            if box.a is not None:
                zeros[box.a] = (0, 1)
                stilled += [loop for loop in box.a.counted if loop not in self.counters]
            for loop in walk.loops:
                written.strides[loop] = box.stride * loop.stride
        self._mask_copies(source)
        for loop in stilled:  # the box starts where the window does
            self.counters[loop] = self.number(0)
        self.moved()

        form = self.affine.of(read_by(source).src[1])
        strided = {
            axis
            for axis in self.axes_of(self.masks[source])
            if (axis.loops[-1].kind == "vector" and form.coefficient(axis.range) != 1)
            or axis.loops[-1].kind == "dot"
        }

        def copy() -> None:
            if words is not None:
                for point in self.points(self.masks[source]):
                    self.store_words(written, source, words, {**point, **zeros})
                return
            for point in self.points(self.masks[source], strided):
                at = {**point, **zeros}
                self.store_packed(written, self.value(source, at), at)

        self.nested(loops, 0, copy, staging=False)
        for loop in stilled:
            del self.counters[loop]
        self.moved()
        self.pack(value, packed)

    # -- operands whose lanes are far apart, but whose reduction is contiguous ----------------------------------------

    def _chain(self, load: Node, strides: dict[Loop, int]) -> list[Axis]:
        """Axes, outermost first, that memory and scratch both walk as one run while the vector range jumps; or none."""
        form = self.affine.of(load.src[1])
        vector = next((a for a in self.axes_of(self.masks[load]) if a.loops[-1].kind == "vector"), None)
        if vector is None or len(load.src) > 2 or form.coefficient(vector.range) in (0, 1, -1):
            return []
        candidates = [
            a for a in self.nest.axes if a is not vector and len(a.loops) == 1 and a.loops[0] in strides
        ]
        chain: list[Axis] = []
        run = 1
        while True:
            longer = [
                a for a in candidates if a not in chain and form.coefficient(a.range) == run and a.size > 1
            ]
            if not longer or (chain and strides[longer[0].loops[0]] != strides[chain[-1].loops[0]] * run):
                break
            chain.insert(0, longer[0])
            run *= longer[0].size
        moving = sum(axis.bit for axis in chain)
        is_sum = not any(self.masks[atom] & (moving | vector.bit) for atom in form.atoms())
        return chain if is_sum and run >= vector.loops[-1].size >= 4 else []

    def _copy_turned(self, value: Node, packed: Packed, chain: list[Axis]) -> None:
        """Read vectors along the run, turn squares of them in registers, write vectors along the lanes."""
        mask = self.masks[value]
        vector = next(a for a in self.axes_of(mask) if a.loops[-1].kind == "vector")
        lanes = vector.loops[-1].size
        run = 1
        for axis in chain:
            run *= axis.size
        step = packed.strides[chain[-1].loops[0]]
        walk = _walk(len(self.axes), f"{chain[-1].name}.run", run, lanes)
        self._add_axis(walk)
        places = {axis.range: index(0) for axis in chain} | {chain[-1].range: walk.range}
        source = value.substitute(places)
        self._mask_copies(source)
        written = Packed(packed.address, dict(packed.strides), self.depth)
        for axis in chain:
            del written.strides[axis.loops[0]]
        for loop in walk.loops:
            written.strides[loop] = step * loop.stride
        loops = [loop for loop in self.nest.order if loop in written.strides] + walk.counted
        rest = self.masks[source] & ~(walk.bit | vector.bit)

        def copy() -> None:
            for point in self.points(rest):
                for start, width in self._places(vector, False):
                    for along, length in self._places(walk, False):
                        at = [{**point, walk: (along, length), vector: (start + i, 1)} for i in range(width)]
                        rows = [self.value(source, here) for here in at]
                        if width == length == lanes:
                            at = [
                                {**point, walk: (along + i, 1), vector: (start, lanes)} for i in range(lanes)
                            ]
                            rows = self.turned(rows)
                        for here, row in zip(at, rows, strict=True):
                            self.store_packed(written, row, here)

        self.moved()
        self.nested(loops, 0, copy, staging=False)

    # -- names for the walks of copies --------------------------------------------------------------------------------

    def _add_axis(self, axis: Axis) -> None:
        self.axes.append(axis)
        self.axis_of[axis.range] = axis
        self.extent[axis] = min(axis.tile, axis.size)

    def _mask_copies(self, root: Node) -> None:
        """Which ranges the nodes of a copy depend on."""
        for node in toposort((root,)):
            if node not in self.masks:
                mask = self.axis_of[node].bit if node.op is Op.RANGE else 0
                for source in node.src:
                    mask |= self.masks[source]
                self.masks[node] = mask


class _Box:
    """What a sliding window reads: factor * a + b, walked once instead of window by window; without a, all of b.

    A window that runs backwards reads factor * a - b + (size(b) - 1), so that places count upwards from 0 again.
    """

    def __init__(self, writer: Staging, a: Axis | None, b: Axis, factor: int):
        self.a, self.b, self.factor, self.is_backwards = a, b, abs(factor), factor < 0
        self.stride = 0
        self.inner: list[Loop] = []
        self.size = self.nominal = b.size
        self.is_exact = not any(loop in writer.counters for loop in b.loops)
        if a is None:
            return
        opened = [loop for loop in a.counted if loop in writer.counters]
        self.inner = [loop for loop in a.loops if loop not in writer.counters]
        step = opened[-1].stride if opened else a.size
        whole = a.size % step == 0
        extent = step if whole else min(writer.extent[a], step)
        self.is_exact = self.is_exact and (whole or all(loop.is_written_out for loop in self.inner))
        self.size = self.factor * (extent - 1) + b.size
        self.nominal = self.factor * (step - 1) + b.size

    def strides(self) -> dict[Loop, int]:
        strides = {loop: self.stride * self.factor * loop.stride for loop in self.inner}
        along = -self.stride if self.is_backwards else self.stride
        strides.update({loop: along * loop.stride for loop in self.b.loops})
        return strides

    @property
    def start(self) -> int:
        return self.stride * (self.b.size - 1) if self.is_backwards else 0

    def place(self, walk: Node) -> Node:
        """What the window's range is where the walk is, at the first output."""
        return walk * -1 + (self.b.size - 1) if self.is_backwards else walk

    def axis(self, bit: int, name: str, dtype: DType, is_last: bool) -> Axis:
        """A range that walks the box; the last one, contiguous in scratch, in vectors."""
        lanes = max(16, SCRATCH_ALIGN // dtype.itemsize)
        while lanes > self.size:
            lanes //= 2
        return _walk(bit, name, self.size, lanes if is_last else 1)


def _walk(bit: int, name: str, size: int, lanes: int) -> Axis:
    """A range of a copy: vectors of `lanes`, counted where there is more than one."""
    node = Node(Op.RANGE, dtypes.index, (index(size),), ("copy", bit))
    axis = Axis(node, name, size, False, False, 1 << bit)
    if lanes < size:
        axis.loops.append(Loop(name, axis, -(-size // lanes), lanes))
    if lanes > 1:
        axis.loops.append(Loop(f"{name}.1", axis, lanes, 1, "vector"))
    if not axis.loops:
        axis.loops.append(Loop(name, axis, size, 1))
    return axis
