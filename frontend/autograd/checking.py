"""Checking: whether a function's gradient is what its values say, by differences.

In       a function of tensors, float64 ones
Out      True; a refusal that names the elements that differ
Next     custom.py (functions that want checking)
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hcq.errors import UsageError
from hcq.frontend.core.base import Core
from hcq.frontend.grad.gradient import grad
from hcq.frontend.tensor import Tensor


def gradcheck(
    func: Callable[..., Any],
    inputs: Any,
    eps: float = 1e-6,
    atol: float = 1e-5,
    rtol: float = 1e-3,
    raise_exception: bool = True,
) -> bool:
    """Compare the gradient of every element of every output with the difference of values `eps` to both sides.

    inputs   a tensor or a tuple; those that require a gradient are checked, and are float64 for this to be exact
    Raises   UsageError that names the first element that differs; False instead where raise_exception is False

    >>> hcq.torch.autograd.gradcheck(lambda x: x.sin(), Tensor([0.5], dtype=hcq.float64, requires_grad=True))
    True
    """
    args = list(inputs) if isinstance(inputs, (tuple, list)) else [inputs]
    places = [n for n, arg in enumerate(args) if isinstance(arg, Tensor) and arg.requires_grad]
    if not places:
        raise UsageError("[gradcheck] no input requires a gradient: make one with requires_grad=True.")
    outputs = _flat(func(*args))
    for place in places:
        width = args[place].numel()
        slopes = [[found.reshape(-1) for found in _rows(out, args[place])] for out in outputs]
        for element in range(width):
            above, below = (_flat(func(*_moved(args, place, element, step))) for step in (eps, -eps))
            for number, (high, low, rows) in enumerate(zip(above, below, slopes)):
                want = ((high - low) / (2 * eps)).tolist()
                have = [row[element].item() for row in rows]
                for at, (one, two) in enumerate(zip(have, want)):
                    if abs(one - two) <= atol + rtol * abs(two):
                        continue
                    if not raise_exception:
                        return False
                    raise UsageError(
                        f"[gradcheck] output {number}, element {at}, by input {place}, element {element}: the gradient "
                        f"is {one:g}, the difference of values {two:g}. Check backward, or use float64 inputs."
                    )
    return True


def _flat(result: Any) -> list[Tensor]:
    outputs = result if isinstance(result, (tuple, list)) else [result]
    return [out.reshape(-1) for out in outputs if out.dtype.is_float]


def _rows(out: Tensor, x: Tensor) -> list[Any]:
    found = [grad(out[n], x, allow_unused=True)[0] for n in range(out.numel())]
    return [x.detach().zeros_like() if one is None else one for one in found]


def _moved(args: list[Any], place: int, element: int, step: float) -> list[Any]:
    moved = [arg.detach() if isinstance(arg, Core) else arg for arg in args]
    shape, flat = args[place].shape, args[place].detach().reshape(-1).tolist()
    flat[element] += step
    moved[place] = Tensor(flat, args[place].device, args[place].dtype).reshape(shape)
    return moved
