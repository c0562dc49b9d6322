"""Contents: what is inside of the objects, lists and dicts that a function's code can reach by the names in it.

In       a function; the arguments of a call that are neither tensors nor plain
Out      `Contents`: what was there at a call, and the first name of what is another now
Next     closure.py (the names themselves), function.py (a recording is of one set of contents)

Attributes are looked at by their names: those that the code of the function, and of the functions and methods that it
reaches, has in it. Layers are looked at whole. This package's other objects, and the standard library's, are not.
"""

from __future__ import annotations

import functools
import sys
import types
import weakref
from collections.abc import Container, Iterator, Sequence
from typing import Any

from hcq.frontend.core.base import Core, changes
from hcq.frontend.jit.closure import EMPTY, OURS, PLAIN

MOST_ENTRIES = 1000  # of a container: of a longer one, only its length is looked at
MOST_PLACES = 4000  # how many containers and objects are looked into
ATOMS = (*PLAIN, type(None), type(Ellipsis), range, slice)


class Place:
    """A list, a set, a dict, or some attributes of an object, and what was in it.

    is_timed  what changes it moves the clock of changes: a layer's attributes
    """

    __slots__ = ("holder", "ids", "is_timed", "keys", "name", "refs", "strong")

    def __init__(self, name: str, holder: Any, keys: Sequence[Any] | None, is_timed: bool = False):
        self.name, self.holder, self.keys, self.is_timed = name, holder, keys, is_timed
        values = self.values()
        self.ids = list(map(id, values))
        # tensors and objects may go; an id means the same one only as long as it is there
        self.strong: list[Any] = []
        self.refs: list[Any] = []
        for value in values:
            try:
                self.refs.append(weakref.ref(value))
            except TypeError:
                self.strong.append(value)

    def values(self) -> list[Any]:
        """What is in it now."""
        if self.keys is not None:
            return [self.holder.get(key, EMPTY) for key in self.keys]
        holder = self.holder
        if len(holder) > MOST_ENTRIES:
            return [len(holder)]
        return [*holder, *holder.values()] if isinstance(holder, dict) else list(holder)

    def changed(self) -> bool:
        """Whether something else is in it."""
        values = self.values()
        if list(map(id, values)) == self.ids:
            return not all(ref() is not None for ref in self.refs)
        if len(values) != len(self.ids):
            return True
        known = {id(value): value for value in self.strong}
        for value, before in zip(values, self.ids):
            if id(value) == before and not isinstance(value, ATOMS):
                continue
            was = known.get(before, EMPTY)
            if value is not was and not (
                type(value) is type(was) and isinstance(value, ATOMS) and repr(value) == repr(was)
            ):
                return True
        return not all(ref() is not None for ref in self.refs)


class Contents:
    """What can be reached from a function, as it is now."""

    def __init__(self, function: Any, arguments: Sequence[Any], known: Container[int]):
        names: set[str] = {"forward", "__call__"}
        count = -1
        while count != len(names):  # methods are found by the names in other methods
            count = len(names)
            walk = _Walk(names, function, known)
            walk.look("", function)
            for number, argument in enumerate(arguments):
                walk.look(f"argument {number}", argument)
            names = walk.names
        self.places = walk.places
        self._clean_at = -1  # the clock of changes when all was looked at
        self.own: list[str] = []  # what the call itself changed
        self.lost: list[str] = []  # that of it which no replay changes: what are no tensors

    def changed(self) -> str:
        """The name of the first place that something else is in, or ""."""
        now = changes()
        is_quiet = now == self._clean_at
        for place in self.places:
            if not (is_quiet and place.is_timed) and place.changed():
                return place.name
        self._clean_at = now
        return ""

    def settle(self) -> None:
        """After the call: what it changed itself is no matter of others; capture.py sees what it kept."""
        kept = []
        for place in self.places:
            if not place.changed():
                kept.append(place)
                continue
            self.own.append(place.name)
            before = set(place.ids)
            values = place.values()
            if len(values) < len(before) or any(
                id(v) not in before and not isinstance(v, Core) for v in values
            ):
                self.lost.append(place.name)
            kept += _unchanged(place)
        self.places = kept

    def without(self, own: Sequence[str]) -> None:
        """Leave places out that another call of the function changed."""
        names = set(own)
        self.places = [place for place in self.places if place.name not in names]


def _unchanged(place: Place) -> Iterator[Place]:
    """The attributes of an object that the call left as they were."""
    if place.keys is None:
        return
    for key, before in zip(place.keys, place.ids):
        if id(place.holder.get(key, EMPTY)) == before:
            yield Place(place.name, place.holder, (key,), place.is_timed)


