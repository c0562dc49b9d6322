"""Products by a warpgroup's matrix unit: right on an emulated sm_90, by LLVM and by nvrtc, and as ptxas likes them."""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import hcq
from hcq.compiler.codegen import compile_with
from hcq.compiler.compile import compile_kernel
from hcq.compiler.linear.linearize import linearize
from hcq.compiler.loops.heuristic_gpu import choose
from hcq.compiler.loops.loop_nest import LoopNest
from hcq.compiler.loops.matrix_units import UNITS, MatrixUnit, units_of
from hcq.compiler.loops.nest import ScheduleError
from hcq.compiler.pipeline import lower
from hcq.compiler.render import cuda
from hcq.compiler.target import Target, Toolchain, nv_target
from hcq.errors import UsageError
from hcq.ir.dtype import DType, dtypes
from hcq.ir.node import Node
from hcq.ir.op import Op
from hcq.nv.cubin import Cubin
from hcq.nv.toolchain import images, nvjitlink
from hcq.performance import counters, datasheets, roofline
from hcq.performance.counters import SUMMED, Counters
from tests.compiler.building import (
    check,
    emulating,
    expand,
    kernel,
    matmul,
    out,
    param,
    parameters,
    permute,
    reduce,
    reshape,
    run,
)
from tests.hcq.emu.nv.shader.running import needs_nvjitlink, needs_nvrtc
from tests.turns import seeds

HOPPER = nv_target("sm_90")
UNIT_64 = "split r2.1 16; matrix r0.1 r1.1 r2.2 wgmma64.f16"
KINDS = {dtypes.float16: "f16", dtypes.bfloat16: "bf16"}


@pytest.fixture(scope="module")
def gpu() -> Iterator[Any]:
    with emulating("nv:sm_90"):
        yield hcq.open("NV")


def narrow_product(m: int, n: int, k: int, dtype: DType, turned: str = "") -> Node:
    """A product, of operands that lie in memory as columns where `turned` names them."""
    a = permute(param(1, (k, m), dtype), 1, 0) if "a" in turned else param(1, (m, k), dtype)
    b = permute(param(2, (n, k), dtype), 1, 0) if "b" in turned else param(2, (k, n), dtype)
    wide = [Node(Op.CAST, dtypes.float32, (x,)) for x in (a, b)]
    return kernel((out(0, (m, 1, n)), matmul(*wide)))


def schedule(
    unit: str, columns: int, down: int, written_out: int, depth: int, tiles: int, by: str = ""
) -> str:
    """Blocks of `down` warpgroups, each with so many tiles of 64 rows; `depth` along k at a time."""
    own = 64 * written_out
    text = f"pad r0 {down * own}; pad r1 {columns}; pad r2 {depth}; split r0 {down * own}; split r0.1 {own}; "
    text += f"split r0.2 64; split r1 {columns}; split r2 {depth}; split r2.1 16; "
    text += f"matrix r0.3 r1.1 r2.2 {unit}; unroll r0.2; thread r0.1; unroll r2.1; parallel r0; parallel r1; "
    text += "stage 0 r2; stage 1 r2"
    return text + (f"; pipeline r2 {tiles} {by}" if tiles > 1 else "")


def roads() -> list[Any]:
    return ["ptx", pytest.param("cuda", marks=needs_nvrtc)]


def target(road: str) -> Target:
    if road == "ptx":
        return HOPPER
    return compile_with(HOPPER, Toolchain("test", "cuda", images.ptx_of_cuda))


@pytest.mark.sampled(6)
@pytest.mark.parametrize("road", roads())
@pytest.mark.parametrize("dtype", KINDS, ids=lambda dtype: dtype.name)
@pytest.mark.parametrize("shape", [(64, 64, 64), (128, 128, 64), (192, 96, 80)], ids=str)
def test_a_warpgroup_multiplies(gpu: Any, shape: Any, dtype: DType, road: str) -> None:
    text = schedule(f"wgmma64.{KINDS[dtype]}", 64, 1, 1, 64, 1)
    check(gpu, narrow_product(*shape, dtype), text, target=target(road))


@pytest.mark.parametrize("tiles", [1, 2, 3, 4, 5])
def test_products_that_are_under_way_keep_their_tiles(gpu: Any, tiles: int) -> None:
    """With four tiles and more a step begins while the unit reads those of the step before."""
    text = schedule("wgmma64.f16", 64, 2, 1, 64, tiles)
    check(gpu, narrow_product(130, 64, 450, dtypes.float16), text, target=HOPPER)


