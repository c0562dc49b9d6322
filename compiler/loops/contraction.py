"""Contractions: matrix products, convolutions and the like, tiled in registers.

In       a LoopNest with a reduction, its accesses, a Target
Out      True and a schedule, where two operands each ignore an output axis that the other one walks
Next     heuristic.py (who asks first), accumulators.py (tiles), shared_boxes.py (convolutions' loops)

Two ways to fill the registers with accumulators:

*outer*  `rows` values of one output axis, or of two short ones, by `width` vectors of another. Each step of the
         reduction loads `width` vectors and `rows` scalars, and multiplies each with each. The vector operand is
         packed once per panel; panels stay outside the loops that reuse them.
*dot*    `rows` by `width` scalars, each a vector of partial sums along a reduced axis that is contiguous in both
         operands. Nothing is packed; every tile ends in a fold.

Every pair of axes that qualifies is priced in cycles (multiplying, packing, storing, folding): the cheapest wins.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from hcq.compiler.loops.accesses import Accesses
from hcq.compiler.loops.accumulators import LATENCY, WIDEST, tile, tile_two
from hcq.compiler.loops.dot_units import DotUnit, dots_of, matched
from hcq.compiler.loops.flipping import FLIPPED
from hcq.compiler.loops.loop import Axis
from hcq.compiler.loops.loop_nest import LoopNest
from hcq.compiler.loops.shared_boxes import BOXED, FAR_BYTES, Costs, share_boxes
from hcq.compiler.target import Target
from hcq.ir.node import Node
from hcq.ir.op import Op

ALONE_CYCLES = 90_000  # less than this is not worth waking another thread
PIECE_CYCLES = 150_000  # a group should last about this long
GROUPS_PER_THREAD = 8
MAX_WINDOW_COPIES = 100  # multiplications in the innermost body
MOST_ROWS = 16
STRIDED = 1.6  # cycles to move one lane that is not contiguous
FAR = 1.3  # how much longer a step takes whose scalars lie a page or more from those of the step before
BLOCK_BYTES = 4 << 20  # of packed rows: each thread has as much scratch
BLOCK_TILES = (
    8  # tiles of rows that share a panel, at least, where panels are packed once for each block of rows
)
TURNED = 0.5  # the same when squares are transposed in registers
SCATTERED = 3.0  # cycles to store one lane that is not contiguous
MASKED = 2.0  # cycles to test and read one scalar that may be padding
MASKED_LOAD = 3.0  # cycles for a vector with padding that is used as it comes, among multiplications
MASKED_VECTOR = 14.0  # cycles to find out which lanes of a vector are padding
NEAR_ROW_BYTES = 16384  # rows further apart are many pages at once
NOTABLE_ROW_BYTES = 256  # rows of a matrix further apart than this cost a page or a cache set each


@dataclass
class Plan:
    """How to tile, what to pack, what it costs."""

    kind: str  # outer | dot
    vector: Axis  # outer: the output axis in lanes; dot: the reduced axis in lanes
    column: Axis  # outer: the same as vector; dot: the second output axis
    row: Axis
    rows: int
    width: int  # outer: vectors across; dot: columns
    vectors: list[Node]
    scalars: list[Node]
    cycles: float = 0.0
    unit: DotUnit | None = None  # outer: what multiplies, a few values of `deep` at once
    deep: Axis | None = None
    flips: bool = False  # the scalars' sign, as the unit wants it
    block: int = (
        0  # rows of one group, whose scalars are packed first for all panels; 0: rows are inside panels
    )
    pack_vectors: bool = False
    pack_scalars: bool = False
    packs: float = 0.0  # cycles to pack all panels once
    panel_bytes: int = 0
    beside: Axis | None = None  # another axis that is all rows: its values are written out, too


def schedule_contraction(nest: LoopNest, facts: Accesses, target: Target) -> bool:
    """Tile the nest if it is a contraction; False (and nothing done) otherwise."""
    if any(axis.is_ordered for axis in nest.axes):
        return False
    plans = [*_outer_plans(nest, facts, target), *_dot_plans(nest, facts, target)]
    if not plans:
        return False
    plan = min(plans, key=lambda p: p.cycles)
    nest.because(
        f"operands are used again: {plan.rows} rows of {plan.row.name} by {plan.width} of "
        f"{plan.column.name} stay in registers as sums, lanes along {plan.vector.name}; by the estimate the "
        f"fewest cycles of {len(plans)} ways to tile"
    )
    if plan.kind == "outer":
        _apply_outer(nest, facts, target, plan)
    else:
        _apply_dot(nest, facts, target, plan)
    return True


# -- outer products -------------------------------------------------------------------------------------------------


def _outer_plans(nest: LoopNest, facts: Accesses, target: Target) -> list[Plan]:
    reduced = sum(axis.bit for axis in nest.axes if axis.is_reduce)
    inside = [load for load in nest.loads if nest.masks[load] & reduced]
    outputs = [axis for axis in nest.axes if not axis.is_reduce]
    plans = []
    for vector in outputs:
        vectors = [load for load in inside if nest.masks[load] & vector.bit]
        scalars = [load for load in inside if not nest.masks[load] & vector.bit]
        if vector.size < 4 or not vectors or not scalars:
            continue
        if any(facts.stride(store, vector) is None for store in nest.stores):
            continue
        seen = _seen(nest, vectors)
        for row in outputs:
            if row is vector or row.size < 2 or seen & row.bit or not nest.masks[scalars[0]] & row.bit:
                continue
            plan = _outer_plan(nest, facts, target, vector, row, vectors, scalars)
            plans.append(plan)
            if plan.panel_bytes > target.l2_bytes:  # a narrower one may fit
                for width in range(1, plan.width):
                    plans.append(_outer_plan(nest, facts, target, vector, row, vectors, scalars, width))
            plans += _narrow_plans(nest, facts, target, vector, row, vectors, scalars)
    return plans


def _outer_plan(
    nest: LoopNest,
    facts: Accesses,
    target: Target,
    vector: Axis,
    row: Axis,
    vectors: list[Node],
    scalars: list[Node],
    widest: int = WIDEST,
) -> Plan:
    lanes = facts.lanes(target)
    steps = prod(axis.size for axis in nest.axes if axis.is_reduce)
    others = prod(a.size for a in nest.axes if not a.is_reduce and a is not vector and a is not row)
    seen = _seen(nest, vectors)
    beside = [a for a in nest.axes if not a.is_reduce and a not in (vector, row) and not seen & a.bit]
    beside = [a for a in beside if a.size > 1 and all(nest.masks[load] & a.bit for load in scalars)]
    best = tile_two(vector.size, _most_rows(facts, row, scalars, target), row, beside, lanes, target, widest)
    width, rows, per_step = best.width, best.rows, best.per_step
    plan = Plan("outer", vector, vector, row, rows, width, vectors, scalars, beside=best.beside)
    row_tiles = -(-row.size // rows)
    panels = -(-vector.size // (lanes * width))
    plan.cycles = per_step * steps * others
    # the panel is read again by every output that the vector operands ignore
    reuse = row_tiles * prod(
        a.size for a in nest.axes if not a.is_reduce and a is not row and not seen & a.bit
    )
    panel_bytes = steps * lanes * width * sum(load.dtype.itemsize for load in vectors)
    plan.panel_bytes = panel_bytes
    reads = 0.0
    packs = 0.0
    far = False
    for load in vectors:
        whole = steps * vector.size * row_tiles * others  # elements read when nothing is packed
        each = 0.0 if facts.stride(load, vector) == 1 else STRIDED
        each += MASKED_VECTOR / lanes if facts.is_masked(load) else 0.0
        each += 3.0 / lanes if load.dtype.itemsize < 4 else 0.0  # widened on the way
        reads += whole * each
        if each >= STRIDED and facts.run(load) >= lanes and not facts.is_masked(load):
            each = TURNED
        packs += whole / reuse * (each + 2.0 / lanes)
        far = (
            far
            or min(_reduced_strides(nest, facts, load), default=0) * load.dtype.itemsize >= NOTABLE_ROW_BYTES
        )
    if far and steps >= 64:
        reads += steps * vector.size * row_tiles * others * 0.02
    can_pack = not any(nest.never_staged(load) for load in vectors)
    if can_pack and panel_bytes <= target.l2_bytes and reuse >= 2 and packs < reads:
        plan.pack_vectors = True
        plan.packs = packs
        reads = packs
    plan.cycles += reads
    masked = [load for load in scalars if facts.is_masked(load)]
    if masked:
        direct = MASKED * steps * row.size * panels * others * len(masked)
        windows = [(load, a, b) for load in masked for a, b, _ in nest.overlaps(load)]
        runs = any(a is row and facts.stride(load, b) in (1, -1) for load, a, b in windows)
        if all(nest.overlaps(load) and not nest.never_staged(load) for load in masked):
            plan.pack_scalars = True
            boxes = BOXED * sum(nest.box_size(load, {}) for load in masked)
            direct = boxes if runs else direct
        plan.cycles += direct
    narrow = [load for load in scalars if load.dtype.itemsize < 4 and not facts.is_masked(load)]
    if narrow:
        plan.cycles += MASKED * steps * row.size * others * len(narrow) * (0.1 if steps >= lanes else panels)
    if any(abs(facts.stride(load, row) or 0) * load.dtype.itemsize > NEAR_ROW_BYTES for load in scalars):
        plan.cycles *= 1.03
    if len(scalars) == 1 and not plan.pack_scalars and _is_far(nest, facts, scalars[0], row):
        plan.block = _block(nest, target, plan) if plan.pack_vectors and others == 1 else 0
        if plan.block:
            plan.cycles += (-(-row.size // plan.block) - 1) * packs + steps * row.size
        else:
            plan.cycles *= FAR
    for store in nest.stores:
        contiguous = facts.stride(store, vector) == 1
        plan.cycles += facts.outputs * (1.0 / lanes if contiguous else SCATTERED)
    return plan


def _is_far(nest: LoopNest, facts: Accesses, load: Node, row: Axis) -> bool:
    """Whether the rows of a load are neighbours and each step of the reduction goes to another page: a transpose."""
    strides = _reduced_strides(nest, facts, load)
    if facts.is_masked(load) or nest.never_staged(load) or facts.stride(load, row) != 1 or not strides:
        return False
    return min(strides) * load.dtype.itemsize >= NOTABLE_ROW_BYTES and facts.extent(load) >= 4096


def _block(nest: LoopNest, target: Target, plan: Plan) -> int:
    """Rows of a group where it packs its rows once; 0 where too few tiles would share a panel."""
    if sum(not a.is_reduce for a in nest.axes) != 2:
        return 0
    steps = prod(axis.size for axis in nest.axes if axis.is_reduce)
    tiles = -(-plan.row.size // plan.rows)
    groups = 2 * target.threads if target.threads > 1 and plan.cycles >= ALONE_CYCLES else 1
    fits = BLOCK_BYTES // (steps * plan.rows * plan.scalars[0].dtype.itemsize)
    block = min(-(-tiles // groups), fits)
    return block * plan.rows if block >= BLOCK_TILES else 0


def _narrow_plans(
    nest: LoopNest,
    facts: Accesses,
    target: Target,
    vector: Axis,
    row: Axis,
    vectors: list[Node],
    scalars: list[Node],
) -> list[Plan]:
    """The same tiles, multiplied by dot products of narrow numbers, where the processor has them."""
    units = dots_of(target.flags)
    if not units or len(nest.reduces) != 1 or len(vectors) != 1 or len(scalars) != 1:
        return []
    node, (far,), (near,) = nest.reduces[0], vectors, scalars
    if (
        node.arg is not Op.ADD
        or node.src[0].op is not Op.MUL
        or facts.is_masked(near)
        or facts.is_masked(far)
    ):
        return []
    deep = max((a for a in nest.axes if a.is_reduce), key=lambda a: (facts.stride(near, a) == 1, a.size))
    if nest.never_staged(far) or nest.never_staged(near) or facts.stride(near, deep) is None:
        return []
    lanes = facts.lanes(target)
    rest = prod(a.size for a in nest.axes if a.is_reduce and a is not deep)
    others = prod(a.size for a in nest.axes if not a.is_reduce and a is not vector and a is not row)
    seen = _seen(nest, vectors)
    again = prod(a.size for a in nest.axes if not a.is_reduce and a is not row and not seen & a.bit)
    plans = []
    for unit in units:
        flips = unit.a is not unit.b and near.dtype is far.dtype and near.dtype in FLIPPED
        if node.dtype is not unit.result or deep.size < 2 * unit.depth:
            continue
        if flips:
            fits = unit.b is near.dtype or unit.a is near.dtype
        else:
            fits = matched(node.src[0].src, unit) is not None
        if not fits:
            continue
        # a word of the vector operand holds some of the reduction in each lane
        most = _most_rows(facts, row, scalars, target)
        best = tile(vector.size, most, row.size, min(lanes, unit.lanes[0]), target)
        width, rows, per_step = best.width, best.rows, best.per_step
        plan = Plan(
            "outer", vector, vector, row, rows, width, vectors, scalars, unit=unit, deep=deep, flips=flips
        )
        plan.pack_vectors = True
        row_tiles, panels = -(-row.size // rows), -(-vector.size // (lanes * width))
        steps = -(-deep.size // unit.depth) * rest
        reuse = row_tiles * again
        panel_bytes = steps * lanes * width * 4
        if panel_bytes > target.l2_bytes or reuse < 2:
            continue
        plan.pack_scalars = near.dtype.bits < unit.a.bits or facts.stride(near, deep) != 1
        moved = steps * vector.size * row_tiles * others / reuse
        plan.cycles = per_step * steps * others
        plan.cycles += moved * (3.0 if facts.stride(far, vector) == 1 else 1 + STRIDED) * 2.0 / lanes
        plan.cycles += row_tiles * rows * panels * steps * others / 4 if flips else 0.0
        if plan.pack_scalars and others == 1 and facts.stride(near, deep) != 1:
            plan.block = _block(nest, target, plan)
        if plan.block:
            plan.cycles += moved * (-(-row.size // plan.block) - 1) + steps * row.size
        elif plan.pack_scalars:
            each = 0.1 if facts.stride(near, deep) == 1 else 1.0
            plan.cycles += each * steps * row.size * others * panels
        for store in nest.stores:
            plan.cycles += facts.outputs * (1.0 / lanes if facts.stride(store, vector) == 1 else SCATTERED)
        plans.append(plan)
    return plans


def _reduced_strides(nest: LoopNest, facts: Accesses, load: Node) -> list[int]:
    strides = [facts.stride(load, axis) or 0 for axis in nest.axes if axis.is_reduce]
    return [abs(s) for s in strides if s]


def _most_rows(facts: Accesses, row: Axis, scalars: list[Node], target: Target) -> int:
    """Rows a multiple of 4096 bytes apart fall into one set of the first cache: no more than its ways hold."""
    for load in scalars:
        stride = (facts.stride(load, row) or 0) * load.dtype.itemsize
        if stride and stride % 4096 == 0 and not facts.is_masked(load):
            return max(4, target.l1_bytes // 4096 * 3 // 4)
    return MOST_ROWS


def _apply_outer(nest: LoopNest, facts: Accesses, target: Target, plan: Plan) -> None:
    lanes = facts.lanes(target)
    if plan.unit is not None:
        lanes = min(lanes, plan.unit.lanes[0])
        if plan.flips:
            nest.flip(nest.loads.index(plan.scalars[0]))
    vector, row = plan.vector, plan.row = nest.axis(plan.vector), nest.axis(plan.row)
    while lanes > vector.size:
        lanes //= 2
    if plan.block:
        if plan.block < row.size:
            nest.split(row.name, plan.block)
        nest.split(row.loops[-1].name, plan.rows)
        nest.unroll(row.loops[-1].name)
    else:
        _tile_axis(nest, row, plan.rows)
    if plan.beside is not None:
        nest.unroll(nest.axis(plan.beside).loops[-1].name)
    if lanes * plan.width < vector.size:
        nest.split(vector.name, lanes * plan.width)
    panel = vector.loops[-1]
    if panel.size > lanes:
        nest.split(panel.name, lanes)
    nest.vectorize(vector.loops[-1].name)
    if panel is not vector.loops[-1]:
        nest.unroll(panel.name)
    if plan.unit is not None and plan.deep is not None:
        deep = nest.axis(plan.deep)
        if deep.size > plan.unit.depth:
            nest.split(deep.name, plan.unit.depth)
        nest.dot(deep.loops[-1].name, plan.unit.name)
    else:
        _decide_windows(nest, plan)
    if plan.block:
        _pack_blocks(nest, target, plan)
        return
    seen = _seen(nest, plan.vectors)
    outputs = [a for a in nest.axes if not a.is_reduce and a.counted]
    # whatever changes the panel is outside, whatever reuses it inside, the row tiles innermost
    outside = [a for a in outputs if seen & a.bit and a is not vector]
    last = [a for a in outputs if a is vector]
    outside = [*last, *outside] if _shares_lines(nest, facts, vector, outside) else [*outside, *last]
    inside = [a for a in outputs if not seen & a.bit and a is not row] + [a for a in outputs if a is row]
    if plan.pack_vectors and plan.pack_scalars and plan.unit is None and outside == [vector]:
        boxed = [load for load in plan.scalars if facts.is_masked(load)]
        costs = Costs(plan.cycles - plan.packs, plan.packs, plan.panel_bytes)
        threads = 1 if plan.cycles < ALONE_CYCLES else target.threads
        if len(boxed) == 1 and share_boxes(
            nest, target, plan.vectors, boxed[0], vector, inside, costs, threads
        ):
            return
    _bind_groups(nest, target, plan.cycles, outside, inside, packs=plan.pack_vectors)
    _order(nest, [*outside, *inside])
    if plan.pack_vectors:
        at = _last_loop(nest, outside, inside)
        for load in plan.vectors:
            nest.because("what jumps in memory is packed first, in the order in which it is read")
            nest.stage(nest.loads.index(load), at)
    if plan.unit is not None:
        if plan.pack_scalars:
            _stage_words(nest, facts, plan)
        return
    if plan.pack_scalars:
        for load in plan.scalars:
            if facts.is_masked(load):
                _stage_box(nest, target, load)
    for load in plan.scalars:
        contiguous = any(a.is_reduce and a.size >= lanes and facts.stride(load, a) == 1 for a in nest.axes)
        is_narrow = load.dtype.itemsize < 4 and not facts.is_masked(load)
        if is_narrow and contiguous and not nest.never_staged(load):
            _stage_box(nest, target, load, innermost=True)


def _shares_lines(nest: LoopNest, facts: Accesses, vector: Axis, others: list[Axis]) -> bool:
    """Whether results beside each other belong to another of these axes, as in the gradient of a convolution's weight.

    Each step of that axis then writes to the same cache lines: with the panels outside, they are still near.
    """
    strides = [abs(facts.stride(store, vector) or 0) for store in nest.stores]
    inner = [abs(facts.stride(store, a) or 0) for store in nest.stores for a in others]
    return min(strides) > 1 and any(0 < stride < min(strides) for stride in inner)


def _pack_blocks(nest: LoopNest, target: Target, plan: Plan) -> None:
    """A group packs the rows of its block; for each panel it packs that, and goes through the block's tiles."""
    vector, row = plan.vector, plan.row
    blocks, tiles = row.loops[0] if len(row.counted) > 1 else None, row.counted[-1]
    if blocks is not None and target.threads > 1 and plan.cycles >= ALONE_CYCLES:
        nest.parallel(blocks.name)
    panels = vector.counted
    wanted = [loop.name for loop in (blocks, *panels, tiles) if loop is not None and loop.kind == "serial"]
    if wanted != [loop.name for loop in nest.order if loop.kind == "serial" and not loop.axis.is_reduce]:
        nest.reorder(*wanted)
    at_block = "-" if blocks is None else blocks.name
    nest.because("rows of a group and panels are packed once, and then read in order, tile by tile")
    for load in plan.vectors:
        nest.stage(nest.loads.index(load), panels[-1].name if panels else at_block)
    for load in plan.scalars:
        nest.stage(nest.loads.index(load), at_block)


