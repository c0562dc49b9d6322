"""Containers: modules that are lists and dicts of modules or of parameters.

In       modules, parameters
Out      `Sequential`, `ModuleList`, `ModuleDict`, `ParameterList`, `ParameterDict`
Changes  what they contain
Next     module.py; the names inside are the places of a list and the keys of a dict, as PyTorch has them
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from hcq.checks import is_whole, shown
from hcq.errors import UsageError
from hcq.frontend.core.base import changed
from hcq.frontend.core.errors import OutOfRange
from hcq.frontend.nn.module import Module, printed
from hcq.frontend.nn.parameter import Parameter
from hcq.frontend.tensor import Tensor

if TYPE_CHECKING:
    from typing_extensions import Self


class Container(Module):
    """A module whose parts have names, which are attributes, too; a module that becomes an attribute is a part."""

    takes_attributes = True

    def __init__(self) -> None:
        vars(self)["_parts"] = {}

    @property
    def parts(self) -> list[Any]:
        """What it contains, in order."""
        return list(self._named_parts().values())

    def _named_parts(self) -> dict[str, Any]:
        found: dict[str, Any] = vars(self).setdefault("_parts", {})
        return found

    def _held(self) -> Mapping[str, Any]:
        return {
            **{name: value for name, value in vars(self).items() if name != "_parts"},
            **self._named_parts(),
        }

    def register_module(self, name: str, module: Module | None) -> None:
        """Another part of that name, at the end."""
        self._named_parts()[_name(type(self).__name__, name)] = self._checked(module)
        changed()

    add_module = register_module

    def _put(self, name: str, value: Any) -> None:
        if name in self._named_parts():
            self._named_parts()[name] = value
            changed()
        else:
            setattr(self, name, value)

    def __getattr__(self, name: str) -> Any:
        parts = vars(self).get("_parts", {})
        if name in parts:
            return parts[name]
        raise AttributeError(f"{type(self).__name__} has no attribute {name!r}")

    def __setattr__(self, name: str, value: Any) -> None:
        parts = vars(self).get("_parts", {})
        if name in parts or (isinstance(value, Module) and self.takes_attributes and "_parts" in vars(self)):
            self._named_parts()[name] = self._checked(value)
            changed()
        else:
            super().__setattr__(name, value)

    def __delattr__(self, name: str) -> None:
        if name in self._named_parts():
            del self[self._key_of(name)]  # type: ignore[attr-defined]
        else:
            super().__delattr__(name)

    def _key_of(self, name: str) -> Any:
        return name

    def _checked(self, value: Any) -> Any:
        if value is not None and not isinstance(value, Module):
            raise UsageError(f"[{type(self).__name__}] {shown(value)} is no module. Give modules.")
        return value

    def __len__(self) -> int:
        return len(self._named_parts())


class _Row(Container):
    """A container whose parts are numbered."""

    def __init__(self, parts: Iterable[Any] = ()):
        super().__init__()
        for part in parts:
            self._add(part)

    def _add(self, part: Any) -> None:
        self._named_parts()[str(len(self))] = self._checked(part)
        changed()

    def _renumber(self, parts: Iterable[Any]) -> None:
        vars(self)["_parts"] = {str(place): part for place, part in enumerate(parts)}
        changed()

    def _key_of(self, name: str) -> Any:
        return list(self._named_parts()).index(name)

    def __iter__(self) -> Iterator[Any]:
        return iter(self.parts)

    def __getitem__(self, place: Any) -> Any:
        if isinstance(place, slice):
            return type(self)(self.parts[place])
        return self.parts[self._place(place)]

    def __setitem__(self, place: Any, value: Any) -> None:
        name = list(self._named_parts())[self._place(place)]
        self._named_parts()[name] = self._checked(value)
        changed()

    def __delitem__(self, place: Any) -> None:
        parts = self.parts
        del parts[place if isinstance(place, slice) else self._place(place)]
        self._renumber(parts)

    def _place(self, place: Any) -> int:
        if not is_whole(place):
            raise UsageError(
                f"[{type(self).__name__}] {shown(place)}: a part is named by an int, or a slice."
            )
        number = place.__index__()
        if not -len(self) <= number < len(self):
            raise OutOfRange(f"[{type(self).__name__}] part {shown(place)} of {len(self)}: there is none.")
        return number % len(self)

    def append(self, module: Module) -> Self:
        """Add a part at the end. Returns itself. Raises UsageError for what is no module."""
        self._add(module)
        return self

    def extend(self, modules: Iterable[Any]) -> Self:
        """Add several parts at the end. Returns itself."""
        for module in _several(type(self).__name__, modules):
            self._add(module)
        return self

    def insert(self, index: int, module: Module) -> Self:
        """Add a part before the one at that place. Returns itself."""
        if not is_whole(index):
            raise UsageError(f"[{type(self).__name__}.insert] {shown(index)}: a place is an int.")
        parts = self.parts
        parts.insert(index, self._checked(module))
        self._renumber(parts)
        return self

    def pop(self, key: int = -1) -> Any:
        """Take a part out and return it."""
        part = self[key]
        del self[key]
        return part

    def __add__(self, other: Any) -> Any:
        return type(self)([*self.parts, *_several(type(self).__name__, other)])

    def __iadd__(self, other: Any) -> Self:
        return self.extend(other)


class Sequential(_Row):
    """Modules, or functions of a tensor, applied one after the other. An index gives a part, a slice a Sequential.

    One dict of them gives the parts names.

    >>> model = nn.Sequential({"first": nn.Linear(2, 3), "act": nn.ReLU()})
    >>> list(model.state_dict()), model(Tensor.ones(4, 2)).shape
    (['first.weight', 'first.bias'], (4, 3))
    """

    def __init__(self, *modules: Any):
        super().__init__()
        if len(modules) == 1 and isinstance(modules[0], Mapping):
            for name, module in modules[0].items():
                self._named_parts()[_name("Sequential", name)] = self._checked(module)
        else:
            for module in modules:
                self._add(module)

    def _checked(self, value: Any) -> Any:
        if not callable(value) or isinstance(value, Tensor):
            raise UsageError(
                f"[Sequential] part {len(self)} is {value!r}: give modules or functions of a tensor."
            )
        return value

    def forward(self, x: Any) -> Any:
        """What the last part gives; the first one gets x."""
        for part in self.parts:
            x = part(x)
        return x

    def __getitem__(self, place: Any) -> Any:
        if isinstance(place, slice):
            return Sequential(dict(list(self._named_parts().items())[place]))
        return super().__getitem__(place)

    def __add__(self, other: Any) -> Any:
        return Sequential(*self.parts, *_several("Sequential", other))


class ModuleList(_Row):
    """A list of modules; it has no forward of its own.

    >>> layers = nn.ModuleList([nn.Linear(2, 2) for _ in range(2)])
    >>> list(layers.state_dict())
    ['0.weight', '0.bias', '1.weight', '1.bias']
    """

    def __init__(self, modules: Iterable[Module] | None = ()):
        super().__init__(() if modules is None else _several("ModuleList", modules))

    def __repr__(self) -> str:
        lines: list[str] = []
        groups: list[tuple[int, int, str]] = []
        for place, part in enumerate(self.parts):
            text = repr(part)
            if groups and groups[-1][2] == text:
                groups[-1] = (groups[-1][0], place, text)
            else:
                groups.append((place, place, text))
        for first, last, text in groups:
            lines.append(
                f"({first}): {text}" if first == last else f"({first}-{last}): {last - first + 1} x {text}"
            )
        return printed(self._get_name(), self.extra_repr(), lines)


class _Names(Container):
    """A container whose parts have names."""

    def __getitem__(self, key: str) -> Any:
        parts = self._named_parts()
        if key not in parts:
            raise OutOfRange(f"[{type(self).__name__}] {shown(key)}: there is none; it has {list(parts)}.")
        return parts[key]

    def __setitem__(self, key: str, value: Any) -> None:
        self._named_parts()[_name(type(self).__name__, key)] = self._checked(value)
        changed()

    def __delitem__(self, key: str) -> None:
        self[key]
        del self._named_parts()[key]
        changed()

    def __iter__(self) -> Iterator[str]:
        return iter(self._named_parts())

    def __contains__(self, key: object) -> bool:
        return key in self._named_parts()

    def keys(self) -> Iterable[str]:
        """The names."""
        return self._named_parts().keys()

    def values(self) -> Iterable[Any]:
        """What is there."""
        return self._named_parts().values()

    def items(self) -> Iterable[tuple[str, Any]]:
        """Names and what is there."""
        return self._named_parts().items()

    def pop(self, key: str) -> Any:
        """Take one out and return it."""
        part = self[key]
        del self[key]
        return part

    def clear(self) -> None:
        """Take all of them out."""
        self._named_parts().clear()
        changed()

    def update(self, parts: Any) -> None:
        """Put all of a mapping, or of pairs, in."""
        try:
            pairs = list(parts.items()) if hasattr(parts, "items") else [(key, part) for key, part in parts]
        except (TypeError, ValueError):
            raise UsageError(
                f"[{type(self).__name__}] {shown(parts)}: give a dict, or pairs of a name and a part."
            ) from None
        for key, part in pairs:
            self[key] = part


class ModuleDict(_Names):
    """A dict of modules; it has no forward of its own.

    >>> heads = nn.ModuleDict({"a": nn.Linear(2, 1), "b": nn.Identity()})
    >>> list(heads.state_dict()), "b" in heads
    (['a.weight', 'a.bias'], True)
    """

    def __init__(self, modules: Any = None):
        super().__init__()
        if modules is not None:
            self.update(modules)


class _Tensors(Container):
    """A container of parameters; tensors become parameters. Modules may be among them, as other such containers are."""

    takes_attributes = False

    def _checked(self, value: Any) -> Any:
        if isinstance(value, Module):
            return value
        if not isinstance(value, Tensor):
            raise UsageError(f"[{type(self).__name__}] {shown(value)} is no tensor. Give parameters.")
        return value if isinstance(value, Parameter) else Parameter(value)

    def __repr__(self) -> str:
        lines = [
            f"({name}): {part!r}"
            if isinstance(part, Module)
            else f"({name}): {type(part).__name__} containing: [{part.dtype.name} of size "
            f"{'x'.join(map(str, part.shape))}]"
            for name, part in self._named_parts().items()
        ]
        return printed(self._get_name(), self.extra_repr(), lines)


class ParameterList(_Tensors, _Row):
    """A list of parameters.

    >>> weights = nn.ParameterList([Tensor.ones(2), Tensor.ones(3)])
    >>> list(weights.state_dict())
    ['0', '1']
    """

    def __init__(self, values: Iterable[Tensor] | None = ()):
        _Row.__init__(self, () if values is None else _several("ParameterList", values))


class ParameterDict(_Tensors, _Names):
    """A dict of parameters.

    >>> scales = nn.ParameterDict({"a": nn.Parameter(Tensor.ones(2))})
    >>> list(scales.state_dict()), scales["a"].requires_grad
    (['a'], True)
    """

    def __init__(self, parameters: Any = None):
        _Names.__init__(self)
        if parameters is not None:
            self.update(parameters)


def _several(call: str, parts: Any) -> list[Any]:
    try:
        given = None if isinstance(parts, (Tensor, Mapping, str)) else list(parts)
    except (TypeError, UsageError):
        given = None
    if given is None or (isinstance(parts, Module) and not isinstance(parts, _Row)):
        raise UsageError(f"[{call}] {shown(parts)}: give a list of {_what(call)}.")
    return given


def _what(call: str) -> str:
    return "parameters" if call.startswith("Parameter") else "modules"


def _name(call: str, name: Any) -> str:
    if not isinstance(name, str) or not name or "." in name:
        raise UsageError(f"[{call}] {shown(name)}: a part's name is a string without a dot.")
    return name
