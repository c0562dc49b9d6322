"""Conditions over index arithmetic: comparisons against a number, and what several of them say together.

In       index and bool nodes
Out      the simplest bool node of the same value; true and false where ranges decide
Next     affine.py (the sums compared here), symbolic.py (whole graphs)

A comparison of index values is written `sum < number`, `number < sum`, `sum == number` or `sum != number`, the sum's
first coefficient positive and all of them without a common factor.
"""

from __future__ import annotations

from math import gcd

from hcq.ir.affine import Terms, collect, combined, digest, linear, order, ordered, span
from hcq.ir.bounds import bounds
from hcq.ir.dtype import Kind, dtypes
from hcq.ir.node import Node, const, index
from hcq.ir.op import Op

TRUE = const(True, dtypes.bool)
FALSE = const(False, dtypes.bool)

_INVERSE = {Op.CMPEQ: Op.CMPNE, Op.CMPNE: Op.CMPEQ}


def truth(value: bool) -> Node:
    """True or False as a node."""
    return TRUE if value else FALSE


# -- comparisons of index values ------------------------------------------------------------------------------------


def less(a: Node, b: Node) -> Node:
    """a < b."""
    terms, number = _difference(a, b)
    return _is_negative(ordered(terms), number)


def less_equal(a: Node, b: Node) -> Node:
    """a <= b."""
    terms, number = _difference(a, b)
    return _is_negative(ordered(terms), number - 1)


def _difference(a: Node, b: Node) -> tuple[Terms, int]:
    """a - b, as atoms and a number."""
    return combined(((a, 1), (b, -1)))


