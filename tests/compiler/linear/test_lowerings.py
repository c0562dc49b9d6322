"""Lowerings alone: each is given the context of a small kernel, and writes its part of a program, nothing else."""

from __future__ import annotations

import pytest

from hcq.compiler.linear.context import Context
from hcq.compiler.linear.counted_loops import CountedLoops
from hcq.compiler.linear.dots import Dots
from hcq.compiler.linear.emitter import Emitter
from hcq.compiler.linear.fragments import Fragments
from hcq.compiler.linear.limits import Limits
from hcq.compiler.linear.products import Products
from hcq.compiler.linear.program import Instruction
from hcq.compiler.linear.reductions import PlainReductions, fold
from hcq.compiler.linear.scan import Scans
from hcq.compiler.linear.scattered import Scattered
from hcq.compiler.linear.sharing import Sharing, ThreadCopies
from hcq.compiler.linear.staged_loops import StagedLoops
from hcq.compiler.linear.staging import Staging
from hcq.compiler.linear.stores import Stores
from hcq.compiler.linear.tile_copies import TileCopies
from hcq.compiler.linear.wave_copies import WaveCopies
from hcq.compiler.loops.loop_nest import LoopNest
from hcq.compiler.loops.nest import ScheduleError
from hcq.compiler.pipeline import lower
from hcq.compiler.target import Target, amd_target, cpu_target, nv_target
from hcq.ir.dtype import DType, dtypes
from hcq.ir.node import Node
from hcq.ir.op import Op
from tests.compiler.building import kernel, matmul, out, param
from tests.compiler.loops.test_threads import narrow_product


def context_of(sink: Node, schedule: str, target: Target | None = None) -> Context:
    """What a lowering is given for a kernel: the addresses of its arguments and its threads are written already."""
    context = Context(LoopNest(lower(sink, target or cpu_target())).apply(schedule))
    context.begin()
    return context


def written(context: Context) -> list[Instruction]:
    """What stands in the kernel's own scope."""
    return context.emitter.scopes[0].instructions


def count(context: Context, op: Op) -> int:
    return sum(it.op is op for it in written(context))


def loops_of(context: Context) -> CountedLoops:
    return CountedLoops(context, Limits(context))


def product(m: int = 8, k: int = 12, n: int = 16, dtype: DType = dtypes.float32) -> Node:
    return kernel((out(0, (m, 1, n)), matmul(param(1, (m, k), dtype), param(2, (k, n), dtype))))


def running() -> Node:
    x = param(1, (3, 16))
    return kernel((out(0, (3, 16)), Node(Op.SCAN_AXIS, x.dtype, (x,), (Op.ADD, 1))))


def test_a_counted_loop_writes_its_partial_step_a_second_time_with_its_own_extent() -> None:
    context = context_of(product(m=10), "split r0 4; unroll r0.1")
    (axis,) = [axis for axis in context.nest.axes if axis.name == "r0"]
    seen: list[int] = []
    loops_of(context).open(axis.loops[0], lambda: seen.append(context.ranges.extent[axis]))
    assert seen == [4, 2] and context.ranges.extent[axis] == 4
    assert count(context, Op.LOOP) == count(context, Op.ENDLOOP) == 1 and not context.loops.counters


def test_a_counted_loop_of_one_step_is_no_loop() -> None:
    context = context_of(product(m=4), "split r0 4; unroll r0.1")
    (axis,) = [axis for axis in context.nest.axes if axis.name == "r0"]
    for loop in axis.counted:
        loops_of(context).open(loop, lambda: None)
    assert count(context, Op.LOOP) == 0


def test_accumulators_are_folded_in_pairs_and_then_by_halves() -> None:
    context = context_of(product(), "split r2 4; vectorize r2.1")
    (node,) = context.nest.reduces
    start = context.emitter.broadcast(context.emitter.number(0, dtypes.float32), 4)
    parts = [context.emitter.accumulator(start, 0) for _ in range(4)]
    whole = fold(context.emitter, node, parts, is_vector=True)
    assert whole.dtype.lanes == 1 and count(context, Op.ADD) == 3 + 2 and count(context, Op.LANE) == 4


