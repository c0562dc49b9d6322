"""Loop nest: the loops over a kernel's ranges, and the transforms that make a slow nest a fast one.

In       a kernel-stage graph SINK(STORE(PARAM, index, value[, valid]), ...)
Out      the same graph with a decision for every range: which loops it becomes, in what order, which run as groups,
         which are written out, which are vector lanes, which operands are packed into scratch
Next     heuristic.py (who chooses), ../linear/linearize.py (who writes the loops down), affine.py (indices as sums)

A range of n values is a mixed-radix number. It starts as one loop; `split r0 8` makes it two, `r0` (outer, ceil(n/8)
steps of 8) and `r0.1` (inner, 8 steps of 1). Only the outermost loop of a range may be cut short by n: the last,
partial step is written out a second time with its own sizes, so full steps carry no test. A range that is shared among
threads divides: `pad` makes it longer, and what lies beyond its end is neither read nor stored.

A schedule is text, one transform per item, separated by `;`, replayed by `apply`:

    merge r0 r1; split r0 64; split r0.1 16; vectorize r0.2; unroll r0.1; parallel r0 8; order r2 r0; stage 1 r0
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

from hcq.compiler.loops.affine import Affine
from hcq.compiler.loops.loop import Axis, Loop
from hcq.compiler.loops.matrix_units import HELD, UNITS, MatrixUnit, Parts
from hcq.compiler.loops.padding import padded
from hcq.compiler.loops.windows import Windows
from hcq.ir.node import Node, index, range_number, substitute, toposort
from hcq.ir.op import Op

MAX_COPIES = 512  # written-out copies of a loop body; more than this is a mistake, not a speed-up
MAX_TILES = 8  # of an operand in shared memory
MAX_THREADS = 1024  # of a group: what every GPU takes


class ScheduleError(ValueError):
    """A transform that does not apply to this nest; says which one and why."""


@dataclass(frozen=True)
class Stage:
    """Copy what `load` reads inside loop `at` into scratch, in the order in which the inner loops read it."""

    load: Node
    value: Node  # what is kept: the load, or the CAST that is all that becomes of it, done once while copying
    at: Loop | None  # None: once per group, or per kernel
    is_box: bool  # sliding windows are kept once, not window by window


@dataclass(frozen=True)
class MatrixUse:
    """A reduction that a matrix unit does: its ranges, and the operands that m and k, and k and n, tell apart."""

    unit: MatrixUnit
    reduce: Node
    m: Axis
    n: Axis
    k: Axis
    a: Node
    b: Node


class LoopNest(Windows):
    """A kernel and its schedule. Transforms change the schedule and return the nest, so that they chain."""

    def __init__(self, sink: Node):
        self.sink = sink
        self.choices: list[str] = []
        self.stages: list[Stage] = []
        self.digits: list[int] = []  # sizes of the digits of a thread's number, the fastest first
        self.unit: MatrixUse | None = None
        self.pipelined: dict[Loop, int] = {}  # how many tiles of each operand there are
        self.whole: set[str] = set()  # ranges that were fused, and so have no loop that is counted
        self._begin()

    def _begin(self) -> None:
        self.affine = Affine()
        nodes = toposort((self.sink,))
        self.loads = [n for n in nodes if n.op is Op.LOAD]
        self.reduces = [n for n in nodes if n.op is Op.REDUCE]
        self.stores = list(self.sink.src)
        reduced = {r for n in self.reduces for r in n.src[1:]}
        found = sorted((n for n in nodes if n.op is Op.RANGE), key=range_number)
        self.axes: list[Axis] = []
        for bit, node in enumerate(found):
            ordered = isinstance(node.arg, tuple) and "ordered" in node.arg
            name = f"r{range_number(node)}"
            axis = Axis(node, name, int(node.src[0].arg), node in reduced, ordered, 1 << bit)
            axis.loops.append(Loop(name, axis, axis.size, 1))
            self.axes.append(axis)
        self.axis_of = {axis.range: axis for axis in self.axes}
        # outermost first: what is stored, then what is reduced
        self.order = [a.loops[0] for a in self.axes if not a.is_reduce]
        self.order += [a.loops[0] for a in self.axes if a.is_reduce]
        self.masks = self._find_masks(nodes)

    def _find_masks(self, nodes: Sequence[Node]) -> dict[Node, int]:
        """The ranges a node depends on, as bits; ranges that a REDUCE consumes are gone above it."""
        masks: dict[Node, int] = {}
        for node in nodes:
            if node.op is Op.RANGE:
                masks[node] = self.axis_of[node].bit
                continue
            mask = 0
            for source in node.src:
                mask |= masks[source]
            if node.op is Op.REDUCE:
                for consumed in node.src[1:]:
                    mask &= ~self.axis_of[consumed].bit
            masks[node] = mask
        return masks

    @property
    def choice(self) -> str:
        """The schedule as text; `LoopNest(sink).apply(text)` repeats it."""
        return "; ".join(self.choices)

    def axis(self, axis: Axis) -> Axis:
        """The axis of that name now: a merge makes axes anew."""
        return next(a for a in self.axes if a.name == axis.name)

    def loop(self, name: str) -> Loop:
        """The loop of that name. Raises ScheduleError that lists those there are."""
        for axis in self.axes:
            for loop in axis.loops:
                if loop.name == name:
                    return loop
        known = ", ".join(loop.name for axis in self.axes for loop in axis.loops)
        raise ScheduleError(f"no loop named {name!r}; this nest has {known or 'none'}")

    # -- transforms -------------------------------------------------------------------------------------------------

    def merge(self, outer: str, inner: str) -> LoopNest:
        """Two untouched neighbouring ranges become one of n_outer * n_inner values, named as the inner one.

        They must be walked as one by every index: wherever the inner range counts c, the outer one counts c * n_inner.
        Raises ScheduleError where some index or condition tells the two apart.
        """
        a, b = self.loop(outer).axis, self.loop(inner).axis
        if any(not choice.startswith("merge") for choice in self.choices):
            raise ScheduleError(f"merge {outer} {inner}: merges come before all other transforms")
        if not self.can_merge(a, b):
            raise ScheduleError(f"merge {outer} {inner}: an index or a condition tells the two ranges apart")
        merged = Node(Op.RANGE, b.range.dtype, (index(a.size * b.size),), b.range.arg)
        mapping = {a.range: index(0), b.range: merged}
        reduces = {}
        for reduce in self.reduces:  # a REDUCE names its ranges: drop the outer one there
            if a.range in reduce.src:
                kept = tuple(r for r in reduce.src if r is not a.range)
                reduces[reduce] = reduce.replace(src=kept)
        if reduces:
            mapping[a.range] = a.range
            self.sink = substitute((self.sink,), reduces)[0]
            mapping[a.range] = index(0)
        self.sink = substitute((self.sink,), mapping)[0]
        self._begin()
        self.choices.append(f"merge {outer} {inner}")
        return self

    def can_merge(self, a: Axis, b: Axis) -> bool:
        """True when `a` then `b` is one walk for every index, condition and reduction."""
        if a is b or a.is_reduce != b.is_reduce or a.is_ordered or b.is_ordered or 0 in (a.size, b.size):
            return False
        for reduce in self.reduces:
            if (a.range in reduce.src) != (b.range in reduce.src):
                return False
        for node, mask in self.masks.items():
            if not mask & (a.bit | b.bit) or node.op is Op.RANGE:
                continue
            for source in node.src[1:] if node.op is Op.REDUCE else node.src:
                if node.op is Op.REDUCE or source.op in (Op.PARAM,):
                    continue
                if not self.affine.is_index(source) or self.affine.is_inner(node, source):
                    continue
                form = self.affine.of(source)
                if form.coefficient(a.range) != form.coefficient(b.range) * b.size:
                    return False
        return True

    def fuse(self, name: str, into: str) -> LoopNest:
        """Walk two untouched ranges of one size as one, `into`: what both read is read once, and kept.

        So a row that is reduced, and then stored or reduced again, stays on the chip. For that all steps of the range
        are made at once: they are threads, lanes and written out; linearize refuses a loop. Raises ScheduleError for
        ranges of two sizes, for ordered ones, for two whose places some value tells apart, and after other transforms
        than merges.
        """
        a, b, text = self.loop(name).axis, self.loop(into).axis, f"fuse {name} {into}"
        if any(not choice.startswith(("merge", "fuse")) for choice in self.choices):
            raise ScheduleError(f"{text}: only merges come before")
        if a is b or a.size != b.size or a.is_ordered or b.is_ordered:
            raise ScheduleError(f"{text}: the ranges are not two of one size, or are ordered")
        if self.needs_both(a, b) or any({a.range, b.range} <= set(node.src[1:]) for node in self.reduces):
            raise ScheduleError(f"{text}: some value needs both")
        self.sink = substitute((self.sink,), {a.range: b.range})[0]
        self.whole.add(b.name)
        self._begin()
        self.choices.append(text)
        return self

    def split(self, name: str, factor: int) -> LoopNest:
        """`name` (n steps) becomes `name` (ceil(n / factor) steps) around a new loop of `factor` steps.

        Raises ScheduleError for a loop that is bound, and for a factor that does not divide it where it is not the
        outermost loop of its range.
        """
        loop = self.loop(name)
        axis = loop.axis
        if axis.threads and loop.size % factor:
            raise ScheduleError(
                f"split {name} {factor}: {axis.name} is shared among threads and has no partial step; "
                f"{loop.size} steps are not a multiple of {factor}"
            )
        if factor < 1:
            raise ScheduleError(f"split {name} {factor}: the factor must be at least 1")
        if loop.kind != "serial":
            raise ScheduleError(
                f"split {name} {factor}: the loop is already bound ({loop.kind}); split it before"
            )
        if loop.size % factor and axis.loops[0] is not loop:
            raise ScheduleError(
                f"split {name} {factor}: {loop.size} steps are not a multiple of {factor}, and only the outermost "
                f"loop of a range may end in a partial step; split {axis.name} in another order"
            )
        axis.splits += 1
        inner = Loop(f"{axis.name}.{axis.splits}", axis, factor, loop.stride)
        loop.size = -(-loop.size // factor)
        loop.stride *= factor
        axis.loops.insert(axis.loops.index(loop) + 1, inner)
        self.order.insert(self.order.index(loop) + 1, inner)
        self.choices.append(f"split {name} {factor}")
        return self

    def unroll(self, name: str) -> LoopNest:
        """Write every step of the loop out.

        Raises ScheduleError where a loop inside it, in its range, is not written out, or copies exceed MAX_COPIES.
        """
        return self._write_out(name, "unroll")

    def vectorize(self, name: str) -> LoopNest:
        """The steps of the loop become the lanes of vectors: the innermost loop of its range.

        Raises ScheduleError for lanes that are no power of two, and for two ranges in lanes where some value depends
        on both (a row's sum and what is stored along the row may be).
        """
        loop = self.loop(name)
        if loop.axis.loops[-1] is not loop:
            raise ScheduleError(f"vectorize {name}: lanes must be the innermost loop of {loop.axis.name}")
        for axis in self.axes:
            for other in axis.loops:
                if other.kind == "vector" and self.needs_both(axis, loop.axis):
                    raise ScheduleError(
                        f"vectorize {name}: {other.name} is in lanes already, and some value needs both"
                    )
        return self._write_out(name, "vector")

    def needs_both(self, a: Axis, b: Axis) -> bool:
        """Whether some value depends on both axes: then the two cannot be the same lanes, or the same threads."""
        both = a.bit | b.bit
        return any(mask & both == both for mask in self.masks.values())

    def _write_out(self, name: str, kind: str) -> LoopNest:
        verb = "vectorize" if kind == "vector" else kind
        loop = self.loop(name)
        if kind == "vector" and loop.size & (loop.size - 1):
            raise ScheduleError(f"vectorize {name}: {loop.size} lanes are not a power of two; split it first")
        if loop.kind != "serial":
            raise ScheduleError(f"{verb} {name}: the loop is already bound ({loop.kind})")
        if loop.axis.is_ordered:
            raise ScheduleError(
                f"{verb} {name}: {loop.axis.name} is ordered, its steps must run one after another"
            )
        inside = loop.axis.loops[loop.axis.loops.index(loop) + 1 :]
        if any(other.kind in ("serial", "group") for other in inside):
            raise ScheduleError(f"{verb} {name}: write out the loops inside it first")
        copies = loop.size
        for axis in self.axes:
            for other in axis.loops:
                if other.kind == "unroll":
                    copies *= other.size
        if copies > MAX_COPIES:
            raise ScheduleError(
                f"{verb} {name}: {copies} copies of the body exceed {MAX_COPIES}; split off a smaller loop first"
            )
        loop.kind = kind
        self.order.remove(loop)
        self.choices.append(f"{verb} {name}")
        return self

    def parallel(self, name: str) -> LoopNest:
        """Each step of the loop is one group, and groups run on any thread in any order.

        Raises ScheduleError for a reduction, an ordered range, and a loop that is not the outermost of its range.
        """
        loop = self.loop(name)
        if loop.axis.is_reduce or loop.axis.is_ordered:
            what = "a reduction" if loop.axis.is_reduce else "ordered"
            raise ScheduleError(
                f"parallel {name}: {loop.axis.name} is {what}, its steps depend on each other"
            )
        if loop.kind != "serial":
            raise ScheduleError(f"parallel {name}: the loop is already bound ({loop.kind})")
        if loop is not loop.axis.loops[0]:
            raise ScheduleError(f"parallel {name}: only the outermost loop of {loop.axis.name} can be groups")
        loop.kind = "group"
        self.order.remove(loop)
        self.order.insert(len(self.groups), loop)
        self.choices.append(f"parallel {name}")
        return self

    def thread(self, name: str, like: str = "") -> LoopNest:
        """Each step of the loop is a thread of the group; the threads of a group run at the same time.

        like   a loop in threads already, of as many steps: the same threads count both, which no value may need at once

        What differs by no thread is computed by all of them, and stored by one; a reduction's threads put their parts
        together. Raises ScheduleError for steps that are no power of two, for an ordered range, for a range that is cut
        short (`pad` it first), for a loop around one that is counted, and for more than MAX_THREADS threads.
        """
        loop, text = self.loop(name), f"thread {name} {like}".rstrip()
        axis = loop.axis
        if loop.kind != "serial":
            raise ScheduleError(f"{text}: the loop is already bound ({loop.kind})")
        if axis.is_ordered:
            raise ScheduleError(f"{text}: {axis.name} is ordered, its steps must run one after another")
        if loop.size & (loop.size - 1):
            raise ScheduleError(f"{text}: {loop.size} threads are not a power of two; split it first")
        if axis.size % axis.loops[0].stride:
            raise ScheduleError(
                f"{text}: the last step of {axis.loops[0].name} is cut short at {axis.size}; "
                f"pad {axis.name} to a multiple of {axis.loops[0].stride} first"
            )
        if any(other.kind in ("serial", "group") for other in axis.loops[axis.loops.index(loop) + 1 :]):
            raise ScheduleError(f"{text}: a loop inside it is counted; bind that first")
        loop.digit = self._digit(text, loop, like)
        loop.kind = "thread"
        self.order.remove(loop)
        self.choices.append(text)
        return self

    def matrix(self, m: str, n: str, k: str, unit: str) -> LoopNest:
        """Three loops, of two outputs and of a sum of products, become one instruction of a wave.

        Its threads are the first digits of a thread's number. Raises ScheduleError for an unknown unit, loops of other
        sizes, loops that are not the innermost of their ranges, and what is no sum of products of its operands.
        """
        text = f"matrix {m} {n} {k} {unit}"
        found = UNITS.get(unit)
        if found is None:
            raise ScheduleError(f"{text}: no such unit; there are {', '.join(UNITS)}")
        if self.digits:
            raise ScheduleError(f"{text}: the threads of a wave come before other threads")
        loops = [self.loop(name) for name in (m, n, k)]
        for loop, dimension in zip(loops, "mnk", strict=True):
            size = found.size(dimension)
            if loop.kind != "serial" or loop is not loop.axis.loops[-1] or loop.size != size:
                raise ScheduleError(f"{text}: {loop.name} is not an innermost, unbound loop of {size} steps")
            if loop.axis.size % loop.axis.loops[0].stride:
                raise ScheduleError(f"{text}: {loop.axis.name} is cut short; pad it first")
        axes = [loop.axis for loop in loops]
        self.unit = self._products(text, found, *axes)
        self.digits += found.digits
        for loop, parts in zip(loops, (found.d_m, found.d_n, found.k), strict=True):
            self._take_apart(loop, parts, may_be_vector=loop is not loops[0])
        self.choices.append(text)
        return self

    def _products(self, text: str, unit: MatrixUnit, m: Axis, n: Axis, k: Axis) -> MatrixUse:
        """The one sum of products along k, with its factors in the unit's own format."""
        sums = [node for node in self.reduces if k.range in node.src[1:]]
        if len(sums) != 1 or sums[0].arg is not Op.ADD or sums[0].src[0].op is not Op.MUL:
            raise ScheduleError(f"{text}: {k.name} is not that of one sum of products")
        factors = {}
        for factor in sums[0].src[0].src:
            if factor.op is Op.CAST:
                factor = factor.src[0]
            if factor.dtype is not unit.operand:
                raise ScheduleError(
                    f"{text}: a factor is {factor.dtype.name}, the unit takes {unit.operand.name}"
                )
            factors[self.masks[factor] & (m.bit | n.bit)] = factor
        if set(factors) != {m.bit, n.bit}:
            raise ScheduleError(f"{text}: the factors are not one of {m.name} and one of {n.name}")
        return MatrixUse(unit, sums[0], m, n, k, factors[m.bit], factors[n.bit])

    def _take_apart(self, loop: Loop, parts: Parts, may_be_vector: bool) -> None:
        """A loop becomes threads and registers of a matrix unit."""
        axis, stride = loop.axis, loop.stride
        at = axis.loops.index(loop)
        axis.loops.remove(loop)
        self.order.remove(loop)
        for size, digit in reversed(parts):
            axis.splits += 1
            kind = "thread" if digit != HELD else "vector" if may_be_vector and stride == 1 else "unroll"
            axis.loops.insert(at, Loop(f"{axis.name}.{axis.splits}", axis, size, stride, kind, digit))
            stride *= size

    def _digit(self, text: str, loop: Loop, like: str) -> int:
        """The digit of a thread's number that counts a loop: a new one, or that of another loop."""
        if not like:
            if self.threads * loop.size > MAX_THREADS:
                raise ScheduleError(f"{text}: {self.threads * loop.size} threads exceed {MAX_THREADS}")
            self.digits.append(loop.size)
            return len(self.digits) - 1
        other = self.loop(like)
        if other.kind != "thread" or other.size != loop.size:
            raise ScheduleError(f"{text}: {like} is not in {loop.size} threads")
        for axis in self.axes:
            if any(mine.digit == other.digit for mine in axis.threads) and (
                axis is loop.axis or self.needs_both(axis, loop.axis)
            ):
                raise ScheduleError(f"{text}: some value needs {axis.name} and {loop.axis.name}")
        return other.digit

    def pad(self, name: str, multiple: int) -> LoopNest:
        """Make an untouched range longer, to a multiple: beyond its end nothing is read, added or stored.

        Raises ScheduleError for an ordered range, and after transforms other than merges and pads.
        """
        text, axis = f"pad {name} {multiple}", self.loop(name).axis
        if any(not choice.startswith(("merge", "fuse", "pad")) for choice in self.choices):
            raise ScheduleError(f"{text}: pads come before all other transforms but merges and fuses")
        if multiple < 1 or axis.is_ordered:
            raise ScheduleError(
                f"{text}: {'the multiple must be at least 1' if multiple < 1 else 'it is ordered'}"
            )
        size = -(-axis.size // multiple) * multiple
        if size != axis.size:
            self.sink = padded(self.sink, axis.range, size)
            self._begin()
        self.choices.append(text)
        return self

    def reorder(self, *names: str) -> LoopNest:
        """The named counted loops take each other's places, in this order, outermost first.

        Raises ScheduleError where an output loop would run inside a reduction, or loops of one range change places.
        """
        loops = [self.loop(n) for n in names]
        if any(loop not in self.order or loop.kind != "serial" for loop in loops) or len(set(names)) < len(
            names
        ):
            raise ScheduleError(f"order {' '.join(names)}: name each serial loop once")
        places = sorted(self.order.index(loop) for loop in loops)
        order = list(self.order)
        for place, loop in zip(places, loops, strict=True):
            order[place] = loop
        seen_reduce = False
        for loop in order:
            if seen_reduce and not loop.axis.is_reduce:
                raise ScheduleError(
                    f"order {' '.join(names)}: output loop {loop.name} would run inside a reduction; unroll it instead"
                )
            seen_reduce = seen_reduce or loop.axis.is_reduce
        for axis in self.axes:
            if [loop for loop in order if loop.axis is axis] != axis.counted:
                raise ScheduleError(
                    f"order {' '.join(names)}: the loops of {axis.name} must stay outer to inner"
                )
        self.order = order
        self.choices.append(f"order {' '.join(names)}")
        return self

    def stage(self, load: int, at: str = "-", is_box: bool = False) -> LoopNest:
        """Pack what load number `load` (in graph order) reads within one step of loop `at` into scratch.

        The copy runs when a step of `at` begins ("-": when a group begins); reading it afterwards is dense and needs no
        condition: what was invalid is zero. Raises ScheduleError where `never_staged` says why, and for a loop that is
        written out or that does not hold what differs by group.
        """
        verb = "box" if is_box else "stage"
        if not 0 <= load < len(self.loads):
            raise ScheduleError(
                f"{verb} {load} {at}: the kernel has {len(self.loads)} loads, numbered from 0"
            )
        node = self.loads[load]
        if refusal := self.never_staged(node):
            raise ScheduleError(f"{verb} {load} {at}: {refusal}")
        loop = None if at == "-" else self.loop(at)
        if loop is not None and loop not in self.order:
            raise ScheduleError(f"{verb} {load} {at}: {at} is written out; stage at a counted loop")
        if at == "-" and any(self.masks[node] & group.axis.bit for group in self.groups):
            raise ScheduleError(
                f"{verb} {load} {at}: it differs by group; name the group's loop instead of -"
            )
        if self.digits and loop is not None and loop.axis.is_reduce and not self._is_read_in(node, loop.axis):
            raise ScheduleError(f"{verb} {load} {at}: it is not read in there")
        if is_box and not self.walks(node):
            raise ScheduleError(f"{verb} {load} {at}: no sliding window, no contiguous reduction; use stage")
        users = [user for user in self.masks if node in user.src]
        is_cast = (
            self.unit is None
            and len(users) == 1
            and users[0].op is Op.CAST
            and not self.affine.is_index(users[0])
        )
        self.stages.append(Stage(node, users[0] if is_cast else node, loop, is_box))
        self.choices.append(f"{verb} {load} {at}")
        return self

    def _is_read_in(self, load: Node, axis: Axis) -> bool:
        """Whether a reduction over the axis reads a load."""
        return any(axis.range in node.src[1:] and load in toposort((node.src[0],)) for node in self.reduces)

    def pipeline(self, name: str, tiles: int = 2) -> LoopNest:
        """What is staged at a reduction's loop is copied for its next step while one computes.

        tiles   of each operand: with 2 the next step's is in registers meanwhile; 3 and more need copies that the GPU
                does by itself, and are that many steps ahead but one

        Raises ScheduleError for a loop of an output, one at which nothing is staged, and a kernel without threads.
        """
        loop = self.loop(name)
        if not 2 <= tiles <= MAX_TILES:
            raise ScheduleError(f"pipeline {name} {tiles}: 2 to {MAX_TILES} tiles, not {tiles}")
        if not self.digits or not loop.axis.is_reduce or loop not in self.order:
            raise ScheduleError(
                f"pipeline {name}: it is no counted loop of a reduction in a kernel with threads"
            )
        if not any(stage.at is loop for stage in self.stages):
            raise ScheduleError(f"pipeline {name}: nothing is staged there")
        self.pipelined[loop] = tiles
        self.choices.append(f"pipeline {name}{f' {tiles}' if tiles > 2 else ''}")
        return self

    def never_staged(self, load: Node) -> str:
        """Why a load cannot be packed, wherever; "" when it can."""
        if load.src[0] in {store.src[0] for store in self.stores}:
            return "the kernel writes what it would copy"
        if any(self.affine.is_gather(atom) for atom in self.affine.of(load.src[1]).atoms()):
            return "its address is itself loaded"
        return ""

    def box(self, load: int, at: str = "-") -> LoopNest:
        """`stage` in the order of memory: copied by vectors, and what sliding windows share is kept once."""
        return self.stage(load, at, is_box=True)

    def apply(self, text: str) -> LoopNest:
        """Replay a schedule; the inverse of `choice`. Raises ScheduleError at the first item that does not apply.

        >>> from hcq.compiler.loops.loop_nest import LoopNest
        >>> from hcq.ir.node import Node, Param, const, index
        >>> from hcq.ir.op import Op
        >>> place = Node(Op.RANGE, dtypes.index, (index(1000),), 0)
        >>> out = Node(Op.PARAM, dtypes.float32, (), Param(0, (1000,), writable=True))
        >>> store = Node(Op.STORE, dtypes.float32, (out, place, const(1.0, dtypes.float32)))
        >>> nest = LoopNest(Node(Op.SINK, dtypes.float32, (store,)))
        >>> print(nest.apply("split r0 16; vectorize r0.1; parallel r0"))
        schedule: split r0 16; vectorize r0.1; parallel r0
        group r0 in 63 (x16)
          vector r0.1 of 16 (x1)
        """
        for item in filter(None, (part.strip() for part in text.split(";"))):
            verb, *words = item.split()
            try:
                if verb == "merge":
                    self.merge(*words)
                elif verb == "fuse":
                    self.fuse(*words)
                elif verb == "split":
                    self.split(words[0], int(words[1]))
                elif verb == "unroll":
                    self.unroll(*words)
                elif verb == "vectorize":
                    self.vectorize(*words)
                elif verb == "parallel":
                    self.parallel(*words)
                elif verb == "thread":
                    self.thread(*words)
                elif verb == "matrix":
                    self.matrix(*words)
                elif verb == "pipeline":
                    self.pipeline(words[0], *map(int, words[1:]))
                elif verb == "pad":
                    self.pad(words[0], int(words[1]))
                elif verb == "order":
                    self.reorder(*words)
                elif verb in ("stage", "box"):
                    self.stage(int(words[0]), words[1], is_box=verb == "box")
                else:
                    raise ScheduleError(
                        f"{item!r}: no transform {verb!r}; there are merge, fuse, pad, split, unroll, vectorize, "
                        "parallel, thread, matrix, order, stage, "
                        "box, pipeline"
                    )
            except (TypeError, IndexError) as problem:
                raise ScheduleError(f"{item!r}: wrong number of words") from problem
        return self

    # -- questions --------------------------------------------------------------------------------------------------

    @property
    def groups(self) -> list[Loop]:
        """The loops whose steps are groups, outermost first."""
        return [loop for loop in self.order if loop.kind == "group"]

    @property
    def group_count(self) -> int:
        """How many groups a launch has; 1 where no loop is bound to them."""
        count = 1
        for loop in self.groups:
            count *= loop.size
        return count

    @property
    def threads(self) -> int:
        """How many threads a group has."""
        return prod(self.digits)

    def __str__(self) -> str:
        lines = [f"schedule: {self.choice or '(plain loops)'}"]
        for depth, loop in enumerate(self.order):
            what = "group" if loop.kind == "group" else "reduce" if loop.axis.is_reduce else "for"
            lines.append(f"{'  ' * depth}{what} {loop.name} in {loop.size} (x{loop.stride})")
        for axis in self.axes:
            for loop in axis.loops:
                if loop not in self.order:
                    lines.append(
                        f"{'  ' * len(self.order)}{loop.kind} {loop.name} of {loop.size} (x{loop.stride})"
                    )
        return "\n".join(lines)
