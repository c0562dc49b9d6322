"""mps: whether there is a Metal device.

In       nothing
Out      is_available, is_built
Changes  a question opens the device
Next     __init__.py; ../device_words.py (what "mps" means)
"""

from __future__ import annotations

from hcq.frontend.device_words import is_here


def is_available() -> bool:
    """Whether hcq.device("mps") opens.

    >>> hcq.backends.mps.is_available() in (True, False)
    True
    """
    return is_here("METAL")


def is_built() -> bool:
    """Whether Metal devices can be used, on a machine that has one: they can.

    >>> hcq.backends.mps.is_built()
    True
    """
    return True
