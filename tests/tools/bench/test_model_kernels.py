"""The kernels that the model is checked with compute what the measured ones computed."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np
import pytest
from numpy.typing import NDArray

import hcq
from hcq import config
from hcq.nv.toolchain.images import ptx_of_cuda
from hcq.tools.bench.model.count import source_of
from tests.hcq.emu.nv.shader.running import needs_nvrtc

pytestmark = [needs_nvrtc, pytest.mark.own_devices]
ARCH = "sm_80"
N = 128


def ran(
    module: str,
    entry: str,
    grid: tuple[int, int, int],
    threads: int,
    given: Sequence[NDArray[np.generic] | float],
    result: int,
) -> bytes:
    """What is in the argument `result` afterwards."""
    before = config.current()
    config.use(dataclasses.replace(before, emulate=(f"nv:{ARCH}",), timeout_ms=600_000))
    device = hcq.open("NV")
    try:
        program = device.load(ptx_of_cuda(source_of(module), ARCH, module), entry)
        program.dynamic_shared_bytes = 65536 if entry == "pipelined" else 0
        arguments: list[object] = []
        for one in given:
            if isinstance(one, np.ndarray):
                buffer = device.alloc(one.nbytes)
                buffer.write(one.tobytes())
                arguments.append(buffer)
            else:
                arguments.append(one)
        device.queue().dispatch(program, arguments, grid=grid, block=(threads, 1, 1)).submit().wait()
        made: bytes = arguments[result].read()  # type: ignore[attr-defined]
        return made
    finally:
        device.close()
        config.use(before)


def brains(values: NDArray[np.float32]) -> NDArray[np.uint16]:
    return (values.view(np.uint32) >> 16).astype(np.uint16)


def floats(data: bytes) -> NDArray[np.float32]:
    return (np.frombuffer(data, np.uint16).astype(np.uint32) << 16).view(np.float32)


def small_integers(*shape: int) -> NDArray[np.float32]:
    return np.random.default_rng(7).integers(-3, 4, shape).astype(np.float32)


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    ("entry", "tile"),
    [("plain_1", 32), ("plain_2", 64), ("permuted", 64), ("kept", 64), ("staged", 64), ("staged_4", 128)],
)
def test_products_of_halves_are_products(entry: str, tile: int) -> None:
    a, b = small_integers(N, N), small_integers(N, N)[::-1]
    second = b if entry.startswith("plain") else b.T
    given = [a.astype(np.float16), second.astype(np.float16), np.zeros((N, N), np.float32), N]
    made = ran("cuda_matrix", entry, (N // tile, N // tile, 1), 256, given, 2)
    assert (np.frombuffer(made, np.float32).reshape(N, N) == a @ b).all()


@pytest.mark.sampled(3)
@pytest.mark.parametrize("entry", ["loads", "copies", "padded", "swizzled", "wider", "pipelined"])
def test_products_of_brain_floats_are_products(entry: str) -> None:
    a, b = small_integers(N, N), small_integers(N, N)[::-1]
    given = [brains(a), brains(np.ascontiguousarray(b.T)), np.zeros((N, N), np.uint16), N]
    made = floats(ran("cuda_matrix", entry, (1, 1, 1), 128, given, 2)).reshape(N, N)
    np.testing.assert_allclose(made, a @ b, rtol=2**-7)


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    ("entry", "tile"),
    [("rows_128", 128), ("swizzled_128", 128), ("ahead_128", 128), ("wider_128", 128), ("rows_64", 64),
     ("swizzled_64", 64), ("ahead_64", 64)],
)  # fmt: skip
def test_attention_is_attention(entry: str, tile: int) -> None:
    q, k, v = (small_integers(1, 128, 128), small_integers(1, 192, 128)[:, ::-1], small_integers(1, 192, 128))
    scale = 0.05
    scores = scale * q @ k.transpose(0, 2, 1)
    shares = np.exp(scores - scores.max(-1, keepdims=True))
    expected = shares / shares.sum(-1, keepdims=True) @ v
    given = [brains(np.ascontiguousarray(one)) for one in (q, k, v)]
    given.append(np.zeros((1, 128, 128), np.uint16))
    made = floats(ran("cuda_attention", entry, (128 // tile, 1, 1), 128, [*given, 128, 192, scale], 3))
    np.testing.assert_allclose(made.reshape(expected.shape), expected, atol=0.03)


@pytest.mark.parametrize("items", [1, 4, 8, 12])
def test_scans_that_look_back_are_prefix_sums(items: int) -> None:
    data = np.random.default_rng(3).integers(-9, 9, 512 * items * 40).astype(np.int32)
    given = [data, np.zeros_like(data), np.zeros(40, np.uint64), np.zeros(1, np.uint32)]
    made = ran("cuda_scans", f"look_back_{items}", (40, 1, 1), 512, given, 1)
    assert (np.frombuffer(made, np.int32) == data.cumsum()).all()


@pytest.mark.parametrize("entry", ["tiles_shared", "tiles_shuffle"])
def test_scans_of_tiles_are_prefix_sums_of_each(entry: str) -> None:
    data = np.random.default_rng(3).integers(-9, 9, (4, 512)).astype(np.int32)
    made = ran("cuda_scans", entry, (4, 1, 1), 512, [data, np.zeros_like(data), np.zeros(4, np.int32)], 1)
    assert (np.frombuffer(made, np.int32).reshape(4, 512) == data.cumsum(1)).all()


@pytest.mark.parametrize(("entry", "n"), [("norm_4096", 4096), ("norm_plain_8192", 8192)])
def test_layer_norm_is_layer_norm(entry: str, n: int) -> None:
    rows = np.random.default_rng(5).normal(1, 2, (2, n)).astype(np.float16)
    weight, bias = (np.random.default_rng(seed).normal(0, 1, n).astype(np.float16) for seed in (1, 2))
    made = ran("cuda_rows", entry, (2, 1, 1), 256, [rows, np.zeros_like(rows), weight, bias], 1)
    wide = rows.astype(np.float64)
    expected = (wide - wide.mean(1, keepdims=True)) / np.sqrt(wide.var(1, keepdims=True) + 1e-5)
    if "plain" not in entry:
        expected = expected * weight + bias
    np.testing.assert_allclose(np.frombuffer(made, np.float16).reshape(2, n), expected, atol=0.01, rtol=0.01)


@pytest.mark.parametrize("entry", ["softmax_naive", "softmax_online"])
def test_softmax_is_softmax(entry: str) -> None:
    rows = np.random.default_rng(5).normal(0, 2, (2, 5000)).astype(np.float32)
    made = ran("cuda_rows", entry, (2, 1, 1), 1024, [rows, np.zeros_like(rows), 5000], 1)
    shares = np.exp(rows - rows.max(1, keepdims=True))
    expected = shares / shares.sum(1, keepdims=True)
    np.testing.assert_allclose(np.frombuffer(made, np.float32).reshape(rows.shape), expected, rtol=1e-4)
