"""Uninitialised: parameters and buffers whose shape is known once their layer has seen an input.

In       a device and a dtype; later a shape
Out      `UninitializedParameter`, `UninitializedBuffer`, which `materialize` makes a Parameter and a Buffer
Changes  `materialize`: the tensor itself, so that whoever holds it holds what it became
Next     layers/lazy.py (the layers that have them), parameter.py (what they become)
"""

from __future__ import annotations

from typing import Any, NoReturn

from hcq.errors import UsageError
from hcq.frontend.core.base import changed
from hcq.frontend.nn.constant import constant
from hcq.frontend.nn.parameter import Buffer, Parameter
from hcq.frontend.tensor import Tensor
from hcq.ir.dtype import DType
from hcq.ir.node import Node, Shape


class Uninitialized(Tensor):
    """What both kinds have in common. Asking for the shape, or computing, is refused."""

    __slots__ = ()
    becomes: type[Tensor]

    @property
    def shape(self) -> NoReturn:  # type: ignore[override]
        """Refused."""
        raise UsageError(
            f"[{type(self).__name__}] its shape is known once its layer has seen an input. Call the model on one batch "
            "first, and make optimizers and copies afterwards."
        )

    def _like(self, node: Node) -> Any:
        return self.shape  # every method that computes comes here

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        kind: Any = type(self)
        copy = memo[id(self)] = kind(self._requires_grad, self.device, self.node.dtype)
        copy.__dict__.update(self.__dict__)
        return copy

    def place(self, device: str | None, dtype: DType | None) -> None:
        """Have the memory on that device, of that dtype, once there is some."""
        empty = constant((0,), 0.0, dtype or self.node.dtype, device or self.device)
        self.node, self.device = empty.node, empty.device

    def materialize(self, shape: Shape, device: str | None = None, dtype: DType | None = None) -> None:
        """Become a tensor of zeros of this shape, for an initial value to be written into.

        >>> weight = nn.UninitializedParameter()
        >>> weight.materialize((2, 3))
        >>> weight.shape, type(weight) is nn.Parameter
        ((2, 3), True)
        """
        made = constant(tuple(shape), 0.0, dtype or self.node.dtype, device or self.device)
        self._before_change()
        self.node, self.device = made.node, made.device
        self.node.arg.tracked = self._requires_grad
        self.__class__ = self.becomes  # type: ignore[assignment]
        changed()

    def __repr__(self) -> str:
        return f"<{type(self).__name__}>"

    __str__ = __repr__


class UninitializedParameter(Parameter, Uninitialized):
    """A Parameter whose shape is not known yet.

    >>> nn.LazyLinear(2).weight
    <UninitializedParameter>
    """

    becomes = Parameter
    __deepcopy__ = Uninitialized.__deepcopy__

    def __init__(
        self, requires_grad: bool = True, device: str | None = None, dtype: DType | None = None
    ) -> None:
        Tensor.__init__(self, constant((0,), 0.0, dtype, device))
        self._requires_grad = requires_grad


class UninitializedBuffer(Buffer, Uninitialized):
    """A Buffer whose shape is not known yet.

    >>> nn.LazyBatchNorm1d().running_mean
    <UninitializedBuffer>
    """

    becomes = Buffer
    __deepcopy__ = Uninitialized.__deepcopy__

    def __init__(
        self,
        requires_grad: bool = False,
        device: str | None = None,
        dtype: DType | None = None,
        persistent: bool = True,
    ) -> None:
        Buffer.__init__(self, constant((0,), 0.0, dtype, device), persistent=persistent)
