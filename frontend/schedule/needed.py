"""Needed: of which values only the first so many elements along an axis are read, as a count says.

In       simplified roots, and for each root the counts of its axes (core/sizes.py)
Out      for each node the axes along which nobody needs what is beyond a count
Next     schedule.py (whose stores say so), compiler/linear/limits.py (loops that end there)

    scores = q @ k.T                                  nobody needs more than n of them, because
    top = max(where(place < n, scores, -inf))         each user chooses them by a mask,
    weights = where(place < n, exp(scores - top), 0)  or is needed so far itself

From users to sources: a mask needs its value where it holds; elements of other operations need theirs.
"""

from __future__ import annotations

from collections.abc import Sequence

from hcq.frontend.core.sizes import Counts
from hcq.ir.logic import flatten
from hcq.ir.node import Node, Shape, toposort
from hcq.ir.op import ARITHMETIC, Op

Needs = dict[int, Node]  # axis -> count


def needed_of(roots: Sequence[Node], counts: Sequence[Counts]) -> dict[Node, Needs]:
    """For each node the counts beyond which nothing is needed; an axis without one is needed as a whole."""
    order = toposort(roots)
    found: dict[Node, Needs] = {}

    def note(node: Node, needs: Needs) -> None:
        known = found.get(node)
        found[node] = (
            needs
            if known is None
            else {axis: count for axis, count in known.items() if needs.get(axis) is count}
        )

    for root, own in zip(roots, counts, strict=True):
        note(root, dict(own))
    for node in reversed(order):
        needs = found.get(node, {})
        for place, source in enumerate(node.src):
            note(source, _below(node, place, source, needs))
    return found


def _below(node: Node, place: int, source: Node, needs: Needs) -> Needs:
    """What a node that is needed so far needs of a source."""
    op, arg = node.op, node.arg
    if op in ARITHMETIC:
        if source.shape != node.shape:
            return {}
        return needs | _chosen_by(node.src[0]) if op is Op.WHERE and place == 1 else needs
    if op is Op.RESHAPE:
        return _through(source.shape, node.shape, needs)
    if op is Op.PERMUTE:
        return {arg[axis]: count for axis, count in needs.items()}
    if op is Op.EXPAND:
        return {axis: count for axis, count in needs.items() if source.shape[axis] == node.shape[axis]}
    if op is Op.SHRINK:
        return {a: count for a, count in needs.items() if arg[a] == (0, source.shape[a], 1)}
    if op is Op.PAD:
        return {axis: count for axis, count in needs.items() if arg[axis] == (0, 0)}
    if op is Op.FLIP:
        return {axis: count for axis, count in needs.items() if axis not in arg}
    if op is Op.REDUCE_AXIS:
        return {axis: count for axis, count in needs.items() if axis not in arg[1]}
    if op is Op.GATHER:
        return {axis: count for axis, count in needs.items() if place or axis != arg}
    return needs if op is Op.CONTIGUOUS and arg is None else {}


def _chosen_by(condition: Node) -> Needs:
    """The counts that a mask has: `place < n`, maybe with other conditions."""
    found: Needs = {}
    for part in flatten(Op.AND, (condition,)):
        if part.op is Op.CMPLT and not part.src[1].shape and part.src[1].op is not Op.CONST:
            axis = _axis_of_places(part.src[0])
            if axis is not None:
                found[axis] = part.src[1]
    return found


def _axis_of_places(node: Node) -> int | None:
    """The axis along which a value is 0, 1, 2, ..., everywhere alike; None for other values."""
    views = []
    while node.op in (Op.EXPAND, Op.RESHAPE, Op.PERMUTE, Op.CAST):
        views.append(node)
        node = node.src[0]
    if node.op is not Op.IOTA or node.arg < 2:
        return None
    axis = 0
    for view in reversed(views):
        if view.op is Op.RESHAPE:
            places = [at for at, size in enumerate(view.shape) if size > 1]
            if len(places) != 1 or view.src[0].shape[axis] != view.shape[places[0]]:
                return None
            axis = places[0]
        elif view.op is Op.PERMUTE:
            axis = view.arg.index(axis)
    return axis


def _through(old: Shape, new: Shape, needs: Needs) -> Needs:
    """What is needed before a reshape: of axes that stay as they are."""
    if 0 in old:
        return {}
    found: Needs = {}
    i = j = 0
    before = after = 1  # elements of all axes so far
    while i < len(old) and j < len(new):
        if before == after and old[i] == new[j] and old[i] > 1:
            if j in needs:
                found[i] = needs[j]
            before *= old[i]
            after *= new[j]
            i, j = i + 1, j + 1
        elif old[i] == 1:
            i += 1
        elif new[j] == 1:
            j += 1
        elif before * old[i] <= after * new[j]:
            before *= old[i]
            i += 1
        else:
            after *= new[j]
            j += 1
    return found
