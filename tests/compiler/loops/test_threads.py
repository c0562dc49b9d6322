"""Schedules with threads: every transform keeps the result on a GPU, and says why it refuses."""

from __future__ import annotations

import random
import re
from math import prod
from typing import Any

import numpy as np
import pytest

import hcq
from hcq.compiler.codegen import compile_with
from hcq.compiler.compile import compile_kernel
from hcq.compiler.linear.across import lower_across
from hcq.compiler.linear.linearize import linearize
from hcq.compiler.loops.heuristic_gpu import choose
from hcq.compiler.loops.loop_nest import LoopNest
from hcq.compiler.loops.matrix_units import HELD, UNITS, MatrixUnit, units_of
from hcq.compiler.loops.nest import ScheduleError
from hcq.compiler.pipeline import build, lower
from hcq.compiler.target import NV_SHARED_KIB, Toolchain, amd_target, metal_target, nv_target
from hcq.ir.dtype import DType, dtypes
from hcq.ir.node import Node
from hcq.ir.op import Op
from hcq.nv.chip import CHIPS
from hcq.nv.toolchain import images
from tests.compiler.building import (
    check,
    expand,
    kernel,
    matmul,
    out,
    param,
    permute,
    ranked,
    reduce,
    reshape,
    run,
)
from tests.compiler.emulated_gpus import gpu_of, machine_of
from tests.compiler.loops.test_loop_nest import KERNELS, product
from tests.hcq.emu.nv.shader.running import needs_nvrtc

GPUS = {
    "amd:gfx1100": ("AMD", amd_target("gfx1100")),
    "amd:gfx942": ("AMD:1", amd_target("gfx942")),
    "amd:gfx950": ("AMD:2", amd_target("gfx950")),
    "nv:sm_80": ("NV", nv_target("sm_80")),
    "metal:m3": ("METAL", metal_target("apple9")),
}

machine = machine_of(*GPUS)
gpu = gpu_of(GPUS, thorough=["amd:gfx942", "amd:gfx950", "metal:m3"])


def softmax() -> Node:
    x = param(1, (7, 150))
    e = Node(Op.EXP, x.dtype, (x + Node(Op.NEG, x.dtype, (expand(reduce(x, (1,), Op.MAX), 7, 150),)),))
    return kernel((out(0, (7, 150)), Node(Op.DIV, x.dtype, (e, expand(reduce(e, (1,)), 7, 150)))))


def halves() -> Node:
    x = param(1, (6, 90), dtypes.float16)
    return kernel((out(0, (6, 1), dtypes.float16), reduce(x, (1,), Op.MAX)))


def longs() -> Node:
    x = param(1, (200, 3), dtypes.int64)
    return kernel((out(0, (1, 3), dtypes.int64), reduce(x, (0,), Op.MAX)))


GPU_KERNELS = [*KERNELS, softmax, halves, longs]


def random_schedule(nest: LoopNest, rng: random.Random) -> str:
    """Transforms with threads that the nest accepts, tried at random."""
    for axes in ([a for a in nest.axes if not a.is_reduce], [a for a in nest.axes if a.is_reduce]):
        for a, b in zip(axes, axes[1:], strict=False):
            if rng.random() < 0.3 and nest.can_merge(a, b):
                nest.merge(a.name, b.name)
                break
    shares: dict[str, list[int]] = {}
    for axis in list(nest.axes):
        parts = [rng.choice([1, 1, 2, 4]), rng.choice([2, 4, 8, 32, 64]), rng.choice([1, 1, 2, 4])]
        while prod(parts) >= 2 * axis.size and max(parts) > 1:
            parts[parts.index(max(parts))] //= 2  # padding is not what takes the time
        if rng.random() < 0.8 and (axis.is_scanned or not axis.is_ordered):
            nest.pad(axis.name, parts[0] * parts[1] * parts[2])
            shares[axis.name] = parts
    names = list(shares)
    rng.shuffle(names)
    for name in names:
        copies, threads, lanes = shares[name]
        axis = next(a for a in nest.axes if a.name == name)
        for size in (copies * threads * lanes, threads * lanes, lanes):
            if axis.loops[-1].size > size:
                nest.split(axis.loops[-1].name, size)
        taken = [loop.name for a in nest.axes for loop in a.threads]
        loops = [loop for loop in axis.loops if loop.stride < copies * threads * lanes]
        for loop in reversed(loops):
            tries = [("vectorize",), ("unroll",)] if loop.stride == 1 and lanes > 1 else [("unroll",)]
            if loop.stride == lanes and loop.size > 1:
                tries = [("thread", rng.choice(["", *taken])), ("thread", ""), ("unroll",)]
            for verb, *words in tries:
                try:
                    getattr(nest, verb)(loop.name, *words)
                    break
                except ScheduleError:
                    pass
    for axis in nest.axes:
        is_free = axis.loops[0].kind == "serial" and not axis.is_reduce and not axis.is_ordered
        if is_free and rng.random() < 0.5:
            nest.parallel(axis.loops[0].name)
    if any(axis.threads for axis in nest.axes):
        for number, load in enumerate(nest.loads):
            inner = [loop for loop in nest.order if loop.axis.is_reduce and loop.stride > 1]
            if inner and rng.random() < 0.5 and not nest.never_staged(load):
                try:
                    nest.stage(number, rng.choice(inner).name)
                except ScheduleError:
                    pass  # it is not read in there
        for loop in dict.fromkeys(stage.at for stage in nest.stages):
            if loop is not None and rng.random() < 0.5:
                nest.pipeline(loop.name)
    return nest.choice


