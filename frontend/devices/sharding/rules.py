"""Rules: for every op, in which layouts it takes its sources so that each device computes its own part alone.

In       an op of the tensor stage over values of a group
Out      the value it gives: its layout, and one node per device
Changes  adds exchanges to the `Layouts`, where the sources do not fit
Next     layouts.py (how they are made to fit), partition.py (who walks the graph)

The gradient of an op is made of ops, so it has no rules of its own. What cannot stay split is gathered: every device
then computes all of it. `notes` says where that was, for HCQ_DEBUG=schedule.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod

from hcq.errors import UsageError
from hcq.frontend.core.nodes import filled
from hcq.frontend.devices.sharding.layouts import Layouts, Value
from hcq.frontend.devices.sharding.placement import Layout, Partial, Placement, Split, split_evenly
from hcq.ir.node import Node, Routine, Shape
from hcq.ir.op import ARITHMETIC, MOVEMENT, SCATTERS, Op

SUM = Partial(Op.ADD)
_LINEAR_VIEWS = frozenset({Op.RESHAPE, Op.PERMUTE, Op.SHRINK, Op.FLIP, Op.PAD})


class Rules:
    """The rules over one graph. `notes`: what had to be gathered."""

    def __init__(self, layouts: Layouts) -> None:
        self.layouts = layouts
        self.count = layouts.count
        self.notes: list[str] = []

    def apply(self, node: Node, sources: Sequence[Value]) -> Value:
        """The value of a node, from those of its sources."""
        rule = _RULES.get(node.op)
        if rule is None:
            return self._everywhere(node, sources)
        if node.op is not Op.ASSIGN and any(0 in source.shape for source in sources):
            return self._everywhere(node, sources)
        return rule(self, node, sources)

    # -- building --

    def _made(
        self,
        node: Node,
        layout: Layout,
        sources: Sequence[Value],
        arg_of: Callable[[int], object] | None = None,
    ) -> Value:
        """The op on each device, over the sources as they are; `arg_of` gives its argument on a device."""
        nodes = []
        for rank in range(self.count):
            src = tuple(source.nodes[rank] for source in sources)
            nodes.append(Node(node.op, node.dtype, src, node.arg if arg_of is None else arg_of(rank)))
        return Value(layout, node.shape, tuple(nodes))

    def _everywhere(self, node: Node, sources: Sequence[Value]) -> Value:
        """All of it on every device."""
        for source in sources:
            if isinstance(source.layout, Split):
                axis = source.layout.axis
                self.notes.append(
                    f"{node.op.name} of {source.shape} split along axis {axis}: gathered before"
                )
        return self._made(node, None, [self.layouts.whole(source) for source in sources])

    def _alike(self, sources: Sequence[Value], split: Split) -> list[Value]:
        """Sources of one shape in one layout; one of shape () stays everywhere."""
        return [self.layouts.to(source, split if source.shape else None) for source in sources]

    def _split_of(
        self, sources: Sequence[Value], free: Callable[[int], bool] = lambda axis: True
    ) -> Split | None:
        """The layout that most bytes are in already, among those along an axis that the op leaves free."""
        found: dict[Split, int] = {}
        for source in sources:
            if isinstance(source.layout, Split) and free(source.layout.axis):
                size = prod(source.shape) * source.nodes[0].dtype.itemsize
                found[source.layout] = found.get(source.layout, 0) + size
        return max(found, key=lambda split: found[split]) if found else None

    # -- elementwise --

    def elementwise(self, node: Node, sources: Sequence[Value]) -> Value:
        """Local where the sources are split alike; the one with most bytes decides."""
        split = self._split_of(sources)
        if split is not None:
            return self._made(node, split, self._alike(sources, split))
        terms = [isinstance(source.layout, Partial) for source in sources]
        if any(terms) and self._is_linear(node, sources, terms):
            return self._made(node, SUM, sources)
        return self._made(node, None, [self.layouts.whole(source) for source in sources])

    def _is_linear(self, node: Node, sources: Sequence[Value], terms: Sequence[bool]) -> bool:
        """Whether doing it to each term, and then adding, is the same."""
        if any(source.layout != SUM for source, is_term in zip(sources, terms) if is_term):
            return False
        if node.op is Op.ADD:
            return all(terms) and all(source.shape == node.shape for source in sources)
        if node.op is Op.NEG:
            return True
        if node.op is Op.MUL:
            return sum(terms) == 1 and sources[terms.index(True)].shape == node.shape
        return node.op is Op.DIV and terms[0] and not terms[1] and sources[0].shape == node.shape

    # -- movement --

    def reshape(self, node: Node, sources: Sequence[Value]) -> Value:
        """Stays split where what is split is an axis in front of which as many elements stand as before."""
        (x,) = sources
        if not isinstance(x.layout, Split):
            return self._view(node, sources)
        found = self._reshaped(x.shape, node.shape, x.layout)
        if found is None:
            return self._everywhere(node, sources)
        return self._made(node, found, sources, lambda rank: found.shape(node.shape, rank))

    def _reshaped(self, old: Shape, new: Shape, split: Split) -> Split | None:
        outer, inner = prod(old[: split.axis]), prod(old[split.axis + 1 :])
        for axis, size in enumerate(new):
            behind = prod(new[axis + 1 :])
            if prod(new[:axis]) != outer or any(own * inner % behind for own in split.sizes):
                continue
            sizes = tuple([own * inner // behind for own in split.sizes])
            if sum(sizes) == size and all(sizes):
                return Split(axis, sizes)
        return None

    def permute(self, node: Node, sources: Sequence[Value]) -> Value:
        """The axis goes where the order says."""
        (x,) = sources
        if not isinstance(x.layout, Split):
            return self._view(node, sources)
        return self._made(node, Split(node.arg.index(x.layout.axis), x.layout.sizes), sources)

    def expand(self, node: Node, sources: Sequence[Value]) -> Value:
        """A split axis has more than one element, so it never repeats. Terms are added before they are repeated."""
        (x,) = sources
        split = x.layout
        if not isinstance(split, Split):
            return self._made(node, None, [self.layouts.whole(x)])
        return self._made(node, split, sources, lambda rank: split.shape(node.shape, rank))

    def pad(self, node: Node, sources: Sequence[Value]) -> Value:
        """Along the split axis the first and the last device have the padding."""
        (x,) = sources
        split = x.layout
        if not isinstance(split, Split):
            return self._view(node, sources)
        low, high = node.arg[split.axis]
        sizes = list(split.sizes)
        sizes[0] += low
        sizes[-1] += high

        def arg_of(rank: int) -> object:
            ends = (low if rank == 0 else 0, high if rank == self.count - 1 else 0)
            return (*node.arg[: split.axis], ends, *node.arg[split.axis + 1 :])

        return self._made(node, Split(split.axis, tuple(sizes)), sources, arg_of)

    def shrink(self, node: Node, sources: Sequence[Value]) -> Value:
        """Along the split axis each device keeps what is inside; if one has nothing then, what is left is gathered."""
        (x,) = sources
        split = x.layout
        if not isinstance(split, Split):
            return self._view(node, sources)
        if 0 in node.shape:
            return self._everywhere(node, sources)
        start, stop, step = node.arg[split.axis]
        own = []
        for rank, size in enumerate(split.sizes):
            begin, end = split.start(rank), split.start(rank) + size
            first = start if start >= begin else start + -(-(begin - start) // step) * step
            own.append((min(first, end) - begin, max(min(stop, end), min(first, end)) - begin, step))
        sizes = tuple([(high - low + step - 1) // step for low, high, _ in own])
        made = self._made(
            node,
            Split(split.axis, sizes),
            sources,
            lambda rank: (*node.arg[: split.axis], own[rank], *node.arg[split.axis + 1 :]),
        )
        return made if all(sizes) else self.layouts.whole(made)

    def flip(self, node: Node, sources: Sequence[Value]) -> Value:
        """Local unless the split axis runs backwards."""
        (x,) = sources
        if isinstance(x.layout, Split) and x.layout.axis in node.arg:
            return self._everywhere(node, sources)
        return self._view(node, sources)

    def window(self, node: Node, sources: Sequence[Value]) -> Value:
        """WINDOW and UNWINDOW: local unless they are along the split axis."""
        (x,) = sources
        if not isinstance(x.layout, Split):
            return self._made(node, None, [self.layouts.whole(x)])
        last = len(x.shape) - 1 if node.op is Op.UNWINDOW else -1
        if x.layout.axis in (node.arg[0], last):
            return self._everywhere(node, sources)
        return self._made(node, x.layout, sources)

    def _view(self, node: Node, sources: Sequence[Value]) -> Value:
        """Of what every device has, or has a term of; a split axis is none of this view's business."""
        (x,) = sources
        if isinstance(x.layout, Partial) and (node.op not in _LINEAR_VIEWS or x.layout != SUM):
            x = self.layouts.whole(x)
        return self._made(node, x.layout, [x])

    # -- values --

    def reduce(self, node: Node, sources: Sequence[Value]) -> Value:
        """Over the split axis each device reduces its own part, and has a term then."""
        (x,) = sources
        op, axes = node.arg
        if isinstance(x.layout, Partial) and x.layout.op is not op:
            x = self.layouts.whole(x)
        layout: Layout = x.layout
        if isinstance(layout, Split) and layout.axis in axes:
            layout = Partial(op)
        return self._made(node, layout, [x])

    def beside(self, node: Node, sources: Sequence[Value]) -> Value:
        """CAT and SCAN_AXIS: local along another axis than the split one."""
        deciding, along = (sources, node.arg) if node.op is Op.CAT else (sources[:1], node.arg[1])
        split = self._split_of(deciding, lambda axis: axis != along)
        if split is None:
            return self._everywhere(node, sources)
        return self._made(node, split, self._alike(sources, split))

    def gather(self, node: Node, sources: Sequence[Value]) -> Value:
        """Rows by number: split as the numbers are; along other axes than the one gathered from, as either is."""
        x, index = (self.layouts.summed(source) for source in sources)
        axis = node.arg
        if isinstance(index.layout, Split) and index.layout.axis == axis:
            return self._made(node, index.layout, [self.layouts.whole(x), index])
        split = self._split_of([x, index], lambda own: own != axis)
        if split is None:
            return self._everywhere(node, [x, index])
        return self._made(node, split, self._alike([x, index], split))

    def scatter(self, node: Node, sources: Sequence[Value]) -> Value:
        """Local along other axes; sums of what several devices add are terms, the base being one of them."""
        base, index, x = (self.layouts.summed(source) for source in sources)
        axis = node.arg
        split = self._split_of([base, index, x], lambda own: own != axis)
        if split is not None:
            return self._made(node, split, self._alike([base, index, x], split))
        along = self._split_of([index, x])
        if node.op is Op.SCATTER or along is None:
            return self._everywhere(node, [base, index, x])
        index, x = self._alike([index, x], along)
        first = self.layouts.whole(base)
        zero = filled(0.0 if node.dtype.is_float else 0, node.shape, node.dtype)
        bases = (first.nodes[0], *[zero] * (self.count - 1))
        return self._made(node, SUM, [Value(None, base.shape, bases), index, x])

    def same(self, node: Node, sources: Sequence[Value]) -> Value:
        """DETACH and FUNCTION: what it is made of, for gradients have been taken; so it is exchanged once for both."""
        return sources[0]

    def contiguous(self, node: Node, sources: Sequence[Value]) -> Value:
        """In memory: terms are added."""
        x = self.layouts.summed(sources[0])
        return self._made(node, x.layout, [x])

    def routine(self, node: Node, sources: Sequence[Value]) -> Value:
        """A matrix is taken apart whole; a program of one's own is launched on parts where its user says so."""
        if isinstance(node.arg, Routine):
            return self._everywhere(node, sources)
        from hcq.frontend.devices.sharding import own_programs

        return own_programs.placed(self, node, sources)

    def copy(self, node: Node, sources: Sequence[Value]) -> Value:
        """Another placement on the same group."""
        place, x = node.arg, sources[0]
        if not isinstance(place, Placement):
            return x
        if place.axis is None or not x.shape:
            return self.layouts.whole(x)
        split = split_evenly("shard", x.shape, place.axis, self.layouts.devices)
        return self.layouts.to(x, split)

    def assign(self, node: Node, sources: Sequence[Value]) -> Value:
        """The value is placed as the memory is."""
        view, value = sources
        target = node.src[0]
        while target.op in MOVEMENT or target.op is Op.DETACH:
            target = target.src[0]
        nodes = []
        if isinstance(view.layout, Partial) or any(
            _base(own).op not in (Op.BUFFER, Op.ASSIGN) for own in view.nodes
        ):
            raise self._refused_part(node)
        value = self.layouts.to(value, view.layout if value.shape else None)
        for own, new in zip(view.nodes, value.nodes):
            nodes.append(Node(Op.ASSIGN, node.dtype, (own, new)))
        layout = _layout_of(target, view)
        for rank, made in enumerate(nodes):
            wanted = node.shape if layout is None else layout.shape(node.shape, rank)
            if made.shape != wanted:
                raise self._refused_part(node)
        return Value(layout, node.shape, tuple(nodes))

    def _refused_part(self, node: Node) -> UsageError:
        return UsageError(
            f"[assign] a part of shape {node.src[0].shape} of a tensor {node.shape} that is split over "
            f"the group: the part is not the same rows of every device. Assign the whole tensor, "
            "or choose the parts with where()."
        )


