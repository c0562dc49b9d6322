"""Clipping: gradients held within a norm or a value; all parameters as one vector.

In       parameters with gradients
Out      `clip_grad_norm_`, `clip_grads_with_norm_`, `clip_grad_value_`, `get_total_norm`, `parameters_to_vector`,
         `vector_to_parameters`
Changes  the parameters' `.grad`, lazily
Next     ../optim/ (the step that follows)
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterable

from hcq.checks import shown
from hcq.errors import UsageError
from hcq.frontend.ops.arguments import checked, listed
from hcq.frontend.tensor import Tensor


@checked
def clip_grad_norm_(
    parameters: Tensor | Iterable[Tensor],
    max_norm: float,
    norm_type: float = 2.0,
    error_if_nonfinite: bool = False,
    foreach: bool | None = None,
) -> Tensor:
    """Scale all gradients together so that the norm of all their elements is at most `max_norm`.

    error_if_nonfinite   read the norm now, and raise UsageError if it is infinite or NaN
    foreach              may be given, and has no effect
    Returns              the norm before, a lazy tensor of shape ()
    Raises               UsageError when no parameter has a gradient

    >>> x = Tensor([1.0, 1.0], requires_grad=True)
    >>> (x * Tensor([3.0, 4.0])).sum().backward()
    >>> nn.utils.clip_grad_norm_([x], 1.0).item(), print(x.grad)
    tensor([0.6000, 0.8000])
    (5.0, None)
    """
    found = _with_gradients("clip_grad_norm_", parameters)
    total = get_total_norm([gradient for _, gradient in found], norm_type)
    if error_if_nonfinite and not math.isfinite(total.item()):
        raise UsageError(f"[clip_grad_norm_] the norm of the gradients is {total.item()}.")
    _scale(found, max_norm, total)
    return total


@checked
def clip_grad_norm(
    parameters: Tensor | Iterable[Tensor],
    max_norm: float,
    norm_type: float = 2.0,
    error_if_nonfinite: bool = False,
    foreach: bool | None = None,
) -> Tensor:
    """`clip_grad_norm_`, under an older name.

    >>> x = Tensor([1.0], requires_grad=True)
    >>> x.sum().backward()
    >>> nn.utils.clip_grad_norm([x], 2.0).item()
    1.0
    """
    warnings.warn("nn.utils.clip_grad_norm is now called clip_grad_norm_.", FutureWarning, stacklevel=3)
    return clip_grad_norm_(parameters, max_norm, norm_type, error_if_nonfinite)


@checked
def clip_grads_with_norm_(
    parameters: Tensor | Iterable[Tensor], max_norm: float, total_norm: Tensor, foreach: bool | None = None
) -> None:
    """Scale all gradients together by max_norm / total_norm, unless that makes them longer.

    total_norm   what `get_total_norm` gave, of these gradients or of more

    >>> x = Tensor([1.0, 1.0], requires_grad=True)
    >>> (x * Tensor([3.0, 4.0])).sum().backward()
    >>> nn.utils.clip_grads_with_norm_([x], 1.0, Tensor(5.0))
    >>> print(x.grad)
    tensor([0.6000, 0.8000])
    """
    _scale(_with_gradients("clip_grads_with_norm_", parameters), max_norm, total_norm)


def _scale(found: list[tuple[Tensor, Tensor]], max_norm: float, total: Tensor) -> None:
    scale = (max_norm / (total + 1e-6)).clamp(max=1.0)
    for parameter, gradient in found:
        parameter.grad = gradient * scale.cast(gradient.dtype)


@checked
def get_total_norm(
    tensors: Tensor | Iterable[Tensor],
    norm_type: float = 2.0,
    error_if_nonfinite: bool = False,
    foreach: bool | None = None,
) -> Tensor:
    """The norm of all elements of all tensors, lazy, of shape ().

    error_if_nonfinite   read it now, and raise UsageError if it is infinite or NaN

    >>> nn.utils.get_total_norm([Tensor([3.0]), Tensor([[4.0]])]).item()
    5.0
    """
    several = [tensors] if isinstance(tensors, Tensor) else listed("get_total_norm", "tensors", tensors)
    if not all(isinstance(tensor, Tensor) for tensor in several):
        raise UsageError(f"[get_total_norm] {shown(several)}: give tensors.")
    norms = [tensor.norm(norm_type).float() for tensor in several]
    if not norms:
        raise UsageError("[get_total_norm] the list is empty. Give tensors.")
    total = Tensor.stack(norms).norm(norm_type) if len(norms) > 1 else norms[0]
    if error_if_nonfinite and not math.isfinite(total.item()):
        raise UsageError(f"[get_total_norm] the norm is {total.item()}.")
    return total


def parameters_to_vector(parameters: Iterable[Tensor]) -> Tensor:
    """All elements of all parameters in a row.

    >>> nn.utils.parameters_to_vector(nn.Linear(2, 3).parameters()).shape
    (9,)
    """
    found = listed("parameters_to_vector", "parameters", parameters)
    if not found or not all(isinstance(parameter, Tensor) for parameter in found):
        raise UsageError(f"[parameters_to_vector] {shown(found)}: give parameters.")
    return Tensor.cat([parameter.reshape(-1) for parameter in found])


def vector_to_parameters(vec: Tensor, parameters: Iterable[Tensor]) -> None:
    """Write a row of elements into parameters, in place. Raises UsageError for another number of elements.

    >>> layer = nn.Linear(2, 1)
    >>> nn.utils.vector_to_parameters(Tensor([1.0, 2.0, 3.0]), layer.parameters())
    >>> layer.weight.tolist(), layer.bias.tolist()
    ([[1.0, 2.0]], [3.0])
    """
    found = listed("vector_to_parameters", "parameters", parameters)
    if not found or not all(isinstance(parameter, Tensor) for parameter in found):
        raise UsageError(f"[vector_to_parameters] {shown(found)}: give parameters.")
    count = sum(parameter.numel() for parameter in found)
    if not isinstance(vec, Tensor) or vec.shape != (count,):
        raise UsageError(f"[vector_to_parameters] {shown(vec)}: give a tensor of shape ({count},).")
    at = 0
    for parameter in found:
        part = vec.detach()[at : at + parameter.numel()].reshape(parameter.shape)
        parameter.assign(part.cast(parameter.dtype))
        at += parameter.numel()
    found[0].realize(*found[1:])


@checked
def clip_grad_value_(
    parameters: Tensor | Iterable[Tensor], clip_value: float, foreach: bool | None = None
) -> None:
    """Hold every element of every gradient between -clip_value and clip_value. Raises as `clip_grad_norm_` does.

    >>> x = Tensor([1.0, 1.0], requires_grad=True)
    >>> (x * Tensor([3.0, -0.5])).sum().backward()
    >>> nn.utils.clip_grad_value_([x], 1.0)
    >>> x.grad.tolist()
    [1.0, -0.5]
    """
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
