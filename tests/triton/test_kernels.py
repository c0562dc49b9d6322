"""Triton's kernels compute what NumPy does, on every emulated GPU, with the shared memory that they ask for."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

pytest.importorskip(
    "triton", reason="compiles Triton's kernels: pip install -e '.[triton]'; make test-triton"
)

import triton.language as tl

from hcq.device import Device
from hcq.emu.shader.small_floats import E4M3, E5M2
from hcq.errors import UsageError
from tests.triton import kernels
from tests.triton.compiled import compiled, launch

pytestmark = pytest.mark.own_devices
Array = np.ndarray[Any, Any]
WIDER = pytest.mark.thorough


def numbers(*shape: int, dtype: str = "float32", seed: int = 0) -> Array:
    """Floats around 0, or small integers."""
    draw = np.random.default_rng(seed)
    if dtype.startswith(("int", "uint")):
        return draw.integers(-8, 8, shape).astype(dtype)
    return draw.standard_normal(shape).astype(dtype)


def as_bfloat16(x: Array) -> Array:
    """The nearest, to even, as the bits that a kernel reads."""
    bits = x.astype(np.float32).view(np.uint32)
    return (bits + 0x7FFF + (bits >> 16 & 1) >> 16).astype(np.uint16)


def from_bfloat16(bits: Array) -> Array:
    return (bits.astype(np.uint32) << 16).view(np.float32)


@pytest.mark.parametrize(
    ("columns", "block", "warps"), [(700, 1024, 4), (33, 64, 1), pytest.param(4000, 4096, 8, marks=WIDER)]
)
def test_softmax(gpu: Device, columns: int, block: int, warps: int) -> None:
    x, out = numbers(5, columns), np.zeros((5, columns), np.float32)
    launch(gpu, kernels.softmax, [out, x, columns, columns], (5,), {"BLOCK": block}, num_warps=warps)
    powers = np.exp(x - x.max(axis=1, keepdims=True))
    np.testing.assert_allclose(out, powers / powers.sum(axis=1, keepdims=True), rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_layer_norm(gpu: Device, dtype: str) -> None:
    x, weight, bias = numbers(6, 300, dtype=dtype), numbers(300, seed=1), numbers(300, seed=2)
    out = np.zeros((6, 300), np.float32)
    launch(gpu, kernels.layer_norm, [out, x, weight, bias, 300, 1e-5], (6,), {"BLOCK": 512})
    wide = x.astype(np.float64)
    expected = (wide - wide.mean(1, keepdims=True)) / np.sqrt(
        wide.var(1, keepdims=True) + 1e-5
    ) * weight + bias
    np.testing.assert_allclose(out, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    ("warps", "stages", "tiles"),
    [
        (4, 2, (64, 64, 32)),
        (8, 3, (64, 64, 32)),
        pytest.param(4, 1, (64, 64, 32), marks=WIDER),
        pytest.param(8, 2, (128, 64, 64), marks=WIDER),
        pytest.param(2, 4, (32, 32, 32), marks=WIDER),
        pytest.param(1, 2, (16, 16, 16), marks=WIDER),
    ],
)
def test_products_of_float16(gpu: Device, warps: int, stages: int, tiles: tuple[int, int, int]) -> None:
    m, n, k = 100, 90, 170
    a, b, out = (
        numbers(m, k, dtype="float16"),
        numbers(k, n, dtype="float16", seed=1),
        np.zeros((m, n), np.float32),
    )
    constants = {**dict(zip("MNK", tiles)), "PRECISION": "ieee", "SUMS": tl.float32}
    grid = (-(-m // tiles[0]), -(-n // tiles[1]))
    args = [out, a, b, m, n, k, k, n, n]
    launch(gpu, kernels.matmul, args, grid, constants, num_warps=warps, num_stages=stages)
    np.testing.assert_allclose(out, a.astype(np.float64) @ b.astype(np.float64), rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("blocks", [2, 4])
@pytest.mark.parametrize("arch", ["sm_90", "sm_100"])
def test_programs_of_several_blocks_are_clusters(open_nv: Callable[..., Any], arch: str, blocks: int) -> None:
    """Products, and sums that blocks of a cluster exchange through each other's shared memory."""
    gpu = open_nv(arch)
    m, n, k = 256, 128, 96
    a, b = numbers(m, k, dtype="float16"), numbers(k, n, dtype="float16", seed=1)
    out = np.zeros((m, n), np.float32)
    constants = {"M": 128, "N": 64, "K": 32, "PRECISION": "ieee", "SUMS": tl.float32}
    launch(gpu, kernels.matmul, [out, a, b, m, n, k, k, n, n], (2, 2), constants, num_ctas=blocks)
    np.testing.assert_allclose(out, a.astype(np.float64) @ b.astype(np.float64), rtol=1e-3, atol=1e-3)
    x = numbers(3, 1000)
    out = np.zeros_like(x)
    launch(gpu, kernels.softmax, [out, x, 1000, 1000], (3,), {"BLOCK": 1024}, num_ctas=blocks)
    parts = np.exp(x.astype(np.float64) - x.max(1, keepdims=True))
    np.testing.assert_allclose(out, parts / parts.sum(1, keepdims=True), rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("kind", ["bf16", "fp32", "tf32", "i8", "fp8e4nv", "fp8e5", "fp16 in fp16"])
def test_products_of_other_numbers(gpu: Device, kind: str) -> None:
    """Each dtype that Triton multiplies on the GPU, with what its matrix instructions keep of it."""
    m, n, k = 64, 48, 128
    a, b = numbers(m, k), numbers(k, n, seed=1)
    sums, precision, types, tolerance = tl.float32, "ieee", {}, 1e-4
    out: Array = np.zeros((m, n), np.float32)
    given = [a, b]
    if kind == "bf16":
        given = [as_bfloat16(a), as_bfloat16(b)]
        a, b = (from_bfloat16(each) for each in given)
    elif kind == "tf32":
        if gpu.arch in ("gfx90a", "gfx950", "gfx1100", "gfx1201"):
            pytest.skip(f"Triton has no tf32 on {gpu.arch}")
        precision, tolerance = "tf32", 2e-2
    elif kind == "i8":
        given = [numbers(m, k, dtype="int8"), numbers(k, n, dtype="int8", seed=1)]
        (a, b), sums, out, tolerance = given, tl.int32, np.zeros((m, n), np.int32), 0
    elif kind.startswith("fp8"):
        if _has_no_fp8(gpu.arch, kind):
            pytest.skip(f"Triton has no {kind} on {gpu.arch}")
        a, b = np.round(a * 2) / 2, np.round(b * 2) / 2
        given = [_as_fp8(a, kind), _as_fp8(b, kind)]
        a, b = _from_fp8(given[0], kind), _from_fp8(given[1], kind)
        types, tolerance = {1: kind, 2: kind}, 1e-2
    elif kind == "fp16 in fp16":
        given = [(a / 8).astype(np.float16), (b / 8).astype(np.float16)]
        (a, b), sums, out, tolerance = given, tl.float16, np.zeros((m, n), np.float16), 2e-2
    constants = {"M": 32, "N": 32, "K": 64, "PRECISION": precision, "SUMS": sums}
    args = [out, *given, m, n, k, k, n, n]
    launch(gpu, kernels.matmul, args, (2, 2), constants, types=types)
    np.testing.assert_allclose(
        out.astype(np.float64), a.astype(np.float64) @ b.astype(np.float64), rtol=tolerance, atol=tolerance
    )


FP8 = {"fp8e4nv": (3, 7), "fp8e5": (2, 15)}  # bits of the fraction, bias of the exponent


def _has_no_fp8(arch: str, kind: str) -> bool:
    return arch in ("gfx90a", "gfx1100") or (arch == "sm_80" and kind == "fp8e4nv")


def _fp8_values(kind: str) -> Array:
    """What each of the 128 positive bit patterns means; infinite and none as very large numbers."""
    fractions, bias = FP8[kind]
    found = []
    for bits in range(128):
        exponent, fraction = bits >> fractions, bits & (1 << fractions) - 1
        scale = 2.0 ** (max(exponent, 1) - bias - fractions)
        found.append(scale * (fraction + (1 << fractions) * (exponent > 0)))
    return np.array(found)


def _as_fp8(x: Array, kind: str) -> Array:
    nearest = np.abs(_fp8_values(kind)[None, :] - np.abs(x).reshape(-1, 1)).argmin(axis=1)
    return (nearest.reshape(x.shape) | np.where(x < 0, 128, 0)).astype(np.uint8)


def _from_fp8(bits: Array, kind: str) -> Array:
    return _fp8_values(kind)[bits & 127] * np.where(bits & 128, -1, 1)


@pytest.mark.parametrize(
    ("length", "depth", "warps", "stages"),
    [(100, 64, 4, 2), pytest.param(128, 32, 4, 1, marks=WIDER), pytest.param(70, 64, 8, 3, marks=WIDER)],
)
def test_attention(gpu: Device, length: int, depth: int, warps: int, stages: int) -> None:
    heads = 2
    q, k, v = (numbers(heads, length, depth, dtype="float16", seed=seed) for seed in range(3))
    out, scale = np.zeros((heads, length, depth), np.float32), 1 / depth**0.5
    grid = (-(-length // 64), heads)
    constants = {"M": 64, "N": 32, "D": depth}
    args = [out, q, k, v, length, scale]
    launch(gpu, kernels.attention, args, grid, constants, num_warps=warps, num_stages=stages)
    scores = q.astype(np.float64) @ k.astype(np.float64).transpose(0, 2, 1) * scale
    scores = np.where(np.tril(np.ones((length, length), bool)), scores, -np.inf)
    powers = np.exp(scores - scores.max(-1, keepdims=True))
    expected = powers / powers.sum(-1, keepdims=True) @ v.astype(np.float64)
    np.testing.assert_allclose(out, expected, rtol=2e-2, atol=4e-3)


@pytest.mark.parametrize(
    ("dtype", "warps"), [("float32", 8), ("int32", 1), pytest.param("float32", 4, marks=WIDER)]
)
def test_reductions_along_both_axes(gpu: Device, dtype: str, warps: int) -> None:
    x = numbers(32, 128, dtype=dtype)
    sums, most, places = np.zeros(128, dtype), np.zeros(32, dtype), np.zeros(32, np.int32)
    args = [sums, most, places, x]
    launch(gpu, kernels.reductions, args, (1,), {"ROWS": 32, "COLUMNS": 128}, num_warps=warps)
    np.testing.assert_allclose(sums, x.sum(0), rtol=1e-4, atol=1e-4)
    np.testing.assert_array_equal(most, x.max(1))
    np.testing.assert_array_equal(places, x.argmax(1))


@pytest.mark.parametrize(
    "dtype", ["float16", "int8", *(pytest.param(one, marks=WIDER) for one in ("float32", "int64"))]
)
def test_transpose(gpu: Device, dtype: str) -> None:
    x = (numbers(70, 100) * 30).astype(dtype)
    out = np.zeros((100, 70), dtype)
    launch(gpu, kernels.transpose, [out, x, 70, 100], (3, 2), {"ROWS": 32, "COLUMNS": 64})
    np.testing.assert_array_equal(out, x.T)


@pytest.mark.parametrize("bins", [256, pytest.param(16, marks=WIDER)])
def test_histogram(gpu: Device, bins: int) -> None:
    x = np.random.default_rng(3).integers(0, bins, 1500).astype(np.int32)
    counts = np.zeros(bins, np.int32)
    launch(gpu, kernels.histogram, [counts, x, 1500], (3,), {"BINS": bins, "BLOCK": 512})
    np.testing.assert_array_equal(counts, np.bincount(x, minlength=bins))


@pytest.mark.parametrize("warps", [4, pytest.param(1, marks=WIDER), pytest.param(8, marks=WIDER)])
def test_scans(gpu: Device, warps: int) -> None:
    draw = np.random.default_rng(4)
    x = draw.uniform(0.9, 1.1, 512).astype(np.float32)
    flags = (draw.random(512) < 0.05).astype(np.int32)
    totals, running, segments = (np.zeros(512, np.float32) for _ in range(3))
    launch(gpu, kernels.scans, [totals, running, segments, x, flags], (1,), {"BLOCK": 512}, num_warps=warps)
    expected, total = [], 0.0
    for value, flag in zip(x, flags):
        total = value if flag else total + value
        expected.append(total)
    np.testing.assert_allclose(totals, np.cumsum(x.astype(np.float64)), rtol=1e-4)
    np.testing.assert_allclose(running, np.cumprod(x.astype(np.float64)[::-1])[::-1], rtol=1e-4)
    np.testing.assert_allclose(segments, expected, rtol=1e-4)


def test_atomics(gpu: Device) -> None:
    x = np.random.default_rng(5).integers(-1000, 1000, 700).astype(np.int32)
    total, largest = np.zeros(4, np.int32), np.full(1, -(2**31), np.int32)
    tickets, once = np.zeros(9, np.int32), np.zeros(1, np.int32)
    launch(gpu, kernels.atomics, [total, largest, tickets, once, x, 700], (6,), {"BLOCK": 128})
    np.testing.assert_array_equal(total, [x[lane::4].sum() for lane in range(4)])
    assert largest[0] == x.max()
    assert tickets[0] == 6
    assert sorted(tickets[1:7]) == [*range(6)]
    assert 1 <= once[0] <= 6


@pytest.mark.parametrize("warps", [4, pytest.param(1, marks=WIDER)])
def test_sort_and_flip(gpu: Device, warps: int) -> None:
    x = numbers(8, 128)
    out, flipped = np.zeros_like(x), np.zeros_like(x)
    launch(gpu, kernels.ordered, [out, flipped, x], (1,), {"ROWS": 8, "COLUMNS": 128}, num_warps=warps)
    np.testing.assert_array_equal(out, np.sort(x, axis=1))
    np.testing.assert_array_equal(flipped, x[:, ::-1])


def test_gather_within_a_block(gpu: Device) -> None:
    x, places = numbers(64, 32), np.random.default_rng(6).integers(0, 64, (64, 32)).astype(np.int32)
    out = np.zeros_like(x)
    launch(gpu, kernels.picked, [out, x, places], (1,), {"ROWS": 64, "COLUMNS": 32})
    np.testing.assert_array_equal(out, np.take_along_axis(x, places, axis=0))


def test_a_stack_of_products_in_one_block(gpu: Device) -> None:
    a, b = numbers(4, 16, 32, dtype="float16"), numbers(4, 32, 16, dtype="float16", seed=1)
    out = np.zeros((4, 16, 16), np.float32)
    launch(gpu, kernels.batched, [out, a, b], (1,), {"M": 16, "K": 32, "N": 16, "B": 4})
    np.testing.assert_allclose(out, a.astype(np.float64) @ b.astype(np.float64), rtol=1e-3, atol=1e-3)


def test_convolution(gpu: Device) -> None:
    x, weight = numbers(3, 10, 40), numbers(3, 3, 3, seed=1)
    out = np.zeros((3, 8, 38), np.float32)
    launch(gpu, kernels.convolution, [out, x, weight, 3, 10, 40], (3, 8), {"BLOCK": 64, "SIDE": 3})
    windows = np.lib.stride_tricks.sliding_window_view(x, (3, 3), axis=(1, 2))
    np.testing.assert_allclose(out, np.einsum("crwij,cij->crw", windows, weight), rtol=1e-4, atol=1e-4)


def test_a_loop_whose_rounds_are_known_when_it_runs(gpu: Device) -> None:
    x = np.arange(1, 257).astype(np.int32)
    out = np.zeros(256, np.int32)
    launch(gpu, kernels.collatz, [out, x], (2,), {"BLOCK": 128})
    assert out.tolist() == [_collatz(int(value)) for value in x]


def _collatz(value: int) -> int:
    steps = 0
    while value > 1:
        value, steps = (value // 2 if value % 2 == 0 else 3 * value + 1), steps + 1
    return steps


@pytest.mark.deadline(600)  # Triton unrolls eight stages
def test_a_kernel_that_asks_for_more_than_the_chip_has_is_refused_when_the_size_is_set(gpu: Device) -> None:
    constants = {"M": 128, "N": 128, "K": 64, "PRECISION": "ieee", "SUMS": tl.float32}
    types = ["*fp16", "*fp16", "*fp16", *["i32"] * 6]
    made = compiled(kernels.matmul, types, constants, gpu.arch, num_warps=8, num_stages=8)
    program: Any = gpu.load(made.image, made.entry)
    most = program.most_shared_bytes
    assert made.shared_bytes > most - 200_000
    with pytest.raises(
        UsageError, match=rf"dynamic_shared_bytes={most + 1}: .*0 to {most} bytes of shared memory"
    ):
        program.dynamic_shared_bytes = most + 1


E2M1 = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6])


def small_numbers(rows: int, k: int, kind: str, seed: int) -> tuple[Array, Array]:
    """Codes as a kernel reads them, and what they mean."""
    draw = np.random.default_rng(seed)
    if kind == "e2m1":
        codes = draw.integers(0, 256, (rows, k // 2)).astype(np.uint8)
        both = np.stack([codes & 15, codes >> 4], -1).reshape(rows, k)
        return codes, np.where(both & 8, -1, 1) * E2M1[both & 7]
    floats = draw.integers(-6, 7, (rows, k)).astype(np.float32)
    table = (E4M3 if kind == "e4m3" else E5M2).values
    places = {float(value): code for code, value in enumerate(table) if np.isfinite(value)}
    return np.vectorize(lambda x: places[float(x)])(floats).astype(np.uint8), floats


@pytest.mark.parametrize(
    "kinds", [("e4m3", "e4m3"), ("e2m1", "e2m1"), pytest.param(("e5m2", "e2m1"), marks=WIDER)], ids="-".join
)
def test_blocks_with_scales(gpu: Device, kinds: tuple[str, str]) -> None:
    """Units that take scales multiply them: of gfx950, sm_100 and sm_120; elsewhere Triton multiplies bfloat16."""
    names = {"e4m3": "fp8e4nv", "e5m2": "fp8e5", "e2m1": "u8"}
    if any(_has_no_fp8(gpu.arch, names[kind]) for kind in kinds):
        pytest.skip(f"Triton has no such floats on {gpu.arch}")
    m, n, k = 128, 128, 128
    a, x = small_numbers(m, k, kinds[0], 1)
    b, y = small_numbers(n, k, kinds[1], 2)
    draw = np.random.default_rng(3)
    scale_a, scale_b = (draw.integers(125, 130, (rows, k // 32)).astype(np.uint8) for rows in (m, n))
    out = np.zeros((m, n), np.float32)
    types = {1: names[kinds[0]], 2: names[kinds[1]], 3: "u8", 4: "u8"}
    constants = {"M": m, "N": n, "K": k, "A": kinds[0], "B": kinds[1]}
    launch(gpu, kernels.scaled_product, [out, a, b, scale_a, scale_b], (1,), constants, types=types)
    left, right = (
        numbers * np.repeat(2.0 ** (scale.astype(np.int32) - 127), 32, 1)
        for numbers, scale in ((x, scale_a), (y, scale_b))
    )
    np.testing.assert_array_equal(out, (left @ right.T).astype(np.float32))
