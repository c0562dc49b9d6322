"""Gradients: which tensors have one, and what it is.

In       a tensor; `backward` of a result, a gradient to begin with
Out      `grad`, `requires_grad`, `backward`, `data`
Changes  the tensors that are asked for a gradient: they get memory of their own; `.grad` of leaves
Next     ../grad/gradient.py (the walk from a result to its leaves), history.py (hooks, leaves)
"""

from __future__ import annotations

from typing import Any

from hcq.frontend.core import sizes
from hcq.frontend.core.base import Core, changed, live
from hcq.frontend.core.errors import UsageError
from hcq.frontend.core.threads import lock
from hcq.frontend.ops.base import Methods, Self
from hcq.ir.op import Op


class Gradients(Methods):
    """grad, requires_grad, backward, data."""

    __slots__ = ()
    _are_functions: bool = False

    @property
    def grad(self) -> Self | None:
        """The gradient that backward() added up, of this tensor's shape; None before. May be assigned.

        Of what was computed from a leaf it stays None, and a warning says so, unless `retain_grad` was called.

        >>> x = Tensor([3.0], requires_grad=True)
        >>> x.grad is None
        True
        >>> (x * x).sum().backward()
        >>> x.grad.tolist()
        [6.0]
        """
        found = self._grad_so_far()
        if found is None and not self._requires_grad and self._is_on_the_way() and not self.retains_grad:
            import warnings

            warnings.warn(
                f"[grad] this tensor of shape {self.shape} is no leaf: it was computed from one, and backward() sets "
                "the .grad of leaves alone. Call retain_grad() on it before backward() to have it, too.",
                stacklevel=2,
            )
        return found

    @grad.setter
    def grad(self, gradient: Self | None) -> None:
        self._set_grad(gradient)

    @property
    def requires_grad(self) -> bool:
        """True for a leaf whose gradient backward() computes, and for what was computed from one. May be assigned.

        >>> x = Tensor([1.0], requires_grad=True)
        >>> x.requires_grad, (x * 2).requires_grad, (x * 2).detach().requires_grad
        (True, True, False)
        """
        return self._requires_grad or self._is_on_the_way()

    @requires_grad.setter
    def requires_grad(self, flag: bool) -> None:
        self.requires_grad_(flag)

    def requires_grad_(self, requires_grad: bool = True) -> Self:
        """Ask for a gradient, or no longer. A leaf is known by its memory, so it gets memory of its own now.

        Raises  UsageError for integers and bool

        >>> x = Tensor([1.0]).requires_grad_()
        >>> x.requires_grad
        True
        """
        if not requires_grad:
            self._requires_grad = False
            if self.node.op is Op.BUFFER and self.node.arg.history is None:
                self.node.arg.tracked = (
                    False  # what is computed from it from now on has no gradient to keep a way for
                )
            changed()
            return self
        if sizes.has_counts(self.node):
            raise UsageError(
                f"[requires_grad] a tensor of shape {self.shape}, a part of another: ask for the gradient of the whole."
            )
        if not self.dtype.is_float:
            raise UsageError(
                f"[requires_grad] {self.dtype.name} has no gradient. Cast to a floating-point dtype first."
            )
        with lock:
            if self.node.op is not Op.BUFFER or any(t.node is self.node and t is not self for t in live):
                self._before_change()
                self.node = self.clone().realize().node
            self.node.arg.tracked = True
            self._requires_grad = True
            changed()
        return self

    def _is_on_the_way(self) -> bool:
        from hcq.frontend.grad.gradient import is_on_the_way  # programs without gradients never load them

        return is_on_the_way(self.node)

    def backward(
        self,
        gradient: Core | None = None,
        retain_graph: bool | None = None,
        create_graph: bool = False,
        inputs: Any = None,
    ) -> None:
        """Add the gradient of this tensor to the `.grad` of every live leaf it depends on. Nothing runs yet.

        gradient      weighs the elements, of this shape; may be left out when there is one
        retain_graph  may be given, and has no effect: a graph is kept by who holds it, and may be gone through again
        create_graph  what `.grad` becomes can be differentiated again
        inputs        tensors, whose `.grad` alone is added to
        Raises        UsageError when there is no such leaf, or what is needed was written over since

        >>> x = Tensor([1.0, 2.0], requires_grad=True)
        >>> (x * x).sum().backward()
        >>> x.grad.tolist()
        [2.0, 4.0]
        """
        from hcq.frontend.grad.gradient import backward

        backward(self, gradient, create_graph, inputs)

    @property
    def data(self) -> Self:
        """The same values in the same memory, apart from gradients: `detach`. What is written to it is written here.

        Assigning gives this very tensor other values, of any shape, and no gradient sees it.

        >>> w = Tensor([1.0, 2.0], requires_grad=True)
        >>> _ = w.data.mul_(10.0)
        >>> w.tolist(), w.requires_grad, w.data.requires_grad
        ([10.0, 20.0], True, False)
        >>> w.data = Tensor([3.0])
        >>> w.tolist(), w.requires_grad
        ([3.0], True)
        """
        return self.detach()

    @data.setter
    def data(self, value: Any) -> None:
        if not isinstance(value, Methods):
            raise UsageError(f"[data] {value!r}: assign a tensor.")
        own = value.detach()
        if self._requires_grad:
            if not value.dtype.is_float:
                raise UsageError(
                    f"[data] a {value.dtype.name} tensor for a leaf that requires a gradient: cast it to a float."
                )
            own = own.clone().realize()
            own.node.arg.tracked = True
        self._before_change()
        self.node, self.device = own.node, own.device
        changed()
