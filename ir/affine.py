"""Index arithmetic in one form: a sum of atoms times numbers plus a number, with quotients and remainders cut down.

In       index nodes
Out      the simplest index node of the same value; equal sums are one node
Changes  nothing but bounded memos
Next     bounds.py (value ranges), logic.py (conditions over sums), symbolic.py (whole graphs)

    x = a * Q + g * U + R,  0 <= R < g,  g divides a

is the one fact behind every rule here: then x // a = Q + U // (a / g) and x % a = g * (U % (a / g)) + R. Quotient and
remainder split x alike, so that `x // a * a + x % a` finds its halves again and becomes x.

An atom is anything that is no sum and no multiple: a RANGE, a FLOORDIV or MOD that would not go away, a loaded index.
Sums are written with the largest coefficient first and the number last.
"""

from __future__ import annotations

from collections.abc import Iterable
from math import gcd
from zlib import crc32

from hcq.ir.bounds import bounds
from hcq.ir.dtype import dtypes
from hcq.ir.node import Node, index
from hcq.ir.op import Op

Terms = dict[Node, int]
_LIMIT = 1 << 14  # memo entries; a memo that grows past this starts over
_FAR = 1 << 40  # beyond any size of memory


# -- sums -----------------------------------------------------------------------------------------------------------


def linear(parts: Iterable[tuple[Node, int]], number: int = 0) -> Node:
    """The sum of node * coefficient over the parts, plus a number."""
    terms, loose = combined(parts)
    return _write(terms, number + loose)


def combined(parts: Iterable[tuple[Node, int]]) -> tuple[Terms, int]:
    """The atoms and the number of a sum, remainders put together with their quotients."""
    terms: Terms = {}
    number = collect(parts, terms)
    if len(terms) > 1:
        for atom in terms:
            if atom.op is Op.MOD:
                number += _recombine(terms)
                break
    return terms, number


def collect(parts: Iterable[tuple[Node, int]], terms: Terms) -> int:
    """Add the parts' atoms to `terms`, dropping what cancels; returns the plain number among them."""
    number = 0
    stack = list(parts)
    stack.reverse()
    while stack:
        node, coefficient = stack.pop()
        op = node.op
        if op is Op.CONST:
            number += node.arg * coefficient
        elif op is Op.ADD:
            stack.append((node.src[1], coefficient))
            stack.append((node.src[0], coefficient))
        elif op is Op.MUL and node.src[1].op is Op.CONST:
            stack.append((node.src[0], coefficient * node.src[1].arg))
        elif op is Op.MUL and node.src[0].op is Op.CONST:
            stack.append((node.src[1], coefficient * node.src[0].arg))
        elif coefficient:
            times = terms.get(node, 0) + coefficient
            if times:
                terms[node] = times
            else:
                del terms[node]
    return number


def add(a: Node, b: Node) -> Node:
    """a + b of index nodes, in simplest form."""
    return linear(((a, 1), (b, 1)))


def subtract(a: Node, b: Node) -> Node:
    """a - b of index nodes, in simplest form."""
    return linear(((a, 1), (b, -1)))


def multiply(a: Node, b: Node) -> Node:
    """a * b of index nodes, in simplest form; a product of two atoms is an atom."""
    if b.op is Op.CONST:
        return linear(((a, b.arg),))
    if a.op is Op.CONST:
        return linear(((b, a.arg),))
    if order(b) < order(a):
        a, b = b, a
    return Node(Op.MUL, dtypes.index, (a, b))


def span(terms: Iterable[tuple[Node, int]]) -> tuple[int, int]:
    """The range of a sum of atoms."""
    low = high = 0
    for atom, coefficient in terms:
        a, b = atom._range or bounds(atom)
        if coefficient > 0:
            low += a * coefficient
            high += b * coefficient
        else:
            low += b * coefficient
            high += a * coefficient
    return low, high


def _write(terms: Terms, number: int) -> Node:
    made: Node | None = None
    for atom, coefficient in ordered(terms):
        part = atom if coefficient == 1 else Node(Op.MUL, dtypes.index, (atom, index(coefficient)))
        made = part if made is None else Node(Op.ADD, dtypes.index, (made, part))
    if made is None:
        return index(number)
    return Node(Op.ADD, dtypes.index, (made, index(number))) if number else made


def ordered(terms: Terms) -> list[tuple[Node, int]]:
    """The terms as they are written: larger strides first, equal ones by range number."""
    items = list(terms.items())
    if len(items) > 1:
        items.sort(key=_term_order)
    return items


def _term_order(term: tuple[Node, int]) -> tuple[int, int, int]:
    return (-abs(term[1]), *order(term[0]))


