"""Floats of 8 bits on GPUs: every one widens to its value; matrix units multiply them where they have the formats."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import hcq
from hcq.compiler.assemble.llvm_gpu import own_target
from hcq.compiler.codegen import compile_with
from hcq.compiler.compile import compile_kernel
from hcq.compiler.loops.heuristic_gpu import choose
from hcq.compiler.loops.loop_nest import LoopNest
from hcq.compiler.loops.matrix_units import units_of
from hcq.compiler.loops.nest import ScheduleError
from hcq.compiler.pipeline import lower
from hcq.compiler.target import Target, Toolchain, allowing, amd_target, nv_target
from hcq.ir.dtype import DType, dtypes, from_bits
from hcq.ir.node import Node
from hcq.ir.op import Op
from hcq.nv.toolchain import images
from tests.compiler.building import check, kernel, out, param, run
from tests.compiler.emulated_gpus import machine_of
from tests.compiler.loops.test_nested import narrow_attention
from tests.compiler.loops.test_threads import narrow_product
from tests.hcq.emu.nv.shader.running import needs_nvrtc

E4, E5 = dtypes.fp8e4m3, dtypes.fp8e5m2
FORMATS = [(E4, E4), (E5, E5), (E4, E5), (E5, E4)]
GPUS = {
    "nv:sm_89": ("NV", nv_target("sm_89")),
    "nv:sm_80": ("NV:1", nv_target("sm_80")),
    "amd:gfx1201": ("AMD", amd_target("gfx1201")),
    "amd:gfx942": ("AMD:1", amd_target("gfx942")),
    "amd:gfx950": ("AMD:2", amd_target("gfx950")),
}
ROADS = [*GPUS, pytest.param("cuda", marks=needs_nvrtc)]
LONG, RAGGED = (72, 80, 288), (70, 90, 273)

machine = machine_of(*GPUS)


def on(road: str) -> tuple[Any, Target]:
    """A device and what its kernels are made for, products of 8-bit floats allowed."""
    if road == "cuda":
        target = compile_with(nv_target("sm_89"), Toolchain("test", "cuda", images.ptx_of_cuda))
        return hcq.open("NV"), allowing(target, {"fp8"})
    name, target = GPUS[road]
    return hcq.open(name), allowing(target, {"fp8"})


@pytest.mark.parametrize("dtype", [E4, E5], ids=lambda dtype: dtype.name)
@pytest.mark.parametrize("road", ROADS)
def test_every_number_of_eight_bits_widens_to_its_value(machine: None, road: str, dtype: DType) -> None:
    device, target = on(road)
    numbers = np.array([from_bits(bits, dtype) for bits in range(256)], np.float32)
    sink = kernel((out(0, (256,)), Node(Op.CAST, dtypes.float32, (param(1, (256,), dtype),))))
    got, _ = run(device, sink, [np.zeros(256, np.float32), numbers], target=target)
    assert np.array_equal(numbers, got[0], equal_nan=True)
    numbers, found = (x[~np.isnan(numbers)] for x in (numbers, got[0]))
    assert np.array_equal(np.signbit(numbers), np.signbit(found))  # -0.0


@pytest.mark.sampled(8)
@pytest.mark.parametrize("turned,shape", [("", RAGGED), ("b", LONG)], ids=["ragged", "b-turned"])
@pytest.mark.parametrize("a,b", FORMATS, ids=lambda dtype: dtype.name)
@pytest.mark.parametrize(
    "road", ["nv:sm_89", "amd:gfx1201", "amd:gfx950", pytest.param("cuda", marks=needs_nvrtc)]
)
def test_products_of_byte_floats_are_the_matrix_units(
    machine: None, road: str, a: DType, b: DType, turned: str, shape: Any
) -> None:
    device, target = on(road)
    units = units_of(target.arch, a, b, flags=target.flags)
    code = check(device, narrow_product(*shape, a, b, turned), target=target)
    assert any(f" {unit.name}; " in code.choice for unit in units) and "stage 0" in code.choice


@pytest.mark.sampled(6)
@pytest.mark.parametrize(
    "shape,formats,turned",
    [
        (RAGGED, (E4, E4), ""),
        (LONG, (E4, E5), "b"),
        (LONG, (E5, dtypes.float16), ""),
        (LONG, (dtypes.float16, E4), "a"),
    ],
    ids=["ragged", "both-turned", "left-wide", "right-wide"],
)
@pytest.mark.parametrize("road", GPUS)
def test_units_without_these_formats_take_them_as_halves(
    machine: None, road: str, shape: Any, formats: tuple[DType, DType], turned: str
) -> None:
    """gfx942 has formats of its own, in which the same bits are other numbers; NVIDIA's units are asked for."""
    device, target = hcq.open(GPUS[road][0]), GPUS[road][1]
    code = check(device, narrow_product(*shape, *formats, turned), target=target)
    units = units_of(target.arch, *formats) or units_of(target.arch, dtypes.float16)
    assert any(f" {unit.name}; " in code.choice for unit in units)
    assert "stage 0" in code.choice and "stage 1" in code.choice


@pytest.mark.parametrize("road", ["nv:sm_89", "amd:gfx1201"])
def test_what_attention_makes_of_scores_is_never_rounded_to_eight_bits(machine: None, road: str) -> None:
    """Weights are for threads to multiply: the unit would take them in its own format, of three bits."""
    device, target = on(road)
    sink = narrow_attention(40, 36, 16, E4, dtypes.float16)
    assert "chain" not in check(device, sink, target=target).choice
    (unit,) = units_of(target.arch, E4, flags=target.flags)
    m, n, k = (unit.size(dimension) for dimension in "mnk")
    nest = LoopNest(lower(narrow_attention(m, n, k, E4, dtypes.float16), target))
    nest.apply(f"matrix r0 r2 r3 {unit.name}")
    with pytest.raises(ScheduleError, match="what was made is not rounded to fp8e4m3"):
        nest.chain(nest.axes[1].loops[-1].name)


def test_ptxas_takes_a_large_product_and_spills_nothing(tmp_path: Path) -> None:
    ptxas = shutil.which("ptxas")
    if ptxas is None:
        pytest.skip("ptxas, of the CUDA toolkit, is not installed")
    arch, target = "sm_89", allowing(nv_target("sm_89"), {"fp8"})
    large = choose(LoopNest(lower(narrow_product(4096, 4096, 4096, E4), target)), target).choice
    code = compile_kernel(narrow_product(256, 256, 192, E4), target, schedule=large)
    (tmp_path / "k.ptx").write_bytes(code.image.rstrip(b"\0"))
    command = [ptxas, "-v", "-arch", arch, "k.ptx", "-o", "k.cubin"]
    said = subprocess.run(
        command, cwd=tmp_path, capture_output=True, text=True, check=True, timeout=120
    ).stderr
    assert "0 bytes spill stores, 0 bytes spill loads" in said


def test_what_needs_a_later_ptx_says_so() -> None:
    plain = nv_target("sm_89")
    assert own_target("mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e4m3.f32", plain).features == "+ptx84"
    assert own_target("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32", plain) is plain
