"""Printing: expressions as people write them, graphs as numbered lists, the same in every run."""

from __future__ import annotations

import pytest

from hcq.ir.dtype import dtypes
from hcq.ir.node import Node, Param, const, index, show_index, show_node
from hcq.ir.op import Op
from hcq.ir.show import show_graph

F = dtypes.float32
A = Node(Op.RANGE, dtypes.index, (index(4),), 0)
B = Node(Op.RANGE, dtypes.index, (index(6),), (1, "ordered"))
P = Node(Op.PARAM, F, (), Param(1, (4, 6)))
OUT = Node(Op.PARAM, F, (), Param(0, (4, 6), True))


@pytest.mark.parametrize(
    ("node", "text"),
    [
        (A * 64 + B + 3, "r0*64 + r1 + 3"),
        (A * -64 - B - 3, "-r0*64 - r1 - 3"),
        ((A + 1) * 4, "(r0 + 1)*4"),
        ((A * 4 + B) // 3 % 2, "(r0*4 + r1)//3%2"),
        (A // (B * 2), "r0//(r1*2)"),
        (A * -1 + 3, "-r0 + 3"),
        ((A * -1) // 2, "(-r0)//2"),
        (A // 2 * -4 + B, "-(r0//2)*4 + r1"),
        ((A < 3) & (B < A + 1), "r0 < 3 and r1 < r0 + 1"),
        (((A < 3) | (B < 2)) & (B < 5), "(r0 < 3 or r1 < 2) and r1 < 5"),
        ((A < 3).where(A, B), "(r0 < 3 ? r0 : r1)"),
        (Node(Op.MAX, dtypes.index, (A, B)), "max(r0, r1)"),
        (Node(Op.LOAD, F, (P, A * 6 + B)), "p1[r0*6 + r1]"),
        (Node(Op.LOAD, F, (P, A, B < 3)), "p1[r0 if r1 < 3]"),
        (const(-0.5, F), "-0.5"),
    ],
)
def test_an_expression_reads_as_people_write_it(node: Node, text: str):
    assert text == show_index(node)


def test_a_kernel_is_a_numbered_list_with_indices_in_place():
    load = Node(Op.LOAD, F, (P, A * 6 + B))
    sink = Node(Op.SINK, F, (Node(Op.STORE, F, (OUT, A * 6 + B, load * 2.0)),))
    assert show_graph(sink).splitlines() == [
        "%0 float32 4x6          PARAM() p0 4x6 writable",
        "%1 index 0..3           RANGE(4) 0",
        "%2 index 0..5           RANGE(6) (1, ordered)",
        "%3 float32 4x6          PARAM() p1 4x6",
        "%4 float32              LOAD(%3, %1*6 + %2)",
        "%5 float32              MUL(%4, 2.0)",
        "%6                      STORE(%0, %1*6 + %2, %5)",
        "%7                      SINK(%6)",
    ]


def test_a_tensor_graph_shows_shapes_and_arguments():
    total = Node(Op.REDUCE_AXIS, F, (Node(Op.PAD, F, (P,), ((0, 0), (1, 0))),), (Op.ADD, (1,)))
    assert show_graph(total).splitlines() == [
        "%0 float32 4x6          PARAM() p1 4x6",
        "%1 float32 4x7          PAD(%0) ((0, 0), (1, 0))",
        "%2 float32 4x1          REDUCE_AXIS(%1) (ADD, (1,))",
    ]


def test_a_node_is_one_short_line():
    deep = P
    for _ in range(5_000):
        deep = deep + P
    assert show_node(deep) == "ADD(ADD, PARAM) float32"
    assert repr(A * 2 + 1) == "r0*2 + 1"
    assert repr(A + A * B) == "r0 + r0*r1"
    assert repr(P) == "PARAM() float32 p1 4x6"
    assert "\n" not in show_node(Node(Op.SINK, F, (P,) * 60))
    assert len(show_node(Node(Op.SINK, F, (P,) * 60))) <= 100
