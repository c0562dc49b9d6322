"""The schedule computes what the graph means: kernels run one by one by the interpreter, against the graph itself."""

from __future__ import annotations

import random
from math import prod

import numpy as np
import pytest

from hcq.frontend.core.storage import Storage
from hcq.frontend.core.structure import structure_of
from hcq.frontend.grad.gradient import grad
from hcq.frontend.schedule.schedule import Schedule, schedule
from hcq.frontend.tensor import Tensor
from hcq.ir.dtype import dtypes
from hcq.ir.node import Node, const
from hcq.ir.op import Op
from tests.interpreter.evaluate import evaluate, evaluate_kernel

F32 = dtypes.float32


def memory(*shape: int, dtype=F32) -> Storage:
    return Storage("CPU", dtype, shape)


def node(op: Op, *src: Node, arg=None) -> Node:
    return Node(op, src[0].dtype, src, arg)


def scalar(value: float) -> Node:
    return const(value, F32)


def total(x: Node, *axes: int, op: Op = Op.ADD) -> Node:
    return node(Op.REDUCE_AXIS, x, arg=(op, axes))


def expand(x: Node, *shape: int) -> Node:
    return node(Op.EXPAND, x, arg=shape)


def assign(target: Node, value: Node) -> Node:
    return Node(Op.ASSIGN, target.dtype, (target, value))


def run(roots: list[Node], values: dict[Storage, np.ndarray]) -> tuple[Schedule, list[np.ndarray]]:
    """Schedule the roots and interpret the kernels over arrays."""
    made = schedule(roots, structure_of(roots).storages, threads=2)
    memory = []
    for number, value in enumerate(made.values):
        fresh = np.full(value.shape, np.nan, np.float32) if value.kind != "input" else None
        memory.append(values[made.inputs[number]].copy() if fresh is None else fresh)
    for kernel in made.kernels:
        evaluate_kernel(kernel.sink, [memory[v] for v in kernel.arguments])
    return made, [memory[v] for v in made.results]


def kernels(*roots: Node, threads: int = 2) -> int:
    return len(schedule(list(roots), structure_of(roots).storages, threads=threads).kernels)


def data(*storages: Storage) -> dict[Storage, np.ndarray]:
    rng = np.random.default_rng(1)
    return {s: rng.standard_normal(s.shape).astype(np.float32) for s in storages}


# -- what fuses -------------------------------------------------------------------------------------------------------


def test_elementwise_work_before_and_after_a_reduction_joins_it():
    x = memory(8, 32).node()
    squared = node(Op.MUL, x, x)
    mean = node(Op.MUL, total(squared, 1), scalar(1 / 32))
    assert kernels(node(Op.SQRT, mean)) == 1


def test_a_matrix_product_with_bias_and_activation_is_one_kernel():
    a = expand(node(Op.RESHAPE, memory(4, 8).node(), arg=(4, 8, 1)), 4, 8, 16)
    b = expand(node(Op.RESHAPE, memory(8, 16).node(), arg=(1, 8, 16)), 4, 8, 16)
    product = node(Op.RESHAPE, total(node(Op.MUL, a, b), 1), arg=(4, 16))
    bias = expand(node(Op.RESHAPE, memory(16).node(), arg=(1, 16)), 4, 16)
    assert kernels(node(Op.MAX, node(Op.ADD, product, bias), scalar(0))) == 1


def softmax(x: Node) -> Node:
    rows, length = x.shape
    top = expand(total(x, 1, op=Op.MAX), rows, length)
    e = node(Op.EXP, node(Op.ADD, x, node(Op.NEG, top)))
    return node(Op.DIV, e, expand(total(e, 1), rows, length))


def test_softmax_is_one_kernel():
    x = memory(32, 24)
    made, (found,) = run([softmax(x.node())], data(x))
    e = np.exp(data(x)[x] - data(x)[x].max(1, keepdims=True))
    assert len(made.kernels) == 1
    np.testing.assert_allclose(found, e / e.sum(1, keepdims=True), rtol=1e-5)


def test_softmax_of_a_matrix_product_is_the_product_and_one_kernel():
    a = expand(node(Op.RESHAPE, memory(32, 8).node(), arg=(32, 8, 1)), 32, 8, 16)
    b = expand(node(Op.RESHAPE, memory(8, 16).node(), arg=(1, 8, 16)), 32, 8, 16)
    assert kernels(softmax(node(Op.RESHAPE, total(node(Op.MUL, a, b), 1), arg=(32, 16)))) == 2


