"""Attention by units that read shared memory, on emulated sm_90 and sm_100, beside float64; and as ptxas likes it."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import hcq
from hcq import Tensor
from hcq.compiler.codegen import compile_with
from hcq.compiler.compile import compile_kernel
from hcq.compiler.linear.linearize import linearize
from hcq.compiler.loops.heuristic_gpu import choose
from hcq.compiler.loops.loop_nest import LoopNest
from hcq.compiler.loops.nest import ScheduleError
from hcq.compiler.pipeline import lower
from hcq.compiler.target import Target, Toolchain, amd_target, nv_target
from hcq.frontend.core.structure import structure_of
from hcq.frontend.schedule import nested, scores
from hcq.frontend.schedule.schedule import schedule
from hcq.ir.dtype import DType, dtypes
from hcq.ir.node import Node
from hcq.ir.op import Op
from hcq.nv.cubin import Cubin
from hcq.nv.toolchain import images, nvjitlink
from hcq.observe.sanitizer import Sanitizer
from tests.compiler.building import check, emulating
from tests.compiler.loops.test_nested import narrow_attention
from tests.hcq.emu.nv.shader.running import needs_nvjitlink, needs_nvrtc

pytestmark = pytest.mark.own_devices

HOPPER, BLACKWELL = nv_target("sm_90"), nv_target("sm_100")
KINDS = {dtypes.float16: 2e-3, dtypes.bfloat16: 1.6e-2}


@pytest.fixture(scope="module")
def gpus() -> Iterator[dict[str, Any]]:
    """Both, and both with sanitizers."""
    archs = "sm_90", "sm_100"
    with emulating(*[f"nv:{arch}" for arch in (*archs, *archs)]):
        found = {arch: hcq.open(f"NV:{number}") for number, arch in enumerate(archs)}
        for number, arch in enumerate(archs, 2):
            found[f"sanitized {arch}"] = hcq.open(f"NV:{number}", sanitize="memory,race,wait,init")
        yield found


@pytest.fixture(autouse=True)
def never_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also the scores of short sequences are made tile by tile."""
    monkeypatch.setattr(scores, "LARGE_SCORES", 1)
    monkeypatch.setattr(scores, "SAVED", 0)
    monkeypatch.setattr(nested, "SAVED", 0)


def numbers(shape: tuple[int, ...], seed: int) -> Any:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def exact(q: Any, k: Any, v: Any, allowed: Any) -> Any:
    """In float64, of rows that may look at what is allowed."""
    found = q @ np.swapaxes(k, -1, -2) / np.sqrt(q.shape[-1])
    found = np.where(allowed, found, -np.inf)
    weights = np.exp(found - found.max(-1, keepdims=True))
    return weights / weights.sum(-1, keepdims=True) @ v


def choices(out: Tensor, target: Target) -> list[str]:
    """The schedules of the kernels that compute a tensor."""
    made = schedule(
        [out.node], structure_of([out.node]).storages, target.threads, [dtypes.float16, dtypes.bfloat16]
    )
    return [choose(LoopNest(lower(kernel.sink, target)), target).choice for kernel in made.kernels]


