"""Functional: derivatives of functions at given tensors, under the names of PyTorch's torch.autograd.functional.

In       a function of tensors, and these
Out      jacobian, hessian, vjp, jvp, hvp, vhp: what hcq.func computes, with the arguments of this older interface
Next     more/transforms/ (hcq.func)
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hcq.frontend.more import transforms
from hcq.frontend.tensor import Tensor

Inputs = Any  # a tensor, or a tuple of them


def _apart(made: Any, create_graph: bool) -> Any:
    if isinstance(made, (tuple, list)):
        return tuple([_apart(one, create_graph) for one in made])
    return made if create_graph else made.detach()


def _places(inputs: Inputs) -> Any:
    return tuple(range(len(inputs))) if isinstance(inputs, tuple) else 0


def _args(inputs: Inputs) -> tuple[Any, ...]:
    return inputs if isinstance(inputs, tuple) else (inputs,)


def jacobian(
    func: Callable[..., Any],
    inputs: Inputs,
    create_graph: bool = False,
    strict: bool = False,
    vectorize: bool = False,
    strategy: str = "reverse-mode",
) -> Any:
    """The derivative of each element of the result with respect to each element of the inputs.

    inputs     a tensor, or a tuple of them, for which a tuple comes back
    strategy   "reverse-mode" or "forward-mode"

    >>> hcq.torch.autograd.functional.jacobian(lambda x: x * x, Tensor([1.0, 2.0])).tolist()
    [[2.0, 0.0], [0.0, 4.0]]
    """
    way = transforms.jacfwd if strategy == "forward-mode" else transforms.jacrev
    return _apart(way(func, _places(inputs))(*_args(inputs)), create_graph)


def hessian(
    func: Callable[..., Any],
    inputs: Inputs,
    create_graph: bool = False,
    strict: bool = False,
    vectorize: bool = False,
    outer_jacobian_strategy: str = "reverse-mode",
) -> Any:
    """The second derivatives of a function that gives one number.

    >>> hcq.torch.autograd.functional.hessian(lambda x: (x * x * x).sum(), Tensor([1.0, 2.0])).tolist()
    [[6.0, 0.0], [0.0, 12.0]]
    """
    return _apart(transforms.hessian(func, _places(inputs))(*_args(inputs)), create_graph)


def vjp(func: Callable[..., Any], inputs: Inputs, v: Any = None, create_graph: bool = False) -> Any:
    """The result, and `v` times the derivative; without v the result has one element.

    >>> value, slope = hcq.torch.autograd.functional.vjp(lambda x: x * x, Tensor([1.0, 3.0]), Tensor([1.0, 1.0]))
    >>> slope.tolist()
    [2.0, 6.0]
    """
    value, way = transforms.vjp(func, *_args(inputs))
    found = way(value.ones_like() if v is None else v)
    return _apart(value, create_graph), _apart(found if isinstance(inputs, tuple) else found[0], create_graph)


def jvp(func: Callable[..., Any], inputs: Inputs, v: Any = None, create_graph: bool = False) -> Any:
    """The result, and the derivative times `v`; without v the input has one element.

    >>> hcq.torch.autograd.functional.jvp(lambda x: x * x, Tensor([3.0]), Tensor([1.0]))[1].tolist()
    [6.0]
    """
    args = _args(inputs)
    along = tuple([one.ones_like() for one in args]) if v is None else _args(v)
    value, slope = transforms.jvp(func, args, along)
    return _apart(value, create_graph), _apart(slope, create_graph)


def hvp(func: Callable[..., Any], inputs: Inputs, v: Any = None, create_graph: bool = False) -> Any:
    """The value of a function that gives one number, and its second derivatives times `v`.

    >>> hcq.torch.autograd.functional.hvp(lambda x: (x * x * x).sum(), Tensor([2.0]), Tensor([1.0]))[1].tolist()
    [12.0]
    """
    args = _args(inputs)
    along = tuple([one.ones_like() for one in args]) if v is None else _args(v)
    slopes = transforms.grad(func, tuple(range(len(args))))
    _, found = transforms.jvp(lambda *xs: slopes(*xs), args, along)
    value: Tensor = func(*args)
    return _apart(value, create_graph), _apart(found if isinstance(inputs, tuple) else found[0], create_graph)


vhp = hvp  # second derivatives are symmetric
