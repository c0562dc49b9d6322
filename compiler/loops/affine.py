"""Affine forms: an index as a constant plus whole multiples of atoms, so that strides can be read off.

In       index-dtype nodes of the kernel stage
Out      `Form`: {atom: coefficient} and a constant; an atom is a RANGE or something that is no sum (a division, a load)
Next     loop_nest.py (merging ranges), ../linear/linearize.py (addresses, vector strides)
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from hcq.ir.affine import collect
from hcq.ir.dtype import Kind
from hcq.ir.node import Node, toposort
from hcq.ir.op import Op


@dataclass(frozen=True)
class Form:
    """sum(coefficient * atom) + constant, atoms in the order in which the index names them."""

    terms: tuple[tuple[Node, int], ...]
    constant: int

    def coefficient(self, atom: Node) -> int:
        """How often an atom is in the sum; 0 where it is not."""
        for term, coefficient in self.terms:
            if term is atom:
                return coefficient
        return 0

    def atoms(self) -> Iterator[Node]:
        """What is not a range: divisions, remainders, conditions, loads."""
        return (atom for atom, _ in self.terms if atom.op is not Op.RANGE)


class Affine:
    """The forms of one kernel's indices, each computed once."""

    def __init__(self) -> None:
        self._forms: dict[Node, Form] = {}
        self._parts: dict[tuple[Node, ...], list[Form]] = {}

    def is_index(self, node: Node) -> bool:
        """Whether a node is index arithmetic."""
        return node.dtype.kind is Kind.INDEX

    def is_inner(self, user: Node, source: Node) -> bool:
        """True when `source` is only a part of the sum that `user` is, and is judged there as a whole."""
        if not self.is_index(user):
            return False
        return user.op is Op.ADD or (user.op is Op.MUL and any(s.op is Op.CONST for s in user.src))

    def is_gather(self, atom: Node) -> bool:
        """True when the atom's value comes from memory."""
        return any(node.op is Op.LOAD for node in toposort((atom,)))

    def step(self, node: Node, place: Node, count: int) -> int | None:
        """By how much an index or a condition grows from one of `count` neighbours along a range to the next.

        The neighbours begin at a multiple of their count, a power of two. None where not all steps are known to be of
        one size.
        """
        if node is place:
            return 1
        if node.op is Op.RANGE or node.op is Op.CONST:
            return 0
        if not self.is_index(node) and not node.dtype.is_bool:
            return None if place in toposort((node,)) else 0
        if self.is_index(node) and (form := self.of(node)).terms != ((node, 1),):
            steps = [(self.step(atom, place, count), times) for atom, times in form.terms]
            known = [step * times for step, times in steps if step is not None]
            return sum(known) if len(known) == len(steps) else None
        steps_of = [self.step(source, place, count) for source in node.src]
        if all(step == 0 for step in steps_of):
            return 0
        by = node.src[-1]
        if node.op not in (Op.FLOORDIV, Op.MOD, Op.CMPLT) or by.op is not Op.CONST or steps_of[0] != 1:
            return None
        form = self.of(node.src[0])
        numbers = [int(by.arg), form.constant, *[times for atom, times in form.terms if atom is not place]]
        if any(number % count for number in numbers) or form.coefficient(place) != 1:
            return None  # a multiple of the divisor, or the end, may lie among them
        return 1 if node.op is Op.MOD else 0

    def stride(self, node: Node, place: Node) -> int:
        """How far apart neighbours along a range are, whichever is the nearest; 0 where the index does not see it."""
        form = self.of(node)
        steps = [abs(times) for atom, times in form.terms if atom is place or place in toposort((atom,))]
        return min(steps, default=0)

    def of(self, node: Node) -> Form:
        """The form of an index."""
        form = self._forms.get(node)
        if form is None:
            terms: dict[Node, int] = {}
            constant = collect(((node, 1),), terms)
            form = self._forms[node] = Form(tuple(terms.items()), constant)
        return form

    def parts(self, roots: tuple[Node, ...]) -> list[Form]:
        """The forms of all sums in an address and its condition, each as large as it goes: of the whole, of what is
        divided or compared."""
        found = self._parts.get(roots)
        if found is None:
            sums: dict[Node, None] = {}
            for node in toposort(roots):
                for source in (node, *node.src) if node in roots else node.src:
                    is_part = source is not node and self.is_inner(node, source)
                    if self.is_index(source) and source.op is not Op.CONST and not is_part:
                        sums[source] = None
            found = self._parts[roots] = [self.of(source) for source in sums]
        return found
