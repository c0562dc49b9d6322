"""What is staged in shared memory meets no bank twice, and no barrier is missing or too many."""

from __future__ import annotations

import math
import random
from typing import Any

import numpy as np
import pytest

from hcq.compiler.codegen import codegen
from hcq.compiler.compile import compile_kernel
from hcq.compiler.linear.across import lower_across
from hcq.compiler.linear.banks import Swizzle, swizzle, swizzle_of_stores
from hcq.compiler.linear.linearize import linearize
from hcq.compiler.linear.memory import MOST_SHARED
from hcq.compiler.linear.program import Program
from hcq.compiler.loops.loop_nest import LoopNest
from hcq.compiler.loops.matrix_units import units_of
from hcq.compiler.loops.nest import ScheduleError
from hcq.compiler.pipeline import lower
from hcq.compiler.render.amdgpu import wave_size
from hcq.compiler.target import Target, amd_target, nv_target
from hcq.ir.dtype import DType, dtypes
from hcq.ir.node import Node
from hcq.ir.op import Op
from tests.compiler.building import kernel, matmul, out, param, permute
from tests.compiler.loops.test_threads import GPU_KERNELS, narrow_product, random_schedule, sum_dtype
from tests.compiler.shared_memory import BANKS, Access, bank_conflicts, conflicts, race, walk, without
from tests.hcq.emu.nv.shader.running import Launch

TARGETS = [
    *[nv_target(arch) for arch in ("sm_80", "sm_90")],
    *[amd_target(arch) for arch in ("gfx90a", "gfx942", "gfx1030", "gfx1100", "gfx1201")],
]
OFTEN = ("sm_90", "gfx942", "gfx1201")
by_arch = pytest.mark.parametrize(
    "target",
    [
        pytest.param(target, id=target.arch, marks=[pytest.mark.thorough] * (target.arch not in OFTEN))
        for target in TARGETS
    ],
)
dtype_names = pytest.mark.parametrize(
    "dtype", [dtypes.float16, dtypes.bfloat16, dtypes.int8], ids=lambda dtype: dtype.name
)


def vendor_and_wave(target: Target) -> tuple[str, int]:
    return ("nv", 32) if target.arch.startswith("sm_") else ("amd", wave_size(target.arch))


def tiled(target: Target, dtype: DType, turned: str = "", steps: int = 5) -> Program:
    """A product of 4096 in each direction as the heuristic tiles it, of two by two tiles and some steps of k.

    turned   "a", "b" or "ab": these operands lie in memory the other way round
    """

    def product(m: int, n: int, k: int) -> Node:
        a = permute(param(1, (k, m), dtype), 1, 0) if "a" in turned else param(1, (m, k), dtype)
        b = permute(param(2, (n, k), dtype), 1, 0) if "b" in turned else param(2, (k, n), dtype)
        wide = [Node(Op.CAST, sum_dtype(dtype), (x,)) for x in (a, b)]
        return kernel((out(0, (m, 1, n), sum_dtype(dtype)), matmul(*wide)))

    chosen_for = nv_target("sm_80") if target.arch == "sm_90" else target  # a warp's unit, not a warpgroup's
    large = LoopNest(lower(product(4096, 4096, 4096), chosen_for))
    text = codegen(target).choose(large, chosen_for).choice
    depth = next(step.at.stride for step in large.stages if step.at is not None)
    nest = LoopNest(lower(product(256, 512, steps * depth), target)).apply(text)
    return linearize(nest, "k")


@pytest.mark.sampled(12)
@by_arch
@dtype_names
@pytest.mark.parametrize("turned", ["", "a", "b", "ab"])
def test_tiles_of_a_product_meet_no_bank_twice(target: Target, dtype: DType, turned: str) -> None:
    if not units_of(target.arch, dtypes.float16):
        pytest.skip("narrow numbers that threads multiply one by one are not laid out for banks")
    program = tiled(target, dtype, turned, steps=3)
    assert bank_conflicts(program, *vendor_and_wave(target)) == 0
    reads = [
        step for step in walk(program, vendor_and_wave(target)[1]) if getattr(step, "kind", "") == "load"
    ]
    assert reads and all(step.size == 16 for step in reads)


