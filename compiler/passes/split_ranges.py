"""Split ranges: a range that is only ever taken apart becomes the ranges of its parts.

In       a kernel-stage graph
Out      the same kernel with `r // 64` and `r % 64` over one range of 512 said as two ranges of 8 and 64
Next     lower_movement.py (where reshapes leave such quotients), ../loops/heuristic.py (merges ranges where it pays)

A quotient per element costs more than the element; as ranges of their own its parts are counted by the loops.
Reductions split at every divisor. An output splits only where the innermost part still fills vectors: shorter parts
are cheaper as quotients, which become numbers when lanes are written out.
"""

from __future__ import annotations

from hcq.ir.affine import linear
from hcq.ir.dtype import dtypes
from hcq.ir.node import Node, index, range_number, toposort
from hcq.ir.op import Op
from hcq.ir.rewrite import Notes, Pass, Step
from hcq.ir.symbolic import build

MIN_OUTPUT_PART = 8


def _split(sink: Node, target: object, notes: Notes) -> Node:
    """The kernel over the parts of its ranges; ranges are numbered anew, outputs first, in the order they had."""
    nodes = toposort((sink,))
    divisors: dict[Node, set[int]] = {}
    ranges: list[Node] = []
    reduced: set[Node] = set()
    for node in nodes:
        if node.op is Op.RANGE:
            ranges.append(node)
        elif node.op is Op.REDUCE:
            reduced.update(node.src[1:])
        elif node.op is Op.FLOORDIV or node.op is Op.MOD:
            _note(node, divisors)
    if not divisors:
        return sink
    ranges.sort(key=range_number)
    sizes = {place: _parts(place, divisors.get(place, set()), place in reduced) for place in ranges}
    if all(len(parts) == 1 for parts in sizes.values()):
        return sink
    mapping: dict[Node, Node] = {}
    made: dict[Node, tuple[Node, ...]] = {}
    number = 0
    for place in sorted(ranges, key=lambda node: (node in reduced, range_number(node))):
        parts = []
        for size in sizes[place]:
            arg = number if isinstance(place.arg, int) else (number, *place.arg[1:])
            parts.append(Node(Op.RANGE, dtypes.index, (index(size),), arg))
            number += 1
        stride = 1
        terms = []
        for part in reversed(parts):
            terms.append((part, stride))
            stride *= part.src[0].arg
        made[place] = tuple(parts)
        mapping[place] = linear(terms)
        if len(parts) > 1:
            notes("split-reduction" if place in reduced else "split-output", place, mapping[place])
    return _with_reductions(nodes, mapping, made)


def _note(node: Node, divisors: dict[Node, set[int]]) -> None:
    """`r // d` and `r % d` ask for a part of d; `r // d % m` for one of d * m as well."""
    inner, by = node.src
    if by.op is not Op.CONST:
        return
    step = 1
    if node.op is Op.MOD and inner.op is Op.FLOORDIV and inner.src[1].op is Op.CONST:
        inner, step = inner.src[0], inner.src[1].arg
    if inner.op is Op.RANGE:
        divisors.setdefault(inner, set()).update({step, step * by.arg} - {1})


def _parts(place: Node, divisors: set[int], is_reduced: bool) -> list[int]:
    """Sizes, outermost first; divisors that do not nest in the ones taken are left as quotients."""
    size = place.src[0].arg
    if not isinstance(place.arg, int):
        return [size]
    parts: list[int] = []
    whole = size
    for divisor in sorted(divisors, reverse=True):
        if 1 < divisor < whole and whole % divisor == 0 and (is_reduced or divisor >= MIN_OUTPUT_PART):
            parts.append(whole // divisor)
            whole = divisor
    return [*parts, whole]


def _with_reductions(
    nodes: list[Node], mapping: dict[Node, Node], made: dict[Node, tuple[Node, ...]]
) -> Node:
    """Replace the ranges; a reduction over one becomes a reduction over its parts."""
    new = dict(mapping)
    for node in nodes:
        if node in new:
            continue
        if node.op is Op.REDUCE:
            over = [part for place in node.src[1:] for part in made[place]]
            new[node] = Node(Op.REDUCE, node.dtype, (new[node.src[0]], *over), node.arg)
        else:
            new[node] = build(node.op, node, tuple([new[source] for source in node.src]))
    return new[nodes[-1]]


split_ranges = Pass(
    "split-ranges",
    "axes that a view merged are counted by loops, not divided apart",
    [
        Step("split-reduction", "r -> r'*d + r'' where r // d or r % d is asked for"),
        Step("split-output", f"the same, where d is at least {MIN_OUTPUT_PART}"),
    ],
    _split,
)
