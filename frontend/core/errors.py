"""The tensor layer's own refusals: usage errors that also are the built-in error a Python reader expects.

In       one sentence: `[call] arguments: what is wrong. The fix.`
Out      exceptions caught by `except UsageError` as well as by `except IndexError` or `except ZeroDivisionError`
Next     hcq/errors.py (the tree they belong to)
"""

from hcq.errors import UsageError


class OutOfRange(UsageError, IndexError):
    """An axis or an index that the tensor does not have, or that is none."""


class WrongType(UsageError, TypeError):
    """An argument of another type than the call takes, where Python says TypeError."""


class NotReal(UsageError):
    """Complex numbers where real ones are computed; whoever can compute with both catches it (complex/meeting.py)."""


class DivisionByZero(UsageError, ZeroDivisionError):
    """Integer division by the Python number zero."""


class LinAlgError(UsageError):
    """A matrix that is not what a function with check_errors was asked for: singular, or not positive definite.

    >>> hcq.torch.linalg.inv_ex(Tensor([[0.0]]), check_errors=True)
    Traceback (most recent call last):
        ...
    hcq.frontend.core.errors.LinAlgError: [inv_ex] ...
    """


class UnknownName(UsageError, KeyError):
    """A name that a file of tensors does not have."""

    __str__ = Exception.__str__  # a KeyError shows its message in quotes


class DamagedFile(UsageError):
    """A file that cannot be what it says it is."""


class MissingFile(UsageError, FileNotFoundError):
    """A file that another one is a part of a model with, and that is not there."""


__all__ = [
    "DamagedFile",
    "DivisionByZero",
    "LinAlgError",
    "MissingFile",
    "NotReal",
    "OutOfRange",
    "UnknownName",
    "UsageError",
]
