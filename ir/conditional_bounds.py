"""Bounds under a condition: what an index can be where a condition holds.

In       an index node and a bool node over the same ranges
Out      (least, greatest), both included; never narrower than the truth
Next     logic.py (the form conditions have), verify.py (which proves addresses with this)

Interval arithmetic forgets that two terms move together. Three facts put some of that back: a sum that the
condition limits is taken out of a larger sum as a whole, a quotient takes its neighbours inside (x // a + y is
(x + a*y) // a), and each branch of a select is judged under the select's own condition.
"""

from __future__ import annotations

from hcq.ir.affine import Terms, collect, linear
from hcq.ir.bounds import Bounds, bounds, format_bounds
from hcq.ir.dtype import Kind
from hcq.ir.logic import as_limits, flatten, negate, span_within
from hcq.ir.node import Node
from hcq.ir.op import Op

Limits = dict[Node, Bounds]
_MOST_SUMS = 4  # limited sums taken out of one index; more are ignored, so that the search stays short


def bounds_given(node: Node, condition: Node) -> Bounds:
    """The range of an integer or index node where the condition holds."""
    return _within(node, _limits(condition, {}))


def _limits(condition: Node, before: Limits) -> Limits:
    """What the parts of a conjunction that compare sums with numbers say, on top of what was known before."""
    limits = dict(before)
    for part in flatten(Op.AND, (condition,)):
        found = as_limits(part)
        if found is not None:
            total, low, high = found
            limits[total] = _both(limits.get(total) or bounds(total), (low, high))
    for total, known in list(limits.items()):
        if total.op is Op.ADD:
            terms: Terms = {}
            number = collect(((total, 1),), terms)
            low, high = span_within(terms, limits)
            limits[total] = _both(known, (low + number, high + number))
    return limits


def _both(a: Bounds, b: Bounds) -> Bounds:
    return max(a[0], b[0]), min(a[1], b[1])


def _within(node: Node, limits: Limits) -> Bounds:
    found = _by_structure(node, limits)
    known = limits.get(node)
    return found if known is None else _both(found, known)


def _by_structure(node: Node, limits: Limits) -> Bounds:
    op = node.op
    if op is Op.WHERE and node.dtype.kind is not Kind.FLOAT:
        condition, yes, no = node.src
        a, b = _within(yes, _limits(condition, limits)), _within(no, _limits(negate(condition), limits))
        return min(a[0], b[0]), max(a[1], b[1])
    if op is Op.CAST and node.src[0].dtype.is_integer:
        return _if_held(_within(node.src[0], limits), node)
    if op is Op.FLOORDIV or op is Op.MOD:
        return _quotient(node, limits)
    if op is Op.ADD and node.dtype.kind is not Kind.INDEX and node.dtype.is_integer:
        first, second = _within(node.src[0], limits), _within(node.src[1], limits)
        return _if_held((first[0] + second[0], first[1] + second[1]), node)
    if node.dtype.kind is not Kind.INDEX or (op is not Op.ADD and op is not Op.MUL):
        return bounds(node)
    terms: Terms = {}
    number = collect(((node, 1),), terms)
    sums = [total for total in limits if total.op is Op.ADD][:_MOST_SUMS]
    low, high = _sum(terms, limits, sums)
    found = low + number, high + number
    for atom, times in terms.items():
        others = [(other, c) for other, c in terms.items() if other is not atom]
        divisor = atom.src[1].arg if atom.op is Op.FLOORDIV and atom.src[1].op is Op.CONST else 0
        if divisor > 0 and others and all(c % times == 0 for _, c in others):
            inside = linear([(atom.src[0], 1), *[(other, c // times * divisor) for other, c in others]])
            least, greatest = _within(inside, limits)
            ends = least // divisor * times + number, greatest // divisor * times + number
            found = _both(found, (min(ends), max(ends)))
    return found


def _if_held(found: Bounds, node: Node) -> Bounds:
    """The range, if the node's format holds all of it; else anything the format holds."""
    low, high = format_bounds(node)
    return found if low <= found[0] and found[1] <= high else bounds(node)


def _quotient(node: Node, limits: Limits) -> Bounds:
    x, divisor = node.src
    if divisor.op is not Op.CONST or divisor.arg < 1:
        return bounds(node)
    low, high = _within(x, limits)
    first, last = low // divisor.arg, high // divisor.arg
    if node.op is Op.FLOORDIV:
        return first, last
    return (low % divisor.arg, high % divisor.arg) if first == last else bounds(node)


def _sum(terms: Terms, limits: Limits, sums: list[Node]) -> Bounds:
    """The range of a sum of atoms, with multiples of the limited sums taken out in each way that cancels an atom."""
    low = high = 0
    for atom, times in terms.items():
        least, greatest = _within(atom, limits)
        low += min(least * times, greatest * times)
        high += max(least * times, greatest * times)
    for place, total in enumerate(sums):
        parts: Terms = {}
        offset = collect(((total, 1),), parts)
        if not all(atom in terms for atom in parts):
            continue
        ways = {terms[atom] // c for atom, c in parts.items() if terms[atom] % c == 0}
        for times in sorted(ways):
            rest = dict(terms)
            for atom, c in parts.items():
                rest[atom] -= times * c
            left = _sum({atom: c for atom, c in rest.items() if c}, limits, sums[place + 1 :])
            least, greatest = limits[total]
            ends = (least - offset) * times, (greatest - offset) * times
            low, high = _both((low, high), (left[0] + min(ends), left[1] + max(ends)))
    return low, high
