"""Late: groups of methods that are imported when a program first asks for a method that the other groups lack.

In       a name that Tensor does not have yet
Out      `Late`, a base of Tensor that gets these groups as bases of its own; `groups`, all that Tensor is made of
Changes  the bases of Late, one group after the other until one has the name
Next     tensor.py (the groups that every program has), ./ (the groups), functions.py (who asks for all names)

A type checker sees a class that has all of them.
"""

from __future__ import annotations

import importlib
from threading import RLock
from typing import TYPE_CHECKING, Any

from hcq.frontend.ops.arguments import check_methods
from hcq.frontend.ops.base import Methods
from hcq.frontend.ops.meeting import BOTH

# file of ./ -> its group: those that are asked for most, first
LATE = {
    "ordering": "Ordering",
    "initial": "Initial",
    "shapes": "Shapes",
    "parts": "Parts",
    "pooling": "Pooling",
    "statistics": "Statistics",
    "gates": "Gates",
    "signs": "Signs",
    "angles": "Angles",
    "logarithms": "Logarithms",
    "scattering": "Scattering",
    "matrices": "Matrices",
    "factoring": "Factoring",
    "bits": "Bits",
    "counting": "Counting",
    "margins": "Margins",
    "rearranging": "Rearranging",
    "special_values": "SpecialValues",
    "synonyms": "Synonyms",
    "strided": "Strided",
    "drawing": "Drawing",
    "asking": "Asking",
    "history": "History",
}
_lock = RLock()
_waiting = dict(LATE)

if TYPE_CHECKING:
    from hcq.frontend.ops.angles import Angles
    from hcq.frontend.ops.asking import Asking
    from hcq.frontend.ops.bits import Bits
    from hcq.frontend.ops.counting import Counting
    from hcq.frontend.ops.drawing import Drawing
    from hcq.frontend.ops.factoring import Factoring
    from hcq.frontend.ops.gates import Gates
    from hcq.frontend.ops.history import History
    from hcq.frontend.ops.initial import Initial
    from hcq.frontend.ops.logarithms import Logarithms
    from hcq.frontend.ops.margins import Margins
    from hcq.frontend.ops.matrices import Matrices
    from hcq.frontend.ops.ordering import Ordering
    from hcq.frontend.ops.parts import Parts
    from hcq.frontend.ops.pooling import Pooling
    from hcq.frontend.ops.rearranging import Rearranging
    from hcq.frontend.ops.scattering import Scattering
    from hcq.frontend.ops.shapes import Shapes
    from hcq.frontend.ops.signs import Signs
    from hcq.frontend.ops.special_values import SpecialValues
    from hcq.frontend.ops.statistics import Statistics
    from hcq.frontend.ops.strided import Strided
    from hcq.frontend.ops.synonyms import Synonyms

    class Late(
        Ordering, Initial, Shapes, Parts, Pooling, Statistics, Gates, Signs, Angles, Logarithms, Scattering,
        Matrices, Factoring, Bits, Counting, Margins, Rearranging, SpecialValues, Synonyms, Strided, Drawing, Asking,
        History,
    ):  # fmt: skip
        """All of them."""

        __slots__ = ()

else:

    class Growing(type):
        """The class of a class with late groups: what it lacks is looked for in those that are not imported yet."""

        def __getattr__(cls, name):
            if name.startswith("__") or not _find(cls, name):
                raise _unknown(cls, name)
            return getattr(cls, name)

        def __dir__(cls):
            groups()
            return super().__dir__()

    class Late(Methods, metaclass=Growing):
        """The groups that are imported by now."""

        __slots__ = ()

        def __getattr__(self, name):
            kind = type(self)
            if name.startswith("__") or not _find(kind, name):
                raise _unknown(kind, name)
            return object.__getattribute__(self, name)

        def __dir__(self):
            groups()
            return super().__dir__()


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


def groups(kind: type = Late) -> tuple[type, ...]:
    """The groups that a class such as Tensor is made of, with every late one, imported by now."""
    _find(Late, "")
    return tuple(base for base in kind.__mro__ if base is not Late and Methods in base.__bases__)


def _find(kind: type, name: str) -> bool:
    """Import late groups until one has the name. False when none has."""
    while not any(name in base.__dict__ for base in kind.__mro__):
        with _lock:
            if not _waiting:
                return False
            file = next(iter(_waiting))
            group = getattr(importlib.import_module(f"hcq.frontend.ops.{file}"), _waiting[file])
            check_methods(group, meeting=BOTH)
            *others, base = Late.__bases__
            Late.__bases__ = (*others, group, base)
            del _waiting[file]
    return True
