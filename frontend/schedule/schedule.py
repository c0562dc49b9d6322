"""The scheduler: a lazy graph becomes an ordered list of kernels.

In       the nodes to put in memory
Out      a `Schedule`: values (inputs, outputs, temporaries) and kernels (one tensor-stage SINK each) in order
Changes  nothing; the same structure always gives the same schedule
Next     fuse.py (which nodes get memory), run/plan.py (a schedule with programs and memory), run/realize.py

Order: a kernel runs after those whose values it reads, and a kernel that writes a buffer in place runs after every
kernel that reads what was there before. Where both cannot hold, the reader reads a copy taken first.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import TYPE_CHECKING, Any

from hcq.frontend.core import above
from hcq.frontend.core.sizes import counts_of, inside, without_counts
from hcq.frontend.schedule.fuse import Fusion, fuse
from hcq.frontend.schedule.groups import reaches
from hcq.frontend.schedule.simplify import simplify_graph
from hcq.frontend.schedule.targets import is_renamed, target_base, written_version
from hcq.frontend.schedule.walk import MAX_ARGUMENTS
from hcq.ir.dtype import DType
from hcq.ir.node import Node, Param, Shape, substitute, toposort
from hcq.ir.op import ARITHMETIC, MOVEMENT, SCATTERS, Op

if TYPE_CHECKING:
    from hcq.frontend.schedule.needed import Needs

LEAST_SUM = 1 << 10  # elements; shorter sums are not looked at by columns.py
_OF_WINDOWS = frozenset({Op.WINDOW, Op.UNWINDOW})
# what a kernel stores element by element, in the shape of the value
_STORED_AS_THEY_ARE = ARITHMETIC | MOVEMENT | {Op.CONTIGUOUS, Op.REDUCE_AXIS, Op.GATHER}


@dataclass(frozen=True)
class Value:
    """A piece of memory of a schedule. kind: "input" exists before, "output" is kept, "temporary" is not."""

    kind: str
    dtype: DType
    shape: Shape

    @property
    def size_bytes(self) -> int:
        """How much memory it takes."""
        return prod(self.shape) * self.dtype.itemsize

    def __str__(self) -> str:
        return f"{self.kind} {self.dtype.name}{list(self.shape)}"


@dataclass(frozen=True)
class Kernel:
    """One kernel: the graph of what it stores, and which value each of its arguments is."""

    sink: Node
    arguments: tuple[int, ...]  # argument number -> value number
    writes: frozenset[int]  # value numbers

    def __str__(self) -> str:
        out = ", ".join(f"v{v}" for v in sorted(self.writes))
        reads = ", ".join(f"v{v}" for v in self.arguments if v not in self.writes)
        return f"kernel {out} <- {reads or 'nothing'}  {list(self.sink.src[0].shape)}"


@dataclass
class Schedule:
    """Kernels in order over numbered values; `results[i]` is the value that root i ended in."""

    values: list[Value] = field(default_factory=list)
    kernels: list[Kernel] = field(default_factory=list)
    results: list[int] = field(default_factory=list)
    inputs: list[Any] = field(default_factory=list)  # the storage of each input value, by value number

    def __str__(self) -> str:
        lines = [f"v{i}: {value}" for i, value in enumerate(self.values)]
        return "\n".join([*lines, *(str(kernel) for kernel in self.kernels)])


def schedule(
    roots: Sequence[Node],
    inputs: Sequence[Any],
    threads: int = 1,
    formats: Collection[DType] = (),
    most_arguments: int = MAX_ARGUMENTS,
    scaled: Collection[DType] = (),
) -> Schedule:
    """Kernels that put every root in memory.

    roots    tensor-stage nodes; ASSIGN roots end in their buffer, others in a new output
    inputs   the storages of the graph's BUFFER leaves, in the order that numbers the input values
    threads  how many workers a device has: a reduction to fewer elements than that is done in two steps
    formats  what its matrix units multiply, if it has any: convolutions of these read channels that lie together
    most_arguments  how many buffers a kernel reads
    scaled   those that they multiply with scales of blocks, which are no numbers in memory then
    """
    counts = [counts_of(root) if root.op is not Op.ASSIGN else [] for root in roots]
    roots = simplify_graph(_with_other_sums(without_counts(roots), threads, formats), threads)
    fusion = fuse(roots, most_arguments, scaled)
    needed: dict[Node, Needs] = {}
    if any(counts) or any(node.op is Op.IOTA for node in toposort(roots)):
        from hcq.frontend.schedule.needed import needed_of

        needed = needed_of(roots, counts)
    builder = _Builder(fusion, inputs, needed)
    builder.roots.update(roots)
    for root in roots:
        builder.name_result(root)
    builder.build()
    return builder.result


def _with_other_sums(roots: Sequence[Node], threads: int, formats: Collection[DType]) -> Sequence[Node]:
    """The same values; sums over windows and along columns, where there are such, in the order that memory likes."""
    order = toposort(roots)
    if any(node.op in _OF_WINDOWS for node in order):
        roots = above.in_planes(above.in_channels(above.without_gaps(roots), formats))
    if any(node.op is Op.REDUCE_AXIS and prod(node.src[0].shape) >= LEAST_SUM for node in order):
        from hcq.frontend.schedule.columns import in_columns

        roots = in_columns(roots, threads)
    return roots


class _Builder:
    """Turns the groups that groups.py chose into kernels over numbered values."""

    def __init__(self, fusion: Fusion, inputs: Sequence[Any], needed: Mapping[Node, Needs]):
        self.fusion = fusion
        self.needed = needed
        self.result = Schedule(inputs=list(inputs))
        self.value_of: dict[Node, int] = {}  # realized node or BUFFER leaf -> value number
        # piece -> the part of its CAT's value
        self.place_of: dict[Node, tuple[tuple[int, int, int], ...]] = {}
        self.roots: set[Node] = set()
        for storage in inputs:
            self.value_of[storage.node()] = self._new_value("input", storage.dtype, storage.shape)

    def _new_value(self, kind: str, dtype: DType, shape: Shape) -> int:
        self.result.values.append(Value(kind, dtype, shape))
        return len(self.result.values) - 1

    def name_result(self, root: Node) -> None:
        """Give a root its value: the buffer it is, the buffer it is assigned to, or a new output."""
        if root not in self.value_of:
            self._name(root, "output")
        self.result.results.append(self.value_of[root])

    def _name(self, node: Node, kind: str) -> None:
        if node.op is Op.ASSIGN:
            self.value_of[node] = self.value_of[target_base(node)]
            return
        self.value_of[node] = self._new_value(kind, node.dtype, node.shape)
        if node.op in SCATTERS:  # writes in place to the copy of its base that it alone has
            self.value_of[node.src[0]] = self.value_of[node]
        elif is_renamed(node) and node.src[0] not in self.value_of and node.src[0] not in self.roots:
            self.value_of[node.src[0]] = self.value_of[node]
        elif node.op is Op.CAT:
            at = 0
            for piece in node.src:
                self.value_of[piece] = self.value_of[node]
                end = at + piece.shape[node.arg]
                self.place_of[piece] = tuple(
                    [
                        (at, end, 1) if axis == node.arg else (0, size, 1)
                        for axis, size in enumerate(piece.shape)
                    ]
                )
                at = end

    def build(self) -> None:
        groups = self.fusion.groups
        # a scatter names its base's memory, a CAT its pieces', before these are met
        for group in reversed(groups):
            for node in group if group[0].op is not Op.ROUTINE else reversed(group):
                if node not in self.value_of:
                    self._name(node, "temporary")
        drafts = [self._draft(group) for group in groups]
        self._order(drafts)

    def _draft(self, group: list[Node]) -> _Draft:
        """The stores of one kernel; its group is in an order where sources come first."""
        counted = [node for node in group if node.op is Op.BUCKET and len(node.arg) == 2]  # in place
        counters = [self.value_of[node.src[1]] for node in counted]
        draft = _Draft(group, [*[self.value_of[node] for node in group], *counters])
        memo: dict[Node, Node] = {}
        for node in group:
            value = self.value_of[node]
            target = self._argument(draft, value, draft.overwrites.get(value, node))
            if node.op is Op.ASSIGN:
                target = _onto(node.src[0], target)
                values = [self._expression(source, draft, memo) for source in node.src[1:]]
                result = (
                    values[0]
                    if node.arg is None
                    else Node(Op.SCATTER, node.dtype, (target, *values), node.arg)
                )
                draft.after.append(written_version(node))
            elif node.op in SCATTERS:
                index, added = (self._expression(s, draft, memo) for s in node.src[1:])
                result = Node(node.op, node.dtype, (target, index, added), node.arg)
                draft.after.append(node.src[0])
            elif node.op is Op.BUCKET:
                x = self._expression(node.src[0], draft, memo)
                if node in counted:
                    counter = self._argument(draft, self.value_of[node.src[1]], node.src[1])
                    draft.after.append(node.src[1])
                else:
                    counter = self._expression(node.src[1], draft, memo)
                result = Node(node.op, node.dtype, (x, counter), node.arg)
            elif node.op is Op.CAT or (is_renamed(node) and self.value_of[node.src[0]] == value):
                draft.after.extend(node.src)
                continue
            elif node.op is Op.CONTIGUOUS:
                source = node.src[0]
                if node in self.place_of:
                    target = Node(Op.SHRINK, node.dtype, (target,), self.place_of[node])
                    while source.op is Op.FLIP:  # stored backwards: computed in the order of its neighbours
                        target = Node(Op.FLIP, node.dtype, (target,), source.arg)
                        source = source.src[0]
                result = self._expression(source, draft, memo)
            else:
                target = _in_shape(target, node.shape)
                src = tuple([self._expression(s, draft, memo) for s in node.src])
                result = Node(node.op, node.dtype, src, node.arg)
            memo[node] = result  # another store of this kernel that reads it takes the value, not the memory
            draft.stores.append(Node(Op.STORE, node.dtype, (target, result)))
        self._say_what_is_needed(draft, memo)
        return draft

    def _say_what_is_needed(self, draft: _Draft, memo: dict[Node, Node]) -> None:
        """Where nobody needs what is beyond a count, the stores say so, so that it need not be computed."""
        plain = all(node.op in _STORED_AS_THEY_ARE and node not in self.place_of for node in draft.group)
        if not plain or len(draft.stores) < len(draft.group):
            return
        common = dict(self.needed.get(draft.group[0], {}))
        for node in draft.group[1:]:
            its = self.needed.get(node, {})
            common = {axis: count for axis, count in common.items() if its.get(axis) is count}
        if not common:
            return
        shape = draft.group[0].shape
        conditions = [inside(shape, axis, count) for axis, count in sorted(common.items())]
        whole = conditions[0]
        for condition in conditions[1:]:
            whole = Node(Op.AND, whole.dtype, (whole, condition))
        where = self._expression(whole, draft, memo)
        draft.stores = [
            Node(Op.STORE, store.dtype, (*store.src, _in_shape(where, store.src[0].shape)))
            for store in draft.stores
        ]

    def _expression(self, root: Node, draft: _Draft, memo: dict[Node, Node]) -> Node:
        """The graph of `root` with every value that is in memory as an argument."""
        stack = [root]
        while stack:
            node = stack[-1]
            if node in memo:
                stack.pop()
            elif node.op is Op.BUFFER or node in self.fusion.realized:
                value = self.value_of[node]
                argument = self._argument(draft, value, node)
                memo[node] = _in_shape(argument, node.shape) if node.op is Op.SCAN_AXIS else argument
                draft.reads[node] = value
                stack.pop()
            elif missing := [s for s in node.src if s not in memo]:
                stack.extend(missing)
            else:
                src = tuple([memo[s] for s in node.src])
                memo[node] = node if src == node.src else Node(node.op, node.dtype, src, node.arg)
                stack.pop()
        return memo[root]

    def _argument(self, draft: _Draft, value: int, node: Node) -> Node:
        """The argument for what `node` says of a value: one each for its versions, of which a kernel overwrites one."""
        is_written = value in draft.written and draft.overwrites.get(value, node) is node
        slot = draft.slots.setdefault(value if is_written else node, len(draft.values))
        if slot == len(draft.values):
            draft.values.append(value)
        return Node(Op.PARAM, node.dtype, (), Param(slot, self.result.values[value].shape, is_written))

    def _order(self, drafts: list[_Draft]) -> None:
        """Sort by what each kernel needs; a reader that cannot run before a write reads a copy taken before it."""
        producer = {node: i for i, draft in enumerate(drafts) for node in draft.group}
        needs = []
        for i, draft in enumerate(drafts):
            wanted = [*draft.reads, *draft.after]
            needs.append({producer[node] for node in wanted if node in producer} - {i})
        writers: dict[int, list[int]] = {}
        for i, draft in enumerate(drafts):
            for node in draft.group:
                if node.op is Op.ASSIGN:
                    writers.setdefault(self.value_of[node], []).append(i)
        for i, draft in enumerate(list(drafts)):
            for node, value in list(draft.reads.items()):
                later = _later_writers(node, writers.get(value, []), drafts)
                clashes = [w for w in later if not self._may_read_first(i, w, node, drafts, needs)]
                if clashes:
                    drafts.append(self._copy_before(draft, node, value))
                    needs.append({producer[node]} if node in producer else set())
                    needs[i].add(len(drafts) - 1)
                for writer in later:
                    if writer != i or clashes:
                        needs[writer].add(len(drafts) - 1 if clashes else i)
        order = _early(_topological(needs), needs)
        self.result.kernels = [_finish(drafts[i]) for i in order if drafts[i].stores]

    def _may_read_first(
        self, reader: int, writer: int, node: Node, drafts: list[_Draft], needs: list[set[int]]
    ) -> bool:
        if reader == writer:
            return self.fusion.is_aligned(node, drafts[reader].group)
        return not reaches(needs, reader, writer)

    def _copy_before(self, draft: _Draft, node: Node, value: int) -> _Draft:
        """A kernel that keeps what `node` says of a buffer; the reader is turned to that copy."""
        shape = self.result.values[value].shape
        kept = self._new_value("temporary", node.dtype, shape)
        old = self._argument(draft, value, node)
        new = old.replace(arg=Param(len(draft.values), shape))
        draft.values.append(kept)
        draft.stores = [_reading(store, old, new) for store in draft.stores]
        copy = _Draft([], [kept])
        out, source = self._argument(copy, kept, node), self._argument(copy, value, node)
        copy.stores.append(Node(Op.STORE, node.dtype, (out, source)))
        return copy


class _Draft:
    """A kernel being built."""

    def __init__(self, group: list[Node], written: list[int]):
        self.group = group
        self.written = frozenset(written)
        self.values = list(dict.fromkeys(written))  # argument -> value number
        self.slots: dict[int | Node, int] = {value: slot for slot, value in enumerate(self.values)}
        self.overwrites = {  # value number -> what is there before, as the node that says so
            value: written_version(node)
            for node, value in zip(group, written, strict=False)
            if node.op is Op.ASSIGN
        }
        self.reads: dict[Node, int] = {}  # buffer or realized node read -> value number
        self.after: list[Node] = []  # realized nodes that must have run, though nothing of theirs is read
        self.stores: list[Node] = []


def _reading(store: Node, old: Node, new: Node) -> Node:
    """A store whose value reads another argument; what it writes stays, also where a scatter names it again."""
    target, value, *where = store.src
    if value.op in SCATTERS:
        return store.replace(
            src=(target, value.replace(src=(target, *substitute(value.src[1:], {old: new}))))
        )
    return store.replace(src=(target, value.substitute({old: new}), *where))


def _finish(draft: _Draft) -> Kernel:
    """Number the arguments that are really used, in order of their slots, and make the SINK."""
    sink = Node(Op.SINK, draft.stores[0].dtype, tuple(draft.stores))
    used = [n for n in sink.toposort() if n.op is Op.PARAM]
    slots = sorted({n.arg.index for n in used})
    renumber = {slot: i for i, slot in enumerate(slots)}
    mapping = {n: n.replace(arg=n.arg._replace(index=renumber[n.arg.index])) for n in used}
    return Kernel(sink.substitute(mapping), tuple(draft.values[slot] for slot in slots), draft.written)


def _in_shape(argument: Node, shape: Shape) -> Node:
    """The memory of a value as what has the same elements in another shape."""
    return argument if argument.shape == shape else Node(Op.RESHAPE, argument.dtype, (argument,), shape)


def _onto(view: Node, base: Node) -> Node:
    """The movement chain of `view`, on another base."""
    chain = []
    while view.op in MOVEMENT:
        chain.append(view)
        view = view.src[0]
    for step in reversed(chain):
        base = Node(step.op, step.dtype, (base,), step.arg)
    return base


def _later_writers(node: Node, writers: list[int], drafts: list[_Draft]) -> list[int]:
    """The kernels whose writes come after the version of the buffer that `node` stands for."""
    if node.op is Op.BUFFER:
        return writers
    earlier = set()  # writing kernels up to and including this version
    step = node
    while step.op is Op.ASSIGN:
        earlier.add(step)
        step = written_version(step)
    base = target_base(node)

    def writes(kernel: int) -> set[Node]:
        return {n for n in drafts[kernel].group if n.op is Op.ASSIGN and target_base(n) is base}

    return [w for w in writers if not earlier >= writes(w)]


def _topological(needs: list[set[int]]) -> list[int]:
    """Kernel numbers so that each comes after its needs, otherwise in the given order."""
    done: dict[int, None] = {}
    for start in range(len(needs)):
        stack = [start]
        while stack:
            kernel = stack[-1]
            missing = [need for need in sorted(needs[kernel]) if need not in done]
            if kernel in done or not missing:
                stack.pop()
                done[kernel] = None
            elif missing[0] in stack:
                raise AssertionError(
                    f"schedule: kernels {stack} need each other; groups.py grouped what it must not"
                )
            else:
                stack.append(missing[0])
    return list(done)


def _early(order: list[int], needs: list[set[int]]) -> list[int]:
    """Kernels that no other one needs, as those of a weight's gradient, right after the last one that they need.

    What they read is dropped as early as can be, so temporaries of other kernels may be in its memory.
    """
    place = {kernel: at for at, kernel in enumerate(order)}
    needed = {need for wanted in needs for need in wanted}
    waiting: dict[int, list[int]] = {}
    for kernel in order:
        if kernel not in needed and needs[kernel]:
            waiting.setdefault(max(place[need] for need in needs[kernel]), []).append(kernel)
    moved = {kernel for kernels in waiting.values() for kernel in kernels}
    found = []
    for at, kernel in enumerate(order):
        if kernel not in moved:
            found.append(kernel)
        found += waiting.get(at, ())
    return found
