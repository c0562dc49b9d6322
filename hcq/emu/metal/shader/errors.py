"""What stops MSL: text that is refused, and kernels that do what hardware would not survive.

In       nothing
Out      MslError, KernelFault
Changes  nothing
Next     parser.py, translate.py (who refuse), machine.py (who finds faults)
"""

from __future__ import annotations


class MslError(Exception):
    """The text is no MSL of the subset; the message names the line."""


class KernelFault(Exception):
    """A thread did what it must not: left its buffer, raced, parted at a barrier."""