class _Walk:
    """One walk over everything that can be reached."""

    def __init__(self, names: set[str], function: Any, known: Container[int]):
        self.names = set(names)
        self.known = known  # functions whose variables are looked at already, see closure.py
        self.places: list[Place] = []
        self.seen: set[int] = set()
        inner = function.func if isinstance(function, functools.partial) else function
        inner = getattr(inner, "__func__", inner)
        self.package = (getattr(inner, "__module__", None) or "").partition(".")[0]

    def look(self, name: str, value: Any) -> None:
        """Look into a value, and into all that is in it."""
        stack = [(name, value)]
        while stack and len(self.places) < MOST_PLACES:
            name, value = stack.pop()
            if isinstance(value, (*ATOMS, Core)) and not isinstance(value, (tuple, frozenset)):
                continue
            if id(value) in self.seen:
                continue
            self.seen.add(id(value))
            stack += self._inside(name, value)

    def _inside(self, name: str, value: Any) -> list[tuple[str, Any]]:
        if isinstance(value, types.FunctionType):
            return self._of_function(name, value)
        if isinstance(value, types.MethodType):
            return [(name, value.__func__), (name or "self", value.__self__)]
        if isinstance(value, functools.partial):
            found = [(f"{name or 'partial'}.{k}", v) for k, v in value.keywords.items()]
            return [(name, value.func), *[(name, each) for each in value.args], *found]
        if isinstance(value, (tuple, frozenset)):
            return (
                [(f"{name}[{k}]", each) for k, each in enumerate(value)] if len(value) <= MOST_ENTRIES else []
            )
        if isinstance(value, (list, dict, set)):
            self.places.append(Place(name, value, None))
            if len(value) > MOST_ENTRIES:
                return []
            items = list(value.items()) if isinstance(value, dict) else enumerate(list(value))
            return [(f"{name}[{k!r}]", each) for k, each in items]
        if isinstance(value, types.ModuleType):
            return self._of_attributes(name, vars(value), is_whole=False)
        return self._of_object(name, value)

    def _of_function(self, name: str, function: types.FunctionType) -> list[tuple[str, Any]]:
        if _is_ours(function.__module__):
            return []
        if self.package and name and (function.__module__ or "").partition(".")[0] in sys.stdlib_module_names:
            return []
        loaded = _names_in(function.__code__)
        self.names |= loaded
        stack: list[tuple[str, Any]] = []
        for free, cell in zip(function.__code__.co_freevars, function.__closure__ or ()):
            try:
                stack.append((free, cell.cell_contents))
            except ValueError:
                continue
        globals_ = sorted(loaded & function.__globals__.keys())
        stack += [(each, function.__globals__[each]) for each in globals_]
        if id(function) not in self.known:
            if names := function.__code__.co_freevars:
                self.places.append(Place(", ".join(names), _Variables(function), names))
            if globals_:
                self.places.append(Place(", ".join(globals_[:3]), function.__globals__, globals_))
        parameters = function.__code__.co_varnames
        defaults = function.__defaults__ or ()
        if defaults:
            first = function.__code__.co_argcount - len(defaults)
            stack += [(parameters[first + k], each) for k, each in enumerate(defaults)]
            self.places.append(
                Place(f"defaults of {function.__name__}", _Defaults(function), ("__defaults__",))
            )
        return [*stack, *(function.__kwdefaults__ or {}).items()]

    def _of_object(self, name: str, value: Any) -> list[tuple[str, Any]]:
        kind = value if isinstance(value, type) else type(value)
        is_layer = hasattr(kind, "named_parameters")
        if hasattr(kind, "reset") and isinstance(getattr(value, "function", None), types.FunctionType):
            return [(name, value.function)]  # a jit
        if not is_layer and (
            _is_ours(kind.__module__)
            or kind.__module__ in sys.stdlib_module_names
            or kind.__module__ == "numpy"
        ):
            return []
        found: list[tuple[str, Any]] = []
        if not isinstance(value, type):
            try:
                found = self._of_attributes(name, vars(value), is_whole=is_layer)
            except TypeError:  # it has slots
                found = []
        for base in kind.__mro__:
            if base is not object and not _is_ours(base.__module__):
                for key, each in self._of_attributes(name, vars(base), is_whole=False):
                    inner = getattr(each, "fget", None) or getattr(each, "__func__", None) or each
                    found.append((key, inner))
        return found

    def _of_attributes(self, name: str, held: Any, is_whole: bool) -> list[tuple[str, Any]]:
        keys = [
            key
            for key in list(held)  # other threads may add to it
            if isinstance(key, str)
            and (key in self.names or (is_whole and not key.startswith("__")))
            and not key.endswith("(jit)")
        ]
        if not keys:
            return []
        self.places.append(Place(_dotted(name, keys), held, keys, is_timed=is_whole))
        found = []
        for key in keys:
            inner = held[key]
            # a container of layers has its own
            if is_whole and key.startswith("_") and isinstance(inner, (dict, set)):
                self.seen.add(id(inner))
                self.places.append(Place(name, inner, None, is_timed=True))
                found += (
                    [(f"{name}.{k}", v) for k, v in list(inner.items())] if isinstance(inner, dict) else []
                )
            else:
                found.append((f"{name}.{key}", inner))
        return found


class _Variables:
    """The variables around a function, as a dict gives them."""

    __slots__ = ("cells",)

    def __init__(self, function: types.FunctionType):
        self.cells = dict(zip(function.__code__.co_freevars, function.__closure__ or ()))

    def get(self, key: str, missing: Any) -> Any:
        """What one of them is."""
        try:
            return self.cells[key].cell_contents
        except ValueError:
            return missing


class _Defaults:
    """The defaults of a function, as a dict gives them."""

    __slots__ = ("function",)

    def __init__(self, function: types.FunctionType):
        self.function = function

    def get(self, key: str, missing: Any) -> Any:
        """They, whatever key is."""
        return self.function.__defaults__


def _dotted(name: str, keys: Sequence[str]) -> str:
    shown = ", ".join(f"{name}.{key}" for key in keys[:3])
    return shown + (", ..." if len(keys) > 3 else "")


def _is_ours(module: str | None) -> bool:
    return (module or "").partition(".")[0] == OURS


def _names_in(code: types.CodeType) -> set[str]:
    """Names and words in code, and in the code inside of it."""
    found = set(code.co_names)
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            found |= _names_in(constant)
        elif isinstance(constant, str) and constant.isidentifier():
            found.add(constant)
    return found
