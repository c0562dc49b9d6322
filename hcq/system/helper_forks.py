"""Helper forks: marks forks of helper processes, which will not use devices.

In       `of_helpers`, around work that starts helpers by fork: processes that make bytes, run no kernel, and end
Out      `makes_helper`, for code that would otherwise give something up at a fork
Changes  a mark of this thread
Next     cpu/arena.py (keeps its memory then), guarded_child.py and frontend/run/plan.py (start the helpers)

Fork hooks run in the thread that forks, so the mark belongs to a thread. It does not affect forks of other threads.
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
