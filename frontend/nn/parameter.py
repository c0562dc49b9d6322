"""Parameters: tensors that a module trains, known as such wherever they are held; buffers, which it keeps.

In       a tensor, or numbers
Out      `Parameter` and `Buffer`, Tensors; `parameter_of`, the first of a value that nobody else holds
Changes  nothing but the memory that they get
Next     module.py (who lists them), optim/ (who moves parameters), uninitialized.py (those without a shape yet)

What is computed from a parameter is a Tensor. A frozen parameter, with requires_grad False, is still a parameter.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
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

    _is_parameter = True

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


class Buffer(Tensor):
    """A tensor that goes with a module and is not trained: `self.mask = nn.Buffer(x)` is `register_buffer("mask", x)`.

    persistent   False keeps it out of state_dict

    >>> net = nn.Module()
    >>> net.mask = nn.Buffer(Tensor([1.0, 0.0]))
    >>> list(net.state_dict()), list(net.parameters())
    (['mask'], [])
    """

    def __init__(self, data: Any, *, persistent: bool = True) -> None:
        if not isinstance(persistent, bool):
            raise UsageError(f"[Buffer] persistent={shown(persistent)}: give True or False.")
        super().__init__(data)
        self.persistent = persistent


def parameter_of(make: Callable[[], Tensor], requires_grad: bool = True) -> Parameter:
    """The parameter of a tensor that `make` makes: its memory is taken over, not copied."""
    made = make()
    parameter = Parameter(made, False)
    del made
    return parameter.requires_grad_() if requires_grad else parameter


def __getattr__(name: str) -> Any:
    if name in ("UninitializedParameter", "UninitializedBuffer"):  # of few programs
        return getattr(import_module("hcq.frontend.nn.uninitialized"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
