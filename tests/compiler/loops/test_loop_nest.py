"""Schedules: every transform keeps the result, says why it refuses, and is replayed from its text."""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest

from hcq.compiler.loops.heuristic import choose
from hcq.compiler.loops.loop_nest import LoopNest
from hcq.compiler.loops.nest import ScheduleError
from hcq.compiler.pipeline import lower
from hcq.compiler.target import cpu_target
from hcq.ir.dtype import dtypes
from hcq.ir.node import Node, const
from hcq.ir.op import Op
from tests.compiler.building import (
    check,
    conv,
    expand,
    flip,
    kernel,
    matmul,
    out,
    pad,
    param,
    permute,
    reduce,
    reshape,
    shrink,
    window,
)

if TYPE_CHECKING:
    from hcq.device import Device


def product() -> Node:
    return kernel((out(0, (33, 1, 70)), matmul(param(1, (33, 47)), param(2, (47, 70)))))


def turned_product() -> Node:
    b = permute(param(2, (70, 47)), 1, 0)
    return kernel((out(0, (33, 1, 70)), matmul(param(1, (33, 47)), b)))


def padded_convolution() -> Node:
    value = conv(param(1, (2, 3, 9, 11)), param(2, (20, 3, 3, 3)), padding=1)
    return kernel((out(0, value.shape), value))


def turned_convolution() -> Node:
    value = permute(conv(param(1, (2, 3, 9, 11)), param(2, (20, 3, 3, 3)), padding=1), 0, 3, 1, 2, 4, 5, 6)
    return kernel((out(0, value.shape), value))


def strided_convolution() -> Node:
    value = conv(param(1, (2, 3, 13, 17)), param(2, (9, 3, 5, 5)), padding=2, stride=2)
    return kernel((out(0, value.shape), value))


def backwards_convolution() -> Node:
    """The gradient of a convolution: its windows run backwards."""
    g, w = param(1, (2, 20, 9, 11)), param(2, (20, 3, 3, 3))
    x = window(window(pad(g, (0, 0), (0, 0), (1, 1), (1, 1)), 2, 3), 3, 3)  # n, o, h, w, p, q
    x = permute(flip(x, 4, 5), 0, 2, 3, 1, 4, 5)
    x = expand(reshape(x, 2, 9, 11, 1, 20, 3, 3), 2, 9, 11, 3, 20, 3, 3)
    w = expand(reshape(permute(w, 1, 0, 2, 3), 1, 1, 1, 3, 20, 3, 3), 2, 9, 11, 3, 20, 3, 3)
    value = permute(reduce(x * w, (4, 5, 6)), 0, 3, 1, 2, 4, 5, 6)
    return kernel((out(0, value.shape), value))


def spread_products() -> Node:
    """The gradient of a convolution as autograd writes it: products first, their windows undone afterwards."""
    g = expand(reshape(param(1, (2, 8, 9, 11)), 2, 1, 8, 9, 11, 1, 1), 2, 3, 8, 9, 11, 3, 3)
    w = expand(
        reshape(permute(param(2, (8, 3, 3, 3)), 1, 0, 2, 3), 1, 3, 8, 1, 1, 3, 3), 2, 3, 8, 9, 11, 3, 3
    )
    x = Node(Op.UNWINDOW, dtypes.float32, (g * w,), (4, 13, 1, 1))
    x = Node(Op.UNWINDOW, dtypes.float32, (permute(x, 0, 1, 2, 3, 4, 6, 5),), (3, 11, 1, 1))
    value = reduce(
        shrink(x, (0, 2, 1), (0, 3, 1), (0, 8, 1), (1, 10, 1), (1, 12, 1), (0, 3, 1), (0, 3, 1)), (2, 5, 6)
    )
    return kernel((out(0, value.shape), value))


def pooling() -> Node:
    x = window(window(param(1, (3, 5, 8, 18)), 2, 2, 2), 3, 2, 2)
    value = reduce(x, (4, 5), Op.MAX)
    return kernel((out(0, value.shape), value))


def spreading() -> Node:
    """Every value four times: its index is a quotient of the output's."""
    x = expand(reshape(param(1, (6, 9, 11)), 6, 9, 1, 11, 1), 6, 9, 2, 11, 2)
    return kernel((out(0, (6, 18, 22)), reshape(x, 6, 18, 22) * param(2, (6, 18, 22))))


def norm_like() -> Node:
    x, y = param(1, (21, 67)), param(2, (21, 1))
    spread = x * expand(y, 21, 67)
    return kernel(
        (out(0, (21, 1)), reduce(spread * spread, (1,)) * 0.5),
        (out(3, (21, 1)), reduce(spread, (1,), Op.MAX)),
    )


