"""Methods: one register write to an engine of a channel. A method is a word with fields and the address it goes to.

In       a file of data/, one line for each method and one for each class of engine
Out      packets of one word that know their address; printed with the vendor's name; the methods of a class
Next     host_methods.py, compute_methods.py, copy_methods.py (the files), methods.py (pushbuffers)
Source   the class headers clc56f.h, clc6c0.h, clc6b5.h and their successors

A line of a method is its name in the header, its address, with *n for an array of n words, its fields, and a remark.
Where some classes have it differently, one line more, whose name goes on with a dot and the number of such a class,
is what it is there: SET_NOTIFY_A.C6c0 becomes SetNotifyAC6c0, a kind of SetNotifyA. A line `class` says how a class
differs from all methods without such a number: those that take others' places, and, with a minus, those it has not.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from types import new_class
from typing import TYPE_CHECKING, Any, ClassVar

from hcq.layout import SparsePacket
from hcq.nv.abi.layout_file import LayoutFile


class Method(SparsePacket, words=1):
    """One word for one address. `entries` is how many consecutive addresses an array of the method has."""

    at: ClassVar[int] = 0  # bytes
    vendor: ClassVar[str] = "UNKNOWN"
    entries: ClassVar[int] = 1

    if TYPE_CHECKING:

        def __getattr__(self, name: str) -> int:
            """A field's value: which there are is data, which type checkers do not read."""

    def __init_subclass__(
        cls, at: int | None = None, vendor: str = "", entries: int | None = None, **kwargs: Any
    ) -> None:
        super().__init_subclass__(**kwargs)
        cls.at = cls.at if at is None else at
        cls.vendor = vendor or cls.vendor
        cls.entries = cls.entries if entries is None else entries

    @property
    def word(self) -> int:
        """The word that is written."""
        return self.words[0]

    def __repr__(self) -> str:
        return self.vendor + super().__repr__().removeprefix(type(self).__name__)


class UnknownMethod(Method):
    """A word for an address that no declared method has: all its bits are unclaimed."""


class MethodFile(LayoutFile):
    """A file of methods: the classes of Python that they are, and the classes of engines that have them."""

    def __init__(self, name: str, module: str) -> None:
        super().__init__(name, module)
        self._made: dict[str, type[Method]] = {}

    @cached_property
    def _methods(self) -> dict[str, list[str]]:
        """Name in Python -> the cells of its line."""
        return {_python_name(cells[0]): cells for cells in self.lines if cells[0] != "class"}

    @cached_property
    def classes(self) -> dict[str, list[str]]:
        """Class of an engine -> what it has and has not."""
        rows = (cells for cells in self.lines if cells[0] == "class")
        return {cells[1]: "".join(cells[2:]).split() for cells in rows}

    def named(self, name: str) -> Any:
        """A method or an enum. Raises AttributeError for a name that the file has not."""
        if name in self._methods:
            return self.method(name)
        if name in self.enum_texts:
            return self.enum(name)
        raise AttributeError(f"{self.name} has no method and no enum {name!r}.")

    def method(self, name: str) -> type[Method]:
        """A method by its name in Python."""
        if name not in self._made:
            self._made[name] = self._make(name)
        return self._made[name]

    def _make(self, name: str) -> type[Method]:
        vendor, address, text, *remark = self._methods[name]
        vendor, _, variant = vendor.partition(".")
        base = self.method(_python_name(vendor)) if variant else Method
        at, _, entries = address.partition("*")
        body = {"__doc__": "".join(remark) or None, "__module__": self.module, **self.fields(text)}
        gone = [field for field in base.fields if field not in body]
        options = {"at": int(at, 16), "vendor": vendor, "entries": int(entries or 1), "without": gone}
        return new_class(name, (base,), options, lambda namespace: namespace.update(body))

    def declared_layouts(self) -> Iterator[type[Method]]:
        """Every method, in the order of the file."""
        return map(self.method, self._methods)

    def of_class(self, name: str) -> dict[int, type[Method]]:
        """Address -> method, for every address that a class of engine takes; none for a class that is not in here."""
        if name not in self.classes:
            return {}
        changes = self.classes[name]
        absent = {_python_name(one[1:]) for one in changes if one.startswith("-")}
        plain = [one for one, cells in self._methods.items() if "." not in cells[0] and one not in absent]
        found: dict[int, type[Method]] = {}
        for method in map(self.method, [*plain, *(_python_name(one) for one in changes if one[0] != "-")]):
            found.update(dict.fromkeys(range(method.at, method.at + 4 * method.entries, 4), method))
        return found


def _python_name(name: str) -> str:
    """SET_NOTIFY_A.C6c0 -> SetNotifyAC6c0."""
    vendor, _, variant = name.partition(".")
    return "".join(part.capitalize() for part in vendor.split("_")) + variant
