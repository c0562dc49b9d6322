"""Quotients and remainders of indices at a point, of whose lanes as much as possible is known while compiling.

In       what is divided, as a Spot; a number
Out      the quotient or remainder as a Spot; None where its lanes have to be computed one by one
Next     lower_expr.py (who asks), places.py (Spot)

Where the counted part divides, each lane's is a number. Where lanes are neighbours between two multiples of a divisor,
whatever the counters are, they share a quotient, and their remainders are neighbours as well.
"""

from __future__ import annotations

from hcq.compiler.linear.emitter import Emitter
from hcq.compiler.linear.places import Spot
from hcq.compiler.linear.program import NOT_NEGATIVE
from hcq.ir.dtype import dtypes
from hcq.ir.op import Op


def known_part(op: Op, inner: Spot, divisor: int) -> Spot | None:
    """By a number that the counted part is a multiple of: what is left is known lane by lane."""
    if inner.vectors:
        return None
    offset = inner.offset
    for value, coefficient in inner.terms:
        if value.op is Op.CONST:
            offset += int(value.arg) * coefficient
        elif coefficient % divisor:
            return None
    places = [offset + step for step in inner.steps]
    if op is Op.MOD:
        spot = Spot([], 0, tuple([place % divisor for place in places]))
    else:
        terms = [(v, c // divisor) for v, c in inner.terms if v.op is not Op.CONST]
        spot = Spot(terms, 0, tuple([place // divisor for place in places]))
    if len(spot.steps) == 1:
        spot.offset, spot.steps = spot.steps[0], (0,)
    return spot


def shared_part(emitter: Emitter, op: Op, inner: Spot, divisor: int, not_negative: bool) -> Spot | None:
    """Of lanes none of which a multiple of the divisor parts from the others: that of the first, for all."""
    lanes = inner.lanes
    if inner.vectors or not inner.is_run or divisor % lanes or inner.offset % lanes:
        return None
    if any(coefficient % lanes for value, coefficient in inner.terms if value.number != 0):
        return None
    first = emitter.total(inner.terms, inner.offset)
    if first is None:
        return None
    arg = NOT_NEGATIVE if not_negative else None
    made = emitter.emit(op, dtypes.index, (first, emitter.number(divisor)), arg)
    return Spot([(made, 1)], 0, inner.steps if op is Op.MOD else (0,))
