"""Two steps: a reduction to few elements, or a scan of few lines, in pieces that keep every worker busy.

In       a REDUCE_AXIS or a SCAN_AXIS, how many workers a device has
Out      the same in two steps, where one would leave workers idle
Next     ../schedule/simplify.py (who asks), ../schedule/columns.py (sums along columns, where workers are few)
"""

from __future__ import annotations

from math import prod

from hcq.frontend.core.nodes import expanded, padded, reshaped, shrunk
from hcq.ir.meaning import identity
from hcq.ir.node import Node, const
from hcq.ir.op import MOVEMENT, Op

# a reduction of at least this many elements to fewer elements than there are workers is worth a second kernel
LARGE_REDUCTION = 1 << 18
PARTIAL_RESULTS = 64  # of a reduction in two steps, at most, unless more workers are to be kept busy
LONG = 1 << 12  # elements of one result, where cores are many
LINE = 64  # elements: lines of memory hold at most so many of 2 bytes
TILE = 32  # of a product, each way, at least: what a block of a GPU computes
NARROW_TILE, BLOCKS_OF_CORE = 64, 2  # the same where matrix units multiply: smaller tiles wait for memory
MIN_OF_PIECE = 1 << 10  # steps of a product's sum that a block has
WORKERS_OF_CORE = 8  # that a GPU keeps busy, which is more than cores
LARGE_SCAN = 1 << 18  # a scan of at least this many elements in fewer lines than there are workers, likewise
MIN_STRETCH = 1 << 10  # elements of a line that are scanned by one worker, at least
ALIGNED = 16  # elements: stretches begin where vectors do
MANY_WORKERS = 256  # a GPU's, which scans a line by many threads of one worker, and is not woken up for more
STRETCHES = 4  # per worker: a late one holds up no one