def test_rows_too_long_for_a_cache_or_too_few_are_not_walked_again():
    assert kernels(softmax(memory(1 << 6, 1 << 18).node())) == 3
    assert kernels(softmax(memory(2, 1 << 16).node())) == 3


def test_statistics_of_columns_are_values_in_memory():
    x = memory(64, 32).node()
    mean = node(Op.MUL, total(x, 0), scalar(1 / 64))
    assert kernels(node(Op.ADD, x, node(Op.NEG, expand(mean, 64, 32)))) == 2


def test_a_sum_of_a_sum_is_one_reduction():
    x = memory(4, 5, 6).node()
    assert kernels(total(total(x, 2), 1)) == 1


def test_a_maximum_of_a_sum_is_two_kernels():
    x = memory(4, 5, 6).node()
    assert kernels(total(total(x, 2), 1, op=Op.MAX)) == 2


def test_two_users_of_a_reduction_share_its_value():
    x = memory(8, 32).node()
    s = total(x, 1)
    first, second = node(Op.ADD, s, scalar(1)), node(Op.MUL, s, scalar(2))
    made, (one, two) = run([first, second], data(x.arg))
    assert len(made.kernels) == 1  # one pass with two stores
    expected = data(x.arg)[x.arg].sum(1, keepdims=True)
    np.testing.assert_allclose(one, expected + 1, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(two, expected * 2, rtol=1e-5)


def test_an_optimizer_step_is_one_pass_over_memory():
    p, g, m, v = (memory(64).node() for _ in range(4))
    new_m = assign(m, node(Op.ADD, node(Op.MUL, m, scalar(0.9)), g))
    new_v = assign(v, node(Op.ADD, node(Op.MUL, v, scalar(0.99)), node(Op.MUL, g, g)))
    step = node(Op.DIV, new_m, node(Op.SQRT, new_v))
    assert kernels(assign(p, node(Op.ADD, p, step)), new_m, new_v) == 1


def test_what_an_expansion_would_compute_many_times_is_computed_once():
    x = memory(1, 1024).node()
    costly = node(Op.EXP, node(Op.SIN, x))
    assert kernels(node(Op.ADD, expand(costly, 1024, 1024), memory(1024, 1024).node())) == 2
    assert kernels(node(Op.ADD, expand(x, 1024, 1024), memory(1024, 1024).node())) == 1


def test_places_of_a_gather_of_rows_are_computed_where_they_are_used():
    table, places = (
        Tensor.zeros(100, 64).contiguous().realize(),
        Tensor([5, -1] * 4096, dtype=dtypes.int32).realize(),
    )
    assert len(table[places].schedule()) == 1


def test_a_large_reduction_to_one_number_is_done_in_two_steps():
    x = memory(1 << 20).node()
    assert kernels(total(x, 0)) == 2
    assert kernels(total(memory(1 << 10).node(), 0)) == 1


def test_a_long_product_of_few_tiles_is_done_in_two_steps_where_cores_are_many():
    def product(m: int, k: int, n: int) -> Node:
        a = expand(node(Op.RESHAPE, memory(m, k).node(), arg=(m, k, 1)), m, k, n)
        return total(
            node(Op.MUL, a, expand(node(Op.RESHAPE, memory(k, n).node(), arg=(1, k, n)), m, k, n)), 1
        )

    many = 1 << 10
    assert kernels(product(100, 60000, 10), threads=many) == 2
    assert kernels(product(100, 60000, 10)) == 1
    assert kernels(product(1024, 8192, 1024), threads=many) == 1  # of many tiles
    assert kernels(product(100, 1024, 10), threads=many) == 1  # short
    rows = node(Op.MUL, memory(1024, 8192).node(), memory(1024, 8192).node())
    assert kernels(total(rows, 1), threads=many) == 1  # no product: each sum has its own elements


def test_views_are_free():
    x = memory(6, 4).node()
    view = node(Op.FLIP, node(Op.PERMUTE, node(Op.RESHAPE, x, arg=(4, 6)), arg=(1, 0)), arg=(0,))
    assert kernels(node(Op.ADD, view, view)) == 1


# -- writes in place --------------------------------------------------------------------------------------------------


def test_a_value_made_before_an_assignment_sees_what_was_there_before():
    w = memory(16).node()
    before = total(node(Op.MUL, w, w), 0)
    after = assign(w, node(Op.ADD, w, scalar(1)))
    values = data(w.arg)
    _, (loss, new) = run([before, after], values)
    np.testing.assert_allclose(loss, (values[w.arg] ** 2).sum(keepdims=True), rtol=1e-5)
    np.testing.assert_allclose(new, values[w.arg] + 1, rtol=1e-6)


def test_an_assignment_that_reads_other_elements_does_not_read_its_own_writes():
    w = memory(17).node()
    values = data(w.arg)
    _, (new,) = run([assign(w, node(Op.FLIP, w, arg=(0,)))], values)
    np.testing.assert_array_equal(new, values[w.arg][::-1])


def test_old_and_new_contents_can_meet_in_one_expression():
    w = memory(9).node()
    new = assign(w, node(Op.MUL, w, scalar(3)))
    values = data(w.arg)
    _, (mixed,) = run([node(Op.ADD, new, node(Op.FLIP, w, arg=(0,)))], values)
    np.testing.assert_allclose(mixed, values[w.arg] * 3 + values[w.arg][::-1], rtol=1e-6)


def test_assignments_to_one_buffer_happen_in_order():
    w, a = memory(5).node(), memory(5).node()
    first = assign(w, node(Op.ADD, w, a))
    second = assign(first, node(Op.MUL, first, scalar(2)))
    values = data(w.arg, a.arg)
    _, (new,) = run([second], values)
    np.testing.assert_allclose(new, (values[w.arg] + values[a.arg]) * 2, rtol=1e-6)


def test_a_part_of_a_buffer_is_assigned_and_the_rest_stays():
    w, a = memory(4, 6).node(), memory(4, 2).node()
    part = node(Op.SHRINK, w, arg=((0, 4, 1), (1, 3, 1)))
    values = data(w.arg, a.arg)
    _, (new,) = run([assign(part, a)], values)
    expected = values[w.arg].copy()
    expected[:, 1:3] = values[a.arg]
    np.testing.assert_array_equal(new, expected)


def test_a_scatter_leaves_its_base_alone():
    base, added = memory(6).node(), memory(4).node()
    index = Node(Op.CAST, dtypes.int64, (node(Op.MUL, Node(Op.IOTA, F32, (), 4), scalar(1)),))
    scattered = Node(Op.SCATTER_ADD, F32, (base, index, added), 0)
    values = data(base.arg, added.arg)
    _, (new, doubled) = run([scattered, node(Op.MUL, base, scalar(2))], values)
    expected = values[base.arg].copy()
    expected[:4] += values[added.arg]
    np.testing.assert_allclose(new, expected, rtol=1e-6)
    np.testing.assert_allclose(doubled, values[base.arg] * 2)


@pytest.mark.parametrize(("length", "count"), [(4, 2), (5, 3)])
def test_a_sum_of_a_few_elements_is_taken_where_it_is_scattered(length: int, count: int):
    """Beside the copy of the base; a longer sum is a kernel of its own."""
    base, added = memory(6).node(), memory(8, length).node()
    index = Node(Op.CAST, dtypes.int64, (node(Op.MUL, Node(Op.IOTA, F32, (), 8), scalar(0.5)),))
    sums = node(Op.RESHAPE, total(added, 1), arg=(8,))
    scattered = Node(Op.SCATTER_ADD, F32, (base, index, sums), 0)
    assert kernels(scattered) == count
    values = data(base.arg, added.arg)
    _, (new,) = run([scattered], values)
    expected = values[base.arg].copy()
    np.add.at(expected, np.arange(8) // 2, values[added.arg].sum(1))
    np.testing.assert_allclose(new, expected, rtol=1e-5)


# -- the law, on random graphs ----------------------------------------------------------------------------------------


def random_graph(rng: random.Random) -> tuple[list[Node], list[Storage]]:
    """A few buffers, then random ops on what is there; some results assigned to buffers, some asked for."""
    storages = [memory(*rng.choice([(4, 6), (6, 4), (2, 3, 4), (24,), (4, 1), (1, 6)])) for _ in range(3)]
    pool = [s.node() for s in storages]
    current = {s: s.node() for s in storages}
    for _ in range(rng.randint(3, 14)):
        x = rng.choice(pool)
        kind = rng.randrange(9)
        size = prod(x.shape)
        if kind == 0:
            x = node(rng.choice([Op.NEG, Op.SIN, Op.TRUNC]), x)
        elif kind == 1:
            same = [y for y in pool if y.shape == x.shape]
            x = node(rng.choice([Op.ADD, Op.MUL, Op.MAX]), x, rng.choice([*same, scalar(0.5)]))
        elif kind == 2 and x.shape:
            axes = tuple(sorted(rng.sample(range(len(x.shape)), rng.randint(1, len(x.shape)))))
            x = total(x, *axes, op=rng.choice([Op.ADD, Op.ADD, Op.MAX]))
        elif kind == 3:
            shapes = [s for s in [(4, 6), (6, 4), (2, 3, 4), (24,), (3, 8)] if prod(s) == size]
            x = node(Op.RESHAPE, x, arg=rng.choice(shapes)) if shapes else x
        elif kind == 4 and len(x.shape) > 1:
            x = node(Op.PERMUTE, x, arg=tuple(rng.sample(range(len(x.shape)), len(x.shape))))
        elif kind == 5 and x.shape:
            x = expand(x, *(rng.choice([3, 4]) if s == 1 else s for s in x.shape))
        elif kind == 6 and x.shape:
            x = node(Op.FLIP, x, arg=(rng.randrange(len(x.shape)),))
        elif kind == 7 and len(x.shape) == 2:
            x = node(Op.PAD, x, arg=((1, 0), (0, 2))) if rng.random() < 0.5 else node(Op.CONTIGUOUS, x)
        elif kind == 8:
            storage = rng.choice(storages)
            fitting = [y for y in pool if y.shape == storage.shape]
            if fitting:
                x = assign(current[storage], rng.choice(fitting))
                current[storage] = x
        if prod(x.shape) <= 600:
            pool.append(x)
    roots = [n for n in rng.sample(pool, min(len(pool), 3)) if n.op is not Op.BUFFER]
    changed = [n for n in current.values() if n.op is Op.ASSIGN]
    return list(dict.fromkeys([*roots, *changed])), storages


@pytest.mark.parametrize(
    "seed", [*range(60), *[pytest.param(seed, marks=pytest.mark.thorough) for seed in range(60, 300)]]
)
def test_a_schedule_computes_what_its_graph_means(seed: int):
    roots, storages = random_graph(random.Random(seed))
    # an assignment that a later one follows shows the later contents once all is done
    final = [r for r in roots if not any(r in other.toposort()[:-1] and r.op is Op.ASSIGN for other in roots)]
    if not final:
        return
    values = data(*storages)
    expected = evaluate(final, lambda leaf: values[leaf.arg])
    _, found = run(final, values)
    superseded = {
        n.src[0] for r in final for n in r.toposort() if n.op is Op.ASSIGN and n.src[0].op is Op.ASSIGN
    }
    for root, want, got in zip(final, expected, found):
        if root not in superseded:
            np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4, err_msg=str(root))


def test_one_graph_gives_one_schedule():
    for seed in range(30):
        roots, _ = random_graph(random.Random(seed))
        if roots:
            inputs = structure_of(roots).storages
            first, second = schedule(roots, inputs, 2), schedule(roots, inputs, 2)
            assert str(first) == str(second)
            assert [k.sink for k in first.kernels] == [k.sink for k in second.kernels]


def test_what_follows_a_value_in_memory_is_computed_again_rather_than_kept():
    x, w, v = (Tensor(np.ones(shape, np.float32)).realize() for shape in ((256, 512), (512, 512), (512, 512)))
    bias, scale = (Tensor(np.ones(512, np.float32)).realize() for _ in range(2))
    h = x + (x @ w + bias) * 0.5
    y = h + h.layer_norm(512, scale, bias) @ v
    roots = [y.node, *(part.node for part in grad([y], [w, v, bias, scale], [x]))]
    made = schedule(roots, structure_of(roots).storages, threads=2)
    kept = [value for value in made.values if prod(value.shape) == 256 * 512 and value.kind == "temporary"]
    assert len(kept) == 4  # h, what is normalised, and the gradients of both; not h without its mean
