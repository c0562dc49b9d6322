"""Lower movement: a kernel said in shapes becomes a kernel said in ranges, loads and flat indices.

In       SINK(STORE(target, value), ...) of the tensor stage; targets are writable PARAMs, maybe viewed
Out      SINK(STORE(PARAM, index, value[, valid]), ...) of the kernel stage, index arithmetic in simplest form
Next     views.py (indices through views), ir/symbolic.py (what makes them minimal), ../loops/loop_nest.py (the ranges)

Every output axis longer than 1 is a RANGE; they are numbered in axis order, the ranges of reductions follow.
Indices are pushed from the outputs down through the movement ops to the loads; a movement op leaves nothing else.

Padding (PAD, UNWINDOW, an out-of-range GATHER) is a condition. It reaches the loads below as their `valid`, unless
their address is inside the buffer anyway, and what is computed from them is replaced by an exact zero. Below the
condition an index is known to be inside its axis: it travels as a placeholder of that range (a RANGE whose argument
is WITHIN and whose second source is the real index), is simplified as such, and gives way to the real index at the
end.

STORE(P, SCATTER_ADD(P, index, x)) adds in place, so SCATTER overwrites: its ranges run over the index, and the one
along the scattered axis has the argument (number, ORDERED). Turns of an ordered range may meet in one element, so they
run one after the other in one thread; turns of the other ranges never meet. `range_number` of ir/node.py and
`is_ordered` read both forms. STORE(P, SCAN_AXIS(x)) becomes the SCAN of x over an ordered range: each turn takes over
what the turn before it had. STORE(P, BUCKET(x, C)) runs in order over each piece of x: a store where the counter says,
and one of the counter's next place; or, where counters are only read, a store as far behind as scans say.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from math import prod

from hcq.compiler.passes.views import VIEWS, ZERO, Indices, ravel
from hcq.ir.affine import floordiv, linear, modulo
from hcq.ir.bounds import bounds
from hcq.ir.dtype import DType, dtypes, truncate
from hcq.ir.logic import both, equal, flatten, less, select
from hcq.ir.meaning import identity
from hcq.ir.node import Node, Shape, const, index, toposort
from hcq.ir.op import ARITHMETIC, COMPARE, NEEDED, SCATTERS, Op
from hcq.ir.rewrite import Notes, Pass, Step
from hcq.ir.symbolic import Rebuilding, build, to_index

# a tensor-stage node, where it is asked for, under which condition
_Task = tuple[Node, Indices, "Node | None"]
_Steps = Generator["_Task | Node", Node, None]  # asks for tasks, then gives the value

ORDERED = "ordered"
WITHIN = "within"
_ZERO_OF_ZEROS = {Op.ADD, Op.MUL, Op.MAX, Op.MIN, Op.CAST}
_SEARCH = 32  # nodes looked at to save a select
_EXACT = {Op.ADD, Op.MUL, Op.FLOORDIV, Op.MOD, Op.MAX, Op.MIN, *COMPARE}


def is_ordered(node: Node) -> bool:
    """Whether the turns of a RANGE must run one after the other in one thread."""
    return isinstance(node.arg, tuple)


class _Lowering:
    """One kernel's lowering: the values made so far and the ranges that were given numbers."""

    def __init__(self, sink: Node, notes: Notes):
        if sink.op is not Op.SINK or any(store.op is not Op.STORE for store in sink.src):
            raise ValueError(f"lower_movement({sink!r}): a kernel is a SINK of STOREs")
        self.sink = sink
        self.counts = notes.counts
        self.notes = notes
        self.memo: dict[_Task, Node] = {}
        self.depths = _reduction_depths(sink)
        self.reduction_ranges: dict[tuple[int, Shape], list[Indices]] = {}
        self.next_range = 0
        self.has_placeholders = False

    def run(self) -> Node:
        for store in self.sink.src:
            target, value, *_ = store.src
            if prod(target.shape) == 0 or (value.op in SCATTERS and prod(value.src[1].shape) == 0):
                return Node(Op.SINK, self.sink.dtype, (), self.sink.arg)
        space: Shape | None = None
        ranges: Indices = ()
        stores: list[Node] = []
        for store in self.sink.src:
            target, value, *needed = store.src
            if value.op is Op.BUCKET:
                return self.bucket(target, value)
            scatter = value if value.op in SCATTERS else None
            own = scatter.src[1].shape if scatter else target.shape
            if space is None:
                space = own
                ranges = self.output_ranges(own, _ordered_axis(value))
            elif own != space or _ordered_axis(value) != _ordered_axis(self.sink.src[0].src[1]) or scatter:
                raise ValueError(
                    f"lower_movement: stores of {space} and {own} in one kernel; all stores of a kernel have one "
                    "shape, and a scatter or a scan is a kernel of its own"
                )
            stores.append(
                self.scatter(target, scatter, ranges)
                if scatter
                else self.store(target, value, ranges, needed)
            )
        lowered = Node(Op.SINK, self.sink.dtype, tuple(stores), self.sink.arg)
        return _resolve(lowered) if self.has_placeholders else lowered

    # -- ranges -----------------------------------------------------------------------------------------------------

    def output_ranges(self, shape: Shape, ordered_axis: int | None) -> Indices:
        made = []
        for axis, size in enumerate(shape):
            made.append(self.new_range(size, ordered=axis == ordered_axis))
        return tuple(made)

    def new_range(self, size: int, ordered: bool = False) -> Node:
        if size == 1:
            return ZERO
        number = self.next_range
        self.next_range += 1
        return Node(Op.RANGE, dtypes.index, (index(size),), (number, ORDERED) if ordered else number)

    def within(self, place: Node, size: int) -> Node:
        """`place`, known to be in 0 .. size-1 where it matters."""
        if size == 1:
            return ZERO
        low, high = bounds(place)
        if 0 <= low and high < size:
            return place
        self.has_placeholders = True
        return Node(Op.RANGE, dtypes.index, (index(size), place), WITHIN)

    # -- stores -----------------------------------------------------------------------------------------------------

    def store(self, target: Node, value: Node, ranges: Indices, needed: list[Node]) -> Node:
        param, where = _place_in_param(target, ranges)
        scanned = value.src[0] if value.op is Op.SCAN_AXIS else value
        made = self.value((scanned, ranges if value.shape else (), None))
        if value.op is Op.SCAN_AXIS:
            op, axis = value.arg
            start = tuple(
                [self.value((s, (*ranges[:axis], ZERO, *ranges[axis + 1 :]), None)) for s in value.src[1:]]
            )
            if ranges[axis] is not ZERO:
                made = Node(Op.SCAN, made.dtype, (made, ranges[axis], *start), op)
            elif start:
                made = Node(op, made.dtype, (*start, made))
        if needed:
            condition = self.value((needed[0], ranges, None))
            return Node(Op.STORE, made.dtype, (param, where, made, condition), NEEDED)
        return Node(Op.STORE, made.dtype, (param, where, made))

    def scatter(self, target: Node, scatter: Node, ranges: Indices) -> Node:
        base, where, x = scatter.src
        if base is not target:
            raise ValueError(
                f"lower_movement: {scatter.op.name} works in place; store it to its own base, as "
                f"STORE(P, {scatter.op.name}(P, ..))"
            )
        axis: int = scatter.arg
        place, inside = _checked_place(self.value((where, ranges, None)), base.shape[axis])
        if inside is not None and inside.op is Op.CONST:
            return Node(
                Op.STORE, target.dtype, (*_place_in_param(target, ranges), const(0, target.dtype), inside)
            )
        added = self.value((x, ranges if x.shape else (), inside))
        at = list(ranges)
        at[axis] = self.within(place, base.shape[axis])
        param, flat = _place_in_param(target, tuple(at))
        valid = () if inside is None else (inside,)
        if scatter.op is Op.SCATTER:
            return Node(Op.STORE, target.dtype, (param, flat, added, *valid))
        turns = where.shape[axis]
        if turns > 1 and ranges[axis] not in Node(Op.SINK, target.dtype, (flat, added, *valid)).toposort():
            # every turn adds one number to one place, and the range, which nothing asks for, would be gone
            added = Node(Op.MUL, target.dtype, (added, const(turns, target.dtype)))
        before = Node(Op.LOAD, target.dtype, (param, flat, *valid))
        total = Node(Op.ADD, target.dtype, (before, added))
        return Node(Op.STORE, target.dtype, (param, flat, total, *valid))

    def bucket(self, target: Node, node: Node) -> Node:
        """Every element goes where its counter says, which then says the next place."""
        x, counters = node.src
        shift, bits, *ranks = node.arg
        ranges = self.output_ranges(x.shape, 2)
        value = self.value((x, ranges, None))
        moved = Node(Op.SHR, value.dtype, (value, const(shift, value.dtype)))
        kind = Node(Op.AND, value.dtype, (moved, const((1 << bits) - 1, value.dtype)))
        here = (*ranges[:2], self.within(to_index(kind), 1 << bits))
        after: tuple[Node, ...] = ()
        if ranks:
            place = self.value((counters, here, None))
            place = place + _rank(Node(Op.CAST, place.dtype, (kind,)), 1 << bits, ranges[2])
        else:
            counter = _place_in_param(counters, here)
            place = Node(Op.LOAD, counters.dtype, counter)
            after = (Node(Op.STORE, place.dtype, (*counter, place + 1)),)
        out = _place_in_param(target, (ranges[0], self.within(to_index(place), target.shape[1])))
        stores = (Node(Op.STORE, value.dtype, (*out, value)), *after)
        lowered = Node(Op.SINK, self.sink.dtype, stores, self.sink.arg)
        return _resolve(lowered) if self.has_placeholders else lowered

    # -- values -----------------------------------------------------------------------------------------------------

    def value(self, task: _Task) -> Node:
        """The lowered value; each (node, place, condition) is lowered once, without recursion."""
        memo = self.memo
        if task in memo:
            return memo[task]
        stack = [(task, self.steps(task))]
        answer: Node | None = None
        while stack:
            current, steps = stack[-1]
            asked = next(steps) if answer is None else steps.send(answer)
            if isinstance(asked, Node):
                memo[current] = answer = asked
                if self.notes.keeps and current[0].op in _NAMES:
                    self.notes.changed(_NAMES[current[0].op], current[0], asked, current[1])
                stack.pop()
            else:
                answer = memo.get(asked)
                if answer is None:
                    stack.append((asked, self.steps(asked)))
        return memo[task]

    def steps(self, task: _Task) -> _Steps:
        node = task[0]
        op = node.op
        if op in ARITHMETIC:
            return self.arithmetic(*task)
        if op in VIEWS:
            return self.view(*task)
        rule = _RULES.get(op)
        if rule is None:
            raise ValueError(f"lower_movement: {node!r} cannot be inside a kernel")
        self.counts[_NAMES[op]] += 1
        return rule(self, *task)

    def arithmetic(self, node: Node, at: Indices, valid: Node | None) -> _Steps:
        src = []
        for source in node.src:
            if source.op is Op.CONST:
                src.append(source)
            else:
                src.append((yield source, at if source._shape or source.shape else (), valid))
        yield _arithmetic(node, tuple(src))

    def view(self, node: Node, at: Indices, valid: Node | None) -> _Steps:
        # views of views are walked here, without a task for each
        while node.op in VIEWS:
            self.counts[_NAMES[node.op]] += 1
            at = VIEWS[node.op](node, at)
            node = node.src[0]
        yield (yield node, at, valid)

    def const(self, node: Node, at: Indices, valid: Node | None) -> _Steps:
        """A number is itself everywhere."""
        yield node

    def iota(self, node: Node, at: Indices, valid: Node | None) -> _Steps:
        """The index itself is the value."""
        yield _from_index(at[0], node.dtype)

    def param(self, node: Node, at: Indices, valid: Node | None) -> _Steps:
        """A load, under the condition where its address may be outside."""
        flat = ravel(node.arg.shape, at)
        src: tuple[Node, ...] = (node, flat)
        if valid is not None:
            # an address that is inside anyway is read anyway: the load stays free of what the condition depends on
            low, high = bounds(_resolve(flat))
            if low < 0 or high >= prod(node.arg.shape):
                src = (node, flat, valid)
        yield Node(Op.LOAD, node.dtype, src)

    def pad(self, node: Node, at: Indices, valid: Node | None) -> _Steps:
        """The padding is a condition; under it the source is read."""
        source = node.src[0]
        conditions: list[Node] = []
        inner: list[Node] = []
        for place, size, (low, high) in zip(at, source.shape, node.arg):
            if low or high:
                place = linear(((place, 1),), -low)
                conditions += [less(index(-1), place), less(place, index(size))]
                place = self.within(place, size)
            inner.append(place)
        yield from self.under(source, tuple(inner), valid, both(*conditions))

    def unwindow(self, node: Node, at: Indices, valid: Node | None) -> _Steps:
        """The window is a quotient by the step; where that leaves a rest, zero is read."""
        axis, _, step, dilation = node.arg
        source = node.src[0]
        windows = source.shape[axis]
        # element i is place k of window o when i - k * dilation = o * step; where that is no multiple of the step
        # the last condition fails, so the one before need not be tighter than the next window's start
        start = linear(((at[axis], 1), (at[-1], -dilation)))
        conditions = [less(index(-1), start), less(start, index(windows * step))]
        if step > 1:
            conditions.append(equal(modulo(start, step), ZERO))
        inner = list(at)
        inner[axis] = self.within(floordiv(start, step), windows)
        yield from self.under(source, tuple(inner), valid, both(*conditions))

    def gather(self, node: Node, at: Indices, valid: Node | None) -> _Steps:
        """The loaded index is the place, if it is inside its axis."""
        source, where = node.src
        axis: int = node.arg
        size = source.shape[axis]
        place, inside = _checked_place((yield where, at, valid), size)
        inner = (*at[:axis], self.within(place, size), *at[axis + 1 :])
        yield from self.under(source, inner, valid, inside)

    def under(self, source: Node, at: Indices, valid: Node | None, condition: Node | None) -> _Steps:
        """The source's value where the condition holds, zero elsewhere."""
        if condition is None or (condition.op is Op.CONST and condition.arg):
            yield (yield source, at, valid)
            return
        inside = condition if valid is None else both(valid, condition)
        if inside.op is Op.CONST:
            yield const(0, source.dtype)
            return
        value = yield source, at, inside
        zero = const(0, source.dtype)
        yield value if _vanishes(value, inside) else _zero_unless(condition, value, zero)

    def reduce(self, node: Node, at: Indices, valid: Node | None) -> _Steps:
        """A range for each axis, which reductions side by side share."""
        op, axes = node.arg
        source = node.src[0]
        sizes = tuple([source.shape[axis] for axis in axes])
        if 0 in sizes:
            yield const(identity(op, node.dtype), node.dtype)
            return
        ranges = self.ranges_for(self.depths[node], sizes, at)
        inner = list(at)
        for axis, place in zip(axes, ranges):
            inner[axis] = place
        value = yield source, tuple(inner), valid
        yield _reduce(op, value, tuple([place for place in ranges if place is not ZERO]))

    def ranges_for(self, depth: int, sizes: Shape, at: Indices) -> Indices:
        """Those that reductions of this depth and these sizes share; others for one that stands inside such a one."""
        taken = {place for place in toposort(at) if place.op is Op.RANGE}
        known = self.reduction_ranges.setdefault((depth, sizes), [])
        for ranges in known:
            if taken.isdisjoint(ranges):
                return ranges
        known.append(tuple([self.new_range(size) for size in sizes]))
        return known[-1]