def _base(view: Node) -> Node:
    while view.op in MOVEMENT or view.op is Op.DETACH:
        view = view.src[0]
    return view


def _layout_of(target: Node, view: Value) -> Split | None:
    """The layout of the memory under an assigned view."""
    while target.op is Op.ASSIGN:
        target = _base(target.src[0])
    split: Split | None = target.arg.split
    return split


_RULES: dict[Op, Callable[[Rules, Node, Sequence[Value]], Value]] = {
    **dict.fromkeys(ARITHMETIC, Rules.elementwise),
    **dict.fromkeys(SCATTERS, Rules.scatter),
    Op.RESHAPE: Rules.reshape,
    Op.PERMUTE: Rules.permute,
    Op.EXPAND: Rules.expand,
    Op.PAD: Rules.pad,
    Op.SHRINK: Rules.shrink,
    Op.FLIP: Rules.flip,
    Op.WINDOW: Rules.window,
    Op.UNWINDOW: Rules.window,
    Op.REDUCE_AXIS: Rules.reduce,
    Op.SCAN_AXIS: Rules.beside,
    Op.CAT: Rules.beside,
    Op.GATHER: Rules.gather,
    Op.DETACH: Rules.same,
    Op.CONTIGUOUS: Rules.contiguous,
    Op.FUNCTION: Rules.same,
    Op.ROUTINE: Rules.routine,
    Op.COPY: Rules.copy,
    Op.ASSIGN: Rules.assign,
}
