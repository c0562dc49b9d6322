"""The tensor layer's own refusals: usage errors that also are the built-in error a Python reader expects.

In       one sentence: `[call] arguments: what is wrong. The fix.`
Out      exceptions caught by `except UsageError` as well as by `except IndexError` or `except ZeroDivisionError`
Changes  nothing
Next     hcq/errors.py (the tree they belong to)
"""

from __future__ import annotations

from hcq.errors import UsageError


class OutOfRange(UsageError, IndexError):
    """An axis or an index that the tensor does not have."""


class DivisionByZero(UsageError, ZeroDivisionError):
    """Integer division by the Python number zero."""


__all__ = ["DivisionByZero", "OutOfRange", "UsageError"]
