"""Products of bytes by matrix units: exact on every emulated GPU, however operands lie and whatever their signs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import hcq
from hcq.compiler.codegen import compile_with
from hcq.compiler.loops.heuristic_gpu import choose
from hcq.compiler.loops.loop_nest import LoopNest
from hcq.compiler.loops.matrix_units import UNITS, MatrixUnit, units_of
from hcq.compiler.loops.nest import ScheduleError
from hcq.compiler.pipeline import lower
from hcq.compiler.target import Target, Toolchain, amd_target, nv_target
from hcq.ir.dtype import DType, dtypes
from hcq.ir.node import Node
from hcq.ir.op import Op
from hcq.nv.toolchain import images
from tests.compiler.building import check, expand, kernel, matmul, out, param, reduce, reshape, run
from tests.compiler.emulated_gpus import machine_of
from tests.compiler.loops.test_threads import narrow_product
from tests.hcq.emu.nv.shader.running import needs_nvrtc

S8, U8 = dtypes.int8, dtypes.uint8
GPUS = {
    "nv:sm_80": ("NV", nv_target("sm_80")),
    "amd:gfx90a": ("AMD", amd_target("gfx90a")),
    "amd:gfx942": ("AMD:1", amd_target("gfx942")),
    "amd:gfx1100": ("AMD:2", amd_target("gfx1100")),
    "amd:gfx1201": ("AMD:3", amd_target("gfx1201")),
    "amd:gfx950": ("AMD:4", amd_target("gfx950")),
}
ROADS = [*GPUS, pytest.param("cuda", marks=needs_nvrtc)]
SIGNS = [(S8, S8), (U8, U8), (S8, U8), (U8, S8)]
OF_BYTES = [unit for unit in UNITS.values() if unit.a.itemsize == 1]
LONG, RAGGED = (72, 80, 288), (70, 90, 273)  # several steps along k, staged

machine = machine_of(*GPUS)


@pytest.fixture(params=ROADS)
def gpu(request: pytest.FixtureRequest, machine: None) -> tuple[Any, Target]:
    """A device and what its kernels are made for; "cuda": NVIDIA's by nvrtc."""
    if request.param == "cuda":
        target = compile_with(nv_target("sm_80"), Toolchain("test", "cuda", images.ptx_of_cuda))
        return hcq.open("NV"), target
    name, target = GPUS[request.param]
    return hcq.open(name), target


def takes(target: Target, a: DType, b: DType) -> bool:
    return bool(units_of(target.arch, a, b))


@pytest.mark.sampled(8)
@pytest.mark.parametrize(
    "turned,shape",
    [("", RAGGED), ("a", LONG), ("b", LONG), ("ab", RAGGED)],
    ids=["ragged", "a-turned", "b-turned", "both-turned-ragged"],
)
def test_products_of_bytes_are_the_matrix_units(gpu: tuple[Any, Target], turned: str, shape: Any) -> None:
    device, target = gpu
    code = check(device, narrow_product(*shape, S8, turned=turned), target=target)
    assert any(f" {unit.name}; " in code.choice for unit in units_of(target.arch, S8))
    assert "stage 0" in code.choice and "stage 1" in code.choice


@pytest.mark.sampled(8)
@pytest.mark.parametrize("a,b", SIGNS, ids=lambda dtype: dtype.name)
def test_the_largest_bytes_of_any_sign_give_exact_sums(gpu: tuple[Any, Target], a: DType, b: DType) -> None:
    """Whether a unit takes them or the GPU's ordinary instructions."""
    device, target = gpu
    m, n, k = LONG
    rng = np.random.default_rng(0)
    ends = {S8: np.array([-128, 127], np.int8), U8: np.array([0, 255], np.uint8)}
    x, y = rng.choice(ends[a], (m, k)), rng.choice(ends[b], (k, n))
    got, code = run(
        device, narrow_product(m, n, k, a, b), [np.zeros((m, 1, n), np.int32), x, y], target=target
    )
    assert np.array_equal(x.astype(np.int32) @ y.astype(np.int32), got[0][:, 0])
    assert ("matrix" in code.choice) is takes(target, a, b)


