"""Functions with a derivative of their own: a value computed one way, a slope computed another.

In       a value, the arguments it was computed from, and for each argument what its gradient is
Out      a FUNCTION node: the value; gradients pass it by the rules alone, not through the steps of the value
Next     derivatives.py (rules of single ops), ops/power.py and ops/activation.py (who needs this)

The steps that compute a function are chosen for its value: selects between branches, polynomials, bits. Differentiated
step by step they would give zero times infinity where a branch was not taken, and the slope of a polynomial that fits
the value alone. So the derivative is written as in mathematics: of x ** y it is y * x ** (y - 1).
"""

from __future__ import annotations

from typing import TypeVar

from hcq.frontend.core.base import Core
from hcq.ir.elementwise.declaration import FLAT, Flat, Rule
from hcq.ir.node import Node
from hcq.ir.op import Op

T = TypeVar("T", bound=Core)


class Function:
    """A name and, for each argument, its rule: `rule(node, g) -> Node`, or FLAT.

    A rule finds the value in node.src[0] and the arguments in node.src[1:]. It may use `node`, the value, itself.
    is_tracked   values computed from it keep their history, as those of a tensor that requires a gradient do
    """

    __slots__ = ("__weakref__", "is_tracked", "name", "rules")

    def __init__(self, name: str, *rules: Rule | Flat, is_tracked: bool = False):
        self.name = name
        self.rules = rules
        self.is_tracked = is_tracked

    def __repr__(self) -> str:  # part of a structure's key, which is the same in every process
        return f"Function({self.name})"

    def of(self, value: Node, *arguments: Node) -> Node:
        """`value`, which this function has for these arguments."""
        return Node(Op.FUNCTION, value.dtype, (value, *arguments), self)


def same(node: Node, g: Node) -> Node:
    """The rule of what a value follows one to one."""
    return g


CONSTANT = Function("constant", FLAT)
ALSO = Function("also", same, FLAT)


def constant_in(x: T, values: T) -> T:
    """These values, which do not change with x: the gradient of x is zero, and not missing."""
    return values._like(CONSTANT.of(values.node, x.node)) if x.node.dtype.is_float else values


def also_of(x: T, values: T) -> T:
    """These values; gradients pass to them as ever, and to x, which they do not change with, as zeros."""
    return values._like(ALSO.of(values.node, values.node, x.node)) if x.node.dtype.is_float else values