def _recombine(terms: Terms) -> int:
    """Put remainders together with what they were taken from; returns the plain number that comes loose.

    `c*(x % a) + c*a*(x // a)` is `c*x`, `c*(x % a) + c*a*(x // a % b)` is `c*(x % (a*b))`, `c*x - c*(x % a)` is
    `c*a*(x // a)`.
    """
    number = 0
    again = True
    while again:
        again = False
        for rest, coefficient in ordered(terms):
            if rest.op is not Op.MOD or rest.src[1].op is not Op.CONST or rest.src[1].arg < 1:
                continue
            x, divisor = rest.src[0], rest.src[1].arg
            partner = _other_part(terms, rest, coefficient)
            if partner is not None:
                whole = x if partner.op is not Op.MOD else modulo(x, divisor * partner.src[1].arg)
                del terms[rest], terms[partner]
                number += collect(((whole, coefficient),), terms)
                again = True
                break
            parts: Terms = {}
            own = collect(((x, -coefficient),), parts)
            if all(terms.get(atom) == times for atom, times in parts.items()):
                for atom in (rest, *parts):
                    del terms[atom]
                number += collect(((floordiv(x, divisor), -coefficient * divisor),), terms) - own
                again = True
                break
    return number


def _other_part(terms: Terms, rest: Node, coefficient: int) -> Node | None:
    """`x // a`, or `x // a % b`, among the terms, as often as `rest`, `x % a`, needs it."""
    divisor = rest.src[1].arg
    quotient = floordiv(rest.src[0], divisor)
    wanted = coefficient * divisor
    if terms.get(quotient) == wanted and quotient.op is not Op.MOD:
        return quotient
    for atom, times in terms.items():
        if times == wanted and atom.op is Op.MOD and atom.src[0] is quotient:
            if atom.src[1].op is Op.CONST and atom.src[1].arg > 0:
                return atom
    return None


# -- quotients and remainders ---------------------------------------------------------------------------------------

_quotients: dict[tuple[Node, int], Node] = {}
_remainders: dict[tuple[Node, int], Node] = {}


def forget() -> None:
    """Empty the memos; what is computed stays the same."""
    _quotients.clear()
    _remainders.clear()
    _digests.clear()


def floordiv(x: Node, divisor: int) -> Node:
    """x // divisor, rounded down; x // 0 is 0."""
    if divisor == 1:
        return x
    key = (x, divisor)
    found = _quotients.get(key)
    if found is None:
        if len(_quotients) > _LIMIT:
            _quotients.clear()
        found = _quotients[key] = _floordiv(x, divisor)
    return found


def modulo(x: Node, divisor: int) -> Node:
    """x % divisor, with the divisor's sign; x % 0 is 0."""
    key = (x, divisor)
    found = _remainders.get(key)
    if found is None:
        if len(_remainders) > _LIMIT:
            _remainders.clear()
        found = _remainders[key] = _modulo(x, divisor)
    return found


