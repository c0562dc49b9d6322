"""Reductions inside reductions on GPUs: how attention and its gradients are tiled for threads.

In       a LoopNest in which a reduction's terms need another one, its accesses, a Target
Out      True and a schedule; False, and nothing done, for other kernels
Next     nested.py (the same for CPUs), heuristic_gpu.py (who asks first), heuristic_matrix.py (plain products)

A thread has a row: its sums for all columns, and the row's part of the inner reduction, stay in its registers. The keys
of a step lie in shared memory, which all threads of a block read at the same time.
"""

from __future__ import annotations

from hcq.compiler.loops.accesses import Accesses
from hcq.compiler.loops.loop import Axis
from hcq.compiler.loops.loop_nest import LoopNest
from hcq.compiler.loops.nested import find_nested
from hcq.compiler.target import Target
from hcq.ir.node import Node

ROWS = 64  # threads of a block, each with a row
KEYS = 8  # in registers and in shared memory at a time
MOST_WRITTEN = 64  # steps of an inner reduction that are written out
MOST_COLUMNS = 128  # sums of a thread
TILE_BYTES = 40 << 10  # of shared memory


def schedule_nested(nest: LoopNest, facts: Accesses, target: Target) -> bool:
    """Tile the nest if a reduction stands in another one."""
    found = find_nested(nest, facts)
    if found is None:
        return False
    key, row, column = found.key.name, found.row, found.column
    keys = min(KEYS, 1 << (found.key.size - 1).bit_length())
    _pad(nest, key, keys)
    if row is not None:
        _pad(nest, row.name, min(ROWS, _power_above(row.size)))
    found = find_nested(nest, facts)
    assert found is not None
    row, column = found.row, found.column
    if row is not None:
        threads = min(ROWS, _power_above(row.size))
        if threads < row.size:
            nest.split(row.name, threads)
        nest.thread(row.loops[-1].name)
    if column is not None:
        if column.size > MOST_COLUMNS:
            nest.split(column.name, MOST_COLUMNS)
        loop = column.loops[-1]
        if loop.size % 4 == 0 and loop.size > 4:
            nest.split(loop.name, 4)
            nest.vectorize(column.loops[-1].name)
        if loop.size > 1:
            nest.unroll(loop.name)
    if keys < found.key.size:
        nest.split(found.key.name, keys)
    nest.unroll(found.key.loops[-1].name)
    for node in found.inner:
        for place in node.src[1:]:
            axis = nest.axis_of[place]
            if len(axis.loops) == 1 and axis.loops[0].kind == "serial":
                if axis.size > MOST_WRITTEN:
                    nest.split(axis.name, MOST_WRITTEN // 4)
                nest.unroll(axis.loops[-1].name)
                break
    for axis in list(nest.axes):
        loop = axis.loops[0]
        if loop.kind == "serial" and not axis.is_reduce and not axis.is_ordered and loop.size > 1:
            nest.parallel(loop.name)
    if nest.digits and row is not None:
        stage_keys(nest, found.key, row)
    return True


def stage_keys(nest: LoopNest, key: Axis, row: Axis) -> list[int]:
    """What is read for a step's keys, whatever the row, comes from shared memory."""
    staged: list[int] = []
    loop = key.loops[0]
    if loop.kind != "serial":
        return staged
    size = 0
    for number, load in enumerate(nest.loads):
        mask = nest.masks[load]
        if not mask & key.bit or mask & row.bit or nest.never_staged(load) or len(load.src) > 3:
            continue
        size += _tile_bytes(nest, load, key)
        if size > TILE_BYTES:
            break
        nest.stage(number, loop.name)
        staged.append(number)
    return staged


def _tile_bytes(nest: LoopNest, load: Node, key: Axis) -> int:
    count = key.loops[0].stride
    for axis in nest.axes:
        if axis is not key and axis.bit & nest.masks[load]:
            counted = [loop for loop in axis.loops if loop.kind == "group"]
            count *= counted[-1].stride if counted else axis.size
    return count * max(4, load.dtype.itemsize)


def _pad(nest: LoopNest, name: str, multiple: int) -> None:
    """Longer where it must be; the name stays."""
    axis = next(a for a in nest.axes if a.name == name)
    if axis.size % multiple:
        nest.pad(name, multiple)


def _power_above(value: int) -> int:
    return 1 << max(0, value - 1).bit_length()
