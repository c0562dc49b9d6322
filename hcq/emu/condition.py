"""A condition variable whose wait may end by Ctrl-C at any moment, with its lock held, as `with` expects it.

In       nothing
Out      `Condition`, for kernels whose calls wait in the caller's own thread
Next     amd/kfd_events.py (events of KFD), metal/gpu.py (Metal's runtime)
"""

from __future__ import annotations

import contextlib
import threading
from typing import Protocol, cast


class _Owned(Protocol):
    def _is_owned(self) -> bool:
        """Whether this thread has the lock."""


class Condition(threading.Condition):
    """threading.Condition, with one gap closed.

    `wait` there gives its lock up in one call and begins the block that takes it back in the next. A KeyboardInterrupt
    between the two leaves the lock free, and the `with` around the wait hides it behind "cannot release un-acquired
    lock".
    """

    def wait(self, timeout: float | None = None) -> bool:
        """As of threading.Condition. The lock is this thread's again, also after an error."""
        try:
            return super().wait(timeout)
        finally:
            while not cast(_Owned, self)._is_owned():
                with contextlib.suppress(KeyboardInterrupt):  # one is on its way already
                    self.acquire()
