"""Lazy modules: a second name for a module (`hcq.nn`), which imports the real one at first use; names of late files.

In       names of modules, and for each a function that looks up its attributes; the files of a package and their names
Out      entries of sys.modules, so that `import hcq.nn as nn` and `from hcq.nn import Linear` need no import hook;
         `late_names`, a package's `__getattr__` and `__dir__`
Changes  sys.modules; a lazy module holds its submodules as attributes, other packages use their own __getattr__
Next     __init__.py (the modules of hcq itself), torch/__init__.py (PyTorch's)
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Collection, Iterable, Mapping
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

# of a package with late names, what no program asks for
MACHINERY = {"LATE", "MODULES", "TYPE_CHECKING", "annotations", "late_names", "lazy_module"}


class LazyModule(ModuleType):
    """A module whose names are found when they are asked for. What a program assigns to it stays its own.

    find   name -> value; AttributeError where there is none
    names  all that there are
    """

    def __init__(self, name: str, find: Callable[[str], Any], names: Callable[[], Iterable[str]]) -> None:
        super().__init__(name)
        self.__path__: list[str] = []  # a package: modules in it are entries of sys.modules, too
        self.__spec__ = ModuleSpec(name, None, is_package=True)
        self._find, self._names = find, names

    def __getattr__(self, name: str) -> Any:
        if name == "__all__":  # import *
            return [name for name in dir(self) if not name.startswith("_")]
        if name.startswith("__"):
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")
        value = self._find(name)
        if callable(value):  # a number or a switch may be another one later
            self.__dict__[name] = value
        return value

    def __dir__(self) -> list[str]:
        found = {name for name in self._names() if not name.startswith("__")}
        return sorted({*self.__dict__, *found} - {"_find", "_names"})


def add(package: str, name: str, find: Callable[[str], Any], names: Callable[[], Iterable[str]]) -> None:
    """Make the module `package.name` known. The modules that it is in, where `name` has dots, come first."""
    full = f"{package}.{name}"
    module = sys.modules[full] = LazyModule(full, find, names)
    parent, _, last = full.rpartition(".")
    if isinstance(sys.modules[parent], LazyModule):
        setattr(sys.modules[parent], last, module)


def stands_for(package: str, name: str, place: str) -> None:
    """Make `package.name` known as another name of the module `place`."""

    def find(attribute: str) -> Any:
        return getattr(importlib.import_module(place), attribute)

    add(package, name, find, lambda: dir(importlib.import_module(place)))


def late_names(
    package: str,
    files: Mapping[str, str],
    modules: Collection[str] = (),
    refuse: Callable[[str], AttributeError] | None = None,
    finish: Callable[[Any], object] | None = None,
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """`__getattr__` and `__dir__` of a package whose files are imported when something of them is asked for.

    files    a file -> its names that the package has
    modules  files that are asked for themselves
    refuse   what is raised for a name that there is not
    finish   called once with each thing that is found
    """
    places = {name: file for file, names in files.items() for name in names.split()}
    own = vars(sys.modules[package])

    def find(name: str) -> Any:
        if name in modules:
            return importlib.import_module(f"{package}.{name}")
        if name not in places:
            raise refuse(name) if refuse else AttributeError(f"module {package!r} has no attribute {name!r}")
        module = importlib.import_module(f"{package}.{places[name]}")
        for each in files[places[name]].split():
            own[each] = getattr(module, each)
            if finish:
                finish(own[each])
        return own[name]

    return find, lambda: sorted({*own, *modules, *places} - MACHINERY)
