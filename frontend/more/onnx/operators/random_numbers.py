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
from hcq.frontend.more.onnx.table import operator, operators
from hcq.frontend.tensor import Tensor
from hcq.ir.dtype import DType, dtypes


def _drawn(method: str, shape: Any, seed: float | None, call: Any) -> Tensor:
    """Numbers from 0 to 1 of "rand", and of the standard normal distribution of "randn"."""
    if seed is not None:
        numbers = np.random.default_rng(int.from_bytes(struct.pack("<d", float(seed)), "little"))
        draw = numbers.random if method == "rand" else numbers.standard_normal
        return call.constant(draw(tuple(shape), np.float32))
    call.run.is_random = True
    return getattr(Tensor, method)(*shape, device=call.device)


def _uniform(shape: Any, seed: float | None, call: Any, low: float = 0.0, high: float = 1.0) -> Tensor:
    return _drawn("rand", shape, seed, call) * (high - low) + low


def _normal(shape: Any, seed: float | None, call: Any, mean: float = 0.0, scale: float = 1.0) -> Tensor:
    return _drawn("randn", shape, seed, call) * scale + mean


def _kind(dtype: int | None, x: Tensor) -> DType:
    return x.dtype if dtype is None else dtype_of(dtype)


operators(
    {
        "RandomUniform": (
            1,
            lambda *, dtype=1, high=1.0, low=0.0, seed=None, shape, call: _uniform(
                shape, seed, call, low, high
            ).cast(dtype_of(dtype)),
        ),
        "RandomUniformLike": (
            1,
            lambda x, *, dtype=None, high=1.0, low=0.0, seed=None, call: _uniform(
                x.shape, seed, call, low, high
            ).cast(_kind(dtype, x)),
        ),
        "RandomNormal": (
            1,
            lambda *, dtype=1, mean=0.0, scale=1.0, seed=None, shape, call: _normal(
                shape, seed, call, mean, scale
            ).cast(dtype_of(dtype)),
        ),
        "RandomNormalLike": (
            1,
            lambda x, *, dtype=None, mean=0.0, scale=1.0, seed=None, call: _normal(
                x.shape, seed, call, mean, scale
            ).cast(_kind(dtype, x)),
        ),
        "Bernoulli": (  # 1 with the probability that stands there
            15,
            lambda x, *, dtype=None, seed=None, call: (_uniform(x.shape, seed, call) < x.float()).cast(
                _kind(dtype, x)
            ),
        ),
    }
)


@operator("Multinomial", since=7)
def multinomial(
    x: Tensor, *, dtype: int = 6, sample_size: int = 1, seed: float | None = None, call: Any
) -> Any:
    """Classes drawn by their logarithms: where a uniform number falls among the sums of probabilities."""
    bounds = x.float().softmax(1).cumsum(1)
    drawn = _uniform((x.shape[0], sample_size), seed, call)
    places = (drawn.unsqueeze(2) >= bounds.unsqueeze(1)).sum(2).clamp(0, x.shape[1] - 1)
    return places.cast(dtype_of(dtype) if dtype != 6 else dtypes.int32)
