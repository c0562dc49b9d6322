"""Late: methods that are imported when a program first asks for one of them.

In       a name that Tensor does not have yet
Out      `Late`, a base of Tensor that gets the methods of the one group that has the name; `groups`, all there are
Changes  Late: it gets the methods, each once
Next     table.py (which group has a name), ../tensor.py (the groups that every program has), functions/__init__.py

A type checker sees a class that has all of them.
"""

from __future__ import annotations

import importlib
from threading import RLock
from typing import TYPE_CHECKING, Any

from hcq.frontend.ops.arguments import checked_members
from hcq.frontend.ops.base import Methods
from hcq.frontend.ops.complex_arguments import BOTH
from hcq.frontend.ops.table import GROUPS, METHODS

_IS_NO_METHOD = frozenset(
    {
        "__module__",
        "__qualname__",
        "__doc__",
        "__slots__",
        "__firstlineno__",
        "__static_attributes__",
        "_are_functions",
    }
)
_lock = RLock()
_groups: dict[str, type[Methods]] = {}  # those that were asked for, by their place

if TYPE_CHECKING:
    # what the arguments and results of late methods are called where Late is shown
    from collections.abc import Callable as Callable
    from collections.abc import Sequence as Sequence

    from hcq.frontend.ops.base import Axes as Axes
    from hcq.frontend.ops.base import Self as Self
    from hcq.frontend.ops.late_groups import Late as Late  # a class of all of them, by its stub
    from hcq.frontend.symbolic.variable import Bound as Bound
    from hcq.ir.dtype import DType as DType
    from hcq.ir.dtype import Scalar as Scalar

else:

    class Growing(type):
        """The class of a class with late methods: what it lacks is imported, if the table has it."""

        def __getattr__(cls, name):
            place = METHODS.get(name)
            if place is None:
                raise _unknown(cls, name)
            group(place)
            return getattr(cls, name)

        def __dir__(cls):
            return sorted({*super().__dir__(), *METHODS})

    class Operator:
        """Stands for an operator: Python asks the class for those, and no `__getattr__` where it has none."""

        def __init__(self, name, place):
            self.name, self.place = name, place

        def __get__(self, one, kind):
            group(self.place)
            return vars(Late)[self.name].__get__(one, kind)

    class Late(Methods, metaclass=Growing):
        """The methods that were asked for by now."""

        __slots__ = ()

        def __getattr__(self, name):
            place = METHODS.get(name)
            if place is not None:
                group(place)
            elif not any(name in base.__dict__ for base in type(self).__mro__):
                raise _unknown(type(self), name)
            # a property that raises AttributeError raises it again
            return object.__getattribute__(self, name)

        def __dir__(self):
            return sorted({*super().__dir__(), *METHODS})

    for _name, _place in METHODS.items():
        if _name.startswith("__"):
            setattr(Late, _name, Operator(_name, _place))


class Unknown(AttributeError):
    """Nothing has that name. What is named alike is looked for when somebody reads the message."""

    def __init__(self, owner: Any, name: str, what: str) -> None:
        super().__init__(name, name=name, obj=owner)
        self.owner, self.called, self.what = owner, name, what

    def __str__(self) -> str:
        from difflib import get_close_matches

        alike = get_close_matches(self.called, [name for name in dir(self.owner) if name[0] != "_"], 3, 0.7)
        hint = f" Named alike: {', '.join(alike)}." if alike else ""
        return f"[{self.called}] {self.what} of this name.{hint}"


def _unknown(kind: type, name: str) -> Unknown:
    return Unknown(kind, name, f"a {kind.__name__} has no method or attribute")


def group(place: str) -> type[Methods]:
    """The group at a place of the table. Late has its methods from then on."""
    found = _groups.get(place)
    if found is None:
        file, _, name = place.partition(":")
        found = getattr(importlib.import_module(file), name)
        with _lock:
            if place not in _groups:
                _hand_over(found)
                _groups[place] = found
    return found


def groups(kind: type = Late) -> tuple[type[Methods], ...]:
    """The groups whose methods a class such as Tensor has, with every late one, imported by now."""
    return (*own_groups(kind), *map(group, GROUPS))


def own_groups(kind: type) -> list[type[Methods]]:
    """The groups that a class has from the first."""
    bases = [base for base in kind.__mro__ if base is not Late and Methods in base.__bases__]
    return [part for base in bases for part in getattr(base, "_groups", (base,))]


def take_over(owner: type, found: type) -> None:
    """A class has the methods of a group as if they were its own."""
    for name, member in vars(found).items():
        if name not in _IS_NO_METHOD:
            setattr(owner, name, member)


def _hand_over(found: type) -> None:
    """Late gets the methods of a group, each ready to be called: another thread may ask meanwhile."""
    for name, member in checked_members(Late, found, meeting=BOTH):
        if name in _IS_NO_METHOD:
            continue
        if hasattr(member, "__set_name__"):  # one of forwarded.py, whose method is made on this class
            member.__set_name__(Late, name)
        setattr(Late, name, member)
