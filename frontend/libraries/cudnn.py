"""cudnn: flags of NVIDIA's library of layers, which is not called here. They may be set, and have no effect.

In       assignments
Out      is_available() is False; benchmark, deterministic, enabled, allow_tf32: what was assigned
Changes  nothing
Next     __init__.py; docs/semantics.md (results are the same bits in every run)
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

enabled = False
benchmark = False
deterministic = True
allow_tf32 = False


def is_available() -> bool:
    """False: kernels are compiled here.

    >>> hcq.backends.cudnn.is_available()
    False
    """
    return False


def version() -> None:
    """None: there is none.

    >>> hcq.backends.cudnn.version() is None
    True
    """


@contextmanager
def flags(**values: Any) -> Iterator[None]:
    """May be entered, and has no effect.

    >>> with hcq.backends.cudnn.flags(benchmark=True):
    ...     pass
    """
    yield
