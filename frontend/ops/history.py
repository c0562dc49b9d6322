"""History: what a tensor was computed from, as far as gradients go, and hooks that see its gradient.

In       tensors
Out      data, is_leaf, grad_fn, register_hook, retain_grad
Changes  register_hook, retain_grad: what backward() calls; assigning to data: the tensor
Next     frontend/grad/gradient.py (backward), frontend/grad/gradient_hooks.py (the hooks), ../autograd/
         (hcq.torch.autograd)
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

from hcq.frontend.core.errors import UsageError
from hcq.frontend.grad import gradient, gradient_hooks
from hcq.frontend.ops.base import Methods
from hcq.ir.node import Node
from hcq.ir.op import Op


class GradientFunction:
    """What `grad_fn` is: that a tensor was computed, and by which operation. `name()` says it in PyTorch's manner."""

    __slots__ = ("_name",)

    def __init__(self, node: Node) -> None:
        node = gradient.identity(node)
        word = node.arg.name if node.op is Op.FUNCTION else node.op.name
        self._name = "".join(part.capitalize() for part in word.replace(" ", "_").split("_")) + "Backward"

    def name(self) -> str:
        """The operation's name with "Backward" behind it."""
        return self._name

    def __repr__(self) -> str:
        return f"<{self._name}>"


class History(Methods):
    """is_leaf, grad_fn, register_hook, retain_grad, retains_grad"""

    __slots__ = ()

    @property
    def is_leaf(self) -> bool:
        """True unless it was computed from a tensor that requires a gradient.

        >>> x = Tensor([1.0], requires_grad=True)
        >>> x.is_leaf, (x * 2.0).is_leaf, (x > 0.0).is_leaf
        (True, False, True)
        """
        return self._requires_grad or not gradient.is_on_the_way(self.node)

    @property
    def grad_fn(self) -> GradientFunction | None:
        """None for a leaf; else something that says by which operation it was computed.

        >>> x = Tensor([1.0], requires_grad=True)
        >>> x.grad_fn, (x * 2.0).grad_fn
        (None, <MulBackward>)
        """
        return None if self.is_leaf else GradientFunction(self.node)

    def register_hook(self, hook: Callable[[Any], Any]) -> gradient_hooks.Handle:
        """Call `hook` with this tensor's gradient in every backward(); what it returns, if not None, flows on instead.

        Returns  a handle: `handle.remove()` ends it
        Raises   UsageError for a tensor that does not require a gradient

        >>> x = Tensor([1.0, 2.0], requires_grad=True)
        >>> y = x * 3.0
        >>> handle = y.register_hook(lambda g: g * 2.0)
        >>> y.sum().backward()
        >>> x.grad.tolist()
        [6.0, 6.0]
        """
        return gradient_hooks.Handle(self._own_hooks("register_hook"), hook)

    def _own_hooks(self, call: str) -> dict[int, Any]:
        if self._requires_grad:
            return gradient_hooks.of_leaf(self)
        if not gradient.is_on_the_way(self.node):
            raise UsageError(
                f"[{call}] a tensor of shape {self.shape} that does not require a gradient gets none. "
                "Compute it from a leaf with requires_grad=True."
            )
        return gradient.hooks_of_nodes.setdefault(gradient.identity(self.node), {})

    def retain_grad(self) -> None:
        """Have backward() set `.grad` of this tensor, too, though it is no leaf.

        >>> x = Tensor([1.0, 2.0], requires_grad=True)
        >>> y = x * 3.0
        >>> y.retain_grad()
        >>> y.square().sum().backward()
        >>> y.grad.tolist()
        [6.0, 12.0]
        """
        if self._requires_grad or self.retains_grad:
            return
        hooks, ref = self._own_hooks("retain_grad"), weakref.ref(self)

        def keep(found: Any) -> None:
            tensor = ref()
            if tensor is not None:
                tensor.grad = found.detach() if tensor.grad is None else tensor.grad + found.detach()

        hooks[-id(self)] = keep
        weakref.finalize(self, hooks.pop, -id(self), None).atexit = False

    @property
    def retains_grad(self) -> bool:
        """Whether `retain_grad` was called.

        >>> (Tensor([1.0], requires_grad=True) * 2.0).retains_grad
        False
        """
        return -id(self) in gradient.hooks_of_nodes.get(gradient.identity(self.node), {})