def weights(q: Node, k: Node, n: int, m: int, d: int) -> tuple[Node, Node]:
    """exp(scores - their maximum) of queries (n, d) and keys (m, d), and its sum: (n, m, 1), (n, 1, 1)."""
    q, k = expand(reshape(q, n, 1, d), n, m, d), expand(reshape(k, 1, m, d), n, m, d)
    scores = reduce(Node(Op.MUL, q.dtype, (q, k)), (2,))
    top = expand(reduce(scores, (1,), Op.MAX), n, m, 1)
    made = Node(Op.EXP, q.dtype, (scores + Node(Op.NEG, q.dtype, (top,)),))
    return made, reduce(made, (1,))


def attention(n: int = 7, m: int = 21, v: int = 6) -> Node:
    d = 5
    made, total = weights(param(1, (n, d)), param(2, (m, d)), n, m, d)
    values = expand(reshape(param(3, (m, v)), 1, m, v), n, m, v)
    sums = reduce(Node(Op.MUL, made.dtype, (expand(made, n, m, v), values)), (1,))
    return kernel((out(0, (n, 1, v)), Node(Op.DIV, made.dtype, (sums, expand(total, n, 1, v)))))


def slope_of_keys(m: int = 9, n: int = 20, d: int = 6) -> Node:
    """A sum over queries of a product with two inner reductions, as on the way back through attention."""
    q, k, g = (param(i, shape) for i, shape in ((1, (n, d)), (2, (m, d)), (3, (n, d))))
    wide = [expand(reshape(x, 1, n, d), m, n, d) for x in (q, g)]
    keys = expand(reshape(k, m, 1, d), m, n, d)
    first, second = (reduce(Node(Op.MUL, k.dtype, (x, keys)), (2,)) for x in wide)
    made = Node(Op.MUL, k.dtype, (Node(Op.EXP, k.dtype, (first * 0.125,)), second))
    return kernel((out(0, (m, 1, d)), reduce(Node(Op.MUL, k.dtype, (expand(made, m, n, d), wide[0])), (1,))))


def columns() -> Node:
    return kernel((out(0, (1, 45)), reduce(pad(param(1, (30, 40)), (1, 2), (3, 2)), (0,))))


def running_rows() -> Node:
    x = param(1, (7, 150)) * 2.0
    return kernel((out(0, (7, 150)), Node(Op.SCAN_AXIS, x.dtype, (x, param(2, (7, 1))), (Op.ADD, 1))))


def running_columns() -> Node:
    x = param(1, (3, 45, 40)) * 2.0
    return kernel((out(0, (3, 45, 40)), Node(Op.SCAN_AXIS, x.dtype, (x,), (Op.ADD, 1))))


def stepped_weight() -> Node:
    """A sum for every weight, and an optimizer's step with it: momentum and weight are read and overwritten."""
    a, b = param(1, (19, 33)), param(2, (19, 70, 3))
    wide = expand(reshape(a, 19, 33, 1, 1), 19, 33, 70, 3) * expand(reshape(b, 19, 1, 70, 3), 19, 33, 70, 3)
    momentum, weight = out(3, (1, 33, 70, 3)), out(0, (1, 33, 70, 3))
    moved = momentum * 0.5 + reduce(wide, (0,))
    return kernel((momentum, moved), (weight, weight + moved * -0.125))


def counted_by(shifts: int, rows: int = 1, size: int = 300) -> Node:
    """Sums of each kind of a row's numbers, by several of their bits."""
    base, x = out(0, (rows, shifts, 8)), param(1, (rows, size), dtypes.int32)
    each = (rows, shifts, size)
    shift = expand(reshape(Node(Op.IOTA, dtypes.int32, (), shifts), 1, shifts, 1), *each)
    numbers = expand(reshape(x, rows, 1, size), *each)
    kind = Node(Op.SHR, dtypes.int32, (numbers, shift))
    kind = Node(Op.AND, dtypes.int32, (kind, const(7, dtypes.int32)))
    return kernel((base, Node(Op.SCATTER_ADD, base.dtype, (base, kind, numbers.cast(base.dtype)), 2)))


def row_by_row() -> Node:
    """Sums of columns as a CPU takes them: three rows at a time, which are added to others wherever these are."""
    base, where = out(0, (5, 37)), param(1, (11, 37), dtypes.int32)
    few = reduce(param(2, (11, 3, 37)) * expand(reshape(param(3, (11, 3)), 11, 3, 1), 11, 3, 37), (1,))
    added = Node(Op.SCATTER_ADD, base.dtype, (base, where, reshape(few, 11, 37)), 0)
    return kernel((base, added))


KERNELS = [
    row_by_row,
    stepped_weight,
    running_rows,
    running_columns,
    product,
    turned_product,
    padded_convolution,
    turned_convolution,
    backwards_convolution,
    spread_products,
    pooling,
    spreading,
    strided_convolution,
    norm_like,
    columns,
    attention,
    slope_of_keys,
]


