"""Heuristic for matrix units: products of narrow floats, tiled for the waves of a block.

In       a fresh LoopNest, its accesses, the architecture
Out      True and a schedule, where one sum of products fits a unit of the GPU; else False, and nothing is done
Next     heuristic_gpu.py (who asks first), matrix_units.py (the shapes), ../linear/fragments.py, ../linear/sharing.py

A block multiplies tiles of `rows` x `columns`; each of its waves has a part of that in registers. What a block reads
for one step along k lies in shared memory.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import NamedTuple

from hcq.compiler.chips import PORT_BYTES, SHARED_BYTES, Chip, chip_of
from hcq.compiler.loops.accesses import Accesses
from hcq.compiler.loops.heuristic_warpgroup import warpgroup_tile
from hcq.compiler.loops.loop import Axis, Loop
from hcq.compiler.loops.loop_nest import LoopNest
from hcq.compiler.loops.matrix_units import HELD, MatrixUnit, units_for, units_of, widened
from hcq.compiler.loops.scaled import factors_of
from hcq.compiler.target import Target
from hcq.ir.block_scales import BLOCK
from hcq.ir.node import Node, toposort
from hcq.ir.op import Op

FEW_THREADS = 128  # a warpgroup alone copies as it goes; several are better not made to wait for each other

# rows and columns of a block's tile, and of waves in it: the largest first
SMALL_TILES = ((16, 64, 1, 4), (64, 16, 4, 1), (16, 32, 1, 2), (16, 32, 1, 1), (16, 16, 1, 1))
TILES = (
    (128, 128, 2, 4),
    (128, 64, 4, 2),
    (64, 128, 2, 4),
    (64, 64, 2, 2),
    (32, 64, 2, 2),
    (32, 32, 2, 2),
    *SMALL_TILES,
)
WIDE_TILES = (
    (128, 128, 2, 2),
    (64, 128, 1, 4),
    (64, 64, 2, 2),
    (32, 32, 2, 2),
    *SMALL_TILES,
)  # of waves of 64 threads
NV_TILES = (
    *(
        (128, 128, 2, 2),
        (128, 64, 2, 2),
        (64, 128, 2, 2),
        (64, 64, 2, 2),
        (32, 64, 2, 2),
        (32, 32, 2, 2),
        (32, 32, 1, 1),
    ),
    *SMALL_TILES,
)
REST = 0.1  # of the time of what does not bound a tile: of two that are bound alike, the one that asks less
WHOLE_RESULTS = 64 * 64  # of a block at most, and
WHOLE_REGISTERS = 96  # of a thread, for all that it reads of a short k: nothing is staged then, nobody waits

DEPTH_BYTES = 128  # along k in shared memory at a time, where threads copy them: a cache line of AMD's
TILES_AHEAD = 1  # in shared memory, and the next in registers: as deep as this, two would fill it
MOST_PADDED = 1.1  # of what is multiplied beyond the end of k, before fewer values of it are taken at a time
VECTOR = 8  # numbers of 16 bits that are read at once
SECTOR, LINE = 32, 128  # bytes of memory that are written at once: NVIDIA, AMD
LANES = 4  # results that a thread stores, once they are put together
NV_DEPTH_BYTES = 64  # where the GPU copies by itself
WIDENED_AHEAD = 2  # where threads widen what they copy: the next step's waits in registers
NV_TILES_AHEAD = 3  # of which two are under way: some hundred cycles, which a wait for memory takes


@dataclass
class Product:
    """A sum of products: its ranges, and what its factors read."""

    units: list[MatrixUnit]  # that take it, the largest first
    m: Axis
    n: Axis
    k: Axis
    loads: list[Node]
    factors: list[Node]
    beside_n: list[Axis]  # other outputs, to be counted by n's range as well
    along: list[Axis]  # all ranges that are summed over


def schedule_matrix(nest: LoopNest, facts: Accesses, target: Target) -> bool:
    """Tile the nest for a matrix unit if it is a product that one takes."""
    found = _product(nest, facts, target)
    if found is None:
        return False
    nest.because(f"other outputs lie beside {found.n.name}: one range counts both, for whole tiles")
    if _join(nest, facts, found):
        found = _product(nest, facts, target)
        assert found is not None
    batch = prod(a.size for a in nest.axes if not a.is_reduce and a not in (found.m, found.n))
    rows, columns, waves_down, waves_across, is_whole = _tile(found, facts, batch, target)
    unit = next(
        unit for unit in found.units if rows // waves_down >= 2 * unit.size("m") or unit is found.units[-1]
    )
    depth = (NV_DEPTH_BYTES if copies_by_itself(target) else DEPTH_BYTES) // unit.a.itemsize
    depth = min(depth, -(-found.k.size // unit.size("k")) * unit.size("k"))
    if is_whole:
        depth = _up(found.k.size, unit.size("k"))
    while (
        not is_whole
        and depth % (2 * unit.size("k")) == 0
        and _up(found.k.size, depth) > MOST_PADDED * _up(found.k.size, depth // 2)
    ):
        depth //= 2
    ahead, together = NV_TILES_AHEAD if copies_by_itself(target) else TILES_AHEAD, 1
    if copies_by_itself(target) and any(factor.dtype not in (unit.a, unit.b) for factor in found.factors):
        ahead = WIDENED_AHEAD
    wide = warpgroup_tile(nest, found.factors, found.m, found.n, found.k, batch, target)
    if wide is not None:
        unit, rows, columns, waves_down, depth, ahead, together = wide
        waves_across, is_whole = 1, False
    numbers = [nest.loads.index(load) for load in found.loads]
    nest.because(
        f"a product that the matrix unit {unit.name} takes: a block computes {rows} x {columns} results "
        f"with {waves_down * waves_across} waves, {depth} steps of {found.k.name} at a time; by the "
        "estimate this tile takes the fewest clocks"
    )
    m, n, k = found.m.name, found.n.name, found.k.name
    for name, size in ((m, rows), (n, columns), (k, depth)):
        nest.pad(name, size)
    inner = [
        _split(nest, m, (rows * together, rows, rows // waves_down, unit.size("m"))),
        _split(nest, n, (columns, columns // waves_across, unit.size("n"))),
        _split(nest, k, (depth, unit.size("k")), is_whole=wide is not None),
    ]
    rows_of, columns_of, along = (loop.name for loop in inner)
    nest.matrix(rows_of, columns_of, along, unit.name)
    for name, part, waves in (
        (m, rows // waves_down, waves_down),
        (n, columns // waves_across, waves_across),
    ):
        for loop in reversed(list(_axis(nest, name).loops)):
            if loop.kind == "serial" and loop.stride < part:
                nest.unroll(loop.name)
            elif loop.kind == "serial" and loop.stride == part and loop.size == waves:
                nest.thread(loop.name)
    for loop in list(_axis(nest, k).loops):
        if loop.kind == "serial" and loop.stride < depth:
            nest.unroll(loop.name)
    groups = [axis.loops[0] for axis in nest.axes if not axis.is_reduce and not axis.is_ordered]
    if _is_shared_by_rows(_axis(nest, m).loops[0], _axis(nest, n).loops[0], chip_of(target.arch)):
        groups.sort(key=lambda loop: loop.axis.name == m)  # rows last: numbered fastest
    for loop in groups:
        if loop.kind == "serial" and loop.size > 1:
            nest.parallel(loop.name)
    if together > 1:
        nest.parallel(_axis(nest, m).loops[1].name)
    if not is_whole:
        stage_along(nest, k, numbers, ahead)
    if _stores_pieces(nest, unit, _axis(nest, n), SECTOR if copies_by_itself(target) else LINE):
        nest.because(
            "rows of results are stored whole: through shared memory, since a thread has only pieces of them"
        )
        nest.collect()
    return True


def _is_shared_by_rows(down: Loop, across: Loop, chip: Chip) -> bool:
    """Whether the dies of a chip would share out rows of blocks evenly, and columns of them not.

    Blocks go to dies in turn, and each has an L2 of its own. Where the count of blocks that are numbered fastest is a
    multiple of the dies, a die has the same few columns (or rows) of every row (or column), and its L2 what they read;
    else it has others each time, and reads all.
    """
    return across.size % chip.l2s != 0 and down.size % chip.l2s == 0


class Tile(NamedTuple):
    """What a block multiplies, its waves, and whether each reads for itself what it needs of all of k."""

    rows: int
    columns: int
    waves_down: int
    waves_across: int
    is_whole: bool


def _tile(found: Product, facts: Accesses, batch: int, target: Target) -> Tile:
    """The tile with which all blocks are done first, by what the busiest core multiplies, reads of L2 and of shared
    memory, and by what L2 sends to all of them.

    Wide tiles are used more often, and small ones reach more cores.
    """
    sizes = {factor.dtype.itemsize for factor in found.factors}
    chip, size = chip_of(target.arch), max(sizes)
    wave = prod(found.units[0].digits)
    tiles = NV_TILES if copies_by_itself(target) else WIDE_TILES if wave == 64 else TILES
    k = _up(found.k.size, found.units[-1].size("k"))
    terms = prod(axis.size for axis in found.along)
    is_only = all(axis.size == 1 or axis is found.k for axis in found.along)

    def least(side: Axis) -> int:
        """Bytes of an operand that are read at once for each step of k: whole sectors, where it lies otherwise."""
        loads = [load for load in found.loads if facts.nest.masks[load] & side.bit]
        return 1 if all(facts.stride(load, found.k) == 1 for load in loads) else chip.sector_bytes

    of_rows, of_columns = least(found.m), least(found.n)

    def clocks(tile: Tile) -> float:
        blocks = -(-found.m.size // tile.rows) * -(-found.n.size // tile.columns) * batch
        rounds = -(-blocks // target.cores)
        sent = _up(tile.rows * size, of_rows) + _up(tile.columns * size, of_columns)
        fragments = (tile.waves_across * tile.rows + tile.waves_down * tile.columns) * size
        copied = 0 if tile.is_whole else (tile.rows + tile.columns) * size
        taken = (
            rounds * tile.rows * tile.columns * size / chip.matrix_flops,
            rounds * (fragments + copied) / SHARED_BYTES,
            rounds * (sent + 4 * tile.rows * tile.columns / terms) / PORT_BYTES,
            blocks * sent / chip.l2_bytes,
        )
        return max(taken) + REST * (sum(taken) - max(taken))

    def fits(rows: int, columns: int, down: int, across: int) -> bool:
        """Whether a wave's operands of all of k are in registers, and nothing else is summed over. Bytes are turned in
        shared memory, each would be a load; what is widened or rounded is so on the way there.
        """
        if not is_only or sizes != {2} or rows * columns > WHOLE_RESULTS:
            return False
        copies = wave // prod(
            steps for steps, at in (*found.units[-1].b_n, *found.units[-1].k_of_b) if at >= 0
        )
        return copies * (rows // down + columns // across) * k * size // (4 * wave) <= WHOLE_REGISTERS

    return min((Tile(*tile, fits(*tile)) for tile in tiles), key=clocks)


def _stores_pieces(nest: LoopNest, unit: MatrixUnit, n: Axis, whole: int) -> bool:
    """Whether threads next to each other store less than so many bytes of a row, which could be stored by fours.

    Where the kernel reads what it writes, pieces they remain.
    """
    if nest.reads_what_it_writes:
        return False
    neighbours = 1
    for size, digit in reversed(unit.d_n):
        neighbours *= size if digit in (HELD, 0) else 1
        if digit == 0:  # registers outside of it are for other pieces of the row
            break
    if unit.keeps_sums:  # a thread has a row by itself, which it stores piece by piece
        neighbours = LANES
    for store in nest.stores:
        form = nest.affine.of(store.src[1])
        steps = [form.constant, *[step for atom, step in form.terms if atom is not n.range]]
        if form.coefficient(n.range) != 1 or any(step % LANES for step in steps) or any(form.atoms()):
            return False
    widest = max(store.src[0].dtype.itemsize for store in nest.stores)
    return n.size % LANES == 0 and neighbours * widest < whole


def _up(size: int, multiple: int) -> int:
    return -(-size // multiple) * multiple


def copies_by_itself(target: Target) -> bool:
    """Whether the GPU copies to shared memory while its threads compute: cp.async."""
    return target.name in ("nvptx", "cuda")


def _axis(nest: LoopNest, name: str) -> Axis:
    return next(axis for axis in nest.axes if axis.name == name)


def _split(nest: LoopNest, name: str, sizes: tuple[int, ...], is_whole: bool = False) -> Loop:
    """The innermost loop of a range that was cut at these sizes. is_whole: also where that leaves one step."""
    axis = _axis(nest, name)
    for size in sizes:
        if axis.loops[-1].size > size or (is_whole and len(axis.loops) == 1):
            nest.split(axis.loops[-1].name, size)
    return axis.loops[-1]


def stage_along(nest: LoopNest, k: str, numbers: list[int], tiles: int) -> None:
    """Loads in shared memory for each step of k's outermost loop, which comes after other reduced ranges' loops.

    tiles   of each operand, where the loop has that many steps; else 2
    """
    serial = [loop for loop in nest.order if loop.axis.is_reduce]
    along = [loop for loop in serial if loop.axis.name == k]
    others = [loop for loop in serial if loop.axis.name != k]
    if not along and not others and nest.groups:  # one step: a block's whole operands
        for number in numbers:
            if not nest.never_staged(nest.loads[number]):
                nest.stage(number, nest.groups[-1].name)
    if not along:
        return
    if others:
        nest.reorder(*[loop.name for loop in (*others, *along)])
    numbers = [number for number in numbers if not nest.never_staged(nest.loads[number])]
    nest.because(
        f"a block reads its operands once into shared memory, for each step of {along[0].name}; {tiles} "
        "tiles are on the way while it computes"
    )
    for number in numbers:
        nest.stage(number, along[0].name)
    if numbers and along[0].size > 1:
        in_bulk = not others and not any(nest.never_in_bulk(nest.loads[number]) for number in numbers)
        has_producer = nest.threads > FEW_THREADS and along[0].size > tiles
        by = "" if not in_bulk else "producer" if has_producer else "bulk"
        nest.pipeline(along[0].name, tiles if along[0].size >= tiles else 2, by)


def _product(nest: LoopNest, facts: Accesses, target: Target) -> Product | None:
    """The kernel's one reduction, where it is a sum of products that a unit of the target takes."""
    if len(nest.reduces) != 1:
        return None
    node = nest.reduces[0]
    if node.arg is not Op.ADD or node.src[0].op is not Op.MUL:
        return None
    outputs = [a for a in nest.axes if not a.is_reduce and not a.is_ordered]
    found = factors_of(node.src[0], nest.masks, sum(a.bit for a in outputs))
    factors, scales = [one.value for one in found], [one.exponents for one in found if one.exponents]
    if not factors or not units_for(
        target.arch, factors[0].dtype, factors[1].dtype, target.flags, bool(scales)
    ):
        return None
    sees = [nest.masks[factor] for factor in factors]
    apart = [[a for a in outputs if sees[i] & a.bit and not sees[1 - i] & a.bit] for i in (0, 1)]
    both = [a for a in nest.axes if a.is_reduce and not a.is_ordered and sees[0] & sees[1] & a.bit]
    if not apart[0] or not apart[1] or not both:
        return None

    def column(axes: list[Axis]) -> Axis:
        return max(axes, key=lambda a: (facts.store_stride(a) == 1, a.size))

    of_n = max((0, 1), key=lambda i: (facts.store_stride(column(apart[i])) == 1, i))
    m, n = column(apart[1 - of_n]), column(apart[of_n])
    k = max(both, key=lambda a: (_contiguous(nest, a), a.size))
    beside = _joinable(facts, n, [axis for axis in apart[of_n] if axis is not n])
    left, right = factors[1 - of_n].dtype, factors[of_n].dtype
    if scales and k.size % BLOCK:
        return None
    of_scales = set(toposort(scales))
    loads = [load for load in nest.loads if nest.masks[load] & k.bit and load not in of_scales]
    depth, others = k.size, [axis for axis in both if axis is not k]
    if others and all(_stays_aligned(nest, load, others[-1], k) for load in nest.loads):
        depth *= others[-1].size
    sides = m.size, prod(axis.size for axis in (n, *beside))
    known = units_for(target.arch, left, right, target.flags, bool(scales))
    if (
        known and not scales and depth < known[-1].size("k") // 2
    ):  # too deep: as wider floats, which units take fewer of
        known = units_of(target.arch, widened(left), widened(right), flags=target.flags)
    units = [unit for unit in known if unit.result is node.dtype]
    if not units or min(sides) < 2 or max(sides) < 8 or depth < units[-1].size("k") // 2:
        return None
    return Product(units, m, n, k, loads, factors, beside, both)


