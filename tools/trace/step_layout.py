"""Step layout: layers and places for the nodes of a graph without circles, so that edges run downward and cross little.

In       how many nodes, the edges between them by number, which of them are inputs
Out      a Layout: for each node a layer and a place, for each edge the points it goes through
Next     step_graph.py (whose nodes these are), page/step_graph.js (draws boxes of BOX_WIDE by BOX_TALL there)

A node stands one layer below the lowest of its sources, an input right above the first that reads it. A layer that is
too wide becomes several. An edge over several layers gets a place in each, shared by all edges from one node. Then each
layer is sorted by where its neighbours stand, and its nodes move as near to these as their order allows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

BOX_WIDE, BOX_TALL = 168, 40
GAP_WIDE, GAP_TALL = 22, 46
BEND_WIDE = 10  # of an edge that passes through a layer
WIDEST = 12  # nodes side by side
SWEEPS = 6
Pair = tuple[int, int]


@dataclass(frozen=True)
class Layout:
    """Places are centres, in pixels from the upper left corner of the whole."""

    layers: list[int]
    places: list[tuple[float, float]]
    routes: dict[Pair, list[tuple[float, float]]]
    width: float
    height: float


def layers_of(count: int, edges: Sequence[Pair], inputs: frozenset[int] | set[int]) -> list[int]:
    """A layer for every node, so that every edge goes to a later one.

    Raises  ValueError for edges in a circle
    """
    layers = _longest_paths(count, edges)
    first: dict[int, int] = {}
    for source, target in edges:
        if source in inputs:
            first[source] = min(first.get(source, layers[target]), layers[target])
    for node, layer in first.items():
        layers[node] = layer - 1
    return _narrowed(layers)


def _longest_paths(count: int, edges: Sequence[Pair]) -> list[int]:
    after: list[list[int]] = [[] for _ in range(count)]
    missing = [0] * count
    for source, target in edges:
        after[source].append(target)
        missing[target] += 1
    layers = [0] * count
    ready = [node for node in range(count) if not missing[node]]
    done = 0
    while ready:
        node = ready.pop()
        done += 1
        for target in after[node]:
            layers[target] = max(layers[target], layers[node] + 1)
            missing[target] -= 1
            if not missing[target]:
                ready.append(target)
    if done < count:
        raise ValueError(f"step_layout: {count - done} of {count} nodes are in a circle")
    return layers


def _narrowed(layers: Sequence[int]) -> list[int]:
    """The same order of layers, none with more than WIDEST nodes, and none empty."""
    members: dict[int, list[int]] = {}
    for node, layer in enumerate(layers):
        members.setdefault(layer, []).append(node)
    found = [0] * len(layers)
    at = 0
    for layer in sorted(members):
        nodes = members[layer]
        rows = -(-len(nodes) // WIDEST)
        size = -(-len(nodes) // rows)
        for place_in_layer, node in enumerate(nodes):
            found[node] = at + place_in_layer // size
        at += rows
    return found


def place(count: int, edges: Sequence[Pair], inputs: set[int]) -> Layout:
    """Layers, places and routes of a graph. Raises ValueError for edges in a circle."""
    layers = layers_of(count, edges, inputs)
    if not count:
        return Layout([], [], {}, 0, 0)
    rows: list[list[int]] = [[] for _ in range(max(layers) + 1)]
    for node, layer in enumerate(layers):
        rows[layer].append(node)
    # bends: a point for each layer that edges of one node pass through
    bends: dict[int, list[int]] = {}
    above: dict[int, list[int]] = {}
    below: dict[int, list[int]] = {}
    wide = [BOX_WIDE] * count
    chains: dict[Pair, list[int]] = {}

    def link(upper: int, lower: int) -> None:
        if upper not in above.setdefault(lower, []):
            above[lower].append(upper)
            below.setdefault(upper, []).append(lower)

    for source, target in edges:
        own = bends.setdefault(source, [])
        while len(own) < layers[target] - layers[source] - 1:
            rows[layers[source] + len(own) + 1].append(len(wide))
            link(own[-1] if own else source, len(wide))
            own.append(len(wide))
            wide.append(BEND_WIDE)
        chain = own[: layers[target] - layers[source] - 1]
        link(chain[-1] if chain else source, target)
        chains[source, target] = chain
    xs = _place_rows(rows, above, below, wide)
    left = min(x - wide[node] / 2 for node, x in enumerate(xs))
    right = max(x + wide[node] / 2 for node, x in enumerate(xs))
    step = BOX_TALL + GAP_TALL
    level = [0] * len(wide)
    for layer, row in enumerate(rows):
        for node in row:
            level[node] = layer
    points = [(round(xs[n] - left, 1), level[n] * step + BOX_TALL / 2) for n in range(len(wide))]
    routes = {pair: [points[node] for node in (pair[0], *chain, pair[1])] for pair, chain in chains.items()}
    return Layout(layers, points[:count], routes, round(right - left, 1), len(rows) * step - GAP_TALL)


def _place_rows(
    rows: list[list[int]], above: dict[int, list[int]], below: dict[int, list[int]], wide: Sequence[int]
) -> list[float]:
    """Sort every row by where its neighbours stand, then move nodes as near to these as their order allows."""
    xs = [0.0] * len(wide)
    for row in rows:
        _spread(row, [float(at) * BOX_WIDE for at in range(len(row))], wide, xs)
    for sweep in range(SWEEPS):
        is_down = sweep % 2 == 0
        neighbours = above if is_down else below
        for row in rows if is_down else reversed(rows):
            wanted = {node: _wanted(node, neighbours, xs) for node in row}
            row.sort(key=lambda node: wanted[node])
            _spread(row, [wanted[node] for node in row], wide, xs)
    for row in rows:  # at last, with an eye on both sides
        both = [_wanted(node, {node: above.get(node, []) + below.get(node, [])}, xs) for node in row]
        _spread(row, both, wide, xs)
    return xs


def _wanted(node: int, neighbours: dict[int, list[int]], xs: Sequence[float]) -> float:
    near = neighbours.get(node)
    return fmean(xs[other] for other in near) if near else xs[node]


def _spread(row: Sequence[int], wanted: Sequence[float], wide: Sequence[int], xs: list[float]) -> None:
    """Places in the order of the row, apart from each other, with the least squares from what is wanted."""
    offsets: list[float] = []
    for at, node in enumerate(row):
        before = row[at - 1]
        gap = 0 if not at else (wide[before] + wide[node]) / 2 + GAP_WIDE
        offsets.append((offsets[-1] if offsets else 0.0) + gap)
    blocks: list[tuple[float, int]] = []  # (mean, how many): neighbours that push each other move as one
    for value, offset in zip(wanted, offsets):
        mean, size = value - offset, 1
        while blocks and blocks[-1][0] > mean:
            other, more = blocks.pop()
            mean, size = (mean * size + other * more) / (size + more), size + more
        blocks.append((mean, size))
    at = 0
    for mean, size in blocks:
        for _ in range(size):
            xs[row[at]] = mean + offsets[at]
            at += 1
