"""Heuristic: choose a schedule for a kernel from its accesses and the target's limits.

In       a fresh LoopNest, a Target
Out      the same nest with transforms applied; `nest.choice` says which
Next     loop_nest.py (the transforms), contraction.py (matrix products and convolutions), accesses.py (the facts)

Three questions in order. Is there reuse to win (two operands, each blind to an output axis that the other knows)? Then
contraction.py tiles it in registers. Is there a reduction? Then lanes go to the axis along which memory is contiguous:
an output axis (many columns at once) or the reduced one (several vector accumulators). Otherwise it is elementwise, or
a transpose: lanes along the stored axis, a square tile where the loads run along another one.

Groups come last: none for little work, else several pieces per thread, so that a late thread holds up no one.
"""

from __future__ import annotations

from collections.abc import Sequence

from hcq.compiler.loops.accesses import Accesses
from hcq.compiler.loops.binding import MAX_COPIES
from hcq.compiler.loops.loop import Axis, Loop
from hcq.compiler.loops.loop_nest import LoopNest
from hcq.compiler.target import Target

ALONE_NS = 30_000  # less work than this is not worth waking another thread
PIECE_NS = 40_000  # a group should last about this long
PIECES_PER_THREAD = 8
SHORT_AXIS = 4  # steps beside an ordered range that are written out
SHORT_LANES = 4  # of an output axis: fewer are no vector
SHORT_SUM = 4  # steps of a reduction of columns that are written out whole, without a loop
BLOCK_COPIES = 8  # of a row and the axes around it that are written out, at most
SHARED_COPIES = 16  # where the steps of such an axis read the same, or there are registers for as many sums
MANY_REGISTERS = 16  # lanes of a processor that has 32 of them (AVX-512)
ACCUMULATORS = 8  # of a reduction of columns: two additions begin in a cycle, and one takes four


def choose(nest: LoopNest, target: Target) -> LoopNest:
    """Apply the schedule we believe in."""
    merge_all(nest)
    facts = Accesses(nest)
    if any(axis.size == 0 for axis in nest.axes):
        return nest
    if len(nest.reduces) > 1:
        from hcq.compiler.loops.nested import schedule_nested

        if schedule_nested(nest, facts, target):
            return nest
    if nest.reduces and _is_worth_tiling(nest, facts, target):
        from hcq.compiler.loops.contraction import schedule_contraction

        if schedule_contraction(nest, facts, target):
            return nest
    lanes = facts.lanes(target)
    if nest.reduces and not nest.scans and (_is_fused_row(nest) or _is_walked_twice(nest, facts)):
        _fused_row(nest, facts, target)
    elif nest.scans:
        _scan(nest, facts, target, lanes)
    elif nest.reduces:
        _reduction(nest, facts, target, lanes)
    else:
        _elementwise(nest, facts, target, lanes)
    return nest