@pytest.mark.sampled(12)
@pytest.mark.parametrize("make", GPU_KERNELS, ids=lambda make: make.__name__)
@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.thorough)])
def test_any_schedule_with_threads_computes_the_same(gpu: tuple[Any, Any], make: Any, seed: int) -> None:
    device, target = gpu
    sink = make()
    text = random_schedule(LoopNest(lower(sink, target)), random.Random(f"{seed} {target.arch}"))
    try:
        linearize(LoopNest(lower(sink, target)).apply(text), "k")
    except ScheduleError as refusal:
        assert str(refusal).startswith("stage: ")  # a tile that is too large, or one that is cut short
        text = "; ".join(item for item in text.split("; ") if not item.startswith(("stage", "pipeline")))
    code = check(device, sink, text, target=target)
    assert code.choice == text


@pytest.mark.sampled(12)
@pytest.mark.parametrize("make", GPU_KERNELS, ids=lambda make: make.__name__)
def test_the_heuristics_choice_computes_the_same_and_replays(gpu: tuple[Any, Any], make: Any) -> None:
    device, target = gpu
    code = check(device, make(), target=target)
    assert LoopNest(lower(make(), target)).apply(code.choice).choice == code.choice


# -- running sums ---------------------------------------------------------------------------------------------------


def running(shape: tuple[int, ...], axis: int, dtype: DType) -> Node:
    x = param(1, shape, dtype)
    return kernel((out(0, shape, dtype), Node(Op.SCAN_AXIS, dtype, (x,), (Op.ADD, axis))))


@pytest.mark.sampled(8)
@pytest.mark.parametrize(
    "shape, axis",
    [((4999,), 0), ((2, 1025), 1), ((300, 7), 1), ((150, 70), 0), ((2, 33, 9), 1), ((3, 17, 40), 1)],
    ids=str,
)
@pytest.mark.parametrize("dtype", [dtypes.int64, dtypes.float32], ids=lambda dtype: dtype.name)
def test_a_running_sum_is_divided_among_threads(
    gpu: tuple[Any, Any], shape: tuple[int, ...], axis: int, dtype: DType
) -> None:
    device, target = gpu
    sink = running(shape, axis, dtype)
    code = check(device, sink, target=target)
    nest = LoopNest(lower(sink, target)).apply(code.choice)
    assert [len(line.threads) for line in nest.axes if line.is_scanned] == [1]


def test_waves_meet_in_shared_memory_once_for_all_steps_that_are_written_out(gpu: tuple[Any, Any]) -> None:
    target = gpu[1]
    nest = LoopNest(lower(running((4096,), 0, dtypes.float32), target))
    program = linearize(
        nest.apply("split r0 1024; split r0.1 4; vectorize r0.2; thread r0.1; unroll r0"), "k"
    )
    lower_across(program, 32)
    assert sum(it.op is Op.BARRIER for it in program.instructions) == 1
    assert not any(it.op in (Op.ACROSS, Op.BEFORE) for it in program.instructions)


@pytest.mark.parametrize("bits, size", [(4, 500), (3, 40), (1, 1), (4, 9000)])
def test_the_threads_of_a_block_place_a_piece_together(gpu: tuple[Any, Any], bits: int, size: int) -> None:
    device, target = gpu
    sink, arrays, expected = ranked(bits, size)
    (placed, _, _), code = run(device, sink, arrays, target=target)
    assert np.array_equal(expected, placed)
    assert size == 1 or "thread" in code.choice