@pytest.mark.parametrize("dtype", KINDS, ids=lambda dtype: dtype.name)
@pytest.mark.parametrize("is_causal", [False, True], ids=["all", "causal"])
@pytest.mark.parametrize(
    "target,heads,rows,keys,width",
    [
        (HOPPER, 2, 128, 192, 64),
        (HOPPER, 1, 200, 200, 64),
        pytest.param(HOPPER, 1, 64, 333, 64, marks=pytest.mark.thorough),
        (HOPPER, 1, 192, 128, 128),
        pytest.param(HOPPER, 2, 130, 70, 128, marks=pytest.mark.thorough),
        (BLACKWELL, 2, 128, 192, 64),
        (BLACKWELL, 1, 200, 200, 64),
        pytest.param(BLACKWELL, 1, 256, 70, 64, marks=pytest.mark.thorough),
    ],
    ids=lambda one: getattr(one, "arch", str(one)),
)
def test_attention_is_float64s(
    gpus: dict[str, Any],
    target: Target,
    heads: int,
    rows: int,
    keys: int,
    width: int,
    is_causal: bool,
    dtype: DType,
) -> None:
    device, unit = gpus[target.arch].name, {"sm_90": "wgmma64", "sm_100": "tcgen05x64"}[target.arch]
    given = [numbers((1, heads, n, width), seed) for seed, n in enumerate((rows, keys, keys))]
    q, k, v = (Tensor(one, device=device).cast(dtype).realize() for one in given)
    out = q.scaled_dot_product_attention(k, v, is_causal=is_causal)
    assert any(unit in choice and "chain" in choice for choice in choices(out, target))
    rounded = [one.cast(dtypes.float32).numpy().astype(np.float64) for one in (q, k, v)]
    allowed = np.tri(rows, keys, dtype=bool) if is_causal else np.ones((rows, keys), bool)
    found = out.cast(dtypes.float32).numpy()
    np.testing.assert_allclose(found, exact(*rounded, allowed), rtol=KINDS[dtype], atol=KINDS[dtype])


@pytest.mark.parametrize("target", [HOPPER, BLACKWELL], ids=lambda target: target.arch)
def test_a_mask_is_added_to_scores(gpus: dict[str, Any], target: Target) -> None:
    rows, keys, device = 150, 160, gpus[target.arch].name
    q, k, v = (
        Tensor(numbers((1, 1, n, 64), seed), device=device).cast(dtypes.float16).realize()
        for seed, n in enumerate((rows, keys, keys))
    )
    allowed = np.random.default_rng(7).random((rows, keys)) < 0.5
    out = q.scaled_dot_product_attention(k, v, attn_mask=Tensor(allowed, device=device))
    assert any("chain" in choice and "mma.f16" not in choice for choice in choices(out, target))
    rounded = [one.cast(dtypes.float32).numpy().astype(np.float64) for one in (q, k, v)]
    np.testing.assert_allclose(
        out.cast(dtypes.float32).numpy(), exact(*rounded, allowed), rtol=2e-3, atol=2e-3
    )


@needs_nvrtc
@pytest.mark.parametrize("dtype", KINDS, ids=lambda dtype: dtype.name)
@pytest.mark.parametrize("target", [HOPPER, BLACKWELL], ids=lambda target: target.arch)
def test_cuda_c_has_the_same_products(gpus: dict[str, Any], target: Target, dtype: DType) -> None:
    by_cuda = compile_with(target, Toolchain("test", "cuda", images.ptx_of_cuda))
    code = check(gpus[target.arch], narrow_attention(136, 136, 64, dtype, dtype), target=by_cuda)
    assert "mma.f16" not in code.choice and "chain" in code.choice


@pytest.mark.parametrize(
    ("target", "shape"),
    [
        *[(HOPPER, shape) for shape in ((63, 256, 64), (128, 256, 32), (128, 256, 96), (128, 256, 80))],
        *[(BLACKWELL, shape) for shape in ((127, 256, 64), (128, 256, 128))],
    ],
    ids=lambda one: getattr(one, "arch", str(one)),
)
def test_what_these_units_do_not_take_is_for_single_warps(
    target: Target, shape: tuple[int, int, int]
) -> None:
    choice = choose(LoopNest(lower(narrow_attention(*shape), target)), target).choice
    assert " mma.f16" in choice and "chain" in choice


def test_scores_and_weights_of_warpgroups_stay_in_registers() -> None:
    nest = choose(LoopNest(lower(narrow_attention(128, 256, 64), HOPPER)), HOPPER)
    program = linearize(nest, "k", HOPPER.shared_bytes)
    kept = {
        it.source(0).arg for it in program.instructions if it.op is Op.STORE and it.source(0).op is Op.SHARED
    }
    assert (
        len(kept) == 1
    )  # rows of queries: keys and values are copied, scores and weights never leave the threads
    products = [it for it in program.instructions if it.op is Op.WARPGROUP_MATRIX]
    assert [it.source(0).op for it in products] == [Op.DESCRIPTOR] * 4 + [Op.WARPGROUP_HELD] * 4


