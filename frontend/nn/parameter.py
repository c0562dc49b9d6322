"""Parameters: tensors that a module trains, known as such wherever they are held.

In       a tensor, or numbers
Out      `Parameter`, a Tensor; `parameter_of`, the same of a value that nobody else holds
Changes  nothing but the memory that a parameter gets
Next     module.py (who lists them), optim/ (who moves them)

What is computed from a parameter is a Tensor. A frozen parameter, with requires_grad False, is still a parameter.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from hcq.checks import shown
from hcq.errors import UsageError
from hcq.frontend.tensor import Tensor

if TYPE_CHECKING:
    from typing_extensions import Self


class Parameter(Tensor):
    """A tensor that is trained: `self.scale = nn.Parameter(hcq.ones(3))` in a module registers it under that name.

    requires_grad   False for one that is kept and saved, and not trained

    >>> p = nn.Parameter(Tensor([1.0, 2.0]))
    >>> p.requires_grad, isinstance(p, nn.Parameter), isinstance(p * 2, nn.Parameter)
    (True, True, False)
    """

    def __init__(self, data: Any, requires_grad: bool = True) -> None:
        if data is None:
            raise UsageError(
                "[Parameter] None has no numbers. Give a tensor, or register_parameter(name, None)."
            )
        if not isinstance(requires_grad, bool):
            raise UsageError(f"[Parameter] requires_grad={shown(requires_grad)}: give True or False.")
        super().__init__(data)
        if requires_grad:
            self.requires_grad_()

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        copy = memo[id(self)] = type(self)(self.detach().clone().realize(), False)
        copy.__dict__.update(self.__dict__)
        if self._grad is not None:
            copy._grad = self._grad.__deepcopy__(memo)
        return copy.requires_grad_(self._requires_grad)


def parameter_of(make: Callable[[], Tensor], requires_grad: bool = True) -> Parameter:
    """The parameter of a tensor that `make` makes: its memory is taken over, not copied."""
    made = make()
    parameter = Parameter(made, False)
    del made
    return parameter.requires_grad_() if requires_grad else parameter