def _decide_windows(nest: LoopNest, plan: Plan) -> None:
    """Write a window out where the sum has a condition on the place in it: most of that is decided here and now."""
    if not any(node.src[0].op is Op.WHERE for node in nest.reduces):
        return
    copies = plan.rows * plan.width * (1 if plan.beside is None else plan.beside.size)
    for load in plan.scalars:
        for a, b, _ in nest.overlaps(load):
            if a is plan.row and len(b.loops) == 1 and b.size * copies <= MAX_WINDOW_COPIES:
                nest.unroll(b.loops[0].name)
                return


def _stage_box(nest: LoopNest, target: Target, load: Node, innermost: bool = False) -> None:
    """Pack a padded or narrow operand at the outermost loop where what is read below it fits beside the panels."""
    loops = [loop for loop in nest.order if not loop.axis.is_reduce]
    first = max((i for i, loop in enumerate(loops) if loop.kind == "group"), default=-1)
    for i in range(max(len(loops) - 1 if innermost else first, 0), len(loops)):
        if nest.box_bytes(load, loops[: i + 1]) <= target.l2_bytes // 3:
            nest.because("a padded or narrow operand is packed once, where that fits the cache")
            nest.box(nest.loads.index(load), loops[i].name)
            return


def _stage_words(nest: LoopNest, facts: Accesses, plan: Plan) -> None:
    """Pack the rows of a tile in words, within the innermost loop of the outputs."""
    load = plan.scalars[0]
    at = [loop.name for loop in nest.order if not loop.axis.is_reduce][-1:] or ["-"]
    is_run = plan.deep is not None and facts.stride(load, plan.deep) == 1
    nest.stage(nest.loads.index(load), at[0], is_box=is_run)


