"""Contractions: matrix products, convolutions and their kin, tiled in registers.

In       a LoopNest with a reduction, its accesses, a Target
Out      True and a schedule, where two operands each ignore an output axis that the other one walks
Next     heuristic.py (who asks first), loop_nest.py (`stage`: packed panels)

The tile is `rows` values of one output axis by `width` vectors of another. Each step of the reduction loads `width`
vectors, and each of `rows` scalars is used `width` times: rows * width accumulators stay in registers, chosen to fill
the register file. The vector operand is packed once per panel (its own order in memory may cost a page per step); groups
are panels, and blocks of rows where there are few panels.
"""

from __future__ import annotations

from dataclasses import dataclass

from hcq.compiler.accesses import Accesses
from hcq.compiler.loop_nest import Axis, LoopNest
from hcq.compiler.target import Target
from hcq.ir.node import Node

FLOPS_PER_NS = 60.0  # one thread, what a tiled contraction reaches
ALONE_NS = 30_000
LATENCY = 8  # accumulators needed to keep the multipliers busy


@dataclass
class Plan:
    """Which axis gives the lanes, which the rows, and what each operand is."""

    vector: Axis
    row: Axis
    vector_loads: list[Node]
    scalar_loads: list[Node]
    score: float


def schedule_contraction(nest: LoopNest, facts: Accesses, target: Target) -> bool:
    """Tile the nest if it is a contraction; False (and nothing done) otherwise."""
    plan = find_plan(nest, facts, target)
    if plan is None:
        return False
    lanes = facts.lanes(target)
    reduced = facts.points // max(1, facts.outputs)
    width, rows = tile(plan, lanes, target)
    vector, row = plan.vector, plan.row
    work_ns = 2 * facts.points / FLOPS_PER_NS

    nest.split(row.name, rows) if rows < row.size else None
    nest.unroll(row.loops[-1].name)
    lane_count = lanes
    while lane_count > vector.size:
        lane_count //= 2
    if lane_count * width < vector.size:
        nest.split(vector.name, lane_count * width)
    panel_loop = vector.loops[-1]
    if panel_loop.size > lane_count:
        nest.split(panel_loop.name, lane_count)
        nest.vectorize(vector.loops[-1].name)
        nest.unroll(panel_loop.name)
    else:
        nest.vectorize(panel_loop.name)

    panels = vector.loops[0] if vector.counted else None
    row_tiles = row.loops[0] if row.counted else None
    others = [a for a in nest.axes if not a.is_reduce and a is not vector and a is not row]
    groups = 1
    if work_ns >= ALONE_NS and target.threads > 1:
        wanted = int(min(8 * target.threads, max(target.threads, work_ns / 50_000)))
        for axis in others:  # batches: independent products
            if groups < wanted and not axis.is_ordered:
                nest.parallel(axis.loops[0].name)
                groups *= axis.size
        if panels is not None and groups < wanted and panels.size > 1:
            nest.parallel(panels.name)
            groups *= panels.size
        if row_tiles is not None and groups < wanted and row_tiles.size >= 2:
            pieces = min(-(-wanted // groups), row_tiles.size)
            block = -(-row_tiles.size // pieces)
            if block > 1:
                nest.split(row_tiles.name, block)
            nest.parallel(row_tiles.name)
    # panels outside rows: a packed panel serves every row of the group
    outer = [loop for loop in nest.order if loop.kind == "serial" and not loop.axis.is_reduce]
    wanted_order = [loop for loop in outer if loop.axis is not row] + [
        loop for loop in outer if loop.axis is row
    ]
    if wanted_order != outer:
        nest.reorder(*[loop.name for loop in wanted_order])
    row_steps = max((loop.size for loop in row.counted if loop.kind == "serial"), default=1)
    at = _panel_loop(nest, row)
    for load in plan.vector_loads:
        panel_bytes = reduced * lane_count * width * load.dtype.itemsize
        jumps = facts.stride(load, vector) != 1 or facts.is_masked(load)
        far = reduced >= 64 and row_steps >= 4
        if row_steps >= 2 and (jumps or far) and panel_bytes <= target.l2_bytes:
            nest.stage(nest.loads.index(load), at)
    return True


def _panel_loop(nest: LoopNest, row: Axis) -> str:
    """The loop in whose steps a panel stays the same: the last one outside the rows'."""
    at = "-"
    for loop in nest.order:
        if loop.axis.is_reduce or (loop.axis is row and loop.kind == "serial"):
            break
        at = loop.name
    return at


def find_plan(nest: LoopNest, facts: Accesses, target: Target) -> Plan | None:
    """The best pair of output axes to tile, None where nothing is used twice."""
    if any(axis.is_ordered for axis in nest.axes):
        return None
    inside = [load for load in nest.loads if nest.masks[load] & _reduced_bits(nest)]
    outputs = [axis for axis in nest.axes if not axis.is_reduce]
    best: Plan | None = None
    for vector in outputs:
        if vector.size < 4 or any(facts.stride(store, vector) is None for store in nest.stores):
            continue
        vectors = [load for load in inside if nest.masks[load] & vector.bit]
        scalars = [load for load in inside if not nest.masks[load] & vector.bit]
        if not vectors or not scalars:
            continue
        rows = [a for a in outputs if a is not vector and not any(nest.masks[v] & a.bit for v in vectors)]
        rows = [a for a in rows if all(nest.masks[s] & a.bit for s in scalars) and a.size > 1]
        if not rows:
            continue
        row = max(rows, key=lambda a: min(a.size, 14))
        plan = Plan(vector, row, vectors, scalars, _score(nest, facts, target, vector, row, vectors, scalars))
        if best is None or plan.score > best.score:
            best = plan
    return best


def _reduced_bits(nest: LoopNest) -> int:
    bits = 0
    for axis in nest.axes:
        if axis.is_reduce:
            bits |= axis.bit
    return bits


def _score(
    nest: LoopNest,
    facts: Accesses,
    target: Target,
    vector: Axis,
    row: Axis,
    vectors: list[Node],
    scalars: list[Node],
) -> float:
    """Higher is better: full lanes, contiguous stores and vector loads, unmasked scalars."""
    lanes = facts.lanes(target)
    score = vector.size / (-(-vector.size // lanes) * lanes)
    if any(facts.store_stride(vector) != 1 for _ in nest.stores):
        score -= 0.15
    for load in vectors:
        if facts.stride(load, vector) != 1:
            score -= 0.1
        if facts.is_masked(load):
            score -= 0.1
    for load in scalars:
        if facts.is_masked(load):
            score -= 0.2
    return score + min(row.size, 8) / 16


def tile(plan: Plan, lanes: int, target: Target) -> tuple[int, int]:
    """(width, rows): vectors across and scalars down, the pair that wastes least of the work and of the registers."""
    best = (1, 1)
    best_cost = float("inf")
    for width in (3, 2, 1):
        if width > 1 and plan.vector.size < lanes * width:
            continue
        across = _tiles_cost(plan.vector.size, lanes * width, lanes)
        for rows in range(min(plan.row.size, 16), 0, -1):
            if rows * width + width + 1 > target.vector_registers - 1 and rows > 1:
                continue
            full, left = divmod(plan.row.size, rows)
            # per step of the reduction: multiplications, or the loads that feed them, or what latency leaves idle
            cost = full * _step_cost(rows, width) + (_step_cost(left, width) if left else 0)
            cost *= across / width
            if cost < best_cost * 0.995:
                best, best_cost = (width, rows), cost
    return best


def _tiles_cost(size: int, tile_size: int, lanes: int) -> float:
    """Vectors needed to cover an axis, a partial one counted by its pieces."""
    left = size % lanes
    return size // lanes + bin(left).count("1")


def _step_cost(rows: int, width: int) -> float:
    return max(rows * width, LATENCY, (rows + width) * 0.95) / 2 + 0.3
