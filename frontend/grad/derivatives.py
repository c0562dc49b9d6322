"""Derivatives: for every op, what a small change of each source does to the result, as a graph.

In       a node and the gradient of a loss with respect to it
Out      the gradient with respect to one of its sources; `DERIVATIVES` holds one rule per op and source
Changes  nothing: rules build graphs, so a gradient can be differentiated again
Next     gradient.py (who walks a graph with these rules), hcq/ir/elementwise/ (the rules of arithmetic ops)

A rule is `rule(node, g) -> Node`: g and the result have the shapes of the node and of the source. Elementwise rules may
ignore that a source of shape () stands for every element: the walk sums their result. Two marks stand in for a rule:

    FLAT   the source is differentiable and its derivative is zero almost everywhere
    None   no gradient reaches this source: it is an integer, a condition, an index, or the op cuts on purpose
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from hcq.frontend.core.nodes import (
    expanded,
    filled,
    flipped,
    iota,
    padded,
    permuted,
    reduced,
    reshaped,
    shrunk,
    spread,
)
from hcq.frontend.core.sizes import unnamed_beyond, with_counts, zeroed
from hcq.ir.dtype import dtypes
from hcq.ir.elementwise.declaration import FLAT as FLAT  # exported, as the next ones: the words of every rule
from hcq.ir.elementwise.declaration import Flat as Flat
from hcq.ir.elementwise.declaration import Rule as Rule
from hcq.ir.elementwise.declaration import carrier as carrier
from hcq.ir.elementwise.declaration import over, times
from hcq.ir.elementwise.table import ELEMENTWISE
from hcq.ir.node import Node, Shape
from hcq.ir.op import Op

# -- building blocks ------------------------------------------------------------------------------------------------


def sum_to(node: Node, shape: Shape) -> Node:
    """The sum over what an implicit or explicit repetition from `shape` to the node's shape repeated."""
    own = node.shape
    if own == shape:
        return node
    if not shape:
        return reshaped(reduced(Op.ADD, node, range(len(own))), ())
    return reduced(Op.ADD, node, [axis for axis, (have, want) in enumerate(zip(own, shape)) if have != want])


def _same(node: Node, g: Node) -> Node:
    return g


# -- movement: each undoes the other --------------------------------------------------------------------------------


def _reshape(node: Node, g: Node) -> Node:
    return reshaped(g, node.src[0].shape)


def _permute(node: Node, g: Node) -> Node:
    order: tuple[int, ...] = node.arg
    return permuted(g, inverse(order))


def inverse(order: Sequence[int]) -> tuple[int, ...]:
    """The order of axes that undoes `order`."""
    return tuple(sorted(range(len(order)), key=order.__getitem__))


def _expand(node: Node, g: Node) -> Node:
    return sum_to(g, node.src[0].shape)


def _pad(node: Node, g: Node) -> Node:
    keep = tuple([(low, low + size, 1) for (low, _), size in zip(node.arg, node.src[0].shape)])
    return shrunk(g, keep)


def _shrink(node: Node, g: Node) -> Node:
    pads = []
    for axis, (size, (start, _, step)) in enumerate(zip(node.src[0].shape, node.arg)):
        g = spread(g, axis, step)
        pads.append((start, size - start - g.shape[axis]))
    return padded(g, tuple(pads))


def _flip(node: Node, g: Node) -> Node:
    return Node(Op.FLIP, g.dtype, (g,), node.arg)


def _window(node: Node, g: Node) -> Node:
    """Every place sums over the windows that read it."""
    axis, _, step, dilation = node.arg
    length = node.src[0].shape[axis]
    g = zeroed(g)
    places = Node(Op.UNWINDOW, g.dtype, (g,), (axis, length, step, dilation))
    return reshaped(reduced(Op.ADD, places, (len(places.shape) - 1,)), node.src[0].shape)


def _unwindow(node: Node, g: Node) -> Node:
    """x[.., o, .., k] = g[.., o*step + k*dilation, .., k]: windows of g, of which place k keeps place k."""
    axis, length, step, dilation = node.arg
    source = node.src[0].shape
    count, size = source[axis], source[-1]
    if 0 in source:
        return filled(0.0, source, g.dtype)
    # places beyond the length were dropped: they read zero here, and every window fits
    reach = (count - 1) * step + dilation * (size - 1) + 1
    g = padded(g, tuple([(0, max(0, reach - length) if i == axis else 0) for i in range(len(source))]))
    windows = Node(Op.WINDOW, g.dtype, (g,), (axis, size, step, dilation))
    kept = tuple([(0, count if i == axis else n, 1) for i, n in enumerate(windows.shape)])
    windows = shrunk(windows, kept)
    # the diagonal of the last two axes: of size*size places in a row, each (size + 1)th
    flat = reshaped(windows, (*source[:-1], size * size))
    diagonal = (*[(0, n, 1) for n in source[:-1]], (0, size * size, size + 1))
    return shrunk(flat, diagonal)


