"""Small tools around training, under PyTorch's names.

In       parameters with gradients
Out      `clip_grad_norm_`, `clip_grad_value_`
Changes  the parameters' `.grad`, lazily
Next     optim.py (the step that follows)
"""

from __future__ import annotations

import math
from collections.abc import Iterable

from hcq.checks import shown
from hcq.errors import UsageError
from hcq.frontend.arguments import checked, listed
from hcq.frontend.tensor import Tensor


@checked
def clip_grad_norm_(parameters: Tensor | Iterable[Tensor], max_norm: float, norm_type: float = 2.0) -> Tensor:
    """Scale all gradients together so that the norm of all their elements is at most `max_norm`.

    Returns  the norm before, a lazy tensor of shape ()
    Raises   UsageError when no parameter has a gradient
    """
    found = _with_gradients("clip_grad_norm_", parameters)
    norms = [gradient.norm(norm_type).float() for _, gradient in found]
    total = Tensor.stack(norms).norm(norm_type) if len(norms) > 1 else norms[0]
    scale = (max_norm / (total + 1e-6)).clamp(max=1.0)
    for parameter, gradient in found:
        parameter.grad = gradient * scale.cast(gradient.dtype)
    return total


@checked
def clip_grad_value_(parameters: Tensor | Iterable[Tensor], clip_value: float) -> None:
    """Hold every element of every gradient between -clip_value and clip_value. Raises as `clip_grad_norm_` does."""
    if not clip_value >= 0 or math.isinf(clip_value):
        raise UsageError(f"[clip_grad_value_] clip_value {clip_value}: give a number, 0 or more.")
    for parameter, gradient in _with_gradients("clip_grad_value_", parameters):
        parameter.grad = gradient.clamp(-clip_value, clip_value)


def _with_gradients(call: str, parameters: Tensor | Iterable[Tensor]) -> list[tuple[Tensor, Tensor]]:
    """The parameters that have a gradient, with it."""
    several = [parameters] if isinstance(parameters, Tensor) else listed(call, "parameters", parameters)
    for parameter in several:
        if not isinstance(parameter, Tensor):
            raise UsageError(f"[{call}] {shown(parameter)} is no tensor. Give parameters.")
    found = [(parameter, parameter.grad) for parameter in several if parameter.grad is not None]
    if not found:
        raise UsageError(f"[{call}] none of the parameters has a gradient. Call loss.backward() first.")
    return found
