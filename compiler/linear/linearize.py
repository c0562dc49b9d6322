"""Linearize: a scheduled loop nest becomes a linear program.

In       a LoopNest
Out      a Program: every value once, at the outermost place where all it depends on is known
Next     lower_expr.py (how a node becomes instructions), staging.py (operands packed into scratch), program.py (the
         instructions), render/llvm.py (their spelling)

Counted loops are opened in order, outputs outside reductions. A node is evaluated at *points*: combinations of the
steps of written-out loops. The result is placed in the scope of the innermost loop it depends on and remembered there,
so invariant code is hoisted and copies share work without a pass of their own. Where a range does not divide, the full
steps run without tests and the partial step is written a second time, with its own extent.

A reduction is emitted as soon as the output loops that it needs are open; its accumulators are one per output point
(and one per written-out step of a vectorised reduction, folded at the end). A scan (scan.py) is emitted where the
stores are, its accumulators around the loops of its range.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from hcq.compiler.linear.collecting import Collecting
from hcq.compiler.linear.nested import by_ranges
from hcq.compiler.linear.places import Place
from hcq.compiler.linear.program import NOT_NEGATIVE, Instruction, Program
from hcq.compiler.linear.scan import scanned_from
from hcq.compiler.linear.sharing import MOST_SHARED
from hcq.compiler.linear.unused import drop_unused
from hcq.compiler.loops.loop import Axis, Loop
from hcq.compiler.loops.loop_nest import LoopNest
from hcq.compiler.loops.nest import ScheduleError
from hcq.ir.dtype import dtypes
from hcq.ir.meaning import identity
from hcq.ir.node import Node, toposort
from hcq.ir.op import NEEDED, Op


def linearize(nest: LoopNest, name: str, most_shared: int = MOST_SHARED, wave_copy_bytes: int = 0) -> Program:
    """The program of a nest. Raises ScheduleError where the schedule cannot be written down.

    most_shared      bytes of the memory that the threads of a group share, on GPUs
    wave_copy_bytes  where waves copy to it by themselves: the most of a lane; 0 where each thread does
    """
    writer = _Writer(nest, most_shared)
    writer.wave_copy_bytes = wave_copy_bytes
    return writer.write(name)


class _Writer(Collecting):
    def __init__(self, nest: LoopNest, most_shared: int):
        super().__init__(nest, most_shared)
        reduced = sum(axis.bit for axis in nest.axes if axis.is_reduce)
        self.pending = by_ranges([node for node in nest.reduces if not nest.masks[node] & reduced])
        self.overwrites = _reads_what_was_stored(nest.stores)

    def write(self, name: str) -> Program:
        for axis in self.nest.axes:
            if axis.name in self.nest.whole and axis.counted:
                raise ScheduleError(
                    f"{axis.name} was fused, and {axis.counted[0].name} counts it: bind its loops to threads "
                    "and lanes, or write them out"
                )
        params = {n.arg.index: n for n in toposort((self.nest.sink,)) if n.op is Op.PARAM}
        for node in params.values():
            self.addresses[node] = self.emit(Op.PARAM, node.dtype, (), node.arg)
        self._threads()
        outputs = [loop for loop in self.nest.order if not loop.axis.is_reduce]
        if self.nest.groups:
            self._groups(self.nest.groups, lambda: self._outputs(outputs, 0))
        else:
            self._outputs(outputs, 0)
        listed = [(params[i].arg, params[i].dtype) for i in sorted(params)]
        program = self.scopes[0].instructions
        digits, groups = tuple(self.nest.digits), self.nest.group_count
        made = Program(name, listed, program, self.scratch_bytes, groups, digits, self.shared_bytes)
        made.shared_align, made.tensor_maps = self.shared_align, self.tensor_maps
        made.producers = self.producers
        if self.nest.pipelined:
            drop_unused(made)
        return made

    # -- loops ------------------------------------------------------------------------------------------------------

    def _threads(self) -> None:
        """The digits of the thread's number, which count the loops that are threads."""
        nest = self.nest
        if not nest.digits:
            return
        number = self.thread = self.emit(Op.SPECIAL, dtypes.index, (), "thread")
        below = 1
        for size in nest.digits:
            digit = number
            if below > 1:
                digit = self.emit(Op.FLOORDIV, dtypes.index, (digit, self.number(below)), NOT_NEGATIVE)
            below *= size
            if below < nest.threads:
                digit = self.emit(Op.MOD, dtypes.index, (digit, self.number(size)), NOT_NEGATIVE)
            self.digits.append(digit)
        for axis in nest.axes:
            for loop in axis.threads:
                self.counters[loop] = self.digits[loop.digit]
        self.moved()

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
        if at == scanned_from(loops):
            self.begin_scans()
        if at < len(loops):
            self._open(loops[at], lambda: self._outputs(loops, at + 1))
        elif self.nest.collects and self.nest.chained:
            self.store_made(self.nest.chained[0])
        elif self.nest.collects and self.nest.unit is not None:
            self.store_collected(self.nest.unit)
        elif (vector := self.walked_axis()) is not None:
            self.store_by_lane(vector)
        else:
            self.step_scans()
            if self.overwrites:
                self._values_first()
            for store in self.nest.stores:
                if self.is_scattered(store):
                    self.store_turned(store)
                    continue
                for point in self.points(self.masks[store]):
                    self.store(store, point)
        self.pending = waiting  # the next copy of this body computes them again

    def _values_first(self) -> None:
        """Compute everything that is stored here: what one store overwrites, another one reads."""
        for store in self.nest.stores:
            for point in self.points(self.masks[store]):
                for source in store.src[2:3] if store.arg == NEEDED else store.src[2:]:
                    self.value(source, point)

    def _open(self, loop: Loop, body: Callable[[], None]) -> None:
        """Run `body` for every step of a counted loop: the full steps, then a partial one with its own extent."""
        axis = loop.axis
        until = self.ends_of(loop)
        whole, left = divmod(axis.size, loop.stride)
        if axis.counted[-1] is not loop:  # the loops inside see to the partial step
            if loop.kind == "group":
                body()
            else:
                self._run(loop, self.number(0), until(whole + bool(left)), body)
            return
        full = self.extent[axis] = min(axis.tile, axis.size)
        if loop.kind == "group":  # already counting: narrow it to this group, if this group is whole
            limit = self.end_of_stores(loop)
            if not left and limit is None:
                body()
                return
            here = self.counters[loop]
            after = self.arithmetic(Op.ADD, here, self.number(1))
            if limit is not None:
                after = self.arithmetic(Op.MIN, after, limit)
            if not left:
                self._run(loop, here, after, body)
                return
            self._run(loop, here, self.arithmetic(Op.MIN, after, self.number(whole)), body)
            self.extent[axis] = left
            self._run(loop, self.arithmetic(Op.MAX, here, self.number(whole)), after, body)
        else:
            low, end = self.number(0), until(whole)
            limit = self.end_of_stores(loop)
            if loop in self.limits and loop is axis.counted[0]:
                low, limit = self.limits[loop]
                end = self.arithmetic(Op.MIN, limit, end) if left else limit
            elif limit is not None:
                end = self.arithmetic(Op.MIN, end, limit)
            self._run(loop, low, end, body)
            if left:
                self.extent[axis] = left
                first, after = self.arithmetic(Op.MAX, end, self.number(0)), until(whole + 1)
                if limit is not None:
                    after = self.arithmetic(Op.MIN, after, limit)
                self._run(loop, first, after, body)
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
            if loop.axis.is_scanned:
                self.open_scans.append(counter.arg)
            body()
            if loop.axis.is_reduce:
                self.open_reductions.pop()
            if loop.axis.is_scanned:
                self.open_scans.pop()
            self.end(counter)
        if outer is None:
            del self.counters[loop]
        else:
            self.counters[loop] = outer
        self.moved()

    # -- reductions -------------------------------------------------------------------------------------------------

    def _reduce_ready(self, unopened_loops: list[Loop]) -> None:
        """Emit every reduction whose output loops are all open and that reads none that waits."""
        unopened = 0
        for loop in unopened_loops:
            unopened |= loop.axis.bit
        waiting: list[list[Node]] = []
        for group in self.pending:
            waits = any(self.masks[node] & unopened for node in group)
            waits = waits or (bool(unopened_loops) and any(node in self.volatile for node in group))
            if waits or (waiting and _reads(group, waiting)):
                waiting.append(group)
            else:
                self.reduction(group)
        self.pending = waiting

    def reduction(self, group: list[Node]) -> None:
        """Reductions over the same ranges in one pass: accumulators, the loops, the fold."""
        nest = self.nest
        axes = [nest.axis_of[r] for r in group[0].src[1:]]
        consumed = 0
        for axis in axes:
            consumed |= axis.bit
        if inner := self.inner_groups(group):
            self.nested_reduction(group, inner)
            return
        uses = {use.reduce: use for use in (nest.unit, *nest.beside) if use is not None}
        if any(node in uses for node in group):
            if not all(node in uses for node in group):
                raise ScheduleError("matrix: another reduction runs along the same ranges")
            for node in group:
                self.multiply(uses[node], node, lambda body: self.around(axes, body))
            return
        use = nest.dots
        if use is not None and use.reduce in group and len(group) > 1:
            raise ScheduleError("dot: another reduction runs along the same ranges")
        if use is not None and nest.digits:
            raise ScheduleError("dot: groups have no threads")
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
                        mine = parts[node, tuple(outer.values())]
                        accumulator = mine.get(part)
                        if accumulator is None:
                            widths = [
                                width for axis, (_, width) in here.items() if axis.loops[-1].kind != "dot"
                            ]
                            lanes = max([1, *widths])
                            start = self.number(identity(node.arg, node.dtype), node.dtype)
                            src = (self.broadcast(start, lanes),)
                            dtype = node.dtype.vec(lanes)
                            accumulator = Instruction(Op.ACCUMULATOR, dtype, src, None, depth)
                            self.scopes[depth].instructions.append(accumulator)
                            mine[part] = accumulator
                        before = now.get(accumulator, accumulator)
                        if use is not None and node is use.reduce:
                            now[accumulator] = self.dotted(use, here, before)
                            continue
                        x = self.broadcast(self.value(summand, here), accumulator.dtype.lanes)
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

        limited = self.counts_of(self.needed_by(group), axes)
        self.limits |= limited
        self.around(axes, body)
        for loop in limited:
            del self.limits[loop]
        digits = tuple(sorted({loop.digit for axis in axes for loop in axis.threads}))
        for (node, place), mine in parts.items():
            value = self.fold(node, list(mine.values()), is_vector)
            if digits:  # each thread has the part of its own steps
                value = self.place(Op.ACROSS, value.dtype, (value,), (node.arg, digits))
            self.results[node, place] = value

    def around(self, axes: list[Axis], body: Callable[[], None]) -> None:
        """Write a body inside the loops of a reduction."""
        outside, self.open_reductions = self.open_reductions, []
        self.nested([loop for loop in self.nest.order if loop.axis in axes], 0, body, staging=True)
        self.open_reductions = outside

    def nested(self, loops: list[Loop], at: int, body: Callable[[], None], staging: bool) -> None:
        if at == len(loops):
            body()
            return

        def inside() -> None:
            if staging:
                self._stage_at(loops[at])
            self.nested(loops, at + 1, body, staging)
            self.share_ahead(loops[at])

        if staging and loops[at] in self.nest.pipelined:
            self.share_first([stage for stage in self.nest.stages if stage.at is loops[at]], loops[at])
        self._open(loops[at], inside)
        if staging and loops[at] in self.nest.pipelined:
            self.share_last(loops[at])

    def fold(self, node: Node, parts: list[Instruction], is_vector: bool) -> Instruction:
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

    # -- staging ----------------------------------------------------------------------------------------------------

    def _stage_at(self, loop: Loop | None) -> None:
        """Pack the operands that are staged at this loop, as a step of it begins."""
        stages = [stage for stage in self.nest.stages if stage.at is loop]
        if not stages:
            return
        outside, self.open_reductions = self.open_reductions, []
        if self.nest.digits:
            self.share(stages, loop)
        else:
            for stage in stages:
                self.copy_in(stage)
        self.open_reductions = outside


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


def _reads(group: list[Node], others: list[list[Node]]) -> bool:
    """Whether a reduction is computed from one of others."""
    found = {node for other in others for node in other}
    return any(node in found for node in toposort([source for node in group for source in node.src]))


def _reads_what_was_stored(stores: Sequence[Node]) -> bool:
    """True when a store's value is computed from memory that a store before it writes."""
    written: set[Node] = set()
    for store in stores:
        if any(node.op is Op.LOAD and node.src[0] in written for node in toposort(store.src[2:])):
            return True
        written.add(store.src[0])
    return False
