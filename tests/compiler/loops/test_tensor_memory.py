"""Products whose sums are kept in tensor memory: right on an emulated sm_100, and as ptxas likes them."""

from __future__ import annotations

import random
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import hcq
from hcq.compiler.codegen import compile_with
from hcq.compiler.compile import compile_kernel
from hcq.compiler.loops.heuristic_gpu import choose
from hcq.compiler.loops.loop_nest import LoopNest
from hcq.compiler.loops.matrix_units import units_of
from hcq.compiler.loops.nest import ScheduleError
from hcq.compiler.pipeline import lower
from hcq.compiler.target import Target, Toolchain, nv_target
from hcq.ir.dtype import dtypes
from hcq.ir.node import Node
from hcq.ir.op import Op
from hcq.nv.toolchain import images
from tests.compiler.building import check, emulating, expand, kernel, out, param, reduce, reshape
from tests.compiler.loops.test_warpgroups import narrow_product
from tests.hcq.emu.nv.shader.running import needs_nvrtc
from tests.turns import seeds

BLACKWELL = nv_target("sm_100")
ROADS = ["ptx", pytest.param("cuda", marks=needs_nvrtc)]
F16, BF16 = dtypes.float16, dtypes.bfloat16


@pytest.fixture(scope="module")
def gpu() -> Iterator[Any]:
    with emulating("nv:sm_100"):
        yield hcq.open("NV")


def target(road: str) -> Target:
    if road == "ptx":
        return BLACKWELL
    return compile_with(BLACKWELL, Toolchain("test", "cuda", images.ptx_of_cuda))


def schedule(unit: str, columns: int, rows: int = 128, depth: int = 64, tiles: int = 1, by: str = "") -> str:
    """Blocks of `rows` x `columns`, which are tiles of 128 rows and as many columns as the unit's name says."""
    width = int(unit.partition(".")[0].removeprefix("tcgen05x"))
    text = f"pad r0 {rows}; pad r1 {columns}; pad r2 {depth}; split r0 {rows}; split r0.1 128; "
    text += f"split r1 {columns}; split r1.1 {width}; split r2 {depth}; split r2.1 16; matrix r0.2 r1.2 r2.2 {unit}; "
    text += "unroll r0.1; unroll r1.1; unroll r2.1; parallel r0; parallel r1; stage 0 r2; stage 1 r2"
    return text + (f"; pipeline r2 {tiles} {by}" if tiles > 1 else "")


@pytest.mark.sampled(6)
@pytest.mark.parametrize("road", ROADS)
@pytest.mark.parametrize("dtype,kind", [(F16, "f16"), (BF16, "bf16")], ids=["f16", "bf16"])
@pytest.mark.parametrize("shape", [(128, 64, 64), (256, 128, 64), (192, 96, 80)], ids=str)
def test_sums_in_tensor_memory_are_the_products(
    gpu: Any, shape: Any, dtype: Any, kind: str, road: str
) -> None:
    check(gpu, narrow_product(*shape, dtype), schedule(f"tcgen05x64.{kind}", 64), target=target(road))


@pytest.mark.parametrize("by", ["", "bulk"], ids=["copied", "bulk"])
@pytest.mark.parametrize("tiles", [2, 3, 4, 5])
def test_every_step_ends_a_phase_of_the_mbarrier(gpu: Any, tiles: int, by: str) -> None:
    """More steps than there are buffers; halves are stored by rows through the memory that the tiles had."""
    text = schedule("tcgen05x64.f16", 64, tiles=tiles, by=by) + "; collect"
    check(gpu, narrow_product(136, 72, 680, F16), text, target=BLACKWELL)


@pytest.mark.sampled(4)
@pytest.mark.parametrize("turned", ["", "a", "b", "ab"])
@pytest.mark.parametrize("depth", [64, 128])
def test_operands_may_lie_along_either_range(gpu: Any, turned: str, depth: int) -> None:
    text = schedule("tcgen05x128.bf16", 128, depth=depth, tiles=3)
    check(gpu, narrow_product(136, 120, 264, BF16, turned), text, target=BLACKWELL)


