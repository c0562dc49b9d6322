"""Reductions inside reductions: how attention and its gradients are tiled on a CPU.

In       a LoopNest in which a reduction's terms need another one, its accesses, a Target
Out      True and a schedule; False, and nothing done, for other kernels
Next     heuristic.py (who asks first), ../linear/nested.py (who writes the loops down), contraction.py (plain products)

    out[row, column] = sum over key of f(sum over inner of a[row, inner] * b[key, inner]) * c[key, column]

A tile of rows by a few vectors of keys is made first, with b packed so that its lanes are keys. Then the keys are taken
one by one, and columns are in lanes: all of them, so that nothing is made twice. Where the registers do not hold the
sums of all columns, a part of them takes all keys before the next one does (../linear/turns.py).
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from hcq.compiler.loops.accesses import Accesses
from hcq.compiler.loops.loop import Axis
from hcq.compiler.loops.loop_nest import LoopNest
from hcq.compiler.target import Target
from hcq.ir.node import Node, toposort
from hcq.ir.op import Op

MOST_ROWS = 6
MOST_KEYS = 4  # vectors of keys in a tile
MOST_COLUMNS = 256  # of one step: beyond, the inner reduction is made again
INNER_STEPS = 4  # of an inner reduction that are written out
GROUP_FLOPS = 1 << 21  # fewer operations than this are not worth a group of their own
GROUPS_PER_THREAD = 4


@dataclass
class Shapes:
    """Which range plays which part."""

    inner: list[Node]
    key: Axis
    row: Axis | None
    column: Axis | None
    panels: list[Node]  # loads of inner reductions that differ along the key and not along the row


def find_nested(nest: LoopNest, facts: Accesses) -> Shapes | None:
    """The parts of the ranges of a kernel with reductions inside reductions; None for other kernels."""
    reduced = sum(axis.bit for axis in nest.axes if axis.is_reduce)
    inner = [node for node in nest.reduces if nest.masks[node] & reduced]
    if not inner:
        return None
    seen = 0
    for node in inner:
        seen |= nest.masks[node]
    key = max((a for a in nest.axes if a.is_reduce and seen & a.bit), key=lambda a: a.size)
    loads = [n for n in toposort([node.src[0] for node in inner]) if n.op is Op.LOAD]
    panels = [load for load in loads if nest.masks[load] & key.bit]
    blocked = 0
    for load in panels:
        blocked |= nest.masks[load]
    outputs = [a for a in nest.axes if not a.is_reduce and not a.is_ordered]
    rows = [a for a in outputs if seen & a.bit and not blocked & a.bit]
    columns = [a for a in outputs if not seen & a.bit and facts.store_stride(a) == 1]
    return Shapes(
        inner,
        key,
        max(rows, key=lambda a: a.size, default=None),
        max(columns, key=lambda a: a.size, default=None),
        panels,
    )


def schedule_nested(nest: LoopNest, facts: Accesses, target: Target) -> bool:
    """Tile the nest if a reduction stands in another one."""
    found = find_nested(nest, facts)
    if found is None:
        return False
    lanes = facts.lanes(target)
    key, row, column = found.key, found.row, found.column
    nest.because(
        f"a sum stands in the sum over {key.name}, as in attention: what it gives stays in registers, "
        f"for some rows at once, in {lanes} lanes"
    )
    if column is not None and column.size > MOST_COLUMNS:
        nest.split(column.name, MOST_COLUMNS // lanes * lanes)
    rows = 1
    if row is not None:
        # of scores, as many sums as there are registers; those of columns take turns in them
        rows = _rows(row.size, min(MOST_ROWS, max(1, (target.vector_registers - 4) // 2)))
        while rows > 1 and column is not None and not _columns_at_once(column, lanes, rows, target):
            rows = _rows(row.size, rows - 1)
        if rows > 1:
            if rows < row.size:
                nest.split(row.name, rows)
            nest.unroll(row.loops[-1].name)
    if column is not None:
        _columns_into_lanes(nest, column, lanes, _columns_at_once(column, lanes, rows, target))
    if not key.is_ordered and not any(nest.masks[n] & key.bit for n in nest.stores):
        at_once = max(1, (target.vector_registers - 3) // (rows * len(found.inner)))
        at_once = min(at_once, MOST_KEYS, max(1, key.size // lanes))
        if at_once * lanes < key.size:
            nest.split(key.name, at_once * lanes)
        _into_lanes(nest, key, lanes)
    for node in found.inner:
        axis = nest.axis_of[node.src[-1]]
        if len(axis.loops) == 1 and axis.loops[0].kind == "serial" and axis.size % INNER_STEPS == 0:
            if axis.size > INNER_STEPS:
                nest.split(axis.name, INNER_STEPS)
            nest.unroll(axis.loops[-1].name)
    _groups(nest, found, target)
    at = "-"
    for loop in nest.order:
        if loop.kind == "group" or (not loop.axis.is_reduce and loop.axis is not row):
            at = loop.name
    for load in found.panels:
        is_narrow = load.dtype.itemsize < 4
        if (facts.stride(load, key) != 1 or is_narrow) and not nest.never_staged(load):
            nest.stage(nest.loads.index(load), at)
    return True


def _into_lanes(nest: LoopNest, axis: Axis, lanes: int) -> None:
    """The innermost loop of a range in vectors, as many as it has."""
    loop = axis.loops[-1]
    while lanes > loop.size:
        lanes //= 2
    if lanes == 1:
        return
    if loop.size > lanes:
        nest.split(loop.name, lanes)
        nest.vectorize(axis.loops[-1].name)
        nest.unroll(loop.name)
    else:
        nest.vectorize(loop.name)


def _columns_at_once(column: Axis, lanes: int, rows: int, target: Target) -> int:
    """How many vectors of columns the registers hold for so many rows: all, a part that divides them, or 0."""
    size = column.loops[-1].size
    most = (target.vector_registers - 4) // rows
    if size <= most * lanes:
        return most
    return next((some for some in range(most, 1, -1) if size % (some * lanes) == 0), 0)


def _columns_into_lanes(nest: LoopNest, column: Axis, lanes: int, at_once: int) -> None:
    """Columns in vectors, so many of which are summed up at a time."""
    loop = column.loops[-1]
    if 0 < at_once * lanes < loop.size:
        nest.split(loop.name, at_once * lanes)
        _into_lanes(nest, column, lanes)
        nest.unroll(loop.name)
    else:
        _into_lanes(nest, column, lanes)


def _rows(size: int, most: int) -> int:
    """So many at a time, without a rest where that costs little."""
    for rows in range(most, max(most - 3, 0), -1):
        if size % rows == 0:
            return rows
    return min(most, size)


def _groups(nest: LoopNest, found: Shapes, target: Target) -> None:
    """Groups of what the panels differ along, then of rows, as many as the threads have use for."""
    work = prod(a.size for a in nest.axes if a.is_reduce) * prod(a.size for a in nest.axes if not a.is_reduce)
    if target.threads < 2:
        return
    wanted = min(GROUPS_PER_THREAD * target.threads, work // GROUP_FLOPS)
    count = 1
    free = [a for a in nest.axes if not a.is_reduce and not a.is_ordered and a.loops[0].kind == "serial"]
    for axis in sorted(free, key=lambda a: a is found.row):
        loop = axis.loops[0]
        if axis is found.row:
            pieces = -(-wanted // count)
            if pieces > 1 and loop.size >= 2 * pieces:
                nest.split(loop.name, -(-loop.size // pieces))
            elif pieces < 2:
                continue
        if loop.size > 1 and wanted > 1:
            nest.parallel(loop.name)
            count *= loop.size
