"""Methods: one register write to an engine of a channel. A method is a word with fields and the address it goes to.

In       class X(Method, at=address, vendor="NAME") with `field = bits(hi, lo)` lines
Out      packets of one word that know their address; printed with the vendor's name; classes by what differs
Changes  nothing
Next     host_methods.py, compute_methods.py, copy_methods.py (all of them), methods.py (pushbuffers)
Source   the class headers clc56f.h, clc6c0.h, clc6b5.h and their successors
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any, ClassVar

from hcq.layout import SparsePacket


class Method(SparsePacket, words=1):
    """One word for one address. `entries` is how many consecutive addresses an array of the method has."""

    at: ClassVar[int] = 0  # bytes
    vendor: ClassVar[str] = "UNKNOWN"
    entries: ClassVar[int] = 1

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


def changed(
    base: Sequence[type[Method]], *different: type[Method], absent: Collection[type[Method]] = ()
) -> tuple[type[Method], ...]:
    """The methods of a class that differs in a few from a related one. Of two at one address the given one stays."""
    moved = {method.at for method in different}
    kept = (method for method in base if method not in absent and method.at not in moved)
    return (*kept, *different)
