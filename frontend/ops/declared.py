"""Declared: what a group of methods may call in another group.

In       the groups of methods
Out      `Declared`, the base of all of them; for type checkers it has what any group calls in another
Next     base.py (Methods), tools/method_stubs.py (who reads the groups and writes the stub)
"""

from hcq.frontend.core.base import Core


class Declared(Core):
    """The base of groups of methods."""

    __slots__ = ()