def _is_negative(items: list[tuple[Node, int]], number: int) -> Node:
    """Whether the sum is below zero. Written g*U + R with 0 <= R < g, it is where U is."""
    while True:
        low, high = span(items)
        if high + number < 0:
            return TRUE
        if low + number >= 0:
            return FALSE
        steps = {abs(coefficient) for _, coefficient in items}
        steps.add(gcd(*steps))
        for step in sorted(steps, reverse=True):
            if step == 1:
                continue
            rest_low, rest_high = span([term for term in items if term[1] % step])
            shift = (rest_low + number) // step
            if rest_high + number - shift * step < step:
                items = [
                    (atom, coefficient // step) for atom, coefficient in items if coefficient % step == 0
                ]
                number = shift
                break
        else:
            break
    if len(items) == 1 and abs(items[0][1]) == 1:
        atom = items[0][0]
        if atom.op is Op.FLOORDIV and atom.src[1].op is Op.CONST and atom.src[1].arg > 0:
            divisor = atom.src[1].arg
            if items[0][1] > 0:  # x // d + n < 0 is x < -n * d
                return less(atom.src[0], index(-number * divisor))
            return less(index((number + 1) * divisor - 1), atom.src[0])  # n < x // d is (n + 1) * d <= x
    if items[0][1] > 0:
        return Node(Op.CMPLT, dtypes.bool, (linear(items), index(-number)))
    return Node(Op.CMPLT, dtypes.bool, (index(number), linear([(atom, -c) for atom, c in items])))


def equal(a: Node, b: Node) -> Node:
    """a == b."""
    terms, number = _difference(a, b)
    items = ordered(terms)
    low, high = span(items)
    if low + number > 0 or high + number < 0:
        return FALSE
    if low == high:
        return TRUE
    common = gcd(*[coefficient for _, coefficient in items])
    if number % common:
        return FALSE
    if items[0][1] < 0:
        common = -common
    total = linear([(atom, coefficient // common) for atom, coefficient in items])
    value = -number // common
    low, high = bounds(total)
    if value == low:
        return less(total, index(low + 1))
    if value == high:
        return less(index(high - 1), total)
    return Node(Op.CMPEQ, dtypes.bool, (total, index(value)))


def not_equal(a: Node, b: Node) -> Node:
    """a != b."""
    return negate(equal(a, b))


# -- connectives ----------------------------------------------------------------------------------------------------


def negate(a: Node) -> Node:
    """not a. Comparisons of floats are turned only where NaN agrees."""
    if a.op is Op.CONST:
        return truth(not a.arg)
    if a.op is Op.NOT:
        return a.src[0]
    if a.op in _INVERSE:
        return Node(_INVERSE[a.op], dtypes.bool, a.src)
    if a.op is Op.CMPLT and a.src[0].dtype is dtypes.index:
        return less_equal(a.src[1], a.src[0])
    return Node(Op.NOT, dtypes.bool, (a,))


def both(*conditions: Node) -> Node:
    """All of the conditions hold."""
    parts = flatten(Op.AND, conditions)
    if len(parts) < 2:
        return next(iter(parts), TRUE)
    made = _settled(parts)
    return FALSE if made is None else _chain(Op.AND, made)


def either(*conditions: Node) -> Node:
    """At least one of the conditions holds: not all of their opposites do."""
    parts = flatten(Op.OR, conditions)
    if len(parts) < 2:
        return next(iter(parts), FALSE)
    made = _settled({negate(part): None for part in parts})
    return TRUE if made is None else _chain(Op.OR, [negate(part) for part in made])


MOST_TURNS = 8  # of rules that each leave less to say; none was seen to take more than three


def _settled(parts: dict[Node, None]) -> list[Node] | None:
    """`_together` until it says nothing new: that a sum is at its end may say that its terms are, and so on."""
    made = _together(parts)
    for _ in range(MOST_TURNS):
        if made is None or all(part in parts for part in made):
            break
        parts = flatten(Op.AND, tuple(made))
        made = _together(parts)
    return made


def _together(parts: dict[Node, None]) -> list[Node] | None:
    """What conditions that all hold say, in as few as possible; None when they cannot all hold."""
    if FALSE in parts:
        return None
    limits: dict[Node, tuple[int, int]] = {}
    others: list[Node] = []
    for part in parts:
        found = as_limits(part)
        if found is not None:
            total, low, high = found
            before = limits.get(total) or bounds(total)
            limits[total] = max(low, before[0]), min(high, before[1])
        elif negate(part) in parts:
            return None
        elif part is not TRUE:
            others.append(part)
    # the limits of single atoms may decide those of sums, whole or one side
    for total, (low, high) in list(limits.items()):
        if total.op is Op.ADD or total.op is Op.MUL:
            terms: Terms = {}
            number = collect(((total, 1),), terms)
            if any(atom in limits for atom in terms):
                tight_low, tight_high = span_within(terms, limits)
                tight_low, tight_high = tight_low + number, tight_high + number
                if tight_low > high or tight_high < low:
                    return None
                least, greatest = bounds(total)
                limits[total] = least if low <= tight_low else low, greatest if tight_high <= high else high
    others = _without_edges(others, limits)
    made: list[Node] = []
    for total, (low, high) in limits.items():
        least, greatest = bounds(total)
        if low > high:
            return None
        if low == high and least < greatest:
            made.append(equal(total, index(low)))
            continue
        if low > least:
            made.append(less(index(low - 1), total))
        if high < greatest:
            made.append(less(total, index(high + 1)))
    return sorted({**dict.fromkeys(made), **dict.fromkeys(others)}, key=_order_of_condition)


def _without_edges(others: list[Node], limits: dict[Node, tuple[int, int]]) -> list[Node]:
    """`sum != number` at an end of the sum's limits moves that end, outside of them it says nothing."""
    again = True
    while again:
        again = False
        kept: list[Node] = []
        for part in others:
            total = part.src[0] if part.op is Op.CMPNE else None
            if total is None or total not in limits or part.src[1].op is not Op.CONST:
                kept.append(part)
                continue
            value = part.src[1].arg
            low, high = limits[total]
            if low < value < high:
                kept.append(part)
                continue
            limits[total] = low + (value == low), high - (value == high)
            again = True
        others = kept
    return others


def select(condition: Node, if_true: Node, if_false: Node) -> Node:
    """condition ? if_true : if_false, of any dtype."""
    if condition.op is Op.CONST:
        return if_true if condition.arg else if_false
    if if_true is if_false:
        return if_true
    if if_true.dtype is dtypes.bool:
        if if_true is TRUE:
            return either(condition, if_false)
        if if_true is FALSE:
            return both(negate(condition), if_false)
        if if_false is FALSE:
            return both(condition, if_true)
        if if_false is TRUE:
            return either(negate(condition), if_true)
    return Node(Op.WHERE, if_true.dtype, (condition, if_true, if_false))


def exclusive(a: Node, b: Node) -> Node:
    """a xor b, for bools."""
    if a is b:
        return FALSE
    if a.op is Op.CONST:
        a, b = b, a
    if b.op is Op.CONST:
        return negate(a) if b.arg else a
    if order(b) < order(a):
        a, b = b, a
    return Node(Op.XOR, dtypes.bool, (a, b))


def flatten(op: Op, conditions: tuple[Node, ...]) -> dict[Node, None]:
    """The parts of a conjunction or disjunction, each once, in the order they were written."""
    parts: dict[Node, None] = {}
    stack = list(reversed(conditions))
    while stack:
        node = stack.pop()
        if node.op is op and node.dtype is dtypes.bool:
            stack.append(node.src[1])
            stack.append(node.src[0])
        else:
            parts[node] = None
    return parts


def _chain(op: Op, parts: list[Node]) -> Node:
    if not parts:
        return truth(op is Op.AND)
    total = parts[0]
    for part in parts[1:]:
        total = Node(op, dtypes.bool, (total, part))
    return total


def as_limits(part: Node) -> tuple[Node, int, int] | None:
    """(sum, least, greatest) that the condition says of a sum, None when it is not of that form."""
    if part.op is Op.CMPLT or part.op is Op.CMPEQ:
        a, b = part.src
        if a.dtype.kind is Kind.INDEX:
            if b.op is Op.CONST:
                return (a, bounds(a)[0], b.arg - 1) if part.op is Op.CMPLT else (a, b.arg, b.arg)
            if a.op is Op.CONST and part.op is Op.CMPLT:
                return b, a.arg + 1, bounds(b)[1]
    return None


def span_within(terms: Terms, limits: dict[Node, tuple[int, int]]) -> tuple[int, int]:
    """The range of a sum whose atoms may have limits narrower than their bounds."""
    low = high = 0
    for atom, coefficient in terms.items():
        a, b = limits.get(atom) or bounds(atom)
        low += min(a * coefficient, b * coefficient)
        high += max(a * coefficient, b * coefficient)
    return low, high


def _order_of_condition(part: Node) -> tuple[int, int, int]:
    """Limits of ranges by number, then of sums, the lower before the upper; everything else after them."""
    if part.op is Op.CMPLT:
        is_upper = part.src[1].op is Op.CONST
        total = part.src[0] if is_upper else part.src[1]
    elif part.op is Op.CMPEQ:
        is_upper, total = False, part.src[0]
    else:
        return 3, digest(part), 0
    kind, place = order(total)
    return (kind, place, int(is_upper)) if total.op is Op.RANGE else (2, digest(total), int(is_upper))
