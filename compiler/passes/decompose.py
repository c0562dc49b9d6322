"""Decompose: every operation that a target does not have, said in operations that it has.

In       a kernel (kernel stage) of formats that the target computes in, the ops that the target has
Out      a kernel that computes the same with those ops alone
Next     transcendental.py, trigonometry.py (EXP to COS), weights.py (EXP of attention), ir/elementwise/ (`made_of`: the
         others), narrow_floats.py (the pass before this one: formats), render/ (who spells what is left)
"""

from __future__ import annotations

from hcq.compiler.passes import weights
from hcq.compiler.passes.transcendental import exp, exp2, log, log2
from hcq.compiler.passes.trigonometry import cos, cos_single, sin, sin_single
from hcq.compiler.target import Target
from hcq.ir.dtype import dtypes
from hcq.ir.elementwise.declaration import INTEGERS, Elementwise
from hcq.ir.elementwise.table import ELEMENTWISE
from hcq.ir.node import Node, toposort
from hcq.ir.op import ARITHMETIC, Op
from hcq.ir.pattern import any_node, op
from hcq.ir.rewrite import Notes, Pass, Rule, rewrite, rules_by_op


def _is_data(a: Node) -> bool:
    """Index arithmetic is every target's own affair."""
    return a.dtype is not dtypes.index


x, a, b = any_node("x"), any_node("a"), any_node("b")


def _declared(one: Elementwise) -> Rule:
    """An operation as its declaration makes it of others."""
    assert one.made_of is not None
    before = op(one.op, x) if len(one.slopes) == 1 else op(one.op, a, b)
    return Rule(one.op.name.lower(), before, one.made_of, when=_is_data if one.takes is INTEGERS else None)


RULES = [
    Rule("exp", op(Op.EXP, x), exp),
    Rule("exp2", op(Op.EXP2, x), exp2),
    Rule("log", op(Op.LOG, x), log),
    Rule("log2", op(Op.LOG2, x), log2),
    Rule("sin", op(Op.SIN, x), sin),
    Rule("cos", op(Op.COS, x), cos),
    *[_declared(one) for one in ELEMENTWISE.values() if one.made_of is not None],
]
SINGLE = {Op.SIN: [Rule("sin", op(Op.SIN, x), sin_single)], Op.COS: [Rule("cos", op(Op.COS, x), cos_single)]}
_BY_OP = rules_by_op(RULES)


def _decompose(sink: Node, target: Target, notes: Notes) -> Node:
    """Apply the rules of the ops that the target lacks. Raises ValueError for one that others cannot replace."""
    missing, order = ARITHMETIC - target.native, toposort((sink,))
    rules = {which: rules for which, rules in _BY_OP.items() if which in missing}
    if not target.has_float64:
        rules |= {which: rule for which, rule in SINGLE.items() if which in missing}
    if target.name in weights.FAST_EXP2 and weights.is_narrow_attention(order):
        sink = weights.with_fast_weights(sink, notes)
        rules |= {Op.EXP2: []}
        missing -= {Op.EXP2}
    made = rewrite(sink, rules, notes)
    for node in toposort((made,)):
        if node.op in missing and _is_data(node):
            raise ValueError(
                f"[decompose] the target has no {node.op.name}, and no other ops make one. Declare it native."
            )
    return made


decompose = Pass(
    "decompose",
    "operations that the target lacks become ones that it has",
    [*RULES, *weights.STEPS],
    _decompose,
)
