"""Rules of sizes: what each operation makes of the sizes of its sources.

In       a node, and the sizes of its sources
Out      its own, for each axis; UsageError where elements from beyond a count would get in
Next     ../core/sizes.py (who asks, once a program has a variable)
"""

from __future__ import annotations

from math import prod
from typing import Any

from hcq.frontend.core.errors import UsageError
from hcq.frontend.core.sizes import FREE, PLAIN, Size, Sizes, inside, known_sizes, shape_of
from hcq.frontend.symbolic.variable import Bound, bound_of, place_of
from hcq.ir.node import Node, Shape
from hcq.ir.op import ARITHMETIC, Op


def sizes(node: Node) -> Sizes:
    """Those of a node whose sources have theirs in `known_sizes`. Raises UsageError for what mixes them up."""
    op, shape = node.op, node.shape
    if op is Op.CONST or op is Op.IOTA:
        return (FREE,) * len(shape)
    if not node.src:
        return (PLAIN,) * len(shape)
    own = known_sizes[node.src[0]]
    if op is Op.FIRST:
        return (*own[: node.arg], node.src[1], *own[node.arg + 1 :])
    if not any(isinstance(size, Node) for source in node.src for size in known_sizes[source]):
        return _without_counts(node)
    if op is Op.WHERE and node.src[2].op is Op.CONST:
        found = _joined(node)  # beyond the count that it is chosen by, a masked value is that number
        return tuple(
            [
                FREE if isinstance(size, Node) and node.src[0] is inside(shape, axis, size) else size
                for axis, size in enumerate(found)
            ]
        )
    if op in ARITHMETIC or op is Op.CAT or op is Op.ASSIGN:
        return _joined(node)
    rule = _RULES.get(op)
    if rule is None:
        return own
    return rule(node, own)


def _without_counts(node: Node) -> Sizes:
    """FREE where nothing is of one size alone."""
    op, shape = node.op, node.shape
    own = known_sizes[node.src[0]]
    if op in ARITHMETIC:
        return tuple(
            [
                PLAIN if any(known_sizes[s][axis] is PLAIN for s in node.src if s.shape) else FREE
                for axis in range(len(shape))
            ]
        )
    if op is Op.EXPAND:
        return tuple([FREE if a != b else size for a, b, size in zip(node.src[0].shape, shape, own)])
    if op is Op.RESHAPE:
        return _reshaped(node, own)
    if op is Op.PERMUTE:
        return tuple([own[axis] for axis in node.arg])
    if op is Op.REDUCE_AXIS:
        return tuple([FREE if axis in node.arg[1] else size for axis, size in enumerate(own)])
    if op is Op.WINDOW:
        return (*own, FREE)
    if op is Op.UNWINDOW:
        return own
    if all(size is FREE for source in node.src for size in known_sizes[source]):
        return (FREE,) * len(shape)
    return own if node.src[0].shape == shape else (PLAIN,) * len(shape)


def _joined(node: Node) -> Sizes:
    """Sizes meet element by element."""
    found = list(known_sizes[node.src[0]]) or [FREE] * len(node.shape)
    for source in node.src:
        if not source.shape:
            continue
        for axis, size in enumerate(known_sizes[source]):
            have = found[axis]
            if node.op is Op.CAT and axis == node.arg:
                _refuse_counts(node, axis, size, "what is joined behind it would have no fixed place")
                found[axis] = PLAIN
            elif have is FREE or source.shape[axis] == 1:
                found[axis] = size
            elif size is not FREE and size is not have:
                words = [_word(each, source.shape[axis]) for each in (have, size)]
                raise UsageError(
                    f"[{node.op.name.lower()}] axis {axis} is {words[0]} in one and {words[1]} in the other. "
                    f"Cut the longer one, as x[:{words[1] if have is PLAIN else words[0]}]."
                )
    if node.op is Op.ASSIGN:
        base = node.src[0]
        while base.shape != node.shape or base.op not in (Op.BUFFER, Op.ASSIGN):
            base = base.src[0]
        return known_sizes[base]
    return tuple(found)