def test_a_plain_reduction_keeps_an_accumulator_for_each_output_point() -> None:
    context = context_of(product(), "split r0 2; unroll r0.1; split r1 4; vectorize r1.1")
    counted, limits = loops_of(context), Limits(context)
    dots = Dots(context)
    staged = StagedLoops(context, counted, (Staging(context, counted, dots),))
    (node,) = context.nest.reduces
    outputs = [loop for loop in context.nest.order if not loop.axis.is_reduce]
    plain = PlainReductions(context, staged, limits, dots)
    counted.nested(outputs, lambda: plain.write([node]))
    facts = [it.arg for it in written(context) if it.op is Op.LOOP and it.arg.name.startswith("r2")]
    assert count(context, Op.ACCUMULATOR) == count(context, Op.UPDATE) == 2
    assert [len(fact.carried) for fact in facts] == [2]
    assert {place for _, place in context.values.results} == {((0, 1), (0, 4)), ((1, 1), (0, 4))}


def test_a_scan_of_lanes_takes_log_steps_and_leaves_the_last_lane() -> None:
    context = context_of(running(), "split r1 8; vectorize r1.1")
    scans, counted = Scans(context), loops_of(context)
    outer = [loop for loop in context.nest.order if not loop.axis.is_scanned]
    inner = [loop for loop in context.nest.order if loop.axis.is_scanned]

    def body() -> None:
        scans.begin()
        counted.nested(inner, scans.step)

    counted.nested(outer, body)
    # three for the lanes of the vector, one with what is before it, one for what it leaves
    assert [it.dtype.lanes for it in written(context) if it.op is Op.ADD and it.dtype.is_float] == [
        8,
        8,
        8,
        8,
        1,
    ]
    assert count(context, Op.ACCUMULATOR) == count(context, Op.UPDATE) == 1
    assert [len(it.arg.carried) for it in written(context) if it.op is Op.LOOP] == [0, 1]


def test_words_of_a_dot_product_are_zero_beyond_the_end_of_a_range() -> None:
    context = context_of(product(k=6), "split r2 4; vectorize r2.1")
    dots = Dots(context)
    rows = [context.emitter.number(value, dtypes.int8) for value in (1, 2, 0, 0)]
    word = dots.word(dots.interleaved(rows))
    assert word.dtype is dtypes.int32 and word.op is Op.BITCAST
    assert [source.arg for source in word.source(0).src if source is not None] == [1, 2, 0, 0]


def test_a_staged_operand_is_read_from_scratch_once_it_was_copied() -> None:
    context = context_of(product(), "split r1 4; vectorize r1.1; stage 1 r1")
    counted = loops_of(context)
    (stage,) = context.nest.stages
    (axis,) = [axis for axis in context.nest.axes if axis.name == "r1"]
    staging = Staging(context, counted, Dots(context))
    counted.open(axis.counted[0], lambda: staging.copy_in(stage))
    stores = [it for it in written(context) if it.op is Op.STORE]
    assert stores and all(it.source(0).op is Op.SCRATCH for it in stores)
    assert context.memory.scratch_bytes == 12 * 4 * 4 and stage.value in context.values.packed


SHARED = "split r0 8; split r1 8; split r2 4; thread r0.1; thread r1.1; unroll r2.1; stage 0 r2; stage 1 r2"


def shared_step(schedule: str, waves: bool = False) -> Context:
    """The first copies and one step of a loop whose operands threads bring to shared memory."""
    target = amd_target("gfx942")
    context = context_of(product(16, 64, 16), schedule, target)
    tiles = TileCopies(context)
    way = WaveCopies(context, tiles, target.wave_copy_bytes) if waves else ThreadCopies(context, tiles)
    counted = loops_of(context)
    staged = StagedLoops(context, counted, (Sharing(context, tiles, way),))
    outer = [loop for loop in context.nest.order if not loop.axis.is_reduce]
    reduced = [axis for axis in context.nest.axes if axis.is_reduce]
    counted.nested(outer, lambda: staged.around(reduced, lambda: None))
    return context


def test_shared_operands_are_written_between_two_barriers() -> None:
    context = shared_step(SHARED)
    kinds = [it.op for it in written(context) if it.op in (Op.BARRIER, Op.STORE)]
    assert kinds == [Op.BARRIER, Op.STORE, Op.STORE, Op.BARRIER]
    assert len(context.values.packed) == 2 and context.memory.shared_bytes > 0


