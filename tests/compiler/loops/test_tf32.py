"""Products of float32 by NVIDIA's matrix units: only where it is asked for, and rounded as the hardware does."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import hcq
from hcq import Tensor, config
from hcq.compiler.codegen import compile_with
from hcq.compiler.linear.linearize import linearize
from hcq.compiler.loops.heuristic_gpu import choose
from hcq.compiler.loops.loop_nest import LoopNest
from hcq.compiler.loops.matrix_units import units_of
from hcq.compiler.pipeline import lower
from hcq.compiler.target import Target, Toolchain, allowing, amd_target, cpu_target, nv_target
from hcq.ir.dtype import dtypes
from hcq.ir.node import Node
from hcq.ir.op import Op
from hcq.nv.toolchain import images
from hcq.performance import counters
from hcq.performance.counters import Counters
from tests.compiler.building import emulating, kernel, matmul, out, param, permute, run
from tests.compiler.shared_memory import bank_conflicts
from tests.hcq.emu.nv.shader.running import needs_nvrtc

F32 = dtypes.float32
WORDS = frozenset({"tf32"})
SM_80 = nv_target("sm_80")
LARGE, RAGGED = (64, 72, 96), (70, 90, 51)


@pytest.fixture(scope="module")
def device() -> Iterator[Any]:
    with emulating("nv:sm_80"):
        yield hcq.open("NV")


def target_of(road: str) -> Target:
    if road == "ptx":
        return allowing(SM_80, WORDS)
    return allowing(compile_with(SM_80, Toolchain("test", "cuda", images.ptx_of_cuda)), WORDS)


def product(m: int, n: int, k: int, turned: str = "") -> Node:
    a = permute(param(1, (k, m)), 1, 0) if "a" in turned else param(1, (m, k))
    b = permute(param(2, (n, k)), 1, 0) if "b" in turned else param(2, (k, n))
    return kernel((out(0, (m, 1, n)), matmul(a, b)))


def rounded(x: Any) -> Any:
    """To the nearest number of 10 bits of fraction, of two the one further from zero, by arithmetic in float64."""
    fraction, exponent = np.frexp(x.astype(np.float64))
    steps = np.trunc(np.abs(fraction) * 2.0**11 + 0.5)
    return np.copysign(np.ldexp(steps, exponent - 11), x)


@pytest.mark.parametrize("road", ["ptx", pytest.param("cuda", marks=needs_nvrtc)])
@pytest.mark.parametrize("turned", ["", "a", "b"])
@pytest.mark.parametrize("shape", [LARGE, RAGGED], ids=["whole", "ragged"])
def test_factors_are_rounded_to_tf32_and_sums_are_not(
    device: Any, road: str, turned: str, shape: Any
) -> None:
    m, n, k = shape
    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal(size).astype(np.float32) for size in ((m, k), (k, n)))
    a[0, :4] = [
        1 + 2.0**-11,
        -1 - 2.0**-11,
        1 + 3 * 2.0**-11,
        1 + 2.0**-11 - 2.0**-23,
    ]  # ties, and just below one
    arrays = [
        np.zeros((m, 1, n), np.float32),
        a.T.copy() if turned == "a" else a,
        b.T.copy() if turned == "b" else b,
    ]
    got, code = run(device, product(*shape, turned), arrays, target=target_of(road))
    assert " mma.tf32; " in code.choice
    np.testing.assert_allclose(got[0][:, 0], rounded(a) @ rounded(b), rtol=2e-6, atol=2e-5)
    assert not np.allclose(got[0][:, 0], a.astype(np.float64) @ b, rtol=2e-6, atol=2e-5)


def test_numbers_of_ten_bits_are_multiplied_exactly_and_what_is_no_number_stays_none(device: Any) -> None:
    m, n, k = LARGE
    rng = np.random.default_rng(1)
    a, b = (rng.integers(-1024, 1025, size).astype(np.float32) for size in ((m, k), (k, n)))
    a[0, 0], a[1, 0], b[0] = np.inf, np.nan, np.abs(b[0]) + 1
    got, _ = run(device, product(m, n, k), [np.zeros((m, 1, n), np.float32), a, b], target=target_of("ptx"))
    assert np.array_equal(a.astype(np.float64) @ b, got[0][:, 0], equal_nan=True)


@pytest.mark.parametrize("turned", ["", "a", "b", "ab"])
def test_a_large_product_meets_no_bank_twice(turned: str) -> None:
    target = allowing(SM_80, WORDS)
    text = choose(LoopNest(lower(product(4096, 4096, 4096, turned), target)), target).choice
    assert "mma.tf32" in text and "pipeline r2 3" in text
    program = linearize(LoopNest(lower(product(256, 256, 64, turned), target)).apply(text), "k")
    assert bank_conflicts(program, "nv", 32) == 0
    rounds = [it for it in program.instructions if it.op is Op.ROUND_TF32]
    multiplied = [it for it in program.instructions if it.op is Op.MATRIX]
    assert len(rounds) * 2 < len(multiplied)  # a fragment once, however many it meets


def test_it_is_off_unless_it_is_asked_for() -> None:
    assert not units_of("sm_80", F32)
    assert "matrix" not in choose(LoopNest(lower(product(*LARGE), SM_80)), SM_80).choice
    allowed = allowing(SM_80, WORDS)
    assert allowed.key != SM_80.key and allowing(allowed, WORDS) is allowed
    for other in (amd_target("gfx942"), cpu_target()):
        assert allowing(other, WORDS) is other


def test_the_switch_gives_tensors_the_unit() -> None:
    x, y = (np.random.default_rng(seed).standard_normal((64, 64)).astype(np.float32) for seed in (2, 3))
    with emulating("nv:sm_80", "nv:sm_86"):
        config.use(
            dataclasses.replace(config.current(), inexact=WORDS)
        )  # read when a device opens: here the second one
        made: list[Counters] = []
        with_unit = Tensor(x, device="NV:1") @ Tensor(y, device="NV:1")
        end = counters.listen(lambda _, one: made.append(one))
        try:
            got = with_unit.numpy()
        finally:
            end()
    assert made[-1].matrix_flops == {"tf32": 2 * 64**3} and made[-1].flops == {}
    np.testing.assert_allclose(got, rounded(x) @ rounded(y), rtol=2e-6, atol=2e-5)
