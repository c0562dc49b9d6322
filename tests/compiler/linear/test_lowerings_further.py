"""Further lowerings alone: a warpgroup's unit, bulk copies, collected and scattered stores, nested sums, and what is
done to single instructions afterwards."""

from __future__ import annotations

import pytest

from hcq.compiler.linear.alignment import Alignment
from hcq.compiler.linear.bulk_copies import BulkCopies
from hcq.compiler.linear.chained import ChainedProducts
from hcq.compiler.linear.collecting import Collecting
from hcq.compiler.linear.context import Context
from hcq.compiler.linear.counted_loops import CountedLoops
from hcq.compiler.linear.dots import Dots
from hcq.compiler.linear.emitter import Emitter
from hcq.compiler.linear.fragments import Fragments
from hcq.compiler.linear.limits import Limits
from hcq.compiler.linear.linearize import drop_unused
from hcq.compiler.linear.narrow_indices import index32, narrow_indices
from hcq.compiler.linear.nested import Nested
from hcq.compiler.linear.places import Spot
from hcq.compiler.linear.products import Products
from hcq.compiler.linear.program import Instruction, Program
from hcq.compiler.linear.quotients import known_part, shared_part
from hcq.compiler.linear.reductions import PlainReductions, Reductions
from hcq.compiler.linear.scattered import Scattered
from hcq.compiler.linear.sharing import Sharing, ThreadCopies
from hcq.compiler.linear.staged_loops import StagedLoops
from hcq.compiler.linear.staging import Staging
from hcq.compiler.linear.tensor_memory import TensorMemory
from hcq.compiler.linear.tile_copies import TileCopies
from hcq.compiler.linear.warpgroups import Warpgroups
from hcq.compiler.loops.loop_nest import LoopNest
from hcq.compiler.loops.nest import ScheduleError
from hcq.compiler.pipeline import lower
from hcq.compiler.target import nv_target
from hcq.ir.dtype import dtypes
from hcq.ir.node import Node
from hcq.ir.op import Op
from tests.compiler.building import expand, kernel, out, param, reduce
from tests.compiler.linear.test_lowerings import context_of, count, loops_of, product, written
from tests.compiler.linear.test_scattered import TILES
from tests.compiler.loops.test_loop_nest import attention, stepped_weight
from tests.compiler.loops.test_threads import narrow_product as sixteen_bits
from tests.compiler.loops.test_warpgroups import narrow_product, schedule

HOPPER = nv_target("sm_90")
UNIT = "split r0 16; split r1 8; split r2 16; matrix r0.1 r1.1 r2.1 mma.f16; parallel r0; parallel r1"


def staged_of(context: Context, counted: CountedLoops) -> StagedLoops:
    tiles = TileCopies(context)
    by_threads = Sharing(context, tiles, ThreadCopies(context, tiles))
    ways = (Staging(context, counted, Dots(context)), BulkCopies(context, tiles), by_threads)
    return StagedLoops(context, counted, ways)


def of_warpgroups(text: str) -> Context:
    """The only product of a kernel on sm_90, written by the unit that reads shared memory, its tiles by bulk copies."""
    sink = lower(narrow_product(64, 64, 256, dtypes.float16), HOPPER)
    context = Context(LoopNest(sink).apply(text), HOPPER.shared_bytes)
    context.begin()
    counted, fragments = loops_of(context), Fragments(context)
    products = Products(context, staged_of(context, counted), (Warpgroups(context, fragments), fragments))
    (node,) = context.nest.reduces
    outputs = [loop for loop in context.nest.order if not loop.axis.is_reduce]
    counted.groups(context.nest.groups, lambda: counted.nested(outputs, lambda: products.write([node])))
    return context


def test_a_warpgroup_multiplies_tiles_in_shared_memory_that_descriptors_name() -> None:
    context = of_warpgroups(schedule("wgmma64.f16", 64, 1, 1, 64, 3, "bulk"))
    units = [it for it in written(context) if it.op is Op.WARPGROUP_MATRIX]
    assert len(units) == 64 // 16  # one for each part of k of a tile
    assert {it.source(at).op for it in units for at in (0, 1)} == {Op.DESCRIPTOR}
    assert units[0].source(2).op is Op.ACCUMULATOR and units[1].source(2) is units[0]
    assert count(context, Op.WARPGROUP_FENCE) == count(context, Op.WARPGROUP_WAIT) == 1
    assert count(context, Op.WARPGROUP_RESULT) == 1