# -- values ---------------------------------------------------------------------------------------------------------


def _reduce(node: Node, g: Node) -> Node:
    op, axes = node.arg
    x = node.src[0]
    if op is Op.ADD:
        return expanded(g, x.shape)
    if op is Op.MUL:
        return times(expanded(g, x.shape), product_of_others(x, axes))
    return _reduce_extremum(op, x, node, axes, g)


def _reduce_extremum(op: Op, x: Node, result: Node, axes: Sequence[int], g: Node) -> Node:
    """Equal extremes share the gradient.

    The comparison is built twice, in two forms that are equal here: one with a single user is computed where it is
    used, one with two would be kept in memory, as large as x.
    """
    extreme = expanded(result, x.shape)
    counted = extreme <= x if op is Op.MAX else x <= extreme
    # as integers: 16-bit floats stop counting at 256 or 2048
    sharers = reduced(Op.ADD, counted.cast(dtypes.int32), axes)
    share = expanded(over(g, sharers), x.shape)
    return x.eq(extreme).where(share, 0.0)


_BLOCK = 16  # places whose products are formed pair by pair; longer rows are split into blocks of this size


def product_of_others(x: Node, axes: Sequence[int]) -> Node:
    """For each element, the product of all the others along `axes`: right with zeros, and at every order."""
    kept = [axis for axis in range(len(x.shape)) if axis not in axes]
    order = (*kept, *axes)
    moved = permuted(x, order)
    rows = math.prod([x.shape[axis] for axis in kept])
    others = _row_products(reshaped(moved, (rows, math.prod([x.shape[axis] for axis in axes]))))
    return permuted(reshaped(others, moved.shape), inverse(order))


