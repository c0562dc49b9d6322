"""A word that tells a kernel to end: machine code and the interpreter look at it in every loop that may last.

In       who wants the kernel to end
Out      Stop; Stopped, by which the kernel ends
Changes  the word
Next     ../processor.py (who wants it, and when), groups.py and machine.py (who look)
"""

from __future__ import annotations

import numpy as np

from hcq.system import native


class Stopped(Exception):
    """A kernel was told to end before it had."""


class Stop:
    """Whether what runs is to end."""

    def __init__(self) -> None:
        self._word = np.zeros(1, np.int64)
        self.address = native.address_of(self._word)  # where machine code finds it

    @property
    def is_set(self) -> bool:
        """Whether somebody has asked."""
        return bool(self._word[0])

    def ask(self) -> None:
        """What runs is to end."""
        self._word[0] = 1

    def clear(self) -> None:
        """Something else runs."""
        self._word[0] = 0


NEVER = Stop()  # what nobody stops