def test_what_meets_a_bank_twice_is_found() -> None:
    program = tiled(nv_target("sm_80"), dtypes.float16)
    access = next(step for step in walk(program, 32) if getattr(step, "kind", "") == "load")
    lanes = access.start * 0 + range(len(access.start))
    for stride, expected in ((1, 0), (2, 1), (BANKS, 31), (BANKS + 1, 0)):
        words = access._replace(start=4 * stride * (lanes % 32), size=4, kind="store")
        assert conflicts(words, "nv", 32) == expected * (len(lanes) // 32)


@pytest.mark.parametrize("itemsize", [1, 2, 4])
def test_a_swizzle_moves_elements_inside_their_line_and_no_two_to_one_place(itemsize: int) -> None:
    for row in (16, 32, 64, 128, 256):
        found = swizzle(row, 64, itemsize)
        if found is None:
            assert row * itemsize == 16
            continue
        places = [found(place) for place in range(row * 64)]
        assert sorted(places) == list(range(row * 64))
        line = 128 // itemsize
        assert all(place // line == number // line for number, place in enumerate(places))


@by_arch
@pytest.mark.parametrize("turned", ["", "ab"])
def test_a_tiled_product_has_every_barrier_that_it_needs_and_no_other(target: Target, turned: str) -> None:
    wave = vendor_and_wave(target)[1]
    program = tiled(target, dtypes.float16, turned)
    assert race(program, wave) == ""
    waits = [it for it in program.instructions if it.op in (Op.BARRIER, Op.WAIT)]
    assert waits
    for it in waits:
        assert race(without(program, it), wave) != "", f"{it.op.name} {it.arg} is not needed"


@pytest.mark.sampled(6)
@pytest.mark.parametrize("make", GPU_KERNELS, ids=lambda make: make.__name__)
def test_no_schedule_with_threads_has_a_race(make: Any) -> None:
    for target in (nv_target("sm_80"), amd_target("gfx942")):
        wave = vendor_and_wave(target)[1]
        for seed in range(4):
            text = random_schedule(LoopNest(lower(make(), target)), random.Random(f"{seed} {target.arch}"))
            try:
                program = linearize(LoopNest(lower(make(), target)).apply(text), "k")
            except ScheduleError:
                continue
            lower_across(program, wave)
            assert race(program, wave) == "", text


@pytest.mark.parametrize("seed", range(6))
def test_tiles_of_any_size_have_the_barriers_that_they_need_and_no_other(seed: int) -> None:
    rng = random.Random(seed)
    for target in TARGETS:
        if not (units := units_of(target.arch, dtypes.float16)):
            continue
        unit = rng.choice(units)
        sizes, text = [], ""
        for name, dimension in (("r0", "m"), ("r1", "n")):
            own, waves, tiles = unit.size(dimension), rng.choice([1, 2]), rng.choice([1, 2])
            sizes.append(own * waves * tiles * 2 - rng.randrange(own))
            text += f"pad {name} {own * waves * tiles}; "
            cuts = [
                f"split {name} {own * waves * tiles}",
                f"split {name}.1 {own * tiles}",
                f"split {name}.2 {own}",
            ]
            text = text + "; ".join(cuts) + "; "
        depth = unit.size("k") * rng.choice([1, 2])
        tiles = rng.choice([0, 1, 2] + [3, 4] * target.copies_ahead)
        text = "; ".join(
            sorted((text + f"pad r2 {depth}").split("; "), key=lambda item: not item.startswith("pad"))
        )
        text += f"; split r2 {depth}; split r2.1 {unit.size('k')}; matrix r0.3 r1.3 r2.2 {unit.name}; unroll r2.1; "
        text += "unroll r0.2; thread r0.1; unroll r1.2; thread r1.1; parallel r0; parallel r1; stage 0 r2; stage 1 r2"
        text += f"; pipeline r2 {tiles}" * bool(tiles) + "; collect" * rng.randrange(2)
        nest = LoopNest(lower(narrow_product(*sizes, 5 * depth, dtypes.float16), target)).apply(text)
        program, wave = linearize(nest, "k", MOST_SHARED, target.wave_copy_bytes), vendor_and_wave(target)[1]
        assert race(program, wave) == "", text
        for it in program.instructions:
            if it.op in (Op.BARRIER, Op.WAIT) and program.threads > wave:
                assert race(without(program, it), wave) != "", (text, it.op.name)


@pytest.mark.parametrize("k", [16, 32, 48, 112])
@pytest.mark.parametrize("tiles", [1, 2, 3, 4, 5])
def test_a_loop_that_its_range_ends_early_copies_nothing_from_beyond(tiles: int, k: int) -> None:
    """The last 64 of k are cut short. Rows are walked one after the other, so tiles are copied to again."""
    target, size = nv_target("sm_80"), 64
    sink = kernel((out(0, (size, 1, size)), matmul(param(1, (size, k)), param(2, (k, size)))))
    text = "split r0 32; split r0.1 16; thread r0.2; split r1 16; thread r1.1; split r2 64; split r2.1 16; "
    text += f"split r2.2 4; parallel r0; parallel r1; stage 0 r2.1; stage 1 r2.1; pipeline r2.1 {tiles}"
    assert race(linearize(LoopNest(lower(sink, target)).apply(text), "k"), 32) == ""
    code = compile_kernel(sink, target, schedule=text)
    rng = np.random.default_rng(k)
    a, b = (rng.integers(-9, 9, shape).astype(np.float32) for shape in ((size, k), (k, size)))
    result = np.zeros((size, size), np.float32)
    launch = Launch()  # whose arrays end where their memory does
    launch.run(launch.load(code.image.decode(), code.entry), code.grid, code.block, result, a, b)
    np.testing.assert_array_equal(result, a @ b)


WIDTHS = [  # tiles beside each other in a wave, and waves, along m and along n
    ((tiles_m, waves_m), (tiles_n, waves_n))
    for tiles_m, waves_m in ((1, 1), (2, 1), (1, 2))
    for tiles_n, waves_n in ((1, 1), (2, 1), (4, 1), (8, 1), (1, 2), (2, 2), (1, 4), (4, 4))
]


@pytest.mark.sampled(2)
@by_arch
@pytest.mark.parametrize("dtype", [dtypes.float16, dtypes.int8], ids=lambda dtype: dtype.name)
def test_results_of_tiles_of_every_width_are_collected_without_meeting_a_bank_twice(
    target: Target, dtype: DType
) -> None:
    vendor, wave = vendor_and_wave(target)
    for unit in units_of(target.arch, dtype):
        for counts in WIDTHS:
            text, sizes = "", []
            for name, dimension, (tiles, waves) in zip(("r0", "r1"), "mn", counts, strict=True):
                own = unit.size(dimension)
                sizes.append(own * tiles * waves)
                text += f"split {name} {own * tiles * waves}; split {name}.1 {own * tiles}; split {name}.2 {own}; "
            text += (
                f"split r2 {unit.size('k')}; matrix r0.3 r1.3 r2.1 {unit.name}; unroll r0.2; thread r0.1; "
            )
            text += "unroll r1.2; thread r1.1; parallel r0; parallel r1; collect"
            if 4 * math.prod(sizes) > target.shared_bytes:
                continue
            sink = narrow_product(*sizes, unit.size("k"), dtype)
            program = linearize(LoopNest(lower(sink, target)).apply(text), "k", target.shared_bytes)
            steps = [step for step in walk(program, wave) if isinstance(step, Access)]
            assert {step.kind for step in steps} == {"load", "store"}
            assert sum(conflicts(step, vendor, wave) for step in steps) == 0, text
            assert all(
                step.size == 16 and not (step.start % 16).any() for step in steps if step.kind == "load"
            )
            assert race(program, wave) == "", text


SIZES = [
    *[(16, n, k) for n in (16, 32, 200, 1024, 4096) for k in (64, 512)],
    *[
        (512, 64, 64),
        (64, 1024, 64),
        (100, 4096, 64),
        (512, 4096, 64),
        (4096, 48, 64),
        (4096, 1024, 64),
        (4096, 4096, 64),
    ],
]


@pytest.mark.parametrize("arch", ["sm_80", "sm_90", "gfx942", "gfx1100"])
def test_what_the_heuristic_collects_meets_no_bank_twice(arch: str) -> None:
    target = nv_target(arch) if arch.startswith("sm_") else amd_target(arch)
    widths = set()
    for m, n, k in SIZES:
        wide = [
            x.cast(dtypes.float32)
            for x in (param(1, (m, k), dtypes.float16), param(2, (k, n), dtypes.float16))
        ]
        sink = kernel((out(0, (m, 1, n), dtypes.float16), matmul(*wide).cast(dtypes.float16)))
        nest = codegen(target).choose(LoopNest(lower(sink, target)), target)
        program = linearize(nest, "k", target.shared_bytes)
        assert bank_conflicts(program, *vendor_and_wave(target)) == 0, nest.choice
        if nest.collects and nest.unit is not None:
            columns = nest.unit.n
            widths.add(math.prod(loop.size for loop in columns.loops if loop not in columns.counted))
    assert widths >= {16, 32, 64, 128}


@pytest.mark.parametrize("own", [1, 2, 4])
def test_a_swizzle_of_stores_parts_all_threads_that_are_served_at_once(own: int) -> None:
    """Wherever bits of a thread's number lie, if those inside a line leave chunks for the others."""
    checked = 0
    for seed in range(200):
        rng = random.Random(seed)
        bits = rng.sample(range(own.bit_length() - 1, 10), 5)
        places = tuple([1 << bit for bit in bits])
        found = swizzle_of_stores(places, own, 4) or Swizzle(())
        assert sorted(map(found, range(1024))) == list(range(1024))
        assert all(found(found(place)) == place for place in range(1024))
        served = 32 // own
        inside = [place for place in places[: served.bit_length() - 1] if place < 32]
        if any(place < 4 for place in range(own, 4) if place & (place - 1) == 0 and place not in inside):
            continue  # a chunk is not filled: its places stay together
        starts = [
            found(sum(place for bit, place in enumerate(places) if number >> bit & 1))
            for number in range(served)
        ]
        words = {(start + word) % 32 for start in starts for word in range(own)}
        assert len(words) == 32
        checked += 1
    assert checked > 10
