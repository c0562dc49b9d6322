"""Custom: functions of tensors whose derivative a program writes itself, as subclasses of PyTorch's Function.

In       a class with forward(ctx, ...) and backward(ctx, ...), and tensors
Out      what forward computes; gradients pass it by backward alone, not through the steps of forward
Changes  nothing; backward is called when a gradient is asked for, and what it computes is lazy, too
Next     grad/function.py (the node that has rules of its own), ../nn/hooks.py (which joins several gradients alike)

Several outputs are joined into one, so that backward is called once with the gradients of all of them.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from math import prod
from typing import Any

from hcq.checks import shown
from hcq.errors import UsageError
from hcq.frontend.core.base import Core
from hcq.frontend.functions.modes import is_grad_enabled
from hcq.frontend.grad import function
from hcq.frontend.grad.gradient import is_on_the_way, no_grad
from hcq.frontend.tensor import Tensor
from hcq.ir.dtype import promote
from hcq.ir.node import Node


class _Output:
    """Stands for an output that was saved: the tensor that backward() came by, whatever holds it."""

    def __init__(self, place: int) -> None:
        self.place = place


class Context:
    """What forward leaves for backward. Attributes may be set on it at will.

    saved_tensors      in backward: what save_for_backward was given
    needs_input_grad   for each argument, whether it requires a gradient
    """

    def __init__(self, needs: tuple[bool, ...]) -> None:
        self.needs_input_grad = needs
        self.materialize_grads = True
        self._saved: list[Any] = []
        self._outputs: Sequence[Any] = ()
        self._flat: set[int] = set()

    def save_for_backward(self, *tensors: Tensor | None) -> None:
        """Keep arguments and results for backward."""
        self._saved = list(tensors)

    save_for_forward = save_for_backward

    @property
    def saved_tensors(self) -> tuple[Any, ...]:
        """What was saved, in that order."""
        return tuple([self._outputs[one.place] if isinstance(one, _Output) else one for one in self._saved])

    def mark_non_differentiable(self, *tensors: Tensor) -> None:
        """These outputs have no gradient."""
        self._flat |= {id(tensor) for tensor in tensors}

    def set_materialize_grads(self, value: bool) -> None:
        """May be called, and has no effect: the gradients that backward is given are tensors, zeros where none came."""
        self.materialize_grads = value

    def mark_dirty(self, *tensors: Tensor) -> None:
        """Refused: forward gives new values, and a program that wants them in place copies them."""
        raise UsageError(
            "[mark_dirty] a custom function changes no argument: return the result, and copy_() it."
        )


class Function:
    """A function with a derivative of its own: `forward` and `backward` are static methods, `apply` calls it.

    forward    forward(ctx, *args), or forward(*args) with a setup_context(ctx, inputs, output) beside it
    backward   backward(ctx, *gradients): as many results as forward has arguments, None for those without

    >>> class Cube(hcq.torch.autograd.Function):
    ...     @staticmethod
    ...     def forward(ctx, x):
    ...         ctx.save_for_backward(x)
    ...         return x**3
    ...
    ...     @staticmethod
    ...     def backward(ctx, g):
    ...         (x,) = ctx.saved_tensors
    ...         return g * 3 * x**2
    >>> x = Tensor([2.0], requires_grad=True)
    >>> Cube.apply(x).sum().backward()
    >>> x.grad.tolist()
    [12.0]
    """

    @staticmethod
    def forward(*args: Any, **kwargs: Any) -> Any:
        """What the function computes."""
        raise UsageError("[Function] define forward(ctx, ...) as a static method.")

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        """What is kept for backward, where forward takes no ctx."""
        raise UsageError("[Function] forward without ctx needs setup_context(ctx, inputs, output).")

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        """The gradients of the arguments, from those of the results."""
        raise UsageError("[Function] define backward(ctx, ...) as a static method: a gradient was asked for.")

    vjp = backward

    @classmethod
    def apply(cls, *args: Any, **kwargs: Any) -> Any:
        """Call it."""
        floats = [isinstance(arg, Tensor) and arg.dtype.is_float and not arg.is_complex() for arg in args]
        takes = [is_float and is_on_the_way(arg.node) for is_float, arg in zip(floats, args)]
        ctx = Context(tuple(takes))
        with no_grad():
            if cls.setup_context is Function.setup_context:
                result = cls.forward(ctx, *args, **kwargs)
            else:
                result = cls.forward(*args, **kwargs)
                cls.setup_context(ctx, args, result)
        outputs = list(result) if isinstance(result, (tuple, list)) else [result]
        places = [
            place
            for place, out in enumerate(outputs)
            if isinstance(out, Tensor) and out.dtype.is_float and id(out) not in ctx._flat
        ]
        own = {id(out): _Output(place) for place, out in enumerate(outputs)}
        ctx._saved = [one if one is None else own.get(id(one), one) for one in ctx._saved]
        if places and any(floats) and is_grad_enabled():
            given = [arg for arg, is_float in zip(args, floats) if is_float]
            ways = [place for place, is_float in enumerate(floats) if is_float]
            for place, out in zip(
                places, _passed(cls, ctx, [outputs[n] for n in places], given, ways, outputs, places)
            ):
                outputs[place] = out
        else:
            ctx._outputs = outputs
        return type(result)(outputs) if isinstance(result, (tuple, list)) else outputs[0]


def _passed(
    cls: type[Function],
    ctx: Context,
    results: list[Any],
    given: list[Any],
    ways: list[int],
    outputs: list[Any],
    places: list[int],
) -> list[Any]:
    """The results, with a way back to the arguments.

    given, ways      the arguments that may have a gradient, and which of all arguments they are
    outputs, places  all outputs, and which of them the results are
    """
    device, shapes, dtypes = results[0].device, [one.shape for one in results], [one.dtype for one in results]
    others = [None if place in places else out for place, out in enumerate(outputs)]
    widest = functools.reduce(promote, dtypes)
    flat = results[0] if len(results) == 1 else Tensor.cat([one.reshape(-1).cast(widest) for one in results])
    known: dict[Node, tuple[Any, ...]] = {}

    def apart(joined: Any) -> list[Any]:
        if len(shapes) == 1:
            return [joined.cast(dtypes[0])]
        found, at = [], 0
        for shape, dtype in zip(shapes, dtypes):
            found.append(joined[at : at + prod(shape)].reshape(shape).cast(dtype))
            at += prod(shape)
        return found

    def slopes(node: Node, g: Node) -> tuple[Any, ...]:
        """What backward makes of the gradients; once for all arguments."""
        if g not in known:
            full, of_all = list(others), list[Any]([None]) * len(others)
            for place, out, slope in zip(
                places, apart(Tensor._of(node, device)), apart(Tensor._of(g, device))
            ):
                full[place], of_all[place] = out, slope
            for place, out in enumerate(outputs):
                if of_all[place] is None and isinstance(out, Tensor):
                    of_all[place] = out.zeros_like()
            ctx._outputs = full
            way = cls.backward if cls.backward is not Function.backward else cls.vjp
            found = way(ctx, *of_all)
            ctx._outputs = ()
            known.clear()
            known[g] = found if isinstance(found, tuple) else (found,)
        return known[g]

    def rule(way: int, argument: Any) -> Callable[[Node, Node], Node]:
        shape = argument.shape

        def slope(node: Node, g: Node) -> Node:
            found = slopes(node, g)
            if len(found) <= way:
                raise UsageError(
                    f"[{cls.__name__}.backward] it gives {len(found)} gradients, and forward has an argument {way}: "
                    "return one for each argument, None for those without."
                )
            one = found[way]
            if one is None:
                return Tensor.zeros(*shape, dtype=Tensor._of(g, device).dtype, device=device).node
            if not isinstance(one, Core) or one.shape != shape:
                raise UsageError(
                    f"[{cls.__name__}.backward] gradient {way} is {shown(one)}, of an argument of shape {shape}: "
                    "return a tensor of that shape, or None."
                )
            return one.node

        return slope

    rules = [rule(way, argument) for way, argument in zip(ways, given)]
    node = function.Function(cls.__name__, *rules).of(flat.node, *[one.node for one in given])
    return apart(flat._like(node))


def once_differentiable(backward: Callable[..., Any]) -> Callable[..., Any]:
    """A backward whose results have no gradient themselves.

    >>> from hcq.torch.autograd import once_differentiable
    >>> once_differentiable(lambda ctx, g: g * 2)(None, Tensor([1.0])).tolist()
    [2.0]
    """

    @functools.wraps(backward)
    def plain(ctx: Any, *gradients: Any) -> Any:
        with no_grad():
            return backward(ctx, *gradients)

    return plain
