"""Reductions inside reductions on GPUs: how attention and its gradients are tiled for threads.

In       a LoopNest in which a reduction's terms need another one, its accesses, a Target
Out      True and a schedule; False, and nothing done, for other kernels
Next     nested.py (the same for CPUs), heuristic_gpu.py (who asks first), heuristic_matrix.py (plain products)

A thread has a row: its sums for all columns, and the row's part of the inner reduction, stay in its registers. The keys
of a step lie in shared memory, which all threads of a block read at the same time.
"""

from __future__ import annotations

from math import prod

from hcq.compiler.loops.accesses import Accesses
from hcq.compiler.loops.heuristic_matrix import copies_by_itself
from hcq.compiler.loops.loop import Axis
from hcq.compiler.loops.loop_nest import LoopNest
from hcq.compiler.loops.matrix_units import units_of
from hcq.compiler.loops.nested import Shapes, find_nested
from hcq.compiler.loops.nested_warpgroup import schedule_warpgroups
from hcq.compiler.target import Target
from hcq.ir.dtype import DType
from hcq.ir.node import Node
from hcq.ir.op import Op

ROWS = 64  # threads of a block, each with a row
KEYS = 8  # in registers and in shared memory at a time
MOST_WRITTEN = 64  # steps of an inner reduction that are written out
MOST_COLUMNS = 128  # sums of a thread
WAVES = 4  # of a block, with a matrix unit: each has a tile of rows
TILE_KEYS = 64  # of a step, for each inner product
FEW_KEYS = 32  # on RDNA, whose compiler would spill, and where more leave no room for a second wave
TALL = 32  # rows of a wave
MOST_TILES = 16  # of an inner reduction, or of columns, that are written out
TILE_BYTES = 40 << 10  # of shared memory
ROW_BYTES = 16 << 10  # of it, for rows
LINE = 128  # bytes


def schedule_nested(nest: LoopNest, facts: Accesses, target: Target) -> bool:
    """Tile the nest if a reduction stands in another one."""
    found = find_nested(nest, facts)
    if found is None:
        return False
    if _with_matrix_unit(nest, found, target):
        return True
    key, row, column = found.key.name, found.row, found.column
    keys = min(KEYS, 1 << (found.key.size - 1).bit_length())
    nest.because(
        f"a sum stands in the sum over {key}, as in attention: threads along rows, {keys} steps of {key} "
        "at once in registers; no matrix unit takes both products"
    )
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