def test_a_warpgroups_unit_asks_for_both_operands_in_shared_memory() -> None:
    text = schedule("wgmma64.f16", 64, 1, 1, 64, 1).partition("; stage")[0]
    with pytest.raises(ScheduleError, match="stage both operands"):
        of_warpgroups(text)


@pytest.mark.parametrize("by", ["bulk", "producer"])
def test_bulk_copies_are_counted_by_an_mbarrier_for_each_buffer(by: str) -> None:
    context = of_warpgroups(schedule("wgmma64.f16", 64, 1, 1, 64, 3, by))
    (barriers,) = [it for it in written(context) if it.op is Op.MBARRIERS]
    warps = 128 // 32
    assert barriers.arg == ((1,) * 3 if by == "bulk" else (1,) * 3 + (warps,) * 3)
    # two operands: of the first two steps and of one in the loop, or of the producer's loop alone
    assert count(context, Op.COPY_TILE) == (2 * 3 if by == "bulk" else 2)
    assert count(context, Op.FREE_TILES) == (0 if by == "bulk" else 1)
    assert not count(context, Op.STORE) and not count(context, Op.COPY_SHARED)


def test_results_are_collected_in_shared_memory_and_stored_by_rows() -> None:
    target = nv_target("sm_80")
    context = context_of(sixteen_bits(32, 16, 64, dtypes.float16), f"{UNIT}; collect", target)
    counted, fragments = loops_of(context), Fragments(context)
    products = Products(context, staged_of(context, counted), (fragments,))
    collecting = Collecting(context)
    (node,) = context.nest.reduces
    outputs = [loop for loop in context.nest.order if not loop.axis.is_reduce]

    def body() -> None:
        products.write([node])
        collecting.write()

    assert collecting.takes()
    counted.groups(context.nest.groups, lambda: counted.nested(outputs, body))
    stores = [it.source(0).op for it in written(context) if it.op is Op.STORE]
    assert stores.index(Op.PARAM) > max(at for at, op in enumerate(stores) if op is Op.SHARED)
    assert count(context, Op.BARRIER) == 2 and context.memory.shared_bytes == 16 * 8 * 4
    assert not Collecting(context_of(sixteen_bits(32, 16, 64, dtypes.float16), UNIT, target)).takes()


def test_stores_far_apart_are_walked_by_a_loop_over_the_lanes() -> None:
    text = TILES.format(rows=5, across=32, lanes=16)
    context = context_of(stepped_weight(), text)
    scattered, counted = Scattered(context), loops_of(context)
    staged, limits = staged_of(context, counted), Limits(context)
    assert scattered.takes() and not Scattered(context_of(product(), "split r0 2")).takes()
    (node,) = context.nest.reduces
    outputs = [loop for loop in context.nest.order if not loop.axis.is_reduce]

    def body() -> None:
        PlainReductions(context, staged, limits, None).write([node])  # type: ignore[arg-type]
        scattered.write()

    counted.nested(outputs, body)
    stores = [it for it in written(context) if it.op is Op.STORE]
    kept = [it for it in stores if it.source(0).op is Op.SCRATCH]
    assert all(it.source(2).dtype.lanes > 1 for it in kept) and context.memory.scratch_bytes
    assert all(it.source(2).dtype.lanes == 1 for it in stores if it not in kept)


def test_a_reduction_that_another_needs_is_written_in_each_of_its_steps() -> None:
    context = context_of(attention(), "split r0 2")
    counted, limits, fragments = loops_of(context), Limits(context), Fragments(context)
    staged, reductions = staged_of(context, counted), Reductions()
    warpgroups = Warpgroups(context, fragments)
    memory = TensorMemory(context, fragments, warpgroups)
    nested = Nested(
        context, staged, limits, reductions, ChainedProducts(context, fragments, warpgroups, memory)
    )
    seen: list[list[Node]] = []
    plain = PlainReductions(context, staged, limits, Dots(context))

    class Noted:
        def takes(self, group: list[Node]) -> bool:
            return plain.takes(group)

        def write(self, group: list[Node]) -> None:
            seen.append(group)
            plain.write(group)

    reductions.ways = (nested, Noted())
    groups = [group for group in _by_ranges(context) if nested.takes(group)]
    (group,) = groups
    ((inner,),) = nested.inner_groups(group)
    outputs = [loop for loop in context.nest.order if not loop.axis.is_reduce]
    counted.nested(outputs, lambda: nested.write(group))
    assert [inner] in seen and all(node not in group for step in seen for node in step)
    loops = [it.arg.name for it in written(context) if it.op is Op.LOOP]
    assert loops.index(_loop_of(context, group[0])) < loops.index(_loop_of(context, inner))


