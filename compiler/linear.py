"""Linearize: a scheduled loop nest becomes a linear program.

In       a LoopNest
Out      a Program: every value once, at the outermost place where all it depends on is known
Next     at_point.py (how a node becomes instructions), program.py (the instructions), render/llvm.py (their spelling)

Counted loops are opened in order, outputs outside reductions. A node is evaluated at *points*: combinations of the
steps of written-out loops. The result is placed in the scope of the innermost loop it depends on and remembered there,
so invariant code is hoisted and copies share work without a pass of their own. Where a range does not divide, the full
steps run without tests and the partial step is written a second time, with its own extent.

A reduction is emitted as soon as the output loops that it needs are open; its accumulators are one per output point
(and one per written-out step of a vectorised reduction, folded at the end).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from hcq.compiler.at_point import AtPoint, Packed, Place, Point
from hcq.compiler.loop_nest import Axis, Loop, LoopNest, ScheduleError, Stage
from hcq.compiler.program import NOT_NEGATIVE, Instruction, LoopFacts, Program
from hcq.ir.dtype import DType, Scalar, dtypes
from hcq.ir.node import Node, index, toposort
from hcq.ir.op import Op

SCRATCH_ALIGN = 64  # bytes
TURN_AT_LEAST = 64  # scattered values that make the detour through scratch worth while


def linearize(nest: LoopNest, name: str) -> Program:
    """The program of a nest. Raises ScheduleError where the schedule cannot be written down."""
    return _Writer(nest).write(name)


def identity(op: Op, dtype: DType) -> Scalar:
    """The value a reduction starts from."""
    if op is Op.ADD:
        return 0
    if op is Op.MUL:
        return 1
    return dtype.min if op is Op.MAX else dtype.max


class _Writer(AtPoint):
    def __init__(self, nest: LoopNest):
        super().__init__(nest)
        self.scratch_bytes = 0
        self.scratch_at: dict[Node, int] = {}
        self.open_reductions: list[LoopFacts] = []
        self.pending = _reductions_by_ranges(nest.reduces)

    def write(self, name: str) -> Program:
        params = {n.arg.index: n for n in toposort((self.nest.sink,)) if n.op is Op.PARAM}
        for node in params.values():
            self.addresses[node] = self.emit(Op.PARAM, node.dtype, (), node.arg)
        outputs = [loop for loop in self.nest.order if not loop.axis.is_reduce]
        if self.nest.groups:
            self._groups(self.nest.groups, lambda: self._outputs(outputs, 0))
        else:
            self._outputs(outputs, 0)
        listed = [(params[i].arg, params[i].dtype) for i in sorted(params)]
        program = self.scopes[0].instructions
        return Program(name, listed, program, self.scratch_bytes, self.nest.group_count)

    # -- loops ------------------------------------------------------------------------------------------------------

    def _groups(self, groups: list[Loop], body: Callable[[], None]) -> None:
        """One loop over the groups that this call was given; its number is taken apart, the last group loop fastest."""
        first = self.emit(Op.SPECIAL, dtypes.index, (), "first")
        last = self.emit(Op.SPECIAL, dtypes.index, (), "last")
        loop = rest = self.begin("group", first, last, runs=False)
        for group in reversed(groups[1:]):
            size = self.number(group.size)
            self.counters[group] = self.emit(Op.MOD, dtypes.index, (rest, size), NOT_NEGATIVE)
            rest = self.emit(Op.FLOORDIV, dtypes.index, (rest, size), NOT_NEGATIVE)
        self.counters[groups[0]] = rest
        self.moved()
        body()
        self.end(loop)
        for group in groups:
            del self.counters[group]
        self.moved()

    def _outputs(self, loops: list[Loop], at: int) -> None:
        """The output loops from number `at` inwards: operands packed here, reductions ready here, the rest inside."""
        self._stage_at(loops[at - 1] if at else None)
        waiting = self.pending
        self._reduce_ready(loops[at:])
        if at < len(loops):
            self._open(loops[at], lambda: self._outputs(loops, at + 1))
        else:
            for store in self.nest.stores:
                if self._is_scattered(store):
                    self._store_turned(store)
                    continue
                for point in self.points(self.masks[store]):
                    self.store(store, point)
        self.pending = waiting  # the next copy of this body computes them again

    def _open(self, loop: Loop, body: Callable[[], None]) -> None:
        """Run `body` for every step of a counted loop: the full steps, then a partial one with its own extent."""
        axis = loop.axis
        counted = axis.counted
        outer = counted[: counted.index(loop)]
        behind = self.total([(self.counters[o], o.stride // loop.stride) for o in outer])
        always_whole = bool(outer) and axis.size % outer[-1].stride == 0
        whole, left = divmod(axis.size, loop.stride)

        def until(steps: int) -> Instruction:
            """Where this loop ends when the range ends after `steps` steps of its kind."""
            if not outer:
                return self.number(min(loop.size, steps))
            if always_whole:
                return self.number(loop.size)
            ahead = self.number(steps)
            if behind is not None:
                ahead = self.arithmetic(Op.ADD, ahead, self.arithmetic(Op.MUL, behind, self.number(-1)))
            return self.arithmetic(Op.MIN, self.number(loop.size), ahead)

        if counted[-1] is not loop:  # the loops inside see to the partial step
            if loop.kind == "group":
                body()
            else:
                self._run(loop, self.number(0), until(whole + bool(left)), body)
            return
        full = self.extent[axis] = min(axis.tile, axis.size)
        if loop.kind == "group":  # already counting: narrow it to this group, if this group is whole
            if not left:
                body()
                return
            here = self.counters[loop]
            after = self.arithmetic(Op.ADD, here, self.number(1))
            self._run(loop, here, self.arithmetic(Op.MIN, after, self.number(whole)), body)
            self.extent[axis] = left
            self._run(loop, self.arithmetic(Op.MAX, here, self.number(whole)), after, body)
        else:
            end = until(whole)
            self._run(loop, self.number(0), end, body)
            if left:
                self.extent[axis] = left
                self._run(loop, self.arithmetic(Op.MAX, end, self.number(0)), until(whole + 1), body)
        self.extent[axis] = full

    def _run(self, loop: Loop, low: Instruction, high: Instruction, body: Callable[[], None]) -> None:
        """One loop; nothing at all where it is known to be empty, no loop for a single known step."""
        outer = self.counters.get(loop)  # a group's own number
        known = low.op is Op.CONST and high.op is Op.CONST
        if known and low.arg >= high.arg:
            return
        if known and high.arg == low.arg + 1:
            self.counters[loop] = self.begin_step(low.arg)
            self.moved()
            body()
            self.end_step()
        else:
            counter = self.counters[loop] = self.begin(loop.name, low, high, runs=known)
            self.moved()
            if loop.axis.is_reduce:
                self.open_reductions.append(counter.arg)
            body()
            if loop.axis.is_reduce:
                self.open_reductions.pop()
            self.end(counter)
        if outer is None:
            del self.counters[loop]
        else:
            self.counters[loop] = outer
        self.moved()

    # -- reductions -------------------------------------------------------------------------------------------------

    def _reduce_ready(self, unopened_loops: list[Loop]) -> None:
        """Emit every reduction whose output loops are all open; those after one that waits may read it."""
        unopened = 0
        for loop in unopened_loops:
            unopened |= loop.axis.bit
        while self.pending:
            group = self.pending[0]
            if any(self.masks[node] & unopened for node in group):
                return
            if unopened_loops and any(node in self.volatile for node in group):
                return
            self.pending = self.pending[1:]
            self._reduction(group)

    def _reduction(self, group: list[Node]) -> None:
        """Reductions over the same ranges in one pass: accumulators, the loops, the fold."""
        nest = self.nest
        axes = [nest.axis_of[r] for r in group[0].src[1:]]
        consumed = 0
        for axis in axes:
            consumed |= axis.bit
        for node in group:
            if any(a.is_reduce and a.bit & self.masks[node] for a in nest.axes):
                raise ScheduleError(
                    "a reduction runs inside another one and depends on it; schedule them as two kernels"
                )
        is_vector = any(loop.kind == "vector" for axis in axes for loop in axis.loops)
        depth = self.depth
        parts: dict[tuple[Node, tuple[Place, ...]], dict[Any, Instruction]] = {
            (node, tuple(point.values())): {} for node in group for point in self.points(self.masks[node])
        }
        points = {node: list(self.points(self.masks[node])) for node in group}

        def body() -> None:
            now: dict[Instruction, Instruction] = {}
            for inner in self.points(consumed):
                part = tuple(inner.values()) if is_vector else ()
                for node in group:
                    for outer in points[node]:
                        here = {**outer, **inner}
                        summand, condition = _conditional(node)
                        holds = None if condition is None else self.value(condition, here)
                        if holds is not None and holds.op is Op.CONST:
                            if not holds.arg:
                                continue
                            holds = None
                        x = self.value(summand, here)
                        mine = parts[node, tuple(outer.values())]
                        accumulator = mine.get(part)
                        if accumulator is None:
                            places = (*inner.values(), *self.place_in(node.src[0], here))
                            lanes = max([1, *[width for _, width in places]])
                            start = self.number(identity(node.arg, node.dtype), node.dtype)
                            src = (self.broadcast(start, lanes),)
                            dtype = node.dtype.vec(lanes)
                            accumulator = Instruction(Op.ACCUMULATOR, dtype, src, None, depth)
                            self.scopes[depth].instructions.append(accumulator)
                            mine[part] = accumulator
                        x = self.broadcast(x, accumulator.dtype.lanes)
                        before = now.get(accumulator, accumulator)
                        after = self.place(node.arg, x.dtype, (before, x))
                        if holds is not None:
                            chosen = self.broadcast(holds, x.dtype.lanes)
                            after = self.place(Op.WHERE, x.dtype, (chosen, after, before))
                        now[accumulator] = after
            for accumulator, after in now.items():
                self.place(Op.UPDATE, accumulator.dtype, (accumulator, after))
                for facts in self.open_reductions:
                    if accumulator not in facts.carried:
                        facts.carried.append(accumulator)

        outside, self.open_reductions = self.open_reductions, []
        self._nested([loop for loop in nest.order if loop.axis in axes], 0, body, staging=True)
        self.open_reductions = outside
        for (node, place), mine in parts.items():
            self.results[node, place] = self._fold(node, list(mine.values()), is_vector)

    def _nested(self, loops: list[Loop], at: int, body: Callable[[], None], staging: bool) -> None:
        if at == len(loops):
            body()
            return

        def inside() -> None:
            if staging:
                self._stage_at(loops[at])
            self._nested(loops, at + 1, body, staging)

        self._open(loops[at], inside)

    def _fold(self, node: Node, parts: list[Instruction], is_vector: bool) -> Instruction:
        """The accumulators of one output value as one: equal widths in pairs, then halves onto each other."""
        if not parts:
            return self.number(identity(node.arg, node.dtype), node.dtype)
        if not is_vector:
            return parts[0]
        widths: dict[int, list[Instruction]] = {}
        for part in parts:
            widths.setdefault(part.dtype.lanes, []).append(part)
        whole: list[Instruction] = []
        lanes = max(widths)
        while True:
            whole += widths.get(lanes, [])
            while len(whole) > 1:  # in pairs: shorter chains, smaller rounding errors
                pairs = zip(whole[::2], whole[1::2], strict=False)
                odd = whole[-1:] if len(whole) % 2 else []
                whole = [self.place(node.arg, a.dtype, (a, b)) for a, b in pairs] + odd
            if lanes == 1:
                return whole[0]
            lanes //= 2
            half = node.dtype.vec(lanes)
            low = self.place(Op.LANE, half, (whole[0],), tuple(range(lanes)))
            high = self.place(Op.LANE, half, (whole[0],), tuple(range(lanes, 2 * lanes)))
            whole = [self.place(node.arg, half, (low, high))]

    # -- stores whose lanes are far apart ---------------------------------------------------------------------------

    def _is_scattered(self, store: Node) -> bool:
        """True for many vectors whose lanes go to places a constant stride apart, unconditionally."""
        vector = next((a for a in self.axes_of(self.masks[store]) if a.loops[-1].kind == "vector"), None)
        if vector is None or len(store.src) > 3 or store in self.volatile:
            return False
        form = self.affine.of(store.src[1])
        if form.coefficient(vector.range) == 1 or any(self.masks[atom] & vector.bit for atom in form.atoms()):
            return False
        return self.written_out_values(store) >= TURN_AT_LEAST

    def written_out_values(self, store: Node) -> int:
        count = 1
        for axis in self.axes_of(self.masks[store]):
            count *= self.extent[axis]
        return count

    def _store_turned(self, store: Node) -> None:
        """Write the vectors to scratch, then walk them lane by lane: a short loop, not a line per lane."""
        mask = self.masks[store]
        axes = sorted(self.axes_of(mask), key=lambda axis: axis.loops[-1].kind == "vector")
        vector = axes[-1]
        strides: dict[Loop, int] = {}
        count = 1
        for loop in reversed([loop for axis in axes for loop in axis.written_out]):
            strides[loop] = count
            count *= loop.size
        value = store.src[2]
        if store not in self.scratch_at:
            self.scratch_at[store] = -(-self.scratch_bytes // SCRATCH_ALIGN) * SCRATCH_ALIGN
            self.scratch_bytes = self.scratch_at[store] + count * value.dtype.itemsize
        address = self.emit(Op.SCRATCH, value.dtype, (), self.scratch_at[store])
        tile = Packed(address, strides, self.depth)
        for point in self.points(mask):
            self.store_packed(tile, self.value(value, point), point)
        lane = self.begin("lane", self.number(0), self.number(self.extent[vector]), runs=True)
        self.moved()
        for point in self.points(mask & ~vector.bit):
            self.store_lane(store, tile, vector, lane, point)
        self.end(lane)
        self.moved()

    # -- staging ----------------------------------------------------------------------------------------------------

    def _stage_at(self, loop: Loop | None) -> None:
        """Pack the operands that are staged at this loop, as a step of it begins."""
        for stage in self.nest.stages:
            if stage.at is loop:
                self._copy_in(stage)

    def _copy_in(self, stage: Stage) -> None:
        load, value = stage.load, stage.value
        mask = self.masks[load]
        boxes = [_Box(self, *pair) for pair in self.nest.walks(load)] if stage.is_box else []
        boxes = [box for box in boxes if box.is_exact]
        boxed = {axis for box in boxes for axis in (box.a, box.b) if axis is not None}
        loops = [loop for loop in self.nest.order if loop.axis.bit & mask and loop not in self.counters]
        loops = [loop for loop in loops if loop.axis not in boxed]
        axes = sorted(self.axes_of(mask), key=lambda axis: axis.loops[-1].kind == "vector")
        strides: dict[Loop, int] = {}
        count = 1
        for box in reversed(boxes):
            box.stride, count = count, count * box.nominal
        for loop in reversed(
            loops + [loop for axis in axes if axis not in boxed for loop in axis.written_out]
        ):
            strides[loop] = count
            count *= loop.size
        for box in boxes:
            strides.update(box.strides())
        start = sum(box.start for box in boxes)
        if value not in self.scratch_at:
            self.scratch_at[value] = -(-self.scratch_bytes // SCRATCH_ALIGN) * SCRATCH_ALIGN
            self.scratch_bytes = self.scratch_at[value] + count * value.dtype.itemsize
        address = self.emit(Op.SCRATCH, value.dtype, (), self.scratch_at[value])
        packed = Packed(address, strides, self.depth, start)
        self.pack(value, None)
        source = value
        unboxed = {loop: stride for loop, stride in strides.items() if loop.axis not in boxed}
        written = Packed(address, unboxed, self.depth)
        zeros: Point = {}
        stilled: list[Loop] = []
        for number, box in enumerate(boxes):
            walk = box.axis(len(self.axes), f"{box.b.name}.all", is_last=number == len(boxes) - 1)
            self.axes.append(walk)
            self.axis_of[walk.range] = walk
            self.extent[walk] = min(walk.tile, walk.size)
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

        form = self.affine.of((source if source.op is Op.LOAD else source.src[0]).src[1])
        strided = {
            axis
            for axis in self.axes_of(self.masks[source])
            if axis.loops[-1].kind == "vector" and form.coefficient(axis.range) != 1
        }

        def copy() -> None:
            for point in self.points(self.masks[source], strided):
                at = {**point, **zeros}
                self.store_packed(written, self.value(source, at), at)

        outside, self.open_reductions = self.open_reductions, []
        self._nested(loops, 0, copy, staging=False)
        self.open_reductions = outside
        for loop in stilled:
            del self.counters[loop]
        self.moved()
        self.pack(value, packed)

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

    def __init__(self, writer: _Writer, a: Axis | None, b: Axis, factor: int):
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

    def axis(self, bit: int, name: str, is_last: bool) -> Axis:
        """A range that walks the box; the last one, contiguous in scratch, in vectors."""
        node = Node(Op.RANGE, dtypes.index, (index(self.size),), ("box", bit))
        axis = Axis(node, name, self.size, False, False, 1 << bit)
        lanes = 16
        while lanes > self.size:
            lanes //= 2
        if is_last and lanes > 1:
            if lanes < self.size:
                axis.loops.append(Loop(name, axis, -(-self.size // lanes), lanes))
            axis.loops.append(Loop(f"{name}.1", axis, lanes, 1, "vector"))
        else:
            axis.loops.append(Loop(name, axis, self.size, 1))
        return axis


def _conditional(node: Node) -> tuple[Node, Node | None]:
    """sum(where(c, x, 0)) adds x where c holds: one masked multiply-add, where select and add would be two.

    A sum that starts from 0 is never -0.0, so not adding and adding 0.0 are the same.
    """
    value = node.src[0]
    if node.arg is Op.ADD and value.op is Op.WHERE:
        condition, x, otherwise = value.src
        if otherwise.op is Op.CONST and otherwise.arg == 0 and math.copysign(1.0, otherwise.arg) > 0:
            return x, condition
    return value, None


def _reductions_by_ranges(reduces: list[Node]) -> list[list[Node]]:
    """Reductions that can share one pass: same ranges, none reading another; read ones come first."""
    level: dict[Node, int] = {}
    for node in toposort(reduces):
        below = max((level[s] for s in node.src), default=0)
        level[node] = below + 1 if node.op is Op.REDUCE else below
    groups: dict[Any, list[Node]] = {}
    for node in reduces:
        groups.setdefault((level[node], node.src[1:]), []).append(node)
    return [groups[key] for key in sorted(groups, key=lambda key: key[0])]
