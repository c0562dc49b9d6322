"""Products by matrix units on emulated GPUs: what the shader cores count of them.

Tiles of 128 x 128 as the heuristic chooses them for large products, here of 256 x 256 from 192.
"""

from __future__ import annotations

import dataclasses
import shutil
import subprocess
from pathlib import Path

import pytest

import hcq
from hcq.compiler.code_object import CodeObject
from hcq.compiler.codegen import codegen
from hcq.compiler.compile import compile_kernel
from hcq.compiler.loops.loop_nest import LoopNest
from hcq.compiler.pipeline import lower
from hcq.compiler.target import Target, amd_target, nv_target
from hcq.ir.dtype import DType, dtypes
from hcq.performance import counters, datasheets, roofline
from hcq.performance.counters import SUMMED, Counters
from tests.compiler.building import check
from tests.compiler.emulated_gpus import machine_of
from tests.compiler.loops.test_threads import narrow_product

M, N, K = 256, 256, 192
GPUS = {
    "nv:sm_80": ("NV", nv_target("sm_80")),
    "nv:sm_90": ("NV:1", nv_target("sm_90")),
    "amd:gfx942": ("AMD", amd_target("gfx942")),
    "amd:gfx1100": ("AMD:1", amd_target("gfx1100")),
}
FORMATS = {"float16": "f16", "bfloat16": "bf16", "int8": "i8"}

machine = machine_of(*GPUS)


def large(target: Target, dtype: DType) -> str:
    """The schedule of 4096 in each direction; that of a warp's unit on sm_90, too."""
    target = nv_target("sm_80") if target.arch == "sm_90" else target
    nest = LoopNest(lower(narrow_product(4096, 4096, 4096, dtype), target))
    return codegen(target).choose(nest, target).choice


def counted_run(gpu: str, kind: DType, k: int) -> Counters:
    """What a launch of the large product's schedule did for M x N from k; its result is right, too."""
    name, target = GPUS[gpu]
    made: list[Counters] = []
    end = counters.listen(lambda _, one: made.append(one))
    try:
        check(hcq.open(name), narrow_product(M, N, k, kind), large(target, kind), target=target)
    finally:
        end()
    (counted,) = made
    return counted