def reduction(node: Node, threads: int) -> Node:
    """One of no elements is its identity, one of one element that; one of very many to few goes in two steps."""
    op, axes = node.arg
    source = node.src[0]
    count = prod(source.shape[axis] for axis in axes)
    if count == 1:
        return source
    if prod(node.shape) and not count:
        return expanded(const(identity(op, node.dtype), node.dtype), node.shape)
    results = prod(node.shape)
    is_spread = threads > PARTIAL_RESULTS and 4 * results <= threads  # over the cores of a GPU
    is_large = count >= LARGE_REDUCTION or (
        is_spread and count >= LONG and count * results >= 4 * LARGE_REDUCTION
    )
    if is_large and results < threads:
        most = max(PARTIAL_RESULTS, threads) // results
        return _in_two_steps(node, most, is_even=threads <= PARTIAL_RESULTS)
    if threads >= MANY_WORKERS and count >= LONG:
        is_narrow = all(_is_narrow(factor) for factor in source.src)
        tiles = _tiles(node, NARROW_TILE if is_narrow else TILE)
        blocks = threads // WORKERS_OF_CORE * (BLOCKS_OF_CORE if is_narrow else 1)
        most = min(blocks // tiles, count // MIN_OF_PIECE) if tiles else 0
        if most > 1:
            return _in_two_steps(node, most, is_even=True)
    return node


def _is_narrow(factor: Node) -> bool:
    """Whether a factor is made of 16-bit numbers or narrower ones, by views and casts."""
    while factor.op in MOVEMENT or factor.op is Op.CAST:
        factor = factor.src[0]
    return factor.dtype.itemsize <= 2


def _tiles(node: Node, tile: int) -> int:
    """The tiles of a product, a sum over what two factors share; 0 where it is none.

    Each factor is told from the other by ranges along which it is expanded.
    """
    op, axes = node.arg
    factors = node.src[0].src
    if op is not Op.ADD or node.src[0].op is not Op.MUL:
        return 0
    apart = []
    for factor in factors:
        while factor.op is Op.CAST:
            factor = factor.src[0]
        whole = factor.src[0].shape if factor.op is Op.EXPAND else factor.shape
        apart.append([a for a in range(len(whole)) if whole[a] != factor.shape[a] and a not in axes])
    if not all(apart) or set(apart[0]) & set(apart[1]):
        return 0
    tiles = 1
    for a, size in enumerate(node.src[0].shape):
        if a not in axes and a not in apart[0] and a not in apart[1]:
            tiles *= size
    for mine in apart:
        tiles *= -(-prod(node.src[0].shape[a] for a in mine) // tile)
    return tiles


def _in_two_steps(node: Node, most: int, is_even: bool) -> Node:
    """sum(x, axes) -> sum(sum(x in pieces)): the pieces keep every worker busy, the rest is small.

    is_even  only pieces of one size: where workers are few, the tests of a shorter last one cost more than they gain
    """
    op, axes = node.arg
    source = node.src[0]
    axis = max(axes, key=lambda a: source.shape[a])
    if source.op is Op.MUL and len(axes) > 1:  # neighbours along the last axis stay together
        axis = max(axes[:-1], key=lambda a: (_most_pieces(source.shape[a], most), -a))
    size = source.shape[axis]
    pieces = _most_pieces(size, most)
    if pieces < most // 4 and not is_even:
        # the last piece is a little shorter, the others begin where lines do
        length = -(-size // (most * LINE)) * LINE
        pieces = -(-size // length)
        rest = [(0, 0)] * len(source.shape)
        rest[axis] = (0, pieces * length - size)
        source = padded(source, tuple(rest), identity(op, node.dtype))
        size = pieces * length
    if pieces == 1:
        return node
    split = (*source.shape[:axis], pieces, size // pieces, *source.shape[axis + 1 :])
    inner_axes = tuple(a + (a >= axis) for a in axes)
    partial = Node(Op.RESHAPE, node.dtype, (source,), split)
    partial = Node(Op.REDUCE_AXIS, node.dtype, (partial,), (op, inner_axes))
    partial = Node(Op.CONTIGUOUS, node.dtype, (partial,), "partial")
    total = Node(Op.REDUCE_AXIS, node.dtype, (partial,), (op, (axis,)))
    return Node(Op.RESHAPE, node.dtype, (total,), node.shape)


def _most_pieces(size: int, most: int) -> int:
    """Into how many pieces of one size so many elements go, at most."""
    return next((p for p in range(min(most, size), 1, -1) if size % p == 0), 1)


def scan(node: Node, threads: int) -> Node:
    """scan(x) -> scan(x in stretches, each from what all stretches before it come to)."""
    op, axis = node.arg
    x, shape = node.src[0], node.shape
    count, size = prod(shape), shape[axis]
    if size == 1 or not count:
        return x
    lines = count // size
    is_gpu = threads >= MANY_WORKERS
    if count < (LARGE_SCAN >> 2 if is_gpu else LARGE_SCAN) or lines >= threads or len(node.src) > 1:
        return node
    length = max(MIN_STRETCH, -(-size * lines // (threads * STRETCHES)))
    about = -(-size // length)
    even = (p for step in (ALIGNED, 1) for p in range(about, about // 2, -1) if size % (p * step) == 0)
    length = size // next(even, 1) if size >= 2 * about else size
    if length == size:  # nothing divides it: what is beyond the end costs a copy
        length = -(-size // (about * ALIGNED)) * ALIGNED
    stretches = -(-size // length)
    neutral = identity(op, node.dtype)
    rest = [(0, 0)] * len(shape)
    rest[axis] = (0, stretches * length - size)
    split = (*shape[:axis], stretches, length, *shape[axis + 1 :])
    parts = reshaped(padded(x, tuple(rest), neutral), split)
    totals = Node(Op.REDUCE_AXIS, node.dtype, (parts,), (op, (axis + 1,)))
    totals = Node(Op.CONTIGUOUS, node.dtype, (totals,), "partial")
    before = [(0, size, 1) for size in totals.shape]
    before[axis] = (0, stretches - 1, 1)
    first = [(0, 0)] * len(split)
    first[axis] = (1, 0)
    running = Node(Op.SCAN_AXIS, node.dtype, (shrunk(totals, tuple(before)),), (op, axis))
    starts = padded(running, tuple(first), neutral)
    whole = Node(Op.SCAN_AXIS, node.dtype, (parts, starts), (op, axis + 1))
    whole = reshaped(whole, (*shape[:axis], stretches * length, *shape[axis + 1 :]))
    return whole if whole.shape == shape else shrunk(whole, tuple([(0, size, 1) for size in shape]))
