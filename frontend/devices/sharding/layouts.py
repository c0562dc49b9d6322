"""Layouts: a value as each device of a group has it, and how one layout becomes another.

In       a value: its layout, and one node per device
Out      the same value in another layout; the exchanges that this needs
Changes  the list of exchanges of a `Layouts`
Next     rules.py (which layouts an op takes and gives), collectives/ (how an exchange is done)

Nothing is exchanged to take a part of what is everywhere. Everything else is one of four exchanges, each over flat
memory, so that no step of them knows of axes: the order of elements before and after is made by nodes here.

    from      to        exchange
    Partial   whole     all-reduce
    Partial   Split     reduce-scatter
    Split     whole     all-gather
    Split     Split     all-to-all
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import NamedTuple

from hcq.frontend.core.nodes import joined, padded, reshaped, shrunk
from hcq.frontend.core.storage import Storage
from hcq.frontend.devices.sharding.placement import Layout, Partial, Split
from hcq.ir.dtype import DType
from hcq.ir.node import Node, Shape
from hcq.ir.op import Op

ALIGNED = 64  # elements: where a term of a sum may begin, for kernels read whole lines


class Value(NamedTuple):
    """A value of the graph: its layout and shape, and what each device computes for it."""

    layout: Layout
    shape: Shape
    nodes: tuple[Node, ...]


class Exchange(NamedTuple):
    """What devices send each other, over flat memory.

    kind     "all-reduce", "reduce-scatter", "all-gather" or "all-to-all"
    op       what terms are joined by; None where nothing is reduced
    counts   elements by sender and receiver: [i][j] go from device i to device j
    sources  per device, what it gives: what goes to the first device, then what goes to the second, ...
    results  per device, the memory it gets: what came from the first device, ...
    """

    kind: str
    op: Op | None
    dtype: DType
    counts: tuple[tuple[int, ...], ...]
    sources: tuple[Node, ...]
    results: tuple[Storage, ...]

    @property
    def size_bytes(self) -> int:
        """Bytes that the largest source has."""
        return max(prod(source.shape) for source in self.sources) * self.dtype.itemsize

    def __str__(self) -> str:
        op = "" if self.op is None else f" {self.op.name}"
        return f"{self.kind}{op} of {self.size_bytes} bytes of {self.dtype.name}"


class Layouts:
    """Conversions between layouts on one group. `exchanges`: those that were needed, in an order that works."""

    def __init__(self, devices: Sequence[str]) -> None:
        self.devices = tuple(devices)
        self.count = len(self.devices)
        self.exchanges: list[Exchange] = []
        self._sources: set[Node] = set()
        self._known: dict[tuple[Value, Layout], Value] = {}

    def to(self, value: Value, layout: Layout) -> Value:
        """The value in that layout, which is not Partial."""
        if value.layout == layout:
            return value
        known = self._known.get((value, layout))
        if known is None:
            known = self._known[value, layout] = self._convert(value, layout)
        return known

    def whole(self, value: Value) -> Value:
        """On every device."""
        return self.to(value, None)

    def summed(self, value: Value) -> Value:
        """As it is, unless it is in terms."""
        return self.whole(value) if isinstance(value.layout, Partial) else value

    def _convert(self, value: Value, layout: Layout) -> Value:
        if 0 in value.shape:
            raise AssertionError("a value of no elements is whole")
        have = value.layout
        if isinstance(layout, Split):
            if have is None:
                return Value(layout, value.shape, self._cut(value, layout))
            if isinstance(have, Partial):
                return self._reduce_scatter(value, have, layout)
            return self._all_to_all(value, have, layout)
        if isinstance(have, Partial):
            return self._all_reduce(value, have)
        assert isinstance(have, Split)
        return self._all_gather(value, have)

    def _cut(self, value: Value, layout: Split) -> tuple[Node, ...]:
        return tuple(part_of(node, layout, rank) for rank, node in enumerate(value.nodes))

    def _exchange(
        self, kind: str, op: Op | None, counts: Sequence[Sequence[int]], sources: Sequence[Node]
    ) -> list[Node]:
        """What each device gets, flat."""
        dtype = sources[0].dtype
        if kind == "all-reduce":
            gets = [counts[0][0]] * self.count
        elif kind == "reduce-scatter":
            gets = [counts[0][rank] for rank in range(self.count)]
        else:
            gets = [sum(row[rank] for row in counts) for rank in range(self.count)]
        results = tuple(Storage(name, dtype, (n,)) for name, n in zip(self.devices, gets))
        # memory of their own: what is reduced is reduced in place
        own = tuple(self._own(source) for source in sources)
        self.exchanges.append(Exchange(kind, op, dtype, tuple(map(tuple, counts)), own, results))
        return [storage.node() for storage in results]

    def _own(self, source: Node) -> Node:
        node = source
        while node is source or node in self._sources:
            node = Node(Op.CONTIGUOUS, node.dtype, (node,))
        self._sources.add(node)
        return node

    def _all_reduce(self, value: Value, have: Partial) -> Value:
        size = prod(value.shape)
        counts = [[size] * self.count] * self.count
        flat = self._exchange("all-reduce", have.op, counts, [reshaped(n, (size,)) for n in value.nodes])
        return Value(None, value.shape, tuple(reshaped(node, value.shape) for node in flat))

    def _reduce_scatter(self, value: Value, have: Partial, layout: Split) -> Value:
        sizes = [prod(layout.shape(value.shape, rank)) for rank in range(self.count)]
        aligned = [-(-size // ALIGNED) * ALIGNED for size in sizes[:-1]] + sizes[-1:]
        sources = []
        for node in value.nodes:
            parts = [reshaped(part_of(node, layout, rank), (sizes[rank],)) for rank in range(self.count)]
            parts = [padded(part, ((0, aligned[rank] - sizes[rank]),)) for rank, part in enumerate(parts)]
            sources.append(joined(parts, 0) if layout.axis or aligned != sizes else _flat(node))
        flat = self._exchange("reduce-scatter", have.op, [aligned] * self.count, sources)
        nodes = [
            reshaped(shrunk(node, ((0, sizes[rank], 1),)), layout.shape(value.shape, rank))
            for rank, node in enumerate(flat)
        ]
        return Value(layout, value.shape, tuple(nodes))

    def _all_gather(self, value: Value, have: Split) -> Value:
        sizes = [prod(node.shape) for node in value.nodes]
        counts = [[size] * self.count for size in sizes]
        flat = self._exchange("all-gather", None, counts, [_flat(node) for node in value.nodes])
        shapes = [node.shape for node in value.nodes]
        return Value(
            None,
            value.shape,
            tuple(_rejoined(node, [each for each in shapes if 0 not in each], have.axis) for node in flat),
        )

    def _all_to_all(self, value: Value, have: Split, layout: Split) -> Value:
        sources: list[Node] = []
        counts: list[list[int]] = []
        for node in value.nodes:
            if layout.axis == have.axis:
                parts = _moved(node, value, have, layout, len(sources))
            else:
                parts = [part_of(node, layout, rank) for rank in range(self.count)]
            counts.append([prod(part.shape) for part in parts])
            sources.append(joined([_flat(part) for part in parts if 0 not in part.shape], 0))
        nodes = []
        for rank, node in enumerate(self._exchange("all-to-all", None, counts, sources)):
            whole = layout.shape(value.shape, rank)
            inner = prod(whole) // whole[have.axis] if layout.axis == have.axis else 0
            lengths = [counts[sender][rank] // inner for sender in range(self.count)] if inner else have.sizes
            shapes = [(*whole[: have.axis], n, *whole[have.axis + 1 :]) for n in lengths if n]
            nodes.append(_rejoined(node, shapes, have.axis))
        return Value(layout, value.shape, tuple(nodes))


def part_of(node: Node, layout: Split, rank: int) -> Node:
    """What one device has of a node that has everything."""
    start = layout.start(rank)
    parts = [(0, size, 1) for size in node.shape]
    parts[layout.axis] = (start, start + layout.sizes[rank], 1)
    return shrunk(node, tuple(parts))


def _moved(node: Node, value: Value, have: Split, layout: Split, rank: int) -> list[Node]:
    """What of one device's part each device gets, where the same axis is split otherwise."""
    start = have.start(rank)
    found = []
    for receiver in range(len(layout.sizes)):
        low = min(max(layout.start(receiver) - start, 0), have.sizes[rank])
        high = min(max(layout.start(receiver + 1) - start, 0), have.sizes[rank])
        parts = [(0, size, 1) for size in node.shape]
        parts[have.axis] = (low, max(low, high), 1)
        found.append(shrunk(node, tuple(parts)))
    return found


def _flat(node: Node) -> Node:
    return reshaped(node, (prod(node.shape),))


def _rejoined(node: Node, shapes: Sequence[Shape], axis: int) -> Node:
    """Parts that lie flat one after the other, as one node joined along an axis."""
    if prod(shapes[0][:axis]) == 1:
        whole = list(shapes[0])
        whole[axis] = sum(shape[axis] for shape in shapes)
        return reshaped(node, tuple(whole))
    parts, at = [], 0
    for shape in shapes:
        size = prod(shape)
        parts.append(reshaped(shrunk(node, ((at, at + size, 1),)), shape))
        at += size
    return joined(parts, axis)
