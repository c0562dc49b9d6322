"""Staging: what an operand will be read for, packed into scratch first, in the order in which it is read.

In       a Stage of the schedule, at the place in the program where it belongs
Out      the copy's instructions; from there on the operand's reads go to scratch, dense and without conditions
Next     staged_loops.py (where stages belong), lower_expr.py (reads them), ../loops/loop_nest.py (`stage` and `box`)

Three ways to copy. By *points*: each value as the inner loops will ask for it. As a *box*: what sliding windows share
is walked once, by vectors. *Turned*: where the lanes are far apart in memory but the reduction is a contiguous run,
squares of vectors are read along the run and transposed in registers.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from hcq.compiler.linear.context import Context, Lowering
from hcq.compiler.linear.counted_loops import CountedLoops
from hcq.compiler.linear.memory import SCRATCH_ALIGN
from hcq.compiler.linear.places import Packed, Point
from hcq.compiler.linear.program import Instruction
from hcq.compiler.linear.ranges import Ranges
from hcq.compiler.loops.dot_units import read_by
from hcq.compiler.loops.loop import Axis, Loop
from hcq.compiler.loops.nest import Stage
from hcq.ir.dtype import DType, dtypes
from hcq.ir.node import Node, index
from hcq.ir.op import Op

if TYPE_CHECKING:
    from hcq.compiler.linear.dots import Dots


class Staging(Lowering):
    """Copies to scratch: `copy_in` writes the loops that fill it, and reads of the operand then read scratch."""

    def __init__(self, context: Context, loops: CountedLoops, dots: Dots | None):
        super().__init__(context)
        self.counted, self.dots = loops, dots

    def takes(self, loop: Loop | None) -> bool:
        """All stages of kernels without threads."""
        return not self.nest.digits

    def begin_loop(self, stages: list[Stage], loop: Loop) -> None:
        """Nothing is copied ahead: no loop of a kernel without threads is pipelined."""

    def begin_step(self, stages: list[Stage], loop: Loop | None) -> None:
        """Copy the operands of a step."""
        for stage in stages:
            self.copy_in(stage)

    def end_step(self, loop: Loop) -> None:
        """Nothing was copied ahead."""

    def end_loop(self, loop: Loop) -> None:
        """Nothing was copied ahead."""

    def copy_in(self, stage: Stage) -> None:
        """Write the copy of one staged operand here; from now on it is read from scratch."""
        load, value = stage.load, stage.value
        mask = self.ranges.masks[load]
        boxes = (
            [_Box(self.ranges, self.loops.counters, *pair) for pair in self.nest.walks(load)]
            if stage.is_box
            else []
        )
        boxes = [box for box in boxes if box.is_exact]
        boxed = {axis for box in boxes for axis in (box.a, box.b) if axis is not None}
        loops = [loop for loop in self.nest.order if loop.axis.bit & mask and loop not in self.loops.counters]
        loops = [loop for loop in loops if loop.axis not in boxed]
        axes = sorted(self.ranges.axes_of(mask), key=lambda axis: axis.loops[-1].kind == "vector")
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
        address = self.memory.scratch(value, value.dtype, count)
        packed = Packed(address, strides, self.emitter.depth, start)
        self.values.pack(value, None)
        chain = [] if boxes or words is not None else self._chain(load, strides)
        if chain:
            self._copy_turned(value, packed, chain)
            self.values.pack(value, packed)
            return
        source = value
        unboxed = {loop: stride for loop, stride in strides.items() if loop.axis not in boxed}
        written = Packed(address, unboxed, self.emitter.depth)
        zeros: Point = {}
        stilled: list[Loop] = []
        for number, box in enumerate(boxes):
            walk = box.axis(len(self.ranges.axes), f"{box.b.name}.all", value.dtype, number == len(boxes) - 1)
            self.ranges.add(walk)
            source = source.substitute({box.b.range: box.place(walk.range)})
            loops += walk.counted
            stilled += [loop for loop in box.b.counted if loop not in self.loops.counters]
            if box.a is not None:
                zeros[box.a] = (0, 1)
                stilled += [loop for loop in box.a.counted if loop not in self.loops.counters]
            for loop in walk.loops:
                written.strides[loop] = box.stride * loop.stride
        self.ranges.mask_copies(source)
        for loop in stilled:  # the box starts where the window does
            self.loops.counters[loop] = self.emitter.number(0)
        self.loops.moved()

        form = self.ranges.affine.of(read_by(source).src[1])
        strided = {
            axis
            for axis in self.ranges.axes_of(self.ranges.masks[source])
            if (axis.loops[-1].kind == "vector" and form.coefficient(axis.range) != 1)
            or axis.loops[-1].kind == "dot"
        }

        def copy() -> None:
            if self.dots is not None and words is not None:
                for point in self.ranges.points(self.ranges.masks[source]):
                    self.dots.store_words(written, source, words, {**point, **zeros})
                return
            for point in self.ranges.points(self.ranges.masks[source], strided):
                at = {**point, **zeros}
                self.values.store_packed(written, self.values.value(source, at), at)

        self.counted.nested(loops, copy)
        for loop in stilled:
            del self.loops.counters[loop]
        self.loops.moved()
        self.values.pack(value, packed)

    # -- operands whose lanes are far apart, but whose reduction is contiguous ----------------------------------------

    def _chain(self, load: Node, strides: dict[Loop, int]) -> list[Axis]:
        """Axes, outermost first, that memory and scratch both walk as one run while the vector range jumps; or none."""
        form = self.ranges.affine.of(load.src[1])
        vector = next(
            (a for a in self.ranges.axes_of(self.ranges.masks[load]) if a.loops[-1].kind == "vector"), None
        )
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
        is_sum = not any(self.ranges.masks[atom] & (moving | vector.bit) for atom in form.atoms())
        return chain if is_sum and run >= vector.loops[-1].size >= 4 else []

    def _copy_turned(self, value: Node, packed: Packed, chain: list[Axis]) -> None:
        """Read vectors along the run, turn squares of them in registers, write vectors along the lanes."""
        mask = self.ranges.masks[value]
        vector = next(a for a in self.ranges.axes_of(mask) if a.loops[-1].kind == "vector")
        lanes = vector.loops[-1].size
        run = 1
        for axis in chain:
            run *= axis.size
        step = packed.strides[chain[-1].loops[0]]
        walk = _walk(len(self.ranges.axes), f"{chain[-1].name}.run", run, lanes)
        self.ranges.add(walk)
        places = {axis.range: index(0) for axis in chain} | {chain[-1].range: walk.range}
        source = value.substitute(places)
        self.ranges.mask_copies(source)
        written = Packed(packed.address, dict(packed.strides), self.emitter.depth)
        for axis in chain:
            del written.strides[axis.loops[0]]
        for loop in walk.loops:
            written.strides[loop] = step * loop.stride
        loops = [loop for loop in self.nest.order if loop in written.strides] + walk.counted
        rest = self.ranges.masks[source] & ~(walk.bit | vector.bit)

        def copy() -> None:
            for point in self.ranges.points(rest):
                for start, width in self.ranges.places(vector, False):
                    for along, length in self.ranges.places(walk, False):
                        at = [{**point, walk: (along, length), vector: (start + i, 1)} for i in range(width)]
                        rows = [self.values.value(source, here) for here in at]
                        if width == length == lanes:
                            at = [
                                {**point, walk: (along + i, 1), vector: (start, lanes)} for i in range(lanes)
                            ]
                            rows = self.emitter.turned(rows)
                        for here, row in zip(at, rows, strict=True):
                            self.values.store_packed(written, row, here)

        self.loops.moved()
        self.counted.nested(loops, copy)


class _Box:
    """What a sliding window reads: factor * a + b, walked once instead of window by window; without a, all of b.

    A window that runs backwards reads factor * a - b + (size(b) - 1), so that places count upwards from 0 again.
    """

    def __init__(
        self, ranges: Ranges, counters: Mapping[Loop, Instruction], a: Axis | None, b: Axis, factor: int
    ):
        self.a, self.b, self.factor, self.is_backwards = a, b, abs(factor), factor < 0
        self.stride = 0
        self.inner: list[Loop] = []
        self.size = self.nominal = b.size
        self.is_exact = not any(loop in counters for loop in b.loops)
        if a is None:
            return
        opened = [loop for loop in a.counted if loop in counters]
        self.inner = [loop for loop in a.loops if loop not in counters]
        step = opened[-1].stride if opened else a.size
        whole = a.size % step == 0
        extent = step if whole else min(ranges.extent[a], step)
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
