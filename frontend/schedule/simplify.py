"""Simplification: rewrites of the tensor stage before anything is scheduled.

In       roots
Out      roots of the same values: no DETACH, no FUNCTION, no expanded constants, no reshape of a reshape, no empty
         reductions; large reductions to few elements, long products of few tiles and scans of few lines in two steps;
         every BUCKET with its counters; every scatter with a base of its own; every CAT as its readers see it
Changes  nothing
Next     fuse.py, joins.py (what a CAT's readers see)
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

from hcq.frontend.core.nodes import (
    expanded,
    filled,
    iota,
    minus,
    ordinal,
    padded,
    permuted,
    reduced,
    reshaped,
    shrunk,
)
from hcq.ir.dtype import dtypes
from hcq.ir.meaning import identity
from hcq.ir.node import Node, binary, const, toposort
from hcq.ir.op import ARITHMETIC, MOVEMENT, SCATTERS, Op

# a reduction of at least this many elements to fewer elements than there are workers is worth a second kernel
LARGE_REDUCTION = 1 << 18
LONG = 1 << 12  # elements of one result, where cores are many
LINE = 64  # elements: lines of memory hold at most so many of 2 bytes
_IN_MEMORY_ANYWAY = frozenset(
    {Op.CONTIGUOUS, Op.REDUCE_AXIS, Op.CAT, Op.SCATTER, Op.SCAN_AXIS, Op.BUCKET, Op.ROUTINE}
)
_WHOLE_IN_MEMORY = frozenset({Op.BUFFER, Op.CONTIGUOUS, Op.ROUTINE})  # whoever reads it
TILE = 32  # of a product, each way, at least: what a block of a GPU computes
NARROW_TILE, BLOCKS_OF_CORE = 64, 2  # the same where matrix units multiply: smaller tiles wait for memory
MIN_OF_PIECE = 1 << 10  # steps of a product's sum that a block has
WORKERS_OF_CORE = 8  # that a GPU keeps busy, which is more than cores
LARGE_SCAN = 1 << 18  # a scan of at least this many elements in fewer lines than there are workers, likewise
MIN_STRETCH = 1 << 10  # elements of a line that are scanned by one worker, at least
ALIGNED = 16  # elements: stretches begin where vectors do
MANY_WORKERS = 256  # a GPU's, which scans a line by many threads of one worker, and is not woken up for more
STRETCHES = 4  # per worker: a late one holds up no one
MIN_PER_KIND = 4.0  # elements of a piece for each of its counters, at least
FEW_PASSES = 3  # of a sort, at least, for which it is worth while to write down first what is sorted
PIECE = 1 << 12  # elements that a block of a GPU places at a time
SCANNED_BITS = 4  # of them it can keep apart: a scan of half a word for each kind
PARTIAL_RESULTS = (
    64  # of a reduction in two steps, at most, unless more workers than that are to be kept busy
)


def simplify_graph(roots: Sequence[Node], threads: int) -> list[Node]:
    """The same values, simplified. Identical roots stay identical."""
    new: dict[Node, Node] = {}
    scatters = joins = 0
    order = toposort(roots)
    inner: set[Node] = set()
    written: set[Node] = set()
    if any(node.op is Op.CAT for node in order):
        from hcq.frontend.schedule.joins import inner_joins, joined, parts_of

        inner, written = inner_joins(order, roots)
    sorts = _sorts(order)
    in_place = _in_place(order, roots)
    for node in order:
        src = tuple([new[s] for s in node.src])
        op = node.op
        if node in in_place:
            new[node] = node.replace(src=src)  # part of the ASSIGN above it
            continue
        if op is Op.ASSIGN and node.src[1] in in_place:
            new[node] = Node(op, node.dtype, (src[0], *src[1].src[1:]), src[1].arg)
            continue
        if op is Op.CAT:
            if node not in inner:
                joins += 1
                new[node] = joined(parts_of(node, new, inner), node.arg, joins, node in written)
            else:
                new[node] = node  # not needed: its parts are those of the CAT above it
            continue
        if op in SCATTERS:
            scatters += 1  # numbered, so that no two scatters add into one memory
            src = (Node(Op.CONTIGUOUS, node.dtype, (src[0],), ("scatter", scatters)), *src[1:])
        elif op is Op.ASSIGN and not src[1].shape:
            src = (src[0], expanded(src[1], src[0].shape))
        made = node if src == node.src else Node(op, node.dtype, src, node.arg)
        if op is Op.DETACH or op is Op.FUNCTION:
            made = src[0]
        elif op in ARITHMETIC:
            made = _arithmetic(made)
        elif op is Op.RESHAPE:
            made = _reshape(made)
        elif op in MOVEMENT:
            made = _movement(made)
        elif op is Op.REDUCE_AXIS:
            made = _reduction(made, threads)
        elif op is Op.SCAN_AXIS:
            made = _scan(made, threads)
        elif op is Op.BUCKET:
            scatters += 1
            sort = sorts.get(node)
            alone = None if sort is None else _in_one_piece(node, made, sort, threads, scatters)
            made = _bucket(made, threads, scatters) if alone is None else alone
        elif op is Op.ROUTINE:
            made = Node(op, node.dtype, tuple([_in_memory(s) for s in src]), node.arg)
        elif op is Op.CONTIGUOUS and src[0].op in _IN_MEMORY_ANYWAY and node.arg is None:
            made = src[0]
        new[node] = made
    return [_own_memory(root, new[root]) for root in roots]


def _in_place(order: Sequence[Node], roots: Sequence[Node]) -> set[Node]:
    """Each SCATTER into a view that is written back to that very view: it writes its elements there, and no others."""
    found = {
        node.src[1]
        for node in order
        if node.op is Op.ASSIGN and node.src[1].op is Op.SCATTER and node.src[1].src[0] is node.src[0]
    }
    if found:
        users = Counter(source for node in order for source in node.src)
        found -= {node for node in found if users[node] > 1 or node in roots}
    return found


def _in_memory(node: Node) -> Node:
    """The same value in memory, as a routine reads it: in any shape."""
    base = node
    while base.op is Op.RESHAPE:
        base = base.src[0]
    return node if base.op in _WHOLE_IN_MEMORY else Node(Op.CONTIGUOUS, node.dtype, (node,), "routine")


def _own_memory(root: Node, made: Node) -> Node:
    """A view that turns out to be all of a buffer is still a value of its own: the buffer may be overwritten."""
    is_shared = made.op in (Op.BUFFER, Op.ASSIGN) and root.op is not made.op
    return Node(Op.CONTIGUOUS, made.dtype, (made,)) if is_shared else made


def _uniform(node: Node) -> Node | None:
    """The CONST that every element of a view of a constant is, if it is one."""
    while node.op in (Op.EXPAND, Op.RESHAPE, Op.PERMUTE, Op.FLIP, Op.SHRINK):
        node = node.src[0]
    return node if node.op is Op.CONST else None


def _arithmetic(node: Node) -> Node:
    """Expanded constants become scalars, as long as one source still gives the shape."""
    if not node.shape:
        return node
    src = tuple([s if s.op is Op.CONST else _uniform(s) or s for s in node.src])
    if src == node.src:
        return node
    if any(s.shape for s in src):
        return Node(node.op, node.dtype, src, node.arg)
    return expanded(Node(node.op, node.dtype, src, node.arg), node.shape)


def _reshape(node: Node) -> Node:
    source = node.src[0]
    if source.op is Op.RESHAPE:
        source = source.src[0]
    if source.shape == node.arg:
        return source
    return Node(Op.RESHAPE, node.dtype, (source,), node.arg)


def _movement(node: Node) -> Node:
    """Views that change nothing go; two permutations become one."""
    source = node.src[0]
    if node.op is Op.PERMUTE:
        order = node.arg
        if source.op is Op.PERMUTE:
            order = tuple([source.arg[axis] for axis in order])
            source = source.src[0]
        if order == tuple(range(len(order))):
            return source
        return Node(Op.PERMUTE, node.dtype, (source,), order)
    if node.op in (Op.EXPAND, Op.SHRINK, Op.PAD) and node.shape == source.shape:
        return source
    if node.op is Op.FLIP and not node.arg:
        return source
    return node


def _reduction(node: Node, threads: int) -> Node:
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


def _scan(node: Node, threads: int) -> Node:
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


@dataclass
class _Sort:
    """The passes of a sort, each a BUCKET of what the one before it gave."""

    passes: list[Node]
    counts: Node | None = None  # (rows, passes, kinds): how many elements of each kind a row has


def _sorts(order: Sequence[Node]) -> dict[Node, _Sort]:
    """By pass, the sorts of FEW_PASSES and more, which take as many bits each, one after the other."""
    found: dict[Node, _Sort] = {}
    for node in order:
        if node.op is Op.BUCKET:
            sort = found.get(node.src[0], _Sort([]))
            sort.passes.append(node)
            found[node] = sort
    for node, sort in list(found.items()):
        first, bits = sort.passes[0].arg
        each = [(first + i * bits, bits) for i in range(len(sort.passes))]
        if len(each) < FEW_PASSES or [one.arg for one in sort.passes] != each:
            del found[node]
    return found


def _in_one_piece(node: Node, made: Node, sort: _Sort, threads: int, number: int) -> Node | None:
    """A pass over rows that a CPU's workers do not divide; None for other passes.

    How many elements of a kind a row has does not depend on their order: the counts of all passes are taken at once.
    """
    (rows, size), (shift, bits) = made.src[0].shape, made.arg
    if threads >= MANY_WORKERS or not rows or size < 2 or _pieces(rows, size, bits, threads) > 1:
        return None
    x, at, kinds, passes = made.src[0], sort.passes.index(node), 1 << bits, len(sort.passes)
    if sort.counts is None:
        if x.op is not Op.BUFFER and x.op not in _IN_MEMORY_ANYWAY:
            x = Node(Op.CONTIGUOUS, x.dtype, (x,))
        each = (rows, passes, size)
        bit = binary(Op.ADD, binary(Op.MUL, iota(passes, 1, each, x.dtype), bits), shift)
        kind = Node(Op.SHR, x.dtype, (expanded(reshaped(x, (rows, 1, size)), each), bit))
        kind = Node(Op.AND, x.dtype, (kind, const(kinds - 1, x.dtype)))
        nothing = filled(0, (rows, passes, kinds), dtypes.int32)
        nothing = Node(Op.CONTIGUOUS, dtypes.int32, (nothing,), ("counts", number))
        sort.counts = Node(Op.SCATTER_ADD, dtypes.int32, (nothing, kind, const(1, dtypes.int32)), 2)
    counts = shrunk(sort.counts, ((0, rows, 1), (at, at + 1, 1), (0, kinds - 1, 1)))
    before = Node(Op.SCAN_AXIS, dtypes.int32, (padded(counts, ((0, 0), (0, 0), (1, 0))),), (Op.ADD, 2))
    return Node(Op.BUCKET, x.dtype, (reshaped(x, (rows, 1, size)), before), made.arg)


def _pieces(rows: int, size: int, bits: int, threads: int) -> int:
    """Into how many pieces a CPU's workers divide rows that they sort."""
    most = min(-(-threads * STRETCHES // rows), int(size / (MIN_PER_KIND * (1 << bits))))
    return next((p for p in range(most, 1, -1) if size % p == 0), 1)


def _bucket(node: Node, threads: int, number: int) -> Node:
    """Count the bits' values in pieces of each row, and sum the counts up: these are the counters to place by.

    The threads of a GPU place a piece together. For each kind they scan where it is, so there are few kinds at a time.
    """
    x, (shift, bits) = node.src[0], node.arg
    rows, size = x.shape
    if not rows or size < 2:
        return x
    if threads < MANY_WORKERS:
        pieces = _pieces(rows, size, bits, threads)
        return _placed(x, shift, bits, pieces, number, threads)
    about = -(-size // PIECE)
    pieces = next(p for p in range(about, size + 1) if size % p == 0) if size > PIECE else 1
    for low in range(shift, shift + bits, SCANNED_BITS):
        some = min(SCANNED_BITS, shift + bits - low)
        x = _placed(x, low, some, pieces, number, threads)
    return x


def _placed(x: Node, shift: int, bits: int, pieces: int, number: int, threads: int) -> Node:
    """A pass of a sort: rows in the stable order of some bits."""
    rows, size = x.shape
    kinds, is_gpu = 1 << bits, threads >= MANY_WORKERS
    parts = reshaped(x, (rows, pieces, size // pieces))
    if is_gpu:
        each = (rows, pieces, kinds, size // pieces)
        kind = _bits(expanded(reshaped(x, (rows, pieces, 1, size // pieces)), each), shift, bits)
        is_it = kind.eq(Node(Op.CAST, x.dtype, (ordinal(kinds, 2, each),)))
        counts = reduced(Op.ADD, Node(Op.CAST, dtypes.int32, (is_it,)), (3,))
    else:
        nothing = filled(0, (rows, pieces, kinds), dtypes.int32)
        nothing = Node(Op.CONTIGUOUS, dtypes.int32, (nothing,), ("counts", number))
        one = const(1, dtypes.int32)
        counts = Node(Op.SCATTER_ADD, dtypes.int32, (nothing, _bits(parts, shift, bits), one), 2)
    # of all pieces the first kind, then the second, ..
    counts = reshaped(counts, (rows, pieces, kinds))
    listed = reshaped(permuted(counts, (0, 2, 1)), (rows, kinds * pieces))
    running = _scan(Node(Op.SCAN_AXIS, dtypes.int32, (listed,), (Op.ADD, 1)), threads)
    if is_gpu:  # what is before each one: read a place further to the left
        before = shrunk(padded(running, ((0, 0), (1, 0)), 0), ((0, rows, 1), (0, kinds * pieces, 1)))
    else:
        before = minus(running, listed)
    counters = permuted(reshaped(before, (rows, kinds, pieces)), (0, 2, 1))
    if is_gpu:
        return Node(Op.BUCKET, x.dtype, (parts, counters), (shift, bits, True))
    counters = Node(Op.CONTIGUOUS, dtypes.int32, (counters,), ("counters", number))
    return Node(Op.BUCKET, x.dtype, (parts, counters), (shift, bits))


def _bits(x: Node, shift: int, bits: int) -> Node:
    """What some bits of integers say."""
    moved = Node(Op.SHR, x.dtype, (x, const(shift, x.dtype)))
    return Node(Op.AND, x.dtype, (moved, const((1 << bits) - 1, x.dtype)))