@pytest.mark.sampled(4)
@pytest.mark.parametrize("turned", ["", "a", "b", "ab"])
@pytest.mark.parametrize("depth", [64, 128])
def test_operands_may_lie_along_either_range(gpu: Any, turned: str, depth: int) -> None:
    text = schedule("wgmma128.bf16", 128, 1, 2, depth, 1)
    check(gpu, narrow_product(136, 120, 136, dtypes.bfloat16, turned), text, target=HOPPER)


@pytest.mark.parametrize(
    "unit", units_of("sm_90", dtypes.float16, reads_shared=True), ids=lambda unit: unit.name
)
def test_each_width_of_the_unit_gives_every_result(gpu: Any, unit: MatrixUnit) -> None:
    columns = unit.size("n")
    text = schedule(unit.name, columns, 1, 1, 64, 1)
    check(gpu, narrow_product(64, columns, 64, dtypes.float16), text, target=HOPPER)


def test_other_gpus_have_no_such_unit() -> None:
    assert not units_of("sm_80", dtypes.float16, reads_shared=True)
    assert [unit.name for unit in units_of("sm_90", dtypes.float16)] == ["mma.f16"]


@needs_nvjitlink
@pytest.mark.parametrize(
    "unit,down,written_out,tiles,by",
    [
        ("wgmma256.bf16", 2, 1, 4, ""),
        ("wgmma256.bf16", 2, 1, 4, "bulk"),
        ("wgmma256.bf16", 2, 1, 4, "producer"),
        ("wgmma128.f16", 2, 1, 5, ""),
        ("wgmma128.f16", 1, 2, 4, "bulk"),
    ],
)
def test_ptxas_keeps_accumulators_in_registers(
    unit: str, down: int, written_out: int, tiles: int, by: str
) -> None:
    """No spills, and no word of products that it makes wait for each other."""
    columns, dtype = UNITS[unit].size("n"), UNITS[unit].a
    text = schedule(unit, columns, down, written_out, 64, tiles, by)
    code = compile_kernel(narrow_product(512, 512, 512, dtype), HOPPER, schedule=text)
    found = nvjitlink.assemble(code.image.decode(), "sm_90a", ("-verbose",))
    made = Cubin(found.cubin, "test").kernels[code.entry]
    held = columns * written_out // 2
    assert held < made.registers <= held + 90
    assert not made.stack_bytes and not made.frame_bytes
    assert "0 bytes spill stores, 0 bytes spill loads" in found.log and "serialized" not in found.log


@pytest.mark.parametrize(
    "text,complaint",
    [
        (
            f"split r0 64; split r1 64; split r2 64; {UNIT_64}; unroll r2.1",
            "wgmma64.f16 reads shared memory; stage both operands at a loop of k",
        ),
        (
            f"split r0 64; split r1 64; split r2 32; {UNIT_64}; unroll r2.1; stage 0 r2; stage 1 r2",
            "a swizzled tile is a multiple of 8 of r0 and of 64 of r2, not 64 and 32",
        ),
    ],
)
def test_a_schedule_that_does_not_fit_says_why(text: str, complaint: str) -> None:
    with pytest.raises(ScheduleError, match=complaint):
        compile_kernel(narrow_product(128, 128, 128, dtypes.float16), HOPPER, schedule=text)


# -- tiles that the accelerator brings ------------------------------------------------------------------------------


@pytest.mark.sampled(6)
@pytest.mark.parametrize("road", roads())
@pytest.mark.parametrize("by", ["bulk", "producer"])
@pytest.mark.parametrize("tiles", [2, 3, 4, 5])
def test_tiles_come_by_tensor_maps(gpu: Any, tiles: int, by: str, road: str) -> None:
    """Whole steps, more than there are buffers, so that each mbarrier has several phases; edges read as zeros."""
    text = schedule("wgmma64.bf16", 64, 2, 1, 64, tiles, by)
    code = check(gpu, narrow_product(136, 72, 680, dtypes.bfloat16), text, target=target(road))
    assert code.tensor_maps == ("", "bfloat16 680x136 1360 64x128", "bfloat16 72x680 144 64x64")
    assert code.block[0] == (384 if by == "producer" else 256)


