"""Training: steps of optimizers.

In       a rate, a count of steps, and tensors: parameters, gradients, states
Out      new parameters and states
Changes  nothing: what is new comes out
Next     optim/ (optimizers of our own networks), loss.py
"""

from __future__ import annotations

from typing import Any

from hcq.frontend.core.errors import UsageError
from hcq.frontend.more.onnx.table import TRAINING, operator
from hcq.frontend.tensor import Tensor


@operator("Adagrad", domain=TRAINING)
def adagrad(
    rate: Tensor,
    step: Tensor,
    *tensors: Tensor,
    decay_factor: float = 0.0,
    epsilon: float = 0.0,
    norm_coefficient: float = 0.0,
) -> Any:
    """Each rate over the root of the squares so far."""
    n = len(tensors) // 3
    rate = rate / (step.float() * decay_factor + 1)
    new, squares = [], []
    for x, g, h in zip(tensors[:n], tensors[n : 2 * n], tensors[2 * n :]):
        g = g + x * norm_coefficient
        h = h + g * g
        new.append(x - rate * g / (h.sqrt() + epsilon))
        squares.append(h)
    return (*new, *squares)


@operator("Momentum", domain=TRAINING)
def momentum(
    rate: Tensor,
    step: Tensor,
    *tensors: Tensor,
    alpha: float,
    beta: float,
    mode: str,
    norm_coefficient: float,
) -> Any:
    """Along a running sum of gradients."""
    if mode not in ("standard", "nesterov"):
        raise UsageError(f"mode {mode!r}; known are standard and nesterov")
    n = len(tensors) // 3
    share = (step > 0).where(rate * 0 + beta, rate * 0 + 1)
    new, speeds = [], []
    for x, g, v in zip(tensors[:n], tensors[n : 2 * n], tensors[2 * n :]):
        g = g + x * norm_coefficient
        v = v * alpha + g * share
        new.append(x - rate * (g + v * alpha if mode == "nesterov" else v))
        speeds.append(v)
    return (*new, *speeds)


@operator("Adam", domain=TRAINING)
def adam(
    rate: Tensor,
    step: Tensor,
    *tensors: Tensor,
    alpha: float = 0.9,
    beta: float = 0.999,
    epsilon: float = 0.0,
    norm_coefficient: float = 0.0,
    norm_coefficient_post: float = 0.0,
) -> Any:
    """Along a running mean, over the root of a running square."""
    n = len(tensors) // 4
    t = step.float()
    corrected = rate * (1 - (t * 0 + beta) ** t).sqrt() / (1 - (t * 0 + alpha) ** t)
    rate = (step > 0).where(corrected, rate)
    new, means, squares = [], [], []
    for x, g, v, h in zip(*[tensors[i * n : (i + 1) * n] for i in range(4)]):
        g = g + x * norm_coefficient
        v = v * alpha + g * (1 - alpha)
        h = h * beta + g * g * (1 - beta)
        new.append((x - rate * v / (h.sqrt() + epsilon)) * (1 - norm_coefficient_post))
        means.append(v)
        squares.append(h)
    return (*new, *means, *squares)