def nest_of(sink: Node) -> LoopNest:
    return LoopNest(lower(sink, cpu_target()))


def random_schedule(
    nest: LoopNest, rng: random.Random, begin: Callable[[LoopNest], object] = lambda nest: None
) -> str:
    """Transforms that the nest accepts, tried at random; `begin` makes those that follow the merges."""
    for axes in ([a for a in nest.axes if not a.is_reduce], [a for a in nest.axes if a.is_reduce]):
        for a, b in zip(axes, axes[1:], strict=False):
            if rng.random() < 0.3 and nest.can_merge(a, b):
                nest.merge(a.name, b.name)
                break
    begin(nest)
    axes = list(nest.axes)
    rng.shuffle(axes)
    has_vector = False
    copies = 1
    for axis in axes:
        if rng.random() < 0.4 and axis.loops[0].kind == "serial":
            nest.split(axis.name, rng.choice([2, 3, 4, 6, 8, 12]))
        if axis.is_ordered and not axis.is_scanned:
            continue
        inner = axis.loops[-1]
        if not has_vector and inner.kind == "serial" and rng.random() < 0.6:
            lanes = rng.choice([2, 4, 8, 16])
            if axis.loops[0] is inner or inner.size % lanes == 0:
                nest.split(inner.name, lanes)
                nest.vectorize(axis.loops[-1].name)
                has_vector = True
        last = [loop for loop in axis.loops if loop.kind == "serial"]
        if last and rng.random() < 0.5 and copies * last[-1].size <= 24:
            copies *= last[-1].size
            nest.unroll(last[-1].name)
    for axis in axes:
        outer = axis.loops[0]
        if rng.random() < 0.3 and outer.kind == "serial" and not axis.is_reduce and not axis.is_ordered:
            nest.parallel(outer.name)
    serial = [loop for loop in nest.order if loop.kind == "serial"]
    for is_reduce in (False, True):
        part = [loop.name for loop in serial if loop.axis.is_reduce is is_reduce]
        rng.shuffle(part)
        try:
            nest.reorder(*part)
        except ScheduleError:
            pass  # loops of one range out of order: the plain order stays
    for number, load in enumerate(nest.loads):
        if rng.random() < 0.5:
            at = rng.choice(["-", *[loop.name for loop in nest.order]])
            try:
                if rng.random() < 0.6 and nest.walks(load):
                    nest.box(number, at)
                else:
                    nest.stage(number, at)
            except ScheduleError:
                pass  # it differs by group
    return nest.choice


@pytest.mark.sampled(50)
@pytest.mark.parametrize("make", KERNELS, ids=lambda make: make.__name__)
@pytest.mark.parametrize(
    "seed", [*range(10), *[pytest.param(seed, marks=pytest.mark.thorough) for seed in range(10, 40)]]
)
def test_any_schedule_computes_the_same(device: Device, make: object, seed: int) -> None:
    sink = make()  # type: ignore[operator]
    text = random_schedule(nest_of(sink), random.Random(seed))
    code = check(device, sink, text)
    assert code.choice == text


@pytest.mark.parametrize("make", KERNELS, ids=lambda make: make.__name__)
def test_the_heuristics_choice_replays_from_its_text(make: object) -> None:
    sink = make()  # type: ignore[operator]
    first = choose(nest_of(sink), cpu_target())
    again = nest_of(sink).apply(first.choice)
    assert again.choice == first.choice
    assert str(again) == str(first)


@pytest.mark.parametrize(
    ("sink", "is_read_once"),
    [
        (counted_by(4), True),
        (counted_by(3, rows=5), True),
        (counted_by(5), False),  # so many counters at a time
        (counted_by(2, size=1 << 20), False),  # groups, for there is nothing else to divide
    ],
)
def test_what_an_ordered_range_walks_is_read_once_for_a_short_axis(
    device: Device, sink: Node, is_read_once: bool
) -> None:
    nest = choose(nest_of(sink), dataclasses.replace(cpu_target(), threads=2))
    assert ("unroll" in nest.choice) is is_read_once
    check(device, sink, nest.choice)


@pytest.mark.parametrize("size", [2, 3, 4])
@pytest.mark.parametrize("op", [Op.ADD, Op.MAX])
def test_a_short_reduction_of_columns_is_written_out(device: Device, op: Op, size: int) -> None:
    sink = kernel((out(0, (1, 100)), reduce(param(1, (size, 100)), (0,), op)))
    assert not any(loop.axis.is_reduce for loop in choose(nest_of(sink), cpu_target()).order)
    check(device, sink)


def test_a_split_that_does_not_divide_ends_in_a_partial_step(device: Device) -> None:
    x = param(1, (100,))
    for text in (
        "split r0 7",
        "split r0 64; split r0.1 16; vectorize r0.2; unroll r0.1",
        "split r0 7; unroll r0.1; split r0 4",
    ):
        check(device, kernel((out(0, (100,)), x + 1.0)), text)