def _reshaped(node: Node, own: Sizes) -> Sizes:
    """Axes are compared in runs of equal products; of merged ones only the outermost may have a count."""
    old, new = node.src[0].shape, node.shape
    found: list[Size] = [FREE if n == 1 else PLAIN for n in new]
    if 0 in old:
        return _of_nothing(old, new, own)
    i = j = 0
    while i < len(old) and j < len(new):
        mine, its = [i], [j]
        have, want = old[i], new[j]
        i, j = i + 1, j + 1
        while have != want:
            if have < want:
                mine.append(i)
                have *= old[i]
                i += 1
            else:
                its.append(j)
                want *= new[j]
                j += 1
        mine = [axis for axis in mine if old[axis] > 1]
        its = [axis for axis in its if new[axis] > 1]
        counts = [axis for axis in mine if isinstance(own[axis], Node)]
        if len(mine) == len(its) == 1:
            found[its[0]] = own[mine[0]]
        elif counts:
            size = own[counts[0]]
            inner = prod([old[axis] for axis in mine[1:]])
            rest = prod([new[axis] for axis in its[1:]])
            total = (bound_of(size) * inner).divided(rest) if counts == mine[:1] else None
            if total is None:
                raise UsageError(
                    f"[reshape] {shape_of(node.src[0])} to {new}: axis {counts[0]} has the size {bound_of(size)}, and "
                    "its elements would no longer be those of whole axes. Keep that axis, or put it first."
                )
            found[its[0]] = _times(size, inner, rest)
        elif mine and all(own[axis] is FREE for axis in mine):
            for axis in its:
                found[axis] = FREE
    return tuple(found)


def _of_nothing(old: Shape, new: Shape, own: Sizes) -> Sizes:
    """Of no elements: axes before and behind all that change are as they were, and the others go with any."""
    same = min(len(old), len(new))
    front = next((axis for axis in range(same) if old[axis] != new[axis]), same)
    back = next((axis for axis in range(same - front) if old[-1 - axis] != new[-1 - axis]), same - front)
    return (*own[:front], *[FREE] * (len(new) - front - back), *own[len(old) - back :])


def _times(count: Node, times: int, by: int) -> Node:
    """A count times a number, divided by another without a rest."""
    if count.op is Op.MUL and count.src[1].op is Op.CONST:
        times *= count.src[1].arg
        count = count.src[0]
    if times % by == 0:
        times //= by
        return count if times == 1 else count * times
    return (count * times) // by


def _expanded(node: Node, own: Sizes) -> Sizes:
    return tuple([FREE if a != b else size for a, b, size in zip(node.src[0].shape, node.shape, own)])


def _permuted(node: Node, own: Sizes) -> Sizes:
    return tuple([own[axis] for axis in node.arg])


def _padded(node: Node, own: Sizes) -> Sizes:
    for axis, (low, high) in enumerate(node.arg):
        if low or high:
            _refuse_counts(node, axis, own[axis], "the padding would stand beyond its elements")
    return own


def _shrunk(node: Node, own: Sizes) -> Sizes:
    found = list(own)
    for axis, (size, room, (start, stop, step)) in enumerate(zip(own, node.src[0].shape, node.arg)):
        if isinstance(size, Node) and (start, stop, step) != (0, room, 1):
            bound = bound_of(size)
            if stop > (bound.low if isinstance(bound, Bound) else bound):
                raise UsageError(
                    f"[slice] {start}:{stop} of axis {axis}, whose size {bound} may be as small as {bound.low}. "
                    f"Slice what it was cut from, or stop at a size that it has, such as {bound} - 1."
                )
            found[axis] = PLAIN
    return tuple(found)


def _flipped(node: Node, own: Sizes) -> Sizes:
    for axis in node.arg:
        _refuse_counts(node, axis, own[axis], "its last element has no fixed place")
    return own


def _windowed(node: Node, own: Sizes) -> Sizes:
    """So many whole windows count as the elements that count are enough for."""
    axis, size, step, dilation = node.arg
    found = own[axis]
    if node.op is Op.UNWINDOW:
        _refuse_counts(node, axis, found, "windows would reach beyond its elements")
        return own
    if isinstance(found, Node):
        rest = bound_of(found) - (dilation * (size - 1) + 1)
        if (rest.low if isinstance(rest, Bound) else rest) < 0:
            _refuse_counts(node, axis, found, "a window is longer than the least number of its elements")
        windows = rest // step + 1
        found = windows.node(place_of([found])) if isinstance(windows, Bound) else PLAIN
    return (*own[:axis], found, *own[axis + 1 :], FREE)


