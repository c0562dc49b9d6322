"""Choice: of two values one for each element: by a condition, by a mask, by which is greater; and three that meet.

In       tensors and numbers, whose shapes broadcast and whose dtypes promote
Out      `Choice`
Next     elementwise.py (how operands meet), ../core/nodes.py (broadcast)
"""

from __future__ import annotations

from typing import Any

from hcq.frontend.core.base import Core
from hcq.frontend.core.errors import UsageError
from hcq.frontend.core.nodes import broadcast_shape, constant, expanded, met
from hcq.frontend.ops.base import Methods, Self, in_float_together
from hcq.ir.node import Node
from hcq.ir.op import Op


class Choice(Methods):
    """where, masked_fill, clamp, maximum, minimum, lerp, addcmul, addcdiv."""

    __slots__ = ()

    def maximum(self, other: Any) -> Self:
        """The greater of two, in the dtype both promote to; NaN if either is NaN. Shapes broadcast.

        >>> Tensor([1.0, float("nan")]).maximum(Tensor([2.0, 2.0])).tolist()
        [2.0, nan]
        """
        return self._binary(Op.MAX, other)

    def minimum(self, other: Any) -> Self:
        """The lesser of two, in the dtype both promote to; NaN if either is NaN. Shapes broadcast.

        >>> hcq.tensor([1, 5]).minimum(hcq.tensor([[2], [0]])).tolist()
        [[1, 2], [0, 0]]
        """
        return self._binary(Op.MIN, other)

    def clamp(self, min: Any = None, max: Any = None) -> Self:
        """Held between min and max, numbers or tensors that broadcast; None is no bound. NaN stays NaN.

        Raises  UsageError when neither is given

        >>> Tensor([-2.0, 0.5, 2.0]).clamp(-1.0, 1.0).tolist()
        [-1.0, 0.5, 1.0]
        """
        if min is None and max is None:
            raise UsageError("[clamp] neither min nor max is given. Give one of them at least.")
        min, max = self._bound(min), self._bound(max)
        x = self  # at a bound the slope is 1, as in PyTorch: maximum() and minimum() would share it with the bound
        if min is not None:
            x = _or_nan(x < min, min).where(min, x)
        return x if max is None else _or_nan(x > max, max).where(max, x)

    clip = clamp

    def _bound(self, bound: Any) -> Any:
        """A number as it is; what has elements as a tensor."""
        has_elements = isinstance(bound, (list, tuple)) or bool(getattr(bound, "shape", ()))
        return self._operand("clamp", bound) if has_elements else bound

    def where(self, if_true: Any = None, if_false: Any = None) -> Any:
        """Where this bool tensor is true take `if_true`, elsewhere `if_false`; the three broadcast.

        The dtype is what the two values promote to. The condition alone gives the indices of what is true, as a tuple
        of a vector for each axis: see `nonzero`. Raises UsageError for a condition that is not bool.

        >>> (hcq.tensor([1, -2]) > 0).where(hcq.tensor([10, 20]), 0).tolist()
        [10, 0]
        """
        if if_true is None and if_false is None:
            return self.nonzero(as_tuple=True)
        if if_true is None or if_false is None:
            raise UsageError(
                "[where] one value: give two, or the condition alone for the indices of what is true."
            )
        if not self.node.dtype.is_bool:
            raise UsageError(f"[where] the condition is {self.node.dtype.name}. Make it bool: x != 0.")
        a: Any = self._side(if_true)
        b: Any = self._side(if_false)
        if b is None:
            a, b = self._meet_scalar(
                "where", self._operand("where", if_true).node if a is None else a, if_false
            )
        elif a is None:
            b, a = self._meet_scalar("where", b, if_true)
        if a.dtype is not b.dtype:
            dtype = met(a, b)
            a, b = a.cast(dtype), b.cast(dtype)
        condition = self.node
        shape = condition.shape
        if (a.shape and a.shape != shape) or (b.shape and b.shape != shape):
            shape = broadcast_shape("where", shape, a.shape, b.shape)
            condition, a, b = (x if not x.shape else expanded(x, shape) for x in (condition, a, b))
        return self._like(Node(Op.WHERE, a.dtype, (condition, a, b)))

    def _side(self, value: Any) -> Node | None:
        """The node of a tensor on this device, None for what is no tensor."""
        if not isinstance(value, Core):
            return None
        if value.device != self.device:
            self._same_device("where", value)
        return value.node

    def masked_fill(self, mask: Self, value: Any) -> Self:
        """`value` where the mask is true, this tensor elsewhere; its dtype stays. The mask broadcasts.

        >>> x = Tensor([[0.0, 1.0], [2.0, 3.0]])
        >>> x.masked_fill(hcq.tensor([True, False]), -1.0).tolist()
        [[-1.0, 1.0], [-1.0, 3.0]]
        """
        if not isinstance(value, (bool, int, float)):
            value = self._operand("masked_fill", value)
        node = value.node.cast(self.node.dtype) if isinstance(value, Core) else None
        return mask.where(self._like(node or constant("masked_fill", value, self.node.dtype)), self)

    @in_float_together
    def lerp(self, end: Any, weight: Any) -> Self:
        """self + (end - self) * weight; shapes broadcast.

        >>> Tensor([0.0, 10.0]).lerp(Tensor([4.0, 20.0]), 0.5).tolist()
        [2.0, 15.0]
        """
        return self + (self._operand("lerp", end) - self) * weight

    @in_float_together
    def addcmul(self, a: Self, b: Self, value: Any = 1) -> Self:
        """self + value * a * b; shapes broadcast.

        >>> Tensor([1.0]).addcmul(Tensor([2.0]), Tensor([3.0]), value=0.5).tolist()
        [4.0]
        """
        return self + (a * b if type(value) is int and value == 1 else a * b * value)

    @in_float_together
    def addcdiv(self, a: Self, b: Self, value: Any = 1) -> Self:
        """self + value * a / b; shapes broadcast.

        >>> Tensor([1.0]).addcdiv(Tensor([6.0]), Tensor([2.0]), value=0.5).tolist()
        [2.5]
        """
        return self + (a / b if type(value) is int and value == 1 else a / b * value)


def _or_nan(beyond: Any, bound: Any) -> Any:
    """Where a clamp takes the bound: beyond it, and where the bound is NaN."""
    if isinstance(bound, Core):
        return beyond | (bound != bound) if bound.node.dtype.is_float else beyond
    return beyond if bound == bound else beyond | True