def _floordiv(x: Node, divisor: int) -> Node:
    if divisor == 0:
        return index(0)
    if divisor < 0:
        return floordiv(linear(((x, -1),)), -divisor)
    low, high = bounds(x)
    if low // divisor == high // divisor:
        return index(low // divisor)
    whole, whole_number, step, inner, _, _ = _split(x, divisor)
    if inner is not None:
        part = floordiv(inner, divisor // step) if inner is not x else _divide_atom(inner, divisor)
        whole.append((part, 1))
    return linear(whole, whole_number)


def _modulo(x: Node, divisor: int) -> Node:
    if divisor == 0:
        return index(0)
    if divisor < 0:
        return linear(((modulo(linear(((x, -1),)), -divisor), -1),))
    low, high = bounds(x)
    quotient = low // divisor
    if quotient == high // divisor:
        return linear(((x, 1),), -quotient * divisor)
    _, _, step, inner, rest, rest_number = _split(x, divisor)
    if inner is not None:
        part = modulo(inner, divisor // step) if inner is not x else _remainder_of_atom(inner, divisor)
        rest.append((part, step))
    return linear(rest, rest_number)


def _split(
    x: Node, divisor: int
) -> tuple[list[tuple[Node, int]], int, int, Node | None, list[tuple[Node, int]], int]:
    """x = divisor * Q + g * U + R with 0 <= R < g, g dividing divisor: (Q, Q's number, g, U or None, R, R's number)."""
    terms: Terms = {}
    number = collect(((x, 1),), terms)
    items = ordered(terms)
    # two ways to leave a remainder of each coefficient: the sign kept, or the nearest multiple taken
    for nearest in (False, True):
        whole: list[tuple[Node, int]] = []
        left: list[tuple[Node, int]] = []
        for atom, coefficient in items:
            times = abs(coefficient) // divisor
            if nearest and 2 * (abs(coefficient) - times * divisor) > divisor:
                times += 1
            times = times if coefficient > 0 else -times
            if times:
                whole.append((atom, times))
            if coefficient != times * divisor:
                left.append((atom, coefficient - times * divisor))
        low, high = span(left)
        # what a tensor computed may be as low as its dtype goes; adding that much back would leave 64 bits
        shift = (low + number if low > -_FAR else number) // divisor
        if 0 <= low + number - shift * divisor and high + number - shift * divisor < divisor:
            return whole, shift, divisor, None, left, number - shift * divisor
        if not nearest:
            first = whole, left, low, shift
    whole, left, low, shift = first
    number -= shift * divisor
    for step in sorted({gcd(divisor, coefficient) for _, coefficient in left}, reverse=True):
        if step == 1:
            break
        inner = [(atom, coefficient // step) for atom, coefficient in left if coefficient % step == 0]
        rest = [(atom, coefficient) for atom, coefficient in left if coefficient % step]
        low, high = span(rest)
        steps = (low + number) // step
        if high + number - steps * step < step:
            return whole, shift, step, linear(inner, steps), rest, number - steps * step
    common = gcd(divisor, *[coefficient for _, coefficient in left])
    if common > 1:
        inner = [(atom, coefficient // common) for atom, coefficient in left]
        return whole, shift, common, linear(inner, number // common), [], number % common
    return whole, shift, 1, linear(left, number), [], 0


def _divide_atom(x: Node, divisor: int) -> Node:
    """x // divisor where no term of x can be taken out."""
    atom, number = (x.src[0], x.src[1].arg) if _is_atom_plus_number(x) else (x, 0)
    if atom.op is Op.FLOORDIV and atom.src[1].op is Op.CONST and atom.src[1].arg > 0:
        inner = atom.src[1].arg
        return floordiv(linear(((atom.src[0], 1),), number * inner), inner * divisor)
    if atom.op is Op.MOD and number == 0 and atom.src[1].op is Op.CONST:
        period = atom.src[1].arg
        if period > 0 and period % divisor == 0:
            return modulo(floordiv(atom.src[0], divisor), period // divisor)
    return Node(Op.FLOORDIV, dtypes.index, (x, index(divisor)))


def _remainder_of_atom(x: Node, divisor: int) -> Node:
    """x % divisor where no term of x can be taken out."""
    if x.op is Op.MOD and x.src[1].op is Op.CONST and x.src[1].arg % divisor == 0:
        return modulo(x.src[0], divisor)
    return Node(Op.MOD, dtypes.index, (x, index(divisor)))


def _is_atom_plus_number(x: Node) -> bool:
    return (
        x.op is Op.ADD and x.src[1].op is Op.CONST and x.src[0].op is not Op.ADD and x.src[0].op is not Op.MUL
    )


# -- an order that does not depend on where objects lie in memory ---------------------------------------------------

_digests: dict[Node, int] = {}


def order(node: Node) -> tuple[int, int]:
    """A sorting key: ranges by number, then everything else by content; the same in every run."""
    if node.op is Op.RANGE:
        if type(node.arg) is int:
            return 0, node.arg
        if type(node.arg) is tuple:
            return 0, node.arg[0]
    return 1, digest(node)


def digest(node: Node) -> int:
    """A number made from the node's content, the same in every run."""
    found = _digests.get(node)
    if found is not None:
        return found
    if len(_digests) > _LIMIT:
        _digests.clear()
    stack = [node]
    while stack:
        top = stack[-1]
        missing = [source for source in top.src if source not in _digests]
        if missing:
            stack.extend(missing)
            continue
        stack.pop()
        dtype = top.dtype
        _digests[top] = hash(
            (
                top.op._value_,
                dtype.rank,
                dtype.itemsize,
                dtype.lanes,
                _argument_digest(top.arg),
                *[_digests[source] for source in top.src],
            )
        )
    return _digests[node]


def _argument_digest(arg: object) -> object:
    # only numbers and tuples of them have a hash that is the same in every run
    if arg is None:
        return 0
    if isinstance(arg, int):
        return arg ^ 0x5BD1  # hash(-1) is hash(-2)
    if isinstance(arg, float):
        return 1 if arg != arg else arg
    if isinstance(arg, Op):
        return arg._value_
    if isinstance(arg, tuple):
        return tuple([_argument_digest(part) for part in arg])
    return crc32(repr(arg).encode())
