"""Nested reductions: products of thin matrices that are computed again wherever they are used, and never kept.

In       the nodes of a simplified graph in order, what goes into memory anyway
Out      the nodes that no kernel may put in memory: such products, and all between them and the reductions above;
         and of these reductions what they fold
Next     walk.py (who asks), compiler/linear/nested.py (who writes such kernels), docs/architecture.md

The scores of attention, queries @ keys.T, have as many elements as there are pairs of queries and keys; queries and
keys together are far fewer. Whoever reads scores folds them again: the row's maximum, the sum of exponentials, the
product with the values, and the same backwards. So these kernels make the scores themselves, tile by tile, and memory
grows with the length of a sequence, not with its square.

    m = max(scores)                  each reduces the scores along the same axis: one kernel does all three,
    total = sum(exp(scores - m))     for what is weighted by exp(scores - m) can be added up while m is still
    exp(scores - m) / total @ v      growing (compiler/passes/online.py)

A maximum or a total that a kernel needs that walks the scores along another axis goes into memory, as it is small.
Gradients of keys and values fold the scores alike, so one kernel makes both of one set of scores.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from math import prod

from hcq.frontend.schedule.scores import SAVED, THIN, Fold
from hcq.ir.node import Node, Shape, toposort
from hcq.ir.op import ARITHMETIC, MOVEMENT, Op

_VIEWS = frozenset({Op.RESHAPE, Op.PERMUTE, Op.EXPAND, Op.FLIP})
Frame = tuple["int | None", ...]  # for each axis of the scores, the axis that runs along it


def nested(
    order: Sequence[Node], sums: Sequence[Node], in_memory: Collection[Node]
) -> tuple[frozenset[Node], dict[Node, Fold]]:
    """The nodes that are computed inside of reductions, although they are reductions or follow from one.

    sums  those of the nodes that scores.py says are too large to keep

    Beside them what the reductions above fold: kernels that fold the same axes of the same scores may be one.
    """
    users: dict[Node, list[Node]] = {node: [] for node in order}
    for node in order:
        for source in node.src:
            users[source].append(node)
    found: set[Node] = set()
    folds: dict[Node, Fold] = {}
    for scores in sums:
        if scores not in found:
            above, ends = _above(scores, users, in_memory)
            found |= above
            for end, axes in ends.items():
                folds.setdefault(end, (scores, axes))
    return frozenset(found), folds


def _above(
    scores: Node, users: dict[Node, list[Node]], in_memory: Collection[Node]
) -> tuple[set[Node], dict[Node, frozenset[int]]]:
    """The scores and what becomes of them below reductions; nothing where they are wanted for another purpose.

    Beside it, these reductions, and which axes of the scores each folds.
    """
    between: dict[Node, Frame] = {scores: tuple(range(len(scores.shape)))}
    ends: dict[Node, frozenset[int]] = {}  # reductions -> the axes of the scores that they fold
    stack = [scores]
    while stack:
        node = stack.pop()
        if not users[node]:
            return set(), {}
        for user in users[node]:
            if user in between or user in ends:
                continue
            frame = _frame_above(node, user, between[node])
            if user.op is Op.REDUCE_AXIS:
                if not _is_end(user, scores):
                    return set(), {}
                ends[user] = frozenset(i for i, axis in enumerate(frame) if axis in user.arg[1])
            elif user in in_memory or (user.op not in ARITHMETIC and user.op not in _VIEWS):
                return set(), {}
            else:
                between[user] = frame
                stack.append(user)
    in_one_pass = _in_one_pass(ends, between, users, in_memory)
    if not any(_meets_another(end, scores, between, in_one_pass) for end in ends):
        return set(), {}
    return set(between) | in_one_pass, {end: axes for end, axes in ends.items() if end not in in_one_pass}


def _meets_another(end: Node, scores: Node, between: Collection[Node], in_one_pass: set[Node]) -> bool:
    """Whether an end multiplies what became of the scores with a third operand, as attention does with its values.

    The loss of a classifier does not: on its way back, logits meet the operands that they were made of. To keep them
    is less work. Where the weights are made in the same pass, the third operand may be one of the two.
    """
    if prod(end.src[0].shape) <= prod(scores.shape):
        return False
    product = _base(end.src[0])
    if product.op is not Op.MUL:
        return False
    own = {_base(side) for factor in (_base(scores.src[0]),) for side in factor.src}
    others = {_base(side) for side in product.src if _base(side) not in between}
    return bool(others - own) or not in_one_pass.isdisjoint(toposort((product,)))


def _base(node: Node) -> Node:
    """What a view, or a cast, is of."""
    while node.op in MOVEMENT or node.op is Op.CAST:
        node = node.src[0]
    return node


def _is_end(node: Node, scores: Node) -> bool:
    size = prod(scores.shape)
    return prod(node.src[0].shape) <= THIN * size and SAVED * prod(node.shape) <= size


def _in_one_pass(
    ends: dict[Node, frozenset[int]],
    between: dict[Node, Frame],
    users: dict[Node, list[Node]],
    in_memory: Collection[Node],
) -> set[Node]:
    """The maxima, and the sums that follow them, that only kernels need which walk the scores along the same axes."""
    found: set[Node] = set()
    for top, axes in ends.items():
        if top.arg[0] is not Op.MAX:
            continue
        path = _path(top, ends, between, users, in_memory)
        if path is None or not axes:
            continue
        reached = [end for end in ends if any(source in path for source in end.src)]
        reached = [end for end in reached if end is not top]
        if not reached or any(ends[end] != axes for end in reached):
            continue
        found |= path
        for total in reached:
            after = _after([end for end in reached if end is not total], users, in_memory)
            along = _path(total, ends, between, users, in_memory, after)
            if along is None:
                continue
            readers = [end for end in ends if end is not total and any(s in along for s in end.src)]
            is_met = any(user in after for node in along for user in users[node])
            if (readers or is_met) and all(ends[end] == axes for end in readers):
                found |= along
    return found


def _after(ends: list[Node], users: dict[Node, list[Node]], in_memory: Collection[Node]) -> set[Node]:
    """What follows from reductions within their kernels."""
    found: set[Node] = set()
    stack = list(ends)
    while stack:
        node = stack.pop()
        for user in users[node] if node not in in_memory else ():
            if user not in found and (user.op in ARITHMETIC or user.op in _VIEWS):
                found.add(user)
                stack.append(user)
    return found


def _path(
    start: Node,
    ends: dict[Node, frozenset[int]],
    between: dict[Node, Frame],
    users: dict[Node, list[Node]],
    in_memory: Collection[Node],
    after: Collection[Node] = (),
) -> set[Node] | None:
    """A reduction and what follows from it, up to other reductions of the scores; None where it goes elsewhere.

    after   what follows from those others in their kernels: to be met there is the end as well
    What is put in memory under its own shape is no detour: that kernel makes it like the others.
    """
    found, stack = {start}, [start]
    while stack:
        node = stack.pop()
        for user in users[node]:
            is_own = user in in_memory and prod(user.shape) == prod(start.shape)
            if user in found or user in ends or user in after or is_own:
                continue
            if user in in_memory or (user.op not in ARITHMETIC and user.op not in _VIEWS):
                return None
            found.add(user)
            stack.append(user)
    return found


def _frame_above(node: Node, user: Node, frame: Frame) -> Frame:
    """Where the axes of the scores are in a user of `node`."""
    if user.op is Op.PERMUTE:
        place = {old: new for new, old in enumerate(user.arg)}
        return tuple([None if axis is None else place[axis] for axis in frame])
    if user.op is Op.RESHAPE:
        same = _same_axes(node.shape, user.shape)
        return tuple([None if axis is None else same.get(axis) for axis in frame])
    return frame


def _same_axes(old: Shape, new: Shape) -> dict[int, int]:
    """The axes that a reshape leaves alone, from both ends; axes of size 1 do not count."""
    a = [axis for axis, size in enumerate(old) if size > 1]
    b = [axis for axis, size in enumerate(new) if size > 1]
    same: dict[int, int] = {}
    while a and b and old[a[-1]] == new[b[-1]]:
        same[a.pop()] = b.pop()
    while a and b and old[a[0]] == new[b[0]]:
        same[a.pop(0)] = b.pop(0)
    return same