def test_units_take_both_signs_but_those_of_cdna() -> None:
    for _, target in GPUS.values():
        taken = [signs for signs in SIGNS if takes(target, *signs)]
        assert taken == ([(S8, S8)] if target.arch in ("gfx90a", "gfx942", "gfx950") else SIGNS)


@pytest.mark.parametrize("unit", OF_BYTES, ids=lambda unit: unit.name)
def test_a_unit_of_bytes_adds_up_in_32_bits_and_a_thread_reads_whole_words_of_k(unit: MatrixUnit) -> None:
    assert unit.result is (dtypes.float32 if unit.a.is_float else dtypes.int32)
    assert unit.k[-1][0] % 4 == 0


def test_only_sums_in_the_units_own_format_are_its_own() -> None:
    """Bytes that are added up as floats, or halves as float64 or as integers, are no products of a unit."""
    target = nv_target("sm_80")
    for narrow, wide in (
        (S8, dtypes.float32),
        (dtypes.float16, dtypes.float64),
        (dtypes.float16, dtypes.int32),
    ):
        a, b = (Node(Op.CAST, wide, (param(i, (64, 64), narrow),)) for i in (1, 2))
        sink = lower(kernel((out(0, (64, 1, 64), wide), matmul(a, b))), target)
        assert "matrix" not in choose(LoopNest(sink), target).choice
        nest = LoopNest(sink).apply("split r0 16; split r1 16; split r2 32")
        if narrow is S8:
            with pytest.raises(ScheduleError, match="the sum is of float32, the unit's of int32"):
                nest.matrix("r0.1", "r1.1", "r2.1", "mma.s8")


@pytest.mark.parametrize("name", ["nv:sm_80", "amd:gfx1100"])
def test_weights_that_attention_makes_of_sums_of_bytes_stay_floats(machine: None, name: str) -> None:
    """The second product is no unit's: that would take the weights, which are at most one, as bytes."""
    n, m, d = 32, 48, 16
    q, k, v = (param(i, shape, S8) for i, shape in ((1, (n, d)), (2, (m, d)), (3, (m, d))))
    wide = [
        expand(reshape(Node(Op.CAST, dtypes.int32, (x,)), *shape), n, m, d)
        for x, shape in zip((q, k), ((n, 1, d), (1, m, d)))
    ]
    scores = Node(Op.CAST, dtypes.float32, (reduce(wide[0] * wide[1], (2,)),)) * 0.001
    top = expand(reduce(scores, (1,), Op.MAX), n, m, 1)
    made = Node(Op.EXP, dtypes.float32, (scores + Node(Op.NEG, dtypes.float32, (top,)),))
    values = expand(reshape(Node(Op.CAST, dtypes.float32, (v,)), 1, m, d), n, m, d)
    sums = reduce(expand(made, n, m, d) * values, (1,))
    mean = Node(Op.DIV, dtypes.float32, (sums, expand(reduce(made, (1,)), n, 1, d)))
    device, target = hcq.open(GPUS[name][0]), GPUS[name][1]
    code = check(
        device, kernel((out(0, (n, 1, d), dtypes.float16), mean.cast(dtypes.float16))), target=target
    )
    assert "chain" not in code.choice


def test_a_unit_of_other_signs_is_refused() -> None:
    nest = LoopNest(lower(narrow_product(64, 64, 64, S8, U8), nv_target("sm_80")))
    nest.apply("split r0 16; split r1 16; split r2 32")
    with pytest.raises(ScheduleError, match="a factor is int8, the unit takes uint8"):
        nest.matrix("r0.1", "r1.1", "r2.1", "mma.u8s8")