def _is_worth_tiling(nest: LoopNest, facts: Accesses, target: Target) -> bool:
    """Whether there are two output axes, and an axis long enough for lanes; contraction.py looks closer."""
    lanes = facts.lanes(target)
    outputs = [axis for axis in nest.axes if not axis.is_reduce]
    long = [axis for axis in nest.axes if axis.size >= (lanes // 2 if axis.is_reduce else SHORT_LANES)]
    return len(outputs) > 1 and bool(long)


def merge_all(nest: LoopNest) -> None:
    """Merge neighbouring ranges wherever every index allows it: fewer, longer loops."""
    again = True
    while again:
        again = False
        for kind in (False, True):
            axes = [axis for axis in nest.axes if axis.is_reduce is kind]
            for a, b in zip(axes, axes[1:], strict=False):
                if nest.can_merge(a, b):
                    nest.because(f"every index walks {a.name} and {b.name} as one range: fewer, longer loops")
                    nest.merge(a.name, b.name)
                    again = True
                    break
            if again:
                break


def _elementwise(nest: LoopNest, facts: Accesses, target: Target, lanes: int) -> None:
    if not nest.axes:
        return
    vector = max(nest.axes, key=lambda axis: _elementwise_score(facts, axis, lanes))
    if vector.is_ordered or vector.size < 2 or facts.store_stride(vector) not in (1, -1):
        if (axis := _read_once(nest, facts, target)) is not None:
            nest.because(f"elementwise: written-out steps of {axis.name} share what an ordered range walks")
            nest.unroll(axis.name)
        spread(nest, facts.work_ns(), target, None)
        return
    width = fit_lanes(vector.size, lanes)
    other = _transposed_axis(nest, facts, vector)
    copies = 1 if facts.op_count > 24 else 2 if facts.op_count > 8 else 4
    if other is not None:
        copies = 1
        rows = min(16, other.size)
        nest.because(f"a transpose: loads run along {other.name}, stores along {vector.name}; rows: {rows}")
        if rows > 1:
            nest.split(other.name, rows)
            nest.unroll(nest.axis(other).loops[-1].name)
    if len(nest.stores) > 8:
        copies = 1
    copies = max(1, min(copies, vector.size // width))
    nest.because(f"{vector.name} is contiguous: {width} lanes; {facts.op_count} operations: {copies} vectors")
    write_out(nest, vector, width, copies)
    spread(nest, facts.work_ns(), target, vector)


def _read_once(nest: LoopNest, facts: Accesses, target: Target) -> Axis | None:
    """A short axis that shares what an ordered range walks: written out, its steps read that once; not the last one
    that threads could divide."""
    free = [axis for axis in nest.axes if not axis.is_ordered]
    if len(free) == len(nest.axes) or not free or not 1 < free[-1].size <= SHORT_AXIS:
        return None
    is_shared = any(not nest.masks[load] & free[-1].bit for load in nest.loads)
    is_spare = len(free) > 1 or target.threads < 2 or facts.work_ns() < ALONE_NS
    return free[-1] if is_shared and is_spare else None


def _elementwise_score(facts: Accesses, axis: Axis, lanes: int) -> tuple[bool, int, int]:
    if axis.is_ordered:
        return (False, -1, 0)
    contiguous = sum(facts.stride(load, axis) in (0, 1, -1) for load in facts.nest.loads)
    return (facts.store_stride(axis) in (1, -1) and axis.size > 1, contiguous, min(axis.size, lanes))


def _transposed_axis(nest: LoopNest, facts: Accesses, vector: Axis) -> Axis | None:
    """The axis along which a load is contiguous that strides along the stored one."""
    for load in nest.loads:
        if facts.stride(load, vector) in (0, 1, -1, None):
            continue
        for axis in nest.axes:
            if axis is not vector and facts.stride(load, axis) == 1 and not axis.is_ordered:
                return axis
    return None


def _is_fused_row(nest: LoopNest) -> bool:
    """True when something is stored along an axis that no reduction depends on: softmax, a normalisation."""
    needed = 0
    for reduce in nest.reduces:
        needed |= nest.masks[reduce]
    return any(not axis.is_reduce and not axis.is_ordered and not needed & axis.bit for axis in nest.axes)


def _is_walked_twice(nest: LoopNest, facts: Accesses) -> bool:
    """True when a row is reduced, and then, with that, reduced again: logsumexp, argmax, a variance."""
    walks = {reduce.src[1:] for reduce in nest.reduces}
    return len(walks) > 1 and all(facts.contiguous_loads(a) for a in nest.axes if a.is_reduce and a.size > 1)


def _fused_row(nest: LoopNest, facts: Accesses, target: Target) -> None:
    """Each reduction in lanes along its own range, the stores along theirs; groups of what all reductions share."""
    shared = -1
    needed = 0
    for reduce in nest.reduces:
        shared &= nest.masks[reduce]
        needed |= nest.masks[reduce]
    copies = 4 if facts.op_count <= 16 else 2
    written_out = 1
    rows = []
    for axis in nest.axes:
        contiguous = facts.contiguous_loads(axis) if axis.is_reduce else facts.store_stride(axis) == 1
        is_row = axis.is_reduce or not needed & axis.bit
        if is_row and contiguous and axis.size >= 4 and not axis.is_ordered:
            rows.append(axis)
    for axis in rows:
        if any(nest.needs_both(axis, other) for other in nest.axes if other.loops[-1].kind == "vector"):
            continue
        width = fit_lanes(axis.size, facts.lanes(target, axis))
        here = max(1, min(copies, axis.size // width))
        if written_out * here * (1 if axis is rows[-1] else width) > MAX_COPIES:
            here = 1  # the next one's lanes count as copies when they are made
        written_out *= here
        nest.because(f"a row, walked again after its reduction: {width} lanes of {axis.name}, {here} vectors")
        write_out(nest, axis, width, here)
    spread(nest, facts.work_ns(), target, None, shared)


def _reduction(nest: LoopNest, facts: Accesses, target: Target, lanes: int) -> None:
    outputs = [axis for axis in nest.axes if not axis.is_reduce and not axis.is_ordered]
    reduced = [axis for axis in nest.axes if axis.is_reduce]
    columns = [
        a for a in outputs if facts.store_stride(a) == 1 and facts.all_strides(a, (0, 1)) and a.size >= 4
    ]
    rows = [a for a in reduced if facts.contiguous_loads(a) and a.size >= 4]
    if not columns and not rows:  # strided everywhere: at least the results are neighbours
        columns = [a for a in outputs if facts.store_stride(a) == 1 and a.size >= 4]
    best_row = max(rows, key=lambda a: (facts.contiguous_loads(a), a.size), default=None)
    column = max(columns, key=lambda a: a.size, default=None)
    if column is not None and (best_row is None or column.size >= lanes or column.size >= best_row.size):
        width = fit_lanes(column.size, lanes)
        most = ACCUMULATORS if facts.op_count <= 4 else 4 if facts.op_count <= 8 else 2
        while most > 4 and column.size < target.threads * most * width:
            most //= 2  # a strip for each thread first
        copies = max(1, min(most, column.size // width))
        nest.because(f"columns: {column.name} is contiguous: {width} lanes; {copies} vectors of results")
        write_out(nest, column, width, copies)
        innermost = reduced[-1]
        if facts.op_count * copies <= 24 and innermost.size >= 2 and not innermost.is_ordered:
            nest.because(f"a step of {innermost.name} is few operations: several of them without a loop")
            if innermost.size > SHORT_SUM:
                nest.split(innermost.name, 4 if innermost.size % 4 == 0 or innermost.size >= 16 else 2)
            nest.unroll(nest.axis(innermost).loops[-1].name)
        spread(nest, facts.work_ns(), target, column)
        return
    if best_row is not None and not best_row.is_ordered:
        width = fit_lanes(best_row.size, facts.lanes(target, best_row))
        steps = facts.ops_along(best_row)
        most = 8 if steps <= 4 else 4 if steps <= 24 else 2
        copies = max(1, min(most, best_row.size // width))
        nest.because(f"rows: {best_row.name} is contiguous: {width} lanes; {copies} independent vectors")
        write_out(nest, best_row, width, copies)
        if best_row.size <= width * copies:
            most_sums = SHARED_COPIES if target.lanes >= MANY_REGISTERS else BLOCK_COPIES
            _write_out_around(nest, facts, best_row, reduced, copies, most, most_sums)
    spread(nest, facts.work_ns(), target, None)


def _write_out_around(
    nest: LoopNest,
    facts: Accesses,
    row: Axis,
    reduced: Sequence[Axis],
    copies: int,
    most: int,
    most_sums: int,
) -> None:
    """Write out the reduced axes just outside of a short row that is written out whole, as in a block of numbers.

    What all steps of such an axis read is then read once, and what tells them apart is known while compiling.
    """
    if reduced[-1] is not row:
        return
    for axis in reversed(reduced[:-1]):
        if axis.is_ordered or len(axis.loops) != 1:
            return
        is_shared = any(nest.masks[load] & row.bit and not nest.masks[load] & axis.bit for load in nest.loads)
        room = (SHARED_COPIES if is_shared else most_sums) // copies
        if axis.size <= room:
            nest.unroll(axis.loops[0].name)
            copies *= axis.size
            continue
        few = max(2, most // copies)
        if copies < most and axis.size % few == 0:
            nest.split(axis.loops[0].name, few)
            nest.unroll(nest.axis(axis).loops[-1].name)
        return


def _scan(nest: LoopNest, facts: Accesses, target: Target, lanes: int) -> None:
    """Lanes along the lines' neighbours where these are neighbours in memory, else along the line itself."""
    outputs = [axis for axis in nest.axes if not axis.is_reduce and facts.store_stride(axis) in (1, -1)]
    vector = max(outputs, key=lambda axis: (not axis.is_scanned, axis.size), default=None)
    if vector is not None and vector.size >= 4:
        width = fit_lanes(vector.size, lanes)
        nest.because(f"a running sum: {width} lanes along {vector.name}, which is contiguous")
        write_out(nest, vector, width, max(1, min(4 if vector.is_scanned else 8, vector.size // width)))
    spread(nest, facts.work_ns(), target, vector)


# -- parts that schedules share -------------------------------------------------------------------------------------


def fit_lanes(size: int, lanes: int) -> int:
    """The vector width for an axis: the target's, or the power of two that a short axis fills."""
    while lanes > 1 and lanes > size:
        lanes //= 2
    return lanes


def write_out(nest: LoopNest, axis: Axis, width: int, copies: int) -> None:
    """Lanes and unrolled copies of an axis: its innermost width * copies values become straight code."""
    axis = nest.axis(axis)
    loop = axis.loops[0]
    if width * copies > 1 and width * copies < axis.size:
        nest.split(loop.name, width * copies)
        loop = axis.loops[-1]
    if width > 1 and loop.size > width:
        nest.split(loop.name, width)
        nest.vectorize(axis.loops[-1].name)
        nest.unroll(loop.name)
    elif width > 1:
        nest.vectorize(loop.name)
    elif copies > 1:
        nest.unroll(loop.name)


def spread(nest: LoopNest, work_ns: float, target: Target, vector: Axis | None, among: int = -1) -> None:
    """Bind outer output loops to groups: nothing for little work, else several pieces per thread.

    among   the bits of the axes that may be divided
    """
    if target.threads < 2 or work_ns < ALONE_NS:
        nest.because(f"one group: {work_ns / 1e3:.2f} µs by the estimate; {ALONE_NS // 1000} wake a thread")
        return
    nest.because(
        f"{work_ns / 1e3:.0f} µs by the estimate: {target.threads} threads, {PIECE_NS // 1000} a piece"
    )
    wanted = int(min(target.threads * PIECES_PER_THREAD, max(target.threads, work_ns / PIECE_NS)))
    count = 1
    candidates: list[Loop] = [
        axis.loops[0]
        for axis in nest.axes
        if not axis.is_reduce and not axis.is_ordered and axis.counted and axis.loops[0].kind == "serial"
        if axis.bit & among
    ]
    for loop in candidates:
        if count >= wanted:
            return
        need = -(-wanted // count)
        if loop.size >= 2 * need:
            nest.split(loop.name, -(-loop.size // need))
        if loop.size > 1:
            nest.parallel(loop.name)
            count *= loop.size
