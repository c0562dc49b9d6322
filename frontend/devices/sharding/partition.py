"""Partition: a graph over a group of devices becomes one graph per device, and the exchanges between them.

In       roots of a graph whose leaves are sharded storages
Out      a `Partition`: per root its value on every device; stages of what is computed and what is exchanged
Next     rules.py (one op), plan.py (who runs the stages)

    stage 0     each device computes what no exchange comes before: roots, and the sources of exchanges
    exchange    those whose sources are there
    stage 1     what they were needed for, and so on

What a later stage needs of an earlier one stays in memory in between, so nothing is computed twice. A write in place
belongs to the last stage that reads what was there before.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from hcq.errors import UsageError
from hcq.frontend.core.sizes import without_counts
from hcq.frontend.devices.sharding.layouts import Exchange, Layouts, Value
from hcq.frontend.devices.sharding.rules import Rules
from hcq.frontend.devices.sharding.storage import ShardedStorage
from hcq.ir.node import Node, toposort
from hcq.ir.op import MOVEMENT, Op

_NO_MEMORY = frozenset({Op.BUFFER, Op.CONST, Op.IOTA})


class Stage(NamedTuple):
    """What is computed between two rounds of exchanges.

    roots      per device, what gets memory: sources of the exchanges first, in their order
    exchanges  what happens when they are there
    """

    roots: tuple[tuple[Node, ...], ...]
    exchanges: tuple[Exchange, ...]


class Partition(NamedTuple):
    """A graph, divided.

    values  per root, what it is on every device
    stages  in their order
    notes   what had to be gathered
    """

    values: tuple[Value, ...]
    stages: tuple[Stage, ...]
    notes: tuple[str, ...]


def partition(group: str, devices: Sequence[str], roots: Sequence[Node]) -> Partition:
    """Divide a graph.

    Raises  UsageError for memory of another device, and for a write that is not local
    """
    layouts = Layouts(devices)
    rules = Rules(layouts)
    known: dict[Node, Value] = {}
    roots = without_counts(roots)
    for node in toposort(roots):
        if node.op is Op.BUFFER:
            known[node] = _leaf(group, node)
        elif node.op in _NO_MEMORY:
            known[node] = Value(None, node.shape, (node,) * len(devices))
        else:
            known[node] = rules.apply(node, [known[source] for source in node.src])
    values: list[Value] = []
    taken: set[Node] = set()
    for root in roots:
        value = layouts.summed(known[root])
        received = {storage.node() for each in layouts.exchanges for storage in each.results}
        nodes = []
        for node in value.nodes:
            base = unreshaped(node)
            if base in received and base not in taken:
                node = base  # what arrived is the root
            while (node in taken or (_is_view(node) and node not in received)) and node.op is not Op.ASSIGN:
                node = Node(Op.CONTIGUOUS, node.dtype, (node,))  # a root has memory of its own
            taken.add(node)
            nodes.append(node)
        values.append(value._replace(nodes=tuple(nodes)))
    return Partition(tuple(values), _stages(len(devices), values, layouts.exchanges), tuple(rules.notes))


def unreshaped(node: Node) -> Node:
    """What is under reshapes and cuts of the gradient: the same elements in the same order."""
    while node.op is Op.RESHAPE or node.op is Op.DETACH:
        node = node.src[0]
    return node


def _leaf(group: str, node: Node) -> Value:
    storage = node.arg
    if not isinstance(storage, ShardedStorage) or storage.device != group:
        raise UsageError(
            f"one tensor of shape {node.shape} is on {storage.device}, another on {group}. "
            f'Move one: x.shard("{group}").'
        )
    return Value(storage.split, node.shape, tuple([part.node() for part in storage.parts]))


def _is_view(node: Node) -> bool:
    """Whether it has no memory of its own to be: movement of what has, a leaf, or a number."""
    while node.op in MOVEMENT or node.op is Op.DETACH:
        node = node.src[0]
    return node.op in _NO_MEMORY or node.op is Op.ASSIGN


# -- stages ---------------------------------------------------------------------------------------------------------


def _stages(count: int, values: Sequence[Value], exchanges: Sequence[Exchange]) -> tuple[Stage, ...]:
    wanted = [node for value in values for node in value.nodes]
    wanted += [source for exchange in exchanges for source in exchange.sources]
    order = toposort(wanted)
    levels, exchange_levels = _levels(order, exchanges)
    last = max([*(level + 1 for level in exchange_levels), *(levels[n] for v in values for n in v.nodes), 0])
    roots: list[list[dict[Node, None]]] = [[{} for _ in range(count)] for _ in range(last + 1)]
    for exchange, level in zip(exchanges, exchange_levels):
        for rank, source in enumerate(exchange.sources):
            roots[level][rank][source] = None
    for value in values:
        for rank, node in enumerate(value.nodes):
            roots[levels[node]][rank][node] = None
    for rank in range(count):
        own = [value.nodes[rank] for value in values]
        own += [exchange.sources[rank] for exchange in exchanges]
        for node in toposort(own):
            for source in node.src:
                base = _base(source)
                if levels[base] < levels[node] and base.op not in _NO_MEMORY and _reads_memory(base):
                    roots[levels[base]][rank][base] = None
    by_level: list[list[Exchange]] = [[] for _ in range(last + 1)]
    for exchange, level in zip(exchanges, exchange_levels):
        by_level[level].append(exchange)
    return tuple(
        Stage(tuple(tuple(own) for own in per_device), tuple(later))
        for per_device, later in zip(roots, by_level)
    )


def _levels(order: Sequence[Node], exchanges: Sequence[Exchange]) -> tuple[dict[Node, int], list[int]]:
    """The stage of every node, and of every exchange."""
    made_by = {storage.node(): at for at, exchange in enumerate(exchanges) for storage in exchange.results}
    least: dict[Node, int] = {}  # of writes in place: not before their readers
    while True:
        levels: dict[Node, int] = {}
        exchange_levels = [0] * len(exchanges)
        pending = list(range(len(exchanges)))
        sources = [toposort(exchange.sources) for exchange in exchanges]
        for at in pending:  # an exchange comes after those that it needs
            for node in sources[at]:
                _level(node, levels, made_by, exchange_levels, least)
            exchange_levels[at] = max(levels[source] for source in exchanges[at].sources)
        for node in order:
            _level(node, levels, made_by, exchange_levels, least)
        raised = False
        readers: dict[Node, int] = {}
        for node in order:
            for source in node.src:
                leaf = _base(source)
                if leaf.op is Op.BUFFER and not (node.op in MOVEMENT or node.op is Op.DETACH):
                    readers[leaf] = max(readers.get(leaf, 0), levels[node])
        for node in order:
            if node.op is Op.ASSIGN:
                level = readers.get(_base(node.src[0]), 0)
                if level > levels[node]:
                    least[node] = level
                    raised = True
        if not raised:
            return levels, exchange_levels


def _level(
    node: Node,
    levels: dict[Node, int],
    made_by: dict[Node, int],
    exchange_levels: Sequence[int],
    least: dict[Node, int],
) -> None:
    if node in levels:
        return
    if node.op is Op.BUFFER:
        at = made_by.get(node)
        levels[node] = 0 if at is None else exchange_levels[at] + 1
    else:
        levels[node] = max([levels[source] for source in node.src] + [least.get(node, 0)])


def _base(node: Node) -> Node:
    while node.op in MOVEMENT or node.op is Op.DETACH:
        node = node.src[0]
    return node


def _reads_memory(node: Node) -> bool:
    return any(each.op is Op.BUFFER for each in node.toposort())