# -- dot products ---------------------------------------------------------------------------------------------------


def _dot_plans(nest: LoopNest, facts: Accesses, target: Target) -> list[Plan]:
    lanes = facts.lanes(target)
    outputs = [axis for axis in nest.axes if not axis.is_reduce]
    plans = []
    for vector in nest.axes:
        if not vector.is_reduce or vector.size < lanes // 2 or lanes < 4:
            continue
        inside = [load for load in nest.loads if nest.masks[load] & vector.bit]
        if any(facts.stride(load, vector) != 1 for load in inside):
            continue
        steps = prod(a.size for a in nest.axes if a.is_reduce and a is not vector)
        parts = vector.size // lanes + bin(vector.size % lanes).count("1")
        for row in outputs:
            for column in outputs:
                mine = [load for load in inside if nest.masks[load] & row.bit]
                others = [load for load in inside if nest.masks[load] & column.bit]
                if row is column or not mine or not others or set(mine) & set(others):
                    continue
                plans.append(_dot_plan(nest, facts, vector, row, column, mine, others, steps * parts, target))
    return plans


def _dot_plan(
    nest: LoopNest,
    facts: Accesses,
    vector: Axis,
    row: Axis,
    column: Axis,
    mine: list[Node],
    others: list[Node],
    steps: int,
    target: Target,
) -> Plan:
    best: tuple[float, int, int] = (float("inf"), 1, 1)
    masked = sum(facts.is_masked(load) for load in mine), sum(facts.is_masked(load) for load in others)
    lanes = facts.lanes(target)
    # neighbouring places of windows are an element apart: their vectors lie across two lines
    lines = [
        2 if any((facts.stride(load, axis) or 0) % lanes for load in loads) else 1
        for axis, loads in ((row, mine), (column, others))
    ]
    reduced = [axis for axis in nest.axes if axis.is_reduce]

    def far(axis: Axis, loads: list[Node], count: int) -> int:
        """Bytes of a step that come from afar, for what a tile reads takes more than its half of the second cache."""
        each = lanes * sum(load.dtype.itemsize * _apart(facts, load, axis, count, reduced) for load in loads)
        return each if 2 * each * steps > target.l2_bytes else 0

    for rows in (6, 5, 4, 3, 2, 1):
        for width in (8, 7, 6, 5, 4, 3, 2, 1):
            if rows > row.size or width > column.size or rows * width + rows + 1 > target.vector_registers:
                continue
            tiles = -(-row.size // rows) * -(-column.size // width)
            loads = rows * lines[0] + width * lines[1]
            per_step = max(rows * width, LATENCY, loads) / 2 + 0.5
            per_step += MASKED_LOAD * (rows * masked[0] + width * masked[1])
            per_step = max(per_step, (far(row, mine, rows) + far(column, others, width)) / FAR_BYTES)
            cycles = tiles * (steps * per_step + rows * width * 8.0)
            if cycles < best[0]:
                best = (cycles, rows, width)
    cycles, rows, width = best
    rest = prod(a.size for a in nest.axes if not a.is_reduce and a is not row and a is not column)
    return Plan("dot", vector, column, row, rows, width, others, mine, cycles * rest)


def _apart(facts: Accesses, load: Node, axis: Axis, count: int, reduced: list[Axis]) -> int:
    """How many times as much a load reads for several values of an axis as for one: places of a window overlap."""
    mine, most = abs(facts.stride(load, axis) or 0), count
    for other in reduced:
        step = abs(facts.stride(load, other) or 0)
        if mine and step and step % mine == 0:  # every second place is another window's
            most = min(most, step // mine)
        elif mine and step and mine % step == 0 and mine // step < other.size:
            most = 1
    return most


def _apply_dot(nest: LoopNest, facts: Accesses, target: Target, plan: Plan) -> None:
    lanes = facts.lanes(target)
    while lanes > plan.vector.size:
        lanes //= 2
    _tile_axis(nest, plan.row, plan.rows)
    _tile_axis(nest, plan.column, plan.width)
    if lanes < plan.vector.size:
        nest.split(plan.vector.name, lanes)
    nest.vectorize(plan.vector.loops[-1].name)
    outputs = [a for a in nest.axes if not a.is_reduce and a.counted]
    _bind_groups(nest, target, plan.cycles, outputs, [], packs=False)


# -- shared ---------------------------------------------------------------------------------------------------------


def _seen(nest: LoopNest, loads: list[Node]) -> int:
    """The ranges that any of the loads depends on, as bits."""
    bits = 0
    for load in loads:
        bits |= nest.masks[load]
    return bits


def _tile_axis(nest: LoopNest, axis: Axis, size: int) -> None:
    """Write out `size` values of an axis at a time."""
    if size < axis.size:
        if size == 1:
            return
        nest.split(axis.name, size)
    nest.unroll(axis.loops[-1].name)


def _bind_groups(
    nest: LoopNest, target: Target, cycles: float, outside: list[Axis], inside: list[Axis], packs: bool
) -> None:
    """Groups from the outermost loops; those that reuse a panel are divided only when there are too few panels."""
    if target.threads < 2 or cycles < ALONE_CYCLES:
        return
    threads = target.threads
    wanted = min(GROUPS_PER_THREAD, -(-int(cycles / PIECE_CYCLES) // threads) or 1) * threads
    groups = 1
    nest.because(
        f"{cycles / 1e3:.0f} thousand cycles by the estimate, for {threads} threads: outer loops are groups"
    )
    for axis in [*outside, *inside]:
        loop = axis.loops[0]
        enough = min(wanted, 4 * threads) if packs and axis in inside else wanted
        # three groups keep two threads busy 3/4 of the time
        is_even = groups % threads == 0 or groups >= 4 * threads
        if (groups >= enough and is_even) or loop.kind != "serial" or loop.size < 2:
            continue
        pieces = max(-(-enough // groups), 1 if is_even else threads)
        if loop.size >= 2 * pieces:
            nest.split(loop.name, -(-loop.size // pieces))
        nest.parallel(loop.name)
        groups *= loop.size


def _order(nest: LoopNest, axes: list[Axis]) -> None:
    """The serial output loops in the order of their axes."""
    serial = [loop for loop in nest.order if loop.kind == "serial" and not loop.axis.is_reduce]
    wanted = [loop for axis in axes for loop in axis.counted if loop.kind == "serial"]
    if wanted != serial:
        nest.reorder(*[loop.name for loop in wanted])


def _last_loop(nest: LoopNest, outside: list[Axis], inside: list[Axis]) -> str:
    """The innermost loop in whose step a panel stays the same: after every group and every loop of `outside`."""
    at = "-"
    for loop in nest.order:
        if loop.kind == "group" or loop.axis in outside:
            at = loop.name
    return at
