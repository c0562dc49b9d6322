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

    def of(self, node: Node) -> Form:
        """The form of an index."""
        form = self._forms.get(node)
        if form is None:
            terms: dict[Node, int] = {}
            constant = collect(((node, 1),), terms)
            form = self._forms[node] = Form(tuple(terms.items()), constant)
        return form