def _with_matrix_unit(nest: LoopNest, found: Shapes, target: Target) -> bool:
    """Both products by a matrix unit, where it takes them; False, and nothing done, where it does not."""
    operand = _operand(nest, found)
    if operand is None or found.row is None:
        return False
    if schedule_warpgroups(nest, found, operand, target):
        _collect(nest, found.row.name, found.column)
        return True
    unit = next((unit for unit in units_of(target.arch, operand) if unit.takes_made), None)
    if unit is None or unit.result is not found.inner[0].dtype:
        return False
    has_column = found.column is not None
    # what was made is the left factor of the second product, or the right one
    is_row_first = unit.d_m == unit.a_m
    row, key = found.row.name, found.key.name
    column = found.column.name if found.column is not None else ""
    inner = [nest.axis_of[place].name for place in found.inner[0].src[1:]]
    rows, keys = unit.size("m" if is_row_first else "n"), unit.size("n" if is_row_first else "m")
    across = unit.size("n" if is_row_first else "m")
    depth = unit.size("k")
    waves = min(WAVES, _power_above(-(-found.row.size // rows)))
    step = max(keys, depth)  # of keys: tiles of the first product make whole operands of the second one
    is_backward = not any(node.arg is Op.MAX for node in nest.reduces)
    is_rdna = target.arch.startswith(("gfx11", "gfx12"))
    most = FEW_KEYS if is_rdna or (rows >= TALL and not is_backward) else TILE_KEYS
    # RDNA 3 has an operand twice in a wave: rows as wide as these leave no registers for more
    results = found.column.size * len(nest.stores) if found.column is not None else 0
    is_wide = target.arch.startswith("gfx11") and results > 64
    if is_wide and is_backward:
        most = step
    tile = min(max(step, most // len(found.inner)), step * _power_above(-(-found.key.size // step)))
    tiles = 1 if is_backward or is_rdna else _tiles_of_wave(nest, found, rows, waves, target)
    nest.because(
        f"a product stands in the sum over {key}, as in attention: {unit.name} takes both, so the first "
        f"one's results stay in registers; {waves} waves of {tiles * rows} rows, {tile} of {key} at once"
    )
    for name, multiple in ((row, tiles * rows * waves), (key, tile), (inner[-1], depth), (column, across)):
        if name:
            _pad(nest, name, multiple)
    _split(nest, row, tiles * rows * waves, tiles * rows, rows)
    _split(nest, key, tile, step, keys)
    _split(nest, inner[-1], depth)
    if has_column:
        _split(nest, column, across)
    loops = [_axis(nest, name).loops[-1].name for name in (row, key, inner[-1])]
    m, n = loops[:2] if is_row_first else loops[1::-1]
    nest.matrix(m, n, loops[2], unit.name)
    for loop in reversed(list(_axis(nest, key).loops)):
        if loop.kind == "serial" and loop.stride < tile:
            nest.unroll(loop.name)
    if has_column:
        nest.chain(_axis(nest, column).loops[-1].name)
    for name in ("" if is_wide and len(found.inner) > 1 else inner[-1], column):
        for loop in reversed(list(_axis(nest, name).loops)) if name else ():
            if loop.kind == "serial" and loop.size <= MOST_TILES:
                nest.unroll(loop.name)
    for loop in reversed(list(_axis(nest, row).loops)):
        if loop.kind == "serial" and loop.stride == tiles * rows and waves > 1:
            nest.thread(loop.name)
        elif loop.kind == "serial" and loop.stride == rows and tiles > 1:
            nest.unroll(loop.name)
    for axis in list(nest.axes):
        loop = axis.loops[0]
        if loop.kind == "serial" and not axis.is_reduce and not axis.is_ordered and loop.size > 1:
            nest.parallel(loop.name)
    if stage_keys(nest, _axis(nest, key), _axis(nest, row)):
        nest.pipeline(_axis(nest, key).loops[0].name)
    if nest.groups and not copies_by_itself(target):
        _stage_rows(nest, _axis(nest, row), key)
    _collect(nest, row, found.column)
    return True


def _collect(nest: LoopNest, row: str, column: Axis | None) -> None:
    if column is not None and _can_collect(nest, _axis(nest, row), _axis(nest, column.name)):
        nest.because("results go through shared memory, so that whole lines are stored")
        nest.collect()


def _tiles_of_wave(nest: LoopNest, found: Shapes, rows: int, waves: int, target: Target) -> int:
    """How many tiles of rows a wave has: as many as make TALL rows, which read the keys of shared memory once for all,
    where there are blocks enough."""
    assert found.row is not None
    tiles = max(1, TALL // rows)
    heads = prod(a.size for a in nest.axes if a not in (found.row, found.column) and not a.is_reduce)
    blocks = heads * -(-found.row.size // (tiles * rows * waves))
    return tiles if blocks >= target.cores else 1


def _stage_rows(nest: LoopNest, row: Axis, key: str) -> None:
    """A block's rows, which its threads read once in pieces of lines, come from shared memory, where there is room."""
    key_bit = _axis(nest, key).bit
    room = ROW_BYTES
    for number, load in enumerate(nest.loads):
        mask = nest.masks[load]
        if not mask & row.bit or mask & key_bit or nest.never_staged(load) or len(load.src) > 3:
            continue
        width = prod(a.size for a in nest.axes if a is not row and mask & a.bit and not _is_group(a))
        size = row.loops[0].stride * width * load.dtype.itemsize
        if width * load.dtype.itemsize >= LINE and size <= room:
            nest.stage(number, nest.groups[-1].name if nest.groups else "-")
            room -= size


def _is_group(axis: Axis) -> bool:
    return axis.loops[0].kind == "group" and len(axis.loops) == 1


def _can_collect(nest: LoopNest, row: Axis, column: Axis) -> bool:
    """Whether results lie row after row, so that they are stored so."""
    if column.counted or len({store.src[0] for store in nest.stores}) < len(nest.stores):
        return False
    for store in nest.stores:
        form = nest.affine.of(store.src[1])
        steps = [form.constant, *[step for atom, step in form.terms if atom is not column.range]]
        if form.coefficient(column.range) != 1 or any(form.atoms()) or any(step % 4 for step in steps):
            return False
        if any(not nest.masks[store.src[2]] & axis.bit for axis in (row, column)):
            return False
    return True


def _operand(nest: LoopNest, found: Shapes) -> DType | None:
    """The format of the operands, where all products of a kernel are such as units take."""
    if len({node.src[1:] for node in found.inner}) > 1 or len(found.inner[0].src) > 2 or found.row is None:
        return None
    operands = set()
    for node in found.inner:
        if node.arg is not Op.ADD or node.src[0].op is not Op.MUL:
            return None
        sees = set()
        for factor in node.src[0].src:
            load = factor.src[0] if factor.op is Op.CAST else factor
            if load.op is not Op.LOAD:
                return None
            operands.add(load.dtype)
            sees.add(nest.masks[load] & (found.row.bit | found.key.bit))
        if sees != {found.row.bit, found.key.bit}:
            return None
    sums = [node for node in nest.reduces if found.key.range in node.src[1:]]
    if any(len(node.src) > 2 for node in sums) or len(operands) > 1:
        return None
    column = found.column
    if column is not None:
        of_column = [node for node in sums if nest.masks[node] & column.bit]
        if not all(_is_product(nest, node, column, found.row, operands) for node in of_column):
            return None
        # the unit takes what was made in its narrow format: good enough for a narrow result alone
        if column.size > MOST_COLUMNS or any(store.src[0].dtype.itemsize > 2 for store in nest.stores):
            return None
    return operands.pop()


def _is_product(nest: LoopNest, node: Node, column: Axis, row: Axis, operands: set[DType]) -> bool:
    """Whether one factor of a sum is all that differs along the column, and is loaded as it is."""
    value = node.src[0].src[0] if node.src[0].op is Op.RESCALE else node.src[0]
    factors, stack = [], [value]
    while stack:
        factor = stack.pop()
        stack.extend(factor.src if factor.op is Op.MUL else ())
        if factor.op is not Op.MUL:
            factors.append(factor)
    loaded = [factor for factor in factors if nest.masks[factor] & column.bit]
    if len(loaded) != 1 or len(factors) < 2 or nest.masks[loaded[0]] & row.bit:
        return False
    load = loaded[0].src[0] if loaded[0].op is Op.CAST else loaded[0]
    return load.op is Op.LOAD and load.dtype in operands


def _axis(nest: LoopNest, name: str) -> Axis:
    return next(axis for axis in nest.axes if axis.name == name)


def _split(nest: LoopNest, name: str, *sizes: int) -> None:
    """Cut a range at these sizes, where it is longer."""
    for size in sizes:
        loop = _axis(nest, name).loops[-1]
        if loop.size > size:
            nest.split(loop.name, size)


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
