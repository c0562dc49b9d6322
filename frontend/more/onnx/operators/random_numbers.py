"""Random numbers: other ones in every call, or the same with a seed.

In       shapes, or tensors of the shape
Out      tensors
Changes  the device's random state, where no seed is given
Next     ops/random.py (how they are drawn); norm.py (Dropout)

Which numbers they are is ours: ONNX says of what distribution, not which. With a seed they are drawn on the host.
"""

from __future__ import annotations

import struct
from typing import Any

import numpy as np

from hcq.frontend.more.onnx.operators.shape import dtype_of
from hcq.frontend.more.onnx.table import operator
from hcq.frontend.tensor import Tensor
from hcq.ir.dtype import dtypes


def _uniform(shape: Any, seed: float | None, call: Any) -> Tensor:
    """From 0 to 1."""
    if seed is not None:
        return call.constant(_seeded(seed).random(tuple(shape), np.float32))
    call.run.is_random = True
    return Tensor.rand(*shape, device=call.device)


def _seeded(seed: float) -> Any:
    return np.random.default_rng(int.from_bytes(struct.pack("<d", float(seed)), "little"))


def _normal(shape: Any, seed: float | None, call: Any) -> Tensor:
    if seed is not None:
        return call.constant(_seeded(seed).standard_normal(tuple(shape), np.float32))
    call.run.is_random = True
    return Tensor.randn(*shape, device=call.device)


@operator("RandomUniform", since=1)
def random_uniform(
    *, dtype: int = 1, high: float = 1.0, low: float = 0.0, seed: float | None = None, shape: Any, call: Any
) -> Any:
    """Numbers from low to high, all as likely."""
    return (_uniform(shape, seed, call) * (high - low) + low).cast(dtype_of(dtype))


@operator("RandomUniformLike", since=1)
def random_uniform_like(
    x: Tensor,
    *,
    dtype: int | None = None,
    high: float = 1.0,
    low: float = 0.0,
    seed: float | None = None,
    call: Any,
) -> Any:
    """Numbers from low to high, of another tensor's shape."""
    kind = x.dtype if dtype is None else dtype_of(dtype)
    return (_uniform(x.shape, seed, call) * (high - low) + low).cast(kind)


@operator("RandomNormal", since=1)
def random_normal(
    *, dtype: int = 1, mean: float = 0.0, scale: float = 1.0, seed: float | None = None, shape: Any, call: Any
) -> Any:
    """Numbers of a normal distribution."""
    return (_normal(shape, seed, call) * scale + mean).cast(dtype_of(dtype))


@operator("RandomNormalLike", since=1)
def random_normal_like(
    x: Tensor,
    *,
    dtype: int | None = None,
    mean: float = 0.0,
    scale: float = 1.0,
    seed: float | None = None,
    call: Any,
) -> Any:
    """Numbers of a normal distribution, of another tensor's shape."""
    kind = x.dtype if dtype is None else dtype_of(dtype)
    return (_normal(x.shape, seed, call) * scale + mean).cast(kind)


@operator("Bernoulli", since=15)
def bernoulli(x: Tensor, *, dtype: int | None = None, seed: float | None = None, call: Any) -> Any:
    """1 with the probability that stands there."""
    kind = x.dtype if dtype is None else dtype_of(dtype)
    return (_uniform(x.shape, seed, call) < x.float()).cast(kind)


@operator("Multinomial", since=7)
def multinomial(
    x: Tensor, *, dtype: int = 6, sample_size: int = 1, seed: float | None = None, call: Any
) -> Any:
    """Classes drawn by their logarithms: where a uniform number falls among the sums of probabilities."""
    bounds = x.float().softmax(1).cumsum(1)
    drawn = _uniform((x.shape[0], sample_size), seed, call)
    places = (drawn.unsqueeze(2) >= bounds.unsqueeze(1)).sum(2).clamp(0, x.shape[1] - 1)
    return places.cast(dtype_of(dtype) if dtype != 6 else dtypes.int32)
