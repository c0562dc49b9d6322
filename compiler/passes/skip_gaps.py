"""Skip gaps: a sum over places most of which read zero visits only those that do not.

In       a kernel-stage graph
Out      the same kernel, its sums under `(i - k) % 2 == 0` run over every second k
Next     lower_movement.py (UNWINDOW with a step leaves such conditions: gradients of strided windows), split_ranges.py

    sum over k < K of (f(k) where (a*k + rest) % s == 0, else 0)
        = sum over j of f(s*j + phase), s*j + phase < K, phase = -rest / a modulo s

A 3x3 window with stride 2 has 4 turns left of 9. Only selects and loads that read zero count, and what is zero
because all its parts are: a product with one zero in it may still be NaN. A sum is left alone when the phase would make
a load depend on outputs that it did not depend on: such a load is shared by those outputs (a convolution's weights),
which is worth more than the turns.
"""

from __future__ import annotations

from math import gcd, prod

from hcq.ir.affine import collect, linear, modulo
from hcq.ir.bounds import bounds
from hcq.ir.dtype import dtypes
from hcq.ir.logic import both, flatten, less
from hcq.ir.node import Node, const, index, range_number, toposort
from hcq.ir.op import Op
from hcq.ir.rewrite import Notes, Pass, Step
from hcq.ir.symbolic import build, replace


def _skip(sink: Node, target: object, notes: Notes) -> Node:
    """The kernel with shorter sums; new ranges are numbered after the old ones."""
    nodes = toposort((sink,))
    numbers = [range_number(node) for node in nodes if node.op is Op.RANGE]
    number = max(numbers, default=-1) + 1
    new: dict[Node, Node] = {}
    for node in nodes:
        src = tuple([new[source] for source in node.src])
        made = node if src == node.src else build(node.op, node, src)
        if made.op is Op.REDUCE and made.arg is Op.ADD:
            for place in made.src[1:]:
                shorter = _shortened(made, place, number) if made.op is Op.REDUCE else None
                if shorter is not None:
                    notes("every-step", made, shorter)
                    made = shorter
                    number += 1
        new[node] = made
    return new[sink]


def _shortened(node: Node, place: Node, number: int) -> Node | None:
    """The sum over fewer turns of one of its ranges, None where no condition allows it."""
    phase = _phase(_zero_unless(node.src[0]), place)
    if phase is None or not _keeps_sharing(node.src[0], place, phase[0]):
        return None
    start, step = phase
    size: int = place.src[0].arg
    turns = -(-size // step)
    parts: list[tuple[Node, int]] = [(start, 1)]
    ranges = [other for other in node.src[1:] if other is not place]
    if turns > 1:
        ranges.append(Node(Op.RANGE, dtypes.index, (index(turns),), number))
        parts.append((ranges[-1], step))
    at = linear(parts)
    (value,) = replace((node.src[0],), {place: at})
    inside = less(at, index(size))
    if inside.op is not Op.CONST:
        value = _under(value, inside)
    return Node(Op.REDUCE, node.dtype, (value, *ranges), Op.ADD) if ranges else value


def _keeps_sharing(value: Node, place: Node, start: Node) -> bool:
    """Whether every load that depends on `place` depends on all that `start` depends on already."""
    wanted = {node for node in toposort((start,)) if node.op is Op.RANGE}
    for node in toposort((value,)):
        if node.op is Op.LOAD:
            found = {part for part in toposort((node.src[1],)) if part.op is Op.RANGE}
            if place in found and not wanted <= found:
                return False
    return True


def _zero_unless(value: Node) -> list[Node]:
    """Conditions without any of which the value is exactly zero."""
    if value.op is Op.LOAD and len(value.src) == 3:
        return _conditions(value.src[2])
    if value.op is Op.WHERE and value.src[2].op is Op.CONST and repr(value.src[2].arg) in ("0", "0.0"):
        return _conditions(value.src[0])
    if value.op is Op.MUL or value.op is Op.ADD:
        # zero with zero is zero; two levels are as far as a gradient goes
        first, second = value.src
        if first.op is Op.LOAD or first.op is Op.WHERE:
            others = _zero_unless(second)
            return [part for part in _zero_unless(first) if part in others]
    return []


def _conditions(condition: Node) -> list[Node]:
    """The parts of a conjunction, the last one first."""
    return list(reversed(flatten(Op.AND, (condition,))))


def _phase(conditions: list[Node], place: Node) -> tuple[Node, int] | None:
    """(first turn, step) of the turns of a range that one of the conditions, `sum % step == 0`, leaves."""
    for part in conditions:
        if part.op is not Op.CMPLT or part.src[1].op is not Op.CONST or part.src[1].arg != 1:
            continue
        remainder = part.src[0]
        if remainder.op is not Op.MOD or remainder.src[1].op is not Op.CONST:
            continue
        step: int = remainder.src[1].arg
        terms: dict[Node, int] = {}
        number = collect(((remainder.src[0], 1),), terms)
        times = terms.pop(place, 0)
        if gcd(times, step) != 1 or any(place in atom.toposort() for atom in terms):
            continue
        inverse = -pow(times, -1, step) % step
        if 2 * inverse > step:
            inverse -= step
        rest = linear([(atom, times * inverse) for atom, times in terms.items()], number * inverse)
        return modulo(rest, step), step
    return None


def _under(value: Node, inside: Node) -> Node:
    """The value where one more condition holds; loads that would leave their buffer beyond it get it as well."""
    new: dict[Node, Node] = {}
    for node in toposort((value,)):
        src = tuple([new[source] for source in node.src])
        made = build(node.op, node, src)
        if made.op is Op.LOAD:
            low, high = bounds(made.src[1])
            if low < 0 or high >= prod(made.src[0].arg.shape):
                valid = inside if len(made.src) == 2 else both(made.src[2], inside)
                made = Node(Op.LOAD, made.dtype, (*made.src[:2], valid))
        new[node] = made
    made = new[value]
    zero = const(0, made.dtype)
    if made.op is Op.WHERE and made.src[2] is zero:
        return Node(Op.WHERE, made.dtype, (both(made.src[0], inside), made.src[1], zero))
    if made.op is Op.LOAD and len(made.src) == 3:
        return Node(Op.LOAD, made.dtype, (*made.src[:2], both(made.src[2], inside)))
    return Node(Op.WHERE, made.dtype, (inside, made, zero))


skip_gaps = Pass(
    "skip-gaps",
    "sums over strided windows visit only the places that are not zero",
    [
        Step(
            "every-step",
            "sum over k of (f(k) where (a*k + rest) % s == 0, else 0) -> sum over j of f(s*j + phase)",
        )
    ],
    _skip,
)