@pytest.mark.parametrize("seed", seeds(2, of=6))
def test_any_tile_and_any_way_to_copy_computes_the_same(gpu: Any, seed: int) -> None:
    rng = random.Random(seed)
    unit = rng.choice(units_of("sm_100", F16, reads_shared=True))
    columns, rows, depth = unit.size("n") * rng.choice([1, 2]), rng.choice([128, 256]), rng.choice([64, 128])
    if columns * rows > 128 * 256:
        columns //= 2
    tiles = rng.randint(1, min(5, 200_000 // ((rows + columns) * depth * 2)))
    by = rng.choice(["", "bulk"]) if tiles > 1 else ""
    shape = [8 * rng.randint(1, 40), 8 * rng.randint(1, 30), 8 * rng.randint(1, 60)]
    text = schedule(unit.name, columns, rows, depth, tiles, by) + rng.choice(["", "; collect"])
    check(gpu, narrow_product(*shape, F16, rng.choice(["", "a", "b", "ab"])), text, target=BLACKWELL)


def test_another_reduced_range_around_k_adds_to_the_same_sums(gpu: Any) -> None:
    a, b = param(1, (3, 128, 320), F16), param(2, (3, 320, 64), F16)
    wide = [Node(Op.CAST, dtypes.float32, (x,)) for x in (a, b)]
    shape = (3, 128, 320, 64)
    both = expand(reshape(wide[0], 3, 128, 320, 1), *shape) * expand(reshape(wide[1], 3, 1, 320, 64), *shape)
    text = "split r0 128; split r1 64; split r3 64; split r3.1 16; matrix r0.1 r1.1 r3.2 tcgen05x64.f16; unroll r3.1; "
    text += "parallel r0; parallel r1; stage 0 r3; stage 1 r3; pipeline r3 3"
    check(gpu, kernel((out(0, (1, 128, 1, 64)), reduce(both, (0, 2)))), text, target=BLACKWELL)


@pytest.mark.parametrize(
    "unit,columns,rows,tiles,by",
    [
        ("tcgen05x128.bf16", 128, 128, 4, "bulk"),
        ("tcgen05x64.f16", 128, 128, 3, ""),
        ("tcgen05x64.f16", 64, 256, 1, ""),
    ],
)
def test_ptxas_takes_them_and_spills_nothing(
    tmp_path: Path, unit: str, columns: int, rows: int, tiles: int, by: str
) -> None:
    ptxas = shutil.which("ptxas")
    if (
        ptxas is None
        or "sm_100a" not in subprocess.run([ptxas, "--help"], capture_output=True, text=True).stdout
    ):
        pytest.skip("ptxas, of the CUDA toolkit 12.8 or later, is not installed")
    text = schedule(unit, columns, rows, tiles=tiles, by=by) + "; collect"
    dtype = BF16 if unit.endswith("bf16") else F16
    code = compile_kernel(narrow_product(512, 512, 512, dtype), BLACKWELL, schedule=text)
    (tmp_path / "k.ptx").write_bytes(code.image.rstrip(b"\0"))
    command = [ptxas, "-v", "-arch", "sm_100a", "k.ptx", "-o", "k.cubin"]
    said = subprocess.run(
        command, cwd=tmp_path, capture_output=True, text=True, check=True, timeout=120
    ).stderr
    assert "0 bytes spill stores, 0 bytes spill loads" in said and "serialized" not in said


@pytest.mark.parametrize(
    "change,complaint",
    [
        (("; stage 1 r2", ""), "tcgen05x64.f16 reads shared memory; stage both operands at a loop of k"),
        (
            ("split r0 128; split r0.1 128; ", "split r0 256; split r0.1 128; "),
            "is for blocks of 128 threads, not 256",
        ),
    ],
    ids=["not-staged", "two-warpgroups"],
)
def test_a_schedule_that_does_not_fit_says_why(change: tuple[str, str], complaint: str) -> None:
    text = schedule("tcgen05x64.f16", 64).replace(*change)
    if "256" in complaint:
        text = text.replace("pad r0 128", "pad r0 256").replace("unroll r0.1", "thread r0.1")
    with pytest.raises(ScheduleError, match=complaint):
        compile_kernel(narrow_product(256, 128, 128, F16), BLACKWELL, schedule=text)


def test_more_sums_than_a_block_has_columns_are_refused() -> None:
    text = schedule("tcgen05x128.f16", 128, 640)
    with pytest.raises(ScheduleError, match="1024 columns of tensor memory; a block has 512"):
        compile_kernel(narrow_product(640, 128, 128, F16), BLACKWELL, schedule=text)


@pytest.mark.parametrize(
    "shape,unit",
    [
        ((4096, 4096, 4096), "tcgen05x128.bf16"),
        ((1024, 1024, 1024), "tcgen05x64.bf16"),
        ((256, 256, 512), "mma.bf16"),  # too few blocks
        ((8192, 8192, 40), "mma.bf16"),  # most of a swizzled row would be zeros
    ],
)
def test_a_products_shape_says_which_unit_multiplies(shape: Any, unit: str) -> None:
    nest = LoopNest(lower(narrow_product(*shape, BF16), BLACKWELL))
    assert f" {unit};" in choose(nest, BLACKWELL).choice


def test_a_layer_of_the_tensor_layer_is_one_kernel_of_it(gpu: Any) -> None:
    rng = np.random.default_rng(4)
    x, w, b = (rng.integers(-3, 4, shape).astype(np.float16) for shape in ((1024, 136), (512, 136), (512,)))
    one, two, three = (hcq.Tensor(value, device="NV").realize() for value in (x, w, b))
    made = (one @ two.T + three).relu()
    (launch,) = made.schedule()[0].launches
    assert "tcgen05x64.f16" in launch.choice and launch.choice.endswith("; collect")
    assert b"\n.target sm_100a" in launch.image
    np.testing.assert_array_equal(made.numpy(), np.maximum(x @ w.T + b, 0))
