"""Reverse mode: from the results of a function back to its arguments.

In       a function of tensors, and its arguments
Out      vjp: its results, and a function from weights of these to gradients; grad, value_and_grad
Changes  nothing: no `.grad` is written
Next     grad/gradient.py (the walk over the graph), forward.py (the other direction), jacobians.py
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

from hcq.errors import UsageError
from hcq.frontend.core.nodes import filled
from hcq.frontend.grad.derivatives import carrier
from hcq.frontend.grad.gradient import gradients
from hcq.frontend.more.transforms.levels import Level
from hcq.frontend.more.transforms.trees import (
    chosen,
    floats_of,
    rebuilt,
    results_of,
    same_tree,
    tensors_of,
    with_arguments,
)
from hcq.frontend.tensor import Tensor
from hcq.ir.node import Node


class Run:
    """A function that ran on stand-ins for some of its arguments: what it returned, and how gradients come back.

    inputs, outputs   the tensors of the arguments and of the result, in order
    result            what the function returned, free of stand-ins; `aux` is what it returned beside it, likewise
    """

    def __init__(
        self,
        call: str,
        function: Callable[..., Any],
        args: tuple[Any, ...],
        numbers: tuple[int, ...],
        kwargs: dict[str, Any],
        has_aux: bool,
    ):
        self.call = call
        self.tree = tuple([args[number] for number in numbers])
        self.inputs = floats_of(call, self.tree, "argument tensor")
        with Level() as level:
            self.stand_ins = [level.stand_in(tensor) for tensor in self.inputs]
            given = rebuilt(self.tree, self.stand_ins)
            made = function(*with_arguments(args, numbers, given), **kwargs)
            self.aux: Any = None
            if has_aux:
                if not isinstance(made, tuple) or len(made) != 2:
                    raise UsageError(
                        f"[{call}] has_aux=True: the function has to return a pair, the result and what else is kept."
                    )
                made, self.aux = made
            self.made = results_of(call, made)
            self.level = level
            self.outputs = self.freed(self.made)
            self.result = rebuilt(made, self.outputs)
            self.aux = rebuilt(self.aux, self.freed(tensors_of(self.aux)))

    def freed(self, tensors: Sequence[Tensor]) -> list[Tensor]:
        """The same tensors, computed from the arguments themselves."""
        nodes = self.level.without_stand_ins([tensor.node for tensor in tensors])
        return [t if t.node is node else t._like(node) for t, node in zip(tensors, nodes)]

    def gradients(self, seeds: Sequence[Node]) -> list[Node]:
        """Per tensor of the arguments the gradient of the results weighed with `seeds`; zeros where none flows."""
        roots = [tensor.node for tensor in self.made]
        found = gradients(roots, seeds, [tensor.node for tensor in self.stand_ins])
        nodes = [
            filled(0.0, x.node.shape, x.node.dtype) if part is None else part
            for x, part in zip(self.inputs, found)
        ]
        return self.level.without_stand_ins(nodes)

    def like_inputs(self, nodes: Sequence[Node]) -> list[Tensor]:
        """Tensors on the devices of the arguments."""
        return [x._like(node) for x, node in zip(self.inputs, nodes)]


def one_or_tuple(argnums: Any, values: tuple[Any, ...]) -> Any:
    """A tuple of values where a tuple of arguments was named."""
    return values if isinstance(argnums, tuple) else values[0]


def vjp(func: Callable[..., Any], *primals: Any, has_aux: bool = False) -> tuple[Any, ...]:
    """The results of `func(*primals)`, and a function from weights of the results to gradients of the arguments.

    has_aux   func returns (result, aux); aux is passed on
    Returns   (result, vjp_fn), or (result, vjp_fn, aux); vjp_fn(cotangents) gives a tuple, one tree per argument
    Raises    UsageError for arguments and results that are no floats

    >>> x = Tensor([1.0, 2.0])
    >>> y, back = hcq.func.vjp(lambda x: x * x, x)
    >>> back(Tensor([1.0, 10.0]))[0].tolist()
    [2.0, 40.0]
    """
    run = Run("vjp", func, primals, tuple(range(len(primals))), {}, has_aux)
    floats_of("vjp", run.result, "result")

    def back(*cotangents: Any) -> tuple[Any, ...]:
        given = (
            cotangents[0] if len(cotangents) == 1 and not same_tree(run.result, cotangents) else cotangents
        )
        weights = tensors_of(given)
        shapes = [tensor.shape for tensor in run.outputs]
        if not same_tree(run.result, given) or [weight.shape for weight in weights] != shapes:
            raise UsageError(
                f"[vjp] weights of shapes {[weight.shape for weight in weights]}: give what the function returned, "
                f"with a tensor of the same shape for each of {shapes}."
            )
        found = run.like_inputs(run.gradients([weight.node for weight in weights]))
        return tuple(rebuilt(run.tree, found))

    return (run.result, back, run.aux) if has_aux else (run.result, back)


def grad_and_value(
    func: Callable[..., Any], argnums: int | tuple[int, ...] = 0, has_aux: bool = False
) -> Callable[..., Any]:
    """A function that returns (gradient, value) of `func`, whose result is one number.

    argnums   by which positional arguments: an int, or a tuple of ints for a tuple of gradients
    has_aux   func returns (value, aux); then the value here is that pair
    Raises    UsageError when the result is not one floating-point number

    >>> hcq.func.grad_and_value(lambda x: (x * x).sum())(Tensor([3.0]))[1].item()
    9.0
    """

    @functools.wraps(func)
    def transformed(*args: Any, **kwargs: Any) -> Any:
        run = Run("grad", func, args, chosen("grad", argnums, args), kwargs, has_aux)
        value = run.result
        if not isinstance(value, Tensor) or value.numel() != 1 or not value.dtype.is_float:
            what = (
                f"{value.dtype.name} of shape {value.shape}"
                if isinstance(value, Tensor)
                else "several tensors"
            )
            raise UsageError(
                f"[grad] the function returned {what}: a gradient is that of one floating-point number. Reduce it, as "
                "x.sum(), or take jacrev."
            )
        seed = filled(1.0, value.node.shape, carrier(value.dtype))
        found = one_or_tuple(argnums, tuple(rebuilt(run.tree, run.like_inputs(run.gradients([seed])))))
        return found, ((value, run.aux) if has_aux else value)

    return transformed


def _told(func: Callable[..., Any], argnums: Any, has_aux: bool, tell: Callable[[Any, Any], Any]) -> Any:
    """A function that tells of the gradient and the value of `func` in another form."""
    both = grad_and_value(func, argnums, has_aux)
    return functools.wraps(func)(lambda *args, **kwargs: tell(*both(*args, **kwargs)))


def value_and_grad(
    func: Callable[..., Any], argnums: int | tuple[int, ...] = 0, has_aux: bool = False
) -> Callable[..., Any]:
    """As `grad_and_value`, the value first.

    >>> value, slope = hcq.func.value_and_grad(lambda x: (x * x).sum())(Tensor([3.0]))
    >>> value.item(), slope.tolist()
    (9.0, [6.0])
    """
    return _told(func, argnums, has_aux, lambda gradient, value: (value, gradient))


def grad(
    func: Callable[..., Any], argnums: int | tuple[int, ...] = 0, has_aux: bool = False
) -> Callable[..., Any]:
    """A function that returns the gradient of `func`, whose result is one number.

    argnums   by which positional arguments: an int, or a tuple of ints for a tuple of gradients
    has_aux   func returns (value, aux); then (gradient, aux) is returned
    Raises    UsageError when the result is not one floating-point number

    >>> hcq.func.grad(lambda x: (x ** 3).sum())(Tensor([2.0])).tolist()
    [12.0]
    """
    return _told(
        func, argnums, has_aux, lambda gradient, value: (gradient, value[1]) if has_aux else gradient
    )