def test_an_inner_loop_splits_only_evenly() -> None:
    nest = nest_of(product()).split("r0", 8)
    with pytest.raises(ScheduleError, match="8 steps are not a multiple of 3"):
        nest.split("r0.1", 3)


def test_reduced_ranges_are_not_groups() -> None:
    with pytest.raises(ScheduleError, match="r2 is a reduction"):
        nest_of(product()).parallel("r2")


def test_lanes_are_a_power_of_two_and_one_range_only() -> None:
    with pytest.raises(ScheduleError, match="not a power of two"):
        nest_of(product()).vectorize("r0")
    nest = nest_of(product()).split("r1", 16).vectorize("r1.1").split("r0", 4)
    with pytest.raises(ScheduleError, match=r"r1\.1 is in lanes already"):
        nest.vectorize("r0.1")


def test_lanes_inside_of_an_inner_sum_are_not_those_that_an_outer_one_walks() -> None:
    nest = nest_of(slope_of_keys()).apply("split r2 4; split r3 2; vectorize r2.1")
    with pytest.raises(ScheduleError, match=r"r2\.1 is in lanes already"):
        nest.vectorize("r3.1")
    nest.apply("split r1 2; vectorize r1.1")


def test_what_a_scan_begins_with_is_not_staged_in_its_loops() -> None:
    nest = nest_of(running_rows()).split("r1", 16)
    with pytest.raises(ScheduleError, match="a scan begins with it"):
        nest.stage(1, "r1")


def test_an_output_loop_stays_outside_reductions() -> None:
    with pytest.raises(ScheduleError, match="would run inside a reduction"):
        nest_of(product()).reorder("r2", "r0")


def test_huge_unrolls_are_refused() -> None:
    nest = nest_of(kernel((out(0, (100000,)), param(1, (100000,)) + 1.0)))
    with pytest.raises(ScheduleError, match="100000 copies of the body exceed"):
        nest.unroll("r0")


def test_ranges_that_an_index_tells_apart_do_not_merge() -> None:
    nest = nest_of(kernel((out(0, (8, 9)), permute(param(1, (9, 8)), 1, 0))))
    with pytest.raises(ScheduleError, match="tells the two ranges apart"):
        nest.merge("r0", "r1")


@pytest.mark.parametrize(
    "schedule",
    [
        "join r2 r3",
        "join r4 r5; join r5 r6",
        "join r3 r2; join r1 r2; split r2 8; vectorize r2.1",
        "join r5 r6; join r2 r3; pad r3 16; split r3 16; vectorize r3.1; parallel r3",
    ],
)
def test_ranges_that_an_index_tells_apart_can_be_counted_as_one(device: Device, schedule: str) -> None:
    assert check(device, padded_convolution(), schedule).choice == schedule


def test_an_output_and_what_is_summed_are_not_counted_as_one() -> None:
    with pytest.raises(ScheduleError, match="not two outputs"):
        nest_of(padded_convolution()).join("r3", "r4")
    with pytest.raises(ScheduleError, match="only merges come before"):
        nest_of(padded_convolution()).pad("r2", 4).join("r2", "r3")


def test_what_the_kernel_writes_is_not_packed() -> None:
    p = out(0, (64,))
    with pytest.raises(ScheduleError, match="writes what it would copy"):
        nest_of(kernel((p, p + param(1, (64,))))).stage(0)


def test_ordered_ranges_stay_serial() -> None:
    base, i, x = out(0, (20, 8)), param(1, (300, 8), dtypes.int32), param(2, (300, 8))
    nest = nest_of(kernel((base, Node(Op.SCATTER_ADD, base.dtype, (base, i, x), 0))))
    ordered = next(axis for axis in nest.axes if axis.is_ordered)
    with pytest.raises(ScheduleError, match="is ordered"):
        nest.parallel(ordered.name)
    with pytest.raises(ScheduleError, match="is ordered"):
        nest.split(ordered.name, 4).unroll(f"{ordered.name}.1")


@pytest.mark.parametrize(
    "text,complaint",
    [
        ("twist r0", "no transform 'twist'"),
        ("split r0", "it is written split LOOP FACTOR"),
        ("split r0 many", "it is written split LOOP FACTOR"),
        ("split r9 4", "no loop named 'r9'; this nest has r0, r1, r2"),
        ("stage 7 -", "the kernel has 2 loads"),
        ("box 1 -", "no sliding window, no contiguous reduction"),
    ],
)
def test_a_schedule_that_cannot_be_read_says_why(text: str, complaint: str) -> None:
    with pytest.raises(ScheduleError, match=complaint):
        nest_of(product()).apply(text)
