"""Modules: objects that hold tensors and other modules, and are called on tensors.

In       attributes: tensors, modules, lists, tuples and dicts of them
Out      `Module`: parameters, buffers, names, state_dict, training mode
Changes  `load_state_dict` writes into the tensors in place; `train`, `eval` and `requires_grad_` set flags
Next     layers.py and norm.py (the modules there are), optim.py (who takes the parameters)

Nothing is registered: what a module holds is found by looking at its attributes, in the order they were set. A tensor
attribute is a parameter, except those that the class names in `buffers_of_class`: state that is saved but not trained.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from hcq.checks import is_whole, shown
from hcq.errors import UsageError
from hcq.frontend import names
from hcq.frontend.core import changed, watcher
from hcq.frontend.errors import OutOfRange
from hcq.frontend.realize import realize
from hcq.frontend.tensor import Tensor

if TYPE_CHECKING:
    from typing_extensions import Self


class _Training:
    """The attribute `training`. A recording is of one mode, so every change is reported, however it is made."""

    def __get__(self, module: Module | None, owner: type[Module]) -> bool:
        if module is None:
            return True
        mode: bool = vars(module).get("training", True)
        watching = watcher()
        if watching is not None:
            watching.reads_state(module, "training", mode)
        return mode

    def __set__(self, module: Module, mode: bool) -> None:
        vars(module)["training"] = mode
        changed()


class Module:
    """A part of a model. Subclasses set attributes in `__init__` and compute in `forward`.

    >>> class Scale(nn.Module):
    ...     def __init__(self):
    ...         self.factor = Tensor([2.0], requires_grad=True)
    ...
    ...     def forward(self, x):
    ...         return x * self.factor
    >>> model = nn.Sequential(Scale(), Scale())
    >>> model(Tensor([1.0])).tolist(), [name for name, _ in model.named_parameters()]
    ([4.0], ['0.factor', '1.factor'])
    """

    buffers_of_class: tuple[str, ...] = ()  # attributes that are state, not parameters
    training = _Training()

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """What calling the module computes. Raises UsageError where a subclass defines none."""
        raise UsageError(
            f"[{type(self).__name__}] has no forward(): define what calling the module computes, as forward(self, x)."
        )

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if names.wanted():
            names.learn(self, self.modules(), lambda: (*self.named_parameters(), *self.named_buffers()))
        return self.forward(*args, **kwargs)

    # -- what it holds --

    def named_modules(self, prefix: str = "") -> Iterator[tuple[str, Module]]:
        """This module under `prefix`, then every module inside, each once, with its dotted name."""
        seen: set[int] = set()
        stack: list[tuple[str, Module]] = [(prefix, self)]
        while stack:
            name, module = stack.pop()
            if id(module) in seen:
                continue
            seen.add(id(module))
            yield name, module
            stack.extend(reversed(list(_inside(module, _dotted(name), Module))))

    def modules(self) -> Iterator[Module]:
        """This module and every module inside, each once."""
        for _, module in self.named_modules():
            yield module

    def children(self) -> Iterator[Module]:
        """The modules directly inside."""
        for _, module in _inside(self, "", Module):
            yield module

    def named_parameters(self) -> Iterator[tuple[str, Tensor]]:
        """Every parameter with its dotted name, each tensor once, also when it is frozen."""
        yield from self._named_tensors(parameters=True)

    def parameters(self) -> Iterator[Tensor]:
        """Every parameter, each once."""
        for _, tensor in self.named_parameters():
            yield tensor

    def named_buffers(self) -> Iterator[tuple[str, Tensor]]:
        """Every tensor that is saved but not trained, with its dotted name."""
        yield from self._named_tensors(parameters=False)

    def buffers(self) -> Iterator[Tensor]:
        """Every tensor that is saved but not trained."""
        for _, tensor in self.named_buffers():
            yield tensor

    def _named_tensors(self, parameters: bool) -> Iterator[tuple[str, Tensor]]:
        seen: set[int] = set()
        for prefix, module in self.named_modules():
            for name, tensor in _inside(module, _dotted(prefix), Tensor):
                top = name[len(_dotted(prefix)) :].split(".")[0]
                if (top in module.buffers_of_class) is parameters or id(tensor) in seen:
                    continue
                seen.add(id(tensor))
                yield name, tensor

    # -- its state --

    def state_dict(self) -> dict[str, Tensor]:
        """Name -> tensor, parameters and buffers: the tensors themselves, not copies. nn.save_file keeps them."""
        return {**dict(self.named_parameters()), **dict(self.named_buffers())}

    def load_state_dict(self, state: Mapping[str, Tensor], strict: bool = True) -> None:
        """Write tensors of the same names into this module's, in place, converted to their dtype and device.

        Raises  UsageError for a shape that differs and, when strict, for names that are missing or unknown; nothing is
                written then
        """
        own = self.state_dict()
        missing = [name for name in own if name not in state]
        unknown = [name for name in state if name not in own]
        if strict and (missing or unknown):
            parts = [f"missing: {', '.join(missing)}"] if missing else []
            parts += [f"unknown: {', '.join(unknown)}"] if unknown else []
            raise UsageError(
                f"[load_state_dict] {type(self).__name__}: the names do not match; {'; '.join(parts)}. "
                "Pass strict=False to load those that do."
            )
        found = [(name, tensor, state[name]) for name, tensor in own.items() if name in state]
        for name, tensor, value in found:
            if tensor.shape != value.shape:
                raise UsageError(
                    f"[load_state_dict] {name} has shape {tensor.shape}, the saved one {value.shape}. "
                    "Build the module with the sizes it was saved with."
                )
        for _, tensor, value in found:
            tensor.assign(value.detach().to(tensor.device).cast(tensor.dtype))
        realize([tensor for _, tensor, _ in found])

    # -- flags --

    def train(self, mode: bool = True) -> Self:
        """Training mode, for this module and all inside: dropout drops, batch norm uses the batch's statistics."""
        for module in self.modules():
            module.training = mode
        return self

    def eval(self) -> Self:
        """Evaluation mode, the opposite of `train`. Returns itself."""
        return self.train(False)

    def requires_grad_(self, requires_grad: bool = True) -> Self:
        """Make every parameter require a gradient, or freeze it. Returns itself."""
        for parameter in self.parameters():
            parameter.requires_grad_(requires_grad)
        return self

    def shard(self, devices: Any, axis: int | None = None) -> Self:
        """Put every parameter and buffer on several devices: a copy on each, or split along an axis. Returns itself.

        Batches that are split along axis 0 of the same devices are then trained on by all of them at once. Make the
        optimizer afterwards: its state is placed as the parameters are.
        """
        for tensor in (*self.parameters(), *self.buffers()):
            tensor.shard_(devices, axis)
        return self

    def zero_grad(self) -> None:
        """Forget every parameter's gradient."""
        for parameter in self.parameters():
            parameter.grad = None

    # -- how it prints --

    def extra_repr(self) -> str:
        """What a layer says about itself between its parentheses."""
        return ""

    def __repr__(self) -> str:
        inside = list(_inside(self, "", Module))
        if not inside:
            return f"{type(self).__name__}({self.extra_repr()})"
        lines = [f"  ({name}): {_indented(repr(module))}" for name, module in inside]
        return "\n".join([f"{type(self).__name__}({self.extra_repr()}", *lines, ")"])


