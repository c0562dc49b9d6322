"""Splitting: a kernel that reads more buffers than a launch takes becomes several.

In       the walk of walk.py: which kernels compute a node, and for what
Out      nodes to put in memory, so that no kernel has more than its share
Next     fuse.py, which walks again with these in memory

From the sources up, each node of such a kernel counts the buffers below it; where they are too many, the source with
the most is put in memory and counts as one from there on. A sum of thousands of tensors so becomes a chain of kernels
alike, each of which adds its share to what the one before left; the order of additions stays what it was.

A kernel of very many operations is cut as well, where few values are alive: its code grows linearly
with them, a compiler's time does not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from hcq.ir.elementwise.table import COSTLY
from hcq.ir.node import Node
from hcq.ir.op import ARITHMETIC, MOVEMENT, Op

MAX_OPERATIONS = 512  # of a kernel that can be cut
MAX_ALIVE = 16  # values across a cut
# many instructions each, or a condition on all that is read below
_LONG = COSTLY | {Op.PAD, Op.UNWINDOW, Op.REDUCE_AXIS}


def too_much(
    order: Sequence[Node],
    kernels_of: Callable[[Node], Iterable[Node]],
    in_memory: Callable[[Node], bool],
    most: int,
) -> frozenset[Node]:
    """The nodes to put in memory, none when every kernel is small enough.

    order       all nodes, sources first
    kernels_of  the kernels that compute or read a node
    in_memory   whether a node is in memory already
    most        how many buffers a kernel reads
    """
    reads: dict[Node, int] = {}
    operations: dict[Node, int] = {}
    for node in order:
        counts = reads if in_memory(node) else operations
        add = 1 if in_memory(node) else _operations(node)
        for kernel in kernels_of(node):
            counts[kernel] = counts.get(kernel, 0) + add
    crowded = {k for k, count in reads.items() if count > most and k.op is not Op.CAT}
    long = {k for k, count in operations.items() if count > MAX_OPERATIONS} - crowded
    if not crowded and not long:
        return frozenset()
    insides: dict[Node, list[Node]] = {kernel: [] for kernel in order if kernel in crowded or kernel in long}
    for node in order:
        for kernel in kernels_of(node):
            if kernel in insides and (kernel is node or not in_memory(node)):
                insides[kernel].append(node)
        if node in insides and (not insides[node] or insides[node][-1] is not node):
            insides[node].append(node)
    found: set[Node] = set()
    for kernel, inside in insides.items():
        found |= _by_arguments(inside, most) if kernel in crowded else _by_operations(inside)
    return frozenset(found)


def _operations(node: Node) -> int:
    if node.op is Op.GATHER:
        return 32  # nested ones know more with each turn: work grows faster than their number
    if node.op in _LONG:
        return 16
    return 1 if node.op in ARITHMETIC or node.op in MOVEMENT else 0


def _by_arguments(inside: Sequence[Node], most_read: int) -> set[Node]:
    """Nodes of one kernel to put in memory, so that none is computed from too many buffers."""
    found: set[Node] = set()
    below: dict[Node, frozenset[Node]] = {}  # node of the kernel -> what is read for it

    def read_for(source: Node) -> frozenset[Node]:
        if source.op in (Op.CONST, Op.IOTA):
            return frozenset()
        return below.get(source) or frozenset((source,))

    for node in inside:
        parts = [read_for(source) for source in node.src]
        whole = frozenset().union(*parts)
        while len(whole) > most_read and max(map(len, parts)) > 1:
            most = max(range(len(parts)), key=lambda i: len(parts[i]))
            cut = node.src[most]
            while cut.op in MOVEMENT and cut.src[0] in below:
                cut = cut.src[0]
            found.add(cut)
            parts[most] = frozenset((cut,))
            below[cut] = parts[most]
            whole = frozenset().union(*parts)
        below[node] = whole
    return found


def _by_operations(inside: Sequence[Node]) -> set[Node]:
    """Nodes of one kernel to put in memory, so that no part of it is very long."""
    place = {node: i for i, node in enumerate(inside)}
    last = {}  # node -> the place of its last user
    for i, node in enumerate(inside):
        for source in node.src:
            if source in place:
                last[source] = i
    found: set[Node] = set()
    alive: dict[Node, None] = {}
    spent = 0
    best: tuple[int, list[Node]] | None = None
    for i, node in enumerate(inside[:-1]):
        for source in node.src:
            if last.get(source) == i:
                alive.pop(source, None)
        if last.get(node, -1) > i:
            alive[node] = None
        spent += _operations(node)
        if (
            spent > MAX_OPERATIONS // 2
            and len(alive) <= MAX_ALIVE
            and (best is None or len(alive) <= best[0])
        ):
            best = len(alive), list(alive)
        if spent > MAX_OPERATIONS and best is not None:
            for value in best[1]:
                while value.op in MOVEMENT and value.src[0] in place:
                    value = value.src[0]
                if value.op not in (Op.CONST, Op.IOTA):
                    found.add(value)
            spent, best = 0, None
    return found