# -- matrix units ---------------------------------------------------------------------------------------------------


def sum_dtype(dtype: DType) -> DType:
    return dtypes.float32 if dtype.is_float else dtypes.int32


def narrow_product(
    m: int, n: int, k: int, dtype: DType, other: DType | None = None, turned: str = ""
) -> Node:
    """A product of narrow numbers, added up in 32 bits; turned: "a", "b" or "ab" lie the other way round."""
    a = permute(param(1, (k, m), dtype), 1, 0) if "a" in turned else param(1, (m, k), dtype)
    b = permute(param(2, (n, k), other or dtype), 1, 0) if "b" in turned else param(2, (k, n), other or dtype)
    wide = [Node(Op.CAST, sum_dtype(dtype), (x,)) for x in (a, b)]
    return kernel((out(0, (m, 1, n), sum_dtype(dtype)), matmul(*wide)))


@pytest.mark.sampled(6)
@pytest.mark.parametrize(
    "dtype", [dtypes.float16, dtypes.bfloat16, dtypes.int8], ids=lambda dtype: dtype.name
)
@pytest.mark.parametrize("staged", [0, 1, 2], ids=["from-memory", "staged", "staged-twice"])
def test_a_matrix_unit_multiplies_with_ragged_edges(gpu: tuple[Any, Any], dtype: DType, staged: int) -> None:
    device, target = gpu
    for unit in units_of(target.arch, dtype):
        m, n, k = (unit.size(dimension) for dimension in "mnk")
        text = (
            f"pad r0 {4 * m}; pad r1 {4 * n}; pad r2 {2 * k}; split r0 {4 * m}; split r0.1 {2 * m}; split r0.2 {m}; "
            f"split r1 {4 * n}; split r1.1 {2 * n}; split r1.2 {n}; split r2 {2 * k}; split r2.1 {k}; "
            f"matrix r0.3 r1.3 r2.2 {unit.name}; unroll r0.2; thread r0.1; unroll r1.2; thread r1.1; "
            "parallel r0; parallel r1"
        )
        if staged:
            text += f"; stage 0 r2; stage 1 r2; pipeline r2{' 1' if staged == 1 else ''}"
        check(device, narrow_product(70, 90, 50, dtype), text, target=target)


def test_a_factor_that_is_computed_and_rounded_ends_where_its_operands_do(gpu: tuple[Any, Any]) -> None:
    """One is not zero beyond the end of k, in whose middle a step ends: it is made zero in its own format."""
    device, target = gpu
    a, b = param(1, (40, 21), dtypes.float32), param(2, (21, 36), dtypes.float16)
    more = Node(Op.EXP2, a.dtype, (a,)).cast(dtypes.float16)  # 1 where a reads zero
    wide = [Node(Op.CAST, dtypes.float32, (factor,)) for factor in (more, b)]
    code = check(device, kernel((out(0, (40, 1, 36), dtypes.float32), matmul(*wide))), target=target)
    assert "matrix" in code.choice


def test_results_that_are_put_together_are_stored_by_rows_with_all_that_is_made_of_them(
    gpu: tuple[Any, Any],
) -> None:
    device, target = gpu
    m, n, k = 70, 72, 50
    half = dtypes.float16
    wide = [Node(Op.CAST, dtypes.float32, (x,)) for x in (param(3, (m, k), half), param(4, (k, n), half))]
    product = reshape(matmul(*wide), m, n)
    other = Node(Op.CAST, dtypes.float32, (param(2, (m, n), half),))
    rows = expand(param(5, (1, n)), m, n)
    made = Node(Op.CAST, half, (product * rows + other,))
    sink = kernel((out(0, (m, n), half), made), (out(1, (m, n)), product))
    code = check(device, sink, target=target)
    assert code.choice.endswith("; collect") or target.arch == "sm_80"  # where floats are whole sectors
    check(device, sink, code.choice.removesuffix("; collect") + "; collect", target=target)


@pytest.mark.parametrize("road", ["ptx", pytest.param("cuda", marks=needs_nvrtc)])
@pytest.mark.parametrize("shape", [(296, 200, 136), (70, 90, 50)], ids=["whole-vectors", "ragged"])
def test_copies_that_the_gpu_does_by_itself_are_there_in_time(machine: None, road: str, shape: Any) -> None:
    target = nv_target("sm_80")
    if road == "cuda":
        target = compile_with(target, Toolchain("test", "cuda", images.ptx_of_cuda))
    for sink in (narrow_product(*shape, dtypes.float16), product()):
        text = choose(LoopNest(lower(sink, target)), target).choice
        for tiles in (3, 5):
            deeper = re.sub(r"pipeline (\w+)( \d)?", rf"pipeline \1 {tiles}", text)
            check(hcq.open("NV"), sink, deeper, target=target)


