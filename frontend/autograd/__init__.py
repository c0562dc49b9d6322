"""autograd: gradients by hand, and functions whose derivative a program writes itself, under PyTorch's names.

In       tensors; a class with forward and backward
Out      grad, backward, Function, Variable, functional, gradcheck; the modes
Changes  backward: `.grad` of leaves
Next     custom.py (Function), functional.py, checking.py (gradcheck), grad/gradient.py (how gradients are found)
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hcq.frontend.autograd import functional as functional
from hcq.frontend.autograd.checking import gradcheck as gradcheck
from hcq.frontend.autograd.custom import Function as Function
from hcq.frontend.autograd.custom import once_differentiable as once_differentiable
from hcq.frontend.core.base import Core
from hcq.frontend.functions.modes import enable_grad as enable_grad
from hcq.frontend.functions.modes import inference_mode as inference_mode
from hcq.frontend.functions.modes import set_grad_enabled as set_grad_enabled
from hcq.frontend.grad.gradient import grad as grad
from hcq.frontend.grad.gradient import no_grad as no_grad
from hcq.frontend.tensor import Tensor


def backward(
    tensors: Tensor | Sequence[Tensor],
    grad_tensors: Tensor | Sequence[Tensor | None] | None = None,
    retain_graph: bool | None = None,
    create_graph: bool = False,
    inputs: Tensor | Sequence[Tensor] | None = None,
) -> None:
    """`x.backward()` of several tensors: the gradients of all of them are added to the `.grad` of their leaves.

    grad_tensors   one weight per tensor, of its shape; may be left out for tensors of one element

    >>> x = Tensor([1.0, 2.0], requires_grad=True)
    >>> hcq.torch.autograd.backward([x.sum(), (x * x).sum()])
    >>> x.grad.tolist()
    [3.0, 5.0]
    """
    roots = [tensors] if isinstance(tensors, Core) else list(tensors)
    weights: list[Any] = [None] * len(roots)
    if grad_tensors is not None:
        weights = [grad_tensors] if isinstance(grad_tensors, Core) else list(grad_tensors)
    for root, weight in zip(roots, weights, strict=True):
        root.backward(weight, retain_graph, create_graph, inputs)


class _Tensors(type):
    def __instancecheck__(cls, thing: object) -> bool:
        return isinstance(thing, Core)


class Variable(metaclass=_Tensors):
    """A tensor, by the name that it had in PyTorch before 0.4: `Variable(x)` is x, and every tensor is one.

    requires_grad   True: a leaf of the values of x
    volatile        True: without gradients

    >>> x = Tensor([1.0])
    >>> hcq.torch.autograd.Variable(x) is x, hcq.torch.autograd.Variable(x, requires_grad=True).requires_grad
    (True, True)
    """

    def __new__(cls, data: Tensor, requires_grad: bool = False, volatile: bool = False) -> Any:
        if volatile:
            return data.detach()
        return data.detach().requires_grad_() if requires_grad else data
