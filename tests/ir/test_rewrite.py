"""Rewriting: rules match what they look like, passes run to a fixpoint, and say what they did."""

from __future__ import annotations

import pytest

from hcq.ir.dtype import dtypes
from hcq.ir.node import Node, Param, const
from hcq.ir.op import Op
from hcq.ir.pattern import any_constant, any_node, any_of, op
from hcq.ir.rewrite import Notes, Pass, Rule

F = dtypes.float32
A = Node(Op.PARAM, F, (), Param(0, (4,)))
B = Node(Op.PARAM, F, (), Param(1, (4,)))
x, y, c = any_node("x"), any_node("y"), any_constant("c")


def test_a_rule_is_applied_everywhere_until_nothing_matches():
    drop = Pass("drop", "a test", [Rule("mul-one", x * 1, x)])
    assert drop.run((A * 1.0 * 1.0 + B * 1.0) * 1.0) is A + B
    assert drop.counts["mul-one"] == 3


def test_what_a_rule_makes_is_rewritten_too():
    both = Pass("both", "a test", [Rule("double", x + x, x * 2), Rule("halve", x * 2, -x)])
    assert both.run(A + A) is Node(Op.NEG, F, (A,))


def test_one_variable_twice_means_one_node():
    same = Pass("same", "a test", [Rule("max-self", op(Op.MAX, x, x), x)])
    assert same.run(Node(Op.MAX, F, (A, A))) is A
    assert same.run(Node(Op.MAX, F, (A, B))).op is Op.MAX


def test_a_number_matches_in_any_dtype_but_zeros_keep_their_sign_and_truth_is_bool():
    drop = Pass("drop", "a test", [Rule("add-zero", x + 0, x), Rule("pick", op(Op.WHERE, y, True, x), y)])
    one = const(1, dtypes.int32)
    integer = Node(Op.PARAM, dtypes.int32, (), Param(2, (4,)))
    assert drop.run(integer + 0) is integer
    assert drop.run(A + 0.0) is A
    assert drop.run(A + -0.0) is A + -0.0
    chosen = Node(Op.WHERE, dtypes.int32, (A < B, one, one))
    assert drop.run(chosen) is chosen


def test_a_guard_and_a_function_see_the_captures_by_name():
    small = Pass("small", "a test", [Rule("cut", x * c, lambda c, x: x + c.arg, when=lambda c: c.arg < 5.0)])
    assert small.run(A * 3.0) is A + 3.0
    assert small.run(A * 7.0) is A * 7.0


def test_a_function_may_decline():
    declining = Pass(
        "declining", "a test", [Rule("never", any_of((Op.ADD, Op.MUL), name="node"), lambda node: None)]
    )
    assert declining.run(A + B) is A + B
    assert not declining.counts


def test_the_trace_names_pass_and_rule_and_shows_before_and_after():
    lines: list[str] = []
    Pass("fold-identities", "a test", [Rule("mul-one", x * 1, x)]).run(A * 1.0, notes=Notes(lines.append))
    assert lines == ["fold-identities/mul-one: mul(param, 1.0) -> param"]


def test_a_run_is_counted_and_timed_and_the_pass_adds_the_runs_up():
    drop = Pass("drop", "a test", [Rule("mul-one", x * 1, x)])
    first, second = Notes(), Notes()
    drop.run(A * 1.0, notes=first)
    drop.run(A * 1.0 + B * 1.0, notes=second)
    assert (first.counts["mul-one"], second.counts["mul-one"], drop.counts["mul-one"]) == (1, 2, 3)
    assert drop.seconds == first.seconds + second.seconds > 0


def is_small(c: Node) -> bool:
    return bool(c.arg < 5)


def halved(node: Node) -> Node:
    return node


def test_a_pass_prints_its_reason_and_its_rules():
    rules = [
        Rule("cut", (x + c) * c, x, when=is_small),
        Rule("never", any_of((Op.ADD, Op.MUL), x, y, name="node"), halved),
        Rule("choose", op(Op.WHERE, x, y, -0.0), -y),
    ]
    assert str(Pass("drop", "nobody asks for it", rules)).splitlines() == [
        "drop: nobody asks for it",
        "  cut     (x + c)*c -> x when is_small(c)",
        "  never   node(x, y) -> test_rewrite.halved(node)",
        "  choose  (x ? y : -0.0) -> neg(y)",
    ]


def test_a_rule_begins_with_an_operation():
    with pytest.raises(ValueError, match="not a bare variable"):
        Rule("anything", x, x)


def test_rules_that_undo_each_other_are_an_error():
    circle = Pass("circle", "a test", [Rule("there", x + y, x * y), Rule("back", x * y, x + y)])
    with pytest.raises(RuntimeError, match="undo each other"):
        circle.run(A + B)


def test_a_rule_whose_result_holds_what_it_replaces_is_an_error():
    grow = Pass("grow", "a test", [Rule("grow", -x, op(Op.NEG, op(Op.NEG, -x)))])
    with pytest.raises(RuntimeError, match="holds it"):
        grow.run(Node(Op.NEG, F, (A + B,)))


def test_two_rules_of_one_name_are_refused():
    with pytest.raises(ValueError, match="one name"):
        Pass("twice", "a test", [Rule("same", x + 0, x), Rule("same", x * 1, x)])


def test_deep_graphs_are_rewritten_and_shared_nodes_once():
    drop = Pass("drop", "a test", [Rule("mul-one", x * 1, x)])
    deep = A
    for _ in range(5_000):
        deep = deep * 1.0 + deep
    drop.run(deep)
    assert drop.counts["mul-one"] == 5_000
