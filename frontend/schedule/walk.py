"""The walk: from users to sources, how often each kernel computes a node, and whether memory is better.

In       simplified roots, in order; what must be put in memory, and what may not
Out      `Walk`: the realized nodes, and for each node every kernel that computes it, how often, and through what
Next     fuse.py (who walks, again where a kernel came out too large), groups.py (which kernels become one)

A node is *realized* when it is written to memory. Everything else is computed inside the kernels that need it:

    elementwise and movement   computed where they are used, unless computing them again costs more than memory does
    reductions                 one per kernel; elementwise work before and after it joins it; what would repeat a
                               reduction (a second user, an expansion, another reduction) makes it a value in memory
    sums of sums               one reduction, when only views that read zero outside lie between
    thin products              are computed inside of all reductions that read them (nested.py: attention); two that
                               fold them alike, as the gradients of keys and values do, share a kernel
    reductions of a row        stay in the kernel that spreads them over that row again (softmax, layer norm) or folds
                               it once more (logsumexp, argmax, a variance), which reads the row from the cache, not
                               from memory
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from math import prod

from hcq.frontend.schedule.rows import (
    Frame,
    are_innermost,
    below,
    both,
    is_covered,
    row_axes,
    runs_along,
    whole,
)
from hcq.frontend.schedule.scaled import scaled_factors
from hcq.frontend.schedule.scores import Fold, is_thin
from hcq.frontend.schedule.targets import ORDERED, is_ordered, stored_shape
from hcq.ir.dtype import DType
from hcq.ir.elementwise.table import COSTLY
from hcq.ir.node import Node, Shape, toposort
from hcq.ir.op import ARITHMETIC, MOVEMENT, SCATTERS, Op

# that a kernel reads, unless a target says less: others' launches take more, and addresses should stay in registers
MAX_ARGUMENTS = 64

# a launch costs about as much as this many operations on the vectors of one core, a pass over memory as that many each
REPEAT_LIMIT = 1 << 16
MEMORY_COST = 12
FEW_STEPS = 4  # operations on IOTA and constants that cost less than a value in memory, wherever they stand
SHORT_SUM = 4  # elements that are summed where the sum is scattered, as elementwise work is
# elements of a row that a kernel may walk several times: it should stay in the second cache
MAX_ROW = 1 << 16
MIN_ROWS = 16  # fewer rows than this, unless they are short, are better spread over the workers axis by axis

_LEAVES = frozenset({Op.BUFFER, Op.CONST, Op.IOTA})
_ALWAYS_REALIZED = frozenset(
    {Op.CONTIGUOUS, Op.ASSIGN, Op.SCATTER_ADD, Op.SCATTER, Op.CAT, Op.SCAN_AXIS, Op.BUCKET} | {Op.ROUTINE}
)
_KEEPS_ELEMENTS = frozenset({Op.RESHAPE, Op.PERMUTE, Op.FLIP, Op.SHRINK})
_READS_ZERO_OUTSIDE = frozenset({Op.RESHAPE, Op.PERMUTE, Op.FLIP, Op.SHRINK, Op.PAD, Op.UNWINDOW})
_FREE = frozenset({Op.CAST, Op.BITCAST})


@dataclass(frozen=True, slots=True)
class Use:
    """How one kernel uses a node.

    count    how many elements of it are computed there
    aligned  True when the store of element i needs only element i
    blocked  True when a reduction in it would be repeated, or stand inside another one
    frame    along which axes of the kernel's result it varies (rows.py), where that can be said
    routes   the ways through movement by which it is reached, where no frame says where: two uses by one way are of the
             same element at a time, which is computed once; by different ways the count adds up
    in_runs  True when the kernel's loops walk its innermost axis innermost: what is spread along that is computed once
    """

    count: int
    aligned: bool
    blocked: bool
    frame: Frame | None
    routes: frozenset[int] = frozenset()
    in_runs: bool = False

    def and_also(self, other: Use) -> Use:
        """The use by this kernel and, on another way, that one."""
        frame = both(self.frame, other.frame)
        routes = frozenset[int]() if frame is not None else self.ways() | other.ways()
        is_apart = None in (self.frame, other.frame) and routes not in (self.ways(), other.ways())
        return Use(
            self.count + other.count if is_apart else max(self.count, other.count),
            self.aligned and other.aligned,
            self.blocked or other.blocked,
            frame,
            routes,
            self.in_runs and other.in_runs,
        )

    def ways(self) -> frozenset[int]:
        """Its routes; a frame is one, too."""
        return self.routes if self.frame is None else frozenset((hash(self.frame),))


class Walk:
    """The walk from users to sources. `run` does it; what it found stands in its attributes."""

    def __init__(
        self,
        roots: Sequence[Node],
        plain: frozenset[Node] = frozenset(),
        cuts: frozenset[Node] = frozenset(),
        near: frozenset[Node] = frozenset(),
        most_arguments: int = MAX_ARGUMENTS,
        scaled: Collection[DType] = (),
    ):
        self.most_arguments = most_arguments
        self.scaled = scaled  # formats that matrix units multiply with the scales of their blocks
        self.plain = plain  # nodes above a reduction that another value in memory already cuts off
        self.near = (
            near  # ends of reductions, in memory anyway: what follows them is computed again from there
        )
        self.cuts = cuts  # nodes whose kernel would be too large with them inside
        self.order = toposort(roots)
        self.forced = {n for n in roots if n.op is not Op.BUFFER}
        self.forced.update(n for n in self.order if n.op in _ALWAYS_REALIZED)
        self.forced.update(cuts)
        self.inside = scaled_factors(self.order, scaled)  # what units do by themselves
        self.nested: frozenset[Node] = frozenset()
        self.folds: dict[Node, Fold] = {}
        sums = [n for n in self.order if n.op is Op.REDUCE_AXIS and n not in self.forced and is_thin(n)]
        if sums:
            from hcq.frontend.schedule.nested import nested

            self.nested, self.folds = nested(self.order, sums, self.forced)
        self.pieces: dict[Node, list[Node]] = {}
        if any(node.op is Op.CAT for node in self.order):
            from hcq.frontend.schedule.joins import MAX_PIECES, kernels_of_pieces

            most = min(MAX_PIECES, most_arguments)
            self.pieces = kernels_of_pieces(self.order, lambda n: n.op is Op.BUFFER or n in self.forced, most)
        self.leader = {piece: last for last, pieces in self.pieces.items() for piece in pieces}
        self.roots = set(roots)
        self.users = Counter(source for node in self.order for source in node.src)
        self.realized: dict[Node, None] = {}
        self.reduction: dict[Node, Node] = {}  # kernel -> the reduction in it
        self.rows: dict[Node, tuple[int, ...]] = {}  # kernel -> the axes its reductions fold and spread again
        self.folded: dict[Node, Shape] = {}  # kernel -> the sizes that its last reduction folds
        self.once_per_row: set[Node] = set()  # what such a kernel computes outside of the row
        self.merged: set[Node] = set()  # sums inside sums
        self.uses: dict[Node, dict[Node, Use]] = {}
        self.size = {node: prod(node.shape) for node in self.order if node.op is not Op.SINK}
        self.places: set[Node] = set()  # spread over what is gathered: one for a whole run
        self.has_reduction: set[Node] = set()
        self.weight: dict[Node, int] = {}
        # made of small integers alone: what quantised numbers are taken out of
        self.packed: set[Node] = set()
        self.over_nested: set[Node] = set()  # what follows from nested values, up to the next reduction
        self._facts()

    def _facts(self) -> None:
        """From the sources up: what each node costs to compute again, and whether it ends a reduction."""
        counted: dict[Node, int] = {}  # made of IOTA and constants alone -> operations
        for node in self.order:
            op = node.op
            if _is_packed(node) or (
                node.src and op not in ORDERED and all(s in self.packed for s in node.src)
            ):
                self.packed.add(node)
            if node in self.forced or op in _LEAVES or node in self.nested:
                self.weight[node] = 0
                if op is Op.IOTA or op is Op.CONST:
                    counted[node] = 0
                continue
            if ((op in ARITHMETIC and op not in COSTLY) or op in MOVEMENT) and all(
                s in counted for s in node.src
            ):
                steps = sum([counted[s] for s in node.src]) + (op in ARITHMETIC and op not in _FREE)
                if steps <= FEW_STEPS:
                    counted[node] = steps
                    self.weight[node] = 0
                    continue
            if self._follows_nested(node):
                self.over_nested.add(node)
                self.has_reduction.add(node)
            if op is Op.REDUCE_AXIS:
                self.has_reduction.add(node)
                self.weight[node] = 1
            elif op in MOVEMENT:
                source = node.src[0]
                # what an expansion repeats can itself be put in memory, before the expansion
                self.weight[node] = self.weight[source] if self.size[node] <= self.size[source] else 0
                if source in self.has_reduction and (
                    op in _KEEPS_ELEMENTS or self.size[node] == self.size[source]
                ):
                    self._ends_reduction(node)
            else:
                cost = 8 if op in COSTLY else 0 if op in _FREE else 1
                self.weight[node] = min(cost + sum(self.weight[s] for s in node.src), 1 << 12)
                if node in self.near:
                    self.weight[node] = 0
                if op in ARITHMETIC and any(
                    s in self.has_reduction and s.shape == node.shape for s in node.src
                ):
                    self._ends_reduction(node)

    def _follows_nested(self, node: Node) -> bool:
        """Whether it folds nested values, or is made of such sums element by element."""
        if node.op is Op.REDUCE_AXIS:
            return node.src[0] in self.nested
        above = [s for s in node.src if s in self.nested or (s in self.over_nested and not _is_narrowing(s))]
        return any(self.size[s] == self.size[node] for s in above)

    def _ends_reduction(self, node: Node) -> None:
        if node not in self.plain:
            self.has_reduction.add(node)

    def kept_for_no_reduction(self) -> frozenset[Node]:
        """Elementwise nodes put in memory as the end of a reduction that, as it came out, ends further down."""
        found = set()
        for node in self.realized:
            if node in self.forced or node.op is Op.REDUCE_AXIS or node not in self.has_reduction:
                continue
            if node in self.over_nested:
                continue
            stack, seen = [node], {node}
            while stack:
                for source in stack.pop().src:
                    is_cut = source in self.realized or source in self.forced
                    if source not in seen and source in self.has_reduction and not is_cut:
                        seen.add(source)
                        stack.append(source)
            if not any(source.op is Op.REDUCE_AXIS for source in seen):
                found.add(node)
        return frozenset(found)

    def ends_in_memory(self) -> frozenset[Node]:
        """What is in memory because a reduction ends there; nothing where no value is kept for what it costs."""
        chosen = [node for node in self.realized if node not in self.forced]
        if all(node in self.has_reduction for node in chosen):
            return frozenset()
        return frozenset(node for node in chosen if node in self.has_reduction and self.weight[node])

    def run(self) -> None:
        """Walk: decide for each node, when all its users have been met, whether it is realized."""
        for node in reversed(self.order):
            if node.op in _LEAVES and node not in self.forced:
                continue
            if node in self.forced or (node in self.uses and self._wants_memory(node)):
                self.realized[node] = None
                if node.op is Op.REDUCE_AXIS:
                    self.reduction[node] = node
                kernel = self.leader.get(node, node)
                self._pass_on(
                    node, {kernel: Use(self.size[node], True, False, whole(stored_shape(node)), in_runs=True)}
                )
            elif node in self.uses:
                uses = self.uses[node]
                if node in self.once_per_row:
                    uses = {k: replace(use, count=self.size[node]) for k, use in uses.items()}
                elif node in self.nested:
                    uses = {k: replace(use, count=self.size[node]) for k, use in uses.items()}
                    if node.op is Op.REDUCE_AXIS:
                        for kernel in uses:
                            self.reduction.setdefault(kernel, node)
                elif node.op is Op.REDUCE_AXIS and node not in self.merged:
                    (kernel,) = uses
                    self.reduction[kernel] = node
                self._pass_on(node, uses)
        self.realized = dict.fromkeys(n for n in self.order if n in self.realized)

    def _wants_memory(self, node: Node) -> bool:
        uses = self.uses[node]
        if node.op in MOVEMENT and not self._cuts_a_reduction(node):
            return False  # views stay with their readers; what is below them decides for itself
        if node.op is Op.CAST and node.src[0].dtype.itemsize < node.dtype.itemsize:
            return False  # so do wider numbers: what they are made of takes less memory
        if node in self.inside:
            return False
        if node in self.has_reduction:
            if len(uses) > 1:
                return True
            if node in self.merged:
                return False
            ((kernel, use),) = uses.items()
            if use.blocked and self._fits_a_row(node, kernel, use):
                self.once_per_row.add(node)
                if node.op is Op.REDUCE_AXIS:
                    self.rows[kernel] = row_axes(use.frame or (), self._walked(kernel))
                return False
            is_taken = self.reduces(kernel)
            return use.blocked or (node.op in (Op.REDUCE_AXIS, Op.SHRINK) and is_taken)
        size = self.size[node]
        repeated = sum(use.count for use in uses.values()) - size
        return self.weight[node] * repeated > REPEAT_LIMIT + MEMORY_COST * size

    def kernels_of(self, node: Node) -> Iterable[Node]:
        """The kernels that compute a node or, when it is in memory, read it."""
        return self.uses.get(node, ())

    def is_in_memory(self, node: Node) -> bool:
        """Whether a kernel reads it, and does not compute it."""
        return node.op is Op.BUFFER or node in self.realized

    def fold_of(self, kernel: Node) -> tuple[Fold, Shape] | None:
        """What a kernel folds of scores that it makes itself, and the shape of what it stores; None for others."""
        top = self.reduction.get(kernel)
        fold = self.folds.get(top) if top is not None else None
        return None if fold is None or kernel in self.rows else (fold, stored_shape(kernel))

    def reduces(self, kernel: Node) -> bool:
        """True when a reduction is computed in the kernel."""
        return kernel in self.reduction or kernel in self.rows

    def _fits_a_row(self, node: Node, kernel: Node, use: Use) -> bool:
        """True when the kernel can compute this once per row of its result, and walk the row again from the cache."""
        stored = self._walked(kernel)
        is_taken = kernel in self.reduction and not self.folded.get(kernel)
        if use.frame is None or is_taken or is_ordered(kernel) or node in self.over_nested:
            return False
        axes = row_axes(use.frame, stored)
        if not axes or self.rows.get(kernel, axes) != axes or not are_innermost(axes, stored):
            return False
        if not is_covered(node, use.frame) or (
            node.op is Op.REDUCE_AXIS and not runs_along(node, axes, stored)
        ):
            return False
        length = prod(stored[i] for i in axes)
        return length <= MAX_ROW and (prod(stored) >= MIN_ROWS * length or prod(stored) <= MAX_ROW)

    def _walked(self, kernel: Node) -> Shape:
        """The shape of what the kernel stores, and behind it what is folded into that."""
        return stored_shape(kernel) + self.folded.get(kernel, ())

    def _cuts_a_reduction(self, node: Node) -> bool:
        """True for a SHRINK that is the only user of a reduction: in memory, the cut part is enough."""
        if node.op is not Op.SHRINK or node not in self.has_reduction:
            return False
        below = node.src[0]
        while below.op in MOVEMENT and self.users[below] == 1:
            below = below.src[0]
        return self.users[below] == 1 and below not in self.forced

    def _pass_on(self, node: Node, uses: dict[Node, Use]) -> None:
        """Pass on to the sources of `node` which kernels compute it, hence them."""
        op = node.op
        if op is Op.ASSIGN and node.arg is not None:
            size = self.size[node.src[1]]
            for source in node.src[1:]:
                self._use(source, {node: Use(size, False, not self._is_short_sum(source), None)})
        elif op is Op.ASSIGN:
            self._use(node.src[1], uses)
        elif op is Op.CONTIGUOUS:
            self._use(node.src[0], uses)
        elif op in ARITHMETIC:
            for source in node.src:
                self._use(
                    source, uses if source.shape == node.shape else self._below(node, source, uses, 1, True)
                )
        elif op in MOVEMENT:
            source = node.src[0]
            keeps = op in _KEEPS_ELEMENTS or self.size[node] == self.size[source]
            self._use(source, self._below(node, source, uses, 1, not keeps))
        elif op is Op.REDUCE_AXIS:
            self._merge_inner_sum(node)
            source = node.src[0]
            inside = self._below(node, source, uses, self.size[source] // max(1, self.size[node]), True)
            axes = tuple([a for a in node.arg[1] if source.shape[a] > 1])
            for kernel, use in uses.items():
                if use.frame is None or self.reduction.get(kernel) is not node:
                    continue
                if are_innermost(axes, source.shape):
                    self.folded[kernel] = tuple([source.shape[a] for a in axes])
                    inside[kernel] = replace(inside[kernel], frame=(*use.frame, *axes))
            self._use(source, inside)
        # its pieces have been stored in it: no kernel, but those who read it come after them
        elif op is Op.CAT:
            for piece in node.src:
                self._use(piece, {node: Use(self.size[piece], False, True, None)})
        elif op in SCATTERS:
            self._use(node.src[0], {node: Use(self.size[node], False, True, None)})
            size = self.size[node.src[2]]
            self._use(node.src[1], {node: Use(size, False, True, None)})
            self._use(node.src[2], {node: Use(size, False, not self._is_short_sum(node.src[2]), None)})
        elif op is Op.SCAN_AXIS or op is Op.BUCKET or op is Op.ROUTINE:
            for source in node.src:
                self._use(source, {node: Use(self.size[source], False, True, None)})
        else:
            if op is Op.GATHER and _spreads_runs(node.src[1]):
                self.places.add(node.src[1])
            for source in node.src:
                self._use(source, self._below(node, source, uses, 1, True))

    def _is_short_sum(self, node: Node) -> bool:
        """Whether it is a sum of a few elements, which takes no longer than operations that follow one another."""
        while node.op in _KEEPS_ELEMENTS:
            node = node.src[0]
        return node.op is Op.REDUCE_AXIS and self.size[node.src[0]] <= SHORT_SUM * self.size[node]

    def _below(
        self, node: Node, source: Node, uses: dict[Node, Use], factor: int, blocks: bool
    ) -> dict[Node, Use]:
        """How a source is used, by how `node` is: no longer element by element."""
        in_runs = _keeps_runs(node)
        spread = 1
        is_place = node in self.places
        if is_place or (source in self.packed and _spreads_runs(node)):
            spread = max(1, self.size[node] // max(1, self.size[source]))
        return {
            kernel: Use(
                # the loop along a run has the scale of a quantised block outside, which is computed once for a run then
                use.count
                * factor
                // (spread if use.in_runs and (is_place or kernel in self.reduction) else 1),
                False,
                use.blocked or blocks,
                below(node, source, use.frame, self._walked(kernel)),
                frozenset((hash((node, use.ways())),)),
                use.in_runs and in_runs,
            )
            for kernel, use in uses.items()
        }

    def _use(self, source: Node, uses: dict[Node, Use]) -> None:
        if source.op is Op.CONST or source.op is Op.IOTA:
            return
        known = self.uses.setdefault(source, {})
        for kernel, use in uses.items():
            known[kernel] = known[kernel].and_also(use) if kernel in known else use

    def _merge_inner_sum(self, node: Node) -> None:
        """Note the sum below a sum that can be part of it: only views in between, and no other user."""
        if node.arg[0] is not Op.ADD:
            return
        below = node.src[0]
        while below.op in _READS_ZERO_OUTSIDE and self.users[below] == 1 and below not in self.forced:
            below = below.src[0]
        if below is node.src[0] and below.op is not Op.REDUCE_AXIS:
            return
        if below.op is Op.REDUCE_AXIS and below.arg[0] is Op.ADD and self.users[below] == 1:
            repeated_at_most_fourfold = self.size[node.src[0]] <= 4 * self.size[below]
            if below not in self.forced and below.dtype is node.dtype and repeated_at_most_fourfold:
                self.merged.add(below)


def _is_packed(node: Node) -> bool:
    """Whether it is memory of small integers, or a number that needs none."""
    return node.op in (Op.IOTA, Op.CONST) or (
        node.op is Op.BUFFER and node.dtype.is_integer and node.dtype.itemsize <= 2
    )


def _keeps_runs(node: Node) -> bool:
    """Whether walking a node's innermost axis innermost walks its source's so."""
    if node.op is Op.REDUCE_AXIS:
        real = [axis for axis, size in enumerate(node.src[0].shape) if size > 1]
        folded = [axis for axis in real if axis in node.arg[1]]
        return folded == real[len(real) - len(folded) :]
    return node.op in (Op.RESHAPE, Op.EXPAND, Op.SHRINK, Op.GATHER) or node.op in ARITHMETIC


def _spreads_runs(node: Node) -> bool:
    """Whether it repeats each element of its source along its innermost axes: in turns that follow one another."""
    if node.op is not Op.EXPAND:
        return False
    real = [axis for axis, size in enumerate(node.shape) if size > 1]
    new = [axis for axis in real if node.src[0].shape[axis] == 1]
    return new == real[len(real) - len(new) :]


def _is_narrowing(node: Node) -> bool:
    """Whether it rounds to a narrower format, in which a value in memory takes less of that."""
    return node.op is Op.CAST and node.dtype.itemsize < node.src[0].dtype.itemsize