class Sequential(Module):
    """Modules, or functions of a tensor, applied one after the other. An index gives a part, a slice a Sequential."""

    def __init__(self, *modules: Any):
        for place, module in enumerate(modules):
            if not callable(module):
                raise UsageError(
                    f"[Sequential] part {place} is {module!r}: give modules or functions of a tensor."
                )
        self.parts = list(modules)

    def forward(self, x: Any) -> Any:
        """What the last part gives; the first one gets x."""
        for part in self.parts:
            x = part(x)
        return x

    def __iter__(self) -> Iterator[Any]:
        return iter(self.parts)

    def __len__(self) -> int:
        return len(self.parts)

    def __getitem__(self, place: Any) -> Any:
        return Sequential(*self.parts[place]) if isinstance(place, slice) else _part(self, self.parts, place)


class ModuleList(Module):
    """A list of modules; it has no forward of its own."""

    def __init__(self, modules: Iterable[Module] = ()):
        self.parts: list[Module] = []
        try:
            given = () if isinstance(modules, Module) else tuple(modules)
        except TypeError:
            given = ()
        if not given and not isinstance(modules, (tuple, list)):
            raise UsageError(f"[ModuleList] {shown(modules)}: give a list of modules.")
        for module in given:
            self.append(module)

    def append(self, module: Module) -> Self:
        """Add a module at the end. Returns itself. Raises UsageError for what is no module."""
        if not isinstance(module, Module):
            raise UsageError(f"[ModuleList] {shown(module)} is no module. Give modules.")
        self.parts.append(module)
        return self

    def __iter__(self) -> Iterator[Module]:
        return iter(self.parts)

    def __len__(self) -> int:
        return len(self.parts)

    def __getitem__(self, place: Any) -> Any:
        return ModuleList(self.parts[place]) if isinstance(place, slice) else _part(self, self.parts, place)


def _part(module: Module, parts: list[Any], place: Any) -> Any:
    """One of the parts, by its number."""
    if not is_whole(place):
        raise UsageError(f"[{type(module).__name__}] {shown(place)}: a part is named by an int, or a slice.")
    number = place.__index__()
    if not -len(parts) <= number < len(parts):
        raise OutOfRange(f"[{type(module).__name__}] part {shown(place)} of {len(parts)}: there is none.")
    return parts[number]


def _dotted(prefix: str) -> str:
    return f"{prefix}." if prefix else ""


def _indented(text: str) -> str:
    return text.replace("\n", "\n  ")


def _inside(module: Module, prefix: str, kind: type[Any]) -> Iterator[tuple[str, Any]]:
    """What of one kind a module's attributes hold, with names; containers are searched, other modules are not."""
    held = vars(module)
    if isinstance(module, (Sequential, ModuleList)):
        held = {str(place): part for place, part in enumerate(module.parts)}  # the names PyTorch gives them
    for name, value in held.items():
        yield from _within(value, prefix + name, kind)


def _within(value: Any, name: str, kind: type[Any]) -> Iterator[tuple[str, Any]]:
    if isinstance(value, kind):
        yield name, value
    elif isinstance(value, (list, tuple)):
        for place, item in enumerate(value):
            yield from _within(item, f"{name}.{place}", kind)
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from _within(item, f"{name}.{key}", kind)
