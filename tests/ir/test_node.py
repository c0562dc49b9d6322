"""Nodes: one object per content, never changed, forgotten when nobody holds them, walked without recursion."""

from __future__ import annotations

import gc
import math

import pytest

from hcq.ir import node as nodes
from hcq.ir.dtype import dtypes
from hcq.ir.node import Node, Param, const, index, substitute, toposort
from hcq.ir.op import Op

F = dtypes.float32


def leaf(number: int) -> Node:
    return Node(Op.PARAM, F, (), Param(number, (4,)))


A, B = leaf(0), leaf(1)


def test_equal_content_is_one_object():
    assert A + B is Node(Op.ADD, F, (leaf(0), leaf(1)))
    assert A + B is not B + A
    assert A * 2 is A * 2.0


def test_zeros_of_both_signs_are_two_constants_and_nan_is_one():
    assert const(0.0, F) is not const(-0.0, F)
    assert math.copysign(1.0, const(-0.0, F).arg) == -1.0
    assert const(math.nan, F) is const(-math.nan, F)
    assert const(0, dtypes.int32) is const(-0, dtypes.int32)


def test_a_constant_is_a_number_of_its_dtype():
    assert const(3, F).arg == 3.0
    assert type(const(3, F).arg) is float
    assert const(2, dtypes.bool).arg is True
    assert const(-1, dtypes.uint16).arg == 65535


def test_a_node_never_changes():
    with pytest.raises(AttributeError, match="immutable"):
        A.arg = 3


def test_a_node_nobody_holds_is_forgotten():
    gc.collect()
    before = nodes.sweep()
    made = [const(number + 0.123, F) * A for number in range(1000, 1100)]
    assert nodes.sweep() >= before + 200
    del made
    gc.collect()
    assert nodes.sweep() <= before


def test_nodes_that_nobody_holds_do_not_add_up():
    limit = 2 * nodes.sweep() + 3 * nodes._FEW
    for number in range(20_000):
        const(float(number), F)
        assert len(nodes._live) <= limit


def test_a_node_may_have_the_place_in_memory_of_a_source_that_is_gone():
    for number in range(1000):
        source = const(float(number), F)
        assert (source * A).src[0].arg == number


def test_sources_come_before_users_each_once():
    shared = A + B
    root = shared * shared
    assert root.toposort() == [A, B, shared, root]
    assert toposort((shared, root)) == [A, B, shared, root]


def test_graphs_deeper_than_the_python_stack_are_walked_and_replaced():
    deep = A
    for _ in range(20_000):
        deep = deep + B
    assert 20_002 == len(deep.toposort())
    (swapped,) = substitute((deep,), {A: B, B: A})
    assert swapped.toposort()[:2] == [B, A]


def test_what_nothing_touches_is_shared():
    kept = A + 1.0
    assert (kept * B).substitute({B: A}) is kept * A
    assert kept.substitute({B: A}) is kept


def test_operators_write_what_they_say():
    i = Node(Op.RANGE, dtypes.index, (index(4),), 0)
    assert (i - 1) is Node(Op.ADD, dtypes.index, (i, index(-1)))
    assert (3 - i) is (i * -1) + 3
    assert (i > 2) is Node(Op.CMPLT, dtypes.bool, (index(2), i))
    assert (i >= 2) is Node(Op.CMPLE, dtypes.bool, (index(2), i))
    assert i.eq(2).op is Op.CMPEQ
    assert (i < 2).where(i, 0).src[2] is index(0)
    assert A.cast(F) is A
    assert A.cast(dtypes.int32).dtype is dtypes.int32


def test_replace_changes_only_what_is_named():
    assert (A + B).replace(op=Op.MUL) is A * B
    assert (A + B).replace(src=(B, A)) is B + A