def test_products_of_halves_are_left_to_the_matrix_unit(gpu: tuple[Any, Any]) -> None:
    device, target = gpu
    for k in (90, 700):  # held in registers, in shared memory a part at a time
        code = check(device, narrow_product(100, 70, k, dtypes.float16), target=target)
        assert any(unit.name in code.choice for unit in units_of(target.arch, dtypes.float16))
    assert "stage 0" in code.choice and "stage 1" in code.choice


@pytest.mark.parametrize("unit", UNITS.values(), ids=lambda unit: unit.name)
def test_every_element_of_a_fragment_is_held_once(unit: MatrixUnit) -> None:
    """The threads and registers of each operand count its elements, or, where both halves of a wave hold it, twice."""
    operands = () if unit.reads_shared else ((unit.a_m, unit.k), (unit.b_n, unit.k_of_b))
    for first, second in ((unit.d_m, unit.d_n), *operands):
        digits = [digit for _, digit in (*first, *second) if digit != HELD]
        assert len(set(digits)) == len(digits)
        elements = prod(steps for steps, _ in (*first, *second))
        held = prod(steps for steps, digit in (*first, *second) if digit == HELD)
        threads = prod(unit.digits)
        assert held * threads in (elements, 2 * elements)


# -- refusals -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text,complaint",
    [
        ("thread r2", "47 threads are not a power of two"),
        ("split r0 32; thread r0.1", r"the last step of r0 is cut short at 33; pad r0 to a multiple of 32"),
        ("pad r0 64; split r0 8; thread r0", "a loop inside it is counted"),
        ("pad r0 2048; pad r1 128; thread r1; thread r0", "exceed 1024"),
        ("pad r0 64; pad r2 64; thread r0; thread r2 r0", "some value needs r0 and r2"),
        ("pad r0 64; thread r0; pad r1 64", "pads come before"),
        ("fuse r0 r1", "not two of one size"),
        ("pad r0 64; thread r0; pipeline r2", "nothing is staged there"),
        ("pad r0 64; thread r0; pipeline r2 9", "1 to 8 tiles, not 9"),
        ("pipeline r2", "no counted loop of a reduction in a kernel with threads"),
        (
            "split r0 16; split r1 8; split r2 16; matrix r0.1 r1.1 r2.1 mma.f16",
            "r0 is cut short; pad it first",
        ),
        ("matrix r0 r1 r2 mma.f4", "no such unit; there are mma.f16, "),
        (
            "pad r0 16; pad r1 8; pad r2 16; split r0 16; split r1 8; split r2 16; matrix r0.1 r1.1 r2.1 mma.f16",
            "a factor is float32, the unit takes float16",
        ),
    ],
)
def test_a_schedule_that_does_not_fit_says_why(text: str, complaint: str) -> None:
    with pytest.raises(ScheduleError, match=complaint):
        LoopNest(lower(product(), nv_target("sm_80"))).apply(text)


@pytest.mark.parametrize(
    "text",
    [
        "pad r0 64; pad r1 64; thread r0; thread r1 r0",
        "pad r1 64; split r1 32; split r1.1 4; thread r1.2; unroll r1.1; thread r1",
    ],
)
def test_threads_of_a_scan_are_side_by_side_and_its_own(text: str) -> None:
    sink = running((64, 64), 1, dtypes.float32)
    with pytest.raises(ScheduleError, match="a scan has threads of its own, of neighbouring loops"):
        LoopNest(lower(sink, nv_target("sm_80"))).apply(text)


def overlapping_windows() -> Node:
    """How many of 2 x 2 windows lie over each place: the row and the first range decide, the second only repeats."""

    def counted(number: int, size: int) -> Node:
        return Node(Op.RANGE, dtypes.index, (Node(Op.CONST, dtypes.index, (), size),), number)

    rows, columns, window, other = (counted(number, size) for number, size in enumerate((9, 2, 2, 2)))
    is_over = Node(Op.CMPLT, dtypes.bool, (window + rows, Node(Op.CONST, dtypes.index, (), 5)))
    one, nothing = (Node(Op.CONST, dtypes.float32, (), value) for value in (1.0, 0.0))
    count = Node(
        Op.REDUCE, dtypes.float32, (Node(Op.WHERE, one.dtype, (is_over, one, nothing)), window, other), Op.ADD
    )
    store = Node(Op.STORE, one.dtype, (out(0, (9, 2)), rows * 2 + columns, count))
    return Node(Op.SINK, dtypes.index, (store,))


