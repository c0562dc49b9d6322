"""Parametrisations: a parameter that is computed, by modules, from others that are trained in its place.

In       a module, the name of a parameter, a module that computes it
Out      `register_parametrization`, `remove_parametrizations`, `is_parametrized`; the module gets a class of its own
Changes  the module: `weight` is computed when it is read, from parametrizations.weight.original
Next     parametrizations.py (weight_norm, spectral_norm)
"""

from __future__ import annotations

from typing import Any

from hcq.checks import shown
from hcq.errors import UsageError
from hcq.frontend.nn.containers import ModuleDict, ModuleList
from hcq.frontend.nn.module import Module
from hcq.frontend.nn.parameter import Parameter
from hcq.frontend.tensor import Tensor

ATTRIBUTE = "parametrizations"


class ParametrizationList(ModuleList):
    """The modules that compute one parameter, one after the other, and what they start from.

    What they start from is `original`, or, where the first one's right_inverse gives several, original0, original1, ...

    >>> layer = nn.utils.parametrizations.weight_norm(nn.Linear(2, 1))
    >>> len(layer.parametrizations["weight"]), list(layer.state_dict())
    (1, ['bias', 'parametrizations.weight.original0', 'parametrizations.weight.original1'])
    """

    def __init__(self, modules: list[Module], value: Tensor):
        super().__init__(modules)
        start: Any = value.detach()
        for module in reversed(self.parts):
            if hasattr(module, "right_inverse"):
                start = module.right_inverse(start)
        flag = value.requires_grad
        several = list(start) if isinstance(start, (tuple, list)) else None
        self._names = ["original"] if several is None else [f"original{n}" for n in range(len(several))]
        for name, tensor in zip(self._names, [start] if several is None else several):
            setattr(self, name, Parameter(tensor.clone().realize(), flag))

    def forward(self) -> Tensor:
        """The parameter now."""
        first, *others = self.parts
        value: Tensor = first(*[getattr(self, name) for name in self._names])
        for module in others:
            value = module(value)
        return value


def register_parametrization(
    module: Module, tensor_name: str, parametrization: Module, *, unsafe: bool = False
) -> Module:
    """Have a module compute a parameter: `module.weight` is parametrization(module.parametrizations.weight.original).

    parametrization   its right_inverse, if it has one, gives the original from the value that is there now
    unsafe            skip the check that shape and dtype stay
    Returns           the module

    >>> class Positive(nn.Module):
    ...     def forward(self, x):
    ...         return x.exp()
    >>> layer = nn.utils.parametrize.register_parametrization(nn.Linear(2, 1), "weight", Positive())
    >>> bool((layer.weight > 0).all()), [name for name, _ in layer.named_parameters()]
    (True, ['bias', 'parametrizations.weight.original'])
    """
    if not isinstance(module, Module) or not isinstance(parametrization, Module):
        raise UsageError("[register_parametrization] give a module, a name, and the module that computes it.")
    if is_parametrized(module, tensor_name):
        chain = getattr(module, ATTRIBUTE)[tensor_name]
        if hasattr(parametrization, "right_inverse"):
            raise UsageError(
                f"[register_parametrization] {tensor_name!r} has a parametrisation already: another one with a "
                "right_inverse would change what is trained. Register it first."
            )
        chain.append(parametrization)
        return module
    value = vars(module).get(tensor_name)
    if not isinstance(value, Tensor):
        raise UsageError(
            f"[register_parametrization] {type(module).__name__} has no tensor {shown(tensor_name)}."
        )
    chain = ParametrizationList([parametrization], value)
    made = chain()
    if not unsafe and (made.shape != value.shape or made.dtype is not value.dtype):
        raise UsageError(
            f"[register_parametrization] {tensor_name!r} is {value.dtype.name} {value.shape}, and would become "
            f"{made.dtype.name} {made.shape}. Keep both, or pass unsafe=True."
        )
    if not is_parametrized(module):
        plain = type(module)
        module.__class__ = type(f"Parametrized{plain.__name__}", (plain,), {"__module__": plain.__module__})
        setattr(module, ATTRIBUTE, ModuleDict())
    delattr(module, tensor_name)
    getattr(module, ATTRIBUTE)[tensor_name] = chain
    setattr(type(module), tensor_name, _property(tensor_name))
    return module


def _property(name: str) -> property:
    def read(module: Any) -> Tensor:
        return vars(module)[ATTRIBUTE][name]()

    def write(module: Any, value: Tensor) -> None:
        chain = vars(module)[ATTRIBUTE][name]
        start: Any = value
        for step in reversed(chain.parts):
            if not hasattr(step, "right_inverse"):
                raise UsageError(
                    f"[{name}] {type(step).__name__} has no right_inverse: it cannot be assigned to."
                )
            start = step.right_inverse(start)
        for own, tensor in zip(chain._names, start if isinstance(start, (tuple, list)) else [start]):
            getattr(chain, own).assign(tensor.detach()).realize()

    return property(read, write)


def is_parametrized(module: Module, tensor_name: str | None = None) -> bool:
    """Whether a parameter of a module, or any, is computed.

    >>> layer = nn.utils.parametrizations.weight_norm(nn.Linear(2, 1))
    >>> nn.utils.parametrize.is_parametrized(layer, "weight"), nn.utils.parametrize.is_parametrized(layer, "bias")
    (True, False)
    """
    chains = vars(module).get(ATTRIBUTE)
    if not isinstance(chains, ModuleDict):
        return False
    return len(chains) > 0 if tensor_name is None else tensor_name in chains


def remove_parametrizations(module: Module, tensor_name: str, leave_parametrized: bool = True) -> Module:
    """A plain parameter again: of the computed value, or of the original. Returns the module.

    >>> layer = nn.utils.parametrizations.weight_norm(nn.Linear(2, 1))
    >>> list(nn.utils.parametrize.remove_parametrizations(layer, "weight").state_dict())
    ['bias', 'weight']
    """
    if not is_parametrized(module, tensor_name):
        raise UsageError(
            f"[remove_parametrizations] {shown(tensor_name)} of {type(module).__name__} is not computed."
        )
    chain = getattr(module, ATTRIBUTE)[tensor_name]
    if not leave_parametrized and chain._names != ["original"]:
        raise UsageError(
            "[remove_parametrizations] there is no single original. Pass leave_parametrized=True."
        )
    value = (chain() if leave_parametrized else chain.original).detach().clone().realize()
    flag = getattr(chain, chain._names[0]).requires_grad
    delattr(type(module), tensor_name)
    del getattr(module, ATTRIBUTE)[tensor_name]
    if not is_parametrized(module):
        delattr(module, ATTRIBUTE)
        module.__class__ = type(module).__mro__[1]
    setattr(module, tensor_name, Parameter(value, flag))
    return module