def test_a_tile_of_many_rows_comes_in_boxes_that_divide_it(gpu: Any) -> None:
    text = schedule("wgmma64.f16", 64, 2, 3, 64, 2, "bulk")
    code = check(gpu, narrow_product(392, 64, 136, dtypes.float16), text, target=HOPPER)
    assert code.tensor_maps[1] == "float16 136x392 272 64x192"


@pytest.mark.parametrize("turned", ["a", "b", "ab"])
def test_tensor_maps_turn_as_operands_do(gpu: Any, turned: str) -> None:
    text = schedule("wgmma128.f16", 128, 1, 2, 128, 2, "bulk")
    check(gpu, narrow_product(136, 120, 264, dtypes.float16, turned), text, target=HOPPER)


def test_a_batch_is_a_dimension_of_the_tensor(gpu: Any) -> None:
    a, b = param(1, (3, 64, 136), dtypes.float16), param(2, (3, 136, 72), dtypes.float16)
    wide = [Node(Op.CAST, dtypes.float32, (x,)) for x in (a, b)]
    shape = (3, 64, 136, 72)
    both = expand(reshape(wide[0], 3, 64, 136, 1), *shape) * expand(reshape(wide[1], 3, 1, 136, 72), *shape)
    text = (
        "pad r2 64; pad r3 64; split r1 64; split r2 64; split r3 64; split r3.1 16; matrix r1.1 r2.1 r3.2 "
    )
    text += "wgmma64.f16; unroll r3.1; parallel r0; parallel r1; parallel r2; stage 0 r3; stage 1 r3; "
    text += "pipeline r3 3 bulk"
    code = check(gpu, kernel((out(0, (3, 64, 1, 72)), reduce(both, (2,)))), text, target=HOPPER)
    assert code.tensor_maps[1] == "float16 136x64x3 272x17408 64x64x1"


@pytest.mark.thorough
def test_a_recorded_call_passes_maps_of_the_tensors_of_each_call(gpu: Any) -> None:
    """A replay changes the address inside of the map."""
    rng = np.random.default_rng(3)

    @hcq.jit
    def step(x: Any, y: Any) -> Any:
        return (x @ y).realize()

    for _ in range(4):
        a, b = (rng.integers(-3, 4, shape).astype(np.float16) for shape in ((512, 192), (192, 1024)))
        found = step(hcq.Tensor(a, device="NV").realize(), hcq.Tensor(b, device="NV").realize()).numpy()
        np.testing.assert_array_equal(found, a @ b)


def test_a_tensor_map_that_cannot_be_one_is_refused(gpu: Any) -> None:
    text = schedule("wgmma64.f16", 64, 1, 1, 64, 2, "bulk")
    code = compile_kernel(narrow_product(64, 64, 128, dtypes.float16), HOPPER, schedule=text)
    program = gpu.load(code.image, code.entry, code.args)
    program.set_tensor_maps(code.tensor_maps)
    c, a, b = (gpu.alloc(size) for size in (4 * 64 * 64, 2 * 64 * 128, 2 * 64 * 128 + 8))
    with pytest.raises(UsageError, match=r"argument 2 is at 0x.*8; the kernel copies tiles of a tensor"):
        gpu.run(program, [c, a, b.view(8, 2 * 64 * 128)], grid=code.grid, block=code.block)
    with pytest.raises(UsageError, match="parameter 0 has 8 bytes; a tensor map has 128"):
        program.set_tensor_maps((code.tensor_maps[1],) * 3)
    with pytest.raises(UsageError, match="expected a type of float16, bfloat16, then sizes"):
        program.set_tensor_maps(("", "float32 64x64 128 64x64", ""))


@pytest.mark.parametrize(
    "shape,turned,why",
    [
        ((64, 64, 132), "", "is no tensor with strides of 16 bytes"),
        ((64, 60, 128), "", "is no tensor with strides of 16 bytes"),
    ],
)
def test_what_no_tensor_map_describes_is_not_copied_in_bulk(shape: Any, turned: str, why: str) -> None:
    text = schedule("wgmma64.f16", 64, 1, 1, 64, 3, "bulk")
    with pytest.raises(ScheduleError, match=why):
        compile_kernel(narrow_product(*shape, dtypes.float16, turned), HOPPER, schedule=text)