def test_a_loop_with_two_tiles_stores_the_next_step_when_this_one_ends() -> None:
    context = shared_step(f"{SHARED}; pipeline r2 2")
    inside = [it.op for it in written(context)]
    inside = inside[max(at for at, op in enumerate(inside) if op is Op.LOOP) :]
    assert [op for op in inside if op in (Op.BARRIER, Op.STORE)] == [Op.BARRIER, Op.STORE, Op.STORE]


@pytest.mark.parametrize("waves", [False, True])
def test_a_loop_with_three_tiles_begins_copies_and_stores_nothing(waves: bool) -> None:
    context = shared_step(f"{SHARED}; pipeline r2 3", waves)
    begun = [it for it in written(context) if it.op is Op.COPY_SHARED]
    assert begun and not count(context, Op.STORE) and count(context, Op.WAIT) == 1
    batches = [it.arg for it in written(context) if it.op is Op.COMMIT]
    assert len(batches) == 3 and all((arg is not None) == waves for arg in batches)


def test_a_matrix_product_beside_another_reduction_of_its_ranges_is_refused() -> None:
    context = context_of(product(), "split r0 2")
    (node,) = context.nest.reduces
    products = Products(context, StagedLoops(context, loops_of(context), ()), (Fragments(context),))
    assert not products.takes([node])
    with pytest.raises(ScheduleError, match="another reduction runs along the same ranges"):
        products.write([node])


def test_the_same_value_is_written_once_where_its_sources_are_known() -> None:
    emitter = Emitter()
    thread = emitter.emit(Op.SPECIAL, dtypes.index, (), "thread")
    loop = emitter.begin("r0", emitter.number(0), emitter.number(8), runs=True)
    outside, inside = emitter.rest(thread, 4), emitter.rest(loop, 4)
    assert emitter.rest(thread, 4) is outside and (outside.depth, inside.depth) == (0, 1)
    emitter.end(loop)
    order = emitter.scopes[0].instructions
    assert order.index(outside) < order.index(loop) < order.index(inside)


def test_guards_are_joined_only_where_there_are_two() -> None:
    emitter = Emitter()
    thread = emitter.emit(Op.SPECIAL, dtypes.index, (), "thread")
    first, early = emitter.is_equal(thread, 0), emitter.is_below(thread, 4)
    assert emitter.both(None, None) is None
    assert emitter.both(first, None) is emitter.both(None, first) is first
    joined = emitter.both(first, early)
    assert joined is not None and joined.op is Op.AND and joined.src == (first, early)


def test_memory_that_the_kernel_writes_is_read_inside_the_loop() -> None:
    x = out(0, (16,))
    context = context_of(kernel((x, x + x)), "split r0 4; vectorize r0.1")
    assert context.nest.stores[0].src[2] in context.ranges.volatile
    stores = Stores(context, Scans(context), Scattered(context))
    loops_of(context).nested(context.nest.order, stores.write)
    (loop,) = [it for it in written(context) if it.op is Op.LOOP]
    order = written(context)
    assert [it.op for it in order if it.op in (Op.LOAD, Op.STORE)] == [Op.LOAD, Op.STORE]
    assert all(order.index(it) > order.index(loop) for it in order if it.op is Op.LOAD)


def test_products_of_a_matrix_unit_keep_their_fragments_in_accumulators() -> None:
    target = nv_target("sm_80")
    schedule = "split r0 16; split r1 8; split r2 16; matrix r0.1 r1.1 r2.1 mma.f16; parallel r0; parallel r1"
    context = context_of(narrow_product(32, 16, 64, dtypes.float16), schedule, target)
    counted = loops_of(context)
    tiles = TileCopies(context)
    ways = (Sharing(context, tiles, ThreadCopies(context, tiles)),)
    products = Products(context, StagedLoops(context, counted, ways), (Fragments(context),))
    (node,) = context.nest.reduces
    outputs = [loop for loop in context.nest.order if not loop.axis.is_reduce]
    assert products.takes([node])
    counted.groups(context.nest.groups, lambda: counted.nested(outputs, lambda: products.write([node])))
    (unit,) = [it for it in written(context) if it.op is Op.MATRIX]
    assert unit.source(2).op is Op.ACCUMULATOR and count(context, Op.UPDATE) == 1
    assert len({at for _, at in context.values.results}) * 32 == 16 * 8 // max(
        value.dtype.lanes for value in context.values.results.values()
    )