def test_sums_of_another_width_are_another_units() -> None:
    nest = LoopNest(lower(narrow_attention(64, 64, 64), HOPPER))
    nest.apply("split r0 64; split r2 64; split r3 16; matrix r0.1 r2.1 r3.1 wgmma64.f16; split r1 32")
    with pytest.raises(ScheduleError, match=r"r1\.1 is not an innermost, unbound loop of 64 steps"):
        nest.chain("r1.1")


@needs_nvjitlink
@pytest.mark.parametrize(
    ("target", "width"),
    [(HOPPER, 64), (HOPPER, 128), (BLACKWELL, 64)],
    ids=lambda one: getattr(one, "arch", one),
)
def test_ptxas_lets_products_of_attention_run_side_by_side(target: Target, width: int) -> None:
    """No spills, and no word of products that it makes wait for each other."""
    code = compile_kernel(narrow_attention(1024, 1024, width), target)
    assert " mma.f16" not in code.choice
    found = nvjitlink.assemble(code.image.decode(), f"{target.arch}a", ("-verbose",))
    made = Cubin(found.cubin, "test").kernels[code.entry]
    assert not made.stack_bytes and not made.frame_bytes
    assert "0 bytes spill stores, 0 bytes spill loads" in found.log and "serialized" not in found.log


TWO = (
    "split r0 128; split r0.1 64; split r2 64; split r3 16; matrix r0.2 r2.1 r3.1 wgmma64.f16; chain r1; unroll r3; "
    "thread r0.1; parallel r0; stage 0 r0; stage 1 r2; stage 2 r2; pipeline r2 "
)


@pytest.mark.parametrize(
    ("target", "schedule"),
    [*[(HOPPER, TWO + tiles) for tiles in ("3", "2 bulk", "4 bulk")], (BLACKWELL, None)],
    ids=lambda one: getattr(one, "arch", str(one)[-6:]),
)
def test_keys_are_shared_without_a_finding(
    gpus: dict[str, Any], target: Target, schedule: str | None
) -> None:
    before = len(Sanitizer.findings)
    check(gpus[f"sanitized {target.arch}"], narrow_attention(256, 448, 64), schedule, target=target)
    assert Sanitizer.findings[before:] == []


def causal(length: int, device: str) -> Tensor:
    q, k, v = (
        Tensor.zeros(1, 1, length, 64, dtype=dtypes.float16, device=device).contiguous() for _ in "qkv"
    )
    return q.realize().scaled_dot_product_attention(k.realize(), v.realize(), is_causal=True)


def steps_that_compare(sink: Node, target: Target) -> list[bool]:
    """Of each loop that multiplies, in their order, whether its steps choose among scores by their places."""
    nest = choose(LoopNest(lower(sink, target)), target)
    found: list[bool] = []
    stack: list[list[bool]] = []
    for it in linearize(nest, "k", target.shared_bytes, target.wave_copy_bytes).instructions:
        if it.op is Op.LOOP:
            stack.append([False, False])
        elif it.op is Op.ENDLOOP:
            multiplies, compares = stack.pop()
            found += [compares] if multiplies else []
        elif stack and it.op in (Op.WARPGROUP_MATRIX, Op.TENSOR_MATRIX, Op.MATRIX):
            stack[-1][0] = True
        elif stack and it.op is Op.WHERE and it.source(2).number == -math.inf:
            stack[-1][1] = True
    return found


@pytest.mark.parametrize(
    "target",
    [HOPPER, BLACKWELL, nv_target("sm_80"), amd_target("gfx942"), amd_target("gfx1100")],
    ids=lambda target: target.arch,
)
def test_only_steps_at_the_diagonal_compare_places(gpus: dict[str, Any], target: Target) -> None:
    out = causal(512, gpus["sm_90"].name)
    made = schedule([out.node], structure_of([out.node]).storages, target.threads, [dtypes.float16])
    assert [steps_that_compare(kernel.sink, target) for kernel in made.kernels] == [[False, True]]