def _row_products(x: Node) -> Node:
    """(rows, n) -> (rows, n): the product of the row without its own element; work grows with n, not n squared."""
    rows, n = x.shape
    if n <= _BLOCK:
        return _products_without(x, rows, n)
    blocks = -(-n // _BLOCK)
    grouped = reshaped(padded(x, ((0, 0), (0, blocks * _BLOCK - n)), 1.0), (rows * blocks, _BLOCK))
    inside = reshaped(_products_without(grouped, rows * blocks, _BLOCK), (rows, blocks, _BLOCK))
    whole = Node(Op.REDUCE_AXIS, x.dtype, (grouped,), (Op.MUL, (1,)))
    outside = expanded(
        reshaped(_row_products(reshaped(whole, (rows, blocks))), (rows, blocks, 1)), inside.shape
    )
    products = reshaped(times(inside, outside), (rows, blocks * _BLOCK))
    return shrunk(products, ((0, rows, 1), (0, n, 1)))


def _products_without(x: Node, rows: int, n: int) -> Node:
    """Every pair (own, other) in a square, the diagonal replaced by one, and the product over the others."""
    square = (rows, n, n)
    own, other = iota(n, 1, square, dtypes.int32), iota(n, 2, square, dtypes.int32)
    values = expanded(reshaped(x, (rows, 1, n)), square)
    without = own.ne(other).where(values, 1.0)
    return reshaped(Node(Op.REDUCE_AXIS, x.dtype, (without,), (Op.MUL, (2,))), (rows, n))


def _scan(node: Node, g: Node) -> Node:
    """A sum: the sum of what comes after. A product p: d x[i] = p[i-1] * s[i], where s[i] = g[i] + x[i+1] * s[i+1]."""
    op, axis = node.arg
    size = node.shape[axis]
    if 0 in node.shape:
        return g
    if op is Op.ADD:
        return flipped(Node(Op.SCAN_AXIS, g.dtype, (flipped(g, (axis,)),), (op, axis)), (axis,))
    factor, total = _moved(node.src[0], axis, -1, 0.0), g
    reach = 1
    while reach < size:  # both stand for `reach` turns: s[i] = total[i] + factor[i] * s[i + reach]
        added = total + times(factor, _moved(total, axis, -reach, 0.0))
        total = Node(Op.CONTIGUOUS, g.dtype, (added,))
        product = times(factor, _moved(factor, axis, -reach, 0.0))
        factor = Node(Op.CONTIGUOUS, g.dtype, (product,))
        reach *= 2
    return times(_moved(node, axis, 1, 1.0), total)


def _moved(x: Node, axis: int, by: int, value: float) -> Node:
    """The elements moved along an axis, those that leave it dropped, `value` where none comes to."""
    keep = [(0, size, 1) for size in x.shape]
    keep[axis] = (max(0, -by), x.shape[axis] - max(0, by), 1)
    pads = [(0, 0)] * len(x.shape)
    pads[axis] = (max(0, by), max(0, -by))
    return padded(shrunk(x, tuple(keep)), tuple(pads), value)


def _first(node: Node, g: Node) -> Node:
    """What is beyond the count has no part in the result."""
    return zeroed(with_counts(g, [(node.arg, node.src[1])]))


def _gather(node: Node, g: Node) -> Node:
    x, index = node.src[0], unnamed_beyond(node.src[1])
    if 0 in index.shape:
        return filled(0.0, x.shape, g.dtype)
    g = zeroed(g)  # what is beyond a count has no part
    return Node(Op.SCATTER_ADD, g.dtype, (filled(0.0, x.shape, g.dtype), index, g), node.arg)


def _scatter_added(node: Node, g: Node) -> Node:
    index, x = node.src[1:]
    return sum_to(Node(Op.GATHER, g.dtype, (g, index), node.arg), x.shape)


def _scatter_base(node: Node, g: Node) -> Node:
    index = node.src[1]
    return Node(Op.SCATTER, g.dtype, (g, index, filled(0.0, index.shape, g.dtype)), node.arg)


def _scattered(node: Node, g: Node) -> Node:
    """What a later turn overwrote has no gradient: `kept` is the turn that each place keeps."""
    base, index, x = node.src
    turn = iota(index.shape[node.arg], node.arg, index.shape, dtypes.int32)
    nobody = filled(-1, base.shape, dtypes.int32)
    kept = Node(Op.SCATTER, dtypes.int32, (nobody, index, turn), node.arg)
    is_kept = Node(Op.GATHER, dtypes.int32, (kept, index), node.arg).eq(turn)
    taken = Node(Op.GATHER, g.dtype, (g, index), node.arg)
    return sum_to(is_kept.where(taken, 0.0), x.shape)


def parts_of_join(node: Node) -> tuple[Rule, ...]:
    """The rules of a CAT, one per part: its own stretch of the gradient."""
    axis: int = node.arg
    whole = [(0, size, 1) for size in node.shape]
    rules: list[Rule] = []
    at = 0
    for part in node.src:
        stretch = list(whole)
        stretch[axis] = (at, at + part.shape[axis], 1)
        at += part.shape[axis]
        rules.append(_stretch(tuple(stretch)))
    return tuple(rules)


def _stretch(stretch: tuple[tuple[int, int, int], ...]) -> Rule:
    return lambda node, g: shrunk(g, stretch)


def _assigned(node: Node, g: Node) -> Node:
    return sum_to(g, node.src[1].shape)


def _copy(node: Node, g: Node) -> Node:
    device = device_of(node.src[0])
    return g if device is None else Node(Op.COPY, g.dtype, (g,), device)


def device_of(root: Node) -> str | None:
    """The device a graph computes on: that of the first memory or copy it reads; None when it reads neither."""
    stack, seen = [root], {root}
    while stack:
        node = stack.pop()
        if node.op is Op.COPY:
            return str(node.arg)
        if node.op is Op.BUFFER:
            return str(node.arg.device)
        fresh = [source for source in reversed(node.src) if source not in seen]
        seen.update(fresh)
        stack.extend(fresh)
    return None


# -- the table ------------------------------------------------------------------------------------------------------

_NOTHING: tuple[Rule | Flat | None, ...] = ()

DERIVATIVES: dict[Op, tuple[Rule | Flat | None, ...]] = {
    # leaves
    Op.CONST: _NOTHING,
    Op.BUFFER: _NOTHING,
    Op.PARAM: _NOTHING,
    Op.IOTA: _NOTHING,
    **{op: one.slopes for op, one in ELEMENTWISE.items()},
    # movement
    Op.RESHAPE: (_reshape,),
    Op.PERMUTE: (_permute,),
    Op.EXPAND: (_expand,),
    Op.PAD: (_pad,),
    Op.SHRINK: (_shrink,),
    Op.FLIP: (_flip,),
    Op.WINDOW: (_window,),
    Op.UNWINDOW: (_unwindow,),
    # values
    Op.REDUCE_AXIS: (_reduce,),
    Op.GATHER: (_gather, None),
    Op.SCATTER_ADD: (_same, None, _scatter_added),
    Op.SCATTER: (_scatter_base, None, _scattered),
    Op.CAT: _NOTHING,  # as many as there are parts: parts_of_join
    Op.BUCKET: (None,),
    Op.ROUTINE: _NOTHING,  # any number of sources: the FUNCTIONs of what a routine gives have the rules
    Op.SCAN_AXIS: (_scan,),  # with a start only after gradients: simplify.py
    Op.CONTIGUOUS: (_same,),
    Op.DETACH: (None,),
    Op.FIRST: (_first, None),
    Op.FUNCTION: (None,),  # the value; the rules of the arguments are the node's own
    Op.ASSIGN: (None, _assigned),
    Op.COPY: (_copy,),
}
