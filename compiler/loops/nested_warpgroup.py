"""Attention by a warpgroup's matrix unit: both its products read shared memory, and weights stay in registers.

In       a LoopNest in which a product stands in the sum over keys, the format of its operands, a Target
Out      True and a schedule; False, and nothing done, where the unit does not take it, or single warps do better
Next     nested_gpu.py (who asks first, and does it with units of single warps), ../linear/warpgroups.py (the products)

A warpgroup has 64 rows. Four warps share what they read of keys and values, which units of single warps read once for
each 32 rows.
"""

from __future__ import annotations

from math import prod

from hcq.compiler.loops.loop import Loop
from hcq.compiler.loops.loop_nest import LoopNest
from hcq.compiler.loops.matrix_units import WARPGROUP_COLUMNS, units_of
from hcq.compiler.loops.nested import Shapes
from hcq.compiler.target import Target
from hcq.ir.dtype import DType

KEYS = 64  # of a step
DEPTH = 16  # of a product, and
SPAN = 64  # of a row that lies together in shared memory
MOST_COLUMNS = 128  # whose sums leave registers for scores and weights
WARPGROUPS = 2  # of a block, where there are blocks enough
MOST_TILES = (
    4  # of keys and values: one that is read, three under way; a power of two, where the GPU counts them
)
FEW_TILES = 2
BLOCKS = 2  # that a core has at a time, for whose tiles there is room


def schedule_warpgroups(nest: LoopNest, found: Shapes, operand: DType, target: Target) -> bool:
    """Tile the nest for warpgroups."""
    row, column = found.row, found.column
    units = {unit.size("n"): unit for unit in units_of(target.arch, operand, reads_shared=True)}
    unit = units.get(KEYS)
    if unit is None or not unit.takes_made or row is None or column is None or len(found.inner) > 1:
        return False
    inner = [nest.axis_of[place] for place in found.inner[0].src[1:]][-1]
    rows = unit.size("m")
    if column.size > MOST_COLUMNS or column.size not in WARPGROUP_COLUMNS or inner.size % SPAN:
        return False
    reads = [load for load in nest.loads if load.dtype is operand and len(load.src) < 4]
    if row.size < rows or any(nest.never_staged(load) for load in reads):
        return False
    heads = prod(axis.size for axis in nest.axes if axis not in (row, column) and not axis.is_reduce)
    if unit.keeps_sums and column.size > unit.size("n"):
        return False  # sums of both products in a thread, and weights: more than it has registers
    warpgroups = (
        1
        if unit.keeps_sums
        else WARPGROUPS
        if heads * -(-row.size // (WARPGROUPS * rows)) >= target.cores
        else 1
    )
    nest.because(
        f"a product stands in the sum over {found.key.name}, as in attention: {unit.name} takes both, and reads "
        f"keys and values in shared memory; {warpgroups} warpgroups of {rows} rows, {KEYS} of {found.key.name} at once"
    )
    names = row.name, found.key.name, inner.name, column.name
    block = warpgroups * rows
    for name, multiple in zip(names, (block, KEYS, DEPTH, column.size)):
        if next(axis for axis in nest.axes if axis.name == name).size % multiple:
            nest.pad(name, multiple)
    last: list[str] = []
    for name, sizes in zip(names[:3], ((block, rows), (KEYS,), (DEPTH,))):
        for size in sizes:
            loop = _loops(nest, name)[-1]
            if loop.size > size:
                nest.split(loop.name, size)
        last.append(_loops(nest, name)[-1].name)
    m, n, k = last
    nest.matrix(m, n, k, unit.name)
    nest.chain(_loops(nest, column.name)[-1].name)
    for loop in _loops(nest, inner.name):
        if loop.kind == "serial":
            nest.unroll(loop.name)
    for loop in reversed(_loops(nest, row.name)):
        if loop.kind == "serial" and loop.stride == rows and loop.size == warpgroups > 1:
            nest.thread(loop.name)
    for axis in list(nest.axes):
        loop = axis.loops[0]
        if loop.kind == "serial" and not axis.is_reduce and not axis.is_ordered:
            nest.parallel(loop.name)
    step = KEYS * (inner.size + column.size) * operand.itemsize
    room = target.shared_bytes // BLOCKS - block * inner.size * operand.itemsize
    _stage(nest, _loops(nest, names[1])[0].name, MOST_TILES if MOST_TILES * step <= room else FEW_TILES)
    return True


def _stage(nest: LoopNest, steps: str, tiles: int) -> None:
    """Rows come to shared memory once, keys and values step by step."""
    key, refusals = nest.loop(steps).axis, []
    for number, load in enumerate(nest.loads):
        if nest.is_read_by_unit(load):
            is_of_keys = bool(nest.masks[load] & key.bit)
            nest.stage(number, steps if is_of_keys else nest.groups[-1].name if nest.groups else "-")
            refusals.append(nest.never_in_bulk(load) if is_of_keys else "")
    nest.pipeline(steps, tiles, "" if any(refusals) else "bulk")


def _loops(nest: LoopNest, name: str) -> list[Loop]:
    return list(next(axis for axis in nest.axes if axis.name == name).loops)
