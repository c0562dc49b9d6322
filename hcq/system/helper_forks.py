"""Forks: whether the child that is being made will use devices.

In       `of_helpers`, around work that starts helpers by fork: processes that make bytes, run no kernel, and end
Out      `makes_helper`, for who would give something up at a fork
Changes  a mark of this thread
Next     cpu/arena.py (who keeps its memory), guarded_child.py and frontend/run/plan.py (whose forks these are)

Hooks of a fork run in the thread that forks, so the mark is a thread's: what another thread forks meanwhile is its own.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

_mark = threading.local()


@contextmanager
def of_helpers() -> Iterator[None]:
    """Children that this thread forks in here use no device: they compute, write down what they made, and end."""
    before = makes_helper()
    _mark.is_set = True
    try:
        yield
    finally:
        _mark.is_set = before


def makes_helper() -> bool:
    """Whether a fork by this thread makes such a child."""
    return getattr(_mark, "is_set", False)
