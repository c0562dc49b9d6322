"""Splitting: what was taken apart by quotients is counted by ranges, and nothing else changes."""

from __future__ import annotations

import pytest

from hcq.compiler.passes.lower_movement import lower_movement
from hcq.compiler.passes.split_ranges import split_ranges
from hcq.ir.dtype import dtypes
from hcq.ir.node import Node, Param, show_index
from hcq.ir.op import Op
from hcq.ir.verify import verify

F = dtypes.float32


def param(number: int, *shape: int, writable: bool = False) -> Node:
    return Node(Op.PARAM, F, (), Param(number, shape, writable))


def view(op: Op, x: Node, arg) -> Node:
    return Node(op, x.dtype, (x,), arg)


def kernel(value: Node) -> Node:
    store = Node(Op.STORE, F, (param(0, *value.shape, writable=True), value))
    return lower_movement.run(Node(Op.SINK, F, (store,)))


def split(lowered: Node) -> tuple[list[str], list[int]]:
    """(the indices of loads and stores, the sizes of the ranges by number) after splitting."""
    made = split_ranges.run(lowered)
    assert [] == verify(made, "kernel")
    nodes = made.toposort()
    sizes = sorted((n.arg, n.src[0].arg) for n in nodes if n.op is Op.RANGE)
    assert [number for number, _ in sizes] == list(range(len(sizes)))
    return [show_index(n.src[1]) for n in nodes if n.op in (Op.LOAD, Op.STORE)], [size for _, size in sizes]


HEADS = view(Op.RESHAPE, view(Op.PERMUTE, param(1, 8, 128, 64), (1, 0, 2)), (128, 512))


def test_an_output_axis_that_merges_two_becomes_two_ranges():
    indices, sizes = split(kernel(HEADS))
    assert indices == ["r1*8192 + r0*64 + r2", "r0*512 + r1*64 + r2"]
    assert sizes == [128, 8, 64]


def test_a_reduction_over_a_merged_axis_runs_over_its_parts():
    indices, sizes = split(kernel(view(Op.REDUCE_AXIS, HEADS, (Op.ADD, (1,)))))
    assert indices == ["r1*8192 + r0*64 + r2", "r0"]
    assert sizes == [128, 8, 64]


def test_three_merged_axes_become_three_ranges():
    merged = view(Op.RESHAPE, view(Op.PERMUTE, param(1, 10, 8, 16), (0, 2, 1)), (1280,))
    turned = view(Op.RESHAPE, view(Op.PERMUTE, param(1, 10, 16, 8), (1, 0, 2)), (1280,))
    assert split(kernel(merged)) == (["r0*128 + r2*16 + r1", "r0*128 + r1*8 + r2"], [10, 16, 8])
    assert split(kernel(turned))[1] == [16, 10, 8]


def test_reductions_split_at_any_divisor_and_outputs_only_where_vectors_are_filled():
    short = view(Op.RESHAPE, view(Op.PERMUTE, param(1, 4, 32), (1, 0)), (128,))
    assert split(kernel(short))[1] == [128]
    assert split(kernel(view(Op.REDUCE_AXIS, short, (Op.ADD, (0,)))))[1] == [32, 4]


@pytest.mark.parametrize("value", [param(1, 24), view(Op.PERMUTE, param(1, 4, 6), (1, 0))])
def test_a_kernel_without_quotients_is_left_alone(value: Node):
    lowered = kernel(value)
    assert split_ranges.run(lowered) is lowered


def test_a_split_kernel_splits_no_further():
    made = split_ranges.run(kernel(HEADS))
    assert split_ranges.run(made) is made