def _contiguous(nest: LoopNest, axis: Axis) -> int:
    """How many loads walk memory element by element along a range that is long enough for a vector."""
    if axis.size < VECTOR:
        return 0
    return sum(nest.affine.stride(load.src[1], axis.range) == 1 for load in nest.loads)


def _joinable(facts: Accesses, n: Axis, others: list[Axis]) -> list[Axis]:
    """Outputs that are stored as one walk with n, where that is shorter than a tile: the innermost first."""
    found: list[Axis] = []
    stride, size = facts.store_stride(n), n.size
    for axis in reversed(others):
        if not stride or size >= TILES[0][1] or facts.store_stride(axis) != size * stride:
            break
        found.append(axis)
        size *= axis.size
    return found


def _join(nest: LoopNest, facts: Accesses, found: Product) -> bool:
    """Count the places of an image as one range, and the places of a window and its channels as one sum.

    Where rows are shorter than a tile, which then has several. A sum is counted as one where what lies together along
    it still begins at vectors.
    """
    n, k, before = found.n, found.k, len(nest.choices)
    for axis in found.beside_n:
        nest.join(axis.name, n.name)
    for axis in reversed([axis for axis in found.along if axis is not k]):
        outer, inner = nest.axis(axis), nest.axis(k)
        if not all(_stays_aligned(nest, load, outer, inner) for load in nest.loads):
            break
        nest.join(outer.name, inner.name)
    return len(nest.choices) > before


def _stays_aligned(nest: LoopNest, load: Node, outer: Axis, inner: Axis) -> bool:
    """Whether a load's vectors along a range are vectors still when that counts another one, too."""
    at = load.src[1]
    is_contiguous = nest.affine.step(at, inner.range, VECTOR) == 1
    is_one_walk = nest.affine.of(at).coefficient(outer.range) == inner.size
    return not is_contiguous or inner.size % VECTOR == 0 or is_one_walk
