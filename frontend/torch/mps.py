"""torch.backends.mps: whether there is a Metal device.

In       nothing
Out      is_available
Changes  a question opens the device
Next     rows.py (is_built), device_words.py (what "mps" means)
"""

from __future__ import annotations

from hcq.frontend.torch.device_words import is_here


def is_available() -> bool:
    """Whether hcq.torch.device("mps") opens.

    >>> hcq.torch.backends.mps.is_available() in (True, False)
    True
    """
    return is_here("METAL")