_RULES = {
    Op.CONST: _Lowering.const,
    Op.IOTA: _Lowering.iota,
    Op.PARAM: _Lowering.param,
    Op.PAD: _Lowering.pad,
    Op.UNWINDOW: _Lowering.unwindow,
    Op.GATHER: _Lowering.gather,
    Op.REDUCE_AXIS: _Lowering.reduce,
}
_NAMES = {op: op.name.lower().replace("_", "-") for op in (*VIEWS, *_RULES)}
_INJECTIVE = {Op.RESHAPE, Op.PERMUTE, Op.SHRINK, Op.FLIP}


# -- arithmetic, places, reductions ---------------------------------------------------------------------------------


def _ordered_axis(value: Node) -> int | None:
    """The axis whose turns run one after the other where this is stored."""
    if value.op is Op.SCAN_AXIS:
        axis: int = value.arg[1]
        return axis
    return int(value.arg) if value.op in SCATTERS else None


def _rank(kind: Node, kinds: int, turn: Node) -> Node:
    """How many elements of its kind are before each one: a word counts two kinds, one in each half."""
    if turn is ZERO:
        return const(0, kind.dtype)
    half, is_odd = Node(Op.SHR, kind.dtype, (kind, const(1, kind.dtype))), (kind & 1).eq(1)
    mine = is_odd.where(const(1 << 16, kind.dtype), const(1, kind.dtype))
    found: Node | None = None
    for word in range(-(-kinds // 2)):
        is_here = half.eq(word)
        until = Node(Op.SCAN, kind.dtype, (is_here.where(mine, const(0, kind.dtype)), turn), Op.ADD)
        found = until if found is None else is_here.where(until, found)
    assert found is not None
    high = Node(Op.SHR, kind.dtype, (found, const(16, kind.dtype)))
    return (is_odd.where(high, found) & 0xFFFF) + -1


def _place_in_param(target: Node, at: Indices) -> tuple[Node, Node]:
    """(PARAM, flat index) that a place in a written view stands for."""
    node = target
    while node.op in _INJECTIVE:
        at = VIEWS[node.op](node, at)
        node = node.src[0]
    if node.op is not Op.PARAM:
        raise ValueError(
            f"lower_movement: STORE to {node.op.name}; a target is a PARAM, viewed by RESHAPE, PERMUTE, SHRINK or FLIP"
        )
    return node, ravel(node.arg.shape, at)


def _arithmetic(node: Node, src: tuple[Node, ...]) -> Node:
    """The op over lowered sources; integers that count places (IOTA and what follows from it) stay index arithmetic."""
    op = node.op
    if op in _EXACT and src[0].dtype.is_integer:
        a, b = _as_index(src[0]), _as_index(src[1])
        if a is not None and b is not None and not (a.op is Op.CONST and b.op is Op.CONST):
            made = build(op, Node(op, dtypes.bool if op in COMPARE else dtypes.index, (a, b)), (a, b))
            if op in COMPARE:
                return made
            low, high = bounds(made)
            if int(node.dtype.min) <= low and high <= int(node.dtype.max):
                return _from_index(made, node.dtype)
    elif op is Op.CAST and node.dtype.is_integer and src[0].op is Op.CAST:
        place = _as_index(src[0])
        if place is not None:
            low, high = bounds(place)
            if int(node.dtype.min) <= low and high <= int(node.dtype.max):
                return _from_index(place, node.dtype)
    return build(op, node, src)


def _as_index(value: Node) -> Node | None:
    """The index that an integer value was cast from without loss, None when it is another value."""
    if value.op is Op.CONST:
        return index(value.arg) if value.dtype.is_integer else None
    place = to_index(value) if value.op is Op.CAST and value.dtype.is_integer else None
    return place if place is not None and place.op is not Op.CAST else None


def _from_index(place: Node, dtype: DType) -> Node:
    if place.op is Op.CONST:
        return const(truncate(place.arg, dtype), dtype)
    return Node(Op.CAST, dtype, (place,))


def _checked_place(value: Node, size: int) -> tuple[Node, Node | None]:
    """(the gathered index, the condition that it is inside), None when it always is."""
    place = to_index(value)
    inside = both(less(index(-1), place), less(place, index(size)))
    if inside.op is Op.CONST and inside.arg:
        return place, None
    return place, inside


def _reduce(op: Op, value: Node, ranges: Indices) -> Node:
    """Reduce over ranges; a reduction of one by the same op joins it, and a repeated value is not looped over."""
    if value.op is Op.REDUCE and value.arg is op:
        ranges = (*value.src[1:], *ranges)
        value = value.src[0]
    elif op is Op.ADD and _is_sum_or_zero(value):
        condition, inner, zero = value.src
        ranges = (*inner.src[1:], *ranges)
        value = _zero_unless(condition, inner.src[0], zero)
    if not ranges:
        return value
    if op is not Op.MUL:
        used = {node for node in toposort((value,)) if node.op is Op.RANGE}
        idle = [place for place in ranges if place not in used]
        turns = prod([place.src[0].arg for place in idle])
        if idle and (op is not Op.ADD or truncate(turns, value.dtype) == turns):
            ranges = tuple([place for place in ranges if place in used])
            if op is Op.ADD:
                value = Node(Op.MUL, value.dtype, (value, const(turns, value.dtype)))
            if not ranges:
                return value
    return Node(Op.REDUCE, value.dtype, (value, *ranges), op)


def _is_sum_or_zero(value: Node) -> bool:
    """A sum that a view reads as zero outside: each of its terms can be read so instead."""
    if value.op is not Op.WHERE:
        return False
    _, inner, other = value.src
    is_zero = other.op is Op.CONST and other.arg == 0
    return is_zero and inner.op is Op.REDUCE and inner.arg is Op.ADD


def _zero_unless(condition: Node, value: Node, zero: Node) -> Node:
    """The value where the condition holds, zero elsewhere: one select, however many conditions."""
    if value.op is Op.WHERE and value.src[2] is zero:
        condition, value = both(condition, value.src[0]), value.src[1]
    return select(condition, value, zero)


def _vanishes(value: Node, inside: Node) -> bool:
    """Whether the value, lowered under the condition, is exactly zero where the condition does not hold.

    A load under the condition reads zero there; sums, products and extremes of zeros are zero, and so is zero in any
    format. A long value is not searched to its end, so that lowering stays linear: the answer is then no, which costs
    a select and nothing else.
    """
    parts = set(flatten(Op.AND, (inside,)))
    stack = [value]
    for _ in range(_SEARCH):
        if not stack:
            return True
        node = stack.pop()
        if node.op in _ZERO_OF_ZEROS:
            stack.extend(node.src)
        elif node.op is Op.LOAD:
            if len(node.src) == 2 or not parts.issubset(flatten(Op.AND, (node.src[2],))):
                return False
        elif node.op is not Op.CONST or node.arg or repr(node.arg) == "-0.0":
            return False
    return False


def _reduction_depths(sink: Node) -> dict[Node, int]:
    """How many reductions are below each one: reductions side by side share ranges, nested ones do not.

    A sum over weights exp(x - max(x)) is as deep as that maximum, where x is a reduction itself, which is worth being
    computed once for both: see online.py. Ranges that must differ are told apart when they are given out.
    """
    below: dict[Node, int] = {}
    depths: dict[Node, int] = {}
    tops: dict[Node, frozenset[Node]] = {}  # the maxima of reductions at or below a node
    for node in toposort((sink,)):
        depth = max([below[source] for source in node.src], default=0)
        found = frozenset[Node]().union(*[tops[source] for source in node.src])
        if node.op is Op.REDUCE_AXIS:
            if node.arg[0] is Op.MAX and depth and not found:
                found = frozenset({node})
            same = [top for top in found if top is not node and _sizes(top) == _sizes(node)]
            depths[node] = min([depths[top] for top in same], default=depth)
            depth = max(depth, depths[node] + 1)
        below[node], tops[node] = depth, found
    return depths


def _sizes(node: Node) -> list[int]:
    """How far a REDUCE_AXIS goes along its axes."""
    return [node.src[0].shape[axis] for axis in node.arg[1]]


def _resolve(root: Node) -> Node:
    """Placeholders give way to the indices they stand for."""
    rebuilding = Rebuilding({}, was_simple=True)
    for node in toposort((root,)):
        if node.op is Op.RANGE and node.arg == WITHIN:
            rebuilding.new[node] = rebuilding.of(node.src[1])
        else:
            rebuilding.visit(node)
    return rebuilding.of(root)


# -- the pass -------------------------------------------------------------------------------------------------------


def _lower(sink: Node, target: object, notes: Notes) -> Node:
    """The kernel in ranges. Raises ValueError for what a kernel cannot hold.

    A kernel whose outputs have no elements becomes a SINK without stores.
    """
    return _Lowering(sink, notes).run()


def _described(table: Mapping[Op, Callable[..., object]]) -> list[Step]:
    return [Step(_NAMES[op], (rule.__doc__ or "").rstrip(".")) for op, rule in table.items()]


lower_movement = Pass(
    "lower-movement",
    "views become index arithmetic: they cost nothing when the kernel runs",
    _described(VIEWS) + _described(_RULES),
    _lower,
)