def _reduced(node: Node, own: Sizes) -> Sizes:
    op, axes = node.arg
    for axis in axes:
        size = own[axis]
        if isinstance(size, Node):
            _refuse_counts(node, axis, size, f"{op.name} would take what is beyond its elements")
    return tuple([FREE if axis in axes else size for axis, size in enumerate(own)])


def _gathered(node: Node, own: Sizes) -> Sizes:
    index, axis = node.src[1], node.arg
    if isinstance(own[axis], Node) and not (index.op is Op.WHERE or _spread_from(index).op is Op.WHERE):
        _refuse_counts(node, axis, own[axis], "places beyond its elements would be read")
    its = known_sizes[index]
    if isinstance(own[axis], Node) and its[axis] is FREE:  # places that are numbers pick so many elements
        its = (*its[:axis], PLAIN, *its[axis + 1 :])
    found = []
    for d, (mine, other) in enumerate(zip(own, its)):
        found.append(other if d == axis or mine is FREE or isinstance(other, Node) else mine)
        if d != axis and isinstance(mine, Node) and isinstance(other, Node) and mine is not other:
            _refuse_counts(node, d, mine, f"the index has {bound_of(other)} there")
        if d != axis and isinstance(other, Node) and mine is PLAIN:
            _refuse_counts(node, d, other, "what is indexed has another size there")
    return tuple(found)


def _scattered(node: Node, own: Sizes) -> Sizes:
    _, index, _ = node.src
    axis = node.arg
    _refuse_counts(node, axis, own[axis], "what is written may go beyond its elements")
    for d, size in enumerate(known_sizes[index]):
        if isinstance(size, Node):
            _refuse_counts(node, d, size, "what is beyond its elements would be written, too")
    for d, size in enumerate(known_sizes[node.src[2]]):
        if d != axis:
            _refuse_counts(node, d, size, "another number of elements is written there")
    return own


def _refused(node: Node, own: Sizes) -> Sizes:
    why = "a matrix is taken apart whole" if node.op is Op.ROUTINE else "the order is that of a whole axis"
    for axis, size in enumerate(own):
        _refuse_counts(node, axis, size, why)
    return (PLAIN,) * len(node.shape)


def _moved(node: Node, own: Sizes) -> Sizes:
    for axis, size in enumerate(own):
        _refuse_counts(node, axis, size, f"its number is not on {node.arg}. Move what it was cut from")
    return own


def _refuse_counts(node: Node, axis: int, size: Size, why: str) -> None:
    if isinstance(size, Node):
        raise UsageError(
            f"[{_NAMES.get(node.op, node.op.name.lower())}] axis {axis} has the size {bound_of(size)}, which is known "
            f"only when the work runs: {why}."
        )


def _word(size: Size, room: Any) -> str:
    return str(bound_of(size)) if isinstance(size, Node) else str(room)


def _spread_from(node: Node) -> Node:
    while node.op in (Op.RESHAPE, Op.EXPAND, Op.PERMUTE):
        node = node.src[0]
    return node


_NAMES = {
    Op.CAT: "cat",
    Op.PAD: "pad",
    Op.FLIP: "flip",
    Op.WINDOW: "unfold",
    Op.UNWINDOW: "fold",
    Op.REDUCE_AXIS: "reduce",
    Op.BUCKET: "sort",
    Op.ROUTINE: "linalg",
    Op.COPY: "to",
}
_RULES = {
    Op.RESHAPE: _reshaped,
    Op.EXPAND: _expanded,
    Op.PERMUTE: _permuted,
    Op.PAD: _padded,
    Op.SHRINK: _shrunk,
    Op.FLIP: _flipped,
    Op.WINDOW: _windowed,
    Op.UNWINDOW: _windowed,
    Op.REDUCE_AXIS: _reduced,
    Op.GATHER: _gathered,
    Op.SCATTER: _scattered,
    Op.SCATTER_ADD: _scattered,
    Op.BUCKET: _refused,
    Op.ROUTINE: _refused,
    Op.COPY: _moved,
}
