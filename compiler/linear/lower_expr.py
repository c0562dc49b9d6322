"""At a point: nodes of the graph become instructions for one combination of written-out loop steps.

In       a node, a point ({range: (offset in its tile, lanes)}), the counters of the open loops
Out      the instruction that holds the node's value there, a vector where the node varies along the vector range
Next     emitter.py (placement), ranges.py (points), open_loops.py (counters), context.py (who holds these together)

An address is base + displacement: base sums the counters and is shared by all points, the displacement is a number.
Along the vector range a stride of 1 is a vector access, 0 a scalar, anything else lane by lane.
"""

from __future__ import annotations

import itertools
import operator
from collections.abc import Collection, Iterable
from math import prod

from hcq.compiler.linear.emitter import Emitter, Term
from hcq.compiler.linear.open_loops import OpenLoops
from hcq.compiler.linear.places import Packed, Place, Point, Spot
from hcq.compiler.linear.program import NOT_NEGATIVE, Instruction
from hcq.compiler.linear.quotients import known_part, shared_part
from hcq.compiler.linear.ranges import Ranges
from hcq.ir.bounds import bounds
from hcq.ir.dtype import Kind, dtypes
from hcq.ir.node import Node, toposort
from hcq.ir.op import NEEDED, Op

_COMPARE = {Op.CMPLT: operator.lt, Op.CMPLE: operator.le, Op.CMPEQ: operator.eq, Op.CMPNE: operator.ne}

_ACCUMULATED = (
    Op.REDUCE,
    Op.FORMER,
    Op.SCAN,
)  # computed by loops of their own making, not where they are asked for