@pytest.mark.sampled(4)
@pytest.mark.parametrize("dtype", FORMATS)
@pytest.mark.parametrize("gpu", GPUS)
def test_a_large_product_wastes_nothing(machine: None, gpu: str, dtype: str) -> None:
    """Matrix instructions do all the multiplying; no bank is met twice; of every sector each byte is needed."""
    step = 128 // getattr(dtypes, dtype).itemsize  # of k
    k = 3 * step
    counted = counted_run(gpu, getattr(dtypes, dtype), k)
    assert counted.matrix_flops == {FORMATS[dtype]: 2 * M * N * k}
    assert counted.flops == {}
    assert counted.bank_conflicts == 0
    # AMD's threads have the last step in registers a second time, which the L1 still has: L2 is asked once
    steps = k if gpu.startswith("nv") else k + step
    read = getattr(dtypes, dtype).itemsize * (M // 128 * N + N // 128 * M)
    assert counted.load_sectors * counted.sector_bytes == read * steps
    assert counted.l2_bytes - counted.store_sectors * counted.sector_bytes <= 1.01 * read * k
    assert counted.sector_ratio <= 1.05
    assert not counted.uncounted


def of_large(short: Counters, long: Counters, more: int, size: int) -> Counters:
    """What a product of `size` in each direction would do, from two that differ by `more` steps of k and nothing else.

    Each block does so much to begin and to end, and so much for each step of k. L2 has what the blocks that run at a
    time share: so many rows of tiles and all columns, once.
    """
    blocks = (size // 128) ** 2
    made = dataclasses.replace(
        long, blocks=blocks, warps=long.warps // long.blocks * blocks, grid=(blocks, 1, 1)
    )

    def grown(before: float, after: float) -> int:
        return int((before + (after - before) * (size - K) / more) * blocks / long.blocks)

    for field in dataclasses.fields(Counters):
        before, after = getattr(short, field.name), getattr(long, field.name)
        if field.name in SUMMED - {"launches", "blocks", "warps"}:
            setattr(made, field.name, grown(before, after))
        elif isinstance(after, dict):
            setattr(
                made, field.name, {name: grown(before.get(name, 0), count) for name, count in after.items()}
            )
    chip = datasheets.for_arch(long.arch)
    assert chip is not None
    across = size // 128
    rounds = -(-blocks // chip.units)
    made.dram_read_bytes = rounds * (chip.units // across + 2 + across) * 128 * size * 2
    made.dram_write_bytes = 4 * size * size
    made.beyond_l2_bytes = made.dram_read_bytes + made.dram_write_bytes
    return made


# sm_90 has a warpgroup's unit for such a product; a warp's is bound by L2 there, at 0.59 of the other's peak
@pytest.mark.parametrize("gpu", [gpu for gpu in GPUS if gpu != "nv:sm_90"])
def test_4096_is_predicted_to_reach_most_of_the_peak(machine: None, gpu: str) -> None:
    kind, more = dtypes.float16, 128
    found = of_large(counted_run(gpu, kind, K), counted_run(gpu, kind, K + more), more, 4096)
    assert found.matrix_flops == {"f16": 2 * 4096**3}
    assert found.sector_ratio <= 1.05
    chip = datasheets.for_arch(found.arch)
    assert chip is not None
    prediction = roofline.predict(found, chip)
    shown = [f"{one.what}: {one.text()}" for one in prediction.bounds]
    assert prediction.arithmetic[0] == "matrix f16" and prediction.arithmetic[1] >= 0.6, shown


@pytest.mark.parametrize("dtype", FORMATS)
@pytest.mark.parametrize("arch", ["gfx90a", "gfx942", "gfx1100", "gfx1201"])
def test_nothing_is_spilled_on_amd(arch: str, dtype: str) -> None:
    """What the code object says of its kernel."""
    target, kind = amd_target(arch), getattr(dtypes, dtype)
    code = compile_kernel(narrow_product(M, N, K, kind), target, schedule=large(target, kind))
    said = metadata(code)
    for name in (".vgpr_spill_count", ".sgpr_spill_count", ".private_segment_fixed_size"):
        assert said[name] == 0
    assert said[".vgpr_count"] <= 256  # two waves of a SIMD, or more


@pytest.mark.parametrize("dtype", FORMATS)
@pytest.mark.parametrize("arch", ["sm_80", "sm_90"])
def test_nothing_is_spilled_on_nvidia(arch: str, dtype: str, tmp_path: Path) -> None:
    ptxas = shutil.which("ptxas")
    if ptxas is None:
        pytest.skip("ptxas, of the CUDA toolkit, is not installed")
    target, kind = nv_target(arch), getattr(dtypes, dtype)
    code = compile_kernel(narrow_product(M, N, K, kind), target, schedule=large(target, kind))
    (tmp_path / "k.ptx").write_bytes(code.image.rstrip(b"\0"))
    command = [ptxas, "-v", "-arch", arch, "k.ptx", "-o", "k.cubin"]
    said = subprocess.run(
        command, cwd=tmp_path, capture_output=True, text=True, check=True, timeout=120
    ).stderr
    assert "0 bytes spill stores, 0 bytes spill loads" in said


def metadata(code: CodeObject) -> dict[str, int]:
    """The numbers of a kernel in an AMD code object's notes, which are MessagePack."""
    found = {}
    for name in (".vgpr_count", ".vgpr_spill_count", ".sgpr_spill_count", ".private_segment_fixed_size"):
        at = code.image.index(name.encode()) + len(name)
        first = code.image[at]
        width = {0xCC: 1, 0xCD: 2, 0xCE: 4}.get(first, 0)
        found[name] = int.from_bytes(code.image[at + 1 : at + 1 + width], "big") if width else first
    return found
