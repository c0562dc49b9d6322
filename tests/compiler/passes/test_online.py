"""Online sums: what is weighted by exp(x - max(x)) shares the maximum's loop, and comes to the same."""

from __future__ import annotations

import pytest

from hcq.compiler.passes.lower_movement import lower_movement
from hcq.compiler.passes.online import online
from hcq.ir.dtype import dtypes
from hcq.ir.node import Node, toposort
from hcq.ir.op import Op
from hcq.ir.verify import VerifyError, verify
from tests.compiler.building import expand, kernel, out, param, reduce
from tests.compiler.loops.test_loop_nest import attention, weights


def ops(sink: Node) -> list[Op]:
    return [node.op for node in toposort((sink,))]


def test_the_sums_of_attention_follow_the_maximum() -> None:
    made = online.run(lower_movement.run(attention()))
    verify(made, "kernel")
    rescaled = [n for n in toposort((made,)) if n.op is Op.REDUCE and n.src[0].op is Op.RESCALE]
    tops = [n for n in toposort((made,)) if n.op is Op.REDUCE and n.arg is Op.MAX]
    assert len(rescaled) == 2 and len(tops) == 1
    assert {node.src[1:] for node in rescaled} == {tops[0].src[1:]}
    assert {n.src[0] for n in toposort((made,)) if n.op is Op.FORMER} == set(tops)


def test_a_row_of_softmax_stays_as_it_is() -> None:
    x = param(1, (7, 30))
    top = expand(reduce(x, (1,), Op.MAX), 7, 30)
    e = Node(Op.EXP, x.dtype, (x + Node(Op.NEG, x.dtype, (top,)),))
    sink = lower_movement.run(
        kernel((out(0, (7, 30)), Node(Op.DIV, x.dtype, (e, expand(reduce(e, (1,)), 7, 30)))))
    )
    assert online.run(sink) is sink


def test_a_sum_that_needs_the_maximum_elsewhere_waits_for_it() -> None:
    n, m, d = 4, 9, 3
    made, _ = weights(param(1, (n, d)), param(2, (m, d)), n, m, d)
    exponent = made.src[0]
    twice = Node(
        Op.MUL, made.dtype, (made, exponent)
    )  # exp(s - top) * (s - top): no factor that the maximum changes
    sink = lower_movement.run(kernel((out(0, (n, 1, 1)), reduce(twice, (1,)))))
    assert Op.RESCALE not in ops(online.run(sink))


def test_a_maximum_over_the_other_axis_has_a_range_of_its_own() -> None:
    """Scores that are square: a sum over rows of weights whose maximum is taken over columns."""
    n, d = 6, 3
    made, _ = weights(param(1, (n, d)), param(2, (n, d)), n, n, d)
    sink = lower_movement.run(kernel((out(0, (1, n, 1)), reduce(made, (0,)))))
    top = next(node for node in toposort((sink,)) if node.op is Op.REDUCE and node.arg is Op.MAX)
    total = next(
        n for n in toposort((sink,)) if n.op is Op.REDUCE and n.arg is Op.ADD and top in toposort(n.src[:1])
    )
    assert set(top.src[1:]).isdisjoint(total.src[1:])
    assert Op.RESCALE not in ops(online.run(sink))


@pytest.mark.parametrize("arg", [Op.MAX, Op.MUL])
def test_only_sums_are_rescaled(arg: Op) -> None:
    one = Node(Op.CONST, dtypes.float32, (), 1.0)
    place = Node(Op.RANGE, dtypes.index, (Node(Op.CONST, dtypes.index, (), 4),), 0)
    node = Node(Op.REDUCE, dtypes.float32, (Node(Op.RESCALE, dtypes.float32, (one, one)), place), arg)
    with pytest.raises(VerifyError, match="rescales"):
        verify(
            Node(Op.SINK, dtypes.float32, (Node(Op.STORE, dtypes.float32, (out(0, (1,)), place, node)),)),
            "kernel",
        )


def test_a_maximum_of_what_a_sum_over_the_same_axis_is_in_is_found_first() -> None:
    """Softmax of shares of a row: the row's sum is the same at every step, so no step has a reduction of its own."""
    x = param(1, (7, 30))
    share = Node(Op.DIV, x.dtype, (x, expand(reduce(x, (1,)), 7, 30)))
    top = expand(reduce(share, (1,), Op.MAX), 7, 30)
    e = Node(Op.EXP, x.dtype, (share + Node(Op.NEG, x.dtype, (top,)),))
    sink = lower_movement.run(kernel((out(0, (7, 1)), reduce(e, (1,)))))
    assert Op.RESCALE not in ops(online.run(sink))