def test_two_ranges_of_one_sum_are_not_counted_by_the_same_threads() -> None:
    target = amd_target("gfx1100")
    with pytest.raises(ScheduleError, match="some value needs r2 and r3"):
        LoopNest(overlapping_windows()).apply("thread r1; thread r2 r1; thread r3 r1")
    with pytest.raises(ScheduleError, match="some value needs both"):
        LoopNest(overlapping_windows()).apply("fuse r3 r2")
    nest = choose(LoopNest(overlapping_windows()), target)
    digits = [{loop.digit for loop in axis.threads} for axis in nest.axes if axis.is_reduce]
    assert len(digits) == 2 and not digits[0] & digits[1]


def test_a_fused_range_has_no_loop() -> None:
    nest = LoopNest(lower(softmax(), nv_target("sm_80"))).apply("fuse r2 r1; fuse r3 r1")
    with pytest.raises(ScheduleError, match="r1 was fused, and r1 counts it"):
        linearize(nest, "k")


# -- blocks in another order -----------------------------------------------------------------------------------------


def test_blocks_that_share_rows_and_columns_may_be_numbered_together(gpu: tuple[Any, Any]) -> None:
    device, target = gpu
    text = "pad r0 64; split r0 16; split r0.1 8; thread r0.2; parallel r0; parallel r1; parallel r0.1"
    code = check(device, product(), text, target=target)
    assert code.grid == (4 * 70 * 2, 1, 1)
    with pytest.raises(ScheduleError, match="r0 is cut short; pad it first"):
        LoopNest(lower(product(), target)).apply("split r0 16; split r0.1 8; parallel r0; parallel r0.1")
    with pytest.raises(ScheduleError, match="only the outermost loop of r0 can be groups"):
        LoopNest(lower(product(), target)).apply("split r0 16; parallel r0.1")


# -- shared memory that a launch asks for ---------------------------------------------------------------------------


@pytest.mark.parametrize("road", ["ptx", pytest.param("cuda", marks=needs_nvrtc)])
def test_tiles_beyond_what_an_object_declares_are_asked_for_when_it_is_launched(
    machine: None, road: str
) -> None:
    target = nv_target("sm_80")
    if road == "cuda":
        target = compile_with(target, Toolchain("test", "cuda", images.ptx_of_cuda))
    text = (
        "pad r0 64; pad r1 64; pad r2 128; split r0 64; split r0.1 16; split r1 64; split r1.1 8; split r2 64; "
        "split r2.1 16; matrix r0.2 r1.2 r2.2 mma.f16; thread r0.1; unroll r1.1; unroll r2.1; parallel r0; "
        "parallel r1; stage 0 r2; stage 1 r2; pipeline r2 7"
    )
    code = check(hcq.open("NV"), narrow_product(70, 64, 150, dtypes.float16), text, target=target)
    assert code.dynamic_shared_bytes == 7 * 2 * 64 * 64 * 2
    assert b".extern .shared" in code.image
    with pytest.raises(ScheduleError, match="bytes of shared memory exceed"):
        compile_kernel(narrow_product(70, 64, 150, dtypes.float16), nv_target("sm_86"), schedule=text)


@pytest.mark.parametrize("arch", NV_SHARED_KIB)
def test_a_target_has_as_much_shared_memory_as_its_chip(arch: str) -> None:
    assert nv_target(arch).shared_bytes == CHIPS[arch].max_shared_bytes


@pytest.mark.parametrize("arch", ["gfx1100", "gfx1201"])
def test_no_thread_reads_columns_that_others_have(arch: str) -> None:
    """Columns of threads are neighbours in memory; each thread reads its own: beside the last one memory ends."""
    shown: dict[str, str] = {}
    sink = narrow_product(32, 64, 64, dtypes.float16)
    text = (
        "pad r0 32; pad r1 64; split r0 16; split r1 32; split r1.1 16; split r2 16; "
        f"matrix r0.1 r1.2 r2.1 wmma{arch[3:5]}.f16; unroll r1.1; unroll r2; parallel r0; parallel r1"
    )
    build(sink, amd_target(arch), text, show=shown.__setitem__)
    read_of_right = shown["code"].split("load <8 x half>")[1:]
    assert all(
        after.split("align ")[1].startswith("16") for after in read_of_right
    )  # of the left operand's rows