class Values:
    """The values of nodes at points: what is packed, what is known already, and how to make the rest."""

    def __init__(self, emitter: Emitter, ranges: Ranges, loops: OpenLoops):
        self.emitter, self.ranges, self.loops = emitter, ranges, loops
        self.packed: dict[Node, Packed] = {}
        self.results: dict[tuple[Node, tuple[Place, ...]], Instruction] = {}  # of reductions and scans
        self.before: dict[tuple[Node, tuple[Place, ...]], Instruction] = {}  # what they were before this step
        self.alone: set[Node] = set()  # known at every point, whatever they were computed from
        self.addresses: dict[Node, Instruction] = {}
        self.only_stored: set[Node] = set()  # loads of what the kernel writes, which stores alone use,
        self.stored = 0  # and the ranges of these stores
        self._orders: dict[Node, list[Node]] = {}

    def value(self, root: Node, point: Point) -> Instruction:
        """The value of a node at a point."""
        found = self._known(root, point)
        if found is not None:
            return found
        for node in self._order(root):
            if self._known(node, point) is None:
                made = self._make(node, point)
                depth = max(self.loops.depth_of(self.ranges.masks[node]), made.depth)
                if node in self.ranges.volatile:
                    depth = self.emitter.depth
                self.emitter.scopes[depth].values[node, self.ranges.place_in(node, point)] = made
        found = self._known(root, point)
        assert found is not None
        return found

    def _known(self, node: Node, point: Point) -> Instruction | None:
        key = (node, self.ranges.place_in(node, point))
        if node.op is Op.FORMER:
            return self.before[node.src[0], key[1]]
        if node.op in _ACCUMULATED:
            return self.results[key]
        for scope in itertools.islice(
            self.emitter.scopes, self.loops.depth_of(self.ranges.masks[node]), None
        ):
            found = scope.values.get(key)
            if found is not None:
                return found
        return None

    def _order(self, root: Node) -> list[Node]:
        """The nodes to compute for a root, sources first; sums of an index are not computed but become addresses."""
        order = self._orders.get(root)
        if order is None:
            done: dict[Node, None] = {}
            stack = [(root, iter(self._needs(root)))]
            while stack:
                node, sources = stack[-1]
                for source in sources:
                    if source not in done:
                        stack.append((source, iter(self._needs(source))))
                        break
                else:
                    stack.pop()
                    done[node] = None
            order = self._orders[root] = [n for n in done if n.op not in _ACCUMULATED]
        return order

    def _needs(self, node: Node) -> Iterable[Node]:
        if node.op in _ACCUMULATED or node in self.packed or node in self.alone:
            return ()
        if node.op is Op.LOAD:
            return (*self._atoms(node.src[1]), *node.src[2:])
        if node.dtype.kind is Kind.INDEX and self.ranges.affine.of(node).terms != ((node, 1),):
            return self._atoms(node)
        return () if node.op is Op.RANGE else node.src

    def _atoms(self, index: Node) -> Iterable[Node]:
        """What an index needs computed; quotients and remainders may not be needed, and come when they are."""
        return (atom for atom in self.ranges.affine.of(index).atoms() if atom.op not in (Op.FLOORDIV, Op.MOD))

    def pack(self, value: Node, packed: Packed | None) -> None:
        """From here on the load reads scratch (None: memory again)."""
        if packed is None:
            self.packed.pop(value, None)
        else:
            self.packed[value] = packed
        self.forget_orders()

    def forget_orders(self) -> None:
        """What has to be computed for a value is not what it was."""
        self._orders.clear()

    def _make(self, node: Node, point: Point) -> Instruction:
        if node.op is Op.CONST:
            return self.emitter.number(node.arg, node.dtype)
        if node.op is Op.LOAD or node in self.packed:
            return self._load(node, point)
        if node.dtype.kind is Kind.INDEX:
            form = self.ranges.affine.of(node)
            if node.op is Op.RANGE or form.terms != ((node, 1),):
                return self._index_value(self.spot(node, point))
            if (part := self._known_part(node, point)) is not None:
                return self._index_value(part)
        if node in self.loops.hold:
            return self.emitter.number(True, dtypes.bool)
        if node.op is Op.CMPLT and node.src[1].op is Op.CONST and node.src[0].dtype.kind is Kind.INDEX:
            together = self._all_or_none(node, point)
            if together is not None:
                return together
        sources = [self._known(source, point) for source in node.src]
        decided = self._decided(node, sources)
        if decided is not None:
            return decided
        lanes = max(s.dtype.lanes for s in sources if s is not None)
        src = tuple([self.emitter.broadcast(s, lanes) for s in sources if s is not None])
        if node in self.ranges.volatile:
            return self.emitter.place(node.op, node.dtype.vec(lanes), src, node.arg)
        arg = node.arg
        if node.op in (Op.FLOORDIV, Op.MOD) and node.dtype.kind is Kind.INDEX and bounds(node.src[0])[0] >= 0:
            arg = NOT_NEGATIVE
        return self.emitter.emit(node.op, node.dtype.vec(lanes), src, arg)

    def _all_or_none(self, node: Node, point: Point) -> Instruction | None:
        """A place before an end, for lanes none of which the end parts: what holds for the first, as a scalar."""
        spot, end = self.spot(node.src[0], point), int(node.src[1].arg)
        lanes = spot.lanes
        if lanes == 1 or not spot.is_run or end % lanes or spot.offset % lanes:
            return None
        if any(coefficient % lanes for value, coefficient in spot.terms if value.number != 0):
            return None
        first = self.emitter.total(spot.terms, spot.offset)
        if first is None:
            return self.emitter.number(spot.offset < end, dtypes.bool)
        return self.emitter.is_below(first, end)

    def _decided(self, node: Node, sources: list[Instruction | None]) -> Instruction | None:
        """A condition on written-out steps is known now; so is what it selects."""
        a = sources[0]
        b = sources[1] if len(sources) > 1 else None
        if node.op is Op.WHERE and a is not None and a.op is Op.CONST:
            return sources[1] if a.arg else sources[2]
        if a is None or b is None:
            return None
        if node.op in (Op.AND, Op.OR) and node.dtype.is_bool:
            for known, other in ((a, b), (b, a)):
                if known.op is Op.CONST:
                    return other if known.arg is (node.op is Op.AND) else known
        if a.op is Op.CONST and b.op is Op.CONST and a.dtype.kind is Kind.INDEX and node.op in _COMPARE:
            return self.emitter.number(_COMPARE[node.op](a.arg, b.arg), dtypes.bool)
        return None

    # -- indices ----------------------------------------------------------------------------------------------------

    def spot(self, node: Node, point: Point) -> Spot:
        """An index at a point, as a sum."""
        form = self.ranges.affine.of(node)
        spot = Spot([], form.constant)
        for atom, coefficient in form.terms:
            if atom.op is not Op.RANGE:
                known = self._known_part(atom, point)
                if known is not None:
                    spot.terms += [(value, coefficient * c) for value, c in known.terms]
                    spot.offset += coefficient * known.offset
                    if len(known.steps) > 1:
                        spot.add_steps(known.steps, coefficient)
                    continue
                value = self.value(atom, point)
                (spot.vectors if value.dtype.lanes > 1 else spot.terms).append((value, coefficient))
                continue
            axis = self.ranges.axis_of[atom]
            for loop in axis.loops:
                if (
                    not loop.is_written_out or loop in self.loops.counters
                ):  # lanes that are walked one by one are counted
                    spot.terms.append((self.loops.counters[loop], coefficient * loop.stride))
            if axis in point:
                offset, lanes = point[axis]
                spot.offset += coefficient * offset
                if lanes > 1:
                    spot.add_steps(range(lanes), coefficient)
        return spot

    def _known_part(self, atom: Node, point: Point) -> Spot | None:
        """A quotient or remainder by a number as a sum, see quotients.py; None for what has to be computed."""
        if atom.op not in (Op.FLOORDIV, Op.MOD) or atom.src[1].op is not Op.CONST or atom.src[1].arg < 1:
            return None
        divisor, inner = int(atom.src[1].arg), self.spot(atom.src[0], point)
        known = known_part(atom.op, inner, divisor)
        if known is None and any(
            point[a][1] > 1 for a in self.ranges.axes_of(self.ranges.masks[atom]) if a in point
        ):
            return shared_part(self.emitter, atom.op, inner, divisor, bounds(atom.src[0])[0] >= 0)
        return known

    def packed_spot(self, packed: Packed, point: Point, more: Collection[Term] = ()) -> Spot:
        """Where a packed operand lies. Of a swizzled one, lanes are a run inside a chunk, or there is one."""
        steps: tuple[int, ...] = (0,)
        terms, offset = list(more), packed.offset
        for loop, stride in packed.strides.items():
            if not loop.is_written_out or loop in self.loops.counters:
                terms.append((self.loops.counters[loop], stride))
                continue
            place, lanes = point[loop.axis]
            offset += place // loop.stride % loop.size * stride
            if loop.kind in ("vector", "dot") and lanes > 1:
                steps = tuple([lane * stride for lane in range(lanes)])
        terms, offset = self.swizzled(packed, terms, offset)
        return Spot([*packed.terms, *terms], offset, steps, least=packed.depth)

    def swizzled(self, packed: Packed, terms: list[Term], offset: int) -> tuple[list[Term], int]:
        """A place in a packed operand that sums terms and a number, as a sum again.

        In a swizzled tile these have no bit in common: each counts other digits of the place, whose bases are powers of
        two. So what the number changes can be put to what the terms change.
        """
        swizzle = packed.swizzle
        if swizzle is None:
            return terms, offset
        offset = swizzle(offset)
        base = self.emitter.total(terms)
        if base is None:
            return [], offset
        place = base
        for shift, mask in swizzle.parts:
            low = mask & -mask
            row = self.emitter.quotient(base, low << shift)
            row = self.emitter.rest(row, mask // low + 1)
            place = self.emitter.emit(
                Op.XOR, dtypes.index, (place, self.emitter.arithmetic(Op.MUL, row, self.emitter.number(low)))
            )
        if changed := offset & swizzle.mask:
            place = self.emitter.emit(Op.XOR, dtypes.index, (place, self.emitter.number(changed)))
        return [(place, 1)], offset - changed

    def _index_value(self, spot: Spot) -> Instruction:
        value = self.emitter.total(spot.terms, spot.offset)
        if value is None:
            value = self.emitter.number(0)
        if spot.lanes == 1:
            return value
        whole = self.emitter.broadcast(value, spot.lanes)
        if any(spot.steps):
            steps = self.emitter.emit(
                Op.VECTOR, whole.dtype, tuple([self.emitter.number(step) for step in spot.steps])
            )
            whole = self.emitter.emit(Op.ADD, whole.dtype, (whole, steps))
        for vector, coefficient in spot.vectors:
            factor = self.emitter.broadcast(self.emitter.number(coefficient), spot.lanes)
            part = vector if coefficient == 1 else self.emitter.emit(Op.MUL, whole.dtype, (vector, factor))
            whole = self.emitter.emit(Op.ADD, whole.dtype, (whole, part))
        return whole

    # -- memory -----------------------------------------------------------------------------------------------------

    def _load(self, node: Node, point: Point) -> Instruction:
        packed = self.packed.get(node)
        mask: Instruction | None = None
        if packed is not None and packed.swizzle is not None:
            return self._load_swizzled(node, packed, point)
        if packed is not None:
            spot, address = self.packed_spot(packed, point), packed.address
        else:
            mask = self._known(node.src[2], point) if len(node.src) > 2 else None
            if mask is not None and mask.op is Op.CONST:
                if not mask.arg:
                    return self.emitter.number(0, node.dtype)
                mask = None
            spot, address = self.spot(node.src[1], point), self.addresses[node.src[0]]
        lanes = max(spot.lanes, mask.dtype.lanes if mask is not None else 1)
        base = self.emitter.total(spot.terms)

        def read(base: Instruction | None, offset: int, width: int, mask: Instruction | None) -> Instruction:
            return self._read(node, (address, base), offset, width, mask, spot.least)

        if lanes == 1:
            return read(base, spot.offset, 1, mask)
        one_mask = mask is None or mask.dtype.lanes == 1
        if spot.is_run and spot.lanes == lanes:
            return read(base, spot.offset, lanes, mask)
        if not spot.vectors and one_mask and not any(spot.steps):
            return read(base, spot.offset, 1, mask)
        low, high = min(spot.steps), max(spot.steps)
        if not spot.vectors and one_mask and spot.lanes == lanes and low < high < low + 2 * lanes:
            # neighbours in another order: one or two vectors that hold them all and end where they end. What lies
            # between two lanes is inside the buffer, for they are, or all of it is off
            width = 1 << ((high - low + 1).bit_length() - 1)
            later = high - width + 1
            starts = sorted({low, later})
            parts = [read(base, spot.offset + start, width, mask) for start in starts]
            picks = tuple([s - low if s - low < width else width + s - later for s in spot.steps])
            if node in self.ranges.volatile:
                return self.emitter.place(Op.LANE, node.dtype.vec(lanes), tuple(parts), picks)
            return self.emitter.emit(Op.LANE, node.dtype.vec(lanes), tuple(parts), picks)
        if (
            not spot.vectors
            and packed is None
            and node not in self.ranges.volatile
            and len(set(spot.steps)) == lanes
        ):
            square = self._square(node, point, lanes)
            if square is not None:
                return square
        singles = []
        for lane, lane_base, offset in self._lanes(spot, lanes, base):
            singles.append(
                read(lane_base, offset, 1, None if mask is None else self.emitter.lane(mask, lane))
            )
        if node in self.ranges.volatile:
            return self.emitter.place(Op.VECTOR, node.dtype.vec(lanes), tuple(singles))
        return self.emitter.emit(Op.VECTOR, node.dtype.vec(lanes), tuple(singles))

    def _load_swizzled(self, node: Node, packed: Packed, point: Point) -> Instruction:
        """From a swizzled tile: neighbours lie together in a chunk, and only there."""
        assert packed.swizzle is not None
        axis = next((loop.axis for loop in packed.strides if point.get(loop.axis, (0, 1))[1] > 1), None)
        start, lanes = (0, 1) if axis is None else point[axis]
        is_run = any(loop.axis is axis and stride == loop.stride for loop, stride in packed.strides.items())
        width = (
            min(lanes, packed.swizzle.chunk_bytes // node.dtype.itemsize)
            if is_run and start % lanes == 0
            else 1
        )
        parts = []
        for lane in range(0, lanes, width):
            here = point if axis is None else {**point, axis: (start + lane, width)}
            spot = self.packed_spot(packed, here)
            src = (packed.address, self.emitter.total(spot.terms))
            parts.append(self.emitter.emit(Op.LOAD, node.dtype.vec(width), src, spot.offset, spot.least))
        if width == 1 < lanes:
            return self.emitter.emit(Op.VECTOR, node.dtype.vec(lanes), tuple(parts))
        while len(parts) > 1:
            width *= 2
            whole = tuple(range(width))
            pairs = zip(parts[::2], parts[1::2], strict=True)
            parts = [self.emitter.emit(Op.LANE, node.dtype.vec(width), pair, whole) for pair in pairs]
        return parts[0]

    def _read(
        self,
        node: Node,
        place: tuple[Instruction, Instruction | None],
        offset: int,
        width: int,
        mask: Instruction | None,
        least: int = 0,
    ) -> Instruction:
        """`width` neighbours of a load, the first at (address, base) + offset; zero where the mask is off.

        A vector under one mask is read whole, from the buffer's start where the mask is off: most processors have no
        masked loads of narrow formats, and LLVM 22 takes an off lane's memory into a permutation under the same mask.
        Of a buffer that the kernel writes, a thread of several reads nothing then: another may be writing its start.
        """
        dtype = node.dtype.vec(width)
        address, base = place
        if node in self.only_stored:
            mask = self._by_one_thread(self.stored, mask)
        if mask is not None and node.src[0].arg.writable and self.loops.digits:
            mask = self.emitter.broadcast(mask, width)
        one_mask = mask if mask is not None and mask.dtype.lanes == 1 and width > 1 else None
        if one_mask is not None:
            if prod(node.src[0].arg.shape) < width:
                # so many are nowhere: it is never on
                return self.emitter.broadcast(self.emitter.number(0, node.dtype), width)
            at = (one_mask, base or self.emitter.number(0), self.emitter.number(-offset))
            base, mask = self.emitter.emit(Op.WHERE, dtypes.index, at), None
        src = (address, base) if mask is None else (address, base, mask)
        if node in self.ranges.volatile:
            value = self.emitter.place(Op.LOAD, dtype, src, offset)
        else:
            value = self.emitter.emit(Op.LOAD, dtype, src, offset, least)
        if one_mask is None:
            return value
        zeros = self.emitter.broadcast(self.emitter.number(0, node.dtype), width)
        return self.emitter.emit(Op.WHERE, dtype, (self.emitter.broadcast(one_mask, width), value, zeros))

    def _square(self, node: Node, point: Point, lanes: int) -> Instruction | None:
        """Lanes far apart, but neighbours along another written-out range: read those, and turn them in registers.

        A row holds other points than the one that is asked for, so each row is read under the conditions of its own.
        """
        form = self.ranges.affine.of(node.src[1])
        if any(True for _ in form.atoms()) or not self._is_geometry(node.src[2:]):
            return None
        across = next(axis for axis in self.ranges.axes_of(self.ranges.masks[node]) if point[axis][1] > 1)
        for axis in self.ranges.axes_of(self.ranges.masks[node]):
            start = point[axis][0] // lanes * lanes
            if (
                axis is across
                or form.coefficient(axis.range) != 1
                or self.ranges.extent[axis] < start + lanes
            ):
                continue
            inner = axis.loops[-1]
            if inner.stride != 1 or inner.kind == "thread" or (axis.threads and inner.size < lanes):
                continue  # neighbours that other threads have
            rows = []
            for lane in range(lanes):
                at = {**point, across: (point[across][0] + lane, 1), axis: (start, lanes)}
                rows.append(self._row(node, at, lanes))
            columns = self.emitter.turned(rows)
            for i, column in enumerate(columns):
                key = node, self.ranges.place_in(node, {**point, axis: (start + i, 1)})
                depth = max(self.loops.depth_of(self.ranges.masks[node]), column.depth)
                self.emitter.scopes[depth].values[key] = column
            return columns[point[axis][0] - start]
        return None

    def _row(self, node: Node, point: Point, lanes: int) -> Instruction:
        """A load whose lanes at this point are neighbours in memory."""
        mask = self.value(node.src[2], point) if len(node.src) > 2 else None
        if mask is not None and mask.op is Op.CONST:
            if not mask.arg:
                return self.emitter.broadcast(self.emitter.number(0, node.dtype), lanes)
            mask = None
        spot = self.spot(node.src[1], point)
        place = self.addresses[node.src[0]], self.emitter.total(spot.terms)
        return self._read(node, place, spot.offset, lanes, mask)

    def _is_geometry(self, conditions: tuple[Node, ...]) -> bool:
        """True for conditions on ranges alone: they can be asked at any point, whatever is in lanes there."""
        return all(n.op is not Op.LOAD and n.op is not Op.REDUCE for n in toposort(conditions))

    def _lanes(
        self, spot: Spot, lanes: int, base: Instruction | None
    ) -> Iterable[tuple[int, Instruction | None, int]]:
        """Lane by lane: number, base, displacement."""
        if not spot.vectors:
            for lane in range(lanes):
                yield lane, base, spot.offset + spot.steps[lane if len(spot.steps) > 1 else 0]
            return
        places = self._index_value(spot)
        for lane in range(lanes):
            yield lane, self.emitter.lane(places, lane), 0

    def store(self, node: Node, point: Point) -> None:
        """Write one STORE of the graph at a point."""
        value = self.value(node.src[2], point)
        mask = self.value(node.src[3], point) if len(node.src) > 3 and node.arg != NEEDED else None
        if mask is not None and mask.op is Op.CONST:
            if not mask.arg:
                return
            mask = None
        mask = self._by_one_thread(self.ranges.masks[node], mask)
        spot = self.spot(node.src[1], point)
        address = self.addresses[node.src[0]]
        lanes = max(spot.lanes, value.dtype.lanes, mask.dtype.lanes if mask is not None else 1)
        base = self.emitter.total(spot.terms)
        masks = () if mask is None else (self.emitter.broadcast(mask, lanes),)
        if lanes == 1 or (spot.is_run and spot.lanes == lanes):
            self.emitter.store((address, base, self.emitter.broadcast(value, lanes), *masks), spot.offset)
            return
        for lane, lane_base, offset in self._lanes(spot, lanes, base):
            where = () if mask is None else (self.emitter.lane(mask, lane),)
            self.emitter.store((address, lane_base, self.emitter.lane(value, lane), *where), offset)

    def _by_one_thread(self, ranges: int, mask: Instruction | None) -> Instruction | None:
        """The condition of a store and, where several threads have the value, that this is the first of them.

        ranges  the mask of those that the store stands in
        """
        counted = {loop.digit for axis in self.ranges.axes if axis.bit & ranges for loop in axis.threads}
        for digit, number in enumerate(self.loops.digits):
            if digit not in counted:
                first = self.emitter.is_equal(number, 0)
                if mask is not None:
                    first = self.emitter.emit(
                        Op.AND, mask.dtype, (mask, self.emitter.broadcast(first, mask.dtype.lanes))
                    )
                mask = first
        return mask

    def store_packed(self, packed: Packed, value: Instruction, point: Point) -> None:
        """Write a value where `packed` keeps it."""
        spot = self.packed_spot(packed, point)
        base = self.emitter.total(spot.terms)
        if spot.lanes == 1 or spot.is_run:
            src = (packed.address, base, self.emitter.broadcast(value, spot.lanes))
            self.emitter.store(src, spot.offset)
            return
        for lane, lane_base, offset in self._lanes(spot, spot.lanes, base):
            self.emitter.store((packed.address, lane_base, self.emitter.lane(value, lane)), offset)