def _by_ranges(context: Context) -> list[list[Node]]:
    found: dict[tuple[Node, ...], list[Node]] = {}
    for node in context.nest.reduces:
        found.setdefault(tuple(node.src[1:]), []).append(node)
    return list(found.values())


def _loop_of(context: Context, node: Node) -> str:
    return context.ranges.axis_of[node.src[1]].counted[0].name


# -- what is done to single instructions ------------------------------------------------------------------------------


def program_of(emitter: Emitter, groups: int = 1) -> Program:
    return Program("kernel", [], emitter.scopes[0].instructions, 0, groups, (64,))


def test_what_nobody_reads_is_dropped_with_what_it_alone_needs() -> None:
    emitter = Emitter()
    address = emitter.emit(Op.SHARED, dtypes.float32, (), 0)
    place = emitter.number(3)
    kept = emitter.number(2.0, dtypes.float32)
    lost = emitter.emit(Op.ADD, dtypes.float32, (kept, emitter.number(5.0, dtypes.float32)))
    emitter.place(Op.STORE, dtypes.index, (address, place, kept), 0)
    program = program_of(emitter)
    assert lost in program.instructions
    drop_unused(program)
    assert [it.op for it in program.instructions] == [Op.SHARED, Op.CONST, Op.CONST, Op.STORE]


def test_indices_get_32_bits_where_every_one_of_them_fits() -> None:
    for size, kind in ((1 << 10, index32), (1 << 40, dtypes.index)):
        emitter = Emitter()
        thread = emitter.emit(Op.SPECIAL, dtypes.index, (), "thread")
        place = emitter.emit(Op.MUL, dtypes.index, (thread, emitter.number(size)))
        narrow_indices(program_of(emitter))
        assert place.dtype is kind and thread.dtype is kind


def test_an_address_divides_by_what_all_terms_of_its_index_divide_by() -> None:
    emitter = Emitter()
    thread = emitter.emit(Op.SPECIAL, dtypes.index, (), "thread")
    index = emitter.total([(thread, 4)], 2)
    address = emitter.emit(Op.SHARED, dtypes.float32, (), 0)
    four = dtypes.float32.vec(4)
    load = Instruction(Op.LOAD, four, (address, index), 0, 0)
    behind = Instruction(Op.LOAD, four, (address, index), 2, 0)
    aligned = Alignment()
    assert aligned.bytes(load, four) == 2 * 4 and aligned.bytes(behind, four) == 2 * 4
    assert aligned.bytes(Instruction(Op.LOAD, four, (address, thread), 0, 0), four) == 4
    assert aligned.bytes(Instruction(Op.LOAD, four, (address, None), 4, 0), four) == 16


def test_quotients_of_lanes_are_known_where_the_counted_part_divides() -> None:
    emitter = Emitter()
    thread = emitter.emit(Op.SPECIAL, dtypes.index, (), "thread")
    spot = Spot([(thread, 8)], 2, (0, 1, 2, 3))
    divided = known_part(Op.FLOORDIV, spot, 4)
    assert divided is not None and divided.terms == [(thread, 2)] and divided.steps == (0, 0, 1, 1)
    rest = known_part(Op.MOD, spot, 4)
    assert rest is not None and not rest.terms and rest.steps == (2, 3, 0, 1)
    assert known_part(Op.MOD, spot, 3) is None


def test_lanes_that_no_multiple_parts_share_a_quotient() -> None:
    emitter = Emitter()
    thread = emitter.emit(Op.SPECIAL, dtypes.index, (), "thread")
    spot = Spot([(thread, 4)], 0, (0, 1, 2, 3))
    divided = shared_part(emitter, Op.FLOORDIV, spot, 12, True)
    assert divided is not None and divided.steps == (0,) and divided.terms[0][0].op is Op.FLOORDIV
    rest = shared_part(emitter, Op.MOD, spot, 12, True)
    assert rest is not None and rest.steps == (0, 1, 2, 3)
    assert shared_part(emitter, Op.MOD, spot, 10, True) is None


def test_a_sum_of_an_expanded_value_is_no_nested_reduction() -> None:
    x = param(1, (4, 8))
    context = context_of(kernel((out(0, (4, 1)), reduce(expand(x, 4, 8), (1,)))), "")
    staged, limits = staged_of(context, loops_of(context)), Limits(context)
    nested = Nested(context, staged, limits, Reductions(), None)
    assert not nested.takes(context.nest.reduces)
