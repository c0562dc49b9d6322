"""In place: PyTorch's `x.add_(y)`, made of `x.add(y)`; the result is written where x is, and seen in views of x.

In       a tensor, and the arguments of the method without the underscore
Out      `InPlace`: a method for each name of in_place_names.py
Changes  the tensor that it is called on, and whatever views the same memory (core/views.py)
Next     core/view_writes.py (how a write is seen), tools/method_stubs.py (the arguments of each, for type checkers)
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hcq.frontend.core import view_writes
from hcq.frontend.core.errors import UsageError
from hcq.frontend.core.nodes import iota
from hcq.frontend.ops.base import Methods
from hcq.frontend.ops.forwarded import Forwarded
from hcq.frontend.ops.in_place_names import NAMES, OPERATORS, VIEWS
from hcq.frontend.ops.other_names import OTHER_NAMES


class InPlace(Methods):
    """zero_, fill_, copy_, and a form that ends in _ of every method of NAMES and VIEWS; x += y is x.add_(y)."""

    __slots__ = ()

    def _written(self, call: str, value: Any) -> Any:
        """Write a result into this tensor. Returns it."""
        if value.node.shape != self.node.shape:
            raise UsageError(
                f"[{call}] the result has the shape {value.shape}, the tensor {self.shape}: in place the shape stays. "
                f"Use x = x.{call.rstrip('_')}(...)."
            )
        view_writes.refuse_dtype(call, self.node.dtype, value.node.dtype)
        view_writes.write(call, self, value)
        return self

    def zero_(self) -> Any:
        """All zero.

        >>> x = Tensor([1.0, 2.0])
        >>> x[:1].zero_().tolist(), x.tolist()
        ([0.0], [0.0, 2.0])
        """
        return self._written("zero_", self._all(0))

    def copy_(self, src: Any, non_blocking: bool = False) -> Any:
        """The values of another tensor, which is expanded, cast and moved as this one is.

        non_blocking   may be given, and has no effect: no copy waits

        >>> x = Tensor.zeros(2, 2)
        >>> x.copy_(hcq.tensor([1, 2])).tolist()
        [[1.0, 2.0], [1.0, 2.0]]
        """
        source = self._operand("copy_", src)
        if source.device != self.device:
            source = source.to(self.device)
        view_writes.write("copy_", self, source.cast(self.node.dtype).expand(*self.node.shape))
        return self

    def fill_diagonal_(self, fill_value: Any, wrap: bool = False) -> Any:
        """A number on the diagonal of a matrix, or where all indices of a cube are equal.

        wrap   a matrix of more rows than columns has the diagonal again, a row below its end

        >>> Tensor.zeros(2, 3).fill_diagonal_(5.0).tolist()
        [[5.0, 0.0, 0.0], [0.0, 5.0, 0.0]]
        """
        shape = self.node.shape
        if len(shape) < 2 or (len(shape) > 2 and len(set(shape)) > 1):
            raise UsageError(f"[fill_diagonal_] shape {shape}: takes a matrix, or a cube of one size.")
        rows, columns = shape[0], shape[-1]
        count = rows * columns if len(shape) == 2 else rows ** len(shape)
        step = columns + 1 if len(shape) == 2 else sum(rows**axis for axis in range(len(shape)))
        end = count if wrap or len(shape) > 2 or rows <= columns else columns * columns
        place = self._like(iota(count, 0, (count,)))
        is_on = (place % step == 0) & (place < end)
        return self._written("fill_diagonal_", self.masked_fill(is_on._reshape(shape), fill_value))


def _become(self: Any, call: str, view: Any) -> Any:
    self._become(view.node)
    return self


def _add(attribute: str, call: str, name: str, finish: Callable[[Any, str, Any], Any], about: str) -> None:
    form = Forwarded(call, OTHER_NAMES.get(name, name), finish, about)
    setattr(InPlace, attribute, form)
    form.__set_name__(InPlace, attribute)


for _name in NAMES:
    _about = f"`{_name}`, written into this tensor, and seen in views of its memory. Returns it."
    _add(f"{_name}_", f"{_name}_", _name, InPlace._written, _about)
for _name in VIEWS:
    _add(f"{_name}_", f"{_name}_", _name, _become, f"This tensor becomes its own `{_name}`. Returns it.")
for _operator, _name in OPERATORS.items():
    _add(_operator, f"{_name}_", _name, InPlace._written, f"`{_name}_`.")
