"""Heuristic for GPUs: which ranges become blocks, threads and vectors.

In       a fresh LoopNest, a Target
Out      the same nest with transforms applied; `nest.choice` says which
Next     heuristic.py (its sister for CPUs), loop_nest.py (the transforms), accesses.py (the facts)

Memory decides: threads next to each other read what lies next to each other, 16 bytes each where it divides. Along
which range that is, is the first question; the second, whether results alone fill the machine. Where they do not, the
threads of a block share one reduction.

A plan is a list of `Share`s (shares.py), one for each range that is divided: so many steps written out, so many
threads, so many lanes. Ranges are padded first, then split and bound; what is left of output ranges are blocks.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from math import prod

from hcq.compiler.chips import chip_of, spread
from hcq.compiler.loops.accesses import Accesses
from hcq.compiler.loops.heuristic import merge_all
from hcq.compiler.loops.heuristic_matrix import copies_by_itself, schedule_matrix, stage_along
from hcq.compiler.loops.heuristic_tiles import register_tile
from hcq.compiler.loops.loop import Axis
from hcq.compiler.loops.loop_nest import LoopNest
from hcq.compiler.loops.nested_gpu import schedule_nested
from hcq.compiler.loops.shares import Share
from hcq.compiler.target import Target
from hcq.ir.dtype import dtypes
from hcq.ir.node import Node, toposort
from hcq.ir.op import Op

BLOCK = 256  # threads: enough waves to hide a wait, few enough that several blocks share a core
FEW_BLOCKS = 128  # fewer than this leave cores idle
WIDEST = 16  # bytes of one load
RUN = 8  # elements of a line side by side in a thread, where many scans of it are asked for
KEPT = 32  # elements of a row that a thread keeps in registers
DEPTH = 16  # values along a reduction that are in shared memory at a time
TILES_AHEAD = 4  # of these, where the GPU copies by itself: three are under way, some hundred cycles
NEAR = 8  # threads that store 128 bytes together, where each has vectors of 16
RUN_OF_LINE = 64  # elements in a row that a block copies to shared memory, at least
MOST_COPIES, MOST_STAGED = 32, 1 << 13  # elements of a thread, of a block, that are read from there
TILE = 4  # results of a thread along each side, where operands are used again
EVEN = 0.9  # of the cores' time that is enough: blocks need not be smaller, to be spread more evenly
SINGLE = 8  # elements of a reduction that a thread takes before another one is worth the exchange


_CONDITION = {Op.LOAD: 2, Op.STORE: 3}  # which source says when an access takes place
_JOINS = frozenset({Op.AND, Op.OR, Op.NOT})


def choose(nest: LoopNest, target: Target) -> LoopNest:
    """Apply the schedule we believe in."""
    merge_all(nest)
    if any(axis.size == 0 for axis in nest.axes):
        return nest
    facts = Accesses(nest)
    plan = _Plan(nest, facts, target)
    if nest.reduces and not nest.scans and schedule_nested(nest, facts, target):
        return nest
    if nest.reduces and not nest.scans and schedule_matrix(nest, facts, target):
        return nest
    if nest.scans:
        nest.because(
            "a running sum: threads along the line, and along neighbouring lines where these are contiguous"
        )
        shares = plan.scan()
    elif not nest.reduces:
        nest.because("elementwise: threads along what is stored side by side, until a block is full")
        shares = plan.elementwise()
    elif plan.is_fused_row():
        nest.because(
            "a row is walked again after it was reduced: the same threads for all walks, a block for "
            "some rows"
        )
        shares = plan.fused_row()
    else:
        shares = plan.contraction()
        if shares:
            nest.because("operands are used again along two ranges: each thread computes a tile of results")
        else:
            nest.because(
                f"{facts.points // max(1, facts.outputs)} values make each of {facts.outputs} results; "
                "threads share one where results leave cores idle"
            )
            shares = plan.reduction()
    depth = 0 if plan.depth is None else min(DEPTH, _power_below(plan.depth.size))
    if plan.depth is not None:
        nest.pad(plan.depth.name, depth)
    _apply(nest, shares, plan.blocks)
    if plan.staged is not None:
        nest.because(
            f"load {plan.staged} is contiguous along other ranges than the stores: a block copies it to "
            "shared memory first"
        )
        nest.stage(plan.staged, nest.groups[-1].name if nest.groups else "-")
    if plan.depth is not None:
        nest.split(plan.depth.name, depth)
        bit = nest.axis(plan.depth).bit
        numbers = [i for i, load in enumerate(nest.loads) if nest.masks[load] & bit]
        stage_along(nest, plan.depth.name, numbers, TILES_AHEAD if copies_by_itself(target) else 2)
    return nest


class _Plan:
    def __init__(self, nest: LoopNest, facts: Accesses, target: Target):
        self.nest, self.facts, self.target = nest, facts, target
        self.outputs = [a for a in nest.axes if not a.is_reduce and not a.is_ordered]
        self.reduced = [a for a in nest.axes if a.is_reduce and not a.is_ordered]
        self.blocks = -1  # bits of the output ranges whose outer loops are blocks
        self.staged: int | None = None  # the load that is copied to shared memory first
        self.depth: Axis | None = (
            None  # the reduced range along which operands are staged, DEPTH values at a time
        )

    # -- one pass over what is stored -------------------------------------------------------------------------------

    def elementwise(self) -> list[Share]:
        """Threads along what is stored contiguously, then along the other ranges until a block is full."""
        inner = self._stored_along()
        if inner is None:
            return self._fill([], self._block(self.facts.points))
        lanes = self._lanes(inner, self.nest.loads)
        while lanes > 1 and self.facts.points < lanes * self.wave * self.target.cores // 4:
            lanes //= 2  # so few that it is cores that memory waits for
        turned = self._read_along(inner)
        block = self._block(self.facts.points // lanes)
        if turned is None:
            return self._fill([self._share(inner, block, lanes)], block)
        square = self._square(inner, turned)
        if square > 1:
            across = self._share(inner, NEAR, square)
            block = max(self.wave, self._block(self.facts.points // (square * square)))
            down = Share(
                turned, min(block // across.threads, _power_above(turned.size // square)), run=square
            )
            return self._fill([across, down], block)
        if shares := self._staged(inner):
            return shares
        return [self._share(inner, 32), self._share(turned, self._largest_block(self.facts.points) // 32)]

    def _square(self, inner: Axis, turned: Axis) -> int:
        """How many neighbours along either range a thread reads and stores at a time, turned in registers; 1: none.

        Each access is a vector along one of the two ranges, and nothing else is in its way.
        """
        accesses = [*self.nest.loads, *self.nest.stores]
        lanes = WIDEST // max(_bytes(access) for access in accesses)
        if any(_CONDITION[access.op] < len(access.src) for access in accesses):
            return 1
        for access in accesses:
            form = self.nest.affine.of(access.src[1])
            steps = [form.coefficient(axis.range) for axis in (inner, turned)]
            if any(form.atoms()) or (1 not in steps and any(steps)):
                return 1
            numbers = [
                form.constant,
                inner.size,
                turned.size,
                *[times for _, times in form.terms if times != 1],
            ]
            while any(number % lanes for number in numbers):
                lanes //= 2
        return lanes

    def _staged(self, inner: Axis) -> list[Share]:
        """A block's part of a load that is contiguous along other ranges than the stored one, in shared memory.

        Of the ranges along which the load's neighbours lie nearest to each other it takes enough for whole lines.
        """
        nest, loads = self.nest, [load for load in self.nest.loads if not self.nest.never_staged(load)]
        far = [load for load in loads if self.facts.stride(load, inner) not in (0, 1, -1, None)]
        if len(far) != 1 or len(nest.loads) != 1 or len(far[0].src) > 2:
            return []
        strides = {axis: abs(self.facts.stride(far[0], axis) or 0) for axis in self.outputs}
        near = sorted([a for a in self.outputs if strides[a] and a is not inner], key=lambda a: strides[a])
        if inner.size < 8 or not near or strides[near[0]] != 1:
            return []
        across = self._share(inner, 64)
        shares, threads, elements = [across], across.threads, 1
        for axis in near:
            if elements >= RUN_OF_LINE or strides[axis] > 2 * elements:
                break
            if axis.size <= 16 and axis.size & (axis.size - 1):
                shares.append(Share(axis, copies=axis.size))
            else:
                wanted = _power_above(min(axis.size, RUN_OF_LINE // elements))
                more = min(wanted, BLOCK // threads)
                shares.append(Share(axis, more, copies=wanted // more))
                threads *= more
            elements *= shares[-1].size
        if (
            prod(share.copies for share in shares) > MOST_COPIES
            or prod(share.size for share in shares) > MOST_STAGED
        ):
            return []
        self.staged = nest.loads.index(far[0])
        return shares

    def _stored_along(self) -> Axis | None:
        """The range along which most of the stores are contiguous."""
        counts = {
            axis: sum(self.facts.stride(store, axis) in (1, -1) for store in self.nest.stores)
            for axis in self.outputs
            if axis.size > 1
        }
        best = max(counts, key=lambda axis: (counts[axis], axis.size), default=None)
        return best if best is not None and counts[best] else None

    def _read_along(self, stored: Axis) -> Axis | None:
        """The range along which an operand is contiguous that strides along the stored one."""
        for load in self.nest.loads:
            if self.facts.stride(load, stored) in (0, 1, -1, None):
                continue
            for axis in self.outputs:
                if axis is not stored and self.facts.stride(load, axis) in (1, -1):
                    return axis
        return None

    # -- reductions -------------------------------------------------------------------------------------------------

    def reduction(self) -> list[Share]:
        """Threads along what is contiguous: results, or the parts of one."""
        results = prod(a.size for a in self.outputs)
        column = self._stored_along()
        row = self._contiguous_reduction()
        if column is not None and (row is None or not self._is_row(row, column)):
            lanes = self._lanes(column, self.nest.loads)
            if results < BLOCK * FEW_BLOCKS and column.size >= lanes and self._can_divide():
                return self._few_columns(column, lanes, results)
            if results < 32 * WIDEST * FEW_BLOCKS:
                lanes = 1
            across = self._share(column, self._block(results // lanes), lanes)
            block = self._block(results // lanes)
            if across.threads < 32:  # rows so short that neighbours along them are neighbours in memory
                return self._fill(self._divide([across], results // lanes), block)
            return self._divide(self._fill([across], block), results // lanes)
        if row is None or not self._can_divide():
            return self._fill([], self._block(results))
        lanes = self._lanes(row, [load for load in self.nest.loads if self.nest.masks[load] & row.bit])
        most = BLOCK if results < 4 * FEW_BLOCKS or row.size >= 4096 else self.wave
        threads = min(most if results > 1 else 1024, self._threads_of_row(row.size, lanes))
        shares = [Share(row, threads, lanes, self._copies(row, threads * lanes))]
        block = self._block_of_lines(threads, results)
        return self._fill(shares, block, threads) if threads < block else shares

    def _threads_of_row(self, size: int, lanes: int) -> int:
        """Threads that take a row together: each has a few vectors of it, a wave is enough for a short one."""
        return max(min(self.wave, _power_above(-(-size // lanes))), _power_above(-(-size // (TILE * lanes))))

    def _few_columns(self, column: Axis, lanes: int, results: int) -> list[Share]:
        """Sums of columns of which each core has a few: a whole sector of each row, where that leaves few cores
        without any, and threads along the rows.
        """
        cores = self.target.cores
        along = [_bytes(load) for load in self.nest.loads if self.facts.stride(load, column) == 1]
        widest = max(along, default=4)
        line = min(chip_of(self.target.arch).sector_bytes // widest, _power_below(4 * results // cores))
        width = max(lanes, line, min(self.wave, _power_below(results // cores)))
        width = min(_power_above(column.size), width)
        across = Share(column, max(1, width // lanes), lanes)
        down: list[Share] = []
        left = max(1, BLOCK // across.threads)
        for axis in sorted(self.reduced, key=lambda a: -a.size):
            idle = _power_below(min(self.wave // across.threads, axis.size // 2))  # threads of a wave
            more = min(left, max(idle, _power_above(axis.size // SINGLE)))
            if more > 1:
                down.append(Share(axis, more, copies=self._copies(axis, more)))
                left //= more
        threads = across.threads * prod(share.threads for share in down)
        return [*self._fill([across], self.wave, threads), *down]

    def _is_row(self, row: Axis, column: Axis) -> bool:
        """Whether the operands are contiguous along the reduced range and jump along the stored one."""
        strides = [self.facts.stride(load, column) for load in self.nest.loads]
        return any(s not in (0, 1, -1) for s in strides) and row.size >= 8

    def _contiguous_reduction(self) -> Axis | None:
        found = [a for a in self.reduced if self.facts.contiguous_loads(a) and a.size > 1]
        return max(found, key=lambda a: (self.facts.contiguous_loads(a), a.size), default=None)

    def _can_divide(self) -> bool:
        """Whether threads may share a reduction: what the kernel overwrites is read where it is stored, and after all
        reductions. All threads read it there, and the value of the one that stores is right.
        """
        places: dict[Node, set[Node]] = {}
        for store in self.nest.stores:
            places.setdefault(store.src[0], set()).add(store.src[1])
        reads = [load for load in self.nest.loads if load.src[0] in places]
        if any(places[load.src[0]] != {load.src[1]} for load in reads):
            return False
        inside = toposort([node.src[0] for node in self.nest.reduces])
        return not any(load in reads for load in inside)

    # -- running sums -------------------------------------------------------------------------------------------------

    def scan(self) -> list[Share]:
        """Threads along the line and, where lines are neighbours in memory, along these first."""
        line = next(axis for axis in self.nest.axes if axis.is_scanned)
        lines = prod(a.size for a in self.outputs)
        column = self._stored_along()
        shares: list[Share] = []
        if column is not None and all(self.facts.stride(store, line) != 1 for store in self.nest.stores):
            if lines >= BLOCK * FEW_BLOCKS:
                return [self._share(column, BLOCK), Share(line, copies=min(TILE, line.size))]
            shares.append(self._share(column, 32))
        if not self._can_divide():
            return self._fill(shares, BLOCK)
        threads = prod(share.threads for share in shares)
        lanes = 1 if shares else self._lanes(line, self.nest.loads)
        most = (BLOCK if lines >= FEW_BLOCKS and not shares else 1024) // threads
        if len(self.nest.scans) > 1:  # what crosses threads is what costs: each has more of its own first
            along = self._share(line, most, RUN)
            along.lanes, along.run = 1, RUN
            return self._fill([*shares, along], BLOCK, threads * along.threads)
        along = self._share(line, most, lanes)
        along.copies = min(TILE, _power_below(-(-line.size // along.size)))
        return self._fill([*shares, along], BLOCK, threads * along.threads)

    # -- rows that are reduced and stored ----------------------------------------------------------------------------

    def is_fused_row(self) -> bool:
        """Whether a row is walked again after a reduction: stored (softmax, a normalisation), or reduced once more
        (logsumexp, argmax, a variance).
        """
        if len({reduce.src[1:] for reduce in self.nest.reduces}) > 1:
            return True
        needed = 0
        for reduce in self.nest.reduces:
            needed |= self.nest.masks[reduce]
        return any(not needed & axis.bit for axis in self.outputs)

    def fused_row(self) -> list[Share]:
        """The same threads for each reduction and for what is stored; blocks of what all reductions share."""
        nest, shared, needed = self.nest, -1, 0
        for reduce in nest.reduces:
            shared &= nest.masks[reduce]
            needed |= nest.masks[reduce]
        self.blocks = shared
        if not self._can_divide():
            return []
        rows = [a for a in self.outputs if shared & a.bit]
        along = [a for a in nest.axes if not a.is_ordered and not needed & a.bit and a.size > 1]
        along = self._on_chip(along)
        shares: list[Share] = []
        for axis in sorted(along, key=lambda a: -a.size):
            lanes = self._lanes(axis, [load for load in nest.loads if nest.masks[load] & axis.bit])
            if not shares:
                steps = -(-axis.size // lanes)
                most = BLOCK if steps <= BLOCK * KEPT // lanes else 1024
                shares.append(Share(axis, min(most, self._threads_of_row(axis.size, lanes)), lanes))
                if axis.name in nest.whole:
                    shares[0].copies = _power_above(-(-axis.size // shares[0].size))
            elif not any(nest.needs_both(axis, share.axis) for share in shares):
                shares.append(Share(axis, shares[0].threads, lanes, like=shares[0].axis))
        threads = shares[0].threads if shares else 1
        block = self._block_of_lines(threads, prod(a.size for a in rows))
        for axis in rows:
            more = min(block // threads, _power_above(axis.size))
            if more > 1:
                shares.append(Share(axis, more))
                threads *= more
        return shares

    def _on_chip(self, along: list[Axis]) -> list[Axis]:
        """The ranges along a row, fused into one where they are one row that registers hold."""
        nest = self.nest
        sizes = {axis.size for axis in along}
        if len(along) < 2 or len(sizes) > 1 or sizes.pop() > 1024 * KEPT:
            return along
        if any(nest.needs_both(a, b) for a, b in itertools.combinations(along, 2)):
            return along
        lead, names = along[0].name, [axis.name for axis in along[1:]]
        for name in names:
            nest.fuse(name, lead)
        self.blocks = -1
        for reduce in nest.reduces:
            self.blocks &= nest.masks[reduce]
        self.outputs = [a for a in nest.axes if not a.is_reduce and not a.is_ordered]
        return [nest.axis(along[0])]

    # -- operands that are used again ---------------------------------------------------------------------------------

    def contraction(self) -> list[Share]:
        """A tile of results for each thread, where two operands are each blind to a range that the other one walks."""
        nest = self.nest
        inside = [load for load in nest.loads if any(nest.masks[load] & a.bit for a in self.reduced)]
        sides = self._sides(inside)
        if sides is None:
            return []
        column, row = sides
        results = prod(a.size for a in self.outputs)
        both = [a for a in self.reduced if all(nest.masks[load] & a.bit for load in inside)]
        deepest = max(both, key=lambda a: (a.size, self.facts.contiguous_loads(a)), default=None)
        if results < TILE * TILE * BLOCK * self.target.cores // 2 and deepest is not None:
            return self._few_tiles(column, row, deepest, inside)
        lanes = TILE if column.size % TILE == 0 and self.facts.store_stride(column) == 1 else 1
        copies = TILE if row.size >= TILE else 1
        across = self._share(column, 16, lanes)
        if lanes == 1 and column.size >= 16 * TILE:
            across.copies = TILE
        down = Share(row, min(BLOCK // across.threads, _power_above(-(-row.size // copies))), copies=copies)
        shares = [across, down]
        if deepest is not None and deepest.size >= DEPTH // 2 and len(inside) == 2:
            self.depth = deepest
            return self._fill(shares, self._block(results // (TILE * TILE)))
        return self._divide(
            self._fill(shares, self._block(results // (across.lanes * across.copies * copies))), results
        )

    def _few_tiles(self, column: Axis, row: Axis, deepest: Axis, loads: list[Node]) -> list[Share]:
        """Tiles of results in registers, which reach as many cores as they can."""
        sums = [deepest, *[a for a in self.reduced if a is not deepest]]
        tile = register_tile(self.facts, self.target, column, row, sums, loads, self._can_divide())
        copies = min(TILE, _power_below(deepest.size // tile.parts))
        shares = [Share(column, tile.across, tile.lanes), Share(row, tile.down, copies=tile.copies)]
        return [*shares, Share(deepest, tile.parts, copies=copies)]

    def _sides(self, loads: list[Node]) -> tuple[Axis, Axis] | None:
        """(column, row): the outputs that some operands walk, and that the others do. The column is stored along."""
        masks, stored = self.nest.masks, self._stored_along()
        work = prod(a.size for a in self.reduced)
        columns = [a for a in self.outputs if a.size >= 8 and (a is stored or work >= 64)]
        for column in sorted(columns, key=lambda a: (a is not stored, -a.size)):
            vectors = [load for load in loads if masks[load] & column.bit]
            others = [load for load in loads if not masks[load] & column.bit]
            rows = [
                a
                for a in self.outputs
                if a is not column and a.size > 1
                if any(masks[load] & a.bit for load in others)
                if not any(masks[load] & a.bit for load in vectors)
            ]
            if vectors and rows:
                return column, max(rows, key=lambda a: a.size)
        return None

    # -- parts that plans share -------------------------------------------------------------------------------------

    @property
    def wave(self) -> int:
        return 64 if self.target.arch.startswith("gfx9") else 32

    def _block(self, points: int) -> int:
        """Threads of a block that so much work asks for: small blocks where large ones would leave cores idle."""
        block = self._largest_block(points)
        sizes = [block >> step for step in range(block.bit_length()) if block >> step >= self.wave]
        cores = self.target.cores
        even = (size for size in sizes if spread(-(-points // size), cores) >= EVEN)
        found = next(even, max(sizes, key=lambda size: spread(-(-points // size), cores)))
        self.nest.because(
            f"blocks of about {found} threads spread {points} pieces of work most evenly over {cores} cores"
        )
        return found

    def _largest_block(self, points: int) -> int:
        return min(BLOCK, max(self.wave, _power_below(points // FEW_BLOCKS)))

    def _block_of_lines(self, threads: int, lines: int) -> int:
        """Threads of a block whose lines are reduced by so many threads each: several, where enough blocks are left."""
        several = _power_below(max(1, lines // FEW_BLOCKS))
        found = max(threads, min(BLOCK, max(self.wave, threads * several)))
        self.nest.because(
            f"{threads} threads reduce a line, {found} make a block: of more lines only if {FEW_BLOCKS} are left"
        )
        return found

    def _lanes(self, axis: Axis, loads: Sequence[Node]) -> int:
        """Elements of one access along a range: what divides it, where every access is contiguous or does not move."""
        accesses = [*loads, *self.nest.stores] if not axis.is_reduce else list(loads)
        moving = [a for a in accesses if self.nest.masks[a] & axis.bit]
        if any(self.facts.stride(access, axis) not in (0, 1) for access in moving):
            return 1
        lanes = WIDEST // max([_bytes(access) for access in moving], default=WIDEST)
        while lanes > 1 and (axis.size % lanes or self._are_parted(axis, moving, lanes)):
            lanes //= 2
        return lanes

    def _are_parted(self, axis: Axis, accesses: Sequence[Node], lanes: int) -> bool:
        """Whether a condition of an access may hold for some lanes only: each is an access by itself then."""
        conditions = [
            access.src[at] for access in accesses for at in [_CONDITION[access.op]] if at < len(access.src)
        ]
        for node in toposort(conditions):
            if not self.nest.masks[node] & axis.bit or node.dtype is not dtypes.bool or node.op in _JOINS:
                continue
            if node.op is not Op.CMPLT or node.src[1].op is not Op.CONST:
                return True
            form = self.nest.affine.of(node.src[0])
            steps = [step for atom, step in form.terms if atom is not self.nest.axis(axis).range]
            if any(number % lanes for number in (*steps, form.constant, int(node.src[1].arg))):
                return True
        return False

    def _share(self, axis: Axis, threads: int, lanes: int = 1) -> Share:
        """Not more threads than the range has use for."""
        return Share(axis, min(threads, _power_above(-(-axis.size // lanes))), lanes)

    def _copies(self, axis: Axis, step: int) -> int:
        """Steps of a reduction that are written out, so that several loads are under way."""
        copies = 4
        while copies > 1 and (axis.size < copies * step or self.facts.op_count * copies > 32):
            copies //= 2
        return copies

    def _fill(self, shares: list[Share], block: int, threads: int = 0) -> list[Share]:
        """More output ranges in threads, the innermost first, until a block is full."""
        threads = threads or prod(share.threads for share in shares)
        taken = {share.axis for share in shares}
        for axis in reversed(self.outputs):
            more = min(block // threads, _power_above(axis.size))
            if axis not in taken and more > 1:
                shares.append(Share(axis, more))
                threads *= more
        return shares

    def _divide(self, shares: list[Share], results: int) -> list[Share]:
        """Threads along reduced ranges, too, where results alone leave cores idle."""
        threads = prod(share.threads for share in shares)
        work = prod(a.size for a in self.reduced)
        # conditions of loads take registers, of which a thread of 1024 has 64
        most = 512 if any(self.facts.is_masked(load) for load in self.nest.loads) else 1024
        parts = min(FEW_BLOCKS * BLOCK // results, work // 8, most // threads)
        if not self._can_divide():
            return shares
        for axis in sorted(self.reduced, key=lambda a: -a.size):
            more = _power_below(min(parts, axis.size))
            if more > 1:
                shares.append(Share(axis, more, copies=self._copies(axis, more)))
                parts //= more
        return shares


def _apply(nest: LoopNest, shares: list[Share], blocks: int) -> None:
    """Pad, split and bind the shares; then blocks of what is left of the output ranges among `blocks`."""
    bits = [axis.bit for axis in nest.axes]
    for share in shares:
        if share.threads > 1:
            nest.because(
                f"{share.axis.name} is divided among threads: beyond its end nothing is read or stored"
            )
            nest.pad(share.axis.name, share.size)
    for share in shares:
        axis = nest.axis(share.axis)
        own = share.run * share.lanes
        nest.because(share.why())
        for size in (share.size, share.threads * own, own, share.lanes):
            if 1 < size < axis.loops[-1].size:
                nest.split(axis.loops[-1].name, size)
        loops = list(axis.loops)
        if share.lanes > 1:
            nest.vectorize(loops.pop().name)
        if share.run > 1:
            nest.unroll(loops.pop().name)
        if share.threads > 1:
            like = "" if share.like is None else nest.axis(share.like).threads[0].name
            nest.thread(loops.pop().name, *filter(None, [like]))
        if share.copies > 1 and loops:
            nest.unroll(loops.pop().name)
    for axis, bit in zip(list(nest.axes), bits, strict=True):
        loop = axis.loops[0]
        is_free = loop.kind == "serial" and not axis.is_reduce and not axis.is_ordered
        if is_free and bit & blocks and loop.size > 1:
            nest.because(f"what is left of {axis.name} are blocks of the launch")
            nest.parallel(loop.name)


def _bytes(access: Node) -> int:
    """Bytes of one element of a load or a store."""
    return access.src[2].dtype.itemsize if access.op is Op.STORE else access.dtype.itemsize


def _power_above(value: int) -> int:
    """The least power of two that is not smaller; 1 for nothing."""
    return 1 << max(0, value - 1).bit_length()


def _power_below(value: int) -> int:
    """The greatest power of two that is not greater; 1 for nothing."""
    return 1 << max(0, value.bit_length() - 1)