@pytest.mark.parametrize("seed", seeds(2, of=6))
def test_any_tile_and_any_way_to_copy_computes_the_same(gpu: Any, seed: int) -> None:
    rng = random.Random(seed)
    unit = rng.choice(units_of("sm_90", dtypes.float16, reads_shared=True)[:3])
    down, written_out, depth = rng.choice([1, 2, 3, 4]), rng.choice([1, 2]), rng.choice([64, 128])
    down = 2 if down == 3 else down
    step = (64 * down * written_out + unit.size("n")) * depth * 2
    tiles = rng.randint(1, min(6, 200_000 // step))
    by = rng.choice(["", "bulk", "producer"]) if tiles > 1 else ""
    shape = [8 * rng.randint(1, 30), 8 * rng.randint(1, 20), 8 * rng.randint(1, 60)]
    turned = rng.choice(["", "a", "b", "ab"])
    text = schedule(unit.name, unit.size("n"), down, written_out, depth, tiles, by)
    check(gpu, narrow_product(*shape, dtypes.float16, turned), text, target=HOPPER)


@pytest.mark.parametrize("tiles", [1, 3, 4])
def test_another_reduced_range_around_k_is_a_loop_around_the_pipeline(gpu: Any, tiles: int) -> None:
    """The unit is done with the last tiles of one round before the first of the next are copied over them."""
    a, b = param(1, (3, 64, 320), dtypes.float16), param(2, (3, 320, 64), dtypes.float16)
    wide = [Node(Op.CAST, dtypes.float32, (x,)) for x in (a, b)]
    shape = (3, 64, 320, 64)
    both = expand(reshape(wide[0], 3, 64, 320, 1), *shape) * expand(reshape(wide[1], 3, 1, 320, 64), *shape)
    sink = kernel((out(0, (1, 64, 1, 64)), reduce(both, (0, 2))))
    text = "split r0 64; split r1 64; split r3 64; split r3.1 16; matrix r0.1 r1.1 r3.2 wgmma64.f16; unroll r3.1; "
    text += "parallel r0; parallel r1; stage 0 r3; stage 1 r3"
    check(gpu, sink, text + (f"; pipeline r3 {tiles}" if tiles > 1 else ""), target=HOPPER)
    if tiles > 1:
        with pytest.raises(ScheduleError, match="bulk copies are those of the only loop of a kernel"):
            compile_kernel(sink, HOPPER, schedule=f"{text}; pipeline r3 {tiles} bulk")


@pytest.mark.parametrize("road", roads())
def test_halves_are_stored_by_rows_when_the_producers_have_gone(gpu: Any, road: str) -> None:
    a, b = param(1, (136, 456), dtypes.float16), param(2, (456, 120), dtypes.float16)
    wide = [Node(Op.CAST, dtypes.float32, (x,)) for x in (a, b)]
    narrow = Node(Op.CAST, dtypes.float16, (matmul(*wide),))
    text = schedule("wgmma128.f16", 128, 2, 1, 64, 4, "producer") + "; collect"
    check(gpu, kernel((out(0, (136, 1, 120), dtypes.float16), narrow)), text, target=target(road))


# -- what the heuristic makes of products ---------------------------------------------------------------------------


@pytest.mark.parametrize("k,copies", [(130, "pipeline r2 3"), (136, "pipeline r2 3 bulk")])
def test_large_products_of_halves_are_the_warpgroups(gpu: Any, k: int, copies: str) -> None:
    code = check(gpu, narrow_product(500, 1016, k, dtypes.bfloat16), target=HOPPER)
    assert "wgmma64.bf16" in code.choice and code.choice.endswith(copies)
    assert b"\n.target sm_90a" in code.image


@pytest.mark.parametrize(
    "shape,tile",
    [
        ((4096, 4096, 4096), "wgmma256.bf16"),
        ((8192, 300, 4096), "wgmma256.bf16"),  # 128 blocks: one wave, though two fifths of it are for nothing
        ((1024, 1024, 1024), "wgmma128.bf16"),  # wide tiles would be for 32 cores
        ((128, 4096, 4096), "wgmma64.bf16"),
        ((256, 512, 512), "mma.bf16"),  # too few blocks
        ((8192, 8192, 40), "mma.bf16"),  # most of a swizzled row would be zeros
    ],
)
def test_a_products_shape_says_which_unit_multiplies(shape: Any, tile: str) -> None:
    nest = LoopNest(lower(narrow_product(*shape, dtypes.bfloat16), HOPPER))
    assert f" {tile};" in choose(nest, HOPPER).choice


def test_what_is_computed_behind_the_unit_is_in_its_kernel(gpu: Any) -> None:
    rng = np.random.default_rng(4)
    x, w, b = (rng.integers(-3, 4, shape).astype(np.float16) for shape in ((512, 136), (1024, 136), (1024,)))
    one, two, three = (hcq.Tensor(value, device="NV").realize() for value in (x, w, b))
    made = (one @ two.T + three).relu()
    (launch,) = made.schedule()[0].launches
    assert "wgmma64.f16" in launch.choice and launch.tensor_maps.count("") == 2
    assert launch.choice.endswith("; collect")  # halves
    np.testing.assert_array_equal(made.numpy(), np.maximum(x @ w.T + b, 0))


def test_what_is_computed_on_the_way_to_the_unit_is_not_the_warpgroups() -> None:
    a, b = param(1, (4096, 64), dtypes.float16), param(2, (64, 4096), dtypes.float16)
    sink = kernel(
        (out(0, (4096, 1, 4096)), matmul(*[Node(Op.CAST, dtypes.float32, (x * x,)) for x in (a, b)]))
    )
    assert "wgmma" not in choose(LoopNest(lower(sink, HOPPER)), HOPPER).choice


# -- what is predicted of large products ----------------------------------------------------------------------------


def counted(gpu: Any, k: int) -> Counters:
    """What the large product's schedule does for 2048 x 256 from k: the 16 blocks that are begun together."""
    text = choose(LoopNest(lower(narrow_product(4096, 4096, 4096, dtypes.bfloat16), HOPPER)), HOPPER).choice
    made: list[Counters] = []
    end = counters.listen(lambda _, one: made.append(one))
    try:
        sink = narrow_product(2048, 256, k, dtypes.bfloat16)
        run(gpu, sink, [np.zeros(node.arg.shape, np.float32) for node in parameters(sink)], text, HOPPER)
    finally:
        end()
    (found,) = made
    return found


def test_4096_is_predicted_to_reach_most_of_the_peak(gpu: Any) -> None:
    """From two counts, of so much for a block to begin and end, and so much for each step of 64 along k."""
    short, long = counted(gpu, 320), counted(gpu, 448)
    blocks, steps = 512, (4096 - 320) // 64
    found = dataclasses.replace(long, blocks=blocks, warps=12 * blocks, grid=(blocks, 1, 1))

    def grown(before: int, after: int) -> int:
        return (before + (after - before) // 2 * steps) * blocks // 16

    for name in SUMMED - {"launches", "blocks", "warps"}:
        setattr(found, name, grown(getattr(short, name), getattr(long, name)))
    for name in ("instructions", "matrix_flops"):
        before, after = getattr(short, name), getattr(long, name)
        setattr(found, name, {kind: grown(before.get(kind, 0), after[kind]) for kind in after})
    # four waves, each of 16 blocks down and 9 across, whose operands L2 has once
    found.dram_read_bytes = 4 * (16 * 128 + 9 * 256) * 4096 * 2
    found.dram_write_bytes = 4 * 4096 * 4096
    found.beyond_l2_bytes = found.dram_read_bytes + found.dram_write_bytes
    assert found.matrix_flops == {"bf16": 2 * 4096**3} and found.flops == {}
    assert found.load_sectors * 32 == 2 * (16 * 4096 + 32 * 4096) * 4096
    assert found.bank_conflicts == 0 and found.sector_ratio <= 1.05 and not found.uncounted
    prediction = roofline.predict(found, datasheets.chip("h100"))
    shown = [f"{one.what}: {one.text()}" for one in prediction.bounds]
    assert prediction.arithmetic[0] == "matrix bf16" and prediction.arithmetic[1] >= 0.7, shown


@pytest.mark.parametrize("by", ["", "producer"])
def test_the_source_is_the_one_that_was_reviewed(golden: Any, by: str) -> None:
    nest = LoopNest(lower(narrow_product(256, 64, 512, dtypes.float16), HOPPER))
    nest.apply(schedule("wgmma64.f16", 64, 2, 1, 64, 4, by))
    source = cuda.render(linearize(nest, "product", HOPPER.shared_bytes), "sm_90")
    golden(f"nv/warpgroups{'_' if by else ''}{by}.cu.txt", source)
