"""Functions of one tensor that together use every kind of operation: what transforms are tested on.

In       nothing
Out      FUNCTIONS: name -> (function, shape of its argument); `table`, to run a test on each of them, `numbers`
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import hcq
from hcq import Tensor
from hcq.frontend.nn import functional

Function = Callable[[Tensor], Tensor]

WEIGHTS = [[0.5, -1.0, 0.25], [1.5, 0.75, -0.5], [-0.25, 0.5, 1.0], [1.0, -0.75, 0.125]]


def _scattered(x: Tensor) -> Tensor:
    return Tensor.zeros(5, dtype=x.dtype).scatter_add(0, hcq.tensor([3, 1, 3, 0]), x * x)


def _attended(x: Tensor) -> Tensor:
    return functional.scaled_dot_product_attention(
        x.reshape(1, 3, 4), x.sin().reshape(1, 3, 4), x.reshape(1, 3, 4)
    )


def _convolved(x: Tensor) -> Tensor:
    kernel = Tensor(WEIGHTS).reshape(2, 1, 2, 3)
    return functional.conv2d(x.reshape(1, 1, 5, 5), kernel, padding=1).relu().max_pool2d(2)


FUNCTIONS: dict[str, tuple[Function, tuple[int, ...]]] = {
    "arithmetic": (lambda x: (x * x.exp() - x / (x * x + 2.0)).sin().tanh(), (4,)),
    "choices": (lambda x: (x > 0).where(x.sqrt(), x.abs().log1p()).maximum(x * 0.5), (4,)),
    "powers": (lambda x: (x * x + 1.0) ** x, (4,)),
    "sums": (lambda x: x.sum(0) * x.mean(1, keepdim=True) + x.var(), (3, 4)),
    "extremes": (lambda x: x.amax(0) * x.amin(1, keepdim=True), (3, 4)),
    "products": (lambda x: x.prod(1) * x.prod(0).sum(), (3, 4)),
    "scans": (lambda x: x.cumsum(0) * x.cumprod(0), (5,)),
    "movement": (lambda x: (x.T.flip(0).pad((1, 2)) * 2.0)[1:, ::2].reshape(-1), (3, 4)),
    "joining": (lambda x: Tensor.cat([x, x * x, x[1:2]], dim=0), (3, 4)),
    "matrices": (lambda x: (x @ Tensor(WEIGHTS)).softmax(-1), (3, 4)),
    "normalised": (lambda x: functional.layer_norm(x, (4,)).logsumexp(0), (3, 4)),
    "sorted": (lambda x: x.sort()[0] * Tensor([1.0, 2.0, 3.0, 4.0]), (4,)),
    "gathered": (lambda x: x[hcq.tensor([2, 0, 2])] * x[0], (4,)),
    "scattered": (_scattered, (4,)),
    "convolved": (_convolved, (25,)),
    "factored": (lambda x: hcq.torch.linalg.solve(x @ x.T + Tensor.eye(3, dtype=x.dtype), x), (3, 3)),
    "attended": (_attended, (12,)),
}

FEW = "arithmetic", "sums", "gathered"  # without --thorough

table = pytest.mark.parametrize(
    ("function", "shape"),
    [
        pytest.param(*each, marks=() if name in FEW else pytest.mark.thorough, id=name)
        for name, each in FUNCTIONS.items()
    ],
)


def numbers(*shape: int, seed: int = 0) -> Tensor:
    """Between 0.3 and 1.7, the same for a seed."""
    return Tensor(np.random.default_rng(seed).uniform(0.3, 1.7, shape).astype(np.float32))
